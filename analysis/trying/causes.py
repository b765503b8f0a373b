"""What the slopes of handicaps show: which resources a unit of work waits for."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

from perfpipe.analysis.thresholds import thresholds
from perfpipe.analysis.trying.slopes import Estimate, Slopes
from perfpipe.files import packaged

#: Handicaps that take resources away.  The others delay events.
FEWER = ("cores", "sms")


@dataclass(frozen=True)
class Cause:
    """How the time of a unit depends on a handicap.

    `amount` is the smaller handicap in words, and `amount_us` the delay of each event if it is one.
    `delays_ms` are the handicaps per unit.  `parallel` is the number of workers that share the
    events: a worker's delay is spread over that many events, so a slope of 1 / `parallel` is full.
    `unavailable` says why there is no slope.
    """

    handicap: str
    unit: str = "step"
    unit_ms: float | None = None
    amount: str = ""
    amount_us: float | None = None
    events_per_unit: float | None = None
    delays_ms: tuple[float, ...] = ()
    slopes: Slopes | None = None
    parallel: int = 1
    launches: int = 0
    note: str = ""
    unavailable: str = ""

    @property
    def share(self) -> Estimate | None:
        """The share of a delay that reaches the unit."""
        return None if self.slopes is None else self.slopes.overall.times(self.parallel)

    @property
    def kind(self) -> str:
        """Bound, partial, hidden, unclear or not available."""
        return "not available" if self.share is None else _kind(self.share)

    @property
    def slack_ms(self) -> float | None:
        """How much later the events of a unit can be without making it longer, ms.

        None if it is unknown.  With `more_slack`, it is more than that.
        """
        if self.slopes is None or self.handicap in FEWER:
            return None
        if self.more_slack:
            return self.delays_ms[-1]
        last = self.slopes.parts[-1].times(self.parallel)
        if not self.slopes.bends or last.value < thresholds()["sensitivity.bound_share"]:
            return None
        widths = [after - before for before, after in pairwise(self.delays_ms)]
        parts = zip(self.slopes.parts, widths, strict=True)
        added = sum(part.value * width for part, width in parts)
        return min(max(sum(widths) - self.parallel * added, 0.0), sum(widths))

    @property
    def more_slack(self) -> bool:
        """Whether the largest delay was hidden too."""
        if self.slopes is None or self.kind != "hidden" or self.handicap in FEWER:
            return False
        return _kind(self.slopes.parts[-1].times(self.parallel)) in ("hidden", "unclear")

    @property
    def meaning(self) -> str:
        """What the slope shows, or why there is none."""
        if self.unavailable:
            return f"not available: {self.unavailable}"
        if self.kind == "unclear":
            said = "The launches scatter too much to decide."
        else:
            said = _table()["handicap"][self.handicap][self.kind].format(unit=self.unit)
        if self.slack_ms is not None:
            about = "more than" if self.more_slack else "about"
            said += f" The slack is {about} {_digits(self.slack_ms)} ms per {self.unit}."
        if self.parallel > 1:
            full = _digits(1 / self.parallel)
            said += f" {self.parallel} workers load in parallel, so a slope of {full} is full."
        return said

    def row(self) -> dict[str, Any]:
        """Return what the output in JSON has."""
        slope = None if self.slopes is None else self.slopes.overall
        return {
            "handicap": self.handicap,
            "amount": self.amount or None,
            "amount_us": self.amount_us,
            "unit": self.unit,
            "unit_ms": self.unit_ms,
            "events_per_unit": self.events_per_unit,
            "delays_ms": [*self.delays_ms],
            "slope": None if slope is None else slope.value,
            "interval": None if slope is None else [slope.low, slope.high],
            "parallel": self.parallel,
            "kind": self.kind,
            "slack_ms": self.slack_ms,
            "slack_is_more": self.more_slack,
            "meaning": self.meaning,
            "launches": self.launches,
            "note": self.note or None,
            "unavailable": self.unavailable or None,
        }


def none(handicap: str) -> str:
    """Return why a handicap that met no event has no slope."""
    return str(_table()["handicap"][handicap]["none"])


def event(handicap: str) -> str:
    """Return what a handicap delays: a batch, a call, ..."""
    return str(_table()["handicap"][handicap]["event"])


def lines(causes: Mapping[str, Cause]) -> list[str]:
    """Return the causes as lines of text, in columns."""
    shown = [cause for cause in causes.values() if not cause.unavailable]
    table = [("handicap", "amount", "events", "slope", "meaning")]
    for cause in shown:
        slope = cause.slopes.overall if cause.slopes else None
        events = "" if cause.events_per_unit is None else f"{_digits(cause.events_per_unit)}"
        table.append((
            cause.handicap,
            cause.amount,
            f"{events} per {cause.unit}" if events else "",
            f"{slope.value:.2f} ({slope.low:.2f} to {slope.high:.2f})" if slope else "",
            cause.meaning,
        ))  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*table, strict=True)][:-1]
    text = [
        "  ".join([*(word.ljust(wide) for word, wide in zip(row, widths, strict=False)), row[-1]])
        for row in table
        if shown
    ]
    notes = dict.fromkeys(cause.note for cause in shown if cause.note)
    missing = [
        f"{cause.handicap}: {cause.meaning}" for cause in causes.values() if cause not in shown
    ]
    return [*text, *(f"note: {note}" for note in notes), *missing]


def compared(cause: Cause, predicted: float) -> str:
    """Return the slope that a replay of the timeline predicts, beside the measured one."""
    assert cause.slopes is not None  # noqa: S101
    slope = cause.slopes.overall
    how = "within" if slope.low <= predicted <= slope.high else "outside"
    return (
        f"The replay of the timeline predicts a slope of {predicted:.2f} for {cause.handicap}, "
        f"{how} the measured {slope.low:.2f} to {slope.high:.2f}."
    )


def contradicts(category: str, causes: Mapping[str, Cause]) -> str | None:
    """Return why slopes contradict the verdict of a timeline; None if they do not.

    `category` is one of timeline_bottleneck, or input for a program that waits for its loader.
    """
    for rule in _table()["contradiction"]:
        cause = causes.get(rule["handicap"])
        if cause is None or category not in rule["categories"] or cause.kind != rule["kind"]:
            continue
        if not _certain(cause):
            continue
        share = cause.share
        assert share is not None and cause.slopes is not None  # noqa: S101
        slope = cause.slopes.overall
        because = rule["because"].format(unit=cause.unit)
        return (
            f"The slope of {cause.handicap}, {slope.value:.2f} ({slope.low:.2f} to "
            f"{slope.high:.2f}), contradicts the verdict {category}: {because}."
        )
    return None


def _kind(share: Estimate) -> str:
    """Return the kind of a slope; unclear if its interval reaches what would be the opposite."""
    limits = thresholds()
    hidden, bound = limits["sensitivity.hidden_share"], limits["sensitivity.bound_share"]
    if share.value >= bound:
        return "bound" if share.low > hidden else "unclear"
    if share.value <= hidden:
        return "hidden" if share.high < bound else "unclear"
    return "unclear" if share.low <= hidden and share.high >= bound else "partial"


def _certain(cause: Cause) -> bool:
    """Return whether the whole interval is on one side of the middle."""
    limits = thresholds()
    middle = (limits["sensitivity.hidden_share"] + limits["sensitivity.bound_share"]) / 2
    share = cause.share
    return share is not None and (share.low > middle or share.high < middle)


def _digits(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(packaged("perfpipe.analysis", "trying", "sensitivity.toml"))
