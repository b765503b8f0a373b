"""Removes leftovers of killed processes of this machine from a store."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from perfpipe.claims import CLAIM, is_abandoned
from perfpipe.directories import TRASH, WRITING
from perfpipe.errors import StoreError
from perfpipe.inuse import changing_claims
from perfpipe.owner import has_ended
from perfpipe.provenance import utc_now
from perfpipe.runrecord import RunRecord
from perfpipe.store import Store

#: Directories of small files.
_FILES = ("inputs", "baselines", "calibrations", "trials")


def sweep(store: Store) -> list[Path]:
    """Remove leftovers whose owners have ended, and end their runs; return the removed paths.

    A run whose processes have all ended becomes `interrupted`.  Nothing is removed if the store
    cannot be written.
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
            if any(_ended(directory, CLAIM)):
                removed += _sweep_claims(store, directory)
    return removed


def _sweep_claims(store: Store, directory: Path) -> list[Path]:
    """Remove the claims of ended processes on a run or batch; return the removed paths."""
    with changing_claims(directory) as free:
        claims = [*_ended(directory, CLAIM)]
        # Another process may have claimed it since.
        ended = directory.parent == store.runs_dir and is_abandoned(directory)
        if not free or (ended and not _interrupt(store, directory.name)):
            return []
        removed = [claim for claim in claims if _remove(claim)]
        with contextlib.suppress(OSError):
            # Of a process that was killed before it recorded anything.
            directory.rmdir()
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


def _interrupt(store: Store, run_id: str) -> bool:
    """Record a run as interrupted if its process could not do so; return whether that is done."""
    path = store.runs_dir / run_id / "run.json"
    if not path.exists():
        return True
    with contextlib.suppress(StoreError, OSError):
        record = RunRecord.read(path)
        if record.status == "running":
            store.write_run(replace(record, status="interrupted", ended_at=utc_now()))
        return True
    return False
