"""Copies of a working directory: what is copied, linked, cloned or refused."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from pathlib import Path

import pytest
from protected import git, settle, sh, sha, state

from perfpipe.errors import InputError
from perfpipe.pipelines.trying import copying
from perfpipe.pipelines.trying.protecting import Protection

pytestmark = pytest.mark.usefixtures("own_places")


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
    settle()
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
        assert sh(place, "echo more >> outside").ok
        assert place.outside() == (str(elsewhere / "data"),)


def test_large_data_is_not_copied(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "LARGE", 1000)
    monkeypatch.setattr(copying, "_clones", lambda *_: False)
    (project / "train.parquet").write_bytes(bytes(5000))
    (project / "small.parquet").write_bytes(bytes(999))
    (project / "last.pt").write_bytes(bytes(2000))
    settle()
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
        assert sh(place, "echo >> train.parquet").ok
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


def test_a_repository_stays_one(project: Path, mode: str) -> None:
    git(project, "init", "-q")
    git(project, "add", ".")
    git(project, "commit", "-qm", "first")
    known = git(project, "rev-parse", "HEAD")
    before = state(project)
    script = (
        "git rev-parse HEAD; echo b >> a.txt; "
        "git -c user.name=t -c user.email=t@t commit -qam second; git status --short; "
        "git log --oneline | wc -l"
    )
    with Protection(project, mode).launch() as place:
        done = sh(place, script)
        assert done.stdout == f"{known}2\n", done.stderr
        assert place.written() == {"a.txt": sha("a\nb\n")}
    assert state(project) == before


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
