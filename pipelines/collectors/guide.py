"""Chooses what a guided launch of ncu profiles, in what depth, and its time limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from perfpipe.errors import TaskFailed
from perfpipe.pipelines.workload import CollectNcu

if TYPE_CHECKING:
    from perfpipe.analysis.profile_plan import ProfilePlan


class KernelsHidden(TaskFailed):
    """A timeline that hides the kernels of CUDA graphs."""


class NothingToProfile(TaskFailed):
    """A timeline without a kernel that may be profiled; this is not a failure."""


@dataclass(frozen=True)
class Depth:
    """How much ncu collects per launch: its options, and the number of passes."""

    name: str
    words: tuple[str, ...]
    passes: int
    other_s: float = 0.25
    metrics: tuple[str, ...] = ()

    def launch_s(self, memory_gb: float | None, pinned_gb: float | None = None) -> float:
        """Return the expected time of a launch for a program's device and pinned memory, s.

        With one pass ncu does not save memory.
        """
        memory_gb = _MEMORY_GB if memory_gb is None else min(memory_gb, _MOST_GB)
        saving_s = _PASS_S_PER_GB * memory_gb + _PASS_S_PER_PINNED_GB * (pinned_gb or 0.0)
        return self.other_s + self.passes * (_PASS_S + saving_s * (self.passes > 1))


#: Time of a pass, s, and per GB of the program's memory, measured on H200 with ncu 2025.3.1.
#: For each pass ncu restores the memory that the kernel writes.  Memory that is only held is free,
#: but programs with more memory have kernels that write more.  Measured up to _MOST_GB.
_PASS_S, _PASS_S_PER_GB, _MOST_GB = 0.010, 0.004, 8.0

#: Additional time per GB of pinned host memory, s, as data loaders use it: ncu saves all of it, on
#: hosts of H200 at 5 to 16 GB/s.
_PASS_S_PER_PINNED_GB = 0.2

#: Assumed memory of a program if it is unknown, GB.
_MEMORY_GB = 2.5

#: Speed of Light alone needs 10 passes; the other counters of LEAN need as many again, and DETAILED
#: also collects source counters.
DETAILED = Depth("set=detailed", ("--set=detailed",), 21, 0.4)
LEAN = Depth(
    "set=basic and sections",
    (
        "--set=basic",
        "--section=MemoryWorkloadAnalysis",
        "--section=ComputeWorkloadAnalysis",
        "--section=WarpStateStats",
        "--section=SchedulerStats",
        "--section=SpeedOfLight_RooflineChart",
    ),
    21,
)
BASIC = Depth("set=basic", ("--set=basic",), 10)
DEPTHS = (DETAILED, LEAN, BASIC)

#: Sections and metrics for the waves and clocks of a launch, besides the constituents of its SOL.
_LAUNCH = ("--section=LaunchStats", "--section=Occupancy")
_BESIDE = (
    "gpu__time_duration.sum",
    "gpc__cycles_elapsed.avg.per_second",
    "gpc__cycles_elapsed.max",
    "sm__cycles_elapsed.avg",
    "sm__cycles_elapsed.avg.per_second",
    "sm__cycles_active.avg",
    "sm__cycles_active.max",
    "dram__bytes.sum",
    "dram__bytes.sum.per_second",
)

#: Additional metrics for its roofline.
_ROOFLINE = (
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
)

#: Startup time of ncu, s.
STARTUP_S = 4.0

#: Time limit of a configuration with all profilers and its report: plain runs, plus seconds.
BUDGET_RUNS, BUDGET_S = 4.0, 60.0

#: Time reserved after ncu to read its report and write the page, s.
_AFTER_S = 10.0

#: Least time for ncu after the start of the program, s, even if the timeline took long.
_LEAST_S = 20.0

#: ncu is stopped if it was silent for this many seconds, plus this multiple of the time that the
#: chosen kernels span on the timeline: it also slows down kernels that it does not profile.
_QUIET_S, _QUIET_TIMES = 20.0, 10.0


#: A plan that covers less, %, is discarded: then ncu profiles all variants within its time limit.
#: Autotuned kernels can have more variants than a plan may have launches.
_LEAST_PCT, _ALL_LAUNCHES = 10.0, 1_000_000

#: Most launches as a multiple of a plan's limit, regardless of time: a report takes about 50 KB
#: per launch.
_MOST_TIMES = 5


@dataclass(frozen=True)
class Budget:
    """The time of a configuration: its plain run, and the time spent so far, s.

    `memory_gb` is the program's memory on a GPU, `pinned_gb` its pinned host memory, None if
    unknown.
    """

    plain_s: float
    spent_s: float = 0.0
    memory_gb: float | None = None
    pinned_gb: float | None = None

    @property
    def whole_s(self) -> float:
        """The time limit of the configuration with all its profilers and its report, s."""
        return BUDGET_RUNS * self.plain_s + BUDGET_S

    def limit_s(self, options: CollectNcu) -> float:
        """Return the time limit of ncu, s: the workload's setting, else the remaining time."""
        left_s = self.whole_s - self.spent_s - _AFTER_S
        return options.time_limit or max(left_s, self.plain_s + _LEAST_S)

    def expected_s(self, launches: int, depth: Depth) -> float:
        """Return the expected time of ncu for a number of launches, s."""
        return self.plain_s + STARTUP_S + self._launch_s(depth) * launches

    def fitting(self, depth: Depth, limit_s: float) -> int:
        """Return how many launches ncu can profile in a time."""
        left_s = limit_s - self.expected_s(0, depth)
        return max(int(left_s / self._launch_s(depth)), 1)

    def _launch_s(self, depth: Depth) -> float:
        return depth.launch_s(self.memory_gb, self.pinned_gb)


