"""Programs that time kernels: told from steps of a program, against counting by hand."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import Opened, Tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpipe.analysis.thresholds import thresholds

FILL = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<int>>(int)"
LIMITS = thresholds()
FLUSH_NS = round(LIMITS["benchmark.flush_us"] * 1000)


@dataclass(frozen=True)
class Op:
    """An operation, and whether an event is recorded before the next launch."""

    name: str
    dur_ns: int
    event: bool = False

    @property
    def flush(self) -> bool:
        return "Fill" in self.name and self.dur_ns >= FLUSH_NS


def repetition(name: str, dur_ns: int = 5000, flush_ns: int = 50_000) -> list[Op]:
    """What triton.testing.do_bench does for each time that it measures."""
    return [Op(FILL, flush_ns, event=True), Op(name, dur_ns, event=True)]


def _timeline(ops: list[Op], numbered: bool = False) -> Tiny:
    """Return a timeline of them, one after the other; with `numbered` a range around each."""
    db = Tiny()
    _add_timeline(db, ops, numbered)
    return db


def _add_timeline(db: Tiny, ops: list[Op], numbered: bool = False, report: str = "t") -> None:
    db.add("reports", {"report_id": report, "kind": "nsys"})
    at = 0
    for place, op in enumerate(ops):
        own = {"report_id": report, "pid": 7, "device": 0, "start_ns": at, "end_ns": at + op.dur_ns}
        names = {"name": op.name.split("<")[0].split()[-1], "demangled": op.name}
        called = {"tid": 1, "api_start_ns": at - 100, "api_end_ns": at - 50, "call_id": place}
        db.add("launches", {"kind": "kernel", "stream": 7, **own, **names, **called})
        db.add("nsys_kernels", {**own, **names, "dur_ns": op.dur_ns})
        if op.event:
            event = {"name": "cudaEventRecordWithFlags", "start_ns": at - 40, "end_ns": at - 30}
            db.add("nsys_api_calls", {"report_id": report, "pid": 7, "tid": 1, **event})
        if numbered:
            spans = {"range_id": place, "name": f"step {place}", "first_call": place, "calls": 1}
            where = {"pid": 7, "tid": 1, "start_ns": at - 120, "end_ns": at - 20}
            db.add("nsys_nvtx_ranges", {"report_id": report, **spans, **where})
        at += op.dur_ns + 1000


_COLUMNS = "repetitions, flushes, flush_ns, flush_pct, loops_pct, span_pct, kernels"
_FOUND = f"SELECT {_COLUMNS} FROM benchmark_loops"


def _by_hand(ops: list[Op]) -> list[tuple[float, ...]]:
    """Return what the view should, by walking over the operations."""
    groups: list[list[Op]] = []
    for op in ops:
        if op.flush:
            groups.append([op])
        elif groups:
            groups[-1].append(op)
    flushes = [group[0] for group in groups]
    # The last operation has no launch behind it.
    repetitions = sum(op.flush and op.event for op in ops[:-1])
    if repetitions < LIMITS["benchmark.repetitions"]:
        return []
    sizes = [0, *map(len, groups), 0]
    alike = [at for at in range(1, len(sizes) - 1) if sizes[at] in (sizes[at - 1], sizes[at + 1])]
    if not alike:
        return []
    inside = [op for at in alike for op in groups[at - 1]]
    spanned = [op for group in groups[alike[0] - 1 : alike[-1]] for op in group]
    whole, loops, span = (sum(op.dur_ns for op in some) for some in (ops, inside, spanned))
    timed = {op.name for op in inside if not op.flush}
    if 100 * loops < LIMITS["benchmark.loops_pct"] * whole or not timed:
        return []
    if 100 * span < LIMITS["benchmark.span_pct"] * whole:
        return []
    flush_ns = sum(op.dur_ns for op in flushes)
    shares = 100 * flush_ns / whole, 100 * loops / whole, 100 * span / whole
    return [(repetitions, len(flushes), flush_ns, *shares, len(timed))]


def _ops() -> st.SearchStrategy[list[Op]]:
    kernels = st.builds(Op, st.sampled_from(["a", "b<int>", FILL]), st.integers(1, 30_000))
    bodies = st.lists(kernels, max_size=4)
    marks = st.sampled_from([True, True, True, False])
    fills = st.builds(Op, st.just(FILL), st.integers(FLUSH_NS - 10, 60_000), marks)
    groups = st.builds(lambda fill, body: [fill, *body], fills, bodies)
    parts = st.tuples(
        st.lists(kernels, max_size=30), st.lists(groups, min_size=9, max_size=30), bodies
    )
    return parts.map(lambda p: [*p[0], *(op for group in p[1] for op in group), *p[2]])


@settings(max_examples=8)
@given(st.lists(_ops(), min_size=5, max_size=5))
def test_loops_against_walking_over_the_operations(timelines: list[list[Op]]) -> None:
    """Several timelines at a time: planning the views takes longer than all else."""
    db = Tiny()
    for number, ops in enumerate(timelines):
        _add_timeline(db, ops, report=f"t{number}")
    rows = db.rows(f"SELECT report_id, {_COLUMNS} FROM benchmark_loops")
    for number, ops in enumerate(timelines):
        found = [tuple(row) for report, *row in rows if report == f"t{number}"]
        assert [pytest.approx(row) for row in _by_hand(ops)] == found


BENCHMARK = [op for name in ("mine", "theirs") for op in repetition(name) * 40]


def test_a_benchmark_has_no_steps_and_no_advice_for_its_loop() -> None:
    db = _timeline(BENCHMARK)
    ((kind, steps, why),) = db.rows("SELECT kind, steps, why FROM analysis_windows")
    assert (kind, steps) == ("whole", None)
    assert why.startswith(
        "none, because a benchmark times kernels 80 times and flushes the L2 cache"
    )
    assert db.rows("SELECT longest FROM benchmark_loops") == [("mine",)]
    planned = db.rows("SELECT name, chosen FROM profile_plan ORDER BY name")
    assert planned == [("mine", True), ("theirs", True)]
    for view in ("timeline_findings", "operator_findings", "precision_findings"):
        assert db.rows(f"FROM {view}") == []


@pytest.mark.parametrize(
    "ops",
    [
        [Op(op.name, op.dur_ns) for op in BENCHMARK],  # nothing is timed
        [op for op in BENCHMARK if not op.flush],  # the cache is left as it is
        [op for _ in range(40) for op in repetition("mine", flush_ns=FLUSH_NS - 1)],  # too little
        repetition("tune") * 20 + [Op("train", 50_000)] * 400,  # tuned first, then trained
        repetition("tune") * 20 + [Op("train", 50_000)] * 400 + repetition("tune") * 20,
    ],
    ids=["no events", "no flush", "small fills", "tuned", "tuned again"],
)
def test_other_programs_are_none(ops: list[Op]) -> None:
    assert _timeline(ops).rows("FROM benchmark_loops") == []


def test_what_warms_up_between_loops_is_part_of_a_benchmark() -> None:
    """Triton's launches as often as in 25 ms without emptying the cache, for each that it times."""
    layers = [[Op(name, 20_000)] * count for name, count in (("mine", 3), ("theirs", 28))]
    loops = [[Op(FILL, 50_000, event=True), *layer] * 10 for layer in layers]
    ops = [op for layer, loop in zip(layers, loops, strict=True) for op in layer * 40 + loop]
    ((repetitions, *_, loops_pct, span_pct, kernels),) = _timeline(ops).rows(_FOUND)
    assert (repetitions, kernels) == (20, 2)
    assert loops_pct < 50 < span_pct


