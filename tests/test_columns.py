"""Columns that are files and used a few rows at a time: the same results, in bounded memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
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
from perfpipe.ingest.boundaries import boundaries
from perfpipe.ingest.columns import Columns, Zones, in_order, joined, release, rows_where, taken
from perfpipe.ingest.periods import loops
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


def _sequence() -> np.ndarray:
    """Return steps of layers, with irregular steps and noise."""
    random = np.random.default_rng(1)
    step = np.concatenate([random.integers(0, 30, 12), np.tile([40, 41, 42], 9)])
    codes = np.concatenate([random.integers(50, 90, 25), *[step] * 12, [91] * 40, *[step[:20]] * 9])
    codes[random.random(len(codes)) < 0.01] = 99
    return codes.astype(np.int32)


@few_rows
def test_loops_of_a_sequence_in_parts() -> None:
    codes = _sequence()
    found = loops(codes)
    with patch.object(columns, "_AT_A_TIME", 1 << 18):
        whole = loops(codes)
    assert found == whole
    for loop in whole:
        edges = boundaries(codes, loop, loop.clean, Columns())
        assert all(a < b for a, b in pairwise(edges.tolist()))
        with patch.object(columns, "_AT_A_TIME", 1 << 18):
            assert edges.tolist() == boundaries(codes, loop, loop.clean, Columns()).tolist()


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


#: Bytes per event by which the peak may grow; times and codes of an event alone take more.
_PER_EVENT = 80

#: Makes a trace of this many launches, reads it with small buffers, and prints the peak in KiB.
_PEAK = """
import json, resource, sys
from pathlib import Path
from unittest.mock import patch
from perfpipe.ingest import columns
from perfpipe.ingest.nsys import timeline
from perfpipe.ingest.reading import ingest
from perfpipe.ingest.torch import spool
from perfpipe.store import Store
from perfpipe import tablewriter

launches, directory = int(sys.argv[1]), Path(sys.argv[2])
with (directory / "trace.json").open("w") as file:
    file.write('{"schemaVersion": 1, "traceEvents": [')
    host = {"ph": "X", "pid": 42, "tid": 42}
    for i in range(launches):
        at, link = 500 * i, {"correlation": i + 1}
        gpu = {"device": 0, "context": 1, "stream": 7, **link}
        events = (
            {**host, "cat": "cpu_op", "name": f"aten::op{i % 20}", "ts": at, "dur": 12},
            {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 4, "dur": 6,
             "args": link},
            {"ph": "X", "cat": "kernel", "name": f"gemm{i % 30}", "pid": 0, "tid": 7, "ts": at + 30,
             "dur": 1400, "args": gpu},
        )
        file.write(("," if i else "") + ",".join(map(json.dumps, events)))
    file.write("]}")
with (
    patch.object(columns, "_AT_A_TIME", 1 << 13),
    patch.object(columns, "_IN_MEMORY", 1 << 20),
    patch.object(spool, "_SORTING_MEMORY", "20MB"),
    patch.object(spool, "ROW_GROUP", 1 << 13),
    patch.object(timeline, "ROW_GROUP", 1 << 13),
    patch.object(tablewriter, "ROW_GROUP", 1 << 13),
):
    ingest(directory / "trace.json", Store(directory))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_memory_does_not_grow_with_a_trace(tmp_path: Path) -> None:
    peaks = []
    for launches in (50_000, 150_000):
        directory = tmp_path / str(launches)
        directory.mkdir()
        ran = subprocess.run(
            [sys.executable, "-c", _PEAK, str(launches), str(directory)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        peaks.append(int(ran.stdout) << 10)
    few, many = peaks
    assert (many - few) / (3 * 100_000) < _PER_EVENT
