"""The measurements in the runs and reports of one side of a comparison."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from perfpipe.analysis import counters, facts
from perfpipe.analysis.facts import MACHINE, MODEL, Facts
from perfpipe.analysis.gate.judging import LONGEST_WITH_STEPS_NS, timer_step
from perfpipe.analysis.known import median
from perfpipe.analysis.rows import rows_of
from perfpipe.database import in_list
from perfpipe.runrecord import GpuState, RunRecord, TaskResult

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Views that are read here.
VIEWS = (
    *("kernel_times", "step_parts", "_timed_kernels", "nsys_graph_launches", "reports"),
    "analysis_windows",
    *facts.VIEWS,
    *counters.VIEWS,
)

#: Parts of a key that are not categories of the budget: an iteration without a profiler, a launch
#: without one from start to end (of a program that prints no times), a step (or a whole capture
#: without steps) of a timeline, all profiled kernels together, one kernel.
ITERATION, WALL, STEP, CAPTURE = "iteration", "wall time", "step", "capture"
PROFILED, KERNEL = "profiled", "kernel"

#: Parts that get a verdict; the others are categories of a step's budget, which explain it.
ENDPOINTS = (ITERATION, STEP, WALL, CAPTURE, PROFILED)

#: Parts that are energies, J, not times: of a step that perfpipe observed, and of a launch.
STEP_ENERGY, LAUNCH_ENERGY = "energy per step", "energy per execution"
ENERGIES = (STEP_ENERGY, LAUNCH_ENERGY)

#: All parts that get a verdict.
JUDGED = (*ENDPOINTS, *ENERGIES, KERNEL)


class Key(NamedTuple):
    """A key to match; `profiler` is empty for the time of an iteration without a profiler."""

    profiler: str
    label: str
    part: str
    kernel: str = ""
    grid: str = ""
    block: str = ""


@dataclass
class Measured:
    """The measurements of one side for a key, a value per run; clocks in MHz, None if unknown.

    `medians` are times in ns, or energies in J.
    `totals` are the times of all its launches in a step; empty without steps.
    `spreads` are how far the 95th percentile of a run's own steps or iterations lies above their
    median, as ratio - 1; runs with fewer than two have none.
    """

    medians: list[float] = field(default_factory=list)
    totals: list[float] = field(default_factory=list)
    launches: list[int] = field(default_factory=list)
    sm_mhz: list[float | None] = field(default_factory=list)
    memory_mhz: list[float | None] = field(default_factory=list)
    spreads: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Side:
    """One side of a comparison: measurements, GPU models, ids of its runs, and their start times.

    `timers` are the steps of the timers behind the times, ns, by profiler.  `hidden` are the
    configurations with CUDA graphs that were traced as a whole: their kernels are not visible.
    `counters` are those of profiled kernels, by name, under the kernel's key.  `no_energy` is why
    a configuration has no energy in some run.
    """

    measured: dict[Key, Measured]
    gpus: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()
    began: tuple[str | None, ...] = ()
    timers: dict[str, int] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    facts: Facts = field(default_factory=Facts)
    counters: dict[Key, dict[str, float]] = field(default_factory=dict)
    no_energy: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, key: Key) -> Measured:
        return self.measured.get(key, Measured())

    @property
    def labels(self) -> set[str]:
        """The configurations that were measured."""
        return {key.label for key in self.measured}

    def has(self, profiler: str, label: str, part: str) -> bool:
        """Whether it measured that part of a configuration."""
        return Key(profiler, label, part) in self.measured

    def kernels(self, profiler: str, label: str) -> dict[Key, int]:
        """Return the kernels of a configuration, and how often each was launched in a run."""
        return {
            key: round(statistics.median(own.launches))
            for key, own in self.measured.items()
            if key[:3] == (profiler, label, KERNEL)
        }

    def relabelled(self, label: str) -> Side:
        """Return the same with all keys of one configuration."""
        found = {key._replace(label=label): own for key, own in self.measured.items()}
        hidden = frozenset({label} if self.hidden else ())
        counted = {key._replace(label=label): own for key, own in self.counters.items()}
        whys = [*self.no_energy.values()]
        lacks = {label: whys[0]} if whys else {}
        return replace(self, measured=found, hidden=hidden, counters=counted, no_energy=lacks)


class _Sample(NamedTuple):
    """A measurement of one report (or the timing of a task) for a key."""

    key: Key
    median: float
    total: float | None
    launches: int
    sm_mhz: float | None
    memory_mhz: float | None
    spread: float | None = None


def side_of(
    con: DuckDBPyConnection | None, runs: Sequence[RunRecord], reports: Sequence[str]
) -> Side:
    """Gather one side: runs with their reports; a report without a run counts as a run.

    `con` may be None without reports.
    """
    samples: dict[int, list[_Sample]] = {}
    owners: dict[str, tuple[int, str, GpuState | None]] = {}
    for number, run in enumerate(runs):
        for task in run.tasks:
            state = task.gpu_state
            owners |= dict.fromkeys(task.reports, (number, task.label, state))
            if timed := own_time(task):
                part, time = timed
                spread = _spread(task.times_ms) if part == ITERATION else None
                key = Key("", task.label, part)
                sample = _Sample(key, time, time, 1, *clocks_of(state), spread)
                energies = [_of_energy(task.label, *own) for own in energies_of(task)]
                samples.setdefault(number, []).extend((sample, *energies))
    loose = [report for report in reports if report not in owners]
    owners |= {report: (len(runs) + at, "", None) for at, report in enumerate(loose)}
    for report, sample in _samples(con, owners) if con else ():
        number, label, state = owners[report]
        sm_mhz, memory_mhz = clocks_of(state) if sample.key.profiler != "ncu" else (None, None)
        own = sample._replace(
            key=sample.key._replace(label=label),
            sm_mhz=sample.sm_mhz or sm_mhz,
            memory_mhz=sample.memory_mhz or memory_mhz,
        )
        samples.setdefault(number, []).append(own)
    measured: dict[Key, Measured] = {}
    for _, own_run in sorted(samples.items()):
        _add_run(measured, own_run)
    names = tuple(run.run_id for run in runs) or tuple(reports)
    known = facts.with_records(facts.facts_of([run.tasks for run in runs]), runs)
    lacks = no_energy((task.label, task) for run in runs for task in run.tasks)
    if con is None:
        times = tuple(run.started_at for run in runs)
        models = frozenset(known.values(MACHINE, MODEL))
        timers = _timers(None, (), runs)
        return Side(measured, models, names, times, timers, facts=known, no_energy=lacks)
    about = f"FROM reports WHERE report_id IN {in_list(reports)}"
    gpus = frozenset(gpu for (gpu,) in rows_of(con, f"SELECT DISTINCT gpu {about}") if gpu)
    at = dict(rows_of(con, f"SELECT report_id, captured_at {about}"))
    began = tuple(run.started_at for run in runs) + tuple(at.get(report) for report in loose)
    sql = f"""
        SELECT DISTINCT report_id FROM nsys_graph_launches
        WHERE report_id IN {in_list(list(owners))}
    """
    hidden = frozenset(owners[report][1] for (report,) in rows_of(con, sql))
    known = facts.with_reports(known, con, list(owners))
    counted = {
        Key("ncu", owners[report][1], KERNEL, *kernel): own
        for report, kernel, own in counters.counters_of(con, list(owners))
    }
    timers = _timers(con, owners, runs)
    return Side(measured, gpus, names, began, timers, hidden, known, counted, lacks)


def own_time(task: TaskResult) -> tuple[str, float] | None:
    """Return the kind of a task's time without a profiler, ITERATION or WALL, and the time in ns.

    That is the median of the times that the program printed, else the wall time of a launch.
    Printed times count only if all are positive and finite.  Returns None if neither is known.
    """
    if not task.done:
        return None
    if task.times_ms and all(0 < ms < math.inf for ms in task.times_ms):
        return ITERATION, statistics.median(task.times_ms) * 1e6
    return None if not task.wall_s else (WALL, task.wall_s * 1e9)


def _spread(times: Sequence[float]) -> float | None:
    """Return how far the 95th percentile lies above the median, as ratio - 1."""
    if len(times) < 2:
        return None
    return statistics.quantiles(times, n=20, method="inclusive")[-1] / statistics.median(times) - 1


def energies_of(task: TaskResult) -> Iterator[tuple[str, float]]:
    """Yield the kinds of a task's energy that are known, as in ENERGIES, and the energy in J."""
    if task.done and task.energy is not None:
        known = (task.energy.step_energy_j, task.energy.energy_j)
        for part, joules in zip(ENERGIES, known, strict=True):
            if joules is not None and 0 < joules < math.inf:
                yield part, joules


