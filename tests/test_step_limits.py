"""What limits the time of a step whatever the kernels take, and how that is told."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Tiny

STEP = 1_000_000
HTOD = "[CUDA memcpy Host-to-Device]"
SGEMM = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x128x8_ffma_kernel__5x_cublas"
ADD = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>>(int)"


def _step(db: Tiny, number: int, names: list[str], dur_ns: int, every_ns: int) -> None:
    """Add a step of kernels that the host launches one after the other, for so long each."""
    for place, full in enumerate(names):
        call = STEP * number + place * every_ns
        row = {"device": 0, "stream": 7, "pid": 1, "start_ns": call + 6000, "end_ns": call + 6000 + dur_ns,
               "name": full.removeprefix("void ").partition("<")[0], "demangled": full}  # fmt: skip
        db.add("launches", {"kind": "kernel", "tid": 1, "call_id": 10 * number + place,
                            "correlation_id": 10 * number + place, "api_start_ns": call,
                            "api_end_ns": call + 5000, "api_name": "cudaLaunchKernel", **row})  # fmt: skip
        db.add("nsys_kernels", {**row, "dur_ns": dur_ns})


def _loop(dur_ns: int, every_ns: int, wait_ns: int = 0) -> Tiny:
    """Twelve steps of four FP32 kernels; the host may wait for the GPU at the end of each."""
    db = Tiny()
    db.add("reports", {"report_id": "r", "kind": "nsys", "gpu": "NVIDIA H200", "sm_count": 132})
    for number in range(12):
        _step(db, number, [SGEMM, ADD] * 2, dur_ns, every_ns)
        if wait_ns:
            at = STEP * (number + 1) - wait_ns
            db.add("nsys_api_calls", {"pid": 1, "tid": 1, "name": "cudaStreamSynchronize",
                                      "start_ns": at, "end_ns": at + wait_ns})  # fmt: skip
    return db


def test_faster_kernels_do_not_shorten_what_the_host_takes() -> None:
    """The GPU computes for 60 % of the time, and the host issues work for all of it."""
    db = _loop(150_000, 250_000)
    ((share, gain, floor),) = db.rows("SELECT share_pct, gain_pct, floor FROM precision_findings")
    assert share > 50
    assert (floor, gain < 5) == ("host", True)
    (first, *_) = db.rows("SELECT bound FROM recommendations ORDER BY rank")
    assert first == ("launch_overhead",)
    ((weight, share),) = db.rows("SELECT max(weight_pct), max(share_pct) FROM operator_findings")
    assert weight == pytest.approx(gain)
    assert weight < share


def test_a_host_that_waits_for_the_gpu_leaves_the_bound_as_it_is() -> None:
    """It issues a step in 8 % of the time and waits for the rest."""
    db = _loop(240_000, 20_000, wait_ns=900_000)
    ((share, gain, floor),) = db.rows("SELECT share_pct, gain_pct, floor FROM precision_findings")
    assert floor == "half_types"
    assert share / 2 < gain < share


def test_calls_behind_a_full_queue_are_not_the_hosts_time() -> None:
    """Each takes as long as a kernel, since the host may launch only so far ahead."""
    db = Tiny()
    for number in range(40):
        at = 50_000 * number
        db.add("launches", {"kind": "kernel", "name": "k", "demangled": "k", "device": 0, "stream": 7,
                            "pid": 1, "tid": 1, "call_id": number, "correlation_id": number,
                            "start_ns": at + 3_000_000, "end_ns": at + 3_050_000, "api_start_ns": at,
                            "api_end_ns": at + 48_000, "api_name": "cudaLaunchKernel"})  # fmt: skip
    ((least, most),) = db.rows("SELECT least_ns, most_ns FROM _host_work")
    assert least == 39 * 2000
    assert most == 39 * 50_000 + 48_000


def _input(db: Tiny, starts: str, steps: int = 12, wait_ns: int = 800_000) -> None:
    """Add steps that begin with a copy, for which the host waits; some start a process before."""
    for number in range(steps):
        at = STEP * number
        row = {"device": 0, "pid": 1, "start_ns": at, "end_ns": at + STEP - wait_ns,
               "correlation_id": number}  # fmt: skip
        db.add("launches", {"kind": "memcpy", "name": HTOD, "tid": 1, "call_id": number, "stream": 7,
                            "api_start_ns": at - 9000, "api_end_ns": at - 4000, **row})  # fmt: skip
        db.add("nsys_memory_ops", {**row, "operation": HTOD, "bytes": 1 << 20, "src_kind": "Pageable",
                                   "dst_kind": "Device", "dur_ns": STEP - wait_ns})  # fmt: skip
        db.add("nsys_osrt", {"pid": 1, "tid": 1, "name": "poll", "start_ns": at + 300_000,
                             "end_ns": at + 900_000})  # fmt: skip
        if starts:
            db.add("nsys_osrt", {"pid": 1, "tid": 1, "name": starts, "start_ns": at + 220_000,
                                 "end_ns": at + 260_000})  # fmt: skip


@pytest.mark.parametrize(
    ("starts", "technique"),
    [("", "data_loading"), ("posix_spawnp", "data_loading"), ("fork", "keep_workers")],
)
def test_workers_that_start_anew_are_kept_rather_than_made_more(
    starts: str, technique: str
) -> None:
    """A loader forks; a compiler that starts an assembler does not."""
    db = Tiny()
    db.add("reports", {"report_id": "r", "kind": "nsys", "gpu": "NVIDIA H200", "sm_count": 132})
    _input(db, starts)
    sql = "SELECT technique FROM timeline_findings WHERE bound = 'host' ORDER BY rank LIMIT 1"
    assert db.rows(sql) == [(technique,)]


def _overlap(db: Tiny, *, waits: bool) -> None:
    """Launch-bound steps, in which the host works for long, behind a wait for the GPU or not."""
    for number in range(12):
        at = 4 * STEP * number
        for place in range(20):
            call = at + place * 100_000
            db.add("launches", {"kind": "kernel", "name": "k", "demangled": "k", "device": 0, "stream": 7,
                                "pid": 1, "tid": 1, "call_id": 20 * number + place,
                                "correlation_id": 20 * number + place, "start_ns": call + 10_000,
                                "end_ns": call + 60_000, "api_start_ns": call, "api_end_ns": call + 5000,
                                "api_name": "cudaLaunchKernel"})  # fmt: skip
        db.add("nsys_osrt", {"pid": 1, "tid": 1, "name": "write", "start_ns": at + 2_000_000,
                             "end_ns": at + 3_900_000})  # fmt: skip
        if waits:
            db.add("nsys_api_calls", {"pid": 1, "tid": 1, "name": "cudaDeviceSynchronize",
                                      "start_ns": at + 1_910_000, "end_ns": at + 1_965_000})  # fmt: skip


@pytest.mark.parametrize("waits", [False, True])
def test_long_work_of_the_host_can_run_beside_the_gpu(waits: bool) -> None:
    """With one launch a step, it does so unless the host waits for the GPU first."""
    db = Tiny()
    db.add("reports", {"report_id": "r", "kind": "nsys", "gpu": "NVIDIA H200", "sm_count": 132})
    _overlap(db, waits=waits)
    parts: dict[str, Any] = dict(db.rows("SELECT category, share_pct FROM gpu_time_budget"))
    ((gain,),) = db.rows("SELECT gain_pct FROM timeline_findings WHERE technique = 'cuda_graphs'")
    # A wait for the GPU stays in a graph's place.
    synced = parts.get("sync", 0)
    assert (synced > 0) == waits
    behind = parts["host"] if waits else 0
    rest = 100 - parts["compute"] - behind
    assert gain == pytest.approx(min(rest, 100 - parts["host"]) - synced)
    assert parts["host"] > 30
