"""What idle time is named after, and the advice that follows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from conftest import Row, Tiny

from perfpipe.analysis.short_names import LONGEST, short_names

HTOD = "[CUDA memcpy Host-to-Device]"
DTOH = "[CUDA memcpy Device-to-Host]"
#: A kernel that cuBLAS chooses when it is called.
GEMM = "nvjet_tst_128x256_64x6_2x1_2cta_v_bz_TNT"
STEP = 1_000_000


class Case:
    """A timeline of its own, as one report of the database that all cases here share."""

    def __init__(self, db: Tiny, report: str) -> None:
        self._db, self._report = db, report
        self.add("reports", {"kind": "nsys", "gpu": "NVIDIA H200", "sm_count": 132})

    def add(self, table: str, *rows: Row) -> None:
        self._db.add(table, *({**row, "report_id": self._report} for row in rows))


Build = Callable[[Case], None]
#: How the rows of each case are made, by its name.
CASES: dict[str, Build] = {}

#: Answers a query about a case, in which `$case` is its report.
Told = Callable[[str, str], list[tuple[Any, ...]]]


def case(name: str) -> Callable[[Build], Build]:
    """Return a decorator of what makes the rows of a case."""

    def known(build: Build) -> Build:
        assert name not in CASES
        CASES[name] = build
        return build

    return known


@pytest.fixture(scope="module")
def told() -> Told:
    """Return what answers queries about the cases: to plan the views takes longer than all else."""
    db = Tiny()
    for name, build in CASES.items():
        build(Case(db, name))
    db.session.use("timeline_findings", "idle_causes", "small_readbacks")
    return lambda name, sql: db.con.execute(sql, {"case": name}).fetchall()


def _loop(db: Case, before: str = GEMM, **more: Any) -> None:
    """Add twelve steps of one operation each; the host launches nothing for most of each."""
    kind = "memcpy" if before.startswith("[") else "kernel"
    if kind == "kernel":
        db.add("nsys_kernels", {"name": before, "demangled": more.get("demangled", before)})
    for n in range(12):
        at = STEP * n
        db.add(
            "launches",
            {"kind": kind, "name": before, "device": 0, "stream": 7, "pid": 1, "tid": 1,
             "correlation_id": n, "call_id": n, "start_ns": at, "end_ns": at + 100_000,
             "api_name": "cudaLaunchKernel", "api_start_ns": at - 9000, "api_end_ns": at - 4000}
            | more,
        )  # fmt: skip


def _copies(db: Case, size: int, operation: str = HTOD, dur_ns: int = 100_000) -> None:
    """Say how large the copies of the loop are."""
    for n in range(12):
        db.add(
            "nsys_memory_ops",
            {"operation": operation, "pid": 1, "correlation_id": n, "device": 0, "bytes": size,
             "src_kind": "Pageable", "dst_kind": "Device", "start_ns": STEP * n,
             "end_ns": STEP * n + dur_ns, "dur_ns": dur_ns},
        )  # fmt: skip


def _span(db: Case, table: str, name: str, tid: int = 1, **more: Any) -> None:
    """Add a range or call that is open during most of the idle time of every step."""
    for n in range(12):
        at = STEP * n + 150_000
        row = {"pid": 1, "tid": tid, "name": name, "start_ns": at, "end_ns": at + 700_000}
        ids = {"range_id": n, "calls": 0} if table == "nsys_nvtx_ranges" else {}
        db.add(table, row | ids | more)


def _named(told: Told, name: str) -> list[tuple[Any, ...]]:
    sql = "SELECT cause, kind, name, count FROM idle_causes WHERE report_id = $case ORDER BY rank"
    return told(name, sql)


def _techniques(told: Told, name: str, bound: str = "%") -> list[str]:
    sql = (
        "SELECT technique FROM timeline_findings "
        f"WHERE report_id = $case AND bound LIKE '{bound}' ORDER BY rank"
    )
    return [technique for (technique,) in told(name, sql)]


INPUTS = [
    ("nsys_nvtx_ranges", "dataloader", 1, "range"),
    ("nsys_osrt", "read", 1, "OS call"),
    ("nsys_nvtx_ranges", "prefetch", 2, "range of another thread"),
    ("nsys_osrt", "fread", 2, "OS call of another thread"),
]


def _input(db: Case, table: str, name: str, tid: int) -> None:
    # Different kernels: the same one, time and again, would be slow to launch.
    for n in range(12):
        at = STEP * n
        db.add(
            "launches",
            {"kind": "kernel", "name": f"k{n}", "device": 0, "pid": 1, "tid": 1, "call_id": n,
             "start_ns": at, "end_ns": at + 100_000, "api_start_ns": at - 9000,
             "api_end_ns": at - 4000},
        )  # fmt: skip
    _span(db, table, name, tid)


for _table, _name, _tid, _ in INPUTS:
    case(f"input {_name}")(partial(_input, table=_table, name=_name, tid=_tid))


@pytest.mark.parametrize(("table", "name", "tid", "kind"), INPUTS)
def test_input_data_is_advised_where_something_points_to_it(
    told: Told, table: str, name: str, tid: int, kind: str
) -> None:
    assert _named(told, f"input {name}") == [("host", kind, name, 11)]
    first = "SELECT technique, idle_in FROM timeline_findings WHERE report_id = $case AND rank = 1"
    ((technique, idle_in),) = told(f"input {name}", first)
    assert technique == "data_loading"
    assert name in idle_in and idle_in.startswith("100 %")


@case("poll")
def _poll(db: Case) -> None:
    _loop(db)
    _span(db, "nsys_osrt", "poll", tid=2)


def test_a_thread_that_waits_for_work_explains_nothing(told: Told) -> None:
    assert _named(told, "poll") == [("launch_gap", "next operation", GEMM, 11)]


@case("pipe")
def _pipe(db: Case) -> None:
    """It reads from a pipe that nobody writes to, while the GPU works as well."""
    _loop(db)
    db.add(
        "nsys_osrt",
        {"pid": 1, "tid": 2, "name": "read", "start_ns": -STEP, "end_ns": 13 * STEP},
    )


def test_a_thread_that_is_in_a_call_all_the_time_explains_nothing(told: Told) -> None:
    assert _named(told, "pipe") == [("launch_gap", "next operation", GEMM, 11)]


#: A kernel of rocBLAS, whose name lists all that it was made for.
TENSILE = "Cijk_Ailk_Bljk_" + "SBH_MT64x64x32_" * 20
case("long name")(partial(_loop, before=TENSILE, nvtx_range=":iteration 18"))
case("range of a domain")(partial(_loop, nvtx_range="model:layer"))


def test_a_sentence_has_the_short_name_of_a_kernel_and_the_name_of_a_range(told: Told) -> None:
    sql = "SELECT largest_gap, idle_in FROM timeline_findings WHERE report_id = $case AND rank = 1"
    ((largest, idle_in),) = told("long name", sql)
    short = short_names([[TENSILE]])[TENSILE]
    assert len(short) <= LONGEST
    assert largest.startswith(f"900.0 us before {short} in iteration 18")
    assert f"before {short} (" in idle_in
    ((largest, _),) = told("range of a domain", sql)
    assert largest.startswith(f"900.0 us before {GEMM} in model:layer")


case("same kernel")(_loop)


def test_the_same_kernel_time_and_again_is_slow_to_launch(told: Told) -> None:
    sql = "SELECT bound, technique FROM timeline_findings WHERE report_id = $case ORDER BY rank"
    found = told("same kernel", sql)
    assert found[:2] == [("launch_overhead", "cuda_graphs"), ("launch_overhead", "static_shapes")]


COMPILED = [
    ("triton_poi_fused_add_relu_0", "graph_of_compiled"),
    ("loop_add_fusion", "graph_of_compiled"),
    (GEMM, "cuda_graphs"),
]


def _compiled(db: Case, kernel: str) -> None:
    _loop(db, kernel)
    eager = "void at::native::elementwise_kernel<128, 2>(int)"
    names = [(kernel, kernel), ("elementwise_kernel", eager)]
    db.add("nsys_kernels", *({"name": name, "demangled": full} for name, full in names))


for _name, _ in COMPILED:
    case(f"compiled {_name}")(partial(_compiled, kernel=_name))


@pytest.mark.parametrize(("kernel", "technique"), COMPILED)
def test_a_compiled_step_is_not_told_to_be_compiled(
    told: Told, kernel: str, technique: str
) -> None:
    assert _techniques(told, f"compiled {kernel}", "launch_overhead")[0] == technique


@case("graphs")
def _graphs(db: Case) -> None:
    _loop(db, api_name="cudaGraphLaunch", graph_node_id=1)


@case("graphs and more")
def _graphs_and_more(db: Case) -> None:
    """Two kernels of a graph behind each that is launched by itself."""
    _loop(db)
    for n in range(12):
        at = STEP * n + 100_000
        call = {"correlation_id": 100 + n, "call_id": 100 + n, "api_name": "cudaGraphLaunch",
                "api_start_ns": at - 80_000, "api_end_ns": at - 70_000}  # fmt: skip
        for node in (1, 2):
            db.add("launches", {"kind": "kernel", "name": GEMM, "device": 0, "stream": 7, "pid": 1,
                                "tid": 1, "start_ns": at, "end_ns": at + 1000 * node,
                                "graph_node_id": node, **call})  # fmt: skip


GRAPHS = [("graphs", "longer_graphs"), ("graphs and more", "rest_in_graphs")]


@pytest.mark.parametrize(("name", "technique"), GRAPHS)
def test_a_step_of_graphs_is_not_told_to_use_graphs(told: Told, name: str, technique: str) -> None:
    assert _techniques(told, name, "launch_overhead")[0] == technique


def _own(db: Case, kernel: str) -> None:
    full = {"_kernel_agent": "void thrust::cuda_cub::core::_kernel_agent<int>(int)"}
    _loop(db, kernel, **({"demangled": full[kernel]} if kernel in full else {}))


OWN = ["mine", "_kernel_agent"]
for _name in OWN:
    case(f"own {_name}")(partial(_own, kernel=_name))


@pytest.mark.parametrize("kernel", OWN)
def test_a_kernel_of_the_program_itself_is_launched_at_once(told: Told, kernel: str) -> None:
    """What takes long before it is not its preparation: a loop over results, perhaps."""
    assert _named(told, f"own {kernel}") == [("host", "next operation", kernel, 11)]
    assert _techniques(told, f"own {kernel}") == ["host_alone"]


def _busy(db: Case, what: str) -> None:
    _loop(db, HTOD if what == "copy" else GEMM)
    if what == "copy":
        _copies(db, 200_704)
    if what == "range":
        _span(db, "nsys_nvtx_ranges", "log")
    elif what == "call":
        _span(db, "nsys_osrt", "write")
    elif what == "wait":
        for n in range(12):
            at = STEP * n + 50_000
            db.add("nsys_api_calls", {"pid": 1, "tid": 1, "name": "cudaDeviceSynchronize",
                                      "start_ns": at, "end_ns": at + 60_000})  # fmt: skip


BUSY = ["copy", "range", "call", "wait"]
for _name in BUSY:
    case(f"busy {_name}")(partial(_busy, what=_name))


@pytest.mark.parametrize("what", BUSY)
def test_a_host_that_does_something_else_is_not_slow_to_launch(told: Told, what: str) -> None:
    techniques = _techniques(told, f"busy {what}")
    assert techniques[0] == ("data_loading" if what == "copy" else "host_alone")
    assert "static_shapes" not in techniques
    (cause,) = {row[0] for row in _named(told, f"busy {what}")}
    assert cause == "host"


def _readbacks(db: Case, kind: str, **more: Any) -> None:
    """Add copies of 4 bytes to the host, which waits for every other one."""
    _loop(db, "[CUDA memcpy Device-to-Host]", **more)
    for n in range(12):
        at = STEP * n
        waits = n % 2
        db.add("nsys_memory_ops", {"pid": 1, "device": 0, "correlation_id": n, "start_ns": at,
               "operation": "[CUDA memcpy Device-to-Host]", "bytes": 4, "src_kind": "Device",
               "dst_kind": kind})  # fmt: skip
        if waits:
            db.add("nsys_api_calls", {"pid": 1, "tid": 1, "name": "cudaStreamSynchronize",
                                      "start_ns": at, "end_ns": at + 200_000})  # fmt: skip


case("readbacks")(partial(_readbacks, kind="Pinned"))
# Of a graph, a copy to pageable memory blocks nothing.
case("graph's readbacks")(
    partial(_readbacks, kind="Pageable", api_name="cudaGraphLaunch", graph_node_id=1)
)


@pytest.mark.parametrize(("name", "begins"), [("readbacks", -9000), ("graph's readbacks", -4000)])
def test_small_copies_that_the_host_waits_for(told: Told, name: str, begins: int) -> None:
    columns = "copies, per_step, calls_pct, max_bytes, host_pct"
    sql = f"SELECT {columns} FROM small_readbacks WHERE report_id = $case"
    host_ns = 5 * (STEP - 9000 - begins) + 12 * 5000
    host_pct = pytest.approx(100 * host_ns / (11 * STEP + 100_000))
    assert told(name, sql) == [(6, None, 50, 4, host_pct)]
    sql = "SELECT bound FROM timeline_findings WHERE report_id = $case"
    assert ("readback",) in told(name, sql)


@case("one result")
def _one_result(db: Case) -> None:
    """A program without steps that reads one number back at its end."""
    for n, (name, gap) in enumerate([("a", 0), ("b", 50_000), (DTOH, 10_000), ("c", 50_000)]):
        at = 200_000 * n + gap
        kind = "memcpy" if name == DTOH else "kernel"
        db.add("launches", {"kind": kind, "name": name, "device": 0, "stream": 7, "pid": 1, "tid": 1,
                            "correlation_id": n, "call_id": n, "start_ns": at, "end_ns": at + 100_000,
                            "api_start_ns": at - 9000, "api_end_ns": at - 4000})  # fmt: skip
        if name == DTOH:
            db.add("nsys_memory_ops", {"pid": 1, "device": 0, "correlation_id": n, "start_ns": at,
                                       "operation": name, "bytes": 8, "src_kind": "Device",
                                       "dst_kind": "Pageable"})  # fmt: skip


def test_one_result_cannot_be_read_less_often(told: Told) -> None:
    assert told("one result", "SELECT copies FROM small_readbacks WHERE report_id = $case") == [
        (1,)
    ]
    assert "fewer_readbacks" not in _techniques(told, "one result")


def _slow_host(db: Case, loading_ns: int) -> None:
    """A launch every 20 us, each tenth a copy that the host waits for; the GPU works for 1 us."""
    if loading_ns:
        at = 20_000 * 65
        db.add("nsys_api_calls", {"pid": 1, "tid": 1, "name": "cuLibraryLoadData",
                                  "start_ns": at - 9000, "end_ns": at - 9000 + loading_ns})  # fmt: skip
    for n in range(120):
        at = 20_000 * n + (loading_ns if n >= 65 else 0)
        kind = "memcpy" if n % 10 == 9 else "kernel"
        name = "[CUDA memcpy Device-to-Host]" if kind == "memcpy" else "mine"
        db.add("launches", {"kind": kind, "name": name, "device": 0, "stream": 7, "pid": 1, "tid": 1,
                            "correlation_id": n, "call_id": n, "start_ns": at, "end_ns": at + 1000,
                            "api_name": "cudaLaunchKernel", "api_start_ns": at - 9000,
                            "api_end_ns": at - 4000})  # fmt: skip
        if kind == "memcpy":
            db.add("nsys_memory_ops", {"pid": 1, "device": 0, "correlation_id": n, "start_ns": at,
                                       "operation": name, "bytes": 4, "src_kind": "Device",
                                       "dst_kind": "Pinned"})  # fmt: skip
            db.add("nsys_api_calls", {"pid": 1, "tid": 1, "name": "cudaStreamSynchronize",
                                      "start_ns": at - 3000, "end_ns": at + 2000})  # fmt: skip


case("slow host")(partial(_slow_host, loading_ns=0))
case("slow host that loads")(partial(_slow_host, loading_ns=2_000_000))


def test_code_that_is_loaded_is_loaded_in_a_graph_too(told: Told) -> None:
    """Of the GPU's idle time, loading stays, and so do waits of the host for the GPU."""
    sql = "SELECT technique, gain_pct FROM timeline_findings WHERE report_id = $case AND floor = 'synced'"
    ((technique, gain),) = told("slow host that loads", sql)
    whole_ns, loaded_ns = 119 * 20_000 + 1000 + 2_000_000, 2_000_000
    sync = "SELECT share_pct FROM gpu_time_budget WHERE report_id = $case AND category = 'sync'"
    ((synced,),) = told("slow host that loads", sync)
    expected = 100 * (whole_ns - 120 * 1000 - loaded_ns) / whole_ns - synced
    assert (technique, gain) == ("cuda_graphs", pytest.approx(expected))
    assert synced > 4


