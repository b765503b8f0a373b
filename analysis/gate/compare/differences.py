"""Differences between two sides besides times: settings, conditions, counters."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from perfpipe.analysis.facts import (
    ARGUMENTS,
    ARM,
    ENVIRONMENT,
    KINDS,
    MEMORY,
    PACKAGE,
    PARAMETER,
    PROGRAM,
    PROGRAM_NAME,
    SM,
    TEMPERATURE,
    UNITS,
    WORK,
    Facts,
)
from perfpipe.analysis.known import median
from perfpipe.analysis.thresholds import thresholds

#: Longest value that is shown, and the most values of a side.
_LONGEST, _VALUES = 40, 3

#: Name of a missing value, for the kinds that are recorded completely.
_ABSENT = {ENVIRONMENT: "unset", PACKAGE: "absent", PARAMETER: "none", ARM: "as in the file"}

#: Settings of an arm that are shown by their effect: the interpreter, and variables.
_PYTHON, _VARIABLE = "python", "env."

#: Most counters of a kernel that are shown, and the ratio from which they are shown as a multiple.
_COUNTERS, _MULTIPLE = 6, 2


@dataclass(frozen=True)
class Difference:
    """One thing that differs, as text; `share_pct` is its share of the change in time.

    `given` says that the user set it: it is the subject of the comparison.
    """

    kind: str
    name: str
    before: str
    after: str
    change: str = ""
    share_pct: float | None = None
    given: bool = False


def settings(before: Facts, after: Facts) -> Iterator[Difference]:
    """Yield the settings whose values differ; those that a side does not record are skipped."""
    by_arms = {name for facts in (before, after) for name in facts.settings.get(ARM, {})}
    for kind in KINDS:
        old, new = (facts.settings.get(kind) for facts in (before, after))
        if old is None or new is None:
            continue
        listed = kind in _ABSENT and kind not in (*before.partial, *after.partial)
        for found in _differing(kind, old, new, listed, _by_parameters(before, after)):
            if kind != ARM or not (found.name.startswith(_VARIABLE) or found.name == _PYTHON):
                yield replace(found, given=_given(kind, found.name, by_arms))


def _given(kind: str, name: str, by_arms: Collection[str]) -> bool:
    """Return whether the user set it for a side, or it follows from that by the workload file."""
    if kind == ENVIRONMENT:
        return f"{_VARIABLE}{name}" in by_arms
    if (kind, name) == (PROGRAM, PROGRAM_NAME):
        return _PYTHON in by_arms
    return kind in (PARAMETER, ARM, WORK) or (kind, name) == (PROGRAM, ARGUMENTS)


def _by_parameters(before: Facts, after: Facts) -> bool:
    """Return whether parameters differ, so that the program's arguments do."""
    return before.settings.get(PARAMETER) != after.settings.get(PARAMETER)


def _differing(
    kind: str,
    before: Mapping[str, tuple[str, ...]],
    after: Mapping[str, tuple[str, ...]],
    listed: bool,
    by_parameters: bool,
) -> Iterator[Difference]:
    """Yield the differences; a missing value of a `listed` kind counts as absent."""
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name, ()), after.get(name, ())
        if not (listed or (old and new)) or {*old} == {*new}:
            continue
        if (kind, name) == (PROGRAM, ARGUMENTS):
            if by_parameters:
                continue
            old, new = _words(old, new), _words(new, old)
        absent = _ABSENT.get(kind, "none")
        yield Difference(kind, name, _told(old) or absent, _told(new) or absent)


def _words(own: Sequence[str], other: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command that are not in the other one, values with their options."""
    known = {word for command in other for word in command.split(" ")}
    found = []
    for line in own:
        words = line.split(" ")
        for option, word in zip(["", *words], words, strict=False):
            if word not in known:
                valued = option.startswith("-") and option in known and not word.startswith("-")
                found.append(f"{option} {word}" if valued else word)
    return tuple(dict.fromkeys(found))


def _told(values: Sequence[str]) -> str:
    text = ", ".join(_brief(value) for value in values[:_VALUES])
    return text + (f" and {len(values) - _VALUES} more" if len(values) > _VALUES else "")


def _brief(value: str) -> str:
    # The end of a path is more specific than its beginning.
    return value if len(value) <= _LONGEST else f"...{value[3 - _LONGEST :]}"


def conditions(before: Facts, after: Facts) -> Iterator[Difference]:
    """Yield the conditions that both sides record and that differ enough."""
    for name, values in before.conditions.items():
        old, new = (median(own) for own in (values, after.conditions.get(name, ())))
        if old is None or new is None or not _differs(name, old, new):
            continue
        unit = f" {UNITS[name]}" if name in UNITS else ""
        change = f"{100 * (new / old - 1):+.1f} %" if old else ""
        yield Difference("condition", name, f"{old:,.0f}{unit}", f"{new:,.0f}{unit}", change)


def _differs(name: str, old: float, new: float) -> bool:
    limits = thresholds()
    if name == TEMPERATURE:
        return abs(new - old) > limits["compare.temperature_c"]
    least = limits["compare.clock_pct" if name in (SM, MEMORY) else "compare.counter_pct"]
    return abs(new - old) > least / 100 * abs(old)


def counters(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[Difference, ...]:
    """Return the counters of a kernel that both sides have and that changed, largest first."""
    both = [name for name in before if name in after]
    sizes = {name: _size(name, before[name], after[name]) for name in both}
    moved = [name for name in both if sizes[name]]
    moved.sort(key=lambda name: (-sizes[name], both.index(name)))
    return tuple(_counter(name, before[name], after[name]) for name in moved[:_COUNTERS])


def _size(name: str, old: float, new: float) -> float:
    """Return how far a counter moved, as a ratio or its reciprocal; 0 if that is too little."""
    limits = thresholds()
    if name.endswith("%") and abs(new - old) < limits["compare.counter_points"]:
        return 0
    if not old or not new:
        return math.inf if old != new else 0
    ratio = max(new / old, old / new)
    return ratio if ratio > 1 + limits["compare.counter_pct"] / 100 else 0


def _counter(name: str, old: float, new: float) -> Difference:
    change = ""
    if old:
        ratio = new / old
        change = f"{100 * (ratio - 1):+.0f} %" if ratio < _MULTIPLE else f"{ratio:.3g} times"
    return Difference("counter", name, _number(old), _number(new), change)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == round(value) else f"{value:.3g}"
