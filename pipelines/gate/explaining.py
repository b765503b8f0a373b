"""Profiles two arms after a verdict, to show where the time went."""

from __future__ import annotations

from dataclasses import replace

from perfpipe.analysis.comparison_story import compare
from perfpipe.pipelines.collectors.base import Context, Say
from perfpipe.pipelines.gate.ab import Outcome
from perfpipe.pipelines.gate.arms import Arm
from perfpipe.pipelines.gate.sides import named
from perfpipe.pipelines.launcher import Launcher
from perfpipe.pipelines.measuring import profile
from perfpipe.pipelines.place import stopwatch
from perfpipe.pipelines.plan import Plan
from perfpipe.pipelines.runs import Run, result_of
from perfpipe.pipelines.tasks import directory_of
from perfpipe.pipelines.tools import find_tool_on
from perfpipe.pipelines.workload import CollectNsys, Workload
from perfpipe.store import Store


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
        run = Run.new(store, workload.name, arm.path.name, collector)
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