def test_a_host_that_is_slow_stays_slow_without_readbacks(told: Told) -> None:
    """The GPU idles for 95 % of the time, of which the copies explain little."""
    sql = "SELECT gain_pct, floor FROM timeline_findings WHERE report_id = $case AND bound = 'readback'"
    ((gain, floor),) = told("slow host", sql)
    assert floor == "elsewhere"
    assert gain == pytest.approx((11 * 20 + 120 * 5) / (119 * 20 + 1) * 100)


LOADED = [(200_704, "data_loading"), (488, "host_alone")]


def _loaded(db: Case, size: int) -> None:
    _loop(db, HTOD)
    _copies(db, size)
    _span(db, "nsys_osrt", "sem_clockwait")


for _size, _ in LOADED:
    case(f"loaded {_size}")(partial(_loaded, size=_size))


@pytest.mark.parametrize(("size", "technique"), LOADED)
def test_a_host_that_waits_for_data_to_copy_is_loading_it(
    told: Told, size: int, technique: str
) -> None:
    """A loader's queue is waited for in sem_clockwait; sizes and flags are copied as well."""
    assert _techniques(told, f"loaded {size}", "host")[0] == technique


@case("answered")
def _answered(db: Case) -> None:
    """The host copies results back before it idles, as for centroids that it computes anew."""
    _loop(db, HTOD)
    _copies(db, 200_704)
    for n in range(12):
        row = {"pid": 1, "device": 0, "correlation_id": 100 + n,
               "start_ns": STEP * n + 100_000, "end_ns": STEP * n + 150_000}  # fmt: skip
        db.add("launches", {"kind": "memcpy", "name": DTOH, "stream": 7, "tid": 1,
                            "call_id": 100 + n, "api_name": "cudaMemcpyAsync",
                            "api_start_ns": STEP * n, "api_end_ns": STEP * n + 5000} | row)  # fmt: skip
        db.add("nsys_memory_ops", {"operation": DTOH, "bytes": 200_704, "dst_kind": "Pageable",
                                   "src_kind": "Device", "dur_ns": 50_000} | row)  # fmt: skip


def test_host_work_on_results_is_not_input_data(told: Told) -> None:
    assert _named(told, "answered") == [("host", "next operation", HTOD, 11)]
    assert "data_loading" not in _techniques(told, "answered", "host")


COPIED = [
    (HTOD, 1 << 20, "pinned_prefetch"),
    (HTOD, 8, "fewer_small_copies"),
    ("[CUDA memcpy Device-to-Device]", 1 << 20, "fewer_device_copies"),
    ("[CUDA memset]", 1 << 20, "fewer_clears"),
]


def _copied(db: Case, operation: str, size: int) -> None:
    _loop(db, operation)
    _copies(db, size, operation)


for _operation, _size, _ in COPIED:
    case(f"{_operation} {_size}")(partial(_copied, operation=_operation, size=_size))


@pytest.mark.parametrize(("operation", "size", "technique"), COPIED)
def test_advice_on_copies_is_for_their_kind(
    told: Told, operation: str, size: int, technique: str
) -> None:
    assert _techniques(told, f"{operation} {size}", "transfer") == [technique]
