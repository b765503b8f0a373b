"""Analyzes launches of an unchanged program: scatter, drift, modes, and a proposed threshold.

Error rates are those of the gate's own rule, on comparisons drawn from the measured launches:
independent launches if the data allow it, else stretches of consecutive launches, which keep their
correlation.  Thresholds hold for both.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from perfpipe.analysis.gate.choosing import judge
from perfpipe.analysis.gate.modes import two_modes
from perfpipe.analysis.gate.power import detectable
from perfpipe.analysis.thresholds import thresholds
from perfpipe.calibrationrecord import Calibrated, Modes, Setting

if TYPE_CHECKING:
    import numpy as np

    Logs = np.ndarray[Any, np.dtype[np.float64]]

#: Fewest launches of a calibration.
FEWEST = 6

#: Rounds that may be proposed: fewer cannot show two modes.
ROUNDS = (4, 5, 6, 7, 8, 10, 12, 15, 20, 25, 30)

#: Comparisons that are drawn to find a threshold, to count false alarms, and to count detections.
_DRAWS, _UNCHANGED, _CHANGED = 4000, 1000, 300

_ALPHA, _POWER = 0.05, 0.95

#: Share of calibrations that would underestimate the scatter that a proposal assumes.
_CAUTION = 0.8


def calibrate(
    label: str,
    launches_ms: Sequence[Sequence[float]],
    *,
    rounds: int,
    change_pct: float,
    resolution_ms: float = 0,
) -> Calibrated:
    """Calibrate a configuration by its launches, in order, each with its samples.

    `rounds` are those in use now, `change_pct` is the smallest change to detect, and times are
    multiples of `resolution_ms`.  There are at least FEWEST launches.
    """
    times = [statistics.median(samples) for samples in launches_ms]
    logs = [math.log(time) for time in times]
    drift, margin, rest = _line(logs)
    bound = 1.96 / math.sqrt(len(logs))
    correlation = _autocorrelation(rest)
    drifts = abs(drift) > margin
    correlated = correlation is not None and abs(correlation) > bound
    deviation = statistics.stdev(logs)
    low, high = _interval(deviation, len(logs))
    draws = _Draws(logs, together=drifts or correlated, resolution_ms=resolution_ms)
    usual = thresholds()["compare.change_pct"]
    return Calibrated(
        label=label,
        launches=len(times),
        median_ms=statistics.median(times),
        between_pct=100 * deviation,
        between_low_pct=100 * low,
        between_high_pct=100 * high,
        within_pct=_within(launches_ms),
        drift_pct=100 * math.expm1(drift),
        drift_low_pct=100 * math.expm1(drift - margin),
        drift_high_pct=100 * math.expm1(drift + margin),
        autocorrelation=correlation,
        correlated=correlated,
        modes=_modes(times),
        now=draws.setting(rounds, usual, change_pct),
        proposed=_proposed(draws, rounds, change_pct),
    )


def _proposed(draws: _Draws, rounds: int, change_pct: float) -> Setting:
    """Return the fewest rounds that detect the change, and a threshold above unchanged programs.

    If no reasonable number detects it, return the current `rounds`.
    """
    from scipy.special import chdtri

    freedom = len(draws.logs) - 1
    wider = _Draws(
        draws.logs,
        together=draws.together,
        resolution_ms=draws.resolution_ms,
        factor=math.sqrt(freedom / float(chdtri(freedom, _CAUTION))),
    )
    for count in ROUNDS:
        limit = wider.limit_pct(count)
        if limit < change_pct and wider.found(count, limit, change_pct) >= _POWER:
            return draws.setting(count, limit, change_pct)
    return draws.setting(rounds, wider.limit_pct(rounds), change_pct)


class _Draws:
    """Comparisons of the program with itself, drawn from its launches with a fixed seed."""

    def __init__(
        self,
        logs: Sequence[float],
        *,
        together: bool,
        resolution_ms: float,
        factor: float = 1.0,
    ) -> None:
        import numpy as np

        self.logs, self.together, self.resolution_ms = logs, together, resolution_ms
        self.centre = statistics.fmean(logs)
        self.deviation = factor * statistics.stdev(logs)
        # Drawn launches scatter less than the measured ones.
        wider = factor * math.sqrt(len(logs) / (len(logs) - 1))
        self._rest = (np.array(logs) - self.centre) * wider

    def sides(self, rounds: int, count: int, *, together: bool) -> tuple[Logs, Logs]:
        """Return logarithms of times: a row for each comparison, of each side."""
        import numpy as np

        random = np.random.default_rng(rounds)
        slots = np.arange(2 * rounds)
        many = len(self._rest)
        if together:
            at = (random.integers(0, many, (count, 1)) + slots) % many
        else:
            at = random.integers(0, many, (count, 2 * rounds))
        # A B B A A B ...
        of_b = (slots + slots // 2) % 2 == 1
        drawn = self._rest[at]
        return drawn[:, ~of_b], drawn[:, of_b]

    def limit_pct(self, rounds: int) -> float:
        """Return the change that 99 % of comparisons do not exceed, %, as a number to remember."""
        import numpy as np

        sizes = []
        for together in {False, self._in_order(rounds)}:
            before, after = self.sides(rounds, _DRAWS, together=together)
            differences = np.abs(after.mean(axis=1) - before.mean(axis=1))
            sizes.append(float(np.quantile(differences, 0.99)))
        timer = self.resolution_ms / math.exp(self.centre)
        least = max(thresholds()["compare.least_pct"], 100 * timer)
        return math.ceil(20 * max(least, 100 * math.expm1(max(sizes)))) / 20

    def _in_order(self, rounds: int) -> bool:
        """Whether stretches of launches are drawn: they must be much shorter than all of them."""
        return self.together and 4 * rounds <= len(self.logs)

    def verdicts(
        self, rounds: int, limit_pct: float, change_pct: float, count: int
    ) -> Iterable[str]:
        """Yield the verdicts on comparisons whose later side is slower by a change."""
        before, after = self.sides(rounds, count, together=self._in_order(rounds))
        shift = self.centre + math.log1p(change_pct / 100)
        for one, other in zip(before, after, strict=True):
            old, new = (
                [math.exp(log) for log in side] for side in (one + self.centre, other + shift)
            )
            yield judge(old, new, self.resolution_ms, limit_pct=limit_pct)[1]

    def found(self, rounds: int, limit_pct: float, change_pct: float) -> float:
        """Return the share of comparisons that detect a change."""
        verdicts = [*self.verdicts(rounds, limit_pct, change_pct, _CHANGED)]
        return verdicts.count("regressed") / _CHANGED

    def setting(self, rounds: int, limit_pct: float, change_pct: float) -> Setting:
        """Return the error rates of a number of rounds and a threshold."""
        unchanged = [*self.verdicts(rounds, limit_pct, 0, _UNCHANGED)]
        false = sum(verdict in ("improved", "regressed") for verdict in unchanged)
        found = self.found(rounds, limit_pct, change_pct)
        smallest = detectable(self.deviation, rounds, limit_pct / 100, _POWER)
        return Setting(rounds, limit_pct, 100 * false / _UNCHANGED, 100 * found, 100 * smallest)


def _line(logs: Sequence[float]) -> tuple[float, float, list[float]]:
    """Return the rise of a line through values, half of its 95 % interval, and the residuals."""
    from scipy.special import stdtrit

    count = len(logs)
    places = [at / (count - 1) - 0.5 for at in range(count)]
    mean = statistics.fmean(logs)
    spread = math.fsum(place**2 for place in places)
    rise = math.fsum(place * (log - mean) for place, log in zip(places, logs, strict=True)) / spread
    rest = [log - mean - rise * place for place, log in zip(places, logs, strict=True)]
    error = math.sqrt(math.fsum(value**2 for value in rest) / (count - 2) / spread)
    return rise, float(stdtrit(count - 2, 1 - _ALPHA / 2)) * error, rest


def _autocorrelation(rest: Sequence[float]) -> float | None:
    """Return the correlation of each value with the next; None if all are equal."""
    squares = math.fsum(value**2 for value in rest)
    if squares < 1e-18:
        return None
    return math.fsum(a * b for a, b in itertools.pairwise(rest)) / squares


def _interval(deviation: float, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a standard deviation."""
    from scipy.special import chdtri

    ends = (float(chdtri(count - 1, share)) for share in (_ALPHA / 2, 1 - _ALPHA / 2))
    low, high = (deviation * math.sqrt((count - 1) / end) for end in ends)
    return low, high


def _within(launches_ms: Iterable[Sequence[float]]) -> float | None:
    """Return the median of the scatter within launches, %; None if each has a single time."""
    several = [samples for samples in launches_ms if len(samples) > 1]
    if not several:
        return None
    scatter = (statistics.stdev([math.log(ms) for ms in samples]) for samples in several)
    return 100 * statistics.median(scatter)


def _modes(times: Sequence[float]) -> Modes | None:
    split = two_modes([math.log(time) for time in times])
    if split is None:
        return None
    ordered = sorted(times)
    fast, slow = ordered[: split.lower], ordered[split.lower :]
    return Modes(statistics.median(fast), statistics.median(slow), 100 * len(slow) / len(times))
