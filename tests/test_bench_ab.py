"""The benchmark of `perfpipe ab` by the command line: its intervals, and what it measures."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import scipy
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture(scope="module")
def bench() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        return importlib.import_module("bench_ab")


@given(st.integers(1, 500), st.floats(0, 1))
def test_intervals_are_those_of_wilson(bench: Any, of: int, share: float) -> None:
    count = round(share * of)
    oracle = scipy.stats.binomtest(count, of).proportion_ci(method="wilson")
    assert bench.wilson(count, of) == pytest.approx((oracle.low, oracle.high), abs=1e-6)


def test_comparisons_are_those_of_the_command(bench: Any) -> None:
    kind = "slow first launch"
    found = [bench.Case(kind, 1, 1, change).measured(3) for change in (0.0, 0.1)]
    assert [(own["verdict"], own["code"]) for own in found] == [("same", 0), ("regressed", 3)]
    assert found[1]["action"] == "revert"
    assert found[1]["found_pct"] == pytest.approx(10, abs=1.5)
    assert all(own["first_run"] for own in found)
    lines = bench.tables(found).splitlines()
    row = next(line for line in lines if line.startswith(f"| {kind}, 10 % slower | 1 and 1 |"))
    assert row.count("100 (20.7 to 100.0)") == 3
    page = f"a\n{bench.BEGIN}\nold\n{bench.END}\nb\n"
    assert bench._with_tables(page, "new\n") == page.replace("old", "new")
