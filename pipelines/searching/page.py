"""The page of a search, from its files on disk."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path

from perfpipe import searchrecord
from perfpipe.analysis.search_page import search_report
from perfpipe.analysis.search_summary import Found
from perfpipe.pipelines.searching.disk import SearchDirectory
from perfpipe.pipelines.searching.normalising import files_of
from perfpipe.store import Store
from perfpipe.viewmodel import Report

#: Most lines of a difference that the page shows, and bytes of a file that is compared.
_LINES, _BYTES = 600, 1 << 20


def found_of(disk: SearchDirectory) -> Found:
    """Return what a search found so far."""
    done = [one for one in disk.attempts() if one.status != searchrecord.PROPOSED]
    return Found(tuple(done), disk.search.baseline, disk.search)


def found_named(store: Store, search_id: str) -> Found:
    """Return what a search of a store found so far; raises StoreError if it is damaged."""
    return found_of(SearchDirectory.read(store, search_id))


def page_of(store: Store, search_id: str) -> Report:
    """Build the page of a search; raises StoreError if it is damaged."""
    disk = SearchDirectory.read(store, search_id)
    found = found_of(disk)
    change = difference(disk.baseline, disk.files(found.best)) if found.best else ""
    return search_report(found, disk.search, change)


def difference(before: Path, after: Path) -> str:
    """Return the difference of two candidates' files, as a unified diff."""
    lines = [*_difference(before, after)]
    more = len(lines) - _LINES
    return "\n".join(lines[:_LINES]) + (f"\n[{more:,} more lines]" if more > 0 else "")


def _difference(before: Path, after: Path) -> Iterator[str]:
    names = {
        path.relative_to(folder).as_posix()
        for folder in (before, after)
        for path in files_of(folder)
    }
    for name in sorted(names):
        old, new = (_lines(folder / name) for folder in (before, after))
        yield from difflib.unified_diff(old, new, f"baseline/{name}", name, lineterm="")


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        return []
    content = path.read_bytes()
    if len(content) > _BYTES or b"\0" in content:
        return [f"[{len(content):,} bytes]"]
    return content.decode("utf-8", "replace").splitlines()
