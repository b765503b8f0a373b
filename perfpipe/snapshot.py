"""What a store holds at one moment: which reports, and in which files the rows of a table lie."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from perfpipe.manifest import Manifest
from perfpipe.segments import Segment
from perfpipe.store import Store


@dataclass(frozen=True)
class Files:
    """Files of one table with the same columns; rows of `keep` alone count, of all where None.

    `schema` is the signature of the columns, empty where a file of an older version has none.
    """

    paths: tuple[Path, ...]
    schema: str
    keep: frozenset[str] | None


class Snapshot:
    """Reports of a store, as they lie at one moment; what is published later is not among them.

    `own` are those in directories of their own, `segments` maps each segment to those read from it.
    """

    def __init__(
        self, store: Store, own: Collection[str], segments: Mapping[Segment, frozenset[str]]
    ) -> None:
        self.store = store
        self._own = frozenset(own)
        self._segments = {segment: held for segment, held in segments.items() if held}

    @classmethod
    def of(cls, store: Store, wanted: Collection[str] | None = None) -> Snapshot:
        """Return the reports of a store, or those of them that are wanted."""
        # Own directories first: a report is in a segment before its own directory goes.
        own = frozenset(store.own_report_ids())
        segments = store.reports_in_segments()
        own -= frozenset[str]().union(*segments.values())
        if wanted is not None:
            own &= {*wanted}
            segments = {segment: held & {*wanted} for segment, held in segments.items()}
        return cls(store, own, segments)

    @cached_property
    def manifests(self) -> list[Manifest]:
        """Manifests of the reports in directories of their own."""
        return self.store.own_manifests(sorted(self._own))

    def holds(self, report_id: str) -> bool:
        """Return whether a report is among those of the snapshot."""
        return report_id in self._own or any(report_id in held for held in self._segments.values())

    def files(self, table: str) -> Iterator[Files]:
        """Yield the files of a table, those with the same columns together."""
        groups: dict[str, list[Path]] = {}
        for manifest in self.manifests:
            stated = manifest.tables.get(table)
            if stated is not None:
                path = self.store.table_path(manifest.report_id, table).resolve()
                groups.setdefault(stated.schema, []).append(path)
        for schema, paths in groups.items():
            yield Files(tuple(paths), schema, None)
        for segment, held in self._segments.items():
            keep = None if len(held) == len(segment.reports) else held
            for file in segment.files:
                if file.table == table:
                    yield Files((segment.path / file.file,), file.schema, keep)
