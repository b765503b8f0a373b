"""Files that were copied while a program wrote them are refused, or say what they lack."""

from __future__ import annotations

import lzma
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest
from conftest import DATA
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfpipe.errors import InputError
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store

#: An export with all tables from the start, and one whose tables are made when rows arrive.
EXPORTS = ("nsys/eager_small", "nsys/memory_pool")

#: Rows of a table, so that writing takes no time.
ROWS = 60


@cache
def _content(name: str) -> bytes:
    """Return an export with few rows, in the order in which nsys wrote its tables."""
    with closing(sqlite3.connect(":memory:")) as con:
        con.deserialize(lzma.decompress((DATA / f"{name}.sqlite.xz").read_bytes()))
        con.isolation_level = None
        for table in _tables(con):
            if not table.startswith(("ENUM", "StringIds", "META")):
                con.execute(f'DELETE FROM "{table}" WHERE rowid > {ROWS}')
        con.execute(
            "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE correlationId NOT IN "
            "(SELECT correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME)"
        )
        con.execute("VACUUM")
        return con.serialize()


def _tables(con: sqlite3.Connection) -> list[str]:
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    return [name for (name,) in con.execute(f"{query} ORDER BY rowid")]


def _written(name: str, path: Path, *, commits: bool) -> Iterator[None]:
    """Write an export again as nsys does, without a journal; pauses after some rows of each table.

    With `commits`, each table is a transaction of its own; without, all tables are one.
    """
    with closing(sqlite3.connect(":memory:")) as old, closing(sqlite3.connect(path)) as con:
        old.deserialize(_content(name))
        con.isolation_level = None
        con.execute("PRAGMA journal_mode = OFF")
        con.execute("PRAGMA cache_size = 2")
        schema = dict(old.execute("SELECT name, sql FROM sqlite_master"))
        con.execute("BEGIN")
        if name == EXPORTS[0]:
            for table in _tables(old):
                con.execute(schema[table])
        for table in _tables(old):
            if name != EXPORTS[0]:
                con.execute(schema[table])
            rows = old.execute(f'SELECT * FROM "{table}"').fetchall()
            for number, row in enumerate(rows):
                marks = ", ".join("?" * len(row))
                con.execute(f'INSERT INTO "{table}" VALUES ({marks})', row)
                if number % 20 == 0:
                    yield
            if commits:
                con.execute("COMMIT")
                yield
                con.execute("BEGIN")
        con.execute("COMMIT")


def _said(path: Path, store: Store) -> tuple[str, int]:
    """Return what is said about an export that it is not whole, and the rows that were stored."""
    try:
        manifest = store.manifest(ingest(path, store).report_id)
    except InputError as error:
        return str(error), 0
    about = [text for text in manifest.warnings if "incomplete" in text]
    stored = (table.rows for name, table in manifest.tables.items() if name.startswith("nsys_"))
    return "; ".join(about), sum(stored)


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("name", EXPORTS)
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(share=st.floats(0, 1))
def test_no_copy_of_an_unfinished_export_is_accepted_without_a_word(
    name: str, commits: bool, share: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("copy")
    whole, copy = folder / "whole.sqlite", folder / "copy.sqlite"
    pauses = sum(1 for _ in _written(name, whole, commits=commits))
    wanted = int(share * (pauses - 1))
    for number, _ in enumerate(_written(name, folder / "growing.sqlite", commits=commits)):
        if number == wanted:
            shutil.copyfile(folder / "growing.sqlite", copy)
            break
    said, rows = _said(copy, Store(folder / "store"))
    of_whole, expected = _said(whole, Store(folder / "other"))
    assert of_whole == ""
    assert said or rows == expected


def test_an_export_that_lacks_the_api_calls_is_refused(store: Store) -> None:
    with pytest.raises(InputError, match="incomplete: PROCESSES has no rows"):
        ingest(DATA / "field/nsys/35_partial_export.sqlite.xz", store)
    assert store.report_ids() == []
    ingest(DATA / "field/nsys/35_partial_export.sqlite.xz", store, force=True)
    (manifest,) = store.manifests()
    assert any("incomplete" in text for text in manifest.warnings)


def test_pages_behind_the_end_are_refused(edited: Callable[..., Path], store: Store) -> None:
    path = edited("memcpy")
    with path.open("ab") as file:
        file.write(bytes(4096))
    with pytest.raises(InputError, match="was copied while it was written"):
        ingest(path, store)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "with the calls that launched them has none"),
        ("META_DATA_EXPORT", "it has no META_DATA_EXPORT"),
        ("NVTX_EVENTS", "nsys collected 40 NVTX events, but NVTX_EVENTS has no rows"),
        ("GPU_METRICS", "GPU_METRICS has no rows, although nsys sampled GPUs"),
    ],
)
def test_a_directory_without_a_table_says_which(
    table: str, said: str, expand: Callable[[str], Path], store: Store, tmp_path: Path
) -> None:
    path = tmp_path / "export"
    shutil.copytree(expand("nsys/gpumetrics_parquetdir"), path)
    (path / f"{table}.parquet").unlink()
    assert said in _said(path, store)[0]


def test_an_export_without_messages_of_nsys_may_be_incomplete(
    edited: Callable[..., Path], store: Store
) -> None:
    said, _ = _said(edited("memcpy", "DELETE FROM DIAGNOSTIC_EVENT"), store)
    assert said == "the export may be incomplete: it has no messages of nsys in DIAGNOSTIC_EVENT"
