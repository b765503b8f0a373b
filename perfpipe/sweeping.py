"""Removes leftovers of killed processes of this machine from a store."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from perfpipe.errors import StoreError
from perfpipe.owner import has_ended
from perfpipe.provenance import utc_now
from perfpipe.store import TRASH, WRITING, Store

#: Name prefix of a claim: a process works on the run or batch of this directory.
CLAIM = "claim"

#: Directories of small files.
_FILES = ("inputs", "baselines", "calibrations", "trials")


def sweep(store: Store) -> list[Path]:
    """Remove leftovers whose owners have ended, and end their runs; return the removed paths.

    A run without a working process becomes `interrupted`.  Nothing is removed if the store cannot
    be written.
    """
    removed = []
    parents = [store.reports_dir, store.segments_dir, store.batches_dir]
    for parent in (*parents, *(store.root / name for name in _FILES)):
        removed += [path for path in _ended(parent, WRITING, TRASH) if _remove(path)]
    for search in _directories(store.searches_dir):
        for directory in (search, *_directories(search / "candidates")):
            removed += [path for path in _ended(directory, WRITING) if _remove(path)]
    for parent in (store.runs_dir, store.batches_dir):
        for directory in _directories(parent):
            removed += [path for path in _ended(directory, WRITING) if _remove(path)]
            for claim in _ended(directory, CLAIM):
                if parent == store.runs_dir:
                    _interrupt(store, directory.name)
                removed += [claim] if _remove(claim) else []
    return removed


def _ended(directory: Path, *beginnings: str) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        for entry in os.scandir(directory):
            if entry.name.startswith(beginnings) and has_ended(entry.name):
                yield Path(entry.path)


def _directories(parent: Path) -> list[Path]:
    try:
        found = [entry for entry in os.scandir(parent) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return [Path(entry.path) for entry in found if not entry.name.startswith(".")]


def _remove(path: Path) -> bool:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
    return not path.exists()


def _interrupt(store: Store, run_id: str) -> None:
    """Record a run as interrupted if its process could not do so."""
    with contextlib.suppress(StoreError, OSError):
        record = store.run(run_id)
        if record.status == "running":
            store.write_run(replace(record, status="interrupted", ended_at=utc_now()))
