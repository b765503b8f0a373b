"""The outcome of ingesting an input, and whether the store already has it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perfpipe.ingest.source import Input
from perfpipe.manifest import Manifest
from perfpipe.store import Store


@dataclass(frozen=True)
class Outcome:
    """The outcome of an input; `new` is False if the store already had the same bytes."""

    path: Path
    report_id: str
    kind: str
    new: bool
    rows: int
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, path: Path, manifest: Manifest, *, new: bool) -> Outcome:
        """Return the outcome of an input from its report."""
        return cls(path, manifest.report_id, manifest.kind, new, manifest.rows, manifest.warnings)


def known(found: Input, store: Store) -> Outcome | None:
    """Return the outcome if the store already has an intact report of a hashed input."""
    report_id = store.alias(found.file_sha256) if found.compressed else None
    report_id = report_id or found.report_id
    if not report_id or not store.has_report(report_id) or store.is_damaged(report_id):
        return None
    return Outcome.of(found.path, store.manifest(report_id), new=False)
