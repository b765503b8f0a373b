"""The smallest changes that count, by endpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from perfpipe.analysis.gate.sides import ITERATION, WALL, Key
from perfpipe.analysis.thresholds import thresholds
from perfpipe.calibrationrecord import Calibration


@dataclass(frozen=True)
class Limits:
    """The smallest changes that count, %: `own` are those of configurations that were calibrated.

    Any other configuration takes the largest of them; times of a profiler take the default.
    """

    own: Mapping[str, float] = field(default_factory=dict)

    def __getitem__(self, key: Key) -> float:
        usual = thresholds()["compare.change_pct"]
        if key.part not in (ITERATION, WALL):
            return usual
        return self.own.get(key.label, max(self.own.values(), default=usual))


#: Nothing was calibrated.
USUAL = Limits()


def told(limits: Iterable[float]) -> str:
    """Return limits in words: from the smallest to the largest."""
    ends = sorted({*limits}) or [thresholds()["compare.change_pct"]]
    return " to ".join(f"{end:g}" for end in dict.fromkeys((ends[0], ends[-1]))) + " %"


def limits_of(calibration: Calibration | None) -> Limits:
    """Return the limits that a calibration proposes; without one, the defaults."""
    return Limits(calibration.limits) if calibration else USUAL
