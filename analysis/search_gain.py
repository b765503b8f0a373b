"""Gains of a search's configurations over its default, judged like runs."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from perfpipe.analysis.gate.choosing import judge
from perfpipe.analysis.gate.judging import Change, change_of, false_discovery, verdict_of
from perfpipe.analysis.history import History, Trial
from perfpipe.analysis.thresholds import thresholds


@dataclass(frozen=True)
class Gain:
    """The gain of a configuration over the default, with the verdict.

    `launches` are the numbers for the default and itself.  With `confirmed`, both were launched
    again after the search, alternating: these times are free of selection bias.
    """

    change: Change
    verdict: str
    default_ms: float
    launches: tuple[int, int]
    confirmed: bool = False

    @property
    def pct(self) -> float:
        """How much faster it is, %: 100 (default / own - 1)."""
        return 100 * (1 / (1 + self.change.ratio) - 1)

    @property
    def interval_pct(self) -> tuple[float, float] | None:
        """The 95 % interval of how much faster it is, %; None with one launch of either."""
        if self.change.low is None or self.change.high is None:
            return None
        return 100 * (1 / (1 + self.change.high) - 1), 100 * (1 / (1 + self.change.low) - 1)


def gains(history: History) -> dict[int, Gain]:
    """Return the gain of each valid trial over the default, by index of the trial.

    With the launches of the search, all trials are tested together, because the fastest is chosen
    among them, and the default was launched before the others.  If the fastest and the default
    were launched again alternately, only those launches decide.
    """
    default = history.default
    if default is None or not default.time_ms:
        return {}
    changes = {
        trial.index: change_of(_launches(default), _launches(trial), _resolution_ms())
        for trial in history.worked
        if trial is not default
    }
    tested = {index: change.p for index, change in changes.items() if change.p is not None}
    q_values = dict(zip(tested, false_discovery(list(tested.values())), strict=True))
    counts = {trial.index: len(_launches(trial)) for trial in history.worked}
    found = {
        index: Gain(
            change,
            verdict_of(change, q_values.get(index), interleaved=False),
            default.time_ms,
            (counts[default.index], counts[index]),
        )
        for index, change in changes.items()
    }
    best = history.best
    if best and best is not default and best.confirming and default.confirming:
        found[best.index] = _confirmed(default, best)
    return found


def _confirmed(default: Trial, best: Trial) -> Gain:
    change, verdict = judge(default.confirming, best.confirming, _resolution_ms())
    return Gain(
        change,
        verdict,
        statistics.median(default.confirming),
        (len(default.confirming), len(best.confirming)),
        confirmed=True,
    )


def _launches(trial: Trial) -> tuple[float, ...]:
    return trial.launches or ((trial.time_ms,) if trial.time_ms else ())


def _resolution_ms() -> float:
    return thresholds()["compare.timer_ns"] / 1e6
