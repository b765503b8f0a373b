"""What one run on each side shows: the direction of a change far larger than the scatter."""

from __future__ import annotations

import math

from perfpipe.analysis.gate.compare.comparison import Compared
from perfpipe.analysis.gate.sides import ITERATION, STEP
from perfpipe.analysis.thresholds import thresholds

#: What varies within a run.
_VARY = {ITERATION: "iterations", STEP: "steps"}


def direction_of(pair: Compared) -> str:
    """Return why the direction of a change is certain with one run on a side; empty if it is not.

    A single run does not show how much runs differ, so only a change of `compare.certain_times`
    counts, which no drift between two runs explains, and only if the steps of each run vary by
    less than a third of it (in logarithms), so that those of the two sides do not overlap.
    """
    spreads = [*pair.before.spreads, *pair.after.spreads]
    if pair.verdict != "unreplicated" or pair.change is None or pair.key.part not in _VARY:
        return ""
    if not pair.before.spreads or not pair.after.spreads:
        return ""
    size, widest = abs(math.log1p(pair.change.ratio)), math.log1p(max(spreads))
    if size < math.log(thresholds()["compare.certain_times"]) or 3 * widest >= size:
        return ""
    vary = f"{_VARY[pair.key.part]} vary by {max(1.0, 100 * max(spreads)):.0f} %"
    return f"with one run on a side, the direction is certain ({vary}), the digits are not"


def times_of(ratio: float) -> str:
    """Return a change as a multiple.

    >>> times_of(-0.5)
    '2 times faster'
    >>> times_of(1.0)
    '2 times as long'
    """
    return f"{1 / (1 + ratio):.2g} times faster" if ratio < 0 else f"{1 + ratio:.2g} times as long"
