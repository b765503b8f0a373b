"""Ingests files that are named instead of reports."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from perfpipe.cores import cores
from perfpipe.errors import InputError
from perfpipe.ingest.finding import expand_paths
from perfpipe.pipelines.console import progress
from perfpipe.pipelines.ingesting import Failure, ingest_many
from perfpipe.pipelines.selection import is_path, no_such_file
from perfpipe.store import Store


def with_files(store: Store, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names with files replaced by the reports in them, read into the store if new.

    An id or id prefix in the store takes precedence over a file.  Raises InputError if the store is
    empty and a path does not exist, and the error of the first file that cannot be read.
    """
    known = (*store.run_ids(), *store.report_ids(), *store.batch_ids())
    if not known:
        for name in names:
            if is_path(name) and not Path(name).exists():
                raise InputError(no_such_file(name))
    files = {
        name: expand_paths([name])
        for name in names
        if Path(name).exists() and not any(key.startswith(name) for key in known)
    }
    reports = _read([*dict.fromkeys(chain.from_iterable(files.values()))], store) if files else {}
    meant = ([reports[path] for path in files[name]] if name in files else [name] for name in names)
    return tuple(dict.fromkeys(chain.from_iterable(meant)))


def _read(inputs: Sequence[Path], store: Store) -> dict[Path, str]:
    """Return the report of each file; new files are ingested."""
    reports = {}
    with progress("ingest", len(inputs)) as steps:
        for result in ingest_many(inputs, store, jobs=cores()):
            if isinstance(result, Failure):
                raise result.error
            steps.step(f"{result.path.name}: {result.rows:,} rows")
            reports[result.path] = result.report_id
    return reports
