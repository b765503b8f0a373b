"""Captures of a program that starts: it captures CUDA graphs, initializes CUDA and loads code."""

from __future__ import annotations

import pytest
from conftest import Tiny

from perfpipe.analysis.report.opening import steps
from perfpipe.analysis.report.scope import Scope

MS = 1_000_000


def _program(*calls: tuple[str, float, float, int], kernels: int = 4, apart: int = 1000) -> Tiny:
    """Make kernels of 1 ms, `apart` ms from one to the next, and calls: name, start and end, ms, thread."""
    db = Tiny()
    for n in range(kernels):
        at = apart * n * MS
        db.add(
            "launches",
            {"pid": 1, "tid": 1, "device": 0, "stream": 7, "kind": "kernel", "name": f"k{n}",
             "correlation_id": n, "call_id": n, "api_name": "cudaLaunchKernel",
             "api_start_ns": at - 9000, "api_end_ns": at - 4000, "start_ns": at, "end_ns": at + MS},
        )  # fmt: skip
    for name, start, end, tid in calls:
        db.add(
            "nsys_api_calls",
            {
                "pid": 1,
                "tid": tid,
                "name": name,
                "start_ns": round(start * MS),
                "end_ns": round(end * MS),
            },
        )
    return db


def _causes(db: Tiny) -> dict[str, float]:
    rows = db.rows("SELECT category, time_ns FROM gpu_time_budget WHERE time_ns > 50 * 1e6")
    return dict(rows)


def _capture(begin: int, end: int, tid: int = 1) -> list[tuple[str, float, float, int]]:
    return [
        ("cudaStreamBeginCapture", begin, begin + 1, tid),
        ("cudaLaunchKernel", begin + 2, begin + 3, tid),
        ("cudaStreamEndCapture_v10000", end - 1, end, tid),
        ("cudaGraphInstantiateWithFlags", end, end + 50, tid),
    ]


@pytest.mark.parametrize(
    ("tid", "begin", "end", "called_at", "cause"),
    [
        (1, 100, 600, 300, "building"),
        (1, 100, 500, 300, "host"),  # less than half of the interval
        (2, 100, 600, 50, "building"),
        (2, 100, 500, 50, "host"),
        (2, 100, 600, 300, "host"),  # the capture does not hold up the launching thread
    ],
)
def test_idle_time_while_graphs_are_captured_is_building(
    tid: int, begin: int, end: int, called_at: int, cause: str
) -> None:
    """The launching thread, which may be another one than that of the capture, calls CUDA once."""
    query = ("cudaEventQuery", called_at, called_at + 1, 1)
    db = _program(*_capture(begin, end, tid), query, kernels=2)
    assert [*_causes(db)] == [cause]


def test_the_advice_on_captures_is_about_graphs() -> None:
    db = _program(*_capture(100, 600))
    advice = [what for (what,) in db.rows("SELECT technique FROM timeline_findings")]
    assert "capture_once" in advice
    assert "build_once" not in advice


def test_a_cold_start_may_be_the_capture_of_a_graph() -> None:
    found = _program(*_capture(100, 600), kernels=2).rows("SELECT causes FROM cold_start_findings")
    assert found == [("graph capture 550 ms",)]


_NAMES = ("cudaMalloc", "cudaFree", "cuModuleLoadData")


def _cold(allocate: str = _NAMES[0], free: str = _NAMES[1], load: str = _NAMES[2]) -> Tiny:
    return _program((allocate, -20, -10, 1), (free, 10, 900, 1), (load, 950, 990, 1), kernels=2)


@pytest.mark.parametrize(
    "names", [_NAMES, ("hipMalloc", "hipInit", "hipModuleLoadData")], ids=["CUDA", "HIP"]
)
def test_a_capture_of_a_cold_start_says_so(names: tuple[str, str, str]) -> None:
    """The second call initializes a library after the first kernel; then a module is loaded."""
    db = _cold(*names)
    found = db.rows("SELECT cold_ns, window_ns, causes FROM cold_start_findings")
    assert found == [(930 * MS, 1001 * MS, "initialization 890 ms, module loading 40 ms")]
    assert db.rows("FROM timeline_findings") == []
    advice = db.rows("SELECT technique FROM recommendations ORDER BY rank LIMIT 1")
    assert advice == [("capture_warm",)]


def test_the_first_screen_of_a_cold_start_is_not_about_the_host() -> None:
    db = _cold()
    db.session.use(*steps.VIEWS)
    part = steps.steps_of(Scope(db.con, ("r",), {"nsys": 1}))
    assert part is not None
    assert part.verdict.text == (
        "The capture holds only start-up or a cold first iteration, not a typical step: start-up "
        "takes 930 ms of 1 s (initialization 890 ms, module loading 40 ms)"
    )


def test_a_process_that_ran_before_the_capture_does_not_start() -> None:
    db = _cold()
    db.add(
        "nsys_diagnostics",
        {"pid": 1, "timestamp_ns": -5000 * MS, "text": "CUDA injection initialized successfully."},
    )
    assert db.rows("FROM cold_start_findings") == []


@pytest.mark.parametrize(("apart", "ends"), [(1000, 400), (100, 90)])
def test_little_start_up_is_no_cold_start(apart: int, ends: int) -> None:
    """Less than half of the window, and less than a tenth of a second."""
    db = _program(("cudaFree", 10, ends, 1), kernels=2, apart=apart)
    assert db.rows("FROM cold_start_findings") == []
