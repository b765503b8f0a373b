"""Compares a series of numbers between plain launches and others: the first, then the curve.

The first number is the strong test: weights and data are the same, so only rounding differs.
Later, training amplifies rounding.  Then a series is compared with the scatter of plain launches,
or, if they do not scatter or scatter less, by its means over parts of the launch.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import combinations, pairwise

from perfpipe.analysis.thresholds import thresholds


class Kind(StrEnum):
    """What a comparison of results found, best first; the last one stands for all."""

    IDENTICAL = "identical"
    WITHIN_SCATTER = "within_scatter"
    WITHIN_TOLERANCE = "within_tolerance"
    UNKNOWN = "unknown"
    DIFFER = "differ"


@dataclass(frozen=True)
class Judged:
    """A kind, with the reason as a sentence without its end.

    `unseeded` says that plain launches do not compute the same, so that nothing can be compared.
    """

    kind: Kind
    why: str
    unseeded: bool = False


Vector = tuple[float, ...]

#: Points of a curve that are returned.
_POINTS = 200


def worst(found: Iterable[Judged]) -> Judged:
    """Return the judgment that stands for all: the first of the worst kind."""
    order = [*Kind]
    return max(found, key=lambda one: order.index(one.kind))


def same(one: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether numbers are equal bit for bit; numbers that are none are equal."""
    return len(one) == len(other) and all(
        a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(one, other, strict=True)
    )


def number(value: float) -> str:
    """Return a number as text."""
    return f"{value:.4g}"


def share(value: float) -> str:
    """Return a relative difference as text."""
    if value >= 0.1:
        return f"{100 * value:.0f} %"
    return f"{100 * value:.2g} %" if value >= 1e-4 else f"{value:.0e}"


def scatter_times(launches: int) -> float:
    """Return how many times the largest difference between plain launches is their scatter.

    The difference between only two launches may be small by chance.
    """
    limits = thresholds()
    return limits["results.scatter_times" if launches > 2 else "results.scatter_times_of_two"]


def strong(
    name: str,
    plain: Sequence[Vector],
    other: Sequence[Vector],
    limit: float,
    unseeded: float,
    scale: float = 0,
) -> Judged:
    """Compare vectors that differ by rounding only, if the launches compute the same.

    `limit` is the relative error that is allowed, `unseeded` the relative scatter of plain launches
    from which these do not compute the same.  `scale` is the least size of the numbers.
    """
    if all(same(plain[0], one) for one in (*plain[1:], *other)):
        return Judged(Kind.IDENTICAL, f"{name} is equal bit for bit")
    if any(len(one) != len(plain[0]) for one in (*plain, *other)):
        return Judged(Kind.DIFFER, f"{name} has another size")
    if not all(map(math.isfinite, (value for one in plain for value in one))):
        return Judged(Kind.UNKNOWN, f"{name} is not a finite number in plain launches")
    if not all(map(math.isfinite, (value for one in other for value in one))):
        return Judged(Kind.DIFFER, f"{name} is not a finite number")
    mean = tuple(statistics.fmean(values) for values in zip(*plain, strict=True))
    size = max(scale, *(math.hypot(*one) for one in plain)) or 1.0
    scatter = max((math.dist(a, b) for a, b in combinations(plain, 2)), default=0) / size
    error = max(math.dist(mean, one) for one in other) / size
    if scatter > unseeded:
        return Judged(
            Kind.UNKNOWN,
            f"{name} differs by {share(scatter)} between plain launches: the program has no fixed "
            "seed, or it starts from another state in each launch",
            unseeded=True,
        )
    if scatter and error <= scatter_times(len(plain)) * scatter:
        text = f"{name} differs by {share(error)}, and by {share(scatter)} between plain launches"
        return Judged(Kind.WITHIN_SCATTER, text)
    told = _change(name, mean, other, error)
    if error <= limit:
        return Judged(Kind.WITHIN_TOLERANCE, f"{told}; {share(limit)} is allowed")
    if len(plain) < 2:
        return Judged(Kind.UNKNOWN, f"{told}, and one launch does not show the scatter")
    repeats = f"to {share(scatter)}" if scatter else "bit for bit"
    allowed = f"{share(limit)} is allowed, and plain launches repeat {repeats}"
    return Judged(Kind.DIFFER, f"{told}; {allowed}")


