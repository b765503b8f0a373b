"""Idle time that the launches do not cause: dependencies, kernels built anew, requests, host loops."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from conftest import Opened, Row, Tiny

from perfpipe.pipelines.trying.choosing import advice_of
from perfpipe.store import Store

HTOD = "[CUDA memcpy Host-to-Device]"
DTOH = "[CUDA memcpy Device-to-Host]"
STEP = 10_000_000

#: Captures of programs that were written for this, on an H200, and the largest part of their steps.
CAPTURES = {
    "stream_wait": ("device_wait", 93, "earlier_dependencies"),
    "build_cupy": ("building", 41, "build_once"),
    "gpt2_generate": ("building", 77, "build_once"),
    "serve": ("no_work", 61, "cuda_graphs"),
}


@pytest.mark.parametrize("name", CAPTURES)
def test_what_a_step_waits_for(name: str, opened: Opened) -> None:
    category, share, technique = CAPTURES[name]
    with opened(f"real/{name}.sqlite") as con:
        ((found,),) = con.execute(
            f"SELECT share_pct FROM gpu_time_budget WHERE category = '{category}'"
        ).fetchall()
        first = con.execute(
            "SELECT technique FROM recommendations ORDER BY rank LIMIT 1"
        ).fetchall()
    assert round(found) == share
    assert first == [(technique,)]


def test_calls_that_order_the_work_are_named(opened: Opened) -> None:
    with opened("real/stream_wait.sqlite") as con:
        rows = con.execute(
            "SELECT kind, name FROM idle_causes WHERE cause = 'device_wait' ORDER BY rank"
        ).fetchall()
    assert rows[0] == ("ordering call", "cudaLaunchHostFunc and cudaStreamWaitEvent")


def test_a_server_without_requests_is_not_at_fault(texts: Callable[..., Path]) -> None:
    opening = json.loads((texts("real/serve.sqlite") / "report.json").read_text())["opening"]
    said = opening["verdict"]["text"]
    assert "no request is there for 61 % of the time" in said
    assert "without this wait, a step takes 17.9 ms" in said
    assert all("input data" not in action["what"] for action in opening["actions"])


def _steps(db: Tiny, kind: str = "kernel", name: str = "k", **more: object) -> None:
    """Add twenty steps: one operation 8 ms after the call that launches it, or at once."""
    late = int(str(more.pop("late", 0)))
    for number in range(20):
        at = STEP * number
        row: Row = {
            "kind": kind, "name": name, "device": 0, "pid": 1, "tid": 1, "stream": 7,
            "call_id": number, "correlation_id": number, "start_ns": at, "end_ns": at + 1_000_000,
            "api_name": "cudaLaunchKernel", "api_start_ns": at - late - 9000,
            "api_end_ns": at - late - 4000, **more,
        }  # fmt: skip
        db.add("launches", row)


def _timeline() -> Tiny:
    db = Tiny()
    db.add("reports", {"report_id": "r", "kind": "nsys", "gpu": "NVIDIA H200", "sm_count": 132})
    return db


def _shares(db: Tiny) -> dict[str, float]:
    rows = db.rows("SELECT category, share_pct FROM gpu_time_budget WHERE time_ns > 0")
    return dict(rows)


@pytest.mark.parametrize(("late", "category"), [(8_000_000, "device_wait"), (100_000, "queued")])
def test_an_operation_that_starts_late_waits_on_the_device(late: int, category: str) -> None:
    """Launched 8 ms before it starts, it is not late because of its launch."""
    db = _timeline()
    _steps(db, late=late)
    shares = _shares(db)
    assert shares[category] == pytest.approx(100 * (late + 4000) * 19 / (19 * STEP + 1e6), abs=0.1)
    assert {"device_wait", "queued"} & shares.keys() == {category}


#: OS calls of the launching thread and of another one, whether the process forked, and the next
#: operation, with the category of the idle time.
WAITS = [
    ("epoll_wait", None, False, "memcpy", "no_work"),
    ("accept4", None, False, "memcpy", "no_work"),
    ("select", None, False, "kernel", "no_work"),
    ("poll", None, False, "kernel", "no_work"),
    ("poll", None, False, "memcpy", "host"),
    ("poll", None, True, "kernel", "host"),
    ("sem_wait", "epoll_wait", False, "memcpy", "no_work"),
    ("pthread_cond_timedwait", "epoll_wait", True, "memcpy", "no_work"),
    ("sem_wait", "poll", False, "memcpy", "no_work"),
    ("sem_clockwait", "poll", False, "memcpy", "host"),
    ("sem_wait", "poll", True, "memcpy", "host"),
    ("sem_wait", None, False, "memcpy", "host"),
    ("nanosleep", None, False, "memcpy", "host"),
]


@pytest.mark.parametrize(("own", "other", "forks", "kind", "category"), WAITS)
def test_who_waits_for_requests(
    own: str, other: str | None, forks: bool, kind: str, category: str
) -> None:
    db = _timeline()
    _steps(db, kind, HTOD if kind == "memcpy" else "k")
    for number in range(1, 20):
        end = STEP * number - 500_000
        spans = [(1, own, end)] + ([(2, other, end - 200_000)] if other else [])
        db.add("nsys_osrt", *({"pid": 1, "tid": tid, "name": name, "start_ns": end - 8_000_000,
                               "end_ns": until} for tid, name, until in spans))  # fmt: skip
    if forks:
        db.add("nsys_osrt", {"pid": 1, "tid": 1, "name": "fork", "start_ns": -500, "end_ns": -1})
    shares = _shares(db)
    assert max(shares, key=lambda name: shares[name]) == category
    assert {"no_work", "host"} & shares.keys() >= {category}


def test_a_thread_that_polls_all_the_time_brings_no_requests() -> None:
    """Its waits end at any time: seldom when the launching thread goes on."""
    db = _timeline()
    _steps(db, "memcpy", HTOD)
    for number in range(1, 20):
        end = STEP * number - 500_000
        db.add("nsys_osrt", {"pid": 1, "tid": 1, "name": "sem_wait", "start_ns": end - 8_000_000,
                             "end_ns": end})  # fmt: skip
    for at in range(0, 20 * STEP, 97_000_000):
        db.add("nsys_osrt", {"pid": 1, "tid": 2, "name": "epoll_wait", "start_ns": at,
                             "end_ns": at + 97_000_000})  # fmt: skip
    assert _shares(db).get("no_work", 0) < 10


#: Captures whose loop on the host reads values back, with its kind.
LOOPS = {"scipy_fit": "exchange", "jax_while": "xla", "ode_solver": "iterations"}


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_that_the_host_decides_is_no_cuda_graph(name: str, opened: Opened) -> None:
    with opened(f"real/{name}.sqlite") as con:
        kinds = con.execute("SELECT kind FROM loop_findings").fetchall()
        advice = con.execute("SELECT technique FROM recommendations ORDER BY rank").fetchall()
    assert kinds == [(LOOPS[name],)]
    techniques = [technique for (technique,) in advice]
    assert not {"cuda_graphs", "graph_of_compiled"} & set(techniques)
    small = ["on_the_cpu"] if name == "scipy_fit" else []
    assert techniques[: len(small) + 1] == [*small, "vectorized_problems"]
    # Nobody can read the conditions of XLA's loops less often.
    assert name != "jax_while" or "fewer_readbacks" not in techniques


@pytest.mark.parametrize("name", ["gpt2_generate", "llama_train", "jax_train_autotuned", "serve"])
def test_training_and_generation_are_no_such_loops(name: str, opened: Opened) -> None:
    with opened(f"real/{name}.sqlite") as con:
        assert con.execute("SELECT kind FROM loop_findings").fetchall() == []


@pytest.mark.parametrize(("idle", "found"), [(5_000_000, True), (20_000, False)])
def test_readbacks_after_which_the_gpu_does_not_idle_are_no_finding(idle: int, found: bool) -> None:
    """Each step is a kernel and a copy of 4 bytes; the next kernel follows at once, or late."""
    db = _timeline()
    for number in range(24):
        step, copies = divmod(number, 2)
        end = STEP * step + STEP - idle
        start, end = (end, end + 2000) if copies else (STEP * step, end)
        call = end - 5000 if copies else start - 9000
        db.add("launches", {
            "device": 0, "pid": 1, "tid": 1, "stream": 7, "call_id": number,
            "correlation_id": number, "start_ns": start, "end_ns": end,
            "kind": "memcpy" if copies else "kernel", "name": DTOH if copies else "k",
            "api_name": "cudaMemcpyAsync" if copies else "cudaLaunchKernel",
            "api_start_ns": call, "api_end_ns": end if copies else call + 4000,
        })  # fmt: skip
        if copies:
            db.add("nsys_memory_ops", {
                "device": 0, "pid": 1, "correlation_id": number, "start_ns": start, "end_ns": end,
                "operation": DTOH, "bytes": 4, "src_kind": "Device", "dst_kind": "Pageable",
                "dur_ns": 2000,
            })  # fmt: skip
            blocking = {"pid": 1, "tid": 1, "name": "cudaMemcpyAsync", "api": "runtime"}
            db.add("nsys_api_calls", {**blocking, "start_ns": call, "end_ns": end})
    ((copies,),) = db.rows("SELECT copies FROM small_readbacks")
    assert copies == 12
    rows = db.rows("SELECT bound FROM timeline_findings")
    assert (("readback",) in rows) == found


@pytest.mark.parametrize(("copies", "first"), [(5, "readback"), (1, "launch_overhead")])
def test_readbacks_within_a_step_come_before_its_graph(copies: int, first: str) -> None:
    """A graph cannot contain .item() in the middle of a step; at its end it may stay."""
    db = _timeline()
    number = 0
    for step in range(12):
        db.add("nsys_nvtx_ranges", {
            "pid": 1, "tid": 1, "name": f"step {step}", "range_id": step, "style": "PushPop",
            "first_call": number, "calls": 40, "start_ns": STEP * step - 10_000,
            "end_ns": STEP * step + 9_900_000,
        })  # fmt: skip
        for part in range(40):
            at = STEP * step + 200_000 * part
            reads = part % 8 == 7 and part // 8 >= 5 - copies
            row: Row = {"device": 0, "pid": 1, "tid": 1, "stream": 7, "call_id": number,
                        "correlation_id": number, "start_ns": at, "end_ns": at + 2000,
                        "api_start_ns": at - 9000}  # fmt: skip
            kernel = {"kind": "kernel", "name": f"k{part}", "api_name": "cudaLaunchKernel",
                      "api_end_ns": at - 3000}  # fmt: skip
            copy = {"kind": "memcpy", "name": DTOH, "api_name": "cudaMemcpyAsync",
                    "api_end_ns": at + 5000}  # fmt: skip
            db.add("launches", {**row, **(copy if reads else kernel)})
            if reads:
                db.add("nsys_memory_ops", {
                    "device": 0, "pid": 1, "correlation_id": number, "start_ns": at,
                    "end_ns": at + 2000, "operation": DTOH, "bytes": 4, "src_kind": "Device",
                    "dst_kind": "Pageable", "dur_ns": 2000,
                })  # fmt: skip
            number += 1
    rows = db.rows("SELECT bound, readbacks_per_step FROM findings ORDER BY rank")
    assert rows[0][0] == first
    assert ("readback", copies) in rows or copies == 1


@pytest.mark.parametrize(
    ("kind", "technique"), [("Pageable", "pinned_prefetch"), ("Pinned", "overlapped_copies")]
)
def test_pinned_memory_is_not_recommended_for_pinned_copies(kind: str, technique: str) -> None:
    db = _timeline()
    _steps(db, "memcpy", HTOD)
    for number in range(20):
        at = STEP * number
        db.add("nsys_memory_ops", {
            "device": 0, "pid": 1, "correlation_id": number, "start_ns": at, "end_ns": at + 1_000_000,
            "operation": HTOD, "bytes": 1 << 24, "src_kind": kind, "dst_kind": "Device",
            "dur_ns": 1_000_000,
        })  # fmt: skip
    sql = "SELECT technique FROM timeline_findings WHERE bound = 'transfer'"
    assert db.rows(sql) == [(technique,)]


def test_nothing_is_tried_where_the_program_waits_for_requests(
    captures: Store, ingested: Callable[[str], str]
) -> None:
    """`perfpipe try` reads this from the timeline."""
    names = ("serve", "gpt2_generate")
    found = {name: advice_of(captures, [ingested(f"real/{name}.sqlite")]) for name in names}
    assert {name: waits for name, (_, waits) in found.items()} == {
        "serve": True,
        "gpt2_generate": False,
    }
    assert "build_once" in found["gpt2_generate"][0]


def _loops(counts: Sequence[int]) -> Tiny:
    """Return steps with so many inner iterations: a kernel, and a readback that the host awaits."""
    db = _timeline()
    call = 0

    def launch(at: int, **more: object) -> None:
        nonlocal call
        db.add("launches", {
            "device": 0, "pid": 1, "tid": 1, "stream": 7, "call_id": call, "correlation_id": call,
            "start_ns": at, "api_start_ns": at - 9000, **more,
        })  # fmt: skip
        call += 1

    def iteration(loop: int, number: int, start: int, end: int) -> None:
        db.add("launch_steps", {
            "pid": 1, "device": 0, "loop": loop, "run": 1, "step": number, "repeats": 1,
            "host_start_ns": start - 9000, "host_end_ns": end, "start_ns": start, "end_ns": end,
            "launches": 1, "match": 1.0, "boundary": "host",
        })  # fmt: skip

    inner = 0
    for step, count in enumerate(counts):
        begun = STEP * step
        for number in range(count):
            at = begun + 1_000_000 * number
            launch(at, kind="kernel", name="k", end_ns=at + 100_000, api_name="cudaLaunchKernel",
                   api_end_ns=at - 3000)  # fmt: skip
            back = at + 110_000
            db.add("nsys_memory_ops", {
                "device": 0, "pid": 1, "correlation_id": call, "start_ns": back, "bytes": 4,
                "end_ns": back + 2000, "operation": DTOH, "src_kind": "Device",
                "dst_kind": "Pageable", "dur_ns": 2000,
            })  # fmt: skip
            launch(back, kind="memcpy", name=DTOH, end_ns=back + 2000, api_name="cudaMemcpyAsync",
                   api_end_ns=back + 5000)  # fmt: skip
            inner += 1
            iteration(2, inner, at, back + 2000)
        iteration(1, step + 1, begun, begun + STEP)
    for loop, role, evidence, times in (
        (1, "step", "optimizer, readback", len(counts)), (2, "inner", "readback", inner),
    ):  # fmt: skip
        db.add("launch_loops", {
            "pid": 1, "loop": loop, "parent": 1 if loop > 1 else None, "level": loop, "role": role,
            "source": "symbols", "evidence": evidence, "iterations": times, "launches": 1.0,
            "variable": 1, "fewest": min(counts), "usual": 3.0, "most": max(counts), "share": 0.99,
        })  # fmt: skip
    return db


@pytest.mark.parametrize(
    ("counts", "found"),
    [
        # The first and last step of a capture may be cut.
        ([2, *[3] * 37, 2], []),
        ([3, 5, 4] * 13, [("iterations", 3, 5)]),
    ],
)
def test_the_data_decides_a_loop_whose_number_varies(
    counts: Sequence[int], found: Sequence[tuple[str, int, int]]
) -> None:
    """A loop over a fixed number of items, such as the parts of a test set, reads back as well."""
    db = _loops(counts)
    assert db.rows("SELECT role, variable FROM loops ORDER BY loop") == [
        ("step", True), ("inner", True),
    ]  # fmt: skip
    assert db.rows("SELECT kind, fewest, most FROM _host_loops") == found
