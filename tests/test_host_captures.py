"""Captures of programs with a planted cause of idle time, and a decoy that runs beside GPU work."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import DATA, Opened

from perfpipe.analysis.session import Session
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store


class Planted(NamedTuple):
    """The function and the lines that cause idle time, the cause, and the function of the decoy."""

    function: str
    lines: tuple[int, ...]
    cause: str
    decoy: str
    least_pct: int


#: Programs on an H100, sampled by nsys: what they do is in the names of their files.
PLANTED = {
    "tensor_loop": Planted("length_penalty", (6, 7), "host", "bookkeeping", 85),
    "item_helper": Planted("update", (7,), "sync", "describe", 50),
    "json_step": Planted("log_step", (5,), "host", "checksum", 90),
    "lock_step": Planted("record", (14,), "host", "decoy", 60),
    "compile_step": Planted("warm_up_scale", (10,), "building", "decoy", 95),
}


@pytest.mark.parametrize("name", PLANTED)
def test_the_planted_line_is_first(name: str, opened: Opened) -> None:
    planted = PLANTED[name]
    with opened(f"stacks/{name}.sqlite") as con:
        lines = con.execute(
            "SELECT DISTINCT function, line, code_pct, rank FROM idle_code "
            "WHERE level = 'user' AND rank <= ? ORDER BY rank",
            [len(planted.lines)],
        ).fetchall()
        ((cause,),) = con.execute(
            "SELECT arg_max(cause, self_ns) FROM idle_code WHERE level = 'user' AND rank = 1"
        ).fetchall()
        ((decoy_samples, planted_samples),) = con.execute(
            """
            SELECT count(DISTINCT h.time_ns) FILTER (f.function = ?),
                count(DISTINCT h.time_ns) FILTER (f.function = ?)
            FROM host_samples AS h
            JOIN host_stacks AS s USING (report_id, stack_id)
            JOIN host_frames AS f USING (report_id, frame_id)
            """,
            [planted.decoy, planted.function],
        ).fetchall()
        ((decoy_pct,),) = con.execute(
            "SELECT coalesce(max(code_pct), 0) FROM idle_code WHERE level = 'user' AND function = ?",
            [planted.decoy],
        ).fetchall()
        sums = con.execute(
            "SELECT level, sum(self_ns) = (SELECT sum(time_ns) FROM idle_causes) FROM idle_code "
            "GROUP BY level"
        ).fetchall()
    assert {row[:2] for row in lines} == {(planted.function, line) for line in planted.lines}
    assert sum(row[2] for row in lines) >= planted.least_pct
    assert cause == planted.cause
    # The decoy is sampled as well, but costs no idle time.
    assert decoy_samples and planted_samples
    assert decoy_pct < 10
    assert dict(sums) == {"user": True, "function": True, "line": True}


@pytest.mark.parametrize("name", ["json_step", "lock_step", "compile_step", "item_helper"])
def test_the_advice_names_the_line(name: str, texts: Callable[..., Path]) -> None:
    planted = PLANTED[name]
    opening = json.loads((texts(f"stacks/{name}.sqlite") / "report.json").read_text())["opening"]
    said = " ".join(action["evidence"] for action in opening["actions"])
    assert f"{name}.py:{planted.lines[0]} {planted.function}" in said


@pytest.mark.parametrize(
    ("name", "function", "line", "via", "cause"),
    [
        ("slow_loader", "__call__", 19, "worker process", "host"),
        ("slow_logging", "add", 27, None, "host"),
    ],
)
def test_recordings_with_stacks_replay(
    replayed: Callable[[str], Path], name: str, function: str, line: int, via: str, cause: str
) -> None:
    with Session.open(Store(replayed(name))) as con:
        first = con.execute(
            "SELECT function, line, via, cause FROM idle_code WHERE level = 'user' AND rank = 1 "
            "ORDER BY self_ns DESC LIMIT 1"
        ).fetchall()
        ((told, idle),) = con.execute(
            "SELECT (SELECT sum(time_ns) FROM idle_stacks), (SELECT sum(time_ns) FROM idle_causes)"
        ).fetchall()
    assert first == [(function, line, via, cause)]
    assert told == idle


def test_ranges_of_pythons_lock_are_no_annotations(opened: Opened) -> None:
    with opened("stacks/lock_step.sqlite") as con:
        ((held,),) = con.execute(
            "SELECT count(*) FROM nvtx_ranges WHERE domain = 'GIL Trace'"
        ).fetchall()
        annotated = con.execute(
            "SELECT count(*) FROM launches WHERE nvtx_range IS NOT NULL"
        ).fetchall()
        ((steps,),) = con.execute("SELECT count(*) FROM steps").fetchall()
    assert held > 1000
    assert annotated == [(0,)]
    assert steps == 30


def test_traced_stacks_are_exact(captures: Store) -> None:
    report = ingest(DATA / "torch" / "with_stack.kineto.json.gz", captures).report_id
    with Session.open(captures, [report]) as con:
        rows = con.execute(
            "SELECT function, max(low_pct), max(code_pct) FROM idle_code "
            "WHERE level = 'user' AND rank = 1 GROUP BY function"
        ).fetchall()
        ((alike,),) = con.execute(
            "SELECT count(*) FROM _idle_lines WHERE contains(words, 'about')"
        ).fetchall()
    ((function, low_pct, code_pct),) = rows
    assert (function, low_pct, alike) == ("log_step", None, 0)
    assert code_pct > 90
