"""Removes leftovers of killed writers and replaced files from a store."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from perfpipe.errors import OtherVersion, StoreError
from perfpipe.inuse import removing
from perfpipe.manifest import Manifest
from perfpipe.segments import INDEX, Segment, segment_manifests
from perfpipe.store import Store
from perfpipe.sweeping import sweep


def collect_garbage(store: Store, older_than_s: float) -> list[Path]:
    """Remove leftovers unchanged for `older_than_s` seconds, and files replaced that long ago.

    What a process of this machine writes or reads stays.  Returns the removed paths.
    """
    now = time.time()
    removed = sweep(store)
    for path in store.abandoned():
        with contextlib.suppress(FileNotFoundError):
            newest = max(p.stat().st_mtime for p in (path, *path.iterdir()))
            if now - newest >= older_than_s:
                shutil.rmtree(path, ignore_errors=True)
                removed.append(path)
    return removed + remove_replaced(store, older_than_s)


def remove_replaced(store: Store, older_than_s: float) -> list[Path]:
    """Remove and return the paths that segments of that age replaced.

    These are older segments, and the directories of reports in the segment.  Nothing is removed
    while a process of this machine reads the store.
    """
    now = time.time()
    removed: list[tuple[Path, Path]] = []
    with removing(store.root) as free:
        for segment, held in store.reports_in_segments().items() if free else ():
            with contextlib.suppress(FileNotFoundError):
                if now - (segment.path / INDEX).stat().st_mtime >= older_than_s:
                    removed += _hide_segments(store, segment)
                    removed += _hide_directories(store, segment, held)
    for _, trash in removed:
        shutil.rmtree(trash, ignore_errors=True)
    return [path for path, _ in removed]


def _hide_segments(store: Store, segment: Segment) -> Iterator[tuple[Path, Path]]:
    """Rename the segments that one replaces; yield the old and new path of each."""
    for segment_id in sorted(segment.replaces):
        path = store.segments_dir / segment_id
        with contextlib.suppress(FileNotFoundError):
            yield path, path.rename(store.trash_of(path))
            shutil.rmtree(store.removed_dir / segment_id, ignore_errors=True)


def _hide_directories(
    store: Store, segment: Segment, held: Collection[str]
) -> Iterator[tuple[Path, Path]]:
    """Rename the directories of reports in a segment; yield the old and new path of each."""
    both = {*store.own_report_ids()} & {*held}
    for manifest in segment_manifests(segment, both):
        path = store.reports_dir / manifest.report_id
        with contextlib.suppress(FileNotFoundError):
            if not _is_replaced(path, segment, manifest):
                continue
            trash = path.rename(store.trash_of(path))
            if _is_replaced(trash, segment, manifest):
                yield path, trash
            else:
                # Ingested again in this moment: the new directory counts.
                with contextlib.suppress(OSError):
                    trash.rename(path)


def _is_replaced(directory: Path, segment: Segment, manifest: Manifest) -> bool:
    """Return whether a segment holds the content of a report's directory.

    It does not if the report was ingested again since, even from the same file.
    """
    if segment.sources:
        return segment.sources.get(manifest.report_id) == directory.stat().st_mtime_ns
    try:
        return Manifest.read(directory / "manifest.json") == manifest
    except OtherVersion:
        return False
    except StoreError:
        return True
