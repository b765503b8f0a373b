"""Comparisons with a baseline: what is matched and judged, and what a report says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
from conftest import Cli, Opened, Tiny

from perfpipe.analysis.gate.compare.comparison import Compared, pairs_of
from perfpipe.analysis.gate.compare.story import Comparison, compare
from perfpipe.analysis.gate.sides import (
    CAPTURE,
    ITERATION,
    KERNEL,
    PROFILED,
    STEP,
    VIEWS,
    Key,
    Measured,
    Side,
    side_of,
)
from perfpipe.analysis.session import Session
from perfpipe.runrecord import GpuState, OneGpu, RunRecord, Spread, TaskResult
from perfpipe.store import Store
from perfpipe.viewmodel import Table

BEFORE, AFTER = [1.0e6, 1.001e6, 0.999e6], [1.25e6, 1.251e6, 1.249e6]


def _began(order: str, side: str) -> tuple[str, ...]:
    return tuple(f"2026-11-22T10:{at:02}:00Z" for at, own in enumerate(order) if own == side)


def _side(
    side: str, times: dict[Key, list[float]], mhz: float = 1980, order: str = "ABBAAB"
) -> Side:
    """Return one side; the order says which runs came first."""
    measured = {
        key: Measured(own, own, [1] * len(own), [mhz] * len(own), [None] * len(own))
        for key, own in times.items()
    }
    return Side(measured, frozenset({"H200"}), (f"runs {side}",), _began(order, side), {"nsys": 1})


def _iteration(label: str) -> Key:
    return Key("", label, ITERATION)


def _kernel(name: str, profiler: str = "nsys", label: str = "") -> Key:
    return Key(profiler, label, KERNEL, name, "1, 1, 1", "32, 1, 1")


def _verdicts(pairs: Iterable[Compared]) -> dict[str, str | None]:
    return {pair.key.kernel or pair.key.label or pair.key.part: pair.verdict for pair in pairs}


def test_what_has_no_pair_or_another_gpu() -> None:
    before = _side("A", {_iteration("a"): BEFORE, _iteration("b"): BEFORE})
    after = _side("B", {_iteration("b"): BEFORE, _iteration("c"): BEFORE})
    assert _verdicts(pairs_of(before, after).steps) == {"a": "gone", "b": "same", "c": "new"}
    pairs = pairs_of(before, replace(after, gpus=frozenset({"A100"})))
    assert _verdicts(pairs.steps)["b"] == "not comparable"


def test_clocks_explain_times_of_iterations_and_of_kernels() -> None:
    keys = [_iteration(""), Key("nsys", "", STEP), _kernel("k"), _kernel("p", "ncu")]

    def verdicts(times: list[float], mhz: float) -> set[str | None]:
        before = _side("A", dict.fromkeys(keys, BEFORE))
        pairs = pairs_of(before, _side("B", dict.fromkeys(keys, times), mhz))
        return {pair.verdict for pair in (*pairs.steps, *pairs.kernels)}

    assert verdicts(AFTER, 1980) == {"regressed"}
    assert verdicts(AFTER, 1584) == {"not comparable"}, "a quarter slower clocks"
    assert verdicts(AFTER, 1900) == {"regressed"}, "that explains a part only"
    assert verdicts(BEFORE, 1200) == {"same"}


def test_the_memory_clock_explains_too() -> None:
    before, after = (_side(s, {_kernel("k"): t}) for s, t in (("A", BEFORE), ("B", AFTER)))
    before[_kernel("k")].memory_mhz[:] = [3201] * 3
    after[_kernel("k")].memory_mhz[:] = [2561] * 3
    (pair,) = pairs_of(before, after).kernels
    assert pair.verdict == "not comparable"
    assert pair.note == (
        "the clock, not the code: memory clock 3,201 MHz before, 2,561 MHz after; "
        "time x clock changed by +0.0 %"
    )


def _task(report: str, mhz: float) -> TaskResult:
    clocks = Spread(mhz, mhz, mhz)
    state = GpuState(9, (OneGpu(0, 9, clocks, Spread(3201, 3201, 3201)),))
    times = (16.5 * 1980 / mhz,)
    return TaskResult(0, "n=1", {"n": 1}, times_ms=times, reports=(report,), gpu_state=state)


def _profiled(tiny: Tiny, report: str, kind: str, mhz: float, scale: float) -> None:
    """Add a report of one kernel: that many cycles, at that clock."""
    duration = round(1_980_000 * scale * 1980 / mhz)
    tiny.add("reports", {"report_id": report, "kind": kind, "gpu": "NVIDIA H200"})
    shape = {f"{of}_{axis}": 1 for of in ("grid", "block") for axis in "xyz"}
    if kind == "nsys":
        one = {"report_id": report, "device": 0, "pid": 1, "stream": 7, "correlation_id": 1}
        span = {"start_ns": 0, "end_ns": duration}
        kernel = {"dur_ns": duration, "name": "k", "demangled": "k<int>"}
        tiny.add("nsys_kernels", {**one, **span, **kernel, **shape})
        tiny.add("launches", {**one, **span, "kind": "kernel", "name": "k", "demangled": "k<int>"})
    else:
        one = {"report_id": report, "launch_id": 0}
        name = {"kernel_name": "k", "kernel_demangled": "k<int>", "cc": "9.0"}
        tiny.add("ncu_launches", {**one, **name, "duration_ns": duration, **shape})
        clock = {"metric": "gpc__cycles_elapsed.avg.per_second", "value": mhz * 1e6}
        tiny.add("ncu_metrics", {**one, **clock})


@pytest.mark.parametrize("kind", ["nsys", "ncu"])
def test_clocks_of_runs_and_of_profiled_launches_reach_kernels(kind: str) -> None:
    tiny = Tiny()
    sides: dict[str, list[RunRecord]] = {"A": [], "B": []}
    for at, side in enumerate("ABBAAB"):
        mhz = 1980.0 if side == "A" else 1700.0
        _profiled(tiny, f"r{at}", kind, mhz, 1 + 0.0005 * at)
        started = f"2026-11-22T10:0{at}:00Z"
        reports, tasks = (f"r{at}",), (_task(f"r{at}", mhz if kind == "nsys" else 1980),)
        sides[side].append(RunRecord(f"run{at}", "w", "nsys", started, "done", reports, tasks))
    tiny.session.use(*VIEWS)
    before, after = (
        side_of(tiny.session.con, runs, [report for run in runs for report in run.reports])
        for runs in sides.values()
    )
    pairs = pairs_of(before, after)
    (kernel,) = pairs.kernels
    assert kernel.change is not None
    assert 100 * kernel.change.ratio == pytest.approx(16.5, abs=0.3)
    assert kernel.before.sm_mhz == [1980] * 3
    assert kernel.after.sm_mhz == [1700] * 3
    assert kernel.verdict == "not comparable"
    assert kernel.note is not None
    assert "not the code: SM clock 1,980 MHz before, 1,700 MHz after" in kernel.note


def _many(side: str, seed: int, kernels: int = 200) -> Side:
    random = np.random.default_rng(seed)
    times = {
        _kernel(f"k{at}"): list(1e6 * np.exp(0.03 * random.normal(size=5))) for at in range(kernels)
    }
    return _side(side, times, order="ABBAABBAAB")


def test_of_200_unchanged_kernels_none_is_called_regressed() -> None:
    found = [pairs_of(_many("A", 2 * seed), _many("B", 2 * seed + 1)) for seed in range(20)]
    regressed = [sum(p.verdict == "regressed" for p in pairs.kernels) for pairs in found]
    assert sum(count > 0 for count in regressed) <= 1
    lowest = [min(p.change.p or 1 for p in pairs.kernels if p.change) for pairs in found]
    assert sorted(lowest)[10] < 0.05, "each by itself would be"


def test_a_step_is_not_tested_with_the_kernels() -> None:
    """The primary endpoint keeps its own p-value, however many kernels there are."""
    before, after = _many("A", 1), _many("B", 2)
    step = Key("nsys", "", STEP)
    for side, times in ((before, BEFORE), (after, AFTER)):
        side.measured[step] = _side("A", {step: times})[step]
    pairs = pairs_of(before, after)
    (primary,) = pairs.steps
    assert primary.change is not None
    assert primary.q == primary.change.p
    assert primary.verdict == "regressed"
    p_values = [
        pair.change.p for pair in pairs.kernels if pair.change and pair.change.p is not None
    ]
    q_values = [pair.q for pair in pairs.kernels]
    assert q_values == pytest.approx(scipy.stats.false_discovery_control(p_values))


@pytest.mark.parametrize("order", ["ABBA", "ABBAABBAAB"])
def test_identical_readings_of_a_coarse_timer_are_no_regression(order: str) -> None:
    before, after = (
        replace(
            _side(side, {_kernel("k"): [reading] * (len(order) // 2)}, order=order),
            timers={"nsys": 32},
        )
        for side, reading in (("A", 1504.0), ("B", 1536.0))
    )
    pairs = pairs_of(before, after)
    assert pairs.timers["nsys"] == (32, "from the durations")
    (pair,) = pairs.kernels
    assert pair.verdict == "inconclusive"
    assert pair.note == "the timer's step of 32 ns is 2.1 % of the time"
    unknown = [replace(side, timers={}) for side in (before, after)]
    pairs = pairs_of(*unknown)
    assert pairs.timers["nsys"] == (32, "assumed")
    assert pairs.kernels[0].verdict == "inconclusive"


@pytest.mark.parametrize(
    ("order", "factor", "verdict"),
    [
        ("ABBAAB", 1.03, "regressed"),
        ("AAABBB", 1.03, "inconclusive"),
        ("AAABBB", 1.10, "regressed"),
    ],
)
def test_sides_that_did_not_take_turns(order: str, factor: float, verdict: str) -> None:
    before, after = (
        _side(side, {_iteration(""): times}, order=order)
        for side, times in (("A", BEFORE), ("B", [time * factor for time in BEFORE]))
    )
    (pair,) = pairs_of(before, after).steps
    assert pair.verdict == verdict
    told = " ".join(fact.text for fact in compare(before, after).statements)
    assert ("did not alternate" in told) == (order == "AAABBB")
    assert bool(pair.note) == (verdict == "inconclusive")


def test_one_run_a_side_says_nothing_on_their_order() -> None:
    before, after = (_side(side, {_iteration(""): [1e6]}, order="AB") for side in "AB")
    (said,) = compare(before, after).statements
    assert "unreplicated" in said.text


def test_sums_over_other_work_are_not_compared() -> None:
    whole, profiled = Key("nsys", "", CAPTURE), Key("ncu", "", PROFILED)
    times = {whole: BEFORE, profiled: BEFORE, _kernel("k"): BEFORE, _kernel("p", "ncu"): BEFORE}
    more = {**times, whole: AFTER, profiled: AFTER}
    pairs = pairs_of(_side("A", times), _side("B", more))
    assert {pair.verdict for pair in pairs.steps} == {"regressed"}
    other = {**more, _kernel("k2"): BEFORE, _kernel("p2", "ncu"): BEFORE}
    pairs = pairs_of(_side("A", times), _side("B", other))
    assert {pair.verdict for pair in pairs.steps} == {"not comparable"}


def test_a_configuration_that_was_renamed_is_the_same() -> None:
    before, after = (
        _side("A", {_iteration("mode=eager"): BEFORE}),
        _side("B", {_iteration("mode=graph"): AFTER}),
    )
    assert _verdicts(pairs_of(before, after).steps) == {"mode=eager -> mode=graph": "regressed"}


def _rows(table: Table) -> list[dict[str, Any]]:
    names = [column.name for column in table.columns]
    return [dict(zip(names, row, strict=True)) for row in table.rows]


Compare = Callable[[str, str], Comparison]


@pytest.fixture
def compared(captures: Store, ingested: Callable[[str], str]) -> Compare:
    """Compare two captures, each as a run of its own."""

    def compare_two(before: str, after: str) -> Comparison:
        reports = [ingested(before), ingested(after)]
        with Session.open(captures, reports, use=VIEWS) as session:
            sides = [side_of(session.con, (), [report]) for report in reports]
        return compare(*sides)

    return compare_two


def test_eager_against_graph_begins_with_the_step(compared: Compare) -> None:
    found = compared("nsys/eager_small.sqlite", "nsys/graph_node.sqlite")
    _, steps, kernels = found.tables
    first, *parts = _rows(steps)
    assert first["what"] == "step (nsys)"
    assert first["before_ns"] / first["after_ns"] == pytest.approx(7.0, abs=0.01)
    assert first["verdict"] == "unreplicated"
    assert parts[0]["what"] == "launch gap (nsys)"
    assert parts[0]["total_ns"] == min(row["total_ns"] for row in parts)
    assert {row["verdict"] for row in parts} == {None}
    # The parts add up to the mean step, the first row is the median one.
    for side in ("before_ns", "after_ns"):
        assert sum(row[side] for row in parts) == pytest.approx(first[side], rel=0.01)
    assert {row["what"] for row in _rows(kernels)} == {"nsys kernel"}
    assert "at least as wide as the timer's step: nsys 32 ns (from the durations)." in kernels.doc
    said = found.statements[0].text
    assert said.startswith("A step took 9.09 ms in the baseline and takes 1.3 ms now: 7.0 times as")
    assert "launch gap -5.37 ms" in said


def test_kernels_in_graphs_traced_as_a_whole_are_not_gone(compared: Compare) -> None:
    _, steps, kernels = compared("nsys/eager_small.sqlite", "nsys/graph_whole.sqlite").tables
    first, *_ = _rows(steps)
    assert first["before_ns"] / first["after_ns"] == pytest.approx(7.6, abs=0.1)
    rows = _rows(kernels)
    assert {row["verdict"] for row in rows} == {"not comparable"}
    assert "hides their kernels" in rows[0]["note"]


def test_steps_on_one_side_only() -> None:
    before = _side("A", {Key("nsys", "", STEP): BEFORE})
    after = _side("B", {Key("nsys", "", CAPTURE): AFTER})
    pairs = pairs_of(before, after)
    assert {pair.verdict for pair in pairs.steps} == {"not comparable"}
    assert {pair.note for pair in pairs.steps} == {"steps were found on one side only"}


def test_a_chosen_window_is_compared_as_a_whole(
    captures: Store, ingested: Callable[[str], str]
) -> None:
    report = ingested("nsys/eager_small.sqlite")
    sql = "SELECT part, time_ns, steps FROM step_parts"
    with Session.open(captures, [report], window="whole") as session:
        (part, whole_ns, steps), *parts = session.execute(sql).fetchall()
        (per_step,) = session.execute("SELECT count(step_ns) FROM kernel_times").fetchall()
    assert (part, steps) == ("capture", None)
    assert sum(time for _, time, _ in parts) == whole_ns
    assert per_step == (0,)


def test_kernels_of_a_capture_are_those_of_its_steady_steps(opened: Opened) -> None:
    sql = """
        SELECT sum(step_ns), any_value(p.time_ns), sum(launches) FROM kernel_times AS k
        JOIN step_parts AS p USING (report_id) WHERE p.part = 'compute'
    """
    with opened("nsys/graph_node.sqlite") as session:
        ((in_steps, compute, launches),) = session.execute(sql).fetchall()
    assert launches == 18 * 354, "354 kernels in each of 18 steady steps of 20"
    assert in_steps == pytest.approx(compute, rel=0.01), "streams overlap a little"


def _slower(store: Path, run: str, factor: float, name: str, started: str) -> None:
    """Make a run like another, with times that are longer."""
    folder = store / "runs" / name
    shutil.copytree(store / "runs" / run, folder)
    for path in folder.rglob("*.json"):
        document = json.loads(path.read_text())
        if "run_id" in document:
            document |= {"run_id": name, "started_at": started, "reports": []}
            for task in document["tasks"]:
                task["times_ms"] = [time * factor for time in task["times_ms"]]
                task["reports"] = []
            path.write_text(json.dumps(document))


def test_a_report_against_a_baseline(
    cli: Cli, replayed: Callable[[str], Path], tmp_path: Path
) -> None:
    store = shutil.copytree(replayed("vector_add"), tmp_path / "store")
    (run,) = [path.name for path in (store / "runs").iterdir()]
    for number, factor in enumerate((1.0, 1.1, 1.101, 1.001, 0.999, 1.099)):
        side = "before" if factor < 1.05 else "after"
        _slower(store, run, factor, f"{side}-{number}", f"2026-11-22T10:0{number}:00Z")
    words = [f"--baseline=before-{n}" for n in (0, 3, 4)]
    assert cli("report", "after-1", "after-2", "after-5", *words, "--json") == 0
    document = json.loads(cli.out)
    told = [fact["text"] for fact in document["statements"]]
    assert told[0].startswith("Not comparable: a replayed side measures nothing"), "as check says"
    assert "6 configurations were compared with the baseline: 6 regressed" in told[2]
    facts = {fact["name"]: fact["text"] for fact in document["summary"]}
    assert facts["Baseline"] == "before-0, before-3, before-4"
    section = next(s for s in document["sections"] if s["id"] == "regression")
    (table,) = section["tables"]
    names = [column["name"] for column in table["columns"]]
    rows = [dict(zip(names, row, strict=True)) for row in table["rows"]]
    assert len(rows) == 6
    for row in rows:
        assert row["what"] == "iteration"
        assert row["change_pct"] == pytest.approx(10, abs=0.1)
        assert row["low_pct"] < row["change_pct"] < row["high_pct"]
        assert row["sm_mhz"]
        assert (row["runs"], row["verdict"]) == ("3 and 3", "regressed")
    assert cli("report", "after-1", "--baseline", "before-0", "--md", "-") == 0
    assert "only one run on a side, so the run-to-run variation is unknown" in cli.out
    assert cli("report", run, "--baseline", run) == 2
    assert "is on both sides of the comparison" in cli.err


def test_what_is_new_or_gone_counts_in_full(compared: Compare) -> None:
    *_, table = compared("nsys/eager_small.sqlite", "nsys/compute.sqlite").tables
    rows = _rows(table)
    found = {row["verdict"] for row in rows}
    assert {"new", "gone"} <= found <= {"new", "gone", "unreplicated"}
    assert {row["what"] for row in rows} == {"nsys kernel"}
    assert all(row["total_ns"] > 0 for row in rows if row["verdict"] == "new")
    assert all(row["total_ns"] < 0 for row in rows if row["verdict"] == "gone")


def test_profiled_kernels_have_a_total(compared: Compare) -> None:
    tables = compared("ncu/block.raw.csv", "ncu/live_stdout.csv").tables
    rows = [row for table in tables for row in _rows(table)]
    (row,) = (row for row in rows if row.get("what") == "profiled kernels (ncu)")
    assert row["verdict"] == "not comparable"
