"""Temporary directories that are marked with their owner, and removed after its end."""

from __future__ import annotations

import contextlib
import os
import shutil
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
        shutil.rmtree(directory, ignore_errors=True)


def spill_directory() -> Path:
    """Return a new directory name, not created yet, for data that does not fit in memory."""
    parent = Path(os.environ.get("SLURM_TMPDIR") or tempfile.gettempdir())
    sweep_scratch(parent)
    return parent / own_name(f"{_PREFIX}-duckdb")


def sweep_beside(path: Path) -> None:
    """Remove temporary files that ended processes left next to a path."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(path.parent):
            if entry.name.startswith(".tmp-") and has_ended(entry.name):
                Path(entry.path).unlink(missing_ok=True)


@cache
def sweep_scratch(parent: Path) -> None:
    """Remove leftovers of ended processes in a directory; once per process."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(parent):
            if entry.name.startswith(_PREFIX) and has_ended(entry.name):
                shutil.rmtree(entry.path, ignore_errors=True)
