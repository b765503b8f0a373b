"""Columns that are files and used a few rows at a time: the same results, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import DATA
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.ingest import columns
from perfpipe.ingest.columns import Columns, Zones, in_order, joined, release, rows_where, taken
from perfpipe.ingest.reading import ingest
from perfpipe.ingest.torch import spool
from perfpipe.ingest.torch.spool import Spool, open_sorter
from perfpipe.store import Store

_VALUES = st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 3)), max_size=60)


few_rows = pytest.mark.usefixtures("few_rows")


@few_rows
@given(_VALUES, st.integers(-9, 9))
def test_order_as_of_a_stable_sort(rows: list[tuple[int, int]], least: int) -> None:
    values, ties = np.array(rows, np.int64).reshape(-1, 2).T
    found = [row for part in in_order(values, ties, least=least) for row in part.tolist()]
    kept = [row for row in range(len(rows)) if rows[row][0] >= least]
    assert found == sorted(kept, key=lambda row: rows[row])


@few_rows
@given(_VALUES, st.integers(-10, 10), st.integers(-10, 10))
def test_zones_have_all_values_between_bounds(
    rows: list[tuple[int, int]], low: int, high: int
) -> None:
    values = np.array([value for value, _ in rows], np.int64)
    found = [row for part in Zones(values).between(low, high) for row in part.tolist()]
    assert found == [row for row, value in enumerate(values) if low <= value <= high]


@few_rows
def test_columns_that_are_files(tmp_path: Path) -> None:
    storage = Columns(tmp_path)
    with patch.object(columns, "_IN_MEMORY", 0):
        column = storage.new(50, np.int64, fill=7)
        column[10:20] = np.arange(10)
        release()
        assert column.tolist() == [7] * 10 + list(range(10)) + [7] * 30
        rows = rows_where(storage, 50, lambda some: column[some] != 7)
        assert rows.tolist() == [*range(10, 17), 18, 19]
        both = joined(storage, [taken(storage, column, rows), np.array([3])])
    assert both.tolist() == [0, 1, 2, 3, 4, 5, 6, 8, 9, 3]
    # Nothing remains in the directory, even if the process is killed.
    assert not [*tmp_path.iterdir()]


def test_a_full_disk_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"space|large"):
        Columns(tmp_path).new(1 << 58, np.int8)


@pytest.mark.parametrize(
    "name",
    [
        "nsys/eager_small.sqlite", "nsys/graph_node.sqlite", "nsys/graph_whole.sqlite",
        "nsys/nvtx_startend.sqlite", "torch/train_step.kineto.json.gz",
    ],
)  # fmt: skip
def test_tables_of_captures_in_parts(
    name: str, expand: Callable[[str], Path], tmp_path: Path
) -> None:
    path = DATA / name if (DATA / name).exists() else expand(name)
    whole = _tables(path, tmp_path / "whole")
    with patch.object(columns, "_AT_A_TIME", 61), patch.object(columns, "_IN_MEMORY", 0):
        parts = _tables(path, tmp_path / "parts")
    assert parts.keys() == whole.keys()
    assert [name for name in whole if not parts[name].equals(whole[name])] == []


def _tables(path: Path, directory: Path) -> dict[str, pa.Table]:
    ingest(path, Store(directory))
    return {table.name: pq.read_table(table) for table in directory.rglob("*.parquet")}


def test_many_rows_in_any_order_are_sorted_in_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFPIPE_CORES", "16")
    rows = Spool(
        tmp_path / "rows.parquet", (*(f"n{i}" for i in range(12)), "start_ns", "end_ns"), ()
    )
    starts = np.random.default_rng(0).integers(0, 1 << 40, 200_000).tolist()
    for number, start in enumerate(starts):
        rows.add((*(number,) * 12, start, start))
    with patch.object(spool, "_SORTING_MEMORY", "28MB"), closing(open_sorter()) as con:
        found = [batch.numbers("start_ns").to_pylist() for batch in rows.in_time_order(con, 0)]
    assert [start for part in found for start in part] == sorted(starts)
