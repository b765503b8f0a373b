"""What the timeline of a program recommends: that of an earlier run, or a new one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from perfpipe.errors import PerfpipeError, TaskFailed, ToolMissing
from perfpipe.pipelines.collectors.base import Say
from perfpipe.pipelines.console import progress
from perfpipe.pipelines.launcher import Launcher
from perfpipe.pipelines.plan import Plan
from perfpipe.pipelines.reporting import make_report
from perfpipe.pipelines.runner import execute
from perfpipe.pipelines.runs import Run
from perfpipe.pipelines.tools import find_tool_on
from perfpipe.pipelines.trying.choosing import Advice, advice_of
from perfpipe.pipelines.trying.launching import Launches
from perfpipe.pipelines.trying.places import Places
from perfpipe.pipelines.trying.subject import Subject
from perfpipe.pipelines.workload import CollectNsys, Execution
from perfpipe.runrecord import RunRecord
from perfpipe.scratch import scratch
from perfpipe.store import Store


@dataclass(frozen=True)
class Diagnosis:
    """A run with a timeline, what its findings recommend by technique, and the verdict.

    `waits` is whether the program waits for requests most of the time.
    """

    run: RunRecord | None = None
    advice: Mapping[str, Advice] = field(default_factory=dict)
    verdict: str = ""
    waits: bool = False


def diagnosis_of(
    subject: Subject, store: Store, launches: Launches, places: Places, say: Say, *, fresh: bool
) -> Diagnosis:
    """Return what the latest timeline of the program says; without one, record one."""
    run = subject.run or (None if fresh else _known(subject, store))
    if run is not None:
        say(f"using the timeline of {run.run_id}")
    else:
        run = _traced(subject, store, launches, places, say)
    if run is None:
        return Diagnosis()
    try:
        advice, waits = advice_of(store, run.reports)
        verdict = make_report(store, [run.run_id]).verdict
    except PerfpipeError as error:
        say(f"no findings: {error}")
        return Diagnosis(run)
    say(f"  {verdict}")
    return Diagnosis(run, advice, verdict, waits)


def _known(subject: Subject, store: Store) -> RunRecord | None:
    """Return the latest run of the same configuration that has a timeline."""
    runs = Run.measured(store, subject.workload.name, subject.words)
    fitting = [
        run
        for run in runs
        if run.status == "done"
        and run.reports
        and run.collector in ("all", "nsys", "auto")
        and any(task.key == subject.task.key for task in run.tasks)
    ]
    return fitting[-1] if fitting else None


def _traced(
    subject: Subject, store: Store, launches: Launches, places: Places, say: Say
) -> RunRecord | None:
    """Run the program under nsys in a protected directory; None without nsys."""
    workload = subject.workload
    if find_tool_on(Launcher(workload.execution, subject.directory), "nsys") is None:
        say("no nsys on this machine: levers are tried without a diagnosis")
        return None
    say("recording a timeline, to see which levers answer a finding")
    protection = places.of(None)
    with scratch() as folder, protection.launch(offline=True) as place:
        collect = workload.collect.model_copy(
            update={"nsys": workload.collect.nsys or CollectNsys(), "ncu": None, "modules": False}
        )
        words = tuple(place.rewritten(subject.task.command))
        traced = workload.model_copy(
            update={
                "cwd": str(place.cwd),
                "env": place.variables({**workload.env, **launches.diagnosing(folder)}),
                "execution": Execution(wrapper=[*place.wrapper]),
                "collect": collect,
                "launches": 1,
            }
        )
        plan = Plan(
            traced, subject.path, [replace(subject.task, command=words)], "nsys",
            words=subject.words,
        )  # fmt: skip
        try:
            with progress(workload.name, 1, quiet=True) as steps:
                run = execute(plan, store, steps)
        except (TaskFailed, ToolMissing) as error:
            say(f"no timeline: {error}")
            return None
    done = [task for task in run.tasks if task.done]
    if not done or not run.reports:
        reason = next((task.error for task in run.tasks if task.error), "it has no report")
        say(f"no timeline: {reason}")
        return None
    return run
