"""Ingests one input into a store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from ingest.builder import ReportBuilder
from ingest.inputs import Input, file_sha256, identify, opened
from ingest.ncu.csv_report import read_csv_report
from ingest.ncu.csv_source import read_source_csv
from ingest.ncu.rep import read_ncu_rep
from ingest.nsys.report import read_nsys
from ingest.torch.kineto import read_kineto
from perfpipe.errors import InputError, ToolMissing
from perfpipe.manifest import Manifest
from perfpipe.store import Store, storing

READERS: dict[str, Callable[[ReportBuilder], None]] = {
    "ncu-rep": read_ncu_rep,
    "ncu-csv": read_csv_report,
    "ncu-source-csv": read_source_csv,
    "nsys-sqlite": read_nsys,
    "nsys-parquetdir": read_nsys,
    "nsys-arrowdir": read_nsys,
    "torch-kineto": read_kineto,
}


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


def present(path: Path, store: Store) -> Outcome | None:
    """Return the outcome at once when the input's bytes are in the store already."""
    if path.is_dir():
        with opened(identify(path)) as source:
            report_id: str | None = source.report_id
    elif store.root.is_dir() and path.is_file():
        digest = file_sha256(path)
        report_id = digest[:16] if store.has_report(digest[:16]) else store.alias(digest)
    else:
        report_id = None
    if report_id is None or not store.has_report(report_id):
        return None
    return Outcome.of(path, store.manifest(report_id), new=False)


def ingest(
    path: Path, store: Store, *, force: bool = False, export: Callable[[Path], Path] | None = None
) -> Outcome:
    """Ingest one input.

    `export` turns an .nsys-rep into an SQLite file (a process is started for that, which is not
    this layer's business); without it ToolMissing is raised.  Raises InputError when the input
    is not a whole report, StoreError when the store cannot be written.
    """
    found = identify(path)
    with opened(found) as source:
        if store.has_report(source.report_id) and not force:
            return Outcome.of(path, store.manifest(source.report_id), new=False)
        readable = _exported(source, export) if source.format == "nsys-rep" else source
        with store.new_report(source.report_id) as directory:
            builder = ReportBuilder(directory, readable)
            try:
                READERS[readable.format](builder)
            except UnicodeDecodeError as error:
                raise InputError(f"{path}: damaged text ({error})") from error
            builder.source = source
            manifest = builder.manifest()
            new = store.publish(directory, manifest, replace=force)
        if source.compressed:
            with storing(store.root):
                store.add_alias(file_sha256(path), source.report_id)
    return Outcome.of(path, manifest, new=new)


def _exported(source: Input, export: Callable[[Path], Path] | None) -> Input:
    if export is None:
        raise ToolMissing(f"{source.path}: nsys is needed to export an .nsys-rep")
    return replace(source, format="nsys-sqlite", content=export(source.content))
