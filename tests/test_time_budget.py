"""The time budget: exact on every capture, and equal to counting each nanosecond."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from conftest import DATA, Tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.session import Session
from analysis.thresholds import thresholds as _defaults
from perfpipe.store import Store

Ingested = Callable[[str], str]
CAPTURES = sorted(path.name.removesuffix(".sqlite.xz") for path in DATA.glob("nsys/*.sqlite.xz"))
CATEGORIES = (
    "compute", "communication", "transfer", "sync", "launch_gap", "launch_api", "queued", "host",
    "profiler_overhead", "edge", "unattributed",
)  # fmt: skip

#: Capture -> (device, bound, share in %, contributors) of the whole capture.
VERDICTS = {
    "eager_small": [(0, "launch_overhead", 79, "launch overhead 79 %, compute 11 %")],
    "compute": [(0, "compute", 99, "compute 99 %")],
    "graph_whole": [(0, "compute", 100, "compute 100 %")],
    "graph_node": [(0, "compute", 76, "compute 76 %, launch overhead 21 %")],
    "h2d": [(0, "compute", 72, "compute 72 %, transfer 26 %")],
    "memcpy": [(0, "transfer", 97, "transfer 97 %")],
    "ddp_comm_rank0": [(0, "communication", 49, "communication 49 %, compute 48 %")],
    "ddp_comm_rank1": [(1, "compute", 60, "compute 60 %, communication 36 %")],
    "gpumetrics": [(0, "compute", 62, "compute 62 %, launch overhead 21 %, host 15 %")],
}

#: The same of the steady steps, where they differ.
STEADY_VERDICTS = VERDICTS | {
    "h2d": [(0, "compute", 74, "compute 74 %, transfer 24 %")],
    "memcpy": [(0, "transfer", 99, "transfer 99 %")],
    "ddp_comm_rank0": [(0, "compute", 61, "compute 61 %, communication 37 %")],
    "ddp_comm_rank1": [(1, "compute", 61, "compute 61 %, communication 37 %")],
    "gpumetrics": [(0, "compute", 64, "compute 64 %, launch overhead 20 %, host 14 %")],
}


@pytest.mark.parametrize("window", ["whole", "steady"])
@pytest.mark.parametrize("capture", CAPTURES)
def test_the_parts_of_every_capture_add_up(
    captures: Store, ingested: Ingested, capture: str, window: str
) -> None:
    report = ingested(f"nsys/{capture}.sqlite")
    with Session.open(captures, [report], window=window) as con:
        whole = con.execute(
            "SELECT device, sum(time_ns) - any_value(window_ns), "
            "min(time_ns) >= 0, list(category ORDER BY category), round(sum(share_pct), 6) "
            "FROM gpu_time_budget GROUP BY device"
        ).fetchall()
        parts = con.execute(
            "SELECT device, category, sum(time_ns) FROM step_budget "
            "SEMI JOIN analysis_windows AS w USING (report_id, device) "
            "WHERE phase = 'steady' OR 'whole' = (SELECT any_value(kind) FROM analysis_windows) "
            "GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        budget = con.execute(
            "SELECT device, category, time_ns FROM gpu_time_budget "
            "SEMI JOIN step_budget USING (device) ORDER BY ALL"
        ).fetchall()
        steps = con.execute(
            "SELECT count(*), count(*) FILTER (rest = 0 AND least >= 0) FROM ("
            "SELECT sum(time_ns) - any_value(step_ns) AS rest, min(time_ns) AS least "
            "FROM step_budget GROUP BY device, window_start_ns, step_index)"
        ).fetchone()
        idle = con.execute(
            "SELECT device, sum(dur_ns) FROM gpu_idle_gaps GROUP BY device ORDER BY device"
        ).fetchall()
        rest = con.execute(
            "SELECT device, sum(time_ns) FILTER (category NOT IN ('compute', 'communication', "
            "'transfer')) FROM gpu_time_budget GROUP BY device ORDER BY device"
        ).fetchall()
    assert whole
    for _, difference, positive, categories, shares in whole:
        assert difference == 0
        assert positive
        assert categories == sorted(CATEGORIES)
        assert shares == 100
    assert steps is not None and steps[0] == steps[1]
    assert parts == budget, "steps and what lies between them are all there is"
    assert idle == rest


@pytest.mark.parametrize(("window", "verdicts"), [("whole", VERDICTS), ("steady", STEADY_VERDICTS)])
@pytest.mark.parametrize("capture", VERDICTS)
def test_verdicts(
    captures: Store,
    ingested: Ingested,
    capture: str,
    window: str,
    verdicts: dict[str, list[tuple[int, str, int, str]]],
) -> None:
    sql = (
        "SELECT device, bound, round(share_pct), contributors, confidence, explanation "
        "FROM timeline_bottleneck"
    )
    with Session.open(captures, [ingested(f"nsys/{capture}.sqlite")], window=window) as con:
        rows = con.execute(sql).fetchall()
    assert [row[:4] for row in rows] == verdicts[capture]
    for *_, confidence, explanation in rows:
        assert confidence == ("low" if capture == "graph_whole" else "medium")
        assert "Not all CUDA events might have been collected" in explanation
    if capture == "graph_whole":
        assert "20 CUDA graph launches whose contents are hidden" in rows[0][5]


def test_one_report_of_two_ranks_is_partitioned_by_gpu(captures: Store, ingested: Ingested) -> None:
    sql = "SELECT device, category, time_ns FROM gpu_time_budget"
    with Session.open(captures, [ingested("nsys/ddp_single.sqlite")]) as con:
        rows = con.execute(sql).fetchall()
    devices = {device for device, *_ in rows}
    assert devices == {0, 1}
    assert sum(ns for _, category, ns in rows if category == "unattributed") == 0


NAMES = {1: "gemm", 2: "ncclDevKernel_AllReduce", 3: "[CUDA memcpy Host-to-Device]"}


@st.composite
def timelines(draw: st.DrawFn) -> dict[str, list[dict[str, Any]]]:
    """Operations of one GPU with their calls, synchronising calls, and profiler overhead."""
    times = st.integers(0, 60)
    launches = []
    starts = draw(st.lists(times, min_size=1, max_size=8, unique=True))
    for number, start in enumerate(sorted(starts)):
        kind = draw(st.sampled_from([1, 1, 2, 3]))
        row: dict[str, Any] = {
            "kind": "memcpy" if kind == 3 else "kernel", "name": NAMES[kind], "device": 0,
            "stream": 7, "pid": 1, "correlation_id": number,
            "start_ns": start, "end_ns": start + draw(st.integers(0, 12)),
        }  # fmt: skip
        if draw(st.integers(0, 4)):
            call = draw(st.integers(-20, start))
            row |= {"tid": draw(st.sampled_from([1, 2])), "api_name": "cudaLaunchKernel"}
            row |= {"api_start_ns": call, "api_end_ns": call + draw(st.integers(0, 15))}
        launches.append(row)
    syncs = []
    for tid in (1, 2):
        clock = -20
        for _ in range(draw(st.integers(0, 3))):
            clock += draw(st.integers(1, 20))
            end = clock + draw(st.integers(0, 10))
            syncs.append(
                {"pid": 1, "tid": tid, "name": "cudaDeviceSynchronize", "api": "runtime",
                 "start_ns": clock, "end_ns": end}
            )  # fmt: skip
            clock = end
    overhead = [
        {"pid": 1, "tid": 9, "start_ns": start, "end_ns": start + draw(st.integers(0, 10))}
        for start in draw(st.lists(times, max_size=3))
    ]
    return {"launches": launches, "nsys_api_calls": syncs, "nsys_overhead": overhead}


def _by_the_nanosecond(timeline: dict[str, list[dict[str, Any]]]) -> Counter[str]:
    """Look at each nanosecond by itself."""
    ops = timeline["launches"]
    begin, end = min(op["start_ns"] for op in ops), max(op["end_ns"] for op in ops)
    return Counter(category_at(timeline, now) for now in range(begin, end))


def category_at(timeline: dict[str, list[dict[str, Any]]], now: int) -> str:
    """Return the category of one nanosecond between the first and the last operation."""
    ops = timeline["launches"]
    running = {_class(op) for op in ops if op["start_ns"] <= now < op["end_ns"]}
    if running:
        return ("compute", "communication", "transfer")[min(running) - 1]
    if any(o["start_ns"] <= now < o["end_ns"] for o in timeline["nsys_overhead"]):
        return "profiler_overhead"
    return _cause(timeline, now)


def _class(op: dict[str, Any]) -> int:
    return next(number for number, name in NAMES.items() if name == op["name"])


def _cause(timeline: dict[str, list[dict[str, Any]]], now: int) -> str:
    ops = timeline["launches"]
    gap_start = max(op["end_ns"] for op in ops if op["start_ns"] <= now)
    following = min((op for op in ops if op["start_ns"] > now), key=lambda op: op["start_ns"])
    call, returned = following.get("api_start_ns"), following.get("api_end_ns")
    if call is None or returned is None:
        return "unattributed"
    if call <= now < returned:
        return "launch_api"
    if now >= returned:
        return "queued"
    for sync in timeline["nsys_api_calls"]:
        if (
            sync["tid"] == following["tid"]
            and sync["start_ns"] < call
            and sync["end_ns"] >= gap_start
        ):
            return "sync"
    return "launch_gap" if following["start_ns"] - gap_start <= LAUNCH_GAP else "host"


#: Short, so that both kinds of host time come up.
LAUNCH_GAP = 10


@settings(max_examples=60, deadline=None)
@given(timelines(), st.randoms(use_true_random=False))
def test_budget_against_counting_each_nanosecond(
    timeline: dict[str, list[dict[str, Any]]], shuffle: random.Random
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("analysis.session.thresholds", short_gaps)
        answers = []
        for _ in range(2):
            db = Tiny()
            for table, rows in timeline.items():
                db.add(table, *shuffle.sample(rows, len(rows)))
            answers.append(
                db.rows("SELECT category, time_ns FROM gpu_time_budget ORDER BY category")
            )
    assert answers[0] == answers[1], "the order of rows changes nothing"
    expected = _by_the_nanosecond(timeline)
    assert {category: ns for category, ns in answers[0] if ns} == dict(expected)


@settings(max_examples=30)
@given(timelines(), timelines())
def test_two_reports_of_two_ranks_and_one_report_of_both_agree(
    first: dict[str, list[dict[str, Any]]], second: dict[str, list[dict[str, Any]]]
) -> None:
    db = Tiny()
    for report, timeline, rank in (("a", first, 0), ("b", second, 1)):
        for table, rows in timeline.items():
            placed = [row | {"pid": rank + 1} for row in rows]
            if table == "launches":
                placed = [row | {"device": rank} for row in placed]
            db.add(table, *placed)
            db.add(table, *(row | {"report_id": report} for row in placed))
    sql = "SELECT device, category, time_ns, window_start_ns, window_end_ns FROM gpu_time_budget"
    combined = db.rows(f"{sql} WHERE report_id = 'r' ORDER BY ALL")
    assert combined == db.con.execute(f"{sql} WHERE report_id <> 'r' ORDER BY ALL").fetchall()


def short_gaps() -> dict[str, float]:
    return _defaults() | {"timeline.launch_gap_ns": LAUNCH_GAP}


def _op(start: int, end: int, **more: Any) -> dict[str, Any]:
    return {"kind": "kernel", "name": "k", "device": 0, "stream": 7, "pid": 1, "tid": 1,
            "correlation_id": start, "start_ns": start, "end_ns": end, **more}  # fmt: skip


def _called(start: int, end: int, call: int, returned: int, **more: Any) -> dict[str, Any]:
    return _op(
        start, end, api_name="cudaLaunchKernel", api_start_ns=call, api_end_ns=returned, **more
    )


def _budget(db: Tiny) -> dict[tuple[int, str], int]:
    rows = db.rows("SELECT device, category, time_ns FROM gpu_time_budget WHERE time_ns > 0")
    return {(device, category): ns for device, category, ns in rows}


def test_host_time_on_both_sides_of_the_threshold() -> None:
    db = Tiny()
    db.add(
        "launches",
        _op(0, 10),
        _called(200_010, 200_020, 200_005, 200_006),
        _called(400_021, 400_030, 400_011, 400_012),
    )
    assert _budget(db) == {
        (0, "compute"): 29,
        (0, "launch_gap"): 199_995,
        (0, "launch_api"): 2,
        (0, "queued"): 4 + 9,
        (0, "host"): 199_991,
    }


def test_two_processes_on_one_gpu_with_the_same_correlation_ids() -> None:
    """Each looks idle by itself; the GPU is not.  CUDA_VISIBLE_DEVICES renumbered both."""
    db = Tiny()
    db.add(
        "nsys_cuda_devices",
        {"pid": 1, "device": 0, "gpu": 3},
        {"pid": 2, "device": 0, "gpu": 3},
        {"pid": 2, "device": 1, "gpu": 0},
    )
    db.add(
        "launches",
        _called(0, 50, -10, -5, correlation_id=1),
        _called(50, 100, 10, 20, correlation_id=1, pid=2),
        _called(10, 20, 5, 6, correlation_id=2, pid=2, device=1),
    )
    assert _budget(db) == {(3, "compute"): 100, (0, "compute"): 10}


def test_unusual_rows_crash_nothing_and_invent_nothing() -> None:
    """Kernels without length, negative times, no process, no device: NULL stays unknown."""
    db = Tiny()
    db.add(
        "launches",
        _op(-5, -5),
        _op(0, 10, pid=None, tid=None, correlation_id=None),
        _op(10, 10, stream=None),
        _op(30, 40, device=None),
        _called(20, 30, 12, 14, kind="graph", name="graph 1"),
    )
    rows = db.rows("SELECT device, category, time_ns FROM gpu_time_budget WHERE time_ns > 0")
    assert set(rows) == {
        (0, "compute", 20), (0, "launch_gap", 2), (0, "launch_api", 2), (0, "queued", 6),
        (0, "unattributed", 5), (None, "compute", 10),
    }  # fmt: skip
    (note,) = db.con.execute(
        "SELECT note FROM gpu_time_budget WHERE category = 'compute' AND device = 0"
    ).fetchall()
    assert "1 CUDA graph launches" in note[0]


def test_idle_gaps_say_what_the_host_did() -> None:
    db = Tiny()
    db.add(
        "launches",
        _op(0, 10, name="a"),
        _called(500_000, 500_010, 499_000, 499_500, name="b", nvtx_range=":load", range_id=1),
    )
    db.add("launches", _called(500_100, 500_200, 500_020, 500_030, name="c"))
    db.add(
        "nsys_api_calls",
        {
            "pid": 1,
            "tid": 1,
            "name": "cudaStreamSynchronize",
            "start_ns": 500_005,
            "end_ns": 500_015,
        },
        {"pid": 1, "tid": 2, "name": "cudaDeviceSynchronize", "start_ns": 5, "end_ns": 400_000},
    )
    db.add("nsys_osrt", {"pid": 1, "tid": 1, "name": "read", "start_ns": 100, "end_ns": 400_000})
    db.add(
        "nsys_nvtx_ranges",
        {"range_id": 0, "name": "step 1"},
        {"range_id": 1, "name": "load", "enclosing": 0},
    )
    assert db.rows(
        "SELECT rank, dur_ns, cause, before_ns, launch_api_ns, queued_ns, next_name, sync_name, "
        "nvtx_range, nvtx_path, os_call FROM gpu_idle_gaps"
    ) == [
        (1, 499_990, "host", 498_990, 500, 500, "b", None, ":load", "step 1 > load", "read"),
        (2, 90, "queued", 10, 10, 70, "c", "cudaStreamSynchronize", None, None, None),
    ]


def test_steps_run_from_their_first_operation_to_the_next_ones() -> None:
    db = Tiny()
    for index, (start, first, end) in enumerate(((0, 10, 40), (50, 60, 90), (100, 110, 200))):
        db.add("launches", _called(first, end, first - 8, first - 6, call_id=index))
        db.add(
            "nsys_nvtx_ranges",
            {"pid": 1, "tid": 1, "range_id": index, "name": f"step {index}", "style": "PushPop",
             "start_ns": start, "end_ns": start + 5, "first_call": index, "calls": 1},
        )  # fmt: skip
    assert db.rows(
        "SELECT step, step_index, window_start_ns, window_end_ns, category, time_ns "
        "FROM step_budget WHERE time_ns > 0 ORDER BY step_index, time_ns DESC"
    ) == [
        ("step 0", 1, 10, 60, "compute", 30),
        ("step 0", 1, 10, 60, "launch_gap", 12),
        ("step 0", 1, 10, 60, "queued", 6),
        ("step 0", 1, 10, 60, "launch_api", 2),
        ("step 1", 2, 60, 110, "compute", 30),
        ("step 1", 2, 60, 110, "launch_gap", 12),
        ("step 1", 2, 60, 110, "queued", 6),
        ("step 1", 2, 60, 110, "launch_api", 2),
        ("step 2", 3, 110, 200, "compute", 90),
    ]
    assert Tiny().rows("SELECT * FROM step_summary") == []


@pytest.mark.parametrize(
    ("name", "synchronises"),
    [
        ("cudaDeviceSynchronize", True), ("cudaStreamSynchronize_ptsz", True),
        ("cuEventSynchronize", True), ("cudaMemcpy", True), ("cudaMemcpy2D", True),
        ("cuMemcpyDtoH_v2", True), ("cudaMemcpyAsync", False), ("cuMemcpyHtoDAsync_v2", False),
        ("cudaStreamWaitEvent", False), ("cudaLaunchKernel", False), ("cudaMemcpy2DAsync", False),
    ],
)  # fmt: skip
def test_calls_that_wait_for_the_gpu(name: str, synchronises: bool) -> None:
    db = Tiny()
    assert db.rows(f"SELECT is_synchronising('{name}')") == [(synchronises,)]


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step 3", True),
        ("Iteration_12", True),
        ("iter:4", True),
        ("step", False),
        ("backward", False),
    ],
)
def test_names_of_steps(name: str, step: bool) -> None:
    assert Tiny().rows(f"SELECT is_step('{name}')") == [(step,)]


@pytest.mark.parametrize(
    ("name", "communicates"),
    [
        ("ncclDevKernel_AllReduce", True),
        ("NCCLKernel", True),
        ("nvshmem_put", True),
        ("gemm_nccl", False),
    ],
)
def test_names_of_communication(name: str, communicates: bool) -> None:
    assert Tiny().rows(f"SELECT is_communication('{name}')") == [(communicates,)]
