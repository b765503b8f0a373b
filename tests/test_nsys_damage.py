"""Exports that are truncated, damaged, unfinished or of another kind are refused in a sentence."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from perfpipe.analysis.session import Session
from perfpipe.errors import InputError
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store

Expand = Callable[[str], Path]


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("DROP TABLE StringIds", "not an nsys export"),
        (
            "UPDATE META_DATA_EXPORT SET value = '9.0.1' WHERE name = 'EXPORT_SCHEMA_VERSION'",
            "export schema 9.0.1",
        ),
    ],
)
def test_other_databases_are_refused(
    statement: str, sentence: str, edited: Callable[..., Path], store: Store
) -> None:
    with pytest.raises(InputError, match=sentence):
        ingest(edited("memcpy", statement), store)
    assert store.report_ids() == []


@pytest.mark.parametrize("kept", [50, 4096, 0.3, 0.9, 0.9999])
def test_a_database_cut_short_is_refused(
    kept: float, expand: Expand, tmp_path: Path, store: Store
) -> None:
    content = expand("nsys/memcpy.sqlite").read_bytes()
    path = tmp_path / "cut.sqlite"
    path.write_bytes(content[: int(kept if kept > 1 else kept * len(content))])
    with pytest.raises(InputError, match="truncated"):
        ingest(path, store)
    assert store.leftovers() == []


def test_damaged_pages_are_refused(expand: Expand, tmp_path: Path, store: Store) -> None:
    content = bytearray(expand("nsys/eager_small.sqlite").read_bytes())
    content[8192:-8192] = b"\xa5" * (len(content) - 16384)
    path = tmp_path / "damaged.sqlite"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"damaged|not an nsys export"):
        ingest(path, store)


def test_an_export_that_is_being_written_is_refused(
    edited: Callable[..., Path], store: Store
) -> None:
    path = edited("memcpy")
    path.with_name(f"{path.name}-journal").write_bytes(b"x" * 512)
    with pytest.raises(InputError, match="still being written"):
        ingest(path, store)


def test_a_damaged_table_of_a_directory_is_named(
    expand: Expand, tmp_path: Path, store: Store
) -> None:
    directory = tmp_path / "export"
    shutil.copytree(expand("nsys/gpumetrics_parquetdir"), directory, copy_function=shutil.copyfile)
    table = directory / "CUPTI_ACTIVITY_KIND_KERNEL.parquet"
    table.write_bytes(table.read_bytes()[:-500])
    with pytest.raises(InputError, match=r"CUPTI_ACTIVITY_KIND_KERNEL.parquet is damaged"):
        ingest(directory, store)
    assert store.report_ids() == []


#: Leaves little of the longest tables besides NVTX_EVENTS: a batch of a few rows takes as long as
#: one of many.
SHORT = [
    f"DELETE FROM CUPTI_ACTIVITY_KIND_{kind} WHERE rowid > 20" for kind in ("RUNTIME", "KERNEL")
]


@pytest.mark.parametrize("filled", [(), (1,), (40,), (81,), (3, 50)])
@pytest.mark.parametrize("column", ["category", "endGlobalTid"])
def test_columns_that_are_seldom_filled(
    filled: tuple[int, ...],
    column: str,
    edited: Callable[..., Path],
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are read as one column until one of them holds something, batches later perhaps."""
    monkeypatch.setattr("perfpipe.ingest.nsys.sqlite_export.BATCH", 16)
    where = f"rowid IN ({', '.join(map(str, filled)) or 'NULL'})"
    path = edited(
        "eager_small",
        f"UPDATE NVTX_EVENTS SET {column} = globalTid + 1 WHERE {where}",
        *SHORT,
    )
    report = ingest(path, store).report_id
    ours = "category" if column == "category" else "end_tid"
    number = "globalTid + 1" if column == "category" else "(globalTid + 1) & 0xFFFFFF"
    with closing(sqlite3.connect(path)) as con:
        rows = con.execute(
            f"SELECT start, iif({where}, {number}, NULL) FROM NVTX_EVENTS "
            "WHERE eventType IN (34, 59, 60) ORDER BY start, end DESC"
        ).fetchall()
    with Session.open(store, [report]) as duck:
        found = duck.execute(
            f"SELECT start_ns, {ours} FROM nsys_nvtx_ranges ORDER BY range_id"
        ).fetchall()
    assert found == rows


def test_values_of_another_type_cost_themselves_only(
    edited: Callable[..., Path], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfpipe.ingest.nsys.sqlite_export.BATCH", 16)
    change = "UPDATE NVTX_EVENTS SET {} = 'x' WHERE rowid = 60"
    changes = (change.format("category"), change.format("domainId"))
    whole = ingest(edited("eager_small", *SHORT), store)
    damaged = ingest(edited("eager_small", *SHORT, *changes), store, force=True)
    assert damaged.rows == whole.rows
    told = [w for w in store.manifest(damaged.report_id).warnings if "read as NULL" in w]
    assert told == [
        f"1 of 81 rows of NVTX_EVENTS have an invalid {column} (not an integer), read as NULL"
        for column in ("category", "domainId")
    ]
