"""What idle time is named after, and the advice that follows."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Tiny

HTOD = "[CUDA memcpy Host-to-Device]"
#: A kernel that cuBLAS chooses when it is called.
GEMM = "nvjet_tst_128x256_64x6_2x1_2cta_v_bz_TNT"
STEP = 1_000_000


def _loop(db: Tiny, before: str = GEMM, **more: Any) -> None:
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


def _copies(db: Tiny, size: int, operation: str = HTOD, dur_ns: int = 100_000) -> None:
    """Say how large the copies of the loop are."""
    for n in range(12):
        db.add(
            "nsys_memory_ops",
            {"operation": operation, "pid": 1, "correlation_id": n, "device": 0, "bytes": size,
             "src_kind": "Pageable", "dst_kind": "Device", "start_ns": STEP * n,
             "end_ns": STEP * n + dur_ns, "dur_ns": dur_ns},
        )  # fmt: skip


def _span(db: Tiny, table: str, name: str, tid: int = 1, **more: Any) -> None:
    """Add a range or call that is open during most of the idle time of every step."""
    for n in range(12):
        at = STEP * n + 150_000
        row = {"pid": 1, "tid": tid, "name": name, "start_ns": at, "end_ns": at + 700_000}
        ids = {"range_id": n, "calls": 0} if table == "nsys_nvtx_ranges" else {}
        db.add(table, row | ids | more)


def _named(db: Tiny) -> list[tuple[Any, ...]]:
    return db.rows("SELECT cause, kind, name, count FROM idle_causes ORDER BY rank")


@pytest.mark.parametrize(
    ("table", "name", "tid", "kind"),
    [
        ("nsys_nvtx_ranges", "dataloader", 1, "range"),
        ("nsys_osrt", "read", 1, "OS call"),
        ("nsys_nvtx_ranges", "prefetch", 2, "range of another thread"),
        ("nsys_osrt", "fread", 2, "OS call of another thread"),
    ],
)
def test_input_data_is_advised_where_something_points_to_it(
    table: str, name: str, tid: int, kind: str
) -> None:
    db = Tiny()
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
    assert _named(db) == [("host", kind, name, 11)]
    first = "SELECT technique, idle_in FROM timeline_findings WHERE rank = 1"
    ((technique, idle_in),) = db.rows(first)
    assert technique == "data_loading"
    assert name in idle_in and idle_in.startswith("100 %")


def test_a_thread_that_waits_for_work_explains_nothing() -> None:
    db = Tiny()
    _loop(db)
    _span(db, "nsys_osrt", "poll", tid=2)
    assert _named(db) == [("launch_gap", "next operation", GEMM, 11)]


def test_a_thread_that_is_in_a_call_all_the_time_explains_nothing() -> None:
    """It reads from a pipe that nobody writes to, while the GPU works as well."""
    db = Tiny()
    _loop(db)
    call = {"pid": 1, "tid": 2, "name": "read", "start_ns": -STEP, "end_ns": 13 * STEP}
    db.add("nsys_osrt", call)
    assert _named(db) == [("launch_gap", "next operation", GEMM, 11)]


def test_the_same_kernel_time_and_again_is_slow_to_launch() -> None:
    db = Tiny()
    _loop(db)
    found = db.rows("SELECT bound, technique FROM timeline_findings ORDER BY rank")
    assert found[:2] == [("launch_overhead", "cuda_graphs"), ("launch_overhead", "static_shapes")]


@pytest.mark.parametrize(
    ("kernel", "technique"),
    [
        ("triton_poi_fused_add_relu_0", "graph_of_compiled"),
        ("loop_add_fusion", "graph_of_compiled"),
        (GEMM, "cuda_graphs"),
    ],
)
def test_a_compiled_step_is_not_told_to_be_compiled(kernel: str, technique: str) -> None:
    db = Tiny()
    _loop(db, kernel)
    eager = "void at::native::elementwise_kernel<128, 2>(int)"
    names = [(kernel, kernel), ("elementwise_kernel", eager)]
    db.add("nsys_kernels", *({"name": name, "demangled": full} for name, full in names))
    assert (
        db.rows("SELECT technique FROM timeline_findings WHERE bound = 'launch_overhead'")[0][0]
        == technique
    )


@pytest.mark.parametrize("kernel", ["mine", "_kernel_agent"])
def test_a_kernel_of_the_program_itself_is_launched_at_once(kernel: str) -> None:
    """What takes long before it is not its preparation: a loop over results, perhaps."""
    db = Tiny()
    full = {"_kernel_agent": "void thrust::cuda_cub::core::_kernel_agent<int>(int)"}
    _loop(db, kernel, **({"demangled": full[kernel]} if kernel in full else {}))
    assert _named(db) == [("host", "next operation", kernel, 11)]
    techniques = [name for (name,) in db.rows("SELECT technique FROM timeline_findings")]
    assert techniques == ["host_alone"]


@pytest.mark.parametrize("what", ["copy", "range", "call", "wait"])
def test_a_host_that_does_something_else_is_not_slow_to_launch(what: str) -> None:
    db = Tiny()
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
    techniques = [name for (name,) in db.rows("SELECT technique FROM timeline_findings")]
    assert techniques[0] == ("data_loading" if what == "copy" else "host_alone")
    assert "static_shapes" not in techniques
    (cause,) = {row[0] for row in _named(db)}
    assert cause == "host"


def test_small_copies_that_the_host_waits_for() -> None:
    db = Tiny()
    _loop(db, "[CUDA memcpy Device-to-Host]")
    for n in range(12):
        at = STEP * n
        waits = n % 2
        db.add("nsys_memory_ops", {"pid": 1, "device": 0, "correlation_id": n, "start_ns": at,
               "operation": "[CUDA memcpy Device-to-Host]", "bytes": 4, "src_kind": "Device",
               "dst_kind": "Pinned"})  # fmt: skip
        if waits:
            db.add("nsys_api_calls", {"pid": 1, "tid": 1, "name": "cudaStreamSynchronize",
                                      "start_ns": at, "end_ns": at + 200_000})  # fmt: skip
    assert db.rows("SELECT copies, per_step, calls_pct, max_bytes FROM small_readbacks") == [
        (6, None, 50, 4)
    ]
    bounds = [bound for (bound,) in db.rows("SELECT bound FROM timeline_findings")]
    assert "readback" in bounds


@pytest.mark.parametrize(("size", "technique"), [(200_704, "data_loading"), (488, "host_alone")])
def test_a_host_that_waits_for_data_to_copy_is_loading_it(size: int, technique: str) -> None:
    """A loader's queue is waited for in sem_clockwait; sizes and flags are copied as well."""
    db = Tiny()
    _loop(db, HTOD)
    _copies(db, size)
    _span(db, "nsys_osrt", "sem_clockwait")
    found = db.rows("SELECT technique FROM timeline_findings WHERE bound = 'host' ORDER BY rank")
    assert found[0] == (technique,)


@pytest.mark.parametrize(
    ("operation", "size", "technique"),
    [
        (HTOD, 1 << 20, "pinned_prefetch"),
        (HTOD, 8, "fewer_small_copies"),
        ("[CUDA memcpy Device-to-Device]", 1 << 20, "fewer_device_copies"),
        ("[CUDA memset]", 1 << 20, "fewer_clears"),
    ],
)
def test_advice_on_copies_is_for_their_kind(operation: str, size: int, technique: str) -> None:
    db = Tiny()
    _loop(db, operation)
    _copies(db, size, operation)
    found = db.rows("SELECT technique FROM timeline_findings WHERE bound = 'transfer'")
    assert found == [(technique,)]
