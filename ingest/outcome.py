"""What became of an input, and whether the store has it already."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ingest.inputs import Input
from perfpipe.manifest import Manifest
from perfpipe.store import Store


@dataclass(frozen=True)
class Outcome:
    """What became of an input: `new` is False when the same bytes were there already."""

    path: Path
    report_id: str
    kind: str
    new: bool
    rows: int
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, path: Path, manifest: Manifest, *, new: bool) -> Outcome:
        """Return the outcome of an input that gave a report."""
        return cls(path, manifest.report_id, manifest.kind, new, manifest.rows, manifest.warnings)


def known(found: Input, store: Store) -> Outcome | None:
    """Return the outcome at once when the bytes of a hashed input are in the store already."""
    report_id = store.alias(found.file_sha256) if found.compressed else None
    report_id = report_id or found.report_id
    if not report_id or not store.has_report(report_id):
        return None
    return Outcome.of(found.path, store.manifest(report_id), new=False)