def no_energy(tasks: Iterable[tuple[str, TaskResult]]) -> dict[str, str]:
    """Return why configurations have no energy, by label."""
    found: dict[str, str] = {}
    for label, task in tasks:
        if task.done and not any(energies_of(task)):
            energy = task.energy
            whys = (energy.missing, energy.steps_missing) if energy else ("it was not measured",)
            found[label] = "; ".join(dict.fromkeys(why for why in whys if why))
    return found


def clocks_of(state: GpuState | None) -> tuple[float | None, float | None]:
    """Return the clocks of the SMs and the memory while a task was timed, MHz."""
    if state is None or not state.gpus:
        return None, None
    memory = state.gpus[0].memory_mhz
    return state.sm_mhz, memory.median if memory else None


def _of_energy(label: str, part: str, joules: float) -> _Sample:
    # Clocks do not explain a change of energy, so they are not given.
    return _Sample(Key("", label, part), joules, None, 1, None, None)


def _samples(con: DuckDBPyConnection, reports: Iterable[str]) -> Iterator[tuple[str, _Sample]]:
    """Yield the measurements of each report; clocks come from the profiler alone."""
    chosen = f"report_id IN {in_list(list(reports))}"
    sql = f"""
        SELECT report_id, max(p95_ns / step_ns - 1) FROM analysis_windows
        WHERE steps > 1 AND step_ns > 0 AND {chosen}
        GROUP BY report_id
    """
    spreads = dict(rows_of(con, sql))
    sql = f"SELECT report_id, profiler, part, time_ns, sm_clock_hz FROM step_parts WHERE {chosen}"
    for report, profiler, part, time, clock in rows_of(con, sql):
        spread = spreads.get(report) if part == STEP else None
        yield report, _Sample(Key(profiler, "", part), time, time, 1, _mhz(clock), None, spread)
    of_ncu = f"profiler = 'ncu' AND {chosen}"
    sql = f"SELECT report_id, total_ns, launches FROM kernel_times WHERE {of_ncu}"
    profiled: dict[str, list[tuple[float, int]]] = {}
    for report, total, launches in rows_of(con, sql):
        profiled.setdefault(report, []).append((total, launches))
    for report, own in profiled.items():
        time = math.fsum(total for total, _ in own)
        count = sum(launches for _, launches in own)
        yield report, _Sample(Key("ncu", "", PROFILED), time, time, count, None, None)
    sql = f"""
        SELECT report_id, profiler, kernel_name, grid, block,
            median_ns, step_ns, launches, sm_clock_hz, dram_clock_hz
        FROM kernel_times WHERE median_ns > 0 AND {chosen}
    """
    for report, profiler, *of_kernel, median_ns, total, launches, sm, dram in rows_of(con, sql):
        key = Key(profiler, "", KERNEL, *of_kernel)
        yield report, _Sample(key, median_ns, total, launches, _mhz(sm), _mhz(dram))


