"""Which protection `perfpipe try` uses, and which directories it refuses."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from protected import needs_overlay, sh, sha

from perfpipe.errors import InputError
from perfpipe.pipelines.trying import directories, overlay
from perfpipe.pipelines.trying.protecting import Protection

pytestmark = pytest.mark.usefixtures("own_places")


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
    needs_overlay(project)
    with Protection(project, "overlay").launch() as place:
        assert place._overlaid is not None
        shutil.rmtree(place._overlaid.layers[0].upper)
        done = sh(place, "echo never")
        assert (done.returncode, done.stdout) == (125, "")
        assert "the working directory cannot be protected" in done.stderr
        assert place.failure is not None
        assert place.failure.endswith("No such file or directory")


def test_in_place_the_files_change_and_are_listed(project: Path) -> None:
    with Protection(project, "in-place").launch() as place:
        assert (place.kind, place.wrapper, place.cwd) == ("in-place", (), project)
        assert sh(place, "echo n > n; rm sub/x").ok
        assert place.written() == {"n": sha("n\n"), "sub/x": "deleted"}
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
