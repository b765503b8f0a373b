"""One run on each side: when the direction of a change is certain."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import DATA, Cli
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.analysis.gate.compare.certain import direction_of, times_of
from perfpipe.analysis.gate.compare.comparison import Compared, pairs_of
from perfpipe.analysis.gate.decision import Action, Verdict, decide
from perfpipe.analysis.gate.sides import ITERATION, KERNEL, Key, Measured, Side


def _side(name: str, time: float, spread: float | None, part: str = ITERATION) -> Side:
    measured = Measured([time], [time], [1], [None], [None], [] if spread is None else [spread])
    return Side({Key("", "a", part): measured}, frozenset({"H200"}), (name,), (None,))


def _pair(
    before: float, after: float, spreads: tuple[float | None, ...], part: str = ITERATION
) -> Compared:
    sides = (_side("A", before, spreads[0], part), _side("B", after, spreads[1], part))
    pairs = pairs_of(*sides)
    return (*pairs.steps, *pairs.kernels)[0]


def test_a_multiple_is_certain_and_a_percentage_is_not() -> None:
    assert "direction is certain (iterations vary by 4 %)" in direction_of(
        _pair(7e6, 1e6, (0.02, 0.04))
    )
    assert direction_of(_pair(1e6, 7e6, (0.02, 0.02)))
    assert not direction_of(_pair(1e6, 1.4e6, (0.0, 0.0))), "runs may drift"
    assert not direction_of(_pair(1e6, 2e6, (0.5, 0.0))), "steps of the sides may overlap"
    assert not direction_of(_pair(1e6, 7e6, (0.02, None))), "the scatter is unknown"
    assert not direction_of(_pair(1e6, 7e6, (0.02, 0.02), KERNEL))


@given(st.floats(0.05, 20), st.floats(0, 3), st.floats(0, 3))
def test_what_is_certain_does_not_overlap(ratio: float, one: float, other: float) -> None:
    """Times that lie as far from the medians as the 95th percentiles, on either side."""
    pair = _pair(1e6, 1e6 * ratio, (one, other))
    if direction_of(pair):
        low, high = sorted([(1.0, one), (ratio, other)])
        assert low[0] * (1 + low[1]) < high[0] / (1 + high[1])
        assert high[0] / low[0] >= 1.49


@pytest.mark.parametrize(("after", "action"), [(1e6, Action.CONTINUE), (49e6, Action.INVESTIGATE)])
def test_the_decision_names_the_direction(after: float, action: Action) -> None:
    found = decide(pairs_of(_side("A", 7e6, 0.02), _side("B", after, 0.02)))
    assert (found.verdict, found.action) == (Verdict.UNREPLICATED, action)
    assert f"7 times {'faster' if after < 7e6 else 'as long'}; with one run" in found.reason
    assert found.advice.startswith("rely on the direction")
    small = decide(pairs_of(_side("A", 7e6, 0.02), _side("B", 6.9e6, 0.02)))
    assert small.action == Action.INVESTIGATE and "direction" not in small.reason


def test_two_captures_with_a_multiple_between_them(cli: Cli, tmp_path: Path) -> None:
    names = [DATA / "nsys" / f"{name}.sqlite.xz" for name in ("eager_small", "graph_node")]
    assert cli("ingest", *names) == 0, cli.err
    asked = [f"{name.name}" for name in names]
    assert cli("compare", *asked, "--json", "c.json", "--html", "c.html") == 0, cli.err
    said = " ".join(cli.out.split())
    assert "step: 7 times faster; with one run on a side, the direction is certain (steps" in said
    page = (tmp_path / "c.html").read_text()
    assert "9.09 ms: 7 times faster;" in page and "before you accept or reject" not in page
    assert json.loads((tmp_path / "c.json").read_text())["verdict"] == "unreplicated"


def test_multiples() -> None:
    assert times_of(-6 / 7) == "7 times faster"
    assert times_of(6) == "7 times as long"
