"""The energy of launches and of steps, from what was read of GPUs during a launch.

NVML counts the energy of a whole board, with its memory, in mJ since the driver was loaded (NVML
API reference, nvmlDeviceGetTotalEnergyConsumption).  The counter changes every 20 to 100 ms, so its
course is a staircase: the energy at a time is interpolated between the readings that found a new
value.  GPUs without the counter (older than Volta, some embedded ones) have their power integrated
(trapezoids).  nvmlDeviceGetPowerUsage averages the power over 1 s from Ampere on, except GA100.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfpipe.analysis.observed import Span
from perfpipe.analysis.thresholds import thresholds
from perfpipe.energyrecord import Energy
from perfpipe.units import format_ns

#: The source if all GPUs have the counter.
COUNTER = "NVML energy counter"

#: Why the energy of a step is unknown if nothing says when the steps were.
NO_STEPS = "perfpipe observed no steps, and times that a program prints do not say when they were"

_Numbers = npt.NDArray[np.float64]


class Unknown(Exception):
    """The energy is unknown; the message says why."""


class GpuReadings(NamedTuple):
    """What was read of a GPU at each time: energy counter, mJ; power, mW; load, %."""

    counter_mj: Sequence[int | None]
    power_mw: Sequence[int | None]
    load_pct: Sequence[int | None]


@dataclass(frozen=True)
class Readings:
    """Readings during a launch, the first before it and the last after it.

    `times_ns` are those of time.perf_counter_ns.  `instant` says that the power samples are not
    averages over time.  `missing` is why nothing was read.
    """

    times_ns: Sequence[int] = ()
    gpus: tuple[GpuReadings, ...] = ()
    instant: bool = False
    missing: str | None = None


@dataclass(frozen=True)
class Course:
    """The energy of GPUs over time: for each the times of its points, ns, and its energy, J.

    Shorter spans than `least_s` are too short for the source.
    """

    source: str
    points: tuple[tuple[_Numbers, _Numbers], ...]
    times_ns: _Numbers
    counted: bool
    least_s: float

    def joules(self, start_ns: float, end_ns: float) -> float:
        """Return the energy between two times, J; raises Unknown if it was not read then."""
        first = int(np.searchsorted(self.times_ns, start_ns, side="right")) - 1
        last = int(np.searchsorted(self.times_ns, end_ns))
        if first < 0 or last >= len(self.times_ns):
            raise Unknown("the times of the program are not within those of the readings")
        gaps = np.diff(self.times_ns[first : last + 1])
        if self.counted and len(gaps):
            # The counter counts while nobody reads it, so only the ends are interpolated.
            inside = self.times_ns[first] < start_ns, end_ns < self.times_ns[last]
            gaps = gaps[[0, -1]] * inside
        if (gap := float(gaps.max(initial=0))) > 1e9 * thresholds()["energy.gap_s"]:
            raise Unknown(f"the GPU was not read for {format_ns(gap)}")
        parts = (np.diff(np.interp((start_ns, end_ns), *own)).item() for own in self.points)
        return float(sum(parts))

    def launch_j(self) -> float:
        """Return the energy between the first and the last reading, J; raises Unknown."""
        start, end = float(self.times_ns[0]), float(self.times_ns[-1])
        self._check_length((end - start) / 1e9, "the launch")
        return self._positive(self.joules(start, end))

    def step_j(self, spans: Sequence[Span]) -> float:
        """Return the mean energy of a step in spans of steps, J; raises Unknown."""
        seconds = sum(own.end_ns - own.start_ns for own in spans) / 1e9
        mean_s = seconds / max(len(spans), 1)
        what = "steady steps" if len(spans) == 1 else "a stretch of successive steady steps"
        self._check_length(mean_s, what)
        total = sum(self.joules(own.start_ns, own.end_ns) for own in spans)
        return self._positive(total) / sum(own.steps for own in spans)

    def _check_length(self, seconds: float, what: str) -> None:
        if seconds < self.least_s:
            short = format_ns(1e9 * seconds)
            raise Unknown(f"{what}: {short} is too short for {self.source} ({self.least_s:g} s)")

    def _positive(self, joules: float) -> float:
        if joules <= 0:
            raise Unknown(f"{self.source}: it did not change")
        return joules


def course_of(readings: Readings) -> Course:
    """Return the energy of all GPUs over time; raises Unknown.

    All GPUs have the same source: the counter if each of them has it, else power samples.
    """
    if not readings.gpus:
        raise Unknown(readings.missing or "no GPU was read")
    counters = _columns([own.counter_mj for own in readings.gpus])
    if np.isnan(counters).all(axis=1).any():
        return _of_power(readings)
    times, counters = _complete(readings, counters)
    points = tuple(_counted(times, own) for own in counters)
    return Course(COUNTER, points, times, True, thresholds()["energy.least_counter_s"])


def _of_power(readings: Readings) -> Course:
    """Return the integral of the power of all GPUs; raises Unknown."""
    powers = _columns([own.power_mw for own in readings.gpus])
    if np.isnan(powers).all(axis=1).any():
        raise Unknown("NVML reports neither the energy nor the power of every GPU")
    times, powers = _complete(readings, powers)
    kind = "instant" if readings.instant else "averaged"
    hz = 1e9 / np.median(np.diff(times))
    points = tuple((times, _integral(times, own)) for own in powers)
    name = "energy.least_instant_s" if readings.instant else "energy.least_averaged_s"
    least_s = thresholds()[name]
    return Course(f"{kind} power samples, {hz:.0f} Hz", points, times, False, least_s)


def _columns(readings: Sequence[Sequence[int | None]]) -> _Numbers:
    """Return the readings of each GPU as a row, NaN where it did not report."""
    return np.asarray(readings, dtype=np.float64)


def _complete(readings: Readings, values: _Numbers) -> tuple[_Numbers, _Numbers]:
    """Return the times at which all GPUs reported, and what they did; raises Unknown."""
    known = np.asarray(np.isfinite(values).all(axis=0))
    if len(known) < 2 or not (known[0] and known[-1]):
        raise Unknown("NVML did not respond just before or just after the launch")
    return np.asarray(readings.times_ns, dtype=np.float64)[known], values[:, known]


def _counted(times: _Numbers, counter_mj: _Numbers) -> tuple[_Numbers, _Numbers]:
    """Return the readings that found a new value, and the first and last; J since the first."""
    joules = (counter_mj - counter_mj[0]) / 1e3
    steps = np.diff(joules, prepend=-1.0)
    if (steps < 0).any():
        raise Unknown("the energy counter was reset during the launch")
    new = steps > 0
    new[-1] = True
    return times[new], joules[new]


def _integral(times: _Numbers, power_mw: _Numbers) -> _Numbers:
    """Return the integral of power by trapezoids, J since the first sample."""
    parts = (power_mw[1:] + power_mw[:-1]) / 2e3 * np.diff(times) / 1e9
    return np.concatenate(([0.0], np.cumsum(parts)))


def measured(
    readings: Readings,
    spans: Sequence[Span] = (),
    unit: str | None = None,
    *,
    cut: str | None = None,
    no_steps: str = NO_STEPS,
) -> Energy:
    """Return the energy of a launch, and of its steady steps in `spans`, as a record.

    `cut` is why the launch as a whole says nothing, `no_steps` why there are no spans.
    """
    found = Energy(
        launches_j=(None,), windows_s=(None,), sampled_j=(None,), steps_j=(None,),
        gpus=len(readings.gpus), idle_w=_idle_w(readings),
        idle_gpus=sum(all(load == 0 for load in own.load_pct) for own in readings.gpus),
    )  # fmt: skip
    try:
        course = course_of(readings)
    except Unknown as why:
        return replace(found, missing=str(why), steps_missing=str(why))
    found = replace(found, source=course.source)
    try:
        if cut is not None:
            raise Unknown(cut)
        window_s = float(course.times_ns[-1] - course.times_ns[0]) / 1e9
        joules = course.launch_j()
        sampled = _sampled_j(readings, window_s) if course.counted else None
        found = replace(found, launches_j=(joules,), windows_s=(window_s,), sampled_j=(sampled,))
    except Unknown as why:
        found = replace(found, missing=str(why))
    try:
        if not spans:
            raise Unknown(no_steps)
        return replace(found, steps_j=(course.step_j(spans),), unit=unit)
    except Unknown as why:
        return replace(found, steps_missing=str(why))


def _sampled_j(readings: Readings, window_s: float) -> float | None:
    """Return what power samples give for the same launch, J; None if they are too coarse for it."""
    if window_s < thresholds()["energy.least_averaged_s"]:
        return None
    try:
        return _of_power(readings).launch_j()
    except Unknown:
        return None


def _idle_w(readings: Readings) -> float | None:
    """Return the lowest power of all GPUs at no load, W; None if any GPU was never idle."""
    lowest = [
        min(
            (
                power
                for power, load in zip(own.power_mw, own.load_pct, strict=True)
                if load == 0 and power is not None
            ),
            default=None,
        )
        for own in readings.gpus
    ]
    known = [power for power in lowest if power is not None]
    return sum(known) / 1e3 if known and len(known) == len(lowest) else None