def _mhz(clock: float | None) -> float | None:
    return None if clock is None else clock / 1e6


def _add_run(measured: dict[Key, Measured], samples: Iterable[_Sample]) -> None:
    """Add a run: several processes or GPUs of it are one sample, since they are not independent."""
    by_key: dict[Key, list[_Sample]] = {}
    for sample in samples:
        by_key.setdefault(sample.key, []).append(sample)
    for key, own in sorted(by_key.items()):
        to = measured.setdefault(key, Measured())
        to.medians.append(statistics.median(sample.median for sample in own))
        totals = [sample.total for sample in own if sample.total is not None]
        to.totals += [statistics.fmean(totals)] if totals else []
        to.launches.append(sum(sample.launches for sample in own))
        to.sm_mhz.append(median(sample.sm_mhz for sample in own))
        to.memory_mhz.append(median(sample.memory_mhz for sample in own))
        spreads = [sample.spread for sample in own if sample.spread is not None]
        to.spreads += [max(spreads)] if spreads else []


def _timers(
    con: DuckDBPyConnection | None, reports: Iterable[str], runs: Iterable[RunRecord]
) -> dict[str, int]:
    """Return the step of each profiler's timer, ns, if the durations show it."""
    seen: dict[str, set[float]] = {"": set()}
    for run in runs:
        seen[""].update(time * 1e6 for task in run.tasks for time in task.times_ms)
    sql = (
        "SELECT DISTINCT profiler, duration_ns FROM _timed_kernels "
        f"WHERE duration_ns < {LONGEST_WITH_STEPS_NS} AND report_id IN {in_list(list(reports))}"
    )
    for profiler, duration in rows_of(con, sql) if con else ():
        seen.setdefault(profiler, set()).add(duration)
    found = {profiler: timer_step(durations) for profiler, durations in seen.items()}
    return {profiler: step for profiler, step in found.items() if step is not None}
