"""Where `perfpipe try` launches: the user's files stay, and each launch begins alike."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from perfpipe.errors import InputError, TaskFailed
from perfpipe.pipelines.process import Finished, run
from perfpipe.pipelines.trying import copying, directories, outside, overlay, protecting, services
from perfpipe.pipelines.trying.protecting import Place, Protection
from perfpipe.scratch import remove_tree, scratch, sweep_scratch

EMPTY = hashlib.sha256().hexdigest()


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture(autouse=True)
def _places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this test have its own home and temporary files."""
    for name, variable in (("home", "HOME"), ("temporary", "TMPDIR")):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / name))
    monkeypatch.delenv("SLURM_TMPDIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", None)
    places = [tmp_path / "home", tmp_path / "temporary"]
    monkeypatch.setattr(protecting, "usual_places", lambda: places)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    (made / "sub" / "inner").mkdir(parents=True)
    (made / "a.txt").write_text("a\n")
    (made / "sub" / "x").write_text("x\n")
    (made / "sub" / "inner" / "y").write_text("y\n")
    return made


def _needs_overlay(directory: Path) -> None:
    """A sandbox may forbid namespaces; copies are tested there too."""
    with scratch() as room:
        why = overlay.impossible(directory, room)
    if why is not None:
        pytest.skip(f"no overlays here: {why}")


@pytest.fixture(params=["overlay", "copy"])
def mode(request: pytest.FixtureRequest, project: Path) -> str:
    if request.param == "overlay":
        _needs_overlay(project)
    return str(request.param)


def _settle() -> None:
    """Let files be older than the ticks of the clock for their times."""
    time.sleep(0.05)


