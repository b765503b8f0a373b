"""What `nsys recipe` says of two ranks, against our tables and views."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import DATA, Tiny
from duckdb import DuckDBPyConnection
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpipe.analysis.session import Session
from perfpipe.store import Store

Row = dict[str, Any]
VIEWS = "nccl_gpu_overlap_trace rule_gpu_time_util nsys_nvtx_ranges launches nsys_kernels"

#: Process of each rank.
PIDS = {0: 914, 1: 911}


def _recipe(name: str) -> list[Row]:
    rows: list[Row] = pq.read_table(DATA / "nsys" / "recipes" / f"{name}.parquet").to_pylist()
    return rows


@pytest.fixture(scope="module")
def ranks(captures: Store, ingested: Callable[[str], str]) -> Iterator[Session]:
    reports = [ingested(f"nsys/ddp_comm_rank{rank}.sqlite") for rank in PIDS]
    with Session.open(captures, reports) as con:
        yield con


def test_overlap_of_every_kernel(ranks: DuckDBPyConnection) -> None:
    ours = ranks.execute(
        "SELECT start_ns, end_ns, pid, name, round(communication_overlap_pct, 1), "
        "round(compute_overlap_pct, 1) FROM nccl_gpu_overlap_trace"
    ).fetchall()
    theirs = [
        (
            r["Start"],
            r["End"],
            r["PID"],
            r["Name"],
            r["Communication Overlap"],
            r["Compute Overlap"],
        )
        for r in _recipe("nccl_gpu_overlap_trace_rank_trace")
    ]
    assert len(ours) == len(theirs) == 4400
    for our, their in zip(sorted(ours), sorted(theirs), strict=True):
        assert our[:4] == their[:4]
        assert our[4:] == pytest.approx(their[4:], abs=0.1001)


def test_overlap_by_kernel_name(ranks: DuckDBPyConnection) -> None:
    ours = ranks.execute(
        "SELECT name, count(*), "
        "sum(communication_overlap_pct * (end_ns - start_ns)) / sum(end_ns - start_ns), "
        "sum(compute_overlap_pct * (end_ns - start_ns)) / sum(end_ns - start_ns) "
        "FROM nccl_gpu_overlap_trace GROUP BY name ORDER BY name"
    ).fetchall()
    theirs = {r["Name"]: r for r in _recipe("nccl_gpu_overlap_trace_grouped_trace")}
    assert [name for name, *_ in ours] == sorted(theirs)
    for name, count, communication, compute in ours:
        assert count == theirs[name]["Count"]
        assert communication == pytest.approx(theirs[name]["Communication Overlap"], abs=0.0501)
        assert compute == pytest.approx(theirs[name]["Compute Overlap"], abs=0.0501)


def test_projected_ranges(ranks: DuckDBPyConnection) -> None:
    ours = ranks.execute(
        "SELECT pid, tid, gpu_start_ns, gpu_end_ns, name, level, children FROM nsys_nvtx_ranges "
        "WHERE gpu_calls > 0"
    ).fetchall()
    keys = ("PID", "TID", "Start", "End", "Text", "Stack Level", "Children Count")
    theirs = [tuple(r[key] for key in keys) for r in _recipe("nvtx_gpu_proj_trace_trace")]
    assert sorted(ours) == sorted(theirs)


def test_calls_of_nccl(ranks: DuckDBPyConnection) -> None:
    ours = ranks.execute(
        "SELECT count(*), avg(dur_ns), stddev_samp(dur_ns), min(dur_ns), quantile_cont(dur_ns, 0.25), "
        "median(dur_ns), quantile_cont(dur_ns, 0.75), max(dur_ns), sum(dur_ns) "
        "FROM nsys_nvtx_ranges WHERE domain = 'NCCL' GROUP BY pid, name ORDER BY pid DESC"
    ).fetchall()
    keys = ("Count", "Mean", "Std", "Min", "Q1", "Median", "Q3", "Max", "Sum")
    theirs = sorted(_recipe("nccl_sum_rank_stats"), key=lambda r: int(r["Rank"]))
    for our, their in zip(ours, theirs, strict=True):
        assert our == pytest.approx([their[key] for key in keys], abs=0.0501)
    # Both ranks together: nsys approximates quartiles and deviation, the rest is exact.
    (pooled,) = _recipe("nccl_sum_all_stats")
    assert sum(our[0] for our in ours) == pooled["Count"]
    assert sum(our[8] for our in ours) == pooled["Sum"]
    assert min(our[3] for our in ours) == pooled["Min"]


def test_utilisation_over_time(ranks: DuckDBPyConnection) -> None:
    """Share of each of 30 equal bins with at least one kernel, on the clock of the first capture."""
    began = dict(
        ranks.execute("SELECT DISTINCT pid, started_ns FROM launches JOIN reports USING (report_id)")
        .fetchall()
    )  # fmt: skip
    for rank, pid in PIDS.items():
        bins = [r for r in _recipe("cuda_gpu_time_util_map_analysis") if r["Rank"] == rank]
        starts = np.array([r["Duration"] for r in bins])
        width = int(starts[1] - starts[0])
        assert len(bins) == 30 and (np.diff(starts) == width).all()
        used = np.zeros(30)
        later = began[pid] - min(began.values())
        until = 0
        for start, end in ranks.execute(
            "SELECT start_ns, end_ns FROM nsys_kernels WHERE pid = ? ORDER BY start_ns, end_ns",
            [pid],
        ).fetchall():
            start, end = start + later, end + later
            left = max(start, until)
            until = max(until, end)
            used += np.clip(np.minimum(end, starts + width) - np.maximum(left, starts), 0, None)
        # Nothing is said of the time before a capture began.
        known = [r["Kernel"] is not None for r in bins]
        theirs = [r["Kernel"] for r in bins if r["Kernel"] is not None]
        assert 100 * used[known] / width == pytest.approx(theirs, abs=0.0501)
        assert known == (starts >= later - later % width).tolist()


def test_stretches_of_low_use_count_concurrent_work_once(ranks: DuckDBPyConnection) -> None:
    """nsys adds up what runs at a time, so that its figure is higher and it misses rank 0."""
    (their,) = _recipe("gpu_time_util_analysis")
    rows = {
        device: (start, duration, used)
        for device, start, duration, used in ranks.execute(
            "SELECT device, start_ns, duration_ns, in_use_pct FROM rule_gpu_time_util"
        ).fetchall()
    }
    start, duration, used = rows[their["Device ID"]]
    assert (start, duration) == (their["Start"], their["Duration"])
    assert used < their["In-Use"]
    for device, nsys_says in ((1, their["In-Use"]), (0, None)):
        begin, length, union = rows[device]
        (added,) = ranks.execute(
            "SELECT 100.0 * sum(least(end_ns, $1 + $2) - greatest(start_ns, $1)) / $2 FROM launches "
            "WHERE device = $3 AND start_ns < $1 + $2 AND end_ns > $1",
            [begin, length, device],
        ).fetchall()[0]
        assert union < added
        if nsys_says is None:
            # Over its threshold: no row.
            assert added > 50
        else:
            assert round(added, 1) == nsys_says


spans = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 15), st.booleans()), min_size=1, max_size=8
)


@settings(max_examples=12, deadline=None)
@given(st.lists(spans, min_size=5, max_size=5))
def test_overlap_against_each_nanosecond(together: list[list[tuple[int, int, bool]]]) -> None:
    """Several timelines at a time, each a report of its own."""
    db = Tiny()
    for number, kernels in enumerate(together):
        launches = [
            {"kind": "kernel", "name": "ncclDevKernel_AllReduce" if communicates else "k", "pid": 1,
             "device": 0, "start_ns": start, "end_ns": start + length, "tid": len(kernels)}
            for start, length, communicates in kernels
        ]  # fmt: skip
        db.add_report(f"r{number}", {"launches": launches})
    rows = db.rows(
        "SELECT report_id, start_ns, end_ns, communicates, communication_overlap_pct, "
        "compute_overlap_pct FROM nccl_gpu_overlap_trace"
    )
    for number, kernels in enumerate(together):
        _compare([row for report, *row in rows if report == f"r{number}"], kernels)


def _compare(found: list[list[Any]], kernels: list[tuple[int, int, bool]]) -> None:
    if not any(communicates for *_, communicates in kernels):
        assert found == []
        return
    expected: list[list[Any]] = []
    for index, (start, length, communicates) in enumerate(kernels):
        shares: list[float | None] = []
        for kind in (True, False):
            others = [(s, s + n) for i, (s, n, c) in enumerate(kernels) if i != index and c == kind]
            covered = sum(any(s <= t < e for s, e in others) for t in range(start, start + length))
            shares.append(100 * covered / length if length else None)
        expected.append([start, start + length, communicates, *shares])
    key = repr
    for our, oracle in zip(sorted(found, key=key), sorted(expected, key=key), strict=True):
        assert our[:3] == oracle[:3]
        for a, b in zip(our[3:], oracle[3:], strict=True):
            assert a == (None if b is None else pytest.approx(b))
