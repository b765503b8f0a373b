"""Contradictions between events, against a search of all pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.ingest.arrays import NONE
from perfpipe.ingest.consistency import LONG_NS, open_at, overruns, unstamped

pytestmark = pytest.mark.usefixtures("few_rows")

Op = tuple[int, int, int, int]

#: Operations as stream, launch, start and length, in units of half of LONG_NS.
_OPS = st.lists(
    st.tuples(st.integers(NONE, 2), st.integers(1, 6), st.integers(0, 24), st.integers(-1, 12)),
    max_size=24,
)


def _ordered(ops: list[Op]) -> list[Op]:
    """Return operations with times in ns; a negative length means an unknown end."""
    unit = LONG_NS // 2
    made = [
        (stream, launch, unit * start, unit * (start + length) if length >= 0 else NONE)
        for stream, launch, start, length in ops
    ]
    return sorted(made, key=lambda op: op[2:])


def _searched(ops: list[Op]) -> dict[int, int]:
    """Return the operations with impossible ends, and the start of the next one, pair by pair."""
    found: dict[int, int] = {}
    for stream in {op[0] for op in ops} - {NONE}:
        wrong: dict[int, int] = {}
        overlapping = 0
        for i, (own, launch, _, end) in enumerate(ops):
            if own != stream:
                continue
            rest = [op for op in ops[i + 1 :] if op[0] == stream]
            while rest and rest[0][1] == launch:
                rest.pop(0)
            if not rest or end - rest[0][2] < LONG_NS:
                continue
            if any(op[3] != NONE and op[3] < end for op in rest):
                wrong[i] = rest[0][2]
            else:
                overlapping += 1
        if len(wrong) >= overlapping:
            found |= wrong
    return found


def _overruns(ops: list[Op]) -> dict[int, int]:
    stream, launch, start, end = (np.array([op[n] for op in ops], np.int64) for n in range(4))
    rows, limits = overruns(stream.astype(np.int32), launch, start, end)
    return dict(zip(rows.tolist(), limits.tolist(), strict=True))


@given(_OPS)
def test_impossible_ends_are_those_of_a_search(ops: list[Op]) -> None:
    ordered = _ordered(ops)
    assert _overruns(ordered) == _searched(ordered)


def test_an_end_past_later_operations_is_impossible() -> None:
    ms = LONG_NS
    ops = [(0, 1, 0, 50 * ms), *((0, n, n * ms, (n + 1) * ms) for n in range(2, 9))]
    assert _overruns(ops) == {0: 2 * ms}


def test_neighbours_of_dependent_launches_may_overlap() -> None:
    ms = LONG_NS
    assert not _overruns([(0, n, 10 * n * ms, 10 * n * ms + 12 * ms) for n in range(20)])


def test_kernels_of_one_graph_may_overlap() -> None:
    ms = LONG_NS
    ops = [(0, 1, 0, 50 * ms), *((0, 1, n * ms, (n + 1) * ms) for n in range(2, 9))]
    assert not _overruns(ops)


def test_streams_with_the_same_number_are_not_one_stream() -> None:
    ms = LONG_NS
    ranks = [(0, 2 * n, 7 * n * ms, 7 * n * ms + 7 * ms) for n in range(20)]
    ranks += [(0, 2 * n + 1, (4 + 9 * n) * ms, (13 + 9 * n) * ms) for n in range(20)]
    assert not _overruns(sorted(ranks, key=lambda op: op[2:]))


@given(
    st.lists(st.integers(0, 20)),
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5))),
    st.lists(st.integers(0, 20)),
    st.integers(0, 2),
)
def test_open_intervals_are_those_of_a_search(
    times: list[int], spans: list[tuple[int, int]], open_before: list[int], after: int
) -> None:
    """Some intervals began before the first event, and some have no end."""
    known = [(start, start + length) for start, length in spans]
    begins = [start for start, _ in known] + [30] * after
    known += [(-1, end) for end in open_before]
    ends = [end for _, end in known]
    found = open_at(*(np.array(values, np.int64) for values in (times, begins, ends)))
    assert found.tolist() == [any(start <= time <= end for start, end in known) for time in times]


def test_an_end_without_a_beginning_closes_what_was_open_from_the_start() -> None:
    times, begins, ends = (np.array(values) for values in ([1, 5, 6, 12, 25], [10, 24], [5, 20]))
    assert open_at(times, begins, ends).tolist() == [True, True, False, True, True]


def test_zero_as_start_and_end_is_no_timestamp() -> None:
    start, end = np.array([0, 0, 5]), np.array([0, 7, 5])
    assert unstamped(start, end).tolist() == [True, False, False]
    assert unstamped(0, 0)
