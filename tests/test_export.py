"""perfpipe export perfetto: whole, nested as viewers need it, to the nanosecond."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Callable
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpipe.analysis.session import Session
from perfpipe.pipelines.cli import run_cli
from perfpipe.store import Store
from perfpipe.templates.perfetto import write_trace

Ingested = Callable[[str], str]
CAPTURES = ("eager_small", "graph_node", "graph_whole", "ddp_comm_rank1", "memcpy")


def _kernel(name: str, start: int, dur: int, api_start: int | None = None) -> tuple[Any, ...]:
    return ("", "GPU 0", "Stream 7", "kernel", name, start, dur, True, 1, 5, 9, api_start, None)


def _written(slices: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    text = StringIO()
    assert write_trace(slices, text) == len(slices)
    events: list[dict[str, Any]] = json.loads(text.getvalue(), parse_float=Decimal)["traceEvents"]
    return events


def _assert_nested(events: list[dict[str, Any]]) -> None:
    rows = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            rows[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in rows.values():
        inside: list[Decimal] = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while inside and inside[-1] <= start:
                inside.pop()
            assert not inside or end <= inside[-1]
            inside.append(end)


@pytest.mark.parametrize("capture", CAPTURES)
def test_everything_is_written_once_and_nests(
    captures: Store, ingested: Ingested, tmp_path: Path, capture: str
) -> None:
    report = ingested(f"nsys/{capture}.sqlite")
    output = tmp_path / "trace.json.gz"
    store = ["--store", str(captures.root)]
    assert run_cli(["export", "perfetto", report, "-o", str(output), *store]) == 0
    document = json.loads(gzip.decompress(output.read_bytes()), parse_float=Decimal)
    events = document["traceEvents"]
    with Session.open(captures, [report], window="whole") as con:
        wanted: Counter[tuple[str, int, int]] = Counter()
        for sql in (
            "SELECT kind, start_ns, end_ns - start_ns FROM launches",
            "SELECT 'api', start_ns, dur_ns FROM nsys_api_calls WHERE end_ns IS NOT NULL",
            "SELECT 'idle', start_ns, dur_ns FROM gpu_idle_gaps",
        ):
            wanted.update(con.execute(sql).fetchall())
        linked = con.execute(
            "SELECT count(*) FROM launches WHERE api_start_ns IS NOT NULL"
        ).fetchone()
    found = Counter(
        (e["cat"], int(e["ts"] * 1000), int(e["dur"] * 1000))
        for e in events
        if e["ph"] == "X" and e["cat"] != "range"
    )
    assert found == wanted
    assert (sum(e["ph"] == "s" for e in events),) == linked
    _assert_nested([e for e in events if e.get("cat") != "range"])


def test_arrows_begin_in_the_call_and_end_in_the_kernel() -> None:
    call = (
        "",
        "Process 1",
        "Thread 9 CUDA",
        "api",
        "cuLaunch",
        100,
        50,
        True,
        1,
        5,
        None,
        None,
        None,
    )
    events = _written([call, _kernel("k", 400, 10, api_start=100)])
    by_phase = {(e["ph"], e["name"]): e for e in events}
    start, end = by_phase["s", "launch"], by_phase["f", "launch"]
    assert start["id"] == end["id"]
    for arrow, target in ((start, by_phase["X", "cuLaunch"]), (end, by_phase["X", "k"])):
        assert [arrow[key] for key in ("pid", "tid", "ts")] == [
            target[key] for key in ("pid", "tid", "ts")
        ]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20))))
def test_overlapping_operations_of_a_stream_get_rows_of_their_own(
    spans: list[tuple[int, int]],
) -> None:
    ordered = sorted(spans, key=lambda span: (span[0], -span[1]))
    _assert_apart(_written([_kernel("k", start, dur) for start, dur in ordered]))


def _assert_apart(events: list[dict[str, Any]]) -> None:
    slices = [e for e in events if e["ph"] == "X"]
    for i, a in enumerate(slices):
        for b in slices[:i]:
            if a["tid"] == b["tid"]:
                apart = min(a["ts"] + a["dur"], b["ts"] + b["dur"]) <= max(a["ts"], b["ts"])
                assert apart


def test_ranges_that_need_not_nest_are_asynchronous_and_marks_are_instants() -> None:
    def slice_(kind: str, start: int, dur: int, nested: bool) -> tuple[Any, ...]:
        row = ("", "Process 1", "Thread 9 NVTX")
        return (*row, kind, "r", start, dur, nested, 1, None, None, None, None)

    events = _written([slice_("range", 0, 10, False), slice_("range", 5, 10, False),
                       slice_("mark", 7, 0, False)])  # fmt: skip
    phases = [(e["ph"], e.get("id"), e["ts"]) for e in events if e["ph"] != "M"]
    ns = Decimal("0.001")
    assert phases == [
        ("b", 0, 0), ("e", 0, 10 * ns), ("b", 1, 5 * ns), ("e", 1, 15 * ns), ("i", None, 7 * ns),
    ]  # fmt: skip


@settings(max_examples=30)
@given(st.text(), st.integers(-(10**18), 10**18))
def test_hostile_names_and_any_clock_come_through(name: str, start: int) -> None:
    event = next(e for e in _written([_kernel(name, start, 1)]) if e["ph"] == "X")
    assert event["name"] == (name or "(no name)")
    assert event["ts"] * 1000 == start


def test_what_cannot_be_exported_is_refused(
    captures: Store, ingested: Ingested, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ["--store", str(captures.root)]
    kernels, timeline = ingested("ncu/ops.ncu-rep"), ingested("nsys/memcpy.sqlite")
    output = tmp_path / "out.json"
    assert run_cli(["export", "perfetto", kernels, "-o", str(output), *store]) == 2
    assert "no timeline" in capsys.readouterr().err
    nowhere = tmp_path / "missing" / "out.json"
    assert run_cli(["export", "perfetto", timeline, "-o", str(nowhere), *store]) != 0
    assert "cannot write" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_step_is_written_with_what_launched_it(
    captures: Store, ingested: Ingested, tmp_path: Path
) -> None:
    report = ingested("nsys/eager_small.sqlite")
    store = ["--store", str(captures.root)]
    with Session.open(captures, [report], use=("steps", "launches", "analysis_windows")) as session:
        steps = session.execute(
            "SELECT step, start_ns, end_ns FROM steps WHERE phase = 'steady' ORDER BY step"
        ).fetchall()
        step, start, end = steps[1]
        expected = session.execute(
            "SELECT count(*) FROM launches WHERE start_ns < ? AND end_ns >= ?", [end, start]
        ).fetchall()[0][0]
    sizes = {}
    for name, option in (
        ("step", ["--step", str(step)]),
        ("steady", ["--window", "steady"]),
        ("all", []),
    ):
        output = tmp_path / f"{name}.json"
        assert run_cli(["export", "perfetto", report, "-o", str(output), *option, *store]) == 0
        parse = Decimal if name == "step" else float
        events = json.loads(output.read_text(), parse_float=parse)["traceEvents"]
        sizes[name] = len(events)
        if name == "step":
            gpu = [
                e
                for e in events
                if e.get("cat") in ("kernel", "memcpy", "memset") and e["ph"] == "X"
            ]
            assert len(gpu) == expected
            begun = {(e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] == "X"}
            arrows = [e for e in events if e["ph"] == "s"]
            assert arrows and all((e["pid"], e["tid"], e["ts"]) in begun for e in arrows)
            _assert_nested(events)
    assert sizes["step"] < sizes["steady"] < sizes["all"]
    assert run_cli(["export", "perfetto", report, "--step", "999", *store]) == 2
