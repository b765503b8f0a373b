"""Differences between two sides besides the code: hardware, and disturbances of their runs."""

from __future__ import annotations

from collections.abc import Iterator

from perfpipe.analysis.facts import (
    DRIVER,
    ECC,
    LIMIT,
    MACHINE,
    MACHINE_MODEL,
    MODEL,
    NEIGHBORS,
    NODE,
    TEMPERATURE,
    THROTTLED,
    UUID,
    Facts,
)
from perfpipe.analysis.known import median
from perfpipe.analysis.thresholds import thresholds

#: Least difference between the shares of the two sides' runs that met a condition.
_MOST = 0.5


def mixed(before: Facts, after: Facts) -> str | None:
    """Return why times of two sides must not be compared: other GPU models or driver majors.

    If the GPUs of a side are unknown, or there are none, the machine's model counts.
    """
    models = [facts.values(MACHINE, MODEL) for facts in (before, after)]
    if models[0] and models[1]:
        if {*models[0]} != {*models[1]}:
            return f"GPU model: {_both(*models)}"
    else:
        machines = [facts.values(MACHINE, MACHINE_MODEL) for facts in (before, after)]
        if machines[0] and machines[1] and not {*machines[0]} & {*machines[1]}:
            return f"machine model: {_both(*machines)}"
    drivers = [facts.values(MACHINE, DRIVER) for facts in (before, after)]
    majors = [{version.partition(".")[0] for version in own} for own in drivers]
    if majors[0] and majors[1] and majors[0] != majors[1]:
        return f"driver: {_both(*drivers)}"
    return None


def disturbed(before: Facts, after: Facts, verdict: str) -> str | None:
    """Return a cause of a verdict besides the code: a disturbance of the slower side only."""
    if verdict not in ("improved", "regressed"):
        return None
    slow, fast = (after, before) if verdict == "regressed" else (before, after)
    which = "after" if verdict == "regressed" else "before"
    for name, what in (
        (NEIGHBORS, "other processes used the GPU"),
        (ECC, "the GPU's memory had ECC errors"),
    ):
        there, other = (_runs_with(facts, name) for facts in (slow, fast))
        if there and other and there[0] / there[1] - other[0] / other[1] > _MOST:
            return (
                f"not the code alone: {what} in {there[0]} of {there[1]} runs {which}, but in "
                f"{other[0]} of {other[1]} runs on the other side"
            )
    return None


def beside(before: Facts, after: Facts) -> tuple[str, ...]:
    """Return other differences that may explain part of a change: then do not advise to revert.

    A node or GPU that both sides used does not count: its conditions affect both.
    """
    return tuple(_beside(before, after))


def _beside(before: Facts, after: Facts) -> Iterator[str]:
    for name, what in (
        (NODE, "different nodes"),
        (MACHINE_MODEL, "different machine models"),
        (UUID, "different GPUs"),
        (DRIVER, "different drivers"),
        (LIMIT, "different power limits"),
    ):
        old, new = (facts.values(MACHINE, name) for facts in (before, after))
        if old and new and not {*old} & {*new}:
            yield f"{what} ({_both(old, new)})"
    old_c, new_c = (median(facts.conditions.get(TEMPERATURE, ())) for facts in (before, after))
    least = thresholds()["compare.temperature_c"]
    if old_c is not None and new_c is not None and abs(new_c - old_c) > least:
        yield f"different temperatures ({old_c:.0f} °C before, {new_c:.0f} °C after)"
    old_t, new_t = (_runs_with(facts, THROTTLED) for facts in (before, after))
    if old_t and new_t:
        more = new_t[0] / new_t[1] - old_t[0] / old_t[1]
        if abs(more) > _MOST:
            by = after.throttled_by if more > 0 else before.throttled_by
            yield (
                f"clocks throttled by {' and '.join(by) or 'a limiter'} "
                f"({old_t[0]} of {old_t[1]} runs before, {new_t[0]} of {new_t[1]} after)"
            )


def _runs_with(facts: Facts, name: str) -> tuple[int, int] | None:
    """Return how many runs met a condition, and the number of runs for which that is known."""
    known = [value for value in facts.conditions.get(name, ()) if value is not None]
    return (sum(value > 0 for value in known), len(known)) if known else None


def _both(before: tuple[str, ...], after: tuple[str, ...]) -> str:
    return f"{', '.join(before)} before, {', '.join(after)} after"
