"""Measures two arms on this machine in turns until the verdict is certain; profiles both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfpipe.analysis.gate.ab import Round, certain, level_after, side_of_rounds
from perfpipe.analysis.gate.compare.comparison import pairs_of
from perfpipe.analysis.gate.compare.story import Comparison, compare
from perfpipe.analysis.gate.decision import Action, Decision, Verdict, after_fresh, decide
from perfpipe.analysis.gate.first_run import first_run_effect
from perfpipe.analysis.gate.judging import ALPHA
from perfpipe.analysis.gate.limits import USUAL, Limits, limits_of
from perfpipe.analysis.gate.order import seeded
from perfpipe.analysis.gate.sides import Side
from perfpipe.analysis.gate.timed import comparable
from perfpipe.calibrationrecord import Calibration
from perfpipe.pipelines.collectors.base import Context, Say
from perfpipe.pipelines.console import Progress
from perfpipe.pipelines.gate.arms import Arm, labels_of
from perfpipe.pipelines.gate.results import compared_results
from perfpipe.pipelines.gate.sides import named
from perfpipe.pipelines.gate.turns import Measuring, in_turns, measuring
from perfpipe.pipelines.launcher import Launcher
from perfpipe.pipelines.measuring import profile
from perfpipe.pipelines.place import stopwatch
from perfpipe.pipelines.plan import Plan
from perfpipe.pipelines.runs import Run, failure_of, result_of
from perfpipe.pipelines.tasks import directory_of
from perfpipe.pipelines.tools import find_tool_on
from perfpipe.pipelines.workload import CollectNsys, Workload
from perfpipe.store import Store

#: Why there is no timeline: without --explain, and with it.
NOT_PROFILED = "both sides need a timeline (--explain records one)"
_NO_PROFILER = "there is no profiler on this machine"


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

    `alike` says that the arms are the same program, `seed` gives the order of launches.
    """

    labels: Sequence[str]
    rounds: int
    early: bool
    alike: bool
    calibration: Calibration | None
    seed: int

    def level_after(self, done: int) -> float | None:
        """Return the level to test at after some rounds; None if it is too early."""
        return level_after(done, self.rounds, early=self.early)

    def last_level(self, rounds: int) -> float:
        """Return the level of the last test if there were as many rounds."""
        return level_after(rounds, rounds, early=self.early) or ALPHA


def ab(
    arms: tuple[Arm, Arm],
    store: Store,
    rounds: int,
    progress: Progress,
    calibration: Calibration | None = None,
    *,
    early: bool = True,
    confirm: bool = True,
    seed: int | None = None,
) -> Outcome:
    """Measure two arms, in a random order in each round, for at most `rounds` rounds, and decide.

    Each arm is launched once before that, which does not count.  With `early` it stops when every
    configuration is certain at the level that sequential tests allow for that look; else all rounds
    are measured before the only look.  A configuration that fails ends it.  With `confirm` fresh
    rounds follow a regression: the verdict then comes from all rounds, and the advice is to revert
    only if the fresh rounds alone find the regression too.  Identical arms are not confirmed.  A
    calibration says which changes count.  `seed` repeats an order.  Raises InputError if the arms
    cannot be compared.
    """
    alike = arms[0].alike(arms[1])
    rule = _Rule(labels_of(arms), rounds, early, alike, calibration, seeded(seed))
    with measuring(arms, store, progress) as sides:
        found = _measured(sides, rule, progress.step)
        if confirm and not alike and found.decision.verdict == Verdict.REGRESSED:
            progress.note("regressed; fresh rounds will confirm or reject it")
            found = _confirmed(sides, rule, found, progress)
    effect = first_run_effect(
        [(side.arm.name, _side(side, side.rounds, rule), side.first) for side in sides],
        rule.labels,
        found.limits,
    )
    if effect:
        found = replace(found, decision=replace(found.decision, notes=(effect,)))
    return _with_results(found, store)


