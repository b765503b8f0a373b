"""The code that launched GPU work, against a plain count."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from conftest import DATA, Opened, Row, Tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpipe.analysis.session import Session
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store

PID = MAIN = 7
WORKER = 8
OTHER = 9

#: Frames: function, file, line, kind.
FRAMES = [
    ("a", "train.py", 3, "user"),
    ("b", "train.py", 9, "user"),
    ("linear", "site-packages/torch/nn/functional.py", 5, "library"),
    ("backward", "site-packages/torch/autograd/__init__.py", 7, "library"),
]

#: Stacks by their frames, innermost first.
A, B, LIBRARY, BACKWARD_A, BACKWARD_B = range(5)
STACKS = [(2, 0), (1, 0), (2,), (3, 0), (3, 1)]

#: Code of stacks: function of the user, and the function that it calls.
CODE = {A: ("a", "linear"), B: ("b", None), LIBRARY: ("linear", None), BACKWARD_A: ("a", "backward"),
        BACKWARD_B: ("b", "backward")}  # fmt: skip

Key = tuple[Any, ...]


def _database(launches: list[Row], samples: list[Row]) -> Tiny:
    db = Tiny()
    db.add("reports", {"report_id": "r", "kind": "nsys", "gpu": "NVIDIA H200", "sm_count": 132})
    for number, (function, file, line, kind) in enumerate(FRAMES):
        package = "torch" if kind == "library" else None
        row = {"frame_id": number, "function": function, "file": file, "line": line, "kind": kind}
        db.add("host_frames", {**row, "package": package})
    for number, frames in enumerate(STACKS):
        for depth, frame in enumerate(frames):
            db.add("host_stacks", {"stack_id": number, "depth": depth, "frame_id": frame})
    db.add("launches", *launches)
    db.add("host_samples", *samples)
    return db


def _launch(number: int, tid: int | None, at: int, call: int, name: str, ns: int) -> Row:
    """Return a launch whose call begins at a time and has a duration."""
    begin = 1_000_000 + 1_000 * number
    row: Row = {
        "kind": "memcpy" if name == "copy" else "kernel", "name": name, "device": 0, "pid": PID,
        "stream": 7, "correlation_id": number, "start_ns": begin, "end_ns": begin + ns,
    }  # fmt: skip
    if tid is not None:
        times = {"api_start_ns": at, "api_end_ns": at + call}
        row |= {"tid": tid, "call_id": number, "api_name": "cudaLaunchKernel", **times}
    return row


def _found(db: Tiny) -> dict[Key, tuple[int, int, int | None]]:
    rows = db.rows(
        "SELECT function, library_function, exact, reason, kernels, time_ns, samples"
        " FROM launch_code"
    )
    return {row[:4]: row[4:] for row in rows}


_TIME = st.integers(0, 30)
_STACK = st.sampled_from(range(len(STACKS)))


@st.composite
def _cases(draw: st.DrawFn) -> tuple[list[Row], list[Row]]:
    launches, samples = [], []
    free = {MAIN: 0, WORKER: 0, OTHER: 0}
    for number in range(draw(st.integers(1, 8))):
        tid = draw(st.sampled_from([MAIN, MAIN, WORKER, OTHER, None]))
        call, name = draw(st.integers(1, 6)), draw(st.sampled_from(["x", "y", "copy"]))
        at = 0
        if tid is not None:
            at = free[tid] + draw(st.integers(0, 5))
            free[tid] = at + call
        launches.append(_launch(number, tid, at, call, name, draw(st.integers(0, 90))))
        if tid is not None and draw(st.integers(0, 3)) == 0:
            times = {"time_ns": at, "source": "cuda backtrace", "correlation_id": number}
            samples.append({"pid": PID, "tid": tid, "stack_id": draw(_STACK), **times})
    source = draw(st.sampled_from(["python tracing", "python sampling"]))
    for tid in (MAIN, WORKER, OTHER):
        edge = 0
        for _ in range(draw(st.integers(0, 6))):
            start = edge + draw(st.integers(0, 4))
            edge = start + draw(st.integers(1, 8))
            time = start if source == "python tracing" else draw(st.integers(start, edge - 1))
            times = {"time_ns": time, "start_ns": start, "end_ns": edge, "source": source}
            samples.append({"pid": PID, "tid": tid, "stack_id": draw(_STACK), **times})
    return launches, samples


Counts = dict[Key, list[Any]]  # kernels, ns, samples


def _counted(launches: list[Row], samples: list[Row]) -> tuple[Counts, Counts]:
    """Return what is known launch by launch, and estimates, which are not whole numbers."""
    cells = [row for row in samples if "start_ns" in row]
    exact: Counts = defaultdict(lambda: [0, 0, set()])
    rest = defaultdict(list)
    for row in launches:
        called = [s for s in samples if s.get("correlation_id") == row["correlation_id"]]
        at = {
            s["tid"]: s for s in cells if s["start_ns"] <= row.get("api_start_ns", -1) < s["end_ns"]
        }
        here = at.pop(row.get("tid"), None)
        if not called and here and here["source"] == "python tracing":
            called = [here]
        stack = called[0]["stack_id"] if called else None
        waiting = [s for s in at.values() if s["stack_id"] in (BACKWARD_A, BACKWARD_B)]
        if len(waiting) > 1:
            waiting = [s for s in waiting if s["tid"] == MAIN]
        if stack not in (None, LIBRARY):
            _put(exact, stack, True, None, row)
        elif waiting and (here is None or here["stack_id"] == LIBRARY):
            traced = waiting[0]["source"] == "python tracing"
            entry = _put(exact, waiting[0]["stack_id"], traced, None, row)
            entry[2].add((waiting[0]["tid"], waiting[0]["time_ns"]))
        else:
            rest[row.get("tid"), row["name"]].append((row, stack))
    estimates: Counts = defaultdict(lambda: [0, 0, 0])
    for (tid, _), rows in rest.items():
        hits = [
            (cell, row)
            for cell in cells
            for row, _ in rows
            if cell["tid"] == tid and cell["source"] == "python sampling"
            and row["api_start_ns"] <= cell["time_ns"] < row["api_end_ns"]
        ]  # fmt: skip
        if any(cell["stack_id"] != LIBRARY for cell, _ in hits):
            hits = [(cell, row) for cell, row in hits if cell["stack_id"] != LIBRARY]
        if hits:
            _estimate(estimates, [row for row, _ in rows], hits)
            continue
        for row, stack in rows:
            reason = None
            if tid is None:
                reason = "no launching call was recorded"
            elif stack is None:
                reason = NO_STACKS if not samples else NO_SAMPLES
            _put(exact, stack, stack is not None or None, reason, row)
    return exact, estimates


NO_STACKS = "no stacks of the process were recorded"
NO_SAMPLES = "no stack and no sample at calls that launch these operations"


def _put(
    counts: Counts, stack: int | None, exact: bool | None, reason: str | None, row: Row
) -> list[Any]:
    function, called = CODE[stack] if stack is not None else (None, None)
    entry = counts[function, called, exact, reason]
    entry[0] += row["kind"] == "kernel"
    entry[1] += row["end_ns"] - row["start_ns"]
    return entry


def _kernels(row: Row) -> int:
    return int(row["kind"] == "kernel")


def _duration(row: Row) -> int:
    return int(row["end_ns"] - row["start_ns"])


def _estimate(counts: Counts, rows: list[Row], hits: list[tuple[Row, Row]]) -> None:
    """Divide launches of one operation among samples, each of which stands for short calls more."""
    for at, size in enumerate((_kernels, _duration)):
        weights = [size(row) / (row["api_end_ns"] - row["api_start_ns"]) for _, row in hits]
        if not sum(weights):
            weights = [1] * len(hits)
        for (sample, _), weight in zip(hits, weights, strict=True):
            entry = counts[*CODE[sample["stack_id"]], False, None]
            entry[at] += sum(map(size, rows)) * weight / sum(weights)
            entry[2] += not at


@settings(max_examples=60, deadline=None)
@given(_cases())
def test_launches_belong_to_the_code_at_their_calls(case: tuple[list[Row], list[Row]]) -> None:
    launches, samples = case
    found = _found(_database(launches, samples))
    exact, estimates = _counted(launches, samples)
    assert sum(row[0] for row in found.values()) == sum(r["kind"] == "kernel" for r in launches)
    assert sum(row[1] for row in found.values()) == sum(
        row["end_ns"] - row["start_ns"] for row in launches
    )
    assert found.keys() == exact.keys() | estimates.keys()
    for key, (kernels, ns, seen) in found.items():
        known, estimated = exact.get(key, [0, 0, set()]), estimates.get(key, [0, 0, 0])
        # Each of the operations (x, y, copy) of three threads may be rounded.
        near = 9 if estimated[2] else 0
        assert kernels == pytest.approx(known[0] + estimated[0], abs=near)
        assert ns == pytest.approx(known[1] + estimated[1], abs=near)
        assert seen == (len(known[2]) + estimated[2] if key[2] is False else None)


def test_long_calls_do_not_hide_short_ones() -> None:
    """Line a copies in calls of 900 ns, b in calls of 100 ns; all copies take as long.

    Nine of ten samples see a, but a launches as much as b.
    """
    launches, samples = [], []
    for number in range(20):
        call = 900 if number % 2 else 100
        launches.append(_launch(number, MAIN, 1_000 * number, call, "copy", 10))
    for number in range(10):
        at = 1_000 * (2 * number + 1 if number else 0) + 5
        times: Row = {"time_ns": at, "start_ns": at, "end_ns": at + 1, "source": "python sampling"}
        samples.append({"pid": PID, "tid": MAIN, "stack_id": A if number else B, **times})
    found = _found(_database(launches, samples))
    assert {key[0]: row[1] for key, row in found.items()} == {"a": 100, "b": 100}
    assert {key[0]: row[2] for key, row in found.items()} == {"a": 9, "b": 1}


def test_instances_of_a_module_are_one_function() -> None:
    db = _database([_launch(n, MAIN, 10 * n, 5, "x", 1) for n in range(2)], [])
    for n in range(2):
        frame = {"frame_id": 10 + n, "function": f"nn.Module: Linear_{n}", "kind": "library"}
        db.add("host_frames", frame)
        for depth, number in enumerate((10 + n, 0)):
            db.add("host_stacks", {"stack_id": 10 + n, "depth": depth, "frame_id": number})
        times = {"time_ns": 10 * n, "start_ns": 10 * n, "end_ns": 10 * n + 9}
        sample = {"pid": PID, "tid": MAIN, "stack_id": 10 + n, "source": "python tracing"}
        db.add("host_samples", {**sample, **times})
    assert _found(db) == {("a", "nn.Module: Linear", True, None): (2, 2, None)}


#: Lines that launch, in captures: function, line, function that it calls, kernels, whether exact.
LINES = {
    "stacks/backtraces_cpp.sqlite": {
        ("step(float*, int, std::vector<double, std::allocator<double> >&)", None,
         "cudaLaunchKernel", 85, True),
        ("main", None, "cudaMemset", 0, True),
    },
    # cuBLAS launches through the driver, which has no backtraces: one sample hit such a call.
    "stacks/backtraces_python.sqlite": {
        ("<module>", 17, "forward", 32, True),
        ("<module>", 17, "forward", 32, False),
        ("<module>", 18, None, 128, True),
        ("update", 7, None, 0, True),
    },
}  # fmt: skip

_LAUNCHED = "SELECT function, line, library_function, kernels, exact FROM launch_code"


@pytest.mark.parametrize("name", LINES)
def test_lines_that_launch(name: str, opened: Opened) -> None:
    with opened(name) as session:
        assert set(session.execute(_LAUNCHED).fetchall()) == LINES[name]


def test_launches_of_autograd_belong_to_the_line_that_waits(captures: Store) -> None:
    """A trace of a training loop, which autograd's own thread launches the most of."""
    report = ingest(DATA / "torch" / "with_stack.kineto.json.gz", captures).report_id
    with Session.open(captures, [report]) as session:
        found = session.execute(_LAUNCHED).fetchall()
        (tids,) = session.execute(
            "SELECT count(DISTINCT l.tid), count(DISTINCT s.tid) FROM _analysed_launches AS l"
            " CROSS JOIN host_samples AS s"
        ).fetchall()
        whole = session.execute(
            "SELECT count(*) FILTER (kind = 'kernel'), sum(end_ns - start_ns)"
            " FROM _analysed_launches"
        ).fetchall()
        total = session.execute("SELECT sum(kernels), sum(time_ns) FROM launch_code").fetchall()
    assert tids == (2, 1)
    assert total == whole
    assert ("<module>", None, "backward", 70, True) in found
    assert ("<module>", None, "nn.Module: Sequential", 25, True) in found
