"""Ingests files that are named instead of reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perfpipe.cores import cores
from perfpipe.errors import InputError
from perfpipe.ingest.finding import expand_paths
from perfpipe.pipelines.console import progress
from perfpipe.pipelines.ingesting import Failure, ingest_many
from perfpipe.store import Store


def with_files(store: Store, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names with files replaced by the reports in them, read into the store if new.

    An id or id prefix in the store takes precedence over a file.  Raises InputError if a path does
    not exist, and the error of the first file that cannot be read.
    """
    known = (*store.run_ids(), *store.report_ids(), *store.batch_ids())
    meant: list[str] = []
    for name in names:
        path = Path(name)
        if any(key.startswith(name) for key in known):
            meant.append(name)
            continue
        if not path.exists():
            if path.suffix or "/" in name:
                raise InputError(
                    f"{name}: no such file, and no such run, report or batch in the store"
                )
            meant.append(name)
            continue
        inputs = expand_paths([name])
        with progress("ingest", len(inputs)) as steps:
            for result in ingest_many(inputs, store, jobs=cores()):
                if isinstance(result, Failure):
                    raise result.error
                steps.step(f"{result.path.name}: {result.rows:,} rows")
                meant.append(result.report_id)
    return tuple(dict.fromkeys(meant))