@dataclass(frozen=True)
class Guide:
    """The kernels that a guided launch of ncu profiles, and its time limit.

    ncu is complete after `expected` launches, which take about `about_s`; None if that is unknown.
    `budget_s` is the time of the whole configuration, if the limit follows from it.  With
    `from_start` ncu begins with the program, so it also sees launches before the steps.  `ranks`
    says that the profiled process communicates with others, `children` that only processes work on
    the GPU that the program starts.
    """

    words: Sequence[str]
    depth: Depth
    limit_s: float
    expected: int | None = None
    quiet_s: float | None = None
    budget_s: float | None = None
    from_start: bool = False
    ranks: bool = False
    notes: tuple[str, ...] = ()
    about_s: float | None = None
    children: bool = False

    def takes(self, timeout: float) -> str:
        """Return how long ncu takes, for a program with a time limit, s."""
        limit_s = min(self.limit_s, timeout)
        most = f"at most {limit_s:.0f} s"
        return f"about {min(self.about_s, limit_s):.0f} s, {most}" if self.about_s else most

    def summary(self) -> str:
        """Return a progress message on the launch of ncu."""
        what = f"{self.expected} launches" if self.expected else "one launch of each kernel"
        of = f" of the {self.budget_s:.0f} s for all profilers" if self.budget_s else ""
        return f"ncu: {what}, {self.depth.name}, within {self.limit_s:.0f} s{of}"


def guide_of(
    make_plan: Callable[[int | None], ProfilePlan | str],
    options: CollectNcu,
    budget: Budget,
    *,
    from_start: bool = False,
) -> Guide:
    """Return how to profile a timeline's kernels, in as much depth as the time allows.

    `make_plan` returns the plan with at most a number of launches, or the reason why it is
    impossible; then each kernel is profiled once.  If even the cheapest sections take too long, the
    plan is cut: ncu profiles in program order, and the last kernels may matter most.  A program
    that starts with fewer launches than the timeline shows is profiled from its start.
    """
    limit_s = budget.limit_s(options)
    budget_s = None if options.time_limit else budget.whole_s
    plan = make_plan(None)
    depths = depths_of(options, None if isinstance(plan, str) else plan.cc)
    if isinstance(plan, str):
        from perfpipe.analysis.profile_plan import each_once

        note = f"ncu profiled the first launch of each kernel configuration: {plan}"
        return Guide(each_once(), depths[0], limit_s, budget_s=budget_s, notes=(note,))
    launches = plan.expected_launches
    if plan.coverage_pct < _LEAST_PCT:
        plan = _covering(make_plan(_ALL_LAUNCHES), plan.coverage_pct) or plan
        launches = min(plan.expected_launches, _MOST_TIMES * options.max_kernels)
    fitting = [d for d in depths if budget.expected_s(launches, d) <= limit_s]
    depth = fitting[0] if fitting else depths[-1]
    notes: tuple[str, ...] = ()
    if launches < plan.expected_launches:
        notes = (
            f"ncu was limited to the first {launches:,} of {plan.expected_launches:,} launches, to "
            "limit the size of its report; raise collect.ncu.max_kernels to profile more",
        )
    if not fitting:
        most = budget.fitting(depth, limit_s)
        cut = _covering(make_plan(most), min(_LEAST_PCT, plan.coverage_pct))
        if cut and 0 < cut.expected_launches < launches:
            plan, notes = cut, (_cut_note(plan, cut, limit_s),)
            launches = plan.expected_launches
    if depth.metrics:
        notes = (_units_note(depth, limit_s), *notes)
    return Guide(
        words_of(plan, options, from_start=from_start),
        depth,
        limit_s,
        launches,
        _quiet_s(plan),
        budget_s,
        from_start,
        plan.processes > 1 and bool(plan.communication_pct),
        notes,
        budget.expected_s(launches, depth) if budget.plain_s else None,
    )


