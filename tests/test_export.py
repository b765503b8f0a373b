"""perfpipe export: timelines and stacks, whole, nested as viewers need it, to the nanosecond."""

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
        if e["ph"] == "X" and e["cat"] not in ("range", "frame")
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
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    nowhere = tmp_path / "file" / "out.json"
    assert run_cli(["export", "perfetto", timeline, "-o", str(nowhere), *store]) == 2
    assert "cannot write" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


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


def test_stacks_are_merged_and_nested(captures: Store, ingested: Ingested, tmp_path: Path) -> None:
    report = ingested("stacks/tensor_loop.sqlite")
    output = tmp_path / "trace.json"
    store = ["--store", str(captures.root)]
    assert run_cli(["export", "perfetto", report, "-o", str(output), *store]) == 0
    events = json.loads(output.read_text(), parse_float=Decimal)["traceEvents"]
    frames = [event for event in events if event.get("cat") == "frame"]
    _assert_nested(frames)
    with Session.open(captures, [report], use=("_host_cells", "host_stacks")) as session:
        rows = session.execute(
            "SELECT tid, start_ns, end_ns, list((function, file || coalesce(':' || line, '')) "
            "ORDER BY depth DESC) FROM _host_cells JOIN host_stacks USING (report_id, stack_id) "
            "JOIN host_frames USING (report_id, frame_id) GROUP BY ALL ORDER BY tid, start_ns"
        ).fetchall()
    # Plain merging: a slice goes on while it and what is around it stay the same.
    expected: Counter[tuple[Any, ...]] = Counter()
    open_: list[list[Any]] = []
    last: tuple[int, int] | None = None

    def close(keep: int) -> None:
        while len(open_) > keep:
            (name, place), since, until = open_.pop()
            expected[name, place, since, until - since] += 1

    for tid, start, end, stack in rows:
        if last != (tid, start):
            close(0)
        same = 0
        while same < min(len(open_), len(stack)) and open_[same][0] == stack[same]:
            same += 1
        close(same)
        open_ += [[frame, start, end] for frame in stack[same:]]
        for one in open_:
            one[2] = end
        last = tid, end
    close(0)
    found = Counter(
        (e["name"], e["args"]["detail"], int(e["ts"] * 1000), int(e["dur"] * 1000)) for e in frames
    )
    assert found == expected


#: Required keys of the published schema, by the part of the file.
_FILE, _PROFILE = {"$schema", "shared", "profiles"}, {
    "type", "name", "unit", "startValue", "endValue", "samples", "weights",
}  # fmt: skip


@pytest.mark.parametrize("name", ["speedscope.json", "speedscope.json.gz"])
def test_speedscope_has_idle_time_and_threads(
    captures: Store, ingested: Ingested, tmp_path: Path, name: str
) -> None:
    report = ingested("stacks/json_step.sqlite")
    output = tmp_path / name
    store = ["--store", str(captures.root)]
    words = ["export", "speedscope", report, "--window", "steady", "-o", str(output), *store]
    assert run_cli(words) == 0
    data = output.read_bytes()
    document = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)
    assert document.keys() >= _FILE
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = document["shared"]["frames"]
    assert all(frame["name"] and frame.keys() <= {"name", "file", "line"} for frame in frames)
    for profile in document["profiles"]:
        assert profile.keys() >= _PROFILE
        assert (profile["type"], profile["unit"]) == ("sampled", "nanoseconds")
        assert len(profile["samples"]) == len(profile["weights"]) > 0
        assert profile["endValue"] - profile["startValue"] == sum(profile["weights"])
        assert all(0 <= at < len(frames) for stack in profile["samples"] for at in stack)
        assert all(weight > 0 for weight in profile["weights"])
    idle = document["profiles"][document["activeProfileIndex"]]
    assert idle["name"] == "GPU 0 idle time"
    with Session.open(captures, [report], use=("idle_stacks", "_host_cells")) as session:
        ((ns, missing),) = session.execute(
            "SELECT sum(time_ns), sum(time_ns) FILTER (reason = 'not caused by the host') "
            "FROM idle_stacks"
        ).fetchall()
    assert idle["endValue"] == ns
    leaf: Counter[str] = Counter()
    for stack, weight in zip(idle["samples"], idle["weights"], strict=True):
        leaf[frames[stack[-1]]["name"]] += weight
    assert leaf["[not caused by the host]"] == missing
    heaviest = max(range(len(idle["weights"])), key=lambda at: int(idle["weights"][at]))
    names = [frames[at]["name"] for at in idle["samples"][heaviest]]
    assert names[:2] == ["<module>", "log_step"], "outermost first"
    (main,) = (profile for profile in document["profiles"] if "python sampling" in profile["name"])
    assert main["name"] == "Process 993, thread 993 (python sampling)"
    whole = tmp_path / "whole.json"
    assert run_cli(["export", "speedscope", report, "-o", str(whole), *store]) == 0
    every = json.loads(whole.read_text())["profiles"]
    sizes = {profile["name"]: len(profile["weights"]) for profile in every}
    assert sizes[main["name"]] == 1804 > len(main["weights"]) > 1000


def test_speedscope_without_stacks_is_refused(
    captures: Store, ingested: Ingested, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, output = ingested("nsys/memcpy.sqlite"), tmp_path / "out.json"
    store = ["--store", str(captures.root)]
    assert run_cli(["export", "speedscope", report, "-o", str(output), *store]) == 2
    assert "--python-sampling=true" in capsys.readouterr().err
    assert not output.exists()
