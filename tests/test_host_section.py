"""The section on the host: the flame graph, its sums, lines, and how stacks were recorded."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Opened, Tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from test_idle_code import FRAMES, STACKS, _launch, _report, _sample

from perfpipe.templates.gallery import FIGURES
from perfpipe.templates.icicle import OWNERS, Icicle, stacks_icicle
from perfpipe.viewmodel import Column, Source, Table

CAPTURE = "stacks/json_step.sqlite"


@pytest.mark.parametrize("name", ["json_step", "compile_step", "item_helper"])
def test_widths_add_up_to_the_idle_time(name: str, opened: Opened) -> None:
    with opened(f"stacks/{name}.sqlite") as con:
        rows = con.execute(
            "SELECT depth, time_ns, self_ns, samples, share_pct, frame FROM idle_tree "
            "ORDER BY tree_order"
        ).fetchall()
        ((idle, by_stack),) = con.execute(
            "SELECT any_value(idle_ns), (SELECT sum(time_ns) FROM idle_stacks) FROM host_coverage"
        ).fetchall()
        ((gaps,),) = con.execute(
            "SELECT sum(time_ns)::BIGINT FROM gpu_time_budget WHERE category NOT IN "
            "('compute', 'communication', 'transfer', 'migration', 'other_process', 'edge')"
        ).fetchall()
    assert sum(row[1] for row in rows if row[0] == 0) == idle == by_stack == gaps
    assert sum(row[2] for row in rows) == idle
    assert sum(row[4] for row in rows if row[0] == 0) == pytest.approx(100)
    parts: list[list[int]] = []
    for depth, ns, own, _, share, frame in rows:
        del parts[depth:]
        if depth:
            parts[-1][1] += ns
            assert parts[-1][1] <= parts[-1][0], "parts are within what they are part of"
        parts.append([ns, own])
        assert share >= 0.1 or frame in ("...", "not sampled", "not caused by the host")
    assert "not caused by the host" in {row[5] for row in rows}


_stacks = st.lists(
    st.tuples(st.integers(0, len(STACKS) - 1), st.integers(1, 5_000)), min_size=1, max_size=8
)


@given(st.lists(_stacks, min_size=2, max_size=6))
@settings(max_examples=15, deadline=None)
def test_the_tree_is_that_of_a_plain_count(cases: list[Any]) -> None:
    """Each stack is traced during one idle interval of a GPU."""
    db = Tiny()
    expected: dict[str, Counter[tuple[Any, ...]]] = defaultdict(Counter)
    for at, stacks in enumerate(cases):
        report = f"case {at}"
        _report(db, report)
        _launch(db, report, 0, 0, 10, api_start_ns=-5, api_end_ns=-2)
        now = 10
        for stack, ns in stacks:
            _sample(db, report, now, now + ns, stack, source="python tracing")
            now += ns
        _launch(db, report, 1, now, now + 10, api_start_ns=now, api_end_ns=now)
        for stack, ns in stacks:
            way: tuple[Any, ...] = ()
            for frame in reversed(STACKS[stack]):
                function, file, line, kind, _ = FRAMES[frame]
                way += ((function, file, line if kind == "user" else None),)
                expected[report][way] += ns
    db.session.use("idle_tree")
    rows = db.con.execute(
        "SELECT report_id, depth, frame, file, if(kind = 'user', line, NULL), kind, time_ns "
        "FROM idle_tree ORDER BY report_id, tree_order"
    ).fetchall()
    found: dict[str, Counter[tuple[Any, ...]]] = defaultdict(Counter)
    path: list[Any] = []
    for report, depth, frame, file, line, kind, ns in rows:
        del path[depth:]
        path.append((frame, file, line))
        if kind is not None:
            found[report][tuple(path)] += ns
    for report, ways in expected.items():
        whole = sum(ns for way, ns in ways.items() if len(way) == 1)
        kept = {way: ns for way, ns in ways.items() if 100 * ns >= 0.1 * whole}
        assert found[report] == kept
        rest = sum(ns for way, ns in ways.items() if len(way) == 1 and way not in kept)
        assert rest == sum(
            row[6] for row in rows if row[0] == report and row[1] == 0 and row[2] == "..."
        )


def test_rare_code_is_one_row_of_its_caller() -> None:
    db = Tiny()
    _report(db, "r")
    _launch(db, "r", 0, 0, 10, api_start_ns=-5, api_end_ns=-2)
    now = 10
    # step and log are called by <module>; forward is called by step.
    for stack, ns in ((0, 999_000), (1, 400), (2, 300), (7, 300)):
        _sample(db, "r", now, now + ns, stack, source="python tracing")
        now += ns
    _launch(db, "r", 1, now, now + 10, api_start_ns=now, api_end_ns=now)
    db.session.use("idle_tree")
    rows = db.con.execute(
        "SELECT depth, frame, time_ns, self_ns FROM idle_tree WHERE report_id = 'r' "
        "ORDER BY tree_order"
    ).fetchall()
    assert rows == [
        (0, "<module>", 1_000_000, 0), (1, "step", 999_300, 999_000), (2, "...", 300, 300),
        (1, "...", 700, 700),
    ]  # fmt: skip


def _table(*rows: tuple[Any, ...]) -> Table:
    names = ("device", "frame", "place", "depth", "kind", "via", "time_ns", "samples")
    columns = tuple(Column(name, name, "text") for name in names)
    return Table("t", "", columns, rows, len(rows), Source("idle_tree", ()))


def test_owners_have_colors_and_gpus_have_their_width() -> None:
    rows = (
        (0, "main", "a.py:1", 0, "user", None, 600, 6),
        (0, "get", "queues.py", 1, "python", None, 500, 5),
        (0, "resize", "b.py:7", 2, "user", "worker process", 400, 4),
        (0, "open", "PIL/Image.py", 3, "library", "worker process", 300, 3),
        (0, "not sampled", None, 0, None, None, 100, 0),
        (1, "main", "a.py:1", 0, "user", None, 300, 3),
    )
    drawn = stacks_icicle(_table(*rows))
    assert isinstance(drawn, Icicle)
    widths = {(box.name, box.depth): (box.start, box.width) for box in drawn.boxes}
    assert widths["GPU 0", 0] == (0, 70) and widths["GPU 1", 0] == (70, 30)
    assert widths["not sampled", 1] == (60, 10)
    colours = {box.name: box.colour for box in drawn.boxes}
    assert colours["resize b.py:7"] == OWNERS["user, worker process"]
    assert colours["open"] == OWNERS["worker process"]
    assert colours["main a.py:1"] == OWNERS["user"] != OWNERS["python"] == colours["get"]
    assert len(set(OWNERS.values())) == len(OWNERS)
    legend = [name for name, _ in drawn.legend]
    assert legend == ["user", "python", "worker process", "user, worker process", "no code"]
    assert "resize, b.py:7: 400 ns, 40.0 %; 4 samples; user, worker process" in [
        box.title for box in drawn.boxes
    ]
    svg = drawn.svg("x")
    assert svg.count("font-weight") == 3 and 'class="legend"' in svg
    assert b"worker process</text>" in drawn.file("svg")
    assert drawn.file("png").startswith(b"\x89PNG")


def test_the_section_says_what_ran_and_how_it_was_recorded(pages: Callable[..., Path]) -> None:
    folder = pages(CAPTURE)
    document = json.loads((folder / "report.json").read_text())
    section = next(one for one in document["sections"] if one["id"] == "host")
    tables = {table["title"]: table for table in section["tables"]}
    assert [*tables] == [
        "Idle time by stack",
        "Idle time by line of the program",
        "Idle time by function of libraries",
        "Sampled threads",
    ]
    assert (
        "Stacks are from python sampling (1 thread, every 1.02 ms"
        in (tables["Idle time by stack"]["doc"])
    )
    assert re.search(r"4\d\d samples of them are from idle time; 0\.\d % of the idle time was "
                     r"not sampled\.", tables["Idle time by stack"]["doc"])  # fmt: skip
    lines = tables["Idle time by line of the program"]
    names = [column["name"] for column in lines["columns"]]
    first = dict(zip(names, lines["rows"][0], strict=True))
    assert (first["place"], first["function"]) == ("json_step.py:5", "log_step")
    assert first["library_function"] == "dumps (json/__init__.py)"
    assert first["cause"] == "host" and first["share_pct"] > 90 and first["samples"] > 300
    low, high = map(float, first["interval"].split("\u2013"))
    assert low < first["share_pct"] < high
    assert first["step_ns"] == pytest.approx(first["self_ns"] / 30)
    functions = tables["Idle time by function of libraries"]
    at = [column["name"] for column in functions["columns"]].index("kind")
    assert {row[at] for row in functions["rows"]} <= {"library", "python"}
    html = (folder / "report.html").read_text()
    assert 'id="host"' in html and "log_step json_step.py:5" in html
    markdown = (folder / "report.md").read_text()
    assert "Idle time by line of the program" in markdown and "| json_step.py:5 |" in markdown
    assert "Idle time by stack" not in markdown and "function of libraries" not in markdown
    assert FIGURES["idle_stacks"].draw is stacks_icicle


def test_without_stacks_the_section_says_how_to_record_them(pages: Callable[..., Path]) -> None:
    document = json.loads((pages("nsys/graph_node.sqlite") / "report.json").read_text())
    section = next(one for one in document["sections"] if one["id"] == "host")
    assert not section["tables"]
    for word in ("perfpipe run", "--python-sampling=true", "--include-blobs=true"):
        assert word in section["missing"]


def test_threads_and_their_shares_of_idle_time(opened: Opened) -> None:
    with opened("stacks/lock_step.sqlite") as con:
        rows = con.execute(
            "SELECT tid, samples, period_ns, window_samples, idle_samples, sampled_pct, idle_pct, "
            "covered_pct FROM host_coverage WHERE source = 'python sampling' ORDER BY tid"
        ).fetchall()
        spans = con.execute("SELECT DISTINCT start_ns, end_ns FROM _analysed_spans").fetchall()
        gaps = con.execute("SELECT start_ns, end_ns FROM gpu_idle_gaps").fetchall()
        for tid, count, period, inside, idle, sampled_pct, idle_pct, covered_pct in rows:
            times = [
                time
                for (time,) in con.execute(
                    "SELECT time_ns FROM host_samples WHERE tid = ? AND source = 'python sampling' "
                    "ORDER BY time_ns", [tid]
                ).fetchall()
            ]  # fmt: skip
            assert count == len(times) and 0.9e6 < period < 1.1e6
            own = [time for time in times if any(a <= time < b for a, b in spans)]
            hit = [time for time in own if any(a <= time < b for a, b in gaps)]
            assert (inside, idle) == (len(own), len(hit))
            assert sampled_pct == pytest.approx(100 * len(hit) / len(own))
            assert 0 < idle_pct < 100 and covered_pct > 95
    assert len(rows) == 2


@pytest.mark.parametrize(("hit", "biased"), [(1, False), (9, True)])
def test_samples_that_prefer_idle_time_are_a_warning(hit: int, biased: bool) -> None:
    """Half of the time is idle; one of ten samples is there, or as many as elsewhere."""
    db = Tiny()
    _report(db, "r")
    for number in range(400):
        start = number * 2000
        _launch(db, "r", number, start, start + 1000, api_start_ns=start, api_end_ns=start)
        place = start + (1500 if (number % 10 < hit if biased else number % 2) else 500)
        _sample(db, "r", place - 400, place + 400, 0)
    db.session.use("host_coverage")
    rows = db.con.execute(
        "SELECT is_biased, sampled_pct, idle_pct FROM host_coverage WHERE report_id = 'r'"
    ).fetchall()
    assert [row[0] for row in rows] == [biased]
    assert rows[0][2] == pytest.approx(50, abs=1)
    assert rows[0][1] == pytest.approx(90 if biased else 50, abs=1)
