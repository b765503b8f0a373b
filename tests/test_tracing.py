"""How much tracing lengthens a step, against timelines and wall times that are known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, Tiny

from perfpipe.analysis.report import tracing
from perfpipe.analysis.report.scope import Scope
from perfpipe.store import Store

STEP = 1_000_000


def _traced(
    db: Tiny,
    lengths_ns: list[int],
    report: str = "t",
    device: int = 0,
    work_ns: int = 100_000,
) -> None:
    """Add a timeline of steps: `work_ns` of work each, then the host is busy until the next."""
    db.add("reports", {"report_id": report, "kind": "nsys", "run_id": "x"})
    at = 0
    for n, length in enumerate(lengths_ns):
        db.add(
            "launches",
            {"report_id": report, "kind": "kernel", "name": "k", "device": device, "pid": 1, "tid": 1,
             "call_id": n, "start_ns": at + 100, "end_ns": at + 100 + work_ns, "api_start_ns": at,
             "api_end_ns": at + 50},
        )  # fmt: skip
        db.add(
            "nsys_nvtx_ranges",
            {"report_id": report, "pid": 1, "tid": 1, "range_id": n, "name": f"step {n}",
             "style": "PushPop", "start_ns": at, "end_ns": at + length, "first_call": n, "calls": 1},
        )  # fmt: skip
        at += length


def _run(db: Tiny, **task: Any) -> None:
    db.add(
        "run_tasks",
        {"run_id": "x", "task_index": 0, "label": "a", "short_label": "a", "reports": ["t"]} | task,
    )


NAMES = "lengthened_pct, basis, plain_step_ms, traced_step_ms, traced_wall_s, why"


def _row(db: Tiny) -> dict[str, Any]:
    (row,) = db.rows(f"SELECT {NAMES} FROM run_tracing")
    return dict(zip(NAMES.split(", "), row, strict=True))


def _told(db: Tiny) -> list[str]:
    db.session.use(*tracing.VIEWS)
    reports = [report for (report,) in db.rows("SELECT report_id FROM reports WHERE kind = 'nsys'")]
    return [fact.text for fact in tracing.tracing_of(Scope(db.con, tuple(reports), {"nsys": 1}))]


def test_a_step_that_tracing_lengthens() -> None:
    """Warm-up and the last step, which has no successor, leave the median as it is."""
    db = Tiny()
    _traced(db, [9 * STEP, *[1_390_000] * 12])
    _run(db, median_ms=1.0, timing_method="events")
    found = _row(db)
    assert found["lengthened_pct"] == pytest.approx(39)
    assert (found["basis"], found["traced_step_ms"], found["why"]) == ("step", 1.39, "")
    assert _told(db) == [
        "Tracing lengthened a step by 39 % (1 ms untraced, 1.39 ms traced): shares and bounds "
        "refer to the untraced step"
    ]


@pytest.mark.parametrize(
    ("plain_ms", "told"), [(1.39 / 1.0499, False), (1.39 / 1.0501, True), (2.0, False)]
)
def test_no_more_than_the_threshold_is_not_told(plain_ms: float, told: bool) -> None:
    db = Tiny()
    _traced(db, [1_390_000] * 12)
    _run(db, median_ms=plain_ms)
    assert bool(_told(db)) is told


def test_a_full_queue_hides_the_host_so_only_the_gpu_is_compared() -> None:
    db = Tiny()
    _traced(db, [STEP] * 12)
    _run(db, median_ms=0.08, timing_method="queued")
    found = _row(db)
    assert found["basis"] == "GPU time of a step"
    # 100 us of work; 900 us of a step are the host's.
    assert found["traced_step_ms"] == pytest.approx(0.1)
    assert found["lengthened_pct"] == pytest.approx(25)
    assert "the GPU time of a step by 25 %" in _told(db)[0]


@pytest.mark.parametrize("plain_ms", [0.3, 3.1])
def test_times_of_something_else_are_not_compared(plain_ms: float) -> None:
    """A program may report the time of an epoch, or of a layer."""
    db = Tiny()
    _traced(db, [STEP] * 12)
    _run(db, median_ms=plain_ms, wall_s=10.0)
    found = _row(db)
    assert (found["lengthened_pct"], found["basis"]) == (None, None)
    assert found["why"] == "the time that the program reports is not a step time"
    assert _told(db) == []


@pytest.mark.parametrize(("plain_ms", "ahead"), [(0.7, True), (0.75, False), (0.95, False)])
def test_a_step_is_not_shorter_than_its_work(plain_ms: float, ahead: bool) -> None:
    """A host that never waits for the GPU issues steps faster than the GPU executes them."""
    db = Tiny()
    _traced(db, [STEP] * 12, work_ns=800_000)
    _run(db, median_ms=plain_ms, timing_method="observed")
    found = _row(db)
    assert (found["basis"] is None) is ahead
    assert ("the host ran ahead of the GPU" in found["why"]) is ahead
    _run(db, median_ms=plain_ms, timing_method="events", run_id="printed")
    assert db.rows("SELECT basis FROM run_tracing WHERE run_id = 'printed'") == [("step",)]


def _lasting(db: Tiny, ms: int) -> None:
    db.add("nsys_environment", {"report_id": "t", "source": "capture", "name": "RUN_DURATION_MS",
                                "value": str(ms)})  # fmt: skip


def test_without_times_the_wall_time_says_what_it_can() -> None:
    db = Tiny()
    _traced(db, [STEP] * 12)
    _lasting(db, 12_000)
    _run(db, wall_s=10.0, profiler_s='{"nsys": 15.0, "ncu": 99.0}')
    found = _row(db)
    assert found["lengthened_pct"] == pytest.approx(20)
    assert (found["basis"], found["traced_wall_s"]) == ("wall time", 12.0)
    assert _told(db) == [
        "The program took 12 s under nsys, 10 s without (+20 %): idle shares may be overstated; the "
        "effect on a single step is unknown (the program reports no iteration time; wall time includes "
        "start-up)"
    ]


def test_a_part_of_the_program_is_not_all_of_it() -> None:
    """A capture range is shorter than the program; what nsys took in all still bounds it."""
    db = Tiny()
    _traced(db, [STEP] * 12)
    _lasting(db, 200)
    _run(db, wall_s=10.0, profiler_s='{"nsys": 15.0}')
    found = _row(db)
    assert (found["traced_wall_s"], found["lengthened_pct"]) == (None, pytest.approx(50))
    assert "writing the profiler report" in found["why"]


def test_an_older_record_says_nothing() -> None:
    db = Tiny()
    _traced(db, [STEP] * 12)
    _run(db, wall_s=10.0)
    assert _row(db)["basis"] is None
    assert _told(db) == []


def test_of_several_timelines_the_range_is_told() -> None:
    db = Tiny()
    for report, length, label in (("t", 1_200_000, "a"), ("u", 1_400_000, "b"), ("v", STEP, "c")):
        _traced(db, [length] * 12, report)
        index = ord(label) - ord("a")
        _run(db, median_ms=1.0, label=label, short_label=label, task_index=index, reports=[report])
    (text,) = _told(db)
    assert text.startswith(
        "Tracing lengthened a step by 20 to 40 % on 2 of 3 timelines, most for b (1 ms untraced, 1.4 ms"
    )


@pytest.mark.parametrize(
    ("name", "told"), [("transformer_step", True), ("ddp_step", True), ("gemm", False)]
)
def test_recorded_runs(name: str, told: bool, pages: Callable[..., Path]) -> None:
    """Eager steps of many small kernels take 30 to 50 % longer; kernels alone do not."""
    text = (pages(name) / "report.md").read_text()
    assert ("Tracing lengthened a step" in text) is told


def test_each_launch_has_its_wall_time(profilers: Path, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text("import time; time.sleep(0.1)")
    assert cli("run", "--collector", "all", "--", "python3", "w.py") == 0, cli.err
    (run,) = Store(tmp_path / "store").runs()
    (task,) = run.tasks
    assert set(task.profiler_s) == {"nsys", "ncu"}
    assert min(task.seconds[0], *task.profiler_s.values()) >= 0.1
    sql = "SELECT profiler, launch_wall_s, traced_wall_s FROM run_tracing"
    assert cli("query", sql, "--format", "csv") == 0
    # The capture that stands for its own lasted longer than the program.
    profiler, launch, traced = cli.out.splitlines()[1].split(",")
    assert profiler == "nsys"
    assert float(launch) == pytest.approx(task.profiler_s["nsys"])
    assert float(traced) == pytest.approx(0.438)


def test_shares_of_a_step_without_the_profiler() -> None:
    """The work stays the same in a step that is shorter without the profiler."""
    db = Tiny()
    _traced(db, [STEP] * 12, work_ns=400_000)
    _run(db, median_ms=0.8)
    ((traced, plain, growth, traced_busy, busy, work, idle),) = db.rows(
        "SELECT traced_ns, plain_ns, growth_pct, traced_busy_pct, busy_pct, work_scale, idle_scale "
        "FROM step_times"
    )
    assert (traced, plain) == (STEP, 0.8e6)
    assert growth == pytest.approx(100 * (STEP / 0.8e6 - 1))
    assert busy == pytest.approx(traced_busy * STEP / 0.8e6)
    assert work == pytest.approx(busy / traced_busy)
    assert idle == pytest.approx((100 - busy) / (100 - traced_busy))


@pytest.mark.parametrize("plain_ms", [None, 0.8])
def test_copies_are_not_busy_time(plain_ms: float | None) -> None:
    """A kernel takes 0.4 ms of a step of 1 ms, and a copy 0.2 ms, half of it beside the kernel."""
    db = Tiny()
    _traced(db, [STEP] * 12, work_ns=400_000)
    for number in range(12):
        start = number * STEP + 300_100
        db.add(
            "launches",
            {"report_id": "t", "kind": "memcpy", "name": "HtoD", "device": 0, "pid": 1, "tid": 1,
             "call_id": number, "start_ns": start, "end_ns": start + 200_000,
             "api_start_ns": number * STEP + 60, "api_end_ns": number * STEP + 70},
        )  # fmt: skip
    if plain_ms:
        _run(db, median_ms=plain_ms)
    ((traced, busy, copying),) = db.rows(
        "SELECT traced_busy_pct, busy_pct, copying_pct FROM step_times"
    )
    # The last step has no successor.
    assert traced == pytest.approx(100 * 0.4 * 12 / 11.5)
    assert busy == pytest.approx(traced / (plain_ms or 1))
    assert copying == pytest.approx(busy / 4)


@pytest.mark.parametrize(("plain_ms", "found"), [(None, True), (0.8, False)])
def test_idle_time_of_the_profiler_is_no_finding(plain_ms: float | None, found: bool) -> None:
    """The GPU works for 0.76 ms of a step, which takes 0.8 ms without the profiler."""
    db = Tiny()
    _traced(db, [STEP] * 12, work_ns=760_000)
    _run(db, median_ms=plain_ms)
    assert db.rows("SELECT bound FROM timeline_findings WHERE bound != 'compute'") != []
    assert bool(db.rows("FROM _plain_findings WHERE bound != 'compute'")) is found
