"""Python functions of torch.profiler traces, as stacks over time."""

from __future__ import annotations

import json
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pytest
from conftest import DATA
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpipe.ingest.frames import Frame
from perfpipe.ingest.reading import ingest
from perfpipe.ingest.torch.python_stacks import frame_of
from perfpipe.store import Store

#: An operator from 0 to 50 ns: other times count from the start of the first one.
OPERATOR = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 7, "tid": 7, "ts": 0.001,
            "dur": 0.05}  # fmt: skip

_STACKS = """
    SELECT s.pid, s.tid, s.start_ns, s.end_ns, list(f.function ORDER BY k.depth DESC)
    FROM '{0}/host_samples.parquet' AS s
    JOIN '{0}/host_stacks.parquet' AS k USING (stack_id)
    JOIN '{0}/host_frames.parquet' AS f USING (frame_id)
    GROUP BY ALL ORDER BY s.start_ns, s.tid
"""


def _stacks(events: list[dict[str, Any]], directory: Path) -> list[tuple[Any, ...]]:
    """Return process, thread, start, end and functions, outermost first, of each stack."""
    path = directory / "trace.json"
    path.write_text(json.dumps({"traceEvents": [OPERATOR, *events]}))
    store = Store(directory / "store")
    report = store.root / "reports" / ingest(path, store).report_id
    if not (report / "host_samples.parquet").exists():
        return []
    return duckdb.execute(_STACKS.format(report)).fetchall()


def _function(name: str, start: int, end: int, tid: int = 7) -> dict[str, Any]:
    """Return the event of a function; times in ns after the operator's start."""
    return {
        "ph": "X", "cat": "python_function", "name": f"train.py(1): {name}", "pid": 7, "tid": tid,
        "ts": (start + 1) / 1000, "dur": (end - start) / 1000,
    }  # fmt: skip


Calls = list[tuple[str, int, int]]

#: Names of functions with cuts of the time that they take.
_TREES: Any = st.recursive(
    st.just([]),
    lambda inner: st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 9), inner), max_size=4
    ),
    max_leaves=12,
)


def _calls(tree: Any, start: int, end: int) -> Calls:
    """Return the calls of a tree, callers first, whose times lie between two times."""
    found: Calls = []
    for name, skipped, lasting, inner in tree:
        begin = min(start + skipped, end)
        start = min(begin + lasting, end)
        found += [(name, begin, start), *_calls(inner, begin, start)]
    return found


@settings(max_examples=40, deadline=None)
@given(_TREES, _TREES)
def test_stacks_cover_each_nanosecond_of_the_functions_once(one: Any, two: Any) -> None:
    threads = {7: _calls(one, 0, 40), 9: _calls(two, 5, 60)}
    events = [_function(*call, tid) for tid, calls in threads.items() for call in calls]
    with TemporaryDirectory() as directory:
        found = _stacks(events, Path(directory))
    expected = []
    for tid, calls in threads.items():
        at = [[name for name, start, end in calls if start <= ns < end] for ns in range(60)]
        for stack, group in groupby(enumerate(at), key=itemgetter(1)):
            times = [ns for ns, _ in group]
            if stack:
                expected.append((7, tid, times[0], times[-1] + 1, stack))
    assert found == sorted(expected, key=lambda row: (row[2], row[1]))


def test_a_function_that_outlasts_its_caller_ends_with_it(tmp_path: Path) -> None:
    """Kineto rounds starts and durations, so that ends may differ by a nanosecond."""
    found = _stacks([_function("a", 0, 10), _function("b", 4, 11)], tmp_path)
    assert [row[2:] for row in found] == [(0, 4, ["a"]), (4, 10, ["a", "b"])]


def test_functions_before_the_first_operator_have_negative_times(tmp_path: Path) -> None:
    event = _function("a", -1, 3)
    found = _stacks([event], tmp_path)
    assert [row[2:] for row in found] == [(-1, 3, ["a"])]


def test_deep_recursion_keeps_the_outer_frames(tmp_path: Path) -> None:
    events = [_function(f"f{depth}", depth, 5_000 - depth) for depth in range(2_000)]
    found = _stacks(events, tmp_path)
    assert sum(end - start for _, _, start, end, _ in found) == 5_000
    assert max(len(stack) for *_, stack in found) == 1_000


@pytest.mark.parametrize(
    ("name", "frame"),
    [
        ("torch/nn/modules/linear.py(124): forward",
         Frame("forward", "torch/nn/modules/linear.py", 124)),
        ("C:\\v\\a (1)\\b.py(3): <lambda>", Frame("<lambda>", "C:\\v\\a (1)\\b.py", 3)),
        # Lines of functions that had begun before the trace may be unknown.
        ("train.py(0): <module>", Frame("<module>", "train.py", None)),
        ("<string>(2): __init__", Frame("__init__", "<string>", 2)),
        ("nn.Module: Linear_0", Frame("nn.Module: Linear_0", "torch/nn/modules/module.py", None)),
        ("<built-in method item of Tensor object>",
         Frame("<built-in method item of Tensor object>", None, None)),
    ],
)  # fmt: skip
def test_names_of_functions(name: str, frame: Frame) -> None:
    assert frame_of(name) == frame


def test_addresses_do_not_multiply_stacks(tmp_path: Path) -> None:
    events = []
    for at in range(3):
        event = _function("", 10 * at, 10 * at + 10)
        event["name"] = f"<built-in method item of Tensor object at 0x7f{at:08x}>"
        events.append(event)
    found = _stacks(events, tmp_path)
    assert [row[2:] for row in found] == [(0, 30, ["<built-in method item of Tensor object>"])]


def test_a_trace_without_functions_states_how_to_record_them(tmp_path: Path) -> None:
    trace = DATA / "torch" / "train_step.kineto.json.gz"
    store = Store(tmp_path / "store")
    gaps = {
        gap.table: gap.reason
        for gap in store.manifest(ingest(trace, store).report_id).missing
        if gap.table.startswith("host_")
    }
    assert gaps.keys() == {"host_frames", "host_stacks", "host_samples"}
    assert all("with_stack=True" in reason for reason in gaps.values())
