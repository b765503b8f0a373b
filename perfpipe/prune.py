"""Removes from a store what nobody needs: leftovers of killed writers, and replaced files."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Collection
from pathlib import Path

from perfpipe.errors import OtherVersion, StoreError
from perfpipe.manifest import Manifest
from perfpipe.segments import INDEX, Segment, segment_manifests
from perfpipe.store import Store
from perfpipe.sweeping import sweep


def collect_garbage(store: Store, older_than_s: float) -> list[Path]:
    """Remove leftovers that nobody touched for `older_than_s` seconds, and what was replaced then.

    Returns what was removed.
    """
    now = time.time()
    removed = sweep(store)
    for path in store.leftovers():
        with contextlib.suppress(FileNotFoundError):
            newest = max(p.stat().st_mtime for p in (path, *path.iterdir()))
            if now - newest >= older_than_s:
                shutil.rmtree(path, ignore_errors=True)
                removed.append(path)
    return removed + remove_replaced(store, older_than_s)


def remove_replaced(store: Store, older_than_s: float) -> list[Path]:
    """Remove what segments of that age took the place of; return it.

    That is older segments, and the directories of reports that the segment holds.
    """
    now = time.time()
    removed = []
    for segment, held in store.reports_in_segments().items():
        with contextlib.suppress(FileNotFoundError):
            if now - (segment.path / INDEX).stat().st_mtime >= older_than_s:
                removed += _remove_segments(store, segment)
                removed += _remove_directories(store, segment, held)
    return removed


def _remove_segments(store: Store, segment: Segment) -> list[Path]:
    removed = []
    for segment_id in sorted(segment.replaces):
        path = store.segments_dir / segment_id
        with contextlib.suppress(FileNotFoundError):
            trash = store.trash_of(path)
            path.rename(trash)
            shutil.rmtree(trash, ignore_errors=True)
            shutil.rmtree(store.removed_dir / segment_id, ignore_errors=True)
            removed.append(path)
    return removed


def _remove_directories(store: Store, segment: Segment, held: Collection[str]) -> list[Path]:
    removed = []
    both = {*store.own_report_ids()} & {*held}
    for manifest in segment_manifests(segment, both):
        path = store.reports_dir / manifest.report_id
        trash = store.trash_of(path)
        with contextlib.suppress(FileNotFoundError):
            path.rename(trash)
            if _is_replaced(trash, manifest):
                shutil.rmtree(trash, ignore_errors=True)
                removed.append(path)
            else:
                # Ingested anew in the meantime: this one counts.
                with contextlib.suppress(OSError):
                    trash.rename(path)
    return removed


def _is_replaced(directory: Path, manifest: Manifest) -> bool:
    """Return whether a segment holds what was in the directory of a report, or more."""
    try:
        return Manifest.read(directory / "manifest.json") == manifest
    except OtherVersion:
        return False
    except StoreError:
        return True
