"""Temporary directories that are marked with their owner, and removed after its end."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from perfpipe.owner import has_ended, own_name

_PREFIX = "perfpipe"


@contextlib.contextmanager
def scratch(within: str | Path | None = None) -> Iterator[Path]:
    """Yield a directory for temporary files of this process, which is removed at the end."""
    parent = Path(within or tempfile.gettempdir())
    sweep_scratch(parent)
    directory = parent / own_name(_PREFIX)
    directory.mkdir(mode=0o700)
    try:
        yield directory
    finally:
        remove_tree(directory)


def spill_directory() -> Path:
    """Return a new directory name, not created yet, for data that does not fit in memory."""
    parent = _of_spilled()
    sweep_scratch(parent)
    return parent / own_name(f"{_PREFIX}-duckdb")


def sweep_spilled() -> None:
    """Remove what a process that was just killed did not fit in memory."""
    sweep_scratch.cache_clear()
    sweep_scratch(_of_spilled())


def _of_spilled() -> Path:
    return Path(os.environ.get("SLURM_TMPDIR") or tempfile.gettempdir())


def sweep_beside(path: Path) -> None:
    """Remove temporary files and directories that ended processes left next to a path."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(path.parent):
            if entry.name.startswith(".tmp-") and has_ended(entry.name):
                _remove(Path(entry.path))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)


@cache
def sweep_scratch(parent: Path) -> None:
    """Remove leftovers of ended processes in a directory; once per process."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(parent):
            if entry.name.startswith(_PREFIX) and has_ended(entry.name):
                remove_tree(Path(entry.path))


def remove_tree(directory: Path) -> None:
    """Remove a directory as far as possible, also what a program or the kernel made unreadable."""
    shutil.rmtree(directory, ignore_errors=True)
    if not directory.is_dir():
        return
    _open_up(directory)
    # Directories come before what is in them, so that this can be listed.
    for folder, names, _ in os.walk(directory):
        for name in names:
            _open_up(Path(folder, name))
    shutil.rmtree(directory, ignore_errors=True)


def _open_up(directory: Path) -> None:
    with contextlib.suppress(OSError):
        mode = directory.lstat().st_mode
        if stat.S_ISDIR(mode) and mode & stat.S_IRWXU != stat.S_IRWXU:
            directory.chmod(stat.S_IRWXU)
