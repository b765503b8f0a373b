"""torch.profiler traces: times to the nanosecond, the budget against a plain count, bad input."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from conftest import DATA
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.analysis.report.build import VIEWS_USED, build_report
from perfpipe.analysis.session import Session
from perfpipe.errors import InputError
from perfpipe.ingest.reading import ingest
from perfpipe.ingest.torch.events import ns_of
from perfpipe.ingest.torch.tables import operation as nsys_operation
from perfpipe.pipelines.cli import run_cli
from perfpipe.store import Store

TRACE = DATA / "torch" / "train_step.kineto.json.gz"
GPU = ("kernel", "gpu_memcpy", "gpu_memset")


@pytest.fixture(scope="module")
def trace() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(gzip.decompress(TRACE.read_bytes()), parse_float=Decimal)
    return document


@pytest.fixture(scope="module")
def report(captures: Store) -> str:
    return ingest(TRACE, captures).report_id


def _intervals(trace: dict[str, Any], *categories: str) -> list[tuple[int, int]]:
    found = []
    for event in trace["traceEvents"]:
        if event.get("cat") in categories and event["ph"] == "X":
            start = int(event["ts"] * 1000)
            found.append((start, start + int(event["dur"] * 1000)))
    return sorted(found)


def _union(intervals: list[tuple[int, int]]) -> int:
    covered, reached = 0, intervals[0][0]
    for start, end in intervals:
        covered += max(end - max(start, reached), 0)
        reached = max(reached, end)
    return covered


@given(st.integers(-(10**18), 10**18))
def test_microseconds_become_nanoseconds_exactly(ns: int) -> None:
    assert ns_of(str(Decimal(ns) / 1000)) == ns if ns % 1000 else ns_of(ns // 1000) == ns


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("Memcpy DtoH (Device -> Pinned)", "[CUDA memcpy Device-to-Host]"),
        ("Memcpy PtoP (Device -> Device)", "[CUDA memcpy Peer-to-Peer]"),
        ("Memset (Device)", "[CUDA memset]"),
        ("Memcpy UNKNOWN", "[CUDA Memcpy UNKNOWN]"),
    ],
)
def test_copies_have_the_names_that_nsys_gives_them(name: str, operation: str) -> None:
    assert nsys_operation(name) == operation


@pytest.mark.parametrize(
    ("table", "categories"),
    [
        ("nsys_kernels", ("kernel",)),
        ("nsys_memory_ops", ("gpu_memcpy", "gpu_memset")),
        ("nsys_api_calls", ("cuda_runtime", "cuda_driver")),
        ("nsys_nvtx_ranges", ("cpu_op", "user_annotation")),
    ],
)
def test_every_event_is_there_to_the_nanosecond(
    captures: Store, report: str, trace: dict[str, Any], table: str, categories: tuple[str, ...]
) -> None:
    everything = ("cuda_runtime", "cuda_driver", "cpu_op", "user_annotation", *GPU)
    zero = _intervals(trace, *everything)[0][0]
    with Session.open(captures, [report]) as con:
        rows = con.execute(f"SELECT start_ns, end_ns FROM {table} ORDER BY ALL").fetchall()
    assert rows == [(start - zero, end - zero) for start, end in _intervals(trace, *categories)]


def test_kernels_keep_their_launch_and_name(
    captures: Store, report: str, trace: dict[str, Any]
) -> None:
    wanted = sorted(
        (e["args"]["correlation"], e["name"], *e["args"]["grid"], *e["args"]["block"])
        for e in trace["traceEvents"]
        if e.get("cat") == "kernel"
    )
    with Session.open(captures, [report]) as con:
        rows = con.execute(
            "SELECT correlation_id, demangled, grid_x, grid_y, grid_z, block_x, block_y, block_z "
            "FROM nsys_kernels ORDER BY ALL"
        ).fetchall()
        launched = con.execute(
            "SELECT count(*) FROM nsys_kernels WHERE static_smem IS NULL AND registers > 0"
        ).fetchone()
    assert rows == wanted
    assert launched == (len(wanted),)


def test_the_budget_equals_a_plain_count_of_the_trace(
    captures: Store, report: str, trace: dict[str, Any]
) -> None:
    with Session.open(captures, [report], window="whole") as con:
        parts = dict(con.execute("SELECT category, time_ns FROM gpu_time_budget").fetchall())
        window = con.execute(
            "SELECT any_value(window_end_ns - window_start_ns) FROM gpu_time_budget"
        ).fetchone()
    assert parts["compute"] == _union(_intervals(trace, "kernel"))
    assert parts["compute"] + parts["transfer"] == _union(_intervals(trace, *GPU))
    assert (sum(parts.values()),) == window
    assert parts["unattributed"] == 0


def test_the_report_names_the_bound_and_the_steps(captures: Store, report: str) -> None:
    with Session.open(captures, [report]) as con:
        steps = con.execute("SELECT count(*) FROM step_budget").fetchone()
        bound = con.execute("SELECT bound FROM timeline_bottleneck").fetchall()
    assert steps is not None
    assert steps[0] > 0
    assert bound == [("launch_overhead",)]
    with Session.open(captures, [report], use=VIEWS_USED) as con:
        built = build_report(con.con, [report])
    assert "launch overhead" in built.verdict.lower()


def _write(path: Path, document: object) -> Path:
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


_KERNEL = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1.5, "dur": 2}


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ('{"schemaVersion": 1, "traceEvents": [', "truncated or damaged"),
        ('{"schemaVersion": 1, "traceEvents": ' + "[" * 100_000, "truncated or damaged"),
        ({"schemaVersion": 1}, "no traceEvents"),
        ({"traceEvents": "none"}, "no traceEvents"),
        ({"traceEvents": [7]}, "1 of 1 rows of traceEvents are not events"),
        ({"traceEvents": []}, "no events"),
        ({"traceEvents": [_KERNEL]}, "1 of 1 rows of traceEvents have an invalid args"),
        ({"traceEvents": [_KERNEL | {"args": [1]}]}, "1 of 1 rows .* .not an object"),
        ({"traceEvents": [_KERNEL | {"args": {}, "dur": None}]}, "no valid duration"),
        ({"traceEvents": [_KERNEL | {"args": {}, "dur": -1}]}, "no valid duration"),
        ({"traceEvents": [_KERNEL | {"args": {}, "ts": "soon"}]}, "no valid start"),
        ({"traceEvents": [_KERNEL | {"args": {}, "dur": 10**30}]}, "no valid duration"),
        ({"traceEvents": [_KERNEL | {"args": {"grid": [1, 2]}}]}, "grid .not three sizes"),
        ({"traceEvents": [_KERNEL | {"cat": []}]}, "no valid category"),
        ({"a": 1}, "not a"),
    ],
)
def test_what_is_no_whole_trace_is_refused_in_a_sentence(
    tmp_path: Path, document: object, sentence: str
) -> None:
    store = Store(tmp_path / "store")
    with pytest.raises(InputError, match=sentence) as caught:
        ingest(_write(tmp_path / "trace.json", document), store)
    assert "\n" not in str(caught.value)
    assert store.report_ids() == []
    assert store.leftovers() == []


@pytest.mark.parametrize("kept", [10, 500, 0.5, 0.99999])
def test_a_trace_cut_short_is_refused(tmp_path: Path, kept: float) -> None:
    content = gzip.decompress(TRACE.read_bytes())
    path = tmp_path / "cut.json"
    path.write_bytes(content[: int(kept if kept > 1 else kept * len(content))])
    assert run_cli(["ingest", str(path), "--store", str(tmp_path / "store")]) == 2


def test_a_trace_without_a_gpu_says_what_to_do(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 5, "dur": 2}
    store = Store(tmp_path / "store")
    made = ingest(_write(tmp_path / "cpu.json", {"traceEvents": [event]}), store)
    with Session.open(store, [made.report_id]) as con:
        assert con.execute("SELECT name, dur_ns FROM nsys_nvtx_ranges").fetchall() == [
            ("aten::mm", 2000)
        ]
    assert any("ProfilerActivity.CUDA" in warning for warning in made.warnings)


def test_traces_of_two_ranks_are_a_job(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    reports = []
    for rank, (start, dur) in enumerate(((100, 50), (140, 12))):
        kernel = {
            "ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)",
            "pid": rank, "tid": 7, "ts": start, "dur": dur,
            "args": {"device": rank, "stream": 7, "correlation": 1},
        }  # fmt: skip
        call = {
            "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9,
            "ts": 10, "dur": 1, "args": {"correlation": 1},
        }  # fmt: skip
        document = {
            "traceEvents": [kernel, call],
            "baseTimeNanoseconds": 10**18,
            # In the other order than the files.
            "distributedInfo": {"backend": "nccl", "rank": 1 - rank, "world_size": 2},
        }
        reports.append(ingest(_write(tmp_path / f"t{rank}.json", document), store).report_id)
    with Session.open(store, reports) as con:
        ranks = con.execute("SELECT rank, report_id, rank_source FROM job_ranks").fetchall()
        pairs = con.execute(
            "SELECT transfer_ns, waiting_ns, last_rank, last_start_ns - first_start_ns, together "
            "FROM paired_collectives"
        ).fetchall()
    assert ranks == [(0, reports[1], "RANK"), (1, reports[0], "RANK")]
    # The ends are 2 us apart, which the clocks are corrected by.
    assert pairs == [(12_000, 38_000, 0, 38_000, True)]
