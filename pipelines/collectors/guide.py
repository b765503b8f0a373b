"""What a guided launch of ncu profiles, how much of each launch, and how long that may take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from perfpipe.errors import TaskFailed
from perfpipe.pipelines.workload import CollectNcu

if TYPE_CHECKING:
    from perfpipe.analysis.profile_plan import ProfilePlan


class KernelsHidden(TaskFailed):
    """A timeline that does not show the kernels of CUDA graphs."""


class NothingToProfile(TaskFailed):
    """A timeline without a kernel that may be profiled; nothing has failed."""


@dataclass(frozen=True)
class Depth:
    """How much ncu collects of a launch: its options, and how many passes it needs for that."""

    name: str
    words: tuple[str, ...]
    passes: int
    other_s: float = 0.25
    metrics: tuple[str, ...] = ()

    def launch_s(self, memory_gb: float | None, pinned_gb: float | None = None) -> float:
        """Return about how long a launch takes of a program with some device and pinned memory, s.

        For one pass ncu saves none.
        """
        memory_gb = _MEMORY_GB if memory_gb is None else min(memory_gb, _MOST_GB)
        saving_s = _PASS_S_PER_GB * memory_gb + _PASS_S_PER_PINNED_GB * (pinned_gb or 0.0)
        return self.other_s + self.passes * (_PASS_S + saving_s * (self.passes > 1))


#: What a pass takes, s, and for each GB of the program's memory, as H200 took with ncu 2025.3.1.
#: ncu restores for each pass what the kernel writes: memory that the program merely holds costs
#: nothing, but one that takes more has kernels that write more.  So it was up to _MOST_GB.
_PASS_S, _PASS_S_PER_GB, _MOST_GB = 0.010, 0.004, 8.0

#: What each GB of pinned host memory adds to that, s, as data loaders have it: ncu saves it all, on
#: hosts of H200 at 5 to 16 GB/s.
_PASS_S_PER_PINNED_GB = 0.2

#: What is assumed where nobody saw how much memory the program takes, GB.
_MEMORY_GB = 2.5

#: Speed of Light alone needs 10 passes; the other counters of the second are as many again, and
#: the first reads the source as well.
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

#: What the waves and the clocks of a launch need beside the constituents of its SOL.
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

#: What its roofline needs as well.
_ROOFLINE = (
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
)

#: What ncu takes besides the program's own time and its launches, s.
STARTUP_S = 4.0

#: What a configuration may take with all its profilers and its report: plain runs, and seconds.
BUDGET_RUNS, BUDGET_S = 4.0, 60.0

#: What is left to do behind ncu: its report is read, and the report is written, s.
_AFTER_S = 10.0

#: However long the timeline took, ncu may profile for so long behind the start of the program, s.
_LEAST_S = 20.0

#: The rest is not waited for where ncu has been silent for so many seconds, and so many times as
#: long as all that was chosen takes on the timeline: it slows down what it does not profile, too.
_QUIET_S, _QUIET_TIMES = 20.0, 10.0


#: A plan that covers less is none, %: then ncu profiles all variants that it gets to in its time.
#: Auto-tuned kernels have more of them than a plan may have launches.
_LEAST_PCT, _ALL_LAUNCHES = 10.0, 1_000_000

#: However much time there is, no more launches than so many times what a plan may have: a report
#: has about 50 KB for each.
_MOST_TIMES = 5


@dataclass(frozen=True)
class Budget:
    """The time of a configuration: of its plain run, and what has been spent on it so far, s.

    `memory_gb` is how much memory the program takes on a GPU, `pinned_gb` how much it has pinned on
    the host, None if nobody saw it.
    """

    plain_s: float
    spent_s: float = 0.0
    memory_gb: float | None = None
    pinned_gb: float | None = None

    @property
    def whole_s(self) -> float:
        """What the configuration may take with all its profilers and its report, s."""
        return BUDGET_RUNS * self.plain_s + BUDGET_S

    def limit_s(self, options: CollectNcu) -> float:
        """Return how long ncu may take, s: what the workload says, else what is left."""
        left_s = self.whole_s - self.spent_s - _AFTER_S
        return options.time_limit or max(left_s, self.plain_s + _LEAST_S)

    def expected_s(self, launches: int, depth: Depth) -> float:
        """Return about how long ncu takes for some launches of the program, s."""
        return self.plain_s + STARTUP_S + self._launch_s(depth) * launches

    def fitting(self, depth: Depth, limit_s: float) -> int:
        """Return how many launches ncu profiles in a time."""
        left_s = limit_s - self.expected_s(0, depth)
        return max(int(left_s / self._launch_s(depth)), 1)

    def _launch_s(self, depth: Depth) -> float:
        return depth.launch_s(self.memory_gb, self.pinned_gb)


@dataclass(frozen=True)
class Guide:
    """What a guided launch of ncu is to profile, and the most that it may take.

    `expected` launches and all that was asked for has been seen; None if that is unknown.
    `budget_s` is the time of the whole configuration that the limit follows from, if it does.  With
    `from_start` ncu begins with the program, and sees launches before the steps as well.  `ranks`
    says that the process which is profiled communicates with others.
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

    def summary(self) -> str:
        """Return what ncu is about to do."""
        what = f"{self.expected} launches" if self.expected else "one launch of each kernel"
        of = f" of the {self.budget_s:.0f} s that all profilers have" if self.budget_s else ""
        return f"ncu: {what}, {self.depth.name}, within {self.limit_s:.0f} s{of}"


