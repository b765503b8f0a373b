"""Removes leftovers of killed writers and replaced files from a store."""

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
    """Remove leftovers unchanged for `older_than_s` seconds, and files replaced that long ago.

    Returns the removed paths.
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
    """Remove and return the paths that segments of that age replaced.

    These are older segments, and the directories of reports in the segment.
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
                # Ingested again in the meantime: the new directory counts.
                with contextlib.suppress(OSError):
                    trash.rename(path)
    return removed


def _is_replaced(directory: Path, manifest: Manifest) -> bool:
    """Return whether a segment holds at least the content of a report's directory."""
    try:
        return Manifest.read(directory / "manifest.json") == manifest
    except OtherVersion:
        return False
    except StoreError:
        return True
