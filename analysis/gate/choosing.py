"""Chooses the test of a change by the scatter of the runs, and judges by it."""

from __future__ import annotations

from collections.abc import Sequence

from perfpipe.analysis.gate.judging import ALPHA, Change, Scatter, change_of, verdict_of
from perfpipe.analysis.gate.outliers import can_decide, outlying, rank_change


def change_between(
    before: Sequence[float],
    after: Sequence[float],
    resolution: float = 0,
    alpha: float = ALPHA,
    *,
    tests: int = 1,
    error: Scatter | None = None,
) -> Change:
    """Return the change between two sides: by ranks if there are outliers, else by Welch's test.

    `tests` is how many changes are tested together: with few runs, ranks cannot find a change among
    many, and Welch's test is used in any case.  `error` is that of change_of.
    """
    if can_decide(before, after, alpha / tests) and outlying(before, after, resolution):
        return rank_change(before, after, resolution, alpha)
    return change_of(before, after, resolution, alpha, error=error)


def judge(
    before: Sequence[float],
    after: Sequence[float],
    resolution: float = 0,
    *,
    interleaved: bool = True,
    limit_pct: float | None = None,
) -> tuple[Change, str]:
    """Return the change between two sides and the verdict on it, if nothing else is tested."""
    change = change_between(before, after, resolution)
    verdict = verdict_of(change, change.p, interleaved=interleaved, limit_pct=limit_pct)
    return change, verdict