def test_steps_that_are_named_stay_steps() -> None:
    assert _timeline(BENCHMARK, numbered=True).rows("FROM benchmark_loops") == []


def test_the_layer_norm_of_tritons_tutorials(
    opened: Opened, expand: Callable[[str], Path], texts: Callable[..., Path]
) -> None:
    """0.12 s of it on an H200, in which the one of PyTorch is timed and then its own."""
    with sqlite3.connect(expand("real/do_bench.sqlite")) as con:
        (counted,) = con.execute(
            """
            WITH calls AS (
                SELECT c.*, s.value, lead(s.value) OVER (ORDER BY c.start) AS following
                FROM CUPTI_ACTIVITY_KIND_RUNTIME AS c JOIN StringIds AS s ON s.id = c.nameId
                WHERE s.value LIKE 'cu%Launch%' OR s.value LIKE 'cu%EventRecord%'
            )
            SELECT count(*) FILTER (WHERE c.following LIKE '%EventRecord%'), count(*), sum(k.end - k.start)
            FROM CUPTI_ACTIVITY_KIND_KERNEL AS k
            JOIN StringIds AS n ON n.id = k.demangledName
            JOIN calls AS c USING (correlationId)
            WHERE n.value LIKE '%FillFunctor<int>%' AND k.end - k.start > 20000
            """
        ).fetchall()
    con.close()
    with opened("real/do_bench.sqlite") as session:
        found = session.execute("SELECT repetitions, flushes, flush_ns FROM benchmark_loops")
        assert found.fetchall() == [counted]
        assert session.execute("SELECT count(*) FROM findings").fetchall() == [(0,)]
        planned = session.execute(
            "SELECT list(DISTINCT name ORDER BY name) FROM profile_plan WHERE chosen"
        ).fetchall()
    assert "_layer_norm_bwd_dx_fused" in planned[0][0]
    assert "layer_norm_grad_input_kernel_vectorized" in planned[0][0]
    page = (texts("real/do_bench.sqlite") / "report.md").read_text()
    assert f"**This is a benchmark with {counted[0]} timed repetitions; Gamma" in page
    assert "CUDA graph, or compile" not in page
