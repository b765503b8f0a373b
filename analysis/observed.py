"""The time of a step, from the times at which the host issued the steps of a program.

The host does not wait for the GPU, so the interval between two of these times is not the time of a
step.  It is shorter while the host runs ahead, until the queue of launches is full or the host
waits for a result, and longer in the step that waits.  The mean of many intervals is right, because
the host cannot run ahead further and further.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from perfpipe.analysis.thresholds import thresholds

#: Numbers of steps that are averaged, in order, up to the threshold observed.most_averaged.
_AVERAGED = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

#: Blocks of averaged steps whose median is taken: fewer would not exclude an unusual block.
_BLOCKS = 5


class Span(NamedTuple):
    """Successive steady steps: when the host ended the step before them and the last one, ns."""

    start_ns: int
    end_ns: int
    steps: int


class Steady(NamedTuple):
    """The time of each steady step, ms, and where the steady steps are."""

    times_ms: tuple[float, ...] = ()
    spans: tuple[Span, ...] = ()


def step_times(
    times_ns: Sequence[int], calls: Sequence[int] = (), *, gpu: bool = True
) -> tuple[float, ...]:
    """Return the time of each steady step, as `steady_steps` does, ms."""
    return steady_steps(times_ns, calls, gpu=gpu).times_ms


def steady_steps(times_ns: Sequence[int], calls: Sequence[int] = (), *, gpu: bool = True) -> Steady:
    """Return the steady steps; none if there are too few steps.

    `times_ns` are the times at which the host ended successive steps, ns; `calls` are the calls of
    the model since the previous time.  The result excludes warm-up, steps with another number of
    calls (the program evaluated), and rare pauses.  If pauses take much of the time, the host may
    have waited for the GPU in them, and the time of a step is unknown.

    Steps are averaged over the fewest steps for which a longer average has the same median.  A
    program that waits for the GPU in every step thus keeps its individual times.
    """
    limits = thresholds()
    steps = [after - before for before, after in pairwise(times_ns)]
    steady = steps[warm_up(steps) :]
    alike = _alike(calls[len(times_ns) - len(steady) :], len(steady))
    pauses = _pauses([step for step, own in zip(steady, alike, strict=True) if own])
    if gpu and sum(pauses) > limits["observed.pauses_time_share"] * sum(steady):
        return Steady()
    kept = _parts(steady, alike, min(pauses, default=math.inf))
    parts = [steady[first:last] for first, last in kept]
    count = sum(map(len, parts))
    if count < limits["observed.least_gpu_steps" if gpu else "observed.least_steps"]:
        return Steady()
    most = min(limits["observed.most_averaged"], max(map(len, parts)), count // _BLOCKS)
    lengths = [length for length in _AVERAGED if length <= max(1, most)]
    longest = statistics.median(_averages(parts, lengths[-1]))
    for length in lengths:
        found = [*_averages(parts, length)]
        if abs(statistics.median(found) - longest) <= limits["observed.differ_pct"] / 100 * longest:
            break
    # Few steps, most of which the host issued without waiting.
    last = statistics.mean([step for part in parts for step in part][-max(1, count // 3) :])
    if gpu and last > limits["timeline.warm_up_times"] * statistics.median(found):
        return Steady()
    ends = times_ns[len(steps) - len(steady) :]
    spans = tuple(Span(ends[first], ends[last], last - first) for first, last in kept)
    return Steady(tuple(ns / 1e6 for ns in found), spans)


def warm_up(steps: Sequence[float]) -> int:
    """Return the number of warm-up steps.

    A step is disturbed if it takes far longer than all of the last steps but rare ones, or far
    shorter, because the queue was not full.  As in `_step_phases`, two of three warm-up steps are
    disturbed, and the next step is a warm-up step too.
    """
    if not steps:
        return 0
    limits = thresholds()
    usual = sorted(steps[-max(1, len(steps) // 3) :])
    rare = int(limits["observed.pauses_share"] * len(usual))
    shortest = usual[rare] / limits["timeline.warm_up_times"]
    longest = usual[-1 - rare] * limits["timeline.warm_up_times"]
    until = disturbed = 0
    for place, step in enumerate(steps, 1):
        if not shortest <= step <= longest:
            disturbed += 1
            if 3 * disturbed >= 2 * place:
                until = place
    return until + 1 if until else 0


def _alike(calls: Sequence[int], count: int) -> list[bool]:
    """Return which steps call the model as often as most steps do; all if most steps differ."""
    usual = statistics.mode(calls) if calls else None
    if len(calls) != count or 2 * sum(own == usual for own in calls) < count:
        return [True] * count
    return [own == usual for own in calls]


def _pauses(steps: Sequence[int]) -> list[int]:
    """Return the long steps, if they are rare."""
    limits = thresholds()
    longest = limits["timeline.warm_up_times"] * statistics.median(steps) if steps else 0
    long = [step for step in steps if step > longest]
    return long if len(long) <= limits["observed.pauses_share"] * len(steps) else []


def _parts(steps: Sequence[int], kept: Sequence[bool], pause: float) -> list[tuple[int, int]]:
    """Return where steps follow one another that are kept and shorter than a pause: [from, to)."""
    parts: list[tuple[int, int]] = []
    for at, (step, keep) in enumerate(zip(steps, kept, strict=True)):
        if not keep or step >= pause:
            continue
        if parts and parts[-1][1] == at:
            parts[-1] = parts[-1][0], at + 1
        else:
            parts.append((at, at + 1))
    return parts


def _averages(parts: Sequence[Sequence[int]], length: int) -> Iterator[float]:
    """Yield for each step of a complete block of `length` steps the mean of the block."""
    for part in parts:
        for at in range(0, len(part) - length + 1, length):
            mean = sum(part[at : at + length]) / length
            yield from [mean] * length