def guide_of(
    make_plan: Callable[[int | None], ProfilePlan | str],
    options: CollectNcu,
    budget: Budget,
    *,
    from_start: bool = False,
) -> Guide:
    """Return how to profile what a timeline says: as much of each launch as there is time for.

    `make_plan` returns the plan with at most so many launches, or the reason why there is none;
    then each kernel is profiled once.  Where even the cheapest sections take too long, the plan is
    cut: ncu profiles in the order of the program, and what comes last may matter most.  A program
    that starts with fewer launches than the timeline shows is profiled from its start on.
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
            f"ncu was asked for the first {launches:,} of {plan.expected_launches:,} launches: "
            "more make its report too large; raise collect.ncu.max_kernels to profile more",
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
    )


def _covering(plan: ProfilePlan | str, least_pct: float) -> ProfilePlan | None:
    """Return a plan that covers at least so much of the kernel time; else None."""
    return None if isinstance(plan, str) or plan.coverage_pct < least_pct else plan


def depths_of(options: CollectNcu, cc: str | None) -> tuple[Depth, ...]:
    """Return what may be collected of each launch, the richest first; what is stated is fixed.

    `cc` is the compute capability of the GPU, if it is known.
    """
    if options.model_fields_set & {"set", "sections"}:
        words = (f"--set={options.chosen_set}", *(f"--section={name}" for name in options.sections))
        known = {depth.words: depth for depth in DEPTHS}
        return (known.get(words, replace(DETAILED, name=words[0].removeprefix("--"), words=words)),)
    units = units_of(cc)
    # What is asked for beside may not fit into the one pass.
    return (*DEPTHS, *(units[:1] if options.metrics else units))


def units_of(cc: str | None) -> tuple[Depth, ...]:
    """Return what is collected where even `basic` takes too long: main constituents of the SOLs.

    First all of them, then those that one pass counts.  Nothing for GPUs on which these are not
    known to make up the SOLs.
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
        # A range already leaves out what comes before it.
        return without_skip(plan.ncu_words)
    return plan.ncu_words


def without_skip(words: Sequence[str]) -> list[str]:
    """Return options of ncu without the launches that it skips."""
    return [word for word in words if not word.startswith("--launch-skip-before-match")]


def _quiet_s(plan: ProfilePlan) -> float:
    return _QUIET_S + _QUIET_TIMES * (plan.span_ns or 0) / 1e9


def _units_note(depth: Depth, limit_s: float) -> str:
    what = "the main constituents of Speed of Light only, the largest of which stands for it"
    if depth.passes == 1:
        what = "only the constituents of Speed of Light that one pass counts; the SOL may be higher"
    return (
        f"ncu collected {what}: more does not fit into {limit_s:.0f} s; raise "
        "collect.ncu.time_limit for more"
    )


def _cut_note(plan: ProfilePlan, cut: ProfilePlan, limit_s: float) -> str:
    return (
        f"ncu was asked for {cut.expected_launches} of {plan.expected_launches} launches, which "
        f"stand for {cut.coverage_pct:.0f} instead of {plan.coverage_pct:.0f} % of the kernel "
        f"time: no more fit into {limit_s:.0f} s; raise collect.ncu.time_limit to profile more"
    )