def _state(top: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return everything that must stay as it is."""
    found = {}
    for path in sorted(top.rglob("*")):
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        # git renews the time of an object that it would write again.
        ns = 0 if "objects" in path.parts else path.lstat().st_mtime_ns
        found[str(path)] = (path.lstat().st_mode, ns, content)
    return found


def _launch(place: Place, *words: str, **options: Any) -> Finished:
    command = place.rewritten(words)
    return run([*place.wrapper, *command], cwd=place.cwd, env=place.env, **options)


def _sh(place: Place, script: str) -> Finished:
    return _launch(place, "sh", "-c", script)


CHANGES = """\
echo more >> a.txt; : > new; mkdir -p deep/er; echo z > deep/er/z; rm sub/x; rm -r sub/inner
mkdir sub/inner; echo w > sub/inner/w; ln -s a.txt link; mkdir __pycache__; : > __pycache__/m.pyc
mkdir closed; echo c > closed/c; chmod 0 closed; touch 'ne
w' 'a,b:c'"""

CHANGED = {
    "a,b:c": EMPTY, "a.txt": _sha("a\nmore\n"), "closed/c": _sha("c\n"), "deep/er/z": _sha("z\n"),
    "link": "-> a.txt", "ne\nw": EMPTY, "new": EMPTY, "sub/inner/w": _sha("w\n"),
    "sub/inner/y": "deleted", "sub/x": "deleted",
}  # fmt: skip


def test_files_stay_and_what_was_written_is_known(project: Path, mode: str) -> None:
    before = _state(project)
    with Protection(project, mode) as protection, protection.launch() as place:
        assert place.kind == protection.kind == mode
        done = _sh(place, CHANGES)
        assert (done.returncode, done.stderr) == (0, "")
        if os.getuid() == 0 or mode == "overlay":
            assert place.written() == CHANGED
        else:
            assert {**place.written(), "closed/c": _sha("c\n")} == CHANGED
    assert _state(project) == before


def test_each_launch_begins_alike_and_nothing_remains(
    project: Path, mode: str, tmp_path: Path
) -> None:
    """A program that resumes from its checkpoint does the same work each time."""
    script = "[ -e last.pt ] && echo resumed; echo 1 > last.pt; rm -rf sub; chmod 0 ."
    protection = Protection(project, mode)
    for _ in range(2):
        with protection.launch() as place:
            assert _sh(place, script).stdout == ""
    with contextlib.suppress(KeyError), protection.launch() as place:
        _sh(place, script)
        raise KeyError
    assert not [*(tmp_path / "temporary").iterdir()]
    assert (project / "sub" / "x").read_text() == "x\n"


def test_rewritten_alike_and_opened_only_counts_by_the_time(project: Path, mode: str) -> None:
    with Protection(project, mode).launch() as place:
        assert _sh(place, ": >> a.txt; cat sub/x; chmod 700 sub").ok
        assert place.written() == {}
    with Protection(project, mode).launch() as place:
        assert _sh(place, "sleep 0.02; printf 'a\\n' > a.txt").ok
        assert place.written() == {"a.txt": _sha("a\n")}


def test_a_program_may_delete_its_directory(project: Path, mode: str) -> None:
    before = _state(project)
    with Protection(project, mode).launch() as place:
        done = _sh(place, 'cd /; rm -rf "$OLDPWD"/* && cd / && echo fine')
        assert done.stdout == "fine\n"
        assert place.written() == {
            "a.txt": "deleted", "sub/inner/y": "deleted", "sub/x": "deleted",
        }  # fmt: skip
    assert _state(project) == before


def test_the_ending_of_the_program_is_its_own(project: Path, mode: str) -> None:
    with Protection(project, mode).launch() as place:
        assert _sh(place, "exit 3").returncode == 3
        assert _sh(place, "kill -SEGV $$").returncode == -signal.SIGSEGV
        # Python ignores SIGPIPE, its children would too.
        assert _sh(place, "kill -PIPE $$; echo ignored").returncode == -signal.SIGPIPE
        done = _launch(place, "env", "-u", "X", "sh", "-c", "echo $PPID; ulimit -c; id -u")
        assert done.stdout.splitlines()[-1] == str(os.getuid())
        assert place.failure is None


def test_variables_are_as_given(project: Path, mode: str) -> None:
    """In the C locale, Python would add LC_CTYPE."""
    with Protection(project, mode, network=True).launch() as place:
        words = [*place.wrapper, *place.rewritten(["/usr/bin/env"])]
        done = run(["env", "-i", "A=b\nc", "B=", "LC_ALL=C", *words], cwd=place.cwd)
    assert done.stdout == "A=b\nc\nB=\nLC_ALL=C\n"


def test_a_missing_program_is_named(project: Path) -> None:
    _needs_overlay(project)
    with Protection(project, "overlay").launch() as place:
        done = _launch(place, "no-such-program")
        assert done.returncode == 127
        assert done.complaint() == "no-such-program: No such file or directory"


def test_processes_end_with_the_launch(project: Path, mode: str) -> None:
    with Protection(project, mode).launch() as place:
        done = _launch(place, "sh", "-c", "sleep 600 & echo $!; exec sleep 600", timeout=3)
        assert done.timed_out
        with pytest.raises(ProcessLookupError):
            os.kill(int(done.stdout), 0)


# --- paths


def test_paths_lead_to_the_protected_files(project: Path, mode: str) -> None:
    config = project / "a.txt"
    script = 'echo new > "$1"; cat "${2#*=}"; case "$3" in *project2/a.txt) echo same;; esac'
    with Protection(project, mode).launch() as place:
        words = ["sh", "-c", script, "sh", str(config), f"--config={config}", f"{project}2/a.txt"]
        done = _launch(place, *words)
        assert done.stdout == "new\nsame\n"
        assert place.written() == {"a.txt": _sha("new\n")}
        moved = "paths in the command point into the copy of the directory"
        assert (moved in place.notes) == (mode == "copy")
    assert config.read_text() == "a\n"


def test_variables_lead_into_a_copy(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/elsewhere:{project}:{project}/sub:{project}2")
    monkeypatch.setenv("OTHER", f"{project}/a.txt")
    given = {"PYTHONPATH": f"/injected:{project}", "CONFIG": f"{project}/a.txt"}
    with Protection(project, "copy", network=True).launch() as place:
        copy = place.cwd
        assert place.variables(given) == {
            "LD_LIBRARY_PATH": f"/elsewhere:{copy}:{copy}/sub:{project}2",
            "PYTHONPATH": f"/injected:{copy}", "CONFIG": f"{copy}/a.txt",
        }  # fmt: skip
    with Protection(project, "in-place", network=True).launch() as place:
        assert place.variables(given) == given
    with Protection(project, "in-place").launch() as place:
        assert place.variables({"WANDB_MODE": "online"})["WANDB_MODE"] == "offline"


def test_a_linked_working_directory(project: Path, mode: str, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(project)
    before = _state(project)
    with Protection(link, mode).launch() as place:
        done = _launch(place, "sh", "-c", 'echo b > "$1"; rm sub/x', "sh", str(link / "b"))
        assert done.ok
        assert place.written() == {"b": _sha("b\n"), "sub/x": "deleted"}
    assert _state(project) == before


HOSTILE = [
    b"a,b:c\\d",
    b"new\nline",
    b" '\"$(touch x)",
    b"\xff\xfe",
    "ü".encode(),
    b"-rf",
    b"a=b%s",
]


@pytest.mark.parametrize("name", HOSTILE, ids=repr)
def test_hostile_names(tmp_path: Path, mode: str, name: bytes) -> None:
    directory = tmp_path / os.fsdecode(name)
    (directory / os.fsdecode(name)).mkdir(parents=True)
    (directory / os.fsdecode(name) / "f").write_text("f\n")
    before = _state(directory)
    with Protection(directory, mode).launch() as place:
        assert _sh(place, 'for f in ./*; do echo g > "$f/f"; : > "$f.new"; done').ok
        assert sorted(place.written().values()) == [EMPTY, _sha("g\n")] or sorted(
            place.written().values()
        ) == [_sha("g\n"), EMPTY]
    assert _state(directory) == before


def test_directories_elsewhere_that_the_command_names(project: Path, tmp_path: Path) -> None:
    _needs_overlay(project)
    out = tmp_path / "out"
    out.mkdir()
    (out / "old").write_text("old\n")
    (project / "runs").symlink_to(out)
    another = tmp_path / "another"
    another.mkdir()
    with Protection(project, "overlay", env={"RESULTS": str(another)}).launch() as place:
        script = 'echo 1 > "$1"; echo 2 > runs/log; rm runs/old; echo 3 > "$RESULTS/r"'
        words = place.rewritten(["sh", "-c", script, "sh", f"{out}/file", f"--x={out}/new/deep"])
        variables = {**place.env, "RESULTS": str(another)}
        done = run([*place.wrapper, *words], cwd=place.cwd, env=variables)
        assert (done.returncode, done.stderr) == (0, "")
        assert place.written() == {
            f"{out}/file": _sha("1\n"), f"{out}/log": _sha("2\n"), f"{out}/old": "deleted",
            f"{another}/r": _sha("3\n"),
        }  # fmt: skip
        assert place.outside() == ()
    assert [*out.iterdir()] == [out / "old"]
    assert not [*another.iterdir()]


def test_the_directory_above_is_protected_too(tmp_path: Path) -> None:
    above = tmp_path / "above"
    for name in ("project", "store", "beside"):
        (above / name).mkdir(parents=True)
        (above / name / "f").write_text("f\n")
    _needs_overlay(above)
    before = _state(above / "project"), _state(above / "beside")
    protection = Protection(above / "project", "overlay", through=(above / "store",))
    with protection.launch() as place:
        script = 'mkdir -p "$1"; echo 1 > "$1/r"; echo 2 > f; rm ../beside/f; echo 3 > ../store/f'
        done = _launch(place, "sh", "-c", script, "sh", "../out/deep")
        assert (done.returncode, done.stderr) == (0, "")
        assert place.written() == {
            "f": _sha("2\n"), f"{above}/beside/f": "deleted", f"{above}/out/deep/r": _sha("1\n"),
        }  # fmt: skip
    assert (_state(above / "project"), _state(above / "beside")) == before
    assert (above / "store" / "f").read_text() == "3\n"
    assert not (above / "out").exists()


def test_perfpipes_own_directories_stay_reachable(project: Path, tmp_path: Path, mode: str) -> None:
    """A profiler that runs in the overlay writes its report into the store."""
    store = project / "perfpipe-store"
    store.mkdir()
    (store / "large").write_text("x")
    with Protection(project, mode, through=(store, project / "none")).launch() as place:
        assert _launch(place, "sh", "-c", f"echo r > {store}/report || echo r > /dev/null").ok
        assert "perfpipe-store/report" not in place.written()
        assert (place.cwd / "perfpipe-store" / "large").exists() == (mode == "overlay")
    if mode == "overlay":
        assert (store / "report").read_text() == "r\n"


MOUNTING = """\
import os, subprocess, sys
from pathlib import Path
from perfpipe.pipelines.process import run
from perfpipe.pipelines.trying.protecting import Protection
project = Path(sys.argv[1])
(project / "mounted").mkdir()
subprocess.run(["mount", "-t", "tmpfs", "none", str(project / "mounted")], check=True)
(project / "mounted" / "data").write_text("data")
(project / "mounted" / "sub").mkdir()
with Protection(project, "overlay").launch() as place:
    words = ["sh", "-c", "cat mounted/data; echo 1 > mounted/data; rm -r mounted/sub; mkdir mounted/sub"]
    done = run([*place.wrapper, *place.rewritten(words)], cwd=place.cwd, env=place.env)
    print(done.stdout, done.stderr, sorted(path.rpartition("/")[2] for path in place.written()))
print((project / "mounted" / "data").read_text(), (project / "mounted" / "sub").is_dir())
"""


def test_other_file_systems_below_stay_visible_and_protected(project: Path) -> None:
    """Also in the namespace of a container, whose root has fewer rights."""
    _needs_overlay(project)
    words = ["unshare", "--user", "--map-root-user", "--mount"]
    if not shutil.which("unshare") or subprocess.run([*words, "true"]).returncode:
        pytest.skip("no unshare, or no user namespaces")
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [*words, sys.executable, "-c", MOUNTING, str(project)],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.stdout == "data  ['data']\ndata True\n", done.stderr


def test_without_rights_the_user_stays(project: Path, tmp_path: Path) -> None:
    """The user, not root, is in a namespace of users, and may not mount there afterwards."""
    python = shutil.which("python3", path="/usr/bin:/bin")
    if os.getuid() != 0 or python is None:
        pytest.skip("not root, as which another user is tried")
    room = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        for path in (room / "dir" / "sub", room / "room"):
            path.mkdir(parents=True)
        (room / "dir" / "f").write_text("f\n")
        helper = room / "overlaid.py"
        shutil.copy(overlay._HELPER, helper)
        for path in (room, *room.rglob("*")):
            os.chown(path, 65534, 65534)
        overlaid = overlay.Overlaid(
            room / "dir",
            [overlay.Layer(room / "dir", (room / "dir",), room / "room" / "changes")],
            room / "room",
        )
        overlaid.layers[0].make()
        overlaid.write()
        for path in (room / "room").rglob("*"):
            os.chown(path, 65534, 65534)
        script = "id -u; id -g; rm -r sub f; mkdir sub; echo n > n; grep CapEff /proc/self/status"
        done = subprocess.run(
            [python, "-I", "-S", str(helper), *overlaid.wrapper[4:], "sh", "-c", script],
            user=65534, group=65534, extra_groups=[], capture_output=True, text=True, cwd=room,
        )  # fmt: skip
        if overlaid.failure():
            pytest.skip(f"no user namespaces: {overlaid.failure()}")
        assert done.stdout.split() == ["65534", "65534", "CapEff:", "0" * 16], done.stderr
        found = [(str(at), path is None) for at, path in overlay.changes(overlaid.layers[0])]
        assert found == [("f", True), ("n", False)]
        assert (room / "dir" / "f").read_text() == "f\n"
    finally:
        remove_tree(room)
    assert not room.exists()


# --- no overlay


def test_without_overlays_a_copy_is_made(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlay, "impossible", lambda *_: "user namespaces are not allowed here")
    protection = Protection(project)
    assert protection.kind == "copy"
    with protection.launch() as place:
        assert place.notes == ["no overlay: user namespaces are not allowed here"]
    with pytest.raises(
        InputError, match=r"cannot be protected by an overlay .user namespaces are n"
    ):
        Protection(project, "overlay").kind  # noqa: B018


#: A helper that fails as it does where mounts are forbidden.
FORBIDDEN = """\
import json, sys
spec = json.load(open(sys.argv[1]))
json.dump({"failed": "unshare: Operation not permitted"}, open(spec["said"], "w"))
sys.exit(125)
"""


@pytest.mark.parametrize(
    ("helper", "why"),
    [
        (FORBIDDEN, "user namespaces are not allowed here .unshare: Operation not permitted"),
        ("import os, sys\nos.execvp(sys.argv[2], sys.argv[2:])", "appear in the directory itself"),
        ("import sys\nsys.exit('broken')", "a trial failed: broken"),
    ],
)
def test_an_overlay_is_tried_for_real(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, helper: str, why: str
) -> None:
    other = tmp_path / "helper.py"
    other.write_text(helper)
    monkeypatch.setattr(overlay, "_HELPER", other)
    before = sorted(path.name for path in project.iterdir())
    protection = Protection(project)
    assert protection.kind == "copy"
    assert protection.why is not None
    assert why.replace("(", ".").replace(".", "") in protection.why.replace("(", "").replace(
        ".", ""
    )
    assert sorted(path.name for path in project.iterdir()) == before


def test_an_overlay_that_fails_later_is_the_failure_of_the_launch(
    project: Path, tmp_path: Path
) -> None:
    _needs_overlay(project)
    with Protection(project, "overlay").launch() as place:
        assert place._overlaid is not None
        shutil.rmtree(place._overlaid.layers[0].upper)
        done = _sh(place, "echo never")
        assert (done.returncode, done.stdout) == (125, "")
        assert "the working directory cannot be protected" in done.stderr
        assert place.failure is not None
        assert place.failure.endswith("No such file or directory")


def test_in_place_the_files_change_and_are_listed(project: Path) -> None:
    with Protection(project, "in-place").launch() as place:
        assert (place.kind, place.wrapper, place.cwd) == ("in-place", (), project)
        assert _sh(place, "echo n > n; rm sub/x").ok
        assert place.written() == {"n": _sha("n\n"), "sub/x": "deleted"}
    assert (project / "n").exists()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("home", "home is your home directory, which is not protected as a whole: .*--in-place"),
        (".", "contains your home directory"),
        ("temporary", "temporary is the directory of temporary files"),
        ("missing", "missing: no such directory"),
        ("home/file", "home/file: no such directory"),
    ],
)
def test_directories_that_are_refused(tmp_path: Path, name: str, sentence: str) -> None:
    (tmp_path / "home" / "file").touch()
    with pytest.raises(InputError, match=sentence):
        Protection(tmp_path / name)


def test_the_root_directory_is_refused() -> None:
    with pytest.raises(InputError, match=r"/ (is|contains) "):
        Protection(Path("/"))
    assert Protection(Path("/"), "in-place").kind == "in-place"


def test_temporary_files_in_the_working_directory(
    project: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Changes must not be below what they are changes of: they go elsewhere, if possible."""
    inside = project / "tmp"
    inside.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(inside))
    with pytest.raises(InputError, match="contains the directory of temporary files"):
        Protection(project, mode)


def test_no_place_for_changes(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directories, "rooms", lambda _: [])
    with (
        pytest.raises(
            InputError, match=r"no place for the files that launches write: .*set TMPDIR"
        ),
        Protection(project, "copy").launch(),
    ):
        pass


def test_a_disk_with_space_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    small.mkdir()
    large.mkdir()
    used = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(directories, "temporary", lambda: [tmp_path / "no", small, large])
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: used._replace(free=(3 << 30) * (path == large))
    )
    assert directories.rooms(tmp_path / "project") == [large, small]
    assert directories.rooms(large) == [small]


def test_a_file_system_without_attributes(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory that was deleted and made again would show the old files."""

    def unsupported(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "")

    monkeypatch.setattr(os, "setxattr", unsupported)
    room = tmp_path / "temporary" / "room"
    room.mkdir()
    why = overlay.impossible(project, room)
    assert why == f"the file system of {room.parent} has no extended attributes"


def test_what_cannot_be_written_stays_so(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The overlay belongs to the user, unlike the directory."""
    layer = overlay.Layer(project, (project,), tmp_path / "room")
    with monkeypatch.context() as patched:
        patched.setattr(os, "access", lambda *_: False)
        layer.make()
    assert layer.upper.stat().st_mode & 0o777 == project.stat().st_mode & 0o555


# --- copies


def test_links_in_a_copy(project: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "data").write_text("data")
    links = {
        "relative": "sub/x", "absolute": str(project / "sub" / "x"), "broken": "nowhere",
        "outside": "../elsewhere/data", "far": str(elsewhere), "sub/up": "../a.txt", "self": ".",
    }  # fmt: skip
    for name, aim in links.items():
        (project / name).symlink_to(aim)
    _settle()
    with Protection(project, "copy").launch() as place:
        copy = place.cwd
        assert (copy / "relative").readlink() == Path("sub/x")
        assert (copy / "absolute").readlink() == copy / "sub" / "x"
        assert (copy / "outside").readlink() == elsewhere / "data"
        assert (copy / "far").readlink() == elsewhere
        assert (copy / "sub" / "up").read_text() == "a\n"
        assert (copy / "self").resolve() == copy.resolve()
        assert place.written() == {}
        # What a link leads to is the user's own.
        assert _sh(place, "echo more >> outside").ok
        assert place.outside() == (str(elsewhere / "data"),)


def test_large_data_is_not_copied(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "LARGE", 1000)
    monkeypatch.setattr(copying, "_clones", lambda *_: False)
    (project / "train.parquet").write_bytes(bytes(5000))
    (project / "small.parquet").write_bytes(bytes(999))
    (project / "last.pt").write_bytes(bytes(2000))
    _settle()
    protection = Protection(project, "copy", most_bytes=4000)
    with protection.launch() as place:
        assert (place.cwd / "train.parquet").readlink() == project / "train.parquet"
        for name in ("small.parquet", "last.pt"):
            assert not (place.cwd / name).is_symlink()
        assert place.notes == ["train.parquet is not copied: the copy links to the original"]
        assert place.rewritten(["cat", f"{project}/train.parquet", f"{project}/last.pt"])[1:] == [
            f"{project}/train.parquet", f"{place.cwd}/last.pt",
        ]  # fmt: skip
        # A program that changes it changes the original, which is then reported.
        assert _sh(place, "echo >> train.parquet").ok
        assert place.outside() == (str(project / "train.parquet"),)
    with (
        pytest.raises(InputError, match=r"again \(the largest: last.pt\), more than the limit of"),
        Protection(project, "copy", most_bytes=2500).launch(),
    ):
        pass


def test_too_many_files(project: Path, tmp_path: Path) -> None:
    (project / "images").mkdir()
    for number in range(20):
        (project / "images" / f"{number}.jpg").touch()
    sentence = "has more than 10 files, most of them in images, which are too many to copy"
    with (
        pytest.raises(InputError, match=sentence),
        Protection(project, "copy", most_files=10).launch(),
    ):
        pass
    assert not [*(tmp_path / "temporary").iterdir()]


def test_virtual_environments_are_linked(project: Path) -> None:
    (project / ".venv" / "bin").mkdir(parents=True)
    (project / ".venv" / "pyvenv.cfg").touch()
    (project / ".venv" / "bin" / "python").touch()
    with Protection(project, "copy").launch() as place:
        assert (place.cwd / ".venv").readlink() == project / ".venv"
        words = [str(project / ".venv/bin/python"), str(project / "a.txt")]
        assert place.rewritten(words) == [words[0], f"{place.cwd}/a.txt"]
        assert place.notes == ["paths in the command point into the copy of the directory"]


def _git(directory: Path, *words: str) -> str:
    settings = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "safe.directory=*"]
    done = subprocess.run(["git", *settings, *words], cwd=directory, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_repository_stays_one(project: Path, mode: str) -> None:
    _git(project, "init", "-q")
    _git(project, "add", ".")
    _git(project, "commit", "-qm", "first")
    known = _git(project, "rev-parse", "HEAD")
    before = _state(project)
    script = (
        "git rev-parse HEAD; echo b >> a.txt; "
        "git -c user.name=t -c user.email=t@t commit -qam second; git status --short; "
        "git log --oneline | wc -l"
    )
    with Protection(project, mode).launch() as place:
        done = _sh(place, script)
        assert done.stdout == f"{known}2\n", done.stderr
        assert place.written() == {"a.txt": _sha("a\nb\n")}
    assert _state(project) == before


def test_no_space_for_a_copy(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "_clones", lambda *_: False)
    used = shutil.disk_usage(project)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: used._replace(free=100 << 20))
    with (
        pytest.raises(InputError, match=r"no space for a copy of .*has 104\.9 MB free; set TMPDIR"),
        Protection(project, "copy").launch(),
    ):
        pass


def test_a_disk_that_fills_up(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "there")

    monkeypatch.setattr(copying, "_clones", lambda *_: False)
    monkeypatch.setattr(shutil, "copyfile", full)
    sentence = "cannot copy the working directory: there: No space left on device"
    with pytest.raises(InputError, match=sentence), Protection(project, "copy").launch():
        pass


def test_a_full_disk_is_noted_after_the_launch(
    project: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Protection(project, mode).launch() as place:
        used = shutil.disk_usage(project)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: used._replace(free=0))
    assert "is full; set TMPDIR to a larger disk" in place.notes[-1]


def test_files_that_cannot_be_read_or_vanish(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = shutil.copyfile

    def copyfile(there: Path, here: Path) -> object:
        if there.name == "x":
            raise PermissionError(errno.EACCES, "", str(there))
        if there.name == "y":
            raise FileNotFoundError(errno.ENOENT, "", str(there))
        return known(there, here)

    monkeypatch.setattr(copying, "_clones", lambda *_: False)
    monkeypatch.setattr(shutil, "copyfile", copyfile)
    os.mkfifo(project / "fifo")
    with Protection(project, "copy").launch() as place:
        assert (place.cwd / "a.txt").exists()
        assert not (place.cwd / "fifo").exists()
        assert place.notes == ["sub/x cannot be read, and is not in the copy"]


def test_files_are_cloned_where_possible(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clone has no size, so no limit applies; it is made by the file system."""
    asked = []

    def ioctl(target: int, request: int, source: int) -> int:
        asked.append(request)
        os.sendfile(target, source, 0, 1 << 20)
        return 0

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    with Protection(project, "copy", most_bytes=1).launch() as place:
        assert (place.cwd / "sub" / "x").read_text() == "x\n"
        assert place.written() == {}
    assert {*asked} == {0x40049409}


# --- patch and build

PATCH = """\
--- a/a.txt
+++ b/a.txt
@@ -1 +1,2 @@
 a
+patched
"""


@pytest.mark.parametrize("program", ["git", "patch"])
def test_a_patch_and_a_build_are_made_once(
    project: Path, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    patch, count = tmp_path / "change.patch", tmp_path / "count"
    patch.write_text(PATCH)
    if not shutil.which(program):
        pytest.skip(f"no {program}")
    known = shutil.which
    monkeypatch.setattr(
        shutil, "which", lambda name, **_: None if name in {"git", "patch"} - {program} else known(name)
    )  # fmt: skip
    before = _state(project)
    build = f"sh -c 'cat a.txt > built; rm -r sub/inner; echo >> {count}'"
    with Protection(project, mode, patch=patch, build=build) as protection:
        for _ in range(2):
            with protection.launch() as place:
                done = _sh(
                    place, "cat built; ls sub; echo run > built; mkdir sub/inner; ls sub/inner"
                )
                assert done.stdout == "a\npatched\nx\n"
                assert place.written() == {"built": _sha("run\n")}
    assert count.read_text() == "\n"
    assert _state(project) == before
    assert not [*(tmp_path / "temporary").iterdir()]


def test_a_patch_of_the_repository_in_a_subdirectory(
    project: Path, mode: str, tmp_path: Path
) -> None:
    """Names in the patch begin at the repository; git passes over those that do not."""
    _git(tmp_path, "init", "-q")
    patch = tmp_path / "change.patch"
    patch.write_text(
        PATCH.replace("a/a.txt", "a/project/a.txt").replace("b/a.txt", "b/project/a.txt")
    )
    with Protection(project, mode, patch=patch) as protection, protection.launch() as place:
        assert _sh(place, "cat a.txt").stdout == "a\npatched\n"


def test_a_patch_that_does_not_fit(project: Path, mode: str, tmp_path: Path) -> None:
    patch = tmp_path / "change.patch"
    patch.write_text(PATCH.replace(" a\n", " other\n"))
    with (
        Protection(project, mode, patch=patch) as protection,
        pytest.raises(TaskFailed, match=r"change.patch cannot be applied in .*project: .*a\.txt"),
        protection.launch(),
    ):
        pass
    with (
        pytest.raises(InputError, match=r"missing.patch: no such patch"),
        Protection(project, mode, patch=tmp_path / "missing.patch").launch(),
    ):
        pass


def test_a_build_takes_no_longer_than_the_budget(project: Path) -> None:
    protection = Protection(project, "copy", build="sleep 60")
    with (
        pytest.raises(TaskFailed, match=r"sleep 60 took longer than \d+ s"),
        protection.launch(build_s=0.2),
    ):
        pass


def test_a_build_that_fails(project: Path, mode: str) -> None:
    build = "sh -c 'echo \"make: *** broken\" >&2; exit 2'"
    with (
        pytest.raises(TaskFailed, match=r"failed: make: \*\*\* broken"),
        Protection(project, mode, build=build).launch(),
    ):
        pass


def test_nothing_is_patched_in_place(project: Path) -> None:
    with pytest.raises(InputError, match="not tried in place"):
        Protection(project, "in-place", build="make")


def test_links_to_originals_stay_in_prepared_copies(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / ".venv").mkdir()
    (project / ".venv" / "pyvenv.cfg").touch()
    protection = Protection(project, "copy", build=f"ln -s {project}/a.txt made")
    with protection, protection.launch() as place:
        assert (place.cwd / ".venv").readlink() == project / ".venv"
        assert (place.cwd / "made").readlink() == place.cwd / "a.txt"
        assert place.rewritten(["x", f"{project}/.venv/x", f"{project}/sub"])[1:] == [
            f"{project}/.venv/x", f"{place.cwd}/sub",
        ]  # fmt: skip


# --- elsewhere


def test_files_outside_are_found_and_protected_later(project: Path, tmp_path: Path) -> None:
    _needs_overlay(project)
    results = tmp_path / "home" / "results"
    results.mkdir()
    (results / "old").touch()
    cache = tmp_path / "home" / ".cache" / "hub"
    cache.mkdir(parents=True)
    os.utime(results / "old", (1, 1))
    _settle()
    script = (
        f"echo 1 > {results}/log; echo 2 > {cache}/model; cat {tmp_path}/temporary/no 2> /dev/null"
    )
    also: list[Path] = []
    protection = Protection(project, "overlay", also=also)
    with protection.launch() as place:
        assert _launch(place, "sh", "-c", f"{script}; exit 0").ok
        assert place.outside() == (str(cache / "model"), str(results / "log"))
        assert f"this launch wrote in {results}; later launches are protected there" in place.notes
    assert also == [results]
    (results / "log").unlink()
    with protection.launch() as place:
        assert _launch(place, "sh", "-c", f"{script}; exit 0").ok
        assert place.outside() == (str(cache / "model"),)
        assert place.written() == {f"{results}/log": _sha("1\n")}
    assert [path.name for path in results.iterdir()] == ["old"]


def test_the_search_is_limited_and_says_so(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outside, "_MOST_ENTRIES", 3)
    many = tmp_path / "home" / "many"
    many.mkdir()
    with Protection(project, "copy").launch() as place:
        for number in range(10):
            (many / str(number)).touch()
        place.outside()
        assert any("outside the working directory was ended in" in note for note in place.notes)


def test_a_copied_time_does_not_hide_a_file(tmp_path: Path) -> None:
    watch = outside.Watch([tmp_path])
    (tmp_path / "f").touch()
    os.utime(tmp_path / "f", (1, 1))
    (tmp_path / "perfpipe-own").touch()
    assert watch.changed() == [tmp_path / "f"]


def test_segments_of_ended_processes_are_removed(tmp_path: Path) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    (memory / "psm_0123").touch()
    _settle()
    watch = outside.Watch()
    ended = subprocess.Popen(["true"])
    ended.wait()
    with subprocess.Popen(["sleep", "60"]) as lives:
        gone = {f"torch_{ended.pid}_1_0", "sem.mp-abc", "sem.loky-1", "psm_12ab", "nccl-Ab1"}
        stay = {f"torch_{lives.pid}_1_0", f"torch_{os.getpid()}_1_0", "torch_1_0_0", "other"}
        for name in gone | stay:
            (memory / name).touch()
        removed = watch.remove_segments(memory)
        lives.kill()
    assert {*removed} == gone
    assert {path.name for path in memory.iterdir()} == {*stay, "psm_0123"}


def test_a_segment_in_use_stays(tmp_path: Path) -> None:
    import mmap

    watch = outside.Watch()
    (tmp_path / "psm_0a").write_bytes(bytes(4096))
    with (tmp_path / "psm_0a").open("r+b") as file, mmap.mmap(file.fileno(), 4096):
        assert watch.remove_segments(tmp_path) == []
    assert watch.remove_segments(tmp_path) == ["psm_0a"]


@pytest.mark.parametrize(
    ("first", "number", "last", "between"),
    [(10, 11, 20, True), (10, 10, 20, False), (10, 21, 20, False), (90, 95, 5, True),
     (90, 3, 5, True), (90, 50, 5, False)],
)  # fmt: skip
def test_numbers_of_processes_begin_again(
    first: int, number: int, last: int, between: bool
) -> None:
    assert outside._between(first, number, last) is between


def test_unreadable_directories_are_removed() -> None:
    """The kernel makes one below each overlay, and programs may: also by a user who is not root."""
    top = Path(tempfile.mkdtemp(dir="/tmp"))
    (top / "gone" / "closed" / "deep").mkdir(parents=True)
    (top / "gone" / "closed" / "deep" / "f").touch()
    (top / "gone" / "read-only").mkdir()
    (top / "gone" / "read-only" / "f").touch()
    (top / "kept").mkdir()
    (top / "gone" / "link").symlink_to(top / "kept")
    (top / "kept").chmod(0o500)
    (top / "gone" / "read-only").chmod(0o500)
    (top / "gone" / "closed" / "deep").chmod(0)
    (top / "gone" / "closed").chmod(0)
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                for path in (top, *top.rglob("*")):
                    os.chown(path, 65534, 65534, follow_symlinks=False)
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            remove_tree(top / "gone")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert [*top.iterdir()] == [top / "kept"]
    assert (top / "kept").stat().st_mode & 0o777 == 0o500
    remove_tree(top)


KILLED = """\
import sys
from pathlib import Path
from perfpipe.pipelines.process import run
from perfpipe.pipelines.trying.protecting import Protection
with Protection(Path(sys.argv[1]), sys.argv[2]).launch() as place:
    words = place.rewritten(["sh", "-c", "mkdir closed; : > closed/f; chmod 0 closed; echo go; sleep 600"])
    run([*place.wrapper, *words], cwd=place.cwd, on_line=lambda line: print(line, flush=True))
"""


def test_what_a_killed_perfpipe_leaves_is_removed(project: Path, mode: str, tmp_path: Path) -> None:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(project), mode],
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path},
    ) as killed:  # fmt: skip
        assert killed.stdout is not None
        assert killed.stdout.readline() == b"go\n"
        killed.kill()
    temporary = tmp_path / "temporary"
    assert [*temporary.iterdir()]
    sweep_scratch.cache_clear()
    until = time.monotonic() + 30
    while [*temporary.iterdir()] and time.monotonic() < until:
        sweep_scratch.cache_clear()
        sweep_scratch(temporary)
        time.sleep(0.05)
    assert not [*temporary.iterdir()]
    assert not (project / "closed").exists()


# --- services and ports


def test_nothing_is_sent_and_later_nothing_downloaded(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WANDB_MODE", "MLFLOW_TRACKING_URI", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    with Protection(project, "in-place").launch() as place:
        assert place.env["WANDB_MODE"] == "offline"
        assert place.env["MLFLOW_TRACKING_URI"].startswith("file:")
        assert "HF_HUB_OFFLINE" not in place.env
    with Protection(project, "in-place").launch(offline=True) as place:
        assert place.env["HF_HUB_OFFLINE"] == place.env["TRANSFORMERS_OFFLINE"] == "1"
    with Protection(project, "in-place", network=True).launch(offline=True) as place:
        assert place.env == {}


@pytest.mark.parametrize(
    ("env", "name", "value"),
    [
        ({"WANDB_MODE": "online"}, "WANDB_MODE", "offline"),
        ({"WANDB_MODE": "disabled"}, "WANDB_MODE", None),
        ({"MLFLOW_TRACKING_URI": "https://x"}, "MLFLOW_TRACKING_URI", "file:/runs/mlruns"),
        ({"MLFLOW_TRACKING_URI": "file:/own"}, "MLFLOW_TRACKING_URI", None),
        ({}, "CLEARML_OFFLINE_MODE", "1"),
    ],
)
def test_the_users_quiet_settings_stay(env: dict[str, str], name: str, value: str | None) -> None:
    assert services.quiet(env, Path("/runs"), offline=False).get(name) == value


PORT = {"MASTER_PORT": "5", "PET_MASTER_PORT": "5"}


@pytest.mark.parametrize(
    ("words", "inserted", "env"),
    [
        ("torchrun --nproc-per-node 2 t.py", None, PORT),
        ("/opt/bin/torchrun --nnodes=1 t.py --master_port 3", None, PORT),
        ("python -m torch.distributed.run --nproc-per-node=2 -m pkg", None, PORT),
        ("torchrun --master_port=29501 t.py", None, {}),
        ("torchrun --rdzv-endpoint localhost:0 t.py", None, {}),
        ("torchrun --standalone t.py", None, {}),
        ("torchrun --nnodes 2 t.py", None, {}),
        ("torchrun --nnodes=1:4 t.py", None, {}),
        ("accelerate launch --num_processes 2 t.py", 2, PORT),
        ("python -m accelerate.commands.launch t.py", 3, PORT),
        ("/bin/accelerate-launch t.py", 1, PORT),
        ("accelerate launch --main_process_port 0 t.py", None, {}),
        ("accelerate config", None, {}),
        ("python t.py torchrun-like", None, {}),
    ],
)
def test_ranks_meet_at_a_free_port(words: str, inserted: int | None, env: dict[str, str]) -> None:
    given = words.split()
    done, found = services.at_port(given, 5)
    if inserted is None:
        assert done == given
    else:
        assert done == [*given[:inserted], "--main_process_port", "5", *given[inserted:]]
    assert found == env


def test_each_launch_has_its_own_port(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASTER_PORT", raising=False)
    with Protection(project, "in-place").launch() as place:
        place.rewritten(["torchrun", "t.py"])
        assert 1024 <= int(place.env["MASTER_PORT"]) < 65536
    monkeypatch.setenv("MASTER_PORT", "7")
    with Protection(project, "in-place").launch() as place:
        place.rewritten(["torchrun", "t.py"])
        assert "MASTER_PORT" not in place.env


def test_renamed_directories_explain_themselves() -> None:
    text = "OSError: [Errno 18] Invalid cross-device link: 'runs' -> 'runs.old'"
    assert "cannot be renamed" in (protecting.hint(text, "overlay") or "")
    assert protecting.hint(text, "copy") is None
    assert protecting.hint("", "overlay") is None