def _with_results(outcome: Outcome, store: Store) -> Outcome:
    """Return an outcome whose decision says whether both arms print the same results."""
    before, after = ([store.run(name) for name in names] for names in outcome.runs)
    results = compared_results(store, before, after, "launches of arm a")
    return replace(outcome, decision=replace(outcome.decision, results=results))


def _measured(sides: Sequence[Measuring], rule: _Rule, tell: Say, start: int = 0) -> Outcome:
    """Measure rounds until their verdict is certain, or all are done; judge those from `start`."""
    for done in in_turns(sides, rule.rounds, rule.seed):
        level = rule.level_after(done)
        found = _decided(sides, rule, level or ALPHA, start)
        endpoints = found.decision.endpoints
        failed = found.decision.verdict == Verdict.FAILED
        # A configuration of one arm only is never compared.
        apart = not all(pair.change for pair in endpoints)
        if level is None and not failed and not apart:
            found = replace(found, decision=_too_early(found.decision, done, rule))
        verdict = found.decision.verdict
        if start:
            tell(f"fresh round {done}: {verdict}, by the fresh rounds alone")
        else:
            tell(f"round {done}: {verdict}: {found.decision.reason}")
        if failed or apart or (level is not None and certain(endpoints)):
            break
    return found


def _too_early(decision: Decision, done: int, rule: _Rule) -> Decision:
    """Return a decision before the first look."""
    return replace(
        decision,
        verdict=Verdict.UNREPLICATED if done < 2 else Verdict.INCONCLUSIVE,
        action=Action.INVESTIGATE,
        remedy="",
        reason="too few rounds for a verdict"
        if rule.early
        else "the verdict follows the last round",
    )


def _confirmed(
    sides: Sequence[Measuring], rule: _Rule, first: Outcome, progress: Progress
) -> Outcome:
    """Measure fresh rounds after a regression, and judge all rounds together.

    The levels of the looks bound how often the first rounds are wrong; no further regression can
    come from the fresh rounds, so all rounds are tested at the usual level.
    """
    fresh = _measured(sides, rule, progress.note, first.rounds)
    again = fresh.decision.verdict == Verdict.REGRESSED
    found = _decided(sides, rule, ALPHA, confirmed=again)
    return replace(found, decision=after_fresh(found.decision, first.rounds, again=again))


def _side(own: Measuring, rounds: Sequence[Round], rule: _Rule) -> Side:
    return side_of_rounds(f"arm {own.arm.name}", rounds, rule.labels)


def _decided(
    sides: Sequence[Measuring],
    rule: _Rule,
    level: float,
    start: int = 0,
    *,
    confirmed: bool = False,
) -> Outcome:
    """Judge the rounds from `start` on at a level."""
    rounds = [side.rounds[start:] for side in sides]
    results = iter(comparable([one.results for own in rounds for one in own]))
    before, after = (
        _side(side, [replace(one, results=next(results)) for one in own], rule)
        for side, own in zip(sides, rounds, strict=True)
    )
    limits = limits_of(rule.calibration)
    decision = decide(
        pairs_of(before, after, alpha=level, limits=limits),
        failed=[failure_of(one, f"arm {own.arm.name}") for own in sides for one in own.failures],
        confirmed=confirmed,
        alike=rule.alike,
        calibration=rule.calibration,
        rounds=rule.last_level,
    )
    runs = (tuple(sides[0].runs), tuple(sides[1].runs))
    comparison = compare(before, after, limits=limits, no_timeline=NOT_PROFILED)
    return Outcome(decision, comparison, len(rounds[0]), runs, limits)


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
    missing = "the profiles have no timeline" if any(profiled) else _NO_PROFILER
    comparison = compare(before.side, after.side, limits=outcome.limits, no_timeline=missing)
    return replace(outcome, comparison=comparison, reports=(before.reports, after.reports))


def _profiled(arm: Arm, store: Store, say: Say) -> str | None:
    """Profile an arm, and return its run; None without a profiler."""
    workload = _traced(arm.workload)
    with Launcher(workload.execution, directory_of(workload, arm.path)) as launcher:
        collector = _collector(workload, launcher)
        if collector is None:
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
