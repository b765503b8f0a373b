"""Tests the times of two sides: kernels together, and configurations together with their mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from perfpipe.analysis.gate.choosing import change_between
from perfpipe.analysis.gate.judging import Change, Scatter, error_of, false_discovery
from perfpipe.analysis.gate.matrix import mean_of, moderated
from perfpipe.analysis.gate.sides import JUDGED, KERNEL, Key, Side

#: Keys that are tested together, by profiler and part: kernels, or an endpoint of configurations.
Families = Mapping[tuple[str, str], Sequence[Key]]


class Tested(NamedTuple):
    """The change of a key, its p-value adjusted for multiple tests, and its bounds.

    The bounds are those of one of several configurations, as ratio - 1.  Each end holds for all
    configurations at once at the level of the test.
    """

    change: Change
    q: float | None = None
    bounds: tuple[float, float] | None = None


def families_of(before: Side, after: Side) -> Families:
    """Return the keys that both sides measured and that are tested, by family."""
    found: dict[tuple[str, str], list[Key]] = {}
    for key in sorted(before.measured.keys() & after.measured.keys()):
        if key.part in JUDGED and _positive(key, before, after):
            family = ("", KERNEL) if key.part == KERNEL else (key.profiler, key.part)
            found.setdefault(family, []).append(key)
    return found


def means_of(before: Side, after: Side, families: Families) -> dict[Key, tuple[str, str]]:
    """Return a key for the mean of several configurations, with their family.

    There is none if a run of either side lacks a configuration.
    """
    return {
        Key(family[0], f"mean of {len(keys)} configurations", family[1]): family
        for family, keys in families.items()
        if family[1] != KERNEL and len(keys) > 1
        if all(mean_of([side[key] for key in keys]) for side in (before, after))
    }


def with_means(side: Side, families: Families, means: Mapping[Key, tuple[str, str]]) -> Side:
    """Return a side that has the means as well."""
    measured = {**side.measured}
    for mean, family in means.items():
        own = mean_of([side[key] for key in families[family]])
        if own is not None:
            measured[mean] = own
    return replace(side, measured=measured)


class Tests(NamedTuple):
    """The tests of the keys that two sides have in common, at a level.

    `steps` are the resolutions of the times of all these keys, ns.
    """

    before: Side
    after: Side
    steps: Mapping[Key, float]
    alpha: float

    def all(self, families: Families, means: Mapping[Key, tuple[str, str]]) -> dict[Key, Tested]:
        """Return the tests of all keys with positive times.

        The mean of several configurations and the configurations have half of the level each.
        """
        found: dict[Key, Tested] = {}
        for family, keys in families.items():
            shares = 2 if family in means.values() else 1
            found |= self._together(keys, shares, kernels=family[1] == KERNEL)
        for mean in means:
            found[mean] = _tested(self._change(mean, tests=2), shares=2)
        rest = [key for key in self.steps if key not in found]
        return found | {
            key: Tested(self._change(key))
            for key in rest
            if _positive(key, self.before, self.after)
        }

    def _together(self, keys: Sequence[Key], shares: int, *, kernels: bool) -> dict[Key, Tested]:
        """Test keys together (Benjamini-Hochberg); configurations share what scatter shows."""
        errors = {} if kernels else self._errors(keys)
        tests = shares * len(keys)
        changes = {key: self._change(key, tests, errors.get(key)) for key in keys}
        known = [key for key in keys if changes[key].p is not None]
        q_values = false_discovery([changes[key].p or 0.0 for key in known])
        found = {key: Tested(change) for key, change in changes.items()}
        for key, q in zip(known, q_values, strict=True):
            bounds = self._bounds(key, len(keys), errors.get(key)) if shares > 1 else None
            found[key] = _tested(changes[key], shares, q, bounds)
        return found

    def _errors(self, keys: Sequence[Key]) -> dict[Key, Scatter]:
        known = {}
        for key in keys:
            old, new = self.before[key].medians, self.after[key].medians
            if error := error_of(old, new, self.steps[key]):
                known[key] = error
        return dict(zip(known, moderated([*known.values()]), strict=True))

    def _bounds(self, key: Key, count: int, error: Scatter | None) -> tuple[float, float] | None:
        """Return bounds of which each end has its share of the level."""
        wide = self._replace(alpha=2 * self.alpha / count)._change(key, 1, error)
        return None if wide.low is None or wide.high is None else (wide.low, wide.high)

    def _change(self, key: Key, tests: int = 1, error: Scatter | None = None) -> Change:
        old, new = self.before[key].medians, self.after[key].medians
        return change_between(old, new, self.steps[key], self.alpha, tests=tests, error=error)


def _tested(
    change: Change,
    shares: int,
    p: float | None = None,
    bounds: tuple[float, float] | None = None,
) -> Tested:
    """Return a test that has one of some shares of the level; `p` is the adjusted p-value."""
    p = change.p if p is None else p
    return Tested(change, None if p is None else min(1.0, shares * p), bounds)


def _positive(key: Key, before: Side, after: Side) -> bool:
    return min(before[key].medians + after[key].medians) > 0
