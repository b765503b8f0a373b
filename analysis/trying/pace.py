"""The time of a launch: the mean time of its steady units of work.

A mean, because the median of intervals misses most of the time where batches come in bursts: the
workers of a loader finish together, so a few intervals are long and the others nearly empty.  The
window begins at the same unit in all launches of a comparison and contains ends of epochs,
validations and pauses.  It does not contain warm-up, units whose batches may have been loaded
before the first one, and compilation, which are start-up.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from perfpipe.analysis.observed import warm_up
from perfpipe.analysis.reported import Calls, reported
from perfpipe.analysis.thresholds import thresholds
from perfpipe.units import counted

#: Units that the program timed itself, and a launch as a whole.
ITERATION, LAUNCH = "iteration", "launch"

Spans = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Pace:
    """The units of work of a launch.

    `unit` is step, token, call, iteration (the program printed its times) or launch (nothing else
    is known).  `times_ns` are the ends of units, `calls` the calls of the model since the previous
    one, `compiling_ns` the spans in which torch.compile compiled, on the same clock.  `gpu_ms` are
    the times of the units between CUDA events, if they are known of all units.  `count` is the
    number of units, `started_ns` when the launch began, `idle_ns` when the GPU had executed the
    last unit of a launch that was to end after some units.  `ended` says that all units are known,
    `cut` that perfpipe ended the launch.
    """

    unit: str
    times_ns: tuple[int, ...]
    calls: tuple[int, ...]
    compiling_ns: Spans
    wall_s: float
    printed_ms: tuple[float, ...]
    gpu: bool
    count: int = 1
    started_ns: int | None = None
    idle_ns: int | None = None
    ended: bool = True
    cut: bool = False
    gpu_ms: tuple[float, ...] = ()

    @property
    def units(self) -> int:
        """The number of units whose times are known."""
        known = {LAUNCH: 1, ITERATION: len(self.printed_ms)}
        return known.get(self.unit, len(self.times_ns) - 1)

    def units_ms(self) -> list[float]:
        """Return the time of each unit, ms, without compilation."""
        if self.unit == LAUNCH:
            return [1e3 * self.wall_s]
        if self.unit == ITERATION:
            return [*self.printed_ms]
        until = _compiling_until(self.times_ns, self.compiling_ns)
        compiling = [(after - before) / 1e6 for before, after in pairwise(until)]
        units = self.gpu_ms or [(b - a) / 1e6 for a, b in pairwise(self.times_ns)]
        # The GPU idles while the host compiles.
        return [max(0.0, unit - own) for unit, own in zip(units, compiling, strict=True)]


class Window(NamedTuple):
    """The units that are compared in all launches: from `first` up to `last`, which is not.

    `note` says what limits the comparison, such as why whole launches are compared instead;
    `different_work` says why nothing can be.
    """

    unit: str
    first: int = 0
    last: int = 1
    note: str = ""
    different_work: str = ""

    def ms(self, pace: Pace) -> float | None:
        """Return the time of a launch per unit, ms; None if it is unknown."""
        if self.different_work:
            return None
        if self.unit == LAUNCH:
            return None if pace.cut or not pace.wall_s > 0 else 1e3 * pace.wall_s
        return ms_per_unit(pace, self.first, self.last)

    def ms_within(self, pace: Pace) -> float | None:
        """Return the time of a step alone, ms; None if it is unknown."""
        if self.different_work or self.unit != "step":
            return None
        return ms_within(pace, self.first, self.last)


def read(
    folder: Path,
    stdout_times_ms: Sequence[float],
    wall_s: float,
    *,
    started_ns: int | None = None,
    cut: bool = False,
) -> Pace:
    """Return the pace of a launch that has ended: that of its slowest rank.

    Times that the program printed count before those that were observed.  `started_ns` is
    time.perf_counter_ns() at the launch, `cut` says that perfpipe ended it before its end.
    """
    calls = reported(folder)
    paces = [_observed(own, folder, wall_s, started_ns, cut) for own in calls]
    slowest = max(paces, key=_own_ms, default=None)
    printed = tuple(map(float, stdout_times_ms))
    if printed and all(0 < ms < math.inf for ms in printed):
        gpu = slowest is not None and slowest.gpu
        compiling = slowest.compiling_ns if slowest else ()
        return Pace(ITERATION, (), (), compiling, wall_s, printed, gpu, len(printed), cut=cut)
    return slowest or Pace(LAUNCH, (), (), (), wall_s, (), False, cut=cut)


def window(paces: Sequence[Pace], *, at_least: int = 0) -> Window:
    """Return the units that are compared in all launches of a comparison.

    `at_least` is the number of batches that a loader may hold, workers x prefetch: as many units
    are left out after warm-up.
    """
    units = {pace.unit for pace in paces}
    if len(units) != 1:
        return Window(
            LAUNCH, note=_whole(f"they have different units ({', '.join(sorted(units))})")
        )
    (unit,) = units
    if unit == LAUNCH:
        return Window(LAUNCH)
    counts = {pace.count for pace in paces}
    if len(counts) > 1 and all(pace.ended for pace in paces):
        # Observed units are counted from the end of the first one.
        first = 0 if unit == ITERATION else 1
        what = f"{min(counts) + first} to {counted(max(counts) + first, unit)}"
        return Window(unit, different_work=f"the launches executed {what}")
    first, last = first_steady(paces, at_least=at_least), min(pace.units for pace in paces)
    least, steady = _least_units(paces), max(0, last - first)
    if steady < least:
        few = f"{counted(steady, f'steady {unit}')} of {least} that are needed"
        return Window(LAUNCH, note=_whole(f"there are {few}"))
    if not all(_steady(pace, first, last) for pace in paces):
        why = f"the host issued {unit}s long before the GPU executed them"
        return Window(LAUNCH, note=_whole(why))
    note = ""
    if steady < thresholds()["trial.window_times"] * at_least:
        note = (
            f"up to {at_least} of the {steady} batches that are compared may have been loaded "
            f"before the first of them: run more {unit}s"
        )
    return Window(unit, first, last, note)


def first_steady(paces: Sequence[Pace], *, at_least: int = 0) -> int:
    """Return the first unit that is compared in all launches, counted from 0.

    While the model compiles, the loader fills, so its batches are left out after warm-up.
    """
    return at_least + max(warm_up(pace.units_ms()) for pace in paces)


def fewest_units(pace: Pace) -> int:
    """Return how many units a launch needs: its warm-up, and twice what is compared at least."""
    return first_steady([pace]) + 2 * _least_units([pace])


def ms_per_unit(pace: Pace, first: int, last: int) -> float | None:
    """Return the mean time of the units from `first` up to `last`, which is not one of them, ms.

    None if the launch does not have them.
    """
    if not 0 <= first < last <= pace.units:
        return None
    total = math.fsum(pace.units_ms()[first:last])
    return total / (last - first) if total > 0 else None


def ms_within(pace: Pace, first: int, last: int) -> float | None:
    """Return the mean time of those units from `first` up to `last` that are steps alone, ms.

    Units with another number of calls of the model contain a validation or the end of an epoch,
    which bounds on a step know nothing about.  None if the calls are unknown, or no unit is alone.
    """
    units, calls = pace.units_ms()[first:last], pace.calls[1:][first:last]
    if len(calls) != len(units) or not calls:
        return None
    usual = statistics.mode(calls)
    alone = [ms for ms, own in zip(units, calls, strict=True) if own == usual]
    return statistics.fmean(alone) if alone and usual else None


def reached_ms(pace: Pace, first: int) -> float | None:
    """Return the time from the launch to its first steady unit, ms, and of later compilation.

    None if it is unknown: a launch as a whole contains its start-up.
    """
    if pace.started_ns is None or first >= len(pace.times_ns):
        return None
    begins = pace.times_ns[first]
    compiling = _compiling_until((begins, pace.times_ns[-1]), pace.compiling_ns)
    return (begins - pace.started_ns + compiling[1] - compiling[0]) / 1e6


def start_up_s(pace: Pace, first: int, plain_ms: float) -> float:
    """Return how much longer a launch takes than plain until units are steady, s.

    `plain_ms` is what `reached_ms` returns for a plain launch.  Later compilation counts too.  It
    is 0 if the times are unknown.
    """
    reached = reached_ms(pace, first)
    return 0.0 if reached is None else (reached - plain_ms) / 1e3


def pays_after(start_up_s: float, gain_ms: float) -> int | None:
    """Return the number of units after which a gain per unit has made up for start-up.

    None if it never does.
    """
    if start_up_s <= 0:
        return 0
    return math.ceil(start_up_s * 1e3 / gain_ms) if gain_ms > 0 else None


def _observed(calls: Calls, folder: Path, wall_s: float, started_ns: int | None, cut: bool) -> Pace:
    """Return the pace of a process."""
    levers = _levers(folder, calls.pid)
    if started_ns is None and calls.ended:
        # The last report is written when the process ends.
        started_ns = calls.written_ns - round(wall_s * 1e9)
    return Pace(
        calls.unit,
        tuple(calls.times_ns),
        tuple(calls.between),
        _compiled(levers),
        wall_s,
        (),
        calls.gpu,
        calls.count - 1,
        started_ns,
        _idle(levers),
        calls.ended and not cut,
        cut,
        _on_gpu(levers, len(calls.times_ns) - 1) if calls.unit == "step" else (),
    )


def _levers(folder: Path, pid: int) -> dict[str, Any]:
    """Return what a process reported about levers; empty if it did not."""
    try:
        report = json.loads((folder / f"levers.{pid}.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return report if isinstance(report, dict) else {}


def _compiled(levers: Mapping[str, Any]) -> Spans:
    """Return when a process compiled."""
    try:
        spans = levers["compiling_ns"]
        return tuple((int(start), int(end)) for start, end in spans if start < end)
    except (ValueError, ArithmeticError, LookupError, TypeError):
        return ()


def _idle(levers: Mapping[str, Any]) -> int | None:
    """Return when the GPU of a process that was ended was idle."""
    try:
        return int(levers["stopped_ns"])
    except (ValueError, ArithmeticError, LookupError, TypeError):
        return None


def _on_gpu(levers: Mapping[str, Any], units: int) -> tuple[float, ...]:
    """Return the times of all units on the GPU, ms; empty if any is unknown."""
    try:
        times = tuple(float(ms) for ms in levers.get("gpu_steps_ms") or ())
    except (ValueError, TypeError):
        return ()
    return times if len(times) == units and all(0 < ms < math.inf for ms in times) else ()


def _own_ms(pace: Pace) -> float:
    """Return the time per unit of a process in a window of its own."""
    first = min(first_steady([pace]), pace.units - 1)
    return ms_per_unit(pace, first, pace.units) or 0.0


def _compiling_until(times_ns: Sequence[int], spans: Iterable[tuple[int, int]]) -> list[int]:
    """Return how long it compiled until each of some ascending times, ns.

    Spans may overlap, as those of nested compilation do.
    """
    apart: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if apart and start <= apart[-1][1]:
            apart[-1] = apart[-1][0], max(end, apart[-1][1])
        else:
            apart.append((start, end))
    before = [0, *accumulate(end - start for start, end in apart)]
    found, ended = [], 0
    for time in times_ns:
        while ended < len(apart) and apart[ended][1] <= time:
            ended += 1
        begun = max(0, time - apart[ended][0]) if ended < len(apart) else 0
        found.append(before[ended] + begun)
    return found


def _least_units(paces: Sequence[Pace]) -> int:
    """Return the least number of steady units whose mean is the time of a launch."""
    limits = thresholds()
    # The host may run ahead, if only its times are known.
    gpu = any(pace.gpu and not pace.gpu_ms for pace in paces)
    return int(limits["trial.least_gpu_units" if gpu else "trial.least_units"])


def _steady(pace: Pace, first: int, last: int) -> bool:
    """Return whether the times of the host are those of the GPU.

    The host may issue units ahead, until the queue of the GPU is full.  If that happens late, the
    last third of units takes far longer than the others.  If it never happens, much is left to
    execute at the end.
    """
    if not pace.gpu or pace.gpu_ms or pace.unit == ITERATION:
        return True
    limits, units = thresholds(), pace.units_ms()[first:last]
    ahead_ms = 0.0 if pace.idle_ns is None else (pace.idle_ns - pace.times_ns[-1]) / 1e6
    if ahead_ms > limits["observed.pauses_time_share"] * math.fsum(units):
        return False
    third = max(1, len(units) // 3)
    longest = limits["timeline.warm_up_times"] * statistics.fmean(units[:-third])
    return statistics.fmean(units[-third:]) <= longest


def _whole(why: str) -> str:
    return f"whole launches are compared, with their start-up, because {why}"
