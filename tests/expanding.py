"""Fixtures of tests/data without their compression, which all workers share and no test changes."""

from __future__ import annotations

import lzma
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import DATA, publish


class Kept:
    """Files and directories that stay as they are."""

    def __init__(self) -> None:
        self._known: dict[Path, list[tuple[str, int, int]]] = {}

    def keep(self, path: Path) -> None:
        """Remember what the file system says about a file, or about the files of a directory."""
        if path not in self._known:
            self._known[path] = _state(path)

    def changed(self) -> list[Path]:
        """Return what changed since the last call."""
        now = {path: _state(path) for path in self._known}
        found = [path for path, state in now.items() if state != self._known[path]]
        self._known = now
        return found


def _state(path: Path) -> list[tuple[str, int, int]]:
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    stats = [(file.name, file.stat()) for file in files if file.exists()]
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]


@pytest.fixture(scope="session")
def shared_files() -> Kept:
    """What this worker expanded or found expanded."""
    return Kept()


@pytest.fixture(scope="session")
def expand(shared: Path, shared_files: Kept) -> Callable[[str], Path]:
    """Return a fixture of tests/data without its compression: 'ncu/visible.ncu-rep'.

    It is to be read only: a test that changes it makes a copy.
    """

    def expand_one(name: str) -> Path:
        target = shared / name.replace("/", "-")
        if (DATA / f"{name}.tar.xz").exists():
            unpacked = publish(shared / f"{target.name}.d", lambda at: _unpack(name, at))
            path = unpacked / Path(name).name
        else:
            path = publish(target, lambda at: _decompress(name, at))
        shared_files.keep(path)
        return path

    return expand_one


def _unpack(name: str, at: Path) -> None:
    shutil.unpack_archive(DATA / f"{name}.tar.xz", at, "xztar")
    folder = at / Path(name).name
    # A copy of the directory has its mode: files can be exchanged there.
    folder.chmod(0o755)
    for file in folder.iterdir():
        file.chmod(0o444)


def _decompress(name: str, at: Path) -> None:
    at.write_bytes(lzma.decompress((DATA / f"{name}.xz").read_bytes()))
    at.chmod(0o444)


@pytest.fixture(autouse=True)
def _none_is_changed(shared_files: Kept) -> Iterator[None]:
    """Fail after a test that changed such a file: root can write to files that are read-only."""
    yield
    changed = ", ".join(str(path) for path in shared_files.changed())
    assert not changed, f"this test, or one that ran meanwhile, changed {changed}: change a copy"
