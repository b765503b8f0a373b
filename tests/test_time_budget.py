"""The time budget: exact on every capture, and what its categories mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import DATA, Opened, Tiny

from perfpipe.analysis.session import Session
from perfpipe.store import Store

Ingested = Callable[[str], str]
CAPTURES = sorted(path.name.removesuffix(".sqlite.xz") for path in DATA.glob("nsys/*.sqlite.xz"))
CATEGORIES = (
    "compute", "communication", "migration", "transfer", "sync", "launch_gap", "launch_api", "queued",
    "kernel_gap", "device_wait", "building", "no_work", "loading", "host", "profiler_overhead", "edge",
    "unattributed",
)  # fmt: skip

#: What is read of all captures at a time.
VIEWS = (
    "gpu_time_budget", "step_budget", "analysis_windows", "gpu_idle_gaps", "timeline_bottleneck",
)  # fmt: skip

#: Capture -> (device, bound, share in %, contributors) of the whole capture.
VERDICTS = {
    "eager_small": [(0, "launch_overhead", 85, "launch overhead 85 %, compute 11 %")],
    "compute": [(0, "compute", 99, "compute 99 %")],
    "graph_whole": [(0, "compute", 100, "compute 100 %")],
    "graph_node": [(0, "compute", 76, "compute 76 %, kernel gap 21 %")],
    "h2d": [(0, "compute", 72, "compute 72 %, transfer 26 %")],
    "memcpy": [(0, "transfer", 97, "transfer 97 %")],
    "ddp_comm_rank0": [(0, "communication", 49, "communication 49 %, compute 48 %")],
    "ddp_comm_rank1": [(1, "compute", 60, "compute 60 %, communication 36 %")],
    "gpumetrics": [(0, "compute", 62, "compute 62 %, launch overhead 26 %")],
}

#: The same of the steady steps, where they differ.
STEADY_VERDICTS = VERDICTS | {
    "h2d": [(0, "compute", 74, "compute 74 %, transfer 24 %")],
    "memcpy": [(0, "transfer", 99, "transfer 99 %")],
    "ddp_comm_rank0": [(0, "compute", 61, "compute 61 %, communication 37 %")],
    "ddp_comm_rank1": [(1, "compute", 61, "compute 61 %, communication 37 %")],
    "gpumetrics": [(0, "compute", 64, "compute 64 %, launch overhead 25 %")],
}


@pytest.fixture(scope="module")
def sessions(captures: Store, ingested: Ingested) -> Iterator[Callable[[str], Session]]:
    """Sessions over all captures by window: what is said of one does not depend on the others."""
    opened: dict[str, Session] = {}

    def session(window: str) -> Session:
        if window not in opened:
            ids = [ingested(f"nsys/{capture}.sqlite") for capture in CAPTURES]
            opened[window] = Session.open(captures, ids, use=VIEWS, window=window)
        return opened[window]

    yield session
    for session_of_window in opened.values():
        session_of_window.close()


@pytest.mark.parametrize("window", ["whole", "steady"])
@pytest.mark.parametrize("capture", CAPTURES)
def test_the_parts_of_every_capture_add_up(
    sessions: Callable[[str], Session], ingested: Ingested, capture: str, window: str
) -> None:
    con, report = sessions(window).con, f"'{ingested(f'nsys/{capture}.sqlite')}'"
    whole = con.execute(
        "SELECT device, sum(time_ns) - any_value(window_ns), "
        "min(time_ns) >= 0, list(category ORDER BY category), round(sum(share_pct), 6) "
        f"FROM gpu_time_budget WHERE report_id = {report} GROUP BY device"
    ).fetchall()
    parts = con.execute(
        "SELECT device, category, sum(step_budget.time_ns) FROM step_budget "
        "JOIN analysis_windows AS w USING (report_id, device) "
        f"WHERE report_id = {report} AND (phase = 'steady' OR w.kind = 'whole') "
        "GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    budget = con.execute(
        "SELECT device, category, time_ns FROM gpu_time_budget "
        f"SEMI JOIN step_budget USING (report_id, device) WHERE report_id = {report} ORDER BY ALL"
    ).fetchall()
    steps = con.execute(
        "SELECT count(*), count(*) FILTER (rest = 0 AND least >= 0) FROM ("
        "SELECT sum(time_ns) - any_value(step_ns) AS rest, min(time_ns) AS least "
        f"FROM step_budget WHERE report_id = {report} "
        "GROUP BY device, window_start_ns, step_index)"
    ).fetchone()
    idle = con.execute(
        f"SELECT device, sum(dur_ns) FROM gpu_idle_gaps WHERE report_id = {report} "
        "GROUP BY device ORDER BY device"
    ).fetchall()
    rest = con.execute(
        "SELECT device, sum(time_ns) FILTER (category NOT IN ('compute', 'communication', "
        f"'migration', 'transfer')) FROM gpu_time_budget WHERE report_id = {report} "
        "GROUP BY device ORDER BY device"
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
    sessions: Callable[[str], Session],
    ingested: Ingested,
    capture: str,
    window: str,
    verdicts: dict[str, list[tuple[int, str, int, str]]],
) -> None:
    sql = (
        "SELECT device, bound, round(share_pct), contributors, confidence, explanation "
        f"FROM timeline_bottleneck WHERE report_id = '{ingested(f'nsys/{capture}.sqlite')}'"
    )
    rows = sessions(window).con.execute(sql).fetchall()
    assert [row[:4] for row in rows] == verdicts[capture]
    for *_, confidence, explanation in rows:
        assert confidence == ("low" if capture == "graph_whole" else "medium")
        assert "Not all CUDA events might have been collected" in explanation
    if capture == "graph_whole":
        assert "20 CUDA graph launches with hidden kernels" in rows[0][5]


def test_one_report_of_two_ranks_is_partitioned_by_gpu(opened: Opened) -> None:
    sql = "SELECT device, category, time_ns FROM gpu_time_budget"
    with opened("nsys/ddp_single.sqlite") as con:
        rows = con.execute(sql).fetchall()
    devices = {device for device, *_ in rows}
    assert devices == {0, 1}
    assert sum(ns for _, category, ns in rows if category == "unattributed") == 0


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
        _called(400_031, 400_040, 400_021, 400_022),
    )
    assert _budget(db) == {
        (0, "compute"): 29,
        (0, "launch_gap"): 199_995,
        (0, "launch_api"): 2,
        (0, "queued"): 4 + 9,
        (0, "host"): 200_001,
    }


@pytest.mark.parametrize(("launches", "cause"), [(19, "host"), (20, "launch_gap")])
def test_a_host_that_always_takes_long_is_between_launches(launches: int, cause: str) -> None:
    db = Tiny()
    starts = [300_000 * n for n in range(launches + 1)]
    db.add("launches", *(_called(at, at + 10, at - 2, at - 1, name=f"k {at}") for at in starts))
    assert _budget(db)[0, cause] == 299_988 * launches


def test_the_first_use_of_a_kernel_is_loading_and_recurs_as_a_launch() -> None:
    db = Tiny()
    db.add(
        "launches",
        _op(0, 10),
        _called(300_100, 300_200, 100, 300_090, name="new"),
        _called(600_300, 600_310, 300_300, 600_290, name="new"),
    )
    db.add(
        "nsys_api_calls",
        {"pid": 1, "tid": 1, "name": "cuLibraryLoadData", "start_ns": 5, "end_ns": 60},
        {"pid": 1, "tid": 2, "name": "cuLibraryLoadData", "start_ns": 60, "end_ns": 90},
    )
    assert _budget(db) == {
        (0, "compute"): 120,
        (0, "launch_gap"): 40 + 100,
        (0, "loading"): 50 + 299_990,
        (0, "queued"): 20,
        (0, "launch_api"): 299_990,
    }


def test_nodes_of_a_graph_do_not_wait_for_the_host() -> None:
    """The first one does; the call returns while the second runs."""
    db = Tiny()
    call = {"api_start_ns": 30, "api_end_ns": 60, "call_id": 1, "name": "n"}
    nodes = [_op(at, at + 5, **call) for at in (40, 50, 70)]
    db.add("launches", _op(0, 10), *nodes)
    assert _budget(db) == {
        (0, "compute"): 25,
        (0, "launch_gap"): 20,
        (0, "launch_api"): 10,
        (0, "kernel_gap"): 5 + 15,
    }


def test_a_wait_lets_the_gpu_run_dry_unless_it_begins_later() -> None:
    """Its latency, and a short time until the next launch, follow from it; a long time does not."""
    db = Tiny()
    db.add(
        "launches",
        _op(0, 10),
        _called(100, 110, 80, 90),
        _called(300_000, 300_010, 299_980, 299_990),
        _called(300_100, 300_110, 300_080, 300_090),
    )
    wait = {"pid": 1, "tid": 1, "name": "cudaDeviceSynchronize"}
    db.add(
        "nsys_api_calls",
        wait | {"start_ns": 5, "end_ns": 20},
        wait | {"start_ns": 105, "end_ns": 120},
        wait | {"start_ns": 300_020, "end_ns": 300_030},
    )
    assert _budget(db) == {
        (0, "compute"): 40,
        (0, "sync"): 90 + 10 + 20 + 10,
        (0, "host"): 299_860,
        (0, "launch_gap"): 10 + 50,
        (0, "launch_api"): 10,
        (0, "queued"): 10,
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
        (2, 90, "sync", 10, 10, 70, "c", "cudaStreamSynchronize", None, None, None),
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
    ("earlier", "begins"), [(0, 100), (250, 250), (400, 300)], ids=["done", "running", "overlaps"]
)
def test_a_single_step_begins_when_the_gpu_has_finished_earlier_work(
    earlier: int, begins: int
) -> None:
    """A profiler that starts in a running loop records the end of the step before."""
    db = Tiny()
    db.add("launches", _op(10, 40))
    if earlier:
        db.add("launches", _op(50, earlier, stream=8))
    db.add("launches", _called(300, 500, 280, 290, call_id=0))
    db.add(
        "nsys_nvtx_ranges",
        {"pid": 1, "tid": 1, "range_id": 0, "name": "step 7", "style": "PushPop",
         "start_ns": 100, "end_ns": 550, "first_call": 0, "calls": 1},
    )  # fmt: skip
    assert db.rows("SELECT start_ns, end_ns FROM steps WHERE step IS NOT NULL") == [(begins, 550)]


@pytest.mark.parametrize(
    ("name", "synchronises"),
    [
        ("cudaDeviceSynchronize", True), ("cudaStreamSynchronize_ptsz", True),
        ("cuEventSynchronize", True), ("cudaMemcpy", True), ("cudaMemcpy2D", True),
        ("cuMemcpyDtoH_v2", True), ("cudaMemcpyAsync", False), ("cuMemcpyHtoDAsync_v2", False),
        ("cudaStreamWaitEvent", False), ("cudaLaunchKernel", False), ("cudaMemcpy2DAsync", False),
        ("hipDeviceSynchronize", True), ("hipMemcpyWithStream", True), ("hipMemcpyDtoH", True),
        ("hipMemcpyAsync", False), ("hipMemcpyDtoHAsync", False), ("hipExtLaunchKernel", False),
    ],
)  # fmt: skip
def test_calls_that_wait_for_the_gpu(name: str, synchronises: bool) -> None:
    db = Tiny()
    assert db.rows(f"SELECT is_synchronising('{name}')") == [(synchronises,)]


@pytest.mark.parametrize(
    ("name", "allocates", "manages"),
    [
        ("cudaMalloc", True, True), ("cudaMallocPitch", True, True), ("cuMemAlloc_v2", True, True),
        ("cudaMallocArray", True, True), ("cudaMalloc3DArray", True, True),
        ("cuArray3DCreate_v2", True, True), ("cuMipmappedArrayCreate", True, True),
        ("hipMalloc", True, True), ("cudaMallocManaged", True, True), ("cuMemCreate", True, True),
        ("cudaMallocAsync", False, True), ("cudaFree", False, True), ("cudaFreeArray", False, True),
        ("cuArrayDestroy", False, True), ("cudaMallocFromPoolAsync", False, True),
        ("cudaFreeAsync", False, False), ("cudaMallocHost", False, False),
        ("cudaFreeHost", False, False), ("cudaArrayGetInfo", False, False),
    ],
)  # fmt: skip
def test_calls_that_allocate_and_free(name: str, allocates: bool, manages: bool) -> None:
    db = Tiny()
    found = db.rows(f"SELECT is_allocating('{name}'), manages_memory('{name}')")
    assert found == [(allocates, manages)]


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
    assert Tiny().rows(f"SELECT is_communication('{name}', '{name}')") == [(communicates,)]
