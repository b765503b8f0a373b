"""The critical path of a step: known programs, and random ones with a brute-force oracle."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import Cli, Opened
from hypothesis import given
from hypothesis import strategies as st
from simulated import LIMITS, Element, Program, ints, programs

from perfpipe.analysis.critical.events import NONE, Calls, Operations
from perfpipe.analysis.critical.graph import Graph, graph_of
from perfpipe.analysis.critical.parts import Edges, Part
from perfpipe.analysis.critical.path import Segment, categories_of, path_of
from perfpipe.analysis.critical.reached import last_open, running_max
from perfpipe.analysis.critical.reading import Step
from perfpipe.analysis.critical.replay import replay
from perfpipe.analysis.critical.segments import merged
from perfpipe.analysis.critical.slopes import VIEWS, predicted_slopes
from perfpipe.analysis.session import Session
from perfpipe.analysis.trying.causes import Cause, compared
from perfpipe.analysis.trying.slopes import Estimate, Slopes
from perfpipe.pipelines.trying.slowing import Slowed
from perfpipe.store import Store
from perfpipe.trialrecord import Gained, LeverTrial, Trial, write

WAIT = 500_000


def step_of(graph: Graph, bounds: list[int], gpu: int, ranks: int = 1) -> Step:
    """Return a graph as a step of a job with a process for each rank."""
    every = [("r", rank) for rank in range(ranks)]
    return Step(
        "r", "median", "r", 0, bounds, graph, gpu, every, every,
        [("r", rank, rank) for rank in range(ranks)], np.arange(len(graph.operations)),
    )  # fmt: skip


def _path(program: Program, graph: Graph) -> tuple[Element, list[Segment]]:
    """Return what ends last of all operations, and the path back from its end."""
    last = max(program.operations, key=program.end)
    return last, path_of(graph, categories_of(graph, WAIT), last.rank, 0, program.end(last))


@given(programs())
def test_a_path_covers_the_step_and_has_no_slack(drawn: tuple[Program, int]) -> None:
    program, _ = drawn
    graph = program.graph()
    last, path = _path(program, graph)
    assert [own.end for own in path] == [program.end(last), *(own.start for own in path[:-1])]
    assert path[-1].start == 0
    ops, calls = program.elements
    for own in path:
        # Nothing lags in these programs: only work is on the path.
        assert own.category in {
            "compute",
            "transfer",
            "communication",
            "host",
            "launch_api",
            "cuda_call",
        }
        if own.operation != NONE:
            assert program.delays(ops[own.operation], last)
        elif own.call != NONE:
            assert program.delays(calls[own.call], last)


@given(
    programs(),
    st.sampled_from((0, 50)),
    st.sampled_from(("compute", "transfer", "communication", "host")),
)
def test_a_replay_is_the_program_with_shorter_parts(
    drawn: tuple[Program, int], kept: int, category: str
) -> None:
    program, ranks = drawn
    graph = program.graph()
    edges = Edges(step_of(graph, [0, 1], 0, ranks), {})
    lasting = np.repeat(graph.least[:, None].astype(float), 2, axis=1)
    lasting[edges.select(Part(category)), 1] *= kept / 100
    times = replay(graph, lasting, 0)
    points = len(program.ends())
    assert times[:points, 0].tolist() == program.ends(), "unchanged"
    shorter = program.scaled(**{category: kept})
    shorter.elements = program.elements
    assert times[:points, 1].tolist() == shorter.ends()


def test_the_last_of_64_ranks_is_on_the_path() -> None:
    """Each of three collectives waits for another rank, whose host is late; all else is hidden."""
    program = Program()
    for late in (11, 63, 0):
        for rank in range(64):
            program.launch(rank, 2, 5_000 if rank == late else 10 + rank, "compute", 100)
        program.collective(range(64), 2, 500)
        for rank in range(64):
            program.wait(rank, 2)
    graph = program.graph()
    edges = Edges(
        step_of(graph, [0, int(graph.time.max())], 5, 64), {("r", n): n for n in range(64)}
    )
    _, path = _path(program, graph)
    hosts = [
        (int(graph.calls.thread[own.before - len(graph.operations)]), own.end - own.start)
        for own in reversed(path)
        if own.category == "host" and own.end - own.start > 1000
    ]
    assert hosts == [(11, 5_000), (63, 5_000), (0, 5_000)]
    assert sum(own.end - own.start for own in path if own.category == "communication") == 1_500
    # If one late rank is on time, the step waits for the next one.
    scenarios = [[(Part("host", None, rank), 1.0)] for rank in (63, 5)]
    found = edges.shorter(scenarios)
    assert found is not None
    gains = [found.step_ns - new for new in found.new_ns]
    assert gains[0] == pytest.approx(5_000, abs=100)
    assert gains[1] == 0


def test_edges_grow_with_events() -> None:
    counts = []
    for steps in (10, 80):
        program = Program()
        for _ in range(steps):
            for rank in range(4):
                program.launch(rank, 0, 4, "compute", 50)
                program.order(rank, 0, 2)
            program.collective(range(4), 2, 30)
            program.wait(0, 2)
        graph = program.graph()
        counts.append(len(graph.source) / len(graph.time))
    assert counts[1] < 1.05 * counts[0]


def _single(
    ops: list[tuple[int, int, int, int]],
    calls: list[tuple[int, int, int, bool]],
    categories: Sequence[str] = (),
) -> Graph:
    """Return the graph of one GPU.

    Operations are stream, start, end and call; calls are thread, start, end and whether they block.
    """
    stream, begun, ended, call = (ints(column) for column in zip(*ops, strict=True))
    thread, start, end, blocks = zip(*calls, strict=True)
    zeros, none = np.zeros(len(ops), np.int64), np.full(len(ops), NONE)
    unknown, never = np.full(len(calls), NONE), np.zeros(len(calls), bool)
    return graph_of(
        Operations(
            stream, zeros, zeros, begun, ended, call,
            np.where(call == NONE, NONE, ints(start)[call]), none, zeros,
            categories or ["compute"] * len(ops), [f"k{number}" for number in range(len(ops))],
        ),
        Calls(
            ints(thread), np.zeros(len(calls), np.int64), ints(start), ints(end),
            np.array(blocks), never, never, unknown, unknown, ints(start), ["c"] * len(calls),
        ),
        LIMITS,
    )  # fmt: skip


def _said(graph: Graph, end: int, start: int = 0) -> list[tuple[str, int]]:
    path = path_of(graph, categories_of(graph, WAIT), 0, start, end)
    assert sum(own.end - own.start for own in path) == end - start
    return [(own.category, own.end - own.start) for own in reversed(path)]


def test_the_host_issues_too_slowly() -> None:
    graph = _single(
        [(0, 110, 150, 0), (0, 260, 300, 1)], [(0, 100, 105, False), (0, 250, 258, False)]
    )
    assert _said(graph, 300) == [
        ("host", 100), ("launch_api", 5), ("host", 145), ("launch_api", 8), ("queued", 2), ("compute", 40),
    ]  # fmt: skip


def test_what_another_stream_released_is_inferred_without_events() -> None:
    """The second operation was launched long before, and begins when the other stream ends."""
    ops = [(0, 10, 900_000, 0), (1, 900_004, 950_000, 1)]
    graph = _single(ops, [(0, 0, 5, False), (0, 6, 9, False)])
    assert _said(graph, 950_000, 10) == [
        ("compute", 899_990),
        ("kernel_gap", 4),
        ("compute", 49_996),
    ]
    far = _single(
        [(0, 10, 500_000, 0), (1, 700_000, 750_000, 1)], [(0, 0, 5, False), (0, 6, 9, False)]
    )
    assert _said(far, 750_000, 10)[-2:] == [("device_wait", 699_990), ("compute", 50_000)]


def test_pages_migrate_for_kernels_and_for_the_host() -> None:
    """The host reads a result after the kernel: its pages do not wait for those that moved before."""
    ops = [
        (0, 10, 900_000, 0),
        (3, 400, 500, NONE),
        (3, 900_200, 900_300, NONE),
        (3, 900_340, 900_400, NONE),
        (3, 900_450, 900_500, NONE),
    ]
    calls = [(0, 0, 5, False), (0, 6, 900_050, True), (0, 900_440, 900_600, False)]
    graph = _single(ops, calls, ["compute", *["migration"] * 4])
    assert _said(graph, 900_500, 10) == [
        ("compute", 899_990),
        ("sync", 50),
        ("host", 390),
        ("cuda_call", 10),
        ("migration", 50),
    ]
    assert _said(graph, 900_400, 10)[2:] == [
        ("host", 150),
        ("migration", 100),
        ("host", 40),
        ("migration", 60),
    ]
    assert _said(graph, 500, 10) == [("compute", 390), ("migration", 100)]


def test_a_copy_of_pageable_memory_holds_the_host() -> None:
    """Its call returns when the last part has begun; the next launch waits for this, not for the host."""
    ops = [(0, 10, 1_000, 0), (0, 1_001, 5_000, 1), (0, 5_010, 5_100, 2)]
    calls = [(0, 0, 5, False), (0, 20, 4_900, False), (0, 5_000, 5_005, False)]
    graph = _single(ops, calls, ["compute", "transfer", "compute"])
    lasting = np.repeat(graph.least[:, None].astype(float), 2, axis=1)
    edges = Edges(step_of(graph, [10, 5_100], 0), {})
    lasting[edges.select(Part("compute")), 1] *= 0.5
    times = replay(graph, lasting, 10)
    assert times[5, 1] < 5_100 - 400, "a shorter first kernel lets the copy begin earlier"


def test_a_thread_continues_what_another_one_did() -> None:
    """The main thread waits for that of autograd, and is quiet meanwhile."""
    ops = [(0, 10, 20, 0), (0, 300_010, 300_020, 1), (0, 700_010, 700_020, 2)]
    calls = [(0, 0, 5, False), (1, 300_000, 300_005, False), (0, 700_000, 700_005, False)]
    graph = _single(ops, calls)
    path = path_of(graph, categories_of(graph, WAIT), 0, 0, 700_020)
    threads = [int(graph.calls.thread[own.call]) for own in reversed(path) if own.call != NONE]
    assert threads == [0, 1, 0]
    busy = [(1, 300_000 + at, 300_000 + at + 5, False) for at in range(0, 500_000, 50_000)]
    ops = [ops[0], (*ops[2][:3], 9)]
    beside = _single(ops, [calls[0], *busy[:8], calls[2], *busy[8:]])
    path = path_of(beside, categories_of(beside, WAIT), 0, 0, 700_020)
    assert all(own.call == NONE or beside.calls.thread[own.call] == 0 for own in path)


def test_a_full_queue_holds_the_host() -> None:
    """The launch behind 300 others takes as long as the GPU takes for one of them."""
    ops = [(0, 100 * n, 100 * n + 100, n) for n in range(1, 401)]
    calls = [(0, n, n + 1, False) for n in range(401)]
    calls = [
        *calls[:330],
        (0, 330, 30_450, False),
        *((0, 30_600 + n, 30_601 + n, False) for n in range(70)),
    ]
    graph = _single([(s, b, e, min(c, 399)) for s, b, e, c in ops], calls)
    edges = Edges(step_of(graph, [0, 40_100], 0), {})
    found = edges.shorter([[(Part("compute"), 0.5)]])
    assert found is not None
    assert found.new_ns[0] < 0.6 * found.step_ns


def test_merged() -> None:
    begin, until = merged(ints([5, 0, 20]), ints([9, 6, 30]))
    assert (begin.tolist(), until.tolist()) == ([0, 20], [9, 30])


@pytest.mark.parametrize(
    "name", ["nsys/ddp_single.sqlite", "nsys/eager_small.sqlite", "nsys/graph_node.sqlite"]
)
def test_segments_of_a_capture_add_up(opened: Opened, name: str) -> None:
    with opened(name) as session:
        rows = session.execute(
            "SELECT p.job, p.role, sum(p.dur_ns), min(p.start_ns), max(p.start_ns + p.dur_ns), "
            "any_value(s.end_ns - s.start_ns) FROM critical_path AS p JOIN step_pictures AS s "
            "USING (report_id, device, role) GROUP BY p.job, p.role"
        ).fetchall()
        assert len(rows) == 2
        for *_, total, first, last, step in rows:
            assert (total, first, last) == (step, 0, step)
        overlaps = session.execute(
            "SELECT count(*) FROM (SELECT start_ns + dur_ns AS until, lead(start_ns) OVER "
            "(PARTITION BY job, role ORDER BY place) AS next FROM critical_path) WHERE until != next"
        ).fetchall()
        assert overlaps == [(0,)]


def test_trials_stand_beside_the_replay(
    cli: Cli, stored: Callable[..., list[str]], store: Store, tmp_path: Path
) -> None:
    (report,) = stored("nsys/eager_small.sqlite")
    lever = LeverTrial("compile", "t", "gain", technique="cuda_graphs", finding="launch_overhead")
    trial = Trial(
        "t-1", "p", "2026-01-01T00:00:00", "step", 9.0, 3, Gained(0.0, -1.0, 1.0), "identical",
        (
            replace(lever, gained=Gained(38.0, 36.0, 40.0), launches=3),
            replace(lever, name="more", gained=Gained(95.0, 94.0, 96.0), launches=3),
            replace(lever, name="slow", gained=Gained(-5.0, -7.0, -3.0), launches=3),
            replace(lever, name="other", gained=Gained(1.0, 0.0, 2.0), finding="no_such", launches=3),
        ),
        reports=(report,),
    )  # fmt: skip
    write(store.root, trial)
    with Session.open(store) as session:
        rows = session.execute(
            "SELECT lever, category, replayed_pct, within FROM critical_path_trials ORDER BY lever"
        ).fetchall()
    replayed = rows[0][2]
    assert 70 < replayed < 90, "a graph of these steps takes a seventh of their time"
    assert rows == [
        ("compile", "host work", replayed, True),
        ("more", "host work", replayed, False),
        ("slow", "host work", replayed, True),
    ]
    page = tmp_path / "page.md"
    assert cli("report", report, "--json", page) == 0
    text = page.read_text()
    assert (
        f"compile saved 38.0 %, within the {replayed:.1f} % that the replay saves if host work"
        in text
    )
    assert "more saved 95.0 %, more than the" in text and "slow lost 5.0 %" in text


def test_project_with_shorter_parts(cli: Cli, stored: Callable[..., list[str]]) -> None:
    (report,) = stored("nsys/ddp_single.sqlite")
    assert cli("project", report, "--shorter", "communication=100", "--json") == 0
    document = json.loads(cli.out)
    (found,) = document["configurations"]
    assert document["shorter"] == [
        {"category": "communication", "name": None, "rank": None, "percent": 100.0}
    ]
    with Session.open(Store(Path("store"))) as session:
        view = session.execute(
            "SELECT new_step_ns FROM critical_path_gains "
            "WHERE category = 'communication' AND name IS NULL"
        ).fetchall()
    assert view == [(found["new_ns"],)]
    assert 20 < found["gain_pct"] < 30
    assert (
        cli("project", report, "--shorter", "host work@1=50", "--shorter", "compute=10", "--md")
        == 0
    )
    assert "host work of rank 1 50 % shorter, compute 10 % shorter" in cli.out
    for words, said in (
        (("--shorter", "comput=5"), "did you mean 'compute'?"),
        (("--shorter", "compute@7=5"), "no such rank"),
        (("--shorter", "compute=0"), "not PART=PERCENT"),
        (("--shorter", "compute=101"), "not PART=PERCENT"),
        ((), "use either --to or --shorter"),
        (("--to", "b200", "--shorter", "compute=5"), "use either --to or --shorter"),
    ):
        assert cli("project", report, *words) == 2
        assert said in cli.err


@pytest.mark.parametrize(
    ("name", "slope"), [("nsys/eager_small.sqlite", 1.0), ("nsys/graph_node.sqlite", 0.0)]
)
def test_a_replay_predicts_the_slope_of_launches(opened: Opened, name: str, slope: float) -> None:
    """A step of eager launches waits for each of them; graphs are launched long before."""
    with opened(name) as session:
        session.use(*VIEWS)
        found = predicted_slopes(session.con)
    assert found == {"launch": pytest.approx(slope, abs=0.1)}


def test_slopes_stand_beside_predicted_ones() -> None:
    slope = Estimate(0.9, 0.8, 1.0)
    cause = Cause("launch", delays_ms=(0.0, 1.0, 2.0), slopes=Slopes(slope, (slope, slope), None))
    shown = Slowed("p", "gpu", {"launch": cause}, predicted={"launch": 0.97, "collectives": 0.1})
    assert [line for line in shown.lines() if "replay" in line] == [
        "The replay of the timeline predicts a slope of 0.97 for launch, within the measured 0.80 to "
        "1.00."
    ]
    assert "outside the measured" in compared(cause, 0.5)
    assert shown.as_data()["predicted_slopes"] == {"launch": 0.97, "collectives": 0.1}


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8))), st.lists(st.integers(-2, 22)))
def test_the_interval_that_is_open_longest(spans: list[tuple[int, int]], times: list[int]) -> None:
    spans = sorted(spans)
    starts = np.array([start for start, _ in spans], np.int64)
    ends = np.array([start + length for start, length in spans], np.int64)
    asked = np.array(times, np.int64)
    found = last_open(ends, np.searchsorted(starts, asked, side="right") - 1, asked)
    for at, time in zip(found.tolist(), times, strict=True):
        running = [int(end) for start, end in zip(starts, ends, strict=True) if start <= time < end]
        assert (at == NONE) == (not running)
        if running:
            assert starts[at] <= time and ends[at] == max(running)


@given(st.lists(st.tuples(st.integers(-9, 9), st.booleans())))
def test_a_running_maximum_begins_again_with_each_part(rows: list[tuple[int, bool]]) -> None:
    starts = np.array([first or not at for at, (_, first) in enumerate(rows)], bool)
    found = running_max(np.array([value for value, _ in rows], np.int64), starts)
    begin = 0
    for at, first in enumerate(starts):
        begin = at if first else begin
        assert found[at] == max(value for value, _ in rows[begin : at + 1])
