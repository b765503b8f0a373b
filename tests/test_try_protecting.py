"""Where `perfpipe try` launches: the user's files stay, and each launch begins alike."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from conftest import ROOT
from protected import EMPTY, launch, needs_overlay, sh, sha, state

from perfpipe.pipelines.process import run
from perfpipe.pipelines.trying import overlay, protecting
from perfpipe.pipelines.trying.protecting import Protection
from perfpipe.scratch import remove_tree

pytestmark = pytest.mark.usefixtures("own_places")


CHANGES = """\
echo more >> a.txt; : > new; mkdir -p deep/er; echo z > deep/er/z; rm sub/x; rm -r sub/inner
mkdir sub/inner; echo w > sub/inner/w; ln -s a.txt link; mkdir __pycache__; : > __pycache__/m.pyc
mkdir closed; echo c > closed/c; chmod 0 closed; touch 'ne
w' 'a,b:c'"""

CHANGED = {
    "a,b:c": EMPTY, "a.txt": sha("a\nmore\n"), "closed/c": sha("c\n"), "deep/er/z": sha("z\n"),
    "link": "-> a.txt", "ne\nw": EMPTY, "new": EMPTY, "sub/inner/w": sha("w\n"),
    "sub/inner/y": "deleted", "sub/x": "deleted",
}  # fmt: skip


def test_files_stay_and_what_was_written_is_known(project: Path, mode: str) -> None:
    before = state(project)
    with Protection(project, mode) as protection, protection.launch() as place:
        assert place.kind == protection.kind == mode
        done = sh(place, CHANGES)
        assert (done.returncode, done.stderr) == (0, "")
        if os.getuid() == 0 or mode == "overlay":
            assert place.written() == CHANGED
        else:
            assert {**place.written(), "closed/c": sha("c\n")} == CHANGED
    assert state(project) == before


def test_each_launch_begins_alike_and_nothing_remains(
    project: Path, mode: str, tmp_path: Path
) -> None:
    """A program that resumes from its checkpoint does the same work each time."""
    script = "[ -e last.pt ] && echo resumed; echo 1 > last.pt; rm -rf sub; chmod 0 ."
    protection = Protection(project, mode)
    for _ in range(2):
        with protection.launch() as place:
            assert sh(place, script).stdout == ""
    with contextlib.suppress(KeyError), protection.launch() as place:
        sh(place, script)
        raise KeyError
    assert not [*(tmp_path / "temporary").iterdir()]
    assert (project / "sub" / "x").read_text() == "x\n"


def test_rewritten_alike_and_opened_only_counts_by_the_time(project: Path, mode: str) -> None:
    with Protection(project, mode).launch() as place:
        assert sh(place, ": >> a.txt; cat sub/x; chmod 700 sub").ok
        assert place.written() == {}
    with Protection(project, mode).launch() as place:
        assert sh(place, "sleep 0.02; printf 'a\\n' > a.txt").ok
        assert place.written() == {"a.txt": sha("a\n")}


def test_a_program_may_delete_its_directory(project: Path, mode: str) -> None:
    before = state(project)
    with Protection(project, mode).launch() as place:
        done = sh(place, 'cd /; rm -rf "$OLDPWD"/* && cd / && echo fine')
        assert done.stdout == "fine\n"
        assert place.written() == {
            "a.txt": "deleted", "sub/inner/y": "deleted", "sub/x": "deleted",
        }  # fmt: skip
    assert state(project) == before


def test_the_ending_of_the_program_is_its_own(project: Path, mode: str) -> None:
    with Protection(project, mode).launch() as place:
        assert sh(place, "exit 3").returncode == 3
        assert sh(place, "kill -SEGV $$").returncode == -signal.SIGSEGV
        # Python ignores SIGPIPE, its children would too.
        assert sh(place, "kill -PIPE $$; echo ignored").returncode == -signal.SIGPIPE
        done = launch(place, "env", "-u", "X", "sh", "-c", "echo $PPID; ulimit -c; id -u")
        assert done.stdout.splitlines()[-1] == str(os.getuid())
        assert place.failure is None


def test_variables_are_as_given(project: Path, mode: str) -> None:
    """In the C locale, Python would add LC_CTYPE."""
    with Protection(project, mode, network=True).launch() as place:
        words = [*place.wrapper, *place.rewritten(["/usr/bin/env"])]
        done = run(["env", "-i", "A=b\nc", "B=", "LC_ALL=C", *words], cwd=place.cwd)
    assert done.stdout == "A=b\nc\nB=\nLC_ALL=C\n"


