"""Nesting of push/pop ranges against a stack."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.ingest.columns import Columns
from perfpipe.ingest.nsys.ranges import nesting

pytestmark = pytest.mark.usefixtures("few_rows")

Range = tuple[int, int, int]  # start, end, thread


@st.composite
def push_pop_traces(draw: st.DrawFn) -> list[Range]:
    """Return ranges as threads make them: push and pop with a clock that may stand still."""
    ranges: list[Range] = []
    for thread in range(draw(st.integers(1, 3))):
        clock = draw(st.integers(-5, 5))
        stack: list[int] = []
        for _ in range(draw(st.integers(0, 12))):
            clock += draw(st.integers(1, 3))
            if stack and draw(st.sampled_from([True, False])):
                ranges.append((stack.pop(), clock, thread))
            else:
                stack.append(clock)
        while stack:
            clock += draw(st.integers(1, 2))
            ranges.append((stack.pop(), clock, thread))
    return sorted(ranges, key=lambda r: (r[0], -r[1], r[2]))


def _stack(ranges: list[Range]) -> list[tuple[int, int | None]]:
    """Return (depth, parent) by keeping a stack of open ranges for each thread."""
    open_ranges: dict[int, list[int]] = {}
    found: list[tuple[int, int | None]] = []
    for index, (start, _, thread) in enumerate(ranges):
        stack = open_ranges.setdefault(thread, [])
        while stack and ranges[stack[-1]][1] <= start:
            stack.pop()
        found.append((len(stack), stack[-1] if stack else None))
        stack.append(index)
    return found


def _nesting(ranges: list[Range], nested: list[bool]) -> list[tuple[int | None, int | None]]:
    columns = np.array(ranges, np.int64).reshape(-1, 3)
    depth, parent = nesting(
        columns[:, 0], columns[:, 1], columns[:, 2], np.array(nested, bool), Columns()
    )
    # -1 stands for none.
    known = ([None if n < 0 else n for n in column.tolist()] for column in (depth, parent))
    return list(zip(*known, strict=True))


@given(push_pop_traces())
def test_depth_and_parent_against_a_stack(ranges: list[Range]) -> None:
    assert _nesting(ranges, [True] * len(ranges)) == _stack(ranges)


def test_touching_ranges_are_siblings_and_points_lie_inside() -> None:
    ranges = [(0, 10, 1), (0, 4, 1), (4, 6, 1), (5, 5, 1), (6, 10, 1), (10, 12, 1)]
    assert _nesting(ranges, [True] * 6) == [(0, None), (1, 0), (1, 0), (2, 2), (1, 0), (0, None)]


def test_marks_and_start_end_ranges_have_no_depth() -> None:
    ranges = [(0, 10, 1), (1, 9, 1), (2, 3, 1)]
    assert _nesting(ranges, [True, False, True]) == [(0, None), (None, None), (1, 0)]


def test_no_ranges() -> None:
    assert _nesting([], []) == []
