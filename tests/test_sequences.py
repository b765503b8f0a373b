"""Runs and predecessors against looking at every value."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.ingest.arrays import NONE, numbered
from perfpipe.ingest.sequences import depths, latest_reaching, over_runs

pytestmark = pytest.mark.usefixtures("few_rows")

_VALUES = st.lists(st.integers(-9, 9), max_size=70)


@given(_VALUES, st.data())
def test_extremes_of_runs_in_any_order(values: list[int], data: st.DataObject) -> None:
    place = st.integers(0, len(values))
    runs = data.draw(st.lists(st.tuples(place, place).map(sorted), max_size=30))
    first, last = np.array(runs, np.int32).reshape(-1, 2).T
    numbers = np.array(values, np.int64)
    smallest = over_runs(np.minimum, numbers, first, last).tolist()
    largest = over_runs(np.maximum, numbers, first, last).tolist()
    assert smallest == [min(values[i:j], default=0) for i, j in runs]
    assert largest == [max(values[i:j], default=0) for i, j in runs]


@given(_VALUES, st.data())
def test_the_latest_value_that_reaches_a_bound(values: list[int], data: st.DataObject) -> None:
    place = st.integers(-1, len(values) - 1)
    asked = data.draw(st.lists(st.tuples(place, st.integers(-10, 10)), max_size=30))
    places, bounds = np.array(asked, np.int64).reshape(-1, 2).T
    assert latest_reaching(np.array(values, np.int64), places, bounds).tolist() == [
        max((i for i in range(at + 1) if values[i] >= bound), default=NONE) for at, bound in asked
    ]


@given(st.lists(st.integers(0, 60), max_size=60))
def test_depth_is_the_number_of_ancestors(back: list[int]) -> None:
    parent = [max(NONE, i - 1 - step) for i, step in enumerate(back)]
    expected: list[int] = []
    for above in parent:
        expected.append(0 if above == NONE else expected[above] + 1)
    assert depths(np.array(parent, np.int32)).tolist() == expected


def test_a_run_of_millions() -> None:
    values = np.arange(1 << 22)
    first, last = np.array([0, 1], np.int32), np.array([1 << 22, (1 << 22) - 1], np.int32)
    assert over_runs(np.maximum, values, first, last).tolist() == [(1 << 22) - 1, (1 << 22) - 2]


@pytest.mark.parametrize("most", [3, 10**12])
def test_codes_are_numbered_however_large(most: int) -> None:
    codes = np.array([most, 0, 2, most, 2], np.int64)
    present, place = numbered(codes)
    assert present.tolist() == [0, 2, most]
    assert present[place].tolist() == codes.tolist()
