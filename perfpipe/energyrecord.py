"""The energy that GPUs took in the launches of a program, as stored with its result."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from perfpipe.columns import column, derived


@dataclass(frozen=True)
class Energy:
    """Energy of the GPUs that a program may use, in its launches without a profiler.

    Each tuple has one value per launch, None if unknown: `launches_j` is the energy between two
    readings, just before the launch and just after it, J; `windows_s` is the time between these
    readings, s; `sampled_j` is the integral of power samples over the same time, J; `steps_j` is
    the energy of a steady step, J.  `idle_gpus` are the GPUs that did nothing in any launch.
    `missing` says why the energy of a launch is unknown, `steps_missing` why that of a step is.
    """

    source: str | None = field(
        default=None,
        metadata=column(
            "VARCHAR",
            "source of the energy: NVML energy counter, or power samples with their rate; NULL if "
            "neither is available",
            "energy_source",
        ),
    )
    launches_j: tuple[float | None, ...] = ()
    windows_s: tuple[float | None, ...] = ()
    sampled_j: tuple[float | None, ...] = ()
    steps_j: tuple[float | None, ...] = ()
    unit: str | None = field(
        default=None,
        metadata=column(
            "VARCHAR",
            "kind of step that step_energy_j is about: step (of an optimizer), token or call (of "
            "the model)",
            "energy_unit",
        ),
    )
    idle_w: float | None = field(
        default=None,
        metadata=column(
            "DOUBLE",
            "idle power of the program's GPUs, W: the lowest power sample in which a GPU did "
            "nothing; NULL if a GPU was never idle. It is a part of energy_j",
            "idle_power_w",
        ),
    )
    gpus: int = field(
        default=0,
        metadata=column("BIGINT", "number of GPUs whose energy is counted", "energy_gpus"),
    )
    idle_gpus: int = 0
    missing: str | None = field(
        default=None,
        metadata=column("VARCHAR", "why energy_j is NULL", "energy_missing"),
    )
    steps_missing: str | None = field(
        default=None,
        metadata=column("VARCHAR", "why step_energy_j is NULL", "step_energy_missing"),
    )

    @property
    @derived(
        "DOUBLE",
        "median energy of one execution of the program without a profiler, J, over all GPUs that "
        "the program may use (CUDA_VISIBLE_DEVICES), idle power included; NULL with energy_missing",
    )
    def energy_j(self) -> float | None:
        """Median energy of a launch, J; None if that of any launch is unknown."""
        return _median(self.launches_j)

    @property
    @derived("DOUBLE", "median time between the two readings that energy_j is the difference of, s")
    def energy_window_s(self) -> float | None:
        """Median time in which the energy of a launch was taken, s."""
        return _median(self.windows_s)

    @property
    @derived("DOUBLE", "median of the average power of an execution, W: energy_j / energy_window_s")
    def mean_power_w(self) -> float | None:
        """Median over the launches of their average power, W."""
        pairs = zip(self.launches_j, self.windows_s, strict=False)  # a file may have anything
        return _median([j / s if j is not None and s else None for j, s in pairs])

    @property
    @derived(
        "DOUBLE",
        "median energy of one execution from power samples, J, to check energy_j; NULL if unknown",
    )
    def sampled_energy_j(self) -> float | None:
        """Median integral of the power samples of a launch, J."""
        return _median(self.sampled_j)

    @property
    @derived(
        "DOUBLE",
        "median energy of a steady step that perfpipe observed, J, over the same GPUs, idle power "
        "included; NULL with step_energy_missing",
    )
    def step_energy_j(self) -> float | None:
        """Median energy of a step, J; None if it is unknown in any launch."""
        return _median(self.steps_j)


def together(launches: Sequence[Energy]) -> Energy | None:
    """Return the energy of several launches as one record; None without launches."""
    if not launches:
        return None
    idle = [own.idle_w for own in launches if own.idle_w is not None]
    return Energy(
        source=_first(own.source for own in launches),
        launches_j=tuple(j for own in launches for j in own.launches_j),
        windows_s=tuple(s for own in launches for s in own.windows_s),
        sampled_j=tuple(j for own in launches for j in own.sampled_j),
        steps_j=tuple(j for own in launches for j in own.steps_j),
        unit=_first(own.unit for own in launches),
        idle_w=statistics.median(idle) if idle else None,
        gpus=max(own.gpus for own in launches),
        idle_gpus=min(own.idle_gpus for own in launches),
        missing=_first(own.missing for own in launches),
        steps_missing=_first(own.steps_missing for own in launches),
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known and len(known) == len(values) else None


def _first(texts: Iterable[str | None]) -> str | None:
    return next((text for text in texts if text is not None), None)
