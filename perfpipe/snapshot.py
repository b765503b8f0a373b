"""The reports of a store at one moment, and the files with the rows of each table."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from perfpipe.errors import StoreError, os_error_sentence
from perfpipe.manifest import Manifest
from perfpipe.segments import Segment
from perfpipe.store import Store


@dataclass(frozen=True)
class Files:
    """Files of one table with the same columns; only rows of the reports `keep` count (None: all).

    `schema` is the signature of the columns, empty for files of older versions.
    """

    paths: tuple[Path, ...]
    schema: str
    keep: frozenset[str] | None


class Snapshot:
    """Reports of a store at one moment, without those that are published later.

    `own` are the reports with their own directories, `segments` maps each segment to the reports
    read from it.  Reports that cannot be read are skipped with a warning.
    """

    def __init__(
        self, store: Store, own: Collection[str], segments: Mapping[Segment, frozenset[str]]
    ) -> None:
        self.store = store
        self._own = frozenset(own)
        self._segments = {segment: held for segment, held in segments.items() if held}

    @classmethod
    def of(cls, store: Store, wanted: Collection[str] | None = None) -> Snapshot:
        """Return the reports of a store, or only the wanted ones."""
        own, segments = store.reports_by_place()
        aside = store.set_aside_ids()
        if wanted is not None:
            own &= {*wanted}
            segments = {segment: held & {*wanted} for segment, held in segments.items()}
        return cls(store, own, {segment: held - aside for segment, held in segments.items()})

    @cached_property
    def manifests(self) -> list[Manifest]:
        """Manifests of the readable reports with their own directories."""
        found, damaged = self.store.own_manifests(sorted(self._own))
        for report_id, fault in damaged.items():
            self.store.leave_out(report_id, fault)
        return found

    def bytes(self) -> float:
        """Return the size of the files of the reports; for segments, in proportion to the reports.

        Raises StoreError if a file cannot be read.
        """
        own = sum(table.bytes for made in self.manifests for table in made.tables.values())
        try:
            return own + sum(
                (segment.path / file.file).stat().st_size * len(held) / len(segment.reports)
                for segment, held in self._segments.items()
                for file in segment.files
            )
        except OSError as error:
            raise StoreError(os_error_sentence(error, "cannot read")) from error

    def holds(self, report_id: str) -> bool:
        """Return whether a report is in the snapshot."""
        return any(m.report_id == report_id for m in self.manifests) or any(
            report_id in held for held in self._segments.values()
        )

    def files(self, table: str) -> Iterator[Files]:
        """Yield the files of a table, grouped by columns."""
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