def _covering(plan: ProfilePlan | str, least_pct: float) -> ProfilePlan | None:
    """Return a plan that covers at least so much of the kernel time; else None."""
    return None if isinstance(plan, str) or plan.coverage_pct < least_pct else plan


def depths_of(options: CollectNcu, cc: str | None) -> tuple[Depth, ...]:
    """Return the possible depths, richest first; only one if the workload sets it.

    `cc` is the compute capability of the GPU, if it is known.
    """
    if options.model_fields_set & {"set", "sections"}:
        words = (f"--set={options.chosen_set}", *(f"--section={name}" for name in options.sections))
        known = {depth.words: depth for depth in DEPTHS}
        return (known.get(words, replace(DETAILED, name=words[0].removeprefix("--"), words=words)),)
    units = units_of(cc)
    # Additional metrics may not fit into the single pass.
    return (*DEPTHS, *(units[:1] if options.metrics else units))


def units_of(cc: str | None) -> tuple[Depth, ...]:
    """Return the depths below `basic`: main constituents of the SOLs.

    First all of them, then those that one pass counts.  Empty for GPUs on which these are not
    known to determine the SOLs.
    """
    from perfpipe.analysis.metrics import one_pass_units, sol_units

    units = [unit for side in sol_units().values() for unit in side]
    if not all(unit.holds_for(cc or "") for unit in units):
        return ()
    names = tuple(unit.metric for unit in units)
    once = tuple(unit.metric for unit in one_pass_units())
    return (
        Depth("main constituents of the SOLs", _LAUNCH, 5, 0.1, (*names, *_BESIDE, *_ROOFLINE)),
        Depth("constituents of the SOLs in one pass", _LAUNCH, 1, 0.04, (*once, *_BESIDE)),
    )


def words_of(plan: ProfilePlan, options: CollectNcu, *, from_start: bool = False) -> list[str]:
    """Return the options of ncu that select the kernels of a plan."""
    if from_start or options.capture_range != "none":
        # A capture range already excludes earlier launches.
        return without_skip(plan.ncu_words)
    return plan.ncu_words


def without_skip(words: Sequence[str]) -> list[str]:
    """Return options of ncu without the launches that it skips."""
    return [word for word in words if not word.startswith("--launch-skip-before-match")]


def _quiet_s(plan: ProfilePlan) -> float:
    return _QUIET_S + _QUIET_TIMES * (plan.span_ns or 0) / 1e9


def _units_note(depth: Depth, limit_s: float) -> str:
    what = "only the main constituents of Speed of Light; the largest of them is used as the SOL"
    if depth.passes == 1:
        what = "only the constituents of Speed of Light from one pass; the real SOL may be higher"
    return (
        f"ncu collected {what}. More does not fit into {limit_s:.0f} s; raise "
        "collect.ncu.time_limit to collect more"
    )


def _cut_note(plan: ProfilePlan, cut: ProfilePlan, limit_s: float) -> str:
    return (
        f"ncu was limited to {cut.expected_launches} of {plan.expected_launches} launches, which "
        f"cover {cut.coverage_pct:.0f} instead of {plan.coverage_pct:.0f} % of the kernel time, "
        f"to stay within {limit_s:.0f} s; raise collect.ncu.time_limit to profile more"
    )
