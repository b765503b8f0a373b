"""Reads one input into a store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from perfpipe.directories import storing
from perfpipe.errors import InputError, ToolMissing, brief
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.formats import FORMATS
from perfpipe.ingest.inputs import check_unchanged, hashed, identify, opened
from perfpipe.ingest.outcome import Outcome, known
from perfpipe.ingest.source import Input
from perfpipe.ingest.workers import Workers
from perfpipe.store import Store


def ingest(
    source: Path | Input,
    store: Store,
    *,
    force: bool = False,
    export: Callable[[Path], Path] | None = None,
    workers: Workers | None = None,
) -> Outcome:
    """Read one input into the store, unless it already has the same bytes.

    `export` converts an .nsys-rep to an SQLite file (it is passed in because it starts a process);
    without it, ToolMissing is raised.  `workers` may help with a large input.  Raises InputError if
    the input is not a complete report, StoreError if the store cannot be written.
    """
    found = hashed(source if isinstance(source, Input) else identify(source))
    there = None if force else known(found, store)
    if there is not None:
        return there
    with opened(found) as content:
        there = None if force else known(content, store)
        outcome = there or _read(content, store, force, export, workers or Workers())
    if found.compressed:
        with storing(store.root):
            store.add_alias(found.file_sha256, outcome.report_id)
    return outcome


def _read(
    source: Input,
    store: Store,
    force: bool,
    export: Callable[[Path], Path] | None,
    workers: Workers,
) -> Outcome:
    readable = _exported(source, export) if FORMATS[source.format].exported else source
    with store.new_report(source.report_id) as directory:
        builder = ReportBuilder(directory, readable, workers)
        try:
            FORMATS[readable.format].read(builder)
        except (InputError, UnicodeDecodeError) as error:
            # An incomplete file looks damaged.
            check_unchanged(source)
            if isinstance(error, InputError):
                raise
            raise InputError(f"{source.path}: damaged text ({brief(error)})") from error
        check_unchanged(source)
        if not force:
            builder.check_losses()
        # The report belongs to the file that the user named.
        builder.source = source
        manifest = builder.manifest()
        new = store.publish(directory, manifest, replace=force)
    return Outcome.of(source.path, manifest, new=new)


def _exported(source: Input, export: Callable[[Path], Path] | None) -> Input:
    if export is None:
        raise ToolMissing(f"{source.path}: nsys is required to export an .nsys-rep")
    form = FORMATS[source.format].exported
    return replace(source, format=form, content=export(source.content))
