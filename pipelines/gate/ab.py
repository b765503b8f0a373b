"""Measures two arms on this machine alternately until the verdict is certain; profiles both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfpipe.analysis.gate.ab import certain, level_after, side_of_rounds
from perfpipe.analysis.gate.compare.comparison import pairs_of
from perfpipe.analysis.gate.compare.story import Comparison, compare
from perfpipe.analysis.gate.decision import Decision, Verdict, decide, primary
from perfpipe.analysis.gate.judging import ALPHA
from perfpipe.analysis.gate.limits import USUAL, Limits, limits_of
from perfpipe.analysis.gate.timed import comparable
from perfpipe.calibrationrecord import Calibration
from perfpipe.pipelines.collectors.base import Context, Say
from perfpipe.pipelines.console import Progress
from perfpipe.pipelines.gate.arms import Arm, labels_of
from perfpipe.pipelines.gate.results import compared_results
from perfpipe.pipelines.gate.sides import named
from perfpipe.pipelines.gate.turns import Measuring, in_turns
from perfpipe.pipelines.launcher import Launcher
from perfpipe.pipelines.measuring import profile
from perfpipe.pipelines.place import stopwatch
from perfpipe.pipelines.plan import Plan
from perfpipe.pipelines.runs import Run, result_of
from perfpipe.pipelines.tasks import directory_of
from perfpipe.pipelines.tools import find_tool_on
from perfpipe.pipelines.workload import CollectNsys, Workload
from perfpipe.store import Store


@dataclass(frozen=True)
class Outcome:
    """Measurements of two arms, with the decision, the number of rounds, and the runs of each arm.

    `reports` are those of each profiled arm.
    """

    decision: Decision
    comparison: Comparison
    rounds: int
    runs: tuple[tuple[str, ...], tuple[str, ...]]
    limits: Limits = USUAL
    reports: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())


@dataclass(frozen=True)
class _Rule:
    """How to judge rounds: names of the configurations, most rounds, whether to stop early.

    `alike` says that the arms are the same program, `confirms` that earlier rounds found a
    regression.
    """

    labels: Sequence[str]
    rounds: int
    early: bool
    alike: bool
    calibration: Calibration | None
    confirms: bool = False

    def level_after(self, done: int) -> float | None:
        """Return the level to test at after some rounds; None if it is too early."""
        return level_after(done, self.rounds, early=self.early)


def ab(
    arms: tuple[Arm, Arm],
    store: Store,
    rounds: int,
    progress: Progress,
    calibration: Calibration | None = None,
    *,
    early: bool = True,
    confirm: bool = True,
) -> Outcome:
    """Measure two alternating arms, A B B A, for at most `rounds` rounds, and decide.

    With `early` it stops when every configuration is certain at the level that sequential tests
    allow for that look; else all rounds are measured before the only look.  A configuration that
    fails ends it.  With `confirm` a regression is measured once more, in fresh rounds; the advice
    is to revert only if these find it too.  Identical arms are not confirmed.  A calibration
    says which changes count.  Raises InputError if the arms cannot be compared.
    """
    rule = _Rule(labels_of(arms), rounds, early, arms[0].alike(arms[1]), calibration)
    first = _measured(arms, store, rule, progress)
    if not confirm or rule.alike or first.decision.verdict != Verdict.REGRESSED:
        return _with_results(first, store)
    progress.note("regressed; fresh rounds will confirm or reject it")
    again = _measured(arms, store, replace(rule, confirms=True), progress)
    runs = tuple(a + b for a, b in zip(first.runs, again.runs, strict=True))
    both = replace(again, rounds=first.rounds + again.rounds, runs=(runs[0], runs[1]))
    return _with_results(both, store)


def _with_results(outcome: Outcome, store: Store) -> Outcome:
    """Return an outcome whose decision says whether both arms print the same results."""
    before, after = ([store.run(name) for name in names] for names in outcome.runs)
    results = compared_results(store, before, after, "launches of arm a")
    return replace(outcome, decision=replace(outcome.decision, results=results))


def _measured(arms: tuple[Arm, Arm], store: Store, rule: _Rule, progress: Progress) -> Outcome:
    """Measure rounds until the verdict is certain, or all are done."""
    for done, sides in in_turns(arms, store, rule.rounds, progress.detail):
        found = _decided(sides, done, rule)
        tell = progress.note if rule.confirms else progress.step
        tell(f"round {done}: {found.decision.verdict}: {found.decision.reason}")
        endpoints = found.decision.endpoints
        over = rule.level_after(done) is not None and certain(endpoints)
        # A configuration of one arm only is never compared.
        if over or found.decision.verdict == Verdict.FAILED or not all(p.change for p in endpoints):
            break
    return found


def _decided(sides: Sequence[Measuring], done: int, rule: _Rule) -> Outcome:
    results = iter(comparable([one.results for side in sides for one in side.rounds]))
    before, after = (
        side_of_rounds(
            f"arm {side.arm.name}",
            [replace(one, results=next(results)) for one in side.rounds],
            rule.labels,
        )
        for side in sides
    )
    level = rule.level_after(done)
    limits = limits_of(rule.calibration)
    pairs = pairs_of(before, after, alpha=level or ALPHA, limits=limits)
    decision = decide(
        pairs,
        failed=[*sides[0].failures, *sides[1].failures],
        confirmed=rule.confirms,
        alike=rule.alike,
        calibration=rule.calibration,
    )
    early = level is None and all(pair.change for pair in decision.endpoints)
    if early and not sides[0].failures and not sides[1].failures:
        # Too early for a verdict.
        decision = replace(
            decision,
            verdict=Verdict.UNREPLICATED if done < 2 else Verdict.INCONCLUSIVE,
            reason="too few rounds for a verdict"
            if rule.early
            else "the verdict follows the last round",
            endpoints=primary(pairs),
        )
    runs = (tuple(sides[0].runs), tuple(sides[1].runs))
    return Outcome(decision, compare(before, after, limits=limits), done, runs, limits)


def with_profiles(outcome: Outcome, arms: tuple[Arm, Arm], store: Store, say: Say) -> Outcome:
    """Return an outcome whose comparison also has a profile of each arm.

    Each configuration is launched once under every available profiler that the workload
    configures; nsys needs no configuration.  The verdict of the rounds stays.
    """
    profiled = [_profiled(arm, store, say) for arm in arms]
    names = [
        [*runs, *([run] if run else [])] for runs, run in zip(outcome.runs, profiled, strict=True)
    ]
    before, after = named(store, *names)
    comparison = compare(before.side, after.side, limits=outcome.limits)
    return replace(outcome, comparison=comparison, reports=(before.reports, after.reports))


def _profiled(arm: Arm, store: Store, say: Say) -> str | None:
    """Profile an arm, and return its run; None without a profiler."""
    workload = _traced(arm.workload)
    with Launcher(workload.execution, directory_of(workload, arm.path)) as launcher:
        collector = _collector(workload, launcher)
        if collector is None:
            say("no profiler on this machine, so where the time went is unknown")
            return None
        plan = Plan(workload, arm.path, arm.tasks, collector)
        run = Run.new(store, workload.name, arm.path.name, collector, words=arm.words)
        with run.track_status():
            for task in plan.tasks:
                directory = run.task_directory(task)
                ran = stopwatch(launcher, workload.env, task.command)
                context = Context(workload, task, launcher, directory, say)
                result = profile(plan, context, store, result_of(task))
                if result.error:
                    say(f"arm {arm.name}: {result.error}")
                run.add(replace(result, ran=ran()), directory)
        return run.record.run_id


def _traced(workload: Workload) -> Workload:
    """Return a workload that nsys traces, if it does not configure a timeline profiler itself."""
    wanted = workload.collect
    if wanted.nsys or wanted.torch:
        return workload
    traced = wanted.model_copy(update={"nsys": CollectNsys()})
    return workload.model_copy(update={"collect": traced})


def _collector(workload: Workload, launcher: Launcher) -> str | None:
    wanted = workload.collect
    here = [n for n in ("nsys", "ncu") if getattr(wanted, n) and find_tool_on(launcher, n)]
    if len(here) == 2:
        return "all"
    return here[0] if here else "torch" if wanted.torch else None
