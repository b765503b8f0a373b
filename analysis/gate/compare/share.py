"""Shares of the change in a step's time."""

from __future__ import annotations

from dataclasses import dataclass

from perfpipe.analysis.gate.compare.comparison import Compared
from perfpipe.analysis.thresholds import thresholds
from perfpipe.units import format_ns

#: Least share of the change that a row of a table has, %.
_LEAST_PCT = 1


@dataclass(frozen=True)
class Share:
    """Shares of the change in a step's time."""

    whole_ns: float
    step: Compared | None

    def __bool__(self) -> bool:
        """Whether the time changed enough for shares to be meaningful."""
        before_ns = self.step.before_ns if self.step else None
        least = thresholds()["compare.change_pct"] / 100
        return bool(before_ns) and abs(self.whole_ns) > least * (before_ns or 0)

    def of(self, change_ns: float) -> float | None:
        """Return the share of a part's change, %; None if the whole hardly changed."""
        return 100 * change_ns / self.whole_ns if self else None

    def tells(self, change_ns: float) -> bool:
        """Whether the part is a large enough share of the change to be named."""
        return abs(self.of(change_ns) or 0) >= thresholds()["compare.share_pct"]

    def counts(self, change_ns: float) -> bool:
        """Whether the part is large enough for a row of the table; always, without shares."""
        return change_ns != 0 and abs(self.of(change_ns) or _LEAST_PCT) >= _LEAST_PCT

    def text(self, change_ns: float) -> str:
        """Return a part's change with its share."""
        share = self.of(change_ns)
        return signed(change_ns) + ("" if share is None else f", {share:.0f} % of the change")


def signed(ns: float) -> str:
    """Return a difference in time, with its sign.

    >>> signed(-1500)
    '-1.5 us'
    """
    return ("+" if ns >= 0 else "-") + format_ns(abs(ns))
