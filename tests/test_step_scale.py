"""Lanes that are drawn to scale: as much of them is filled as there is time in their slices."""

from __future__ import annotations

import re
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.picture import Label, Lane, Panel, Picture, Slice, View
from perfpipe.templates.step_drawing import LEFT, WIDTH, step_png, step_svg
from perfpipe.templates.step_picture import columns_of

LABELS = (Label("a", "launch_gap"), Label("b", "kernel_gap"))

#: Pairs of a gap and a length: slices that do not overlap.
LANES = st.lists(
    st.tuples(st.integers(0, 400), st.integers(1, 400), st.integers(0, 1)), min_size=1, max_size=60
)


def _slices(parts: list[tuple[int, int, int]]) -> list[Slice]:
    ends = accumulate(gap + length for gap, length, _ in parts)
    return [
        Slice(end - length, length, label)
        for end, (_, length, label) in zip(ends, parts, strict=True)
    ]


@given(LANES, st.integers(1, 50), st.integers(0, 500))
def test_columns_add_up_and_lie_where_the_slices_do(
    parts: list[tuple[int, int, int]], columns: int, behind: int
) -> None:
    slices = _slices(parts)
    dur = slices[-1].start_ns + slices[-1].dur_ns + behind
    found = columns_of(slices, LABELS, dur, columns)
    drawn = [0.0] * columns
    for column in found:
        assert 1 <= column.tenths <= 10
        for at in range(column.first, column.first + column.width):
            assert drawn[at] == 0
            drawn[at] = column.tenths / 10
    true = [0.0] * columns
    of = [{"launch_gap": 0.0, "kernel_gap": 0.0} for _ in range(columns)]
    for start, length, label, *_ in slices:
        for at in range(columns):
            low, high = at * dur / columns, (at + 1) * dur / columns
            part = max(0.0, min(high, start + length) - max(low, start)) * columns / dur
            true[at] += part
            of[at][LABELS[label].category] += part
    # What is rounded in one column is made up for in the next.
    for one, other in zip(accumulate(drawn), accumulate(true), strict=True):
        assert one == pytest.approx(other, abs=0.051)
    for column in found:
        if true[column.first] > 0:
            assert of[column.first][column.category] >= max(of[column.first].values()) - 1e-9


def _picture() -> Picture:
    # 400 gaps of 2 us in a step of 8 ms.
    slices = tuple(Slice(20_000 * at, 2_000, at % 2) for at in range(400))
    panel = Panel("GPU 0", 8_000_000, (Lane("Idle, by cause", "idle", slices),), "")
    return Picture((View("Median step", (panel,)),), LABELS)


def test_the_printed_lane_is_true_to_scale() -> None:
    svg = step_svg(_picture(), "step")
    area = 0.0
    for opacity, drawn in re.findall(
        r'stroke-width="10"(?: stroke-opacity="([\d.]+)")? fill="none" d="([^"]+)"', svg
    ):
        widths = [int(width) for width in re.findall(r"h(\d+)", drawn)]
        area += float(opacity or 1) * sum(widths)
        moves = [int(move) for move in re.findall(r"m(-?\d+) 0", drawn)]
        assert sum(moves) + sum(widths) <= WIDTH - LEFT
    assert area / (WIDTH - LEFT) == pytest.approx(0.1, abs=0.002)
    assert step_png(_picture()).startswith(b"\x89PNG")