def _change(name: str, mean: Vector, other: Sequence[Vector], error: float) -> str:
    if len(mean) > 1:
        return f"{name} differs by {share(error)}"
    far = max((one[0] for one in other), key=lambda value: abs(value - mean[0]))
    return f"{name} {number(mean[0])} -> {number(far)} ({share(error)})"


@dataclass(frozen=True)
class Curve:
    """A series of numbers of plain and of other launches, with what is compared of it."""

    name: str
    steps: tuple[int, ...]
    plain: tuple[Vector, ...]  # per launch, a number per step
    other: tuple[Vector, ...]

    @cached_property
    def mean(self) -> Vector:
        """The mean of the plain launches."""
        return tuple(map(statistics.fmean, zip(*self.plain, strict=True)))

    @cached_property
    def changed(self) -> Vector:
        """The mean of the other launches."""
        return tuple(map(statistics.fmean, zip(*self.other, strict=True)))

    @cached_property
    def step_change(self) -> float:
        """The usual change from one number to the next."""
        return statistics.median([abs(b - a) for a, b in pairwise(self.mean)] or [0.0])

    @cached_property
    def scatter(self) -> Vector:
        """The largest difference between two plain launches, at a step or near it."""
        ranges = [max(values) - min(values) for values in zip(*self.plain, strict=True)]
        near = max(1, len(ranges) // 20)
        return tuple(max(ranges[max(0, at - near) : at + near + 1]) for at in range(len(ranges)))

    @property
    def points(self) -> tuple[tuple[int, float, float], ...]:
        """Steps, with the relative difference and the relative scatter that is allowed."""
        times = scatter_times(len(self.plain))
        rows = zip(self.steps, self.mean, self.changed, self.scatter, strict=True)
        found = [
            (step, abs(after - before) / size, times * scatter / size)
            for step, before, after, scatter in rows
            if (size := max(abs(before), self.step_change) or 1.0)
        ]
        return tuple(found[:: max(1, -(-len(found) // _POINTS))])


def curve_of(
    name: str, plain: Sequence[Mapping[int, float]], other: Sequence[Mapping[int, float]]
) -> Curve:
    """Return the curve over the steps that all launches have."""
    steps = sorted(set.intersection(*({*one} for one in (*plain, *other))))
    sides = (tuple(tuple(one[step] for step in steps) for one in side) for side in (plain, other))
    return Curve(name, tuple(steps), *sides)


def judged(curve: Curve, rounding: float, *, growing: bool) -> Judged:
    """Compare a curve behind its first number.

    `rounding` is the relative error of the first number that is allowed.  With `growing` the first
    steps are compared as well: errors grow by a limited factor in each.
    """
    if all(same(curve.plain[0], one) for one in (*curve.plain[1:], *curve.other)):
        count = f"{len(curve.steps)} values" if len(curve.steps) > 1 else "1 value"
        return Judged(Kind.IDENTICAL, f"{curve.name} is equal bit for bit ({count})")
    until = _finite(curve.plain)
    if until == 0:
        return Judged(Kind.UNKNOWN, f"{curve.name} is not a finite number in plain launches")
    curve = Curve(
        curve.name,
        curve.steps[:until],
        tuple(one[:until] for one in curve.plain),
        tuple(one[:until] for one in curve.other),
    )
    if (bad := _finite(curve.other)) < until:
        step = curve.steps[bad]
        return Judged(Kind.DIFFER, f"{curve.name} is not a finite number at step {step}")
    if growing and (early := _early(curve, rounding)):
        return early
    return _scattered(curve) or _smoothed(curve)


def _finite(launches: Sequence[Vector]) -> int:
    """Return how many numbers from the first one on are finite in all launches."""
    for at, values in enumerate(zip(*launches, strict=True)):
        if not all(map(math.isfinite, values)):
            return at
    return len(launches[0])


def _early(curve: Curve, rounding: float) -> Judged | None:
    """Return a difference in the first steps that rounding does not explain."""
    limits = thresholds()
    mean, scatter = curve.mean, curve.scatter
    for at in range(1, min(len(mean), 1 + int(limits["results.growth_steps"]))):
        limit = rounding * limits["results.growth_times"] ** at
        if limit > limits["results.curve_share"]:
            break
        size = max(abs(mean[at]), curve.step_change)
        allowed = max(limit * size, scatter_times(len(curve.plain)) * scatter[at])
        far = max((one[at] for one in curve.other), key=lambda value: abs(value - mean[at]))
        if abs(far - mean[at]) > allowed:
            return _differ(
                curve, f"at step {curve.steps[at]}", mean[at], far, limit, max(scatter[: at + 1])
            )
    return None


def _scattered(curve: Curve) -> Judged | None:
    """Return that the other launches are among the plain ones, if they are."""
    limits = thresholds()
    times, scatter = scatter_times(len(curve.plain)), curve.scatter
    if not any(scatter):
        return None
    mean = curve.mean
    for one in curve.other:
        inside = [abs(a - b) <= times * s for a, b, s in zip(mean, one, scatter, strict=True)]
        if sum(inside) < limits["results.scatter_share"] * len(inside):
            return None
        # No drift of the mean.
        last = slice(-max(1, len(mean) // 3), None)
        means = [statistics.fmean(own[last]) for own in curve.plain]
        away = abs(statistics.fmean(one[last]) - statistics.fmean(means))
        if away > times * (max(means) - min(means)):
            return None
    most = max(s / (abs(own) or 1.0) for s, own in zip(scatter, mean, strict=True))
    return Judged(
        Kind.WITHIN_SCATTER,
        f"{curve.name} stays within {times:g} times the scatter of plain launches (at most "
        f"{share(most)})",
    )


def _smoothed(curve: Curve) -> Judged:
    """Compare the means over parts of the launch."""
    limits = thresholds()
    count = len(curve.steps)
    parts = min(int(limits["results.curve_windows"]), count)
    mean = curve.mean
    noise = curve.step_change / (0.6745 * math.sqrt(2))
    floor = limits["results.curve_floor_share"] * abs(mean[0])
    most = 0.0
    for part in range(parts):
        window = slice(part * count // parts, (part + 1) * count // parts)
        own = [statistics.fmean(one[window]) for one in curve.plain]
        before = statistics.fmean(own)
        size = max(abs(before), floor) or 1.0
        error = noise / math.sqrt(window.stop - window.start) if count > parts else 0.0
        allowed = max(
            scatter_times(len(own)) * (max(own) - min(own)),
            limits["results.curve_share"] * size + limits["results.curve_noise_times"] * error,
        )
        for one in curve.other:
            after = statistics.fmean(one[window])
            most = max(most, abs(after - before) / size)
            if abs(after - before) > allowed:
                at = curve.steps[window.stop - 1]
                where = f"up to step {at}" if count > 1 else ""
                return _differ(curve, where, before, after, allowed / size, max(own) - min(own))
    return Judged(
        Kind.WITHIN_TOLERANCE, f"{curve.name} differs by at most {share(most)} on average"
    )


def _differ(
    curve: Curve, where: str, before: float, after: float, limit: float, scatter: float
) -> Judged:
    """Return that a curve differs; one plain launch does not show that the program repeats."""
    size = abs(before) or 1.0
    name = f"{curve.name} {where}".strip()
    text = f"{name} {number(before)} -> {number(after)} ({share(abs(after - before) / size)}"
    text += f", {share(limit)} allowed)"
    if len(curve.plain) < 2:
        return Judged(Kind.UNKNOWN, f"{text}, and one launch does not show the scatter")
    repeats = f"to {share(scatter / size)}" if scatter else "bit for bit"
    return Judged(Kind.DIFFER, f"{text}; plain launches repeat {repeats}")