def test_a_missing_program_is_named(project: Path) -> None:
    needs_overlay(project)
    with Protection(project, "overlay").launch() as place:
        done = launch(place, "no-such-program")
        assert done.returncode == 127
        assert done.complaint() == "no-such-program: No such file or directory"


def test_processes_end_with_the_launch(project: Path, mode: str) -> None:
    with Protection(project, mode).launch() as place:
        done = launch(place, "sh", "-c", "sleep 600 & echo $!; exec sleep 600", timeout=3)
        assert done.timed_out
        with pytest.raises(ProcessLookupError):
            os.kill(int(done.stdout), 0)


# --- paths


def test_paths_lead_to_the_protected_files(project: Path, mode: str) -> None:
    config = project / "a.txt"
    script = 'echo new > "$1"; cat "${2#*=}"; case "$3" in *project2/a.txt) echo same;; esac'
    with Protection(project, mode).launch() as place:
        words = ["sh", "-c", script, "sh", str(config), f"--config={config}", f"{project}2/a.txt"]
        done = launch(place, *words)
        assert done.stdout == "new\nsame\n"
        assert place.written() == {"a.txt": sha("new\n")}
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
    before = state(project)
    with Protection(link, mode).launch() as place:
        done = launch(place, "sh", "-c", 'echo b > "$1"; rm sub/x', "sh", str(link / "b"))
        assert done.ok
        assert place.written() == {"b": sha("b\n"), "sub/x": "deleted"}
    assert state(project) == before


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
    before = state(directory)
    with Protection(directory, mode).launch() as place:
        assert sh(place, 'for f in ./*; do echo g > "$f/f"; : > "$f.new"; done').ok
        assert sorted(place.written().values()) == [EMPTY, sha("g\n")] or sorted(
            place.written().values()
        ) == [sha("g\n"), EMPTY]
    assert state(directory) == before


def test_directories_elsewhere_that_the_command_names(project: Path, tmp_path: Path) -> None:
    needs_overlay(project)
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
            f"{out}/file": sha("1\n"), f"{out}/log": sha("2\n"), f"{out}/old": "deleted",
            f"{another}/r": sha("3\n"),
        }  # fmt: skip
        assert place.outside() == ()
    assert [*out.iterdir()] == [out / "old"]
    assert not [*another.iterdir()]


def test_the_directory_above_is_protected_too(tmp_path: Path) -> None:
    above = tmp_path / "above"
    for name in ("project", "store", "beside"):
        (above / name).mkdir(parents=True)
        (above / name / "f").write_text("f\n")
    needs_overlay(above)
    before = state(above / "project"), state(above / "beside")
    protection = Protection(above / "project", "overlay", through=(above / "store",))
    with protection.launch() as place:
        script = 'mkdir -p "$1"; echo 1 > "$1/r"; echo 2 > f; rm ../beside/f; echo 3 > ../store/f'
        done = launch(place, "sh", "-c", script, "sh", "../out/deep")
        assert (done.returncode, done.stderr) == (0, "")
        assert place.written() == {
            "f": sha("2\n"), f"{above}/beside/f": "deleted", f"{above}/out/deep/r": sha("1\n"),
        }  # fmt: skip
    assert (state(above / "project"), state(above / "beside")) == before
    assert (above / "store" / "f").read_text() == "3\n"
    assert not (above / "out").exists()


def test_perfpipes_own_directories_stay_reachable(project: Path, tmp_path: Path, mode: str) -> None:
    """A profiler that runs in the overlay writes its report into the store."""
    store = project / "perfpipe-store"
    store.mkdir()
    (store / "large").write_text("x")
    with Protection(project, mode, through=(store, project / "none")).launch() as place:
        assert launch(place, "sh", "-c", f"echo r > {store}/report || echo r > /dev/null").ok
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
    needs_overlay(project)
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


def test_renamed_directories_explain_themselves() -> None:
    text = "OSError: [Errno 18] Invalid cross-device link: 'runs' -> 'runs.old'"
    assert "cannot be renamed" in (protecting.hint(text, "overlay") or "")
    assert protecting.hint(text, "copy") is None
    assert protecting.hint("", "overlay") is None
