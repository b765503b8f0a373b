"""Tries levers on a program, from the diagnosis to the confirmed stack, and stores the trial."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from perfpipe.analysis.trying.pace import LAUNCH
from perfpipe.errors import InputError, PerfpipeError, StoreError, TaskFailed, ToolMissing
from perfpipe.pipelines.collectors.base import Say
from perfpipe.pipelines.console import progress
from perfpipe.pipelines.launcher import Launcher
from perfpipe.pipelines.place import machine
from perfpipe.pipelines.plan import Plan
from perfpipe.pipelines.reporting import make_report
from perfpipe.pipelines.runner import execute
from perfpipe.pipelines.runs import Run, new_id
from perfpipe.pipelines.signals import Ended
from perfpipe.pipelines.tasks import Task, directory_of, task_of
from perfpipe.pipelines.tools import find_tool_on
from perfpipe.pipelines.trying.bench import PLAIN, Bench
from perfpipe.pipelines.trying.choosing import Advice, Candidate, advice_of, candidates
from perfpipe.pipelines.trying.launching import Launched, Launches, Program
from perfpipe.pipelines.trying.levers import Lever, levers, named
from perfpipe.pipelines.trying.own import own_levers
from perfpipe.pipelines.trying.protecting import Protection
from perfpipe.pipelines.trying.trial import Trying, announced, left_out, seeded
from perfpipe.pipelines.workload import CollectNsys, Execution, Params, Workload
from perfpipe.provenance import provenance, utc_now
from perfpipe.runrecord import RunRecord
from perfpipe.scratch import scratch
from perfpipe.store import Store, storing
from perfpipe.trialrecord import LeverTrial, StackTrial, Trial, read_all, write
from perfpipe.units import format_ns


@dataclass(frozen=True)
class Subject:
    """What to try: a workload with one configuration, and its program if there is no file."""

    workload: Workload
    path: Path
    task: Task
    words: tuple[str, ...] | None = None
    run: RunRecord | None = None

    @property
    def directory(self) -> Path:
        """The working directory of the program."""
        return directory_of(self.workload, self.path)

    def command(self, changed: Params) -> tuple[str, ...]:
        """Return the command with changed parameters."""
        if not changed:
            return self.task.command
        params = {**self.task.params, **changed}
        return task_of(self.task.index, params, self.workload, self.path).command


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What the command line asks for; `budget_s` is for everything after the diagnosis."""

    budget_s: float
    names: tuple[str, ...] = ()
    most: int | None = None
    rounds: int | None = None
    steps: int | None = None
    protection: str = "auto"
    seed: int | None = None
    accept: bool = False
    diagnose: bool = True
    fresh: bool = False


class Places:
    """Where launches run: one protection for all levers without a patch, one for each other."""

    def __init__(self, directory: Path, mode: str, root: Path, env: Mapping[str, str]) -> None:
        self._directory, self._mode, self._root, self._env = directory, mode, root, env
        self._also: list[Path] = []
        self._known: dict[str, Protection] = {}

    def of(self, lever: Lever | None) -> Protection:
        """Return the protection for a launch with a lever that has a patch or a build, or None."""
        name = lever.name if lever else ""
        if name not in self._known:
            self._known[name] = Protection(
                self._directory,
                self._mode,
                through=(self._root,),
                patch=lever.patch if lever else None,
                build=lever.build if lever else None,
                env=self._env,
                also=self._also,
            )
        return self._known[name]

    def __enter__(self) -> Places:
        return self

    def __exit__(self, *_: object) -> None:
        for own in self._known.values():
            own.close()


@dataclass(frozen=True)
class Diagnosis:
    """A run with a timeline, what its findings recommend by technique, and the verdict."""

    run: RunRecord | None = None
    advice: Mapping[str, Advice] = field(default_factory=dict)
    verdict: str = ""


def try_levers(subject: Subject, store: Store, wishes: Wishes, say: Say, detail: Say) -> Trial:
    """Try levers on a program, and return the trial, which is then in the store.

    Raises TaskFailed if the program fails without any change, InputError for unknown levers and for
    programs that cannot be tried.
    """
    began = time.monotonic()
    workload = subject.workload
    if workload.execution.kind != "local":
        raise InputError("perfpipe try launches programs on this machine only (execution: local)")
    own = own_levers(workload, subject.path)
    wanted = named(wishes.names, own) if wishes.names else [*levers().values(), *own.values()]
    program = Program(
        subject.command, subject.directory, workload.env, workload.timeout, wishes.steps,
        workload.duration,
    )  # fmt: skip
    with storing(store.root):
        store.root.mkdir(parents=True, exist_ok=True)  # launches reach it through an overlay
    with (
        scratch() as folder,
        Places(subject.directory, wishes.protection, store.root, workload.env) as places,
    ):
        launches = Launches(program, places.of, folder)
        bench = Bench(launches, wishes.budget_s, detail)
        trying = Trying(bench, seeded(wishes.seed), wishes.accept, wishes.rounds)
        state = _State(subject, wishes, trying, began)
        try:
            _measure(state, wanted, store, places, say)
        except BaseException as error:
            if trying.levers and state.trial.plain_launches:
                trying.notes.append("the trial was interrupted: nothing was confirmed")
                with suppress(StoreError):
                    write(store.root, state.trial)
                if isinstance(error, Ended):
                    error.advice = f"; what was measured is trial {state.trial_id}"
            raise
        trial = state.trial
        write(store.root, trial)
        return trial


class _State:
    """A trial in progress, and what is known besides its measurements."""

    def __init__(self, subject: Subject, wishes: Wishes, trying: Trying, began: float) -> None:
        self._subject, self._wishes, self._trying = subject, wishes, trying
        self._began = began
        self.trial_id = new_id(subject.workload.name, utc_now())
        self.first: Launched | None = None
        self.diagnosed = Diagnosis()
        self.found: Sequence[Candidate] = ()
        self.stack: StackTrial | None = None

    @property
    def rows(self) -> list[LeverTrial]:
        """The levers that were launched, the one that gained most first."""
        return sorted(self._trying.levers, key=lambda own: -(own.gained.gain_pct or -1e9))

    @property
    def trial(self) -> Trial:
        """What is known so far."""
        trying, bench, run = self._trying, self._trying.bench, self.diagnosed.run
        subject, first = self._subject, self.first
        return Trial(
            trial_id=self.trial_id,
            program=subject.workload.name,
            at=utc_now(),
            unit=bench.plain[0].pace.unit if bench.plain else LAUNCH,
            plain_ms=trying.plain_ms,
            plain_launches=len(bench.plain),
            aa=trying.aa(),
            aa_results=trying.aa_results().kind,
            levers=(*self.rows, *(left_out(one) for one in self.found if one.left_out)),
            stack=self.stack,
            gpu=machine(subject.workload.env),
            words=subject.words or subject.task.command,
            run_id=run.run_id if run else None,
            reports=run.reports if run else (),
            plain_memory_bytes=bench.plain[-1].memory_bytes if bench.plain else None,
            launches=bench.launches.count,
            seconds=round(time.monotonic() - self._began, 1),
            budget_s=self._wishes.budget_s,
            protection=first.place if first else "",
            diagnosis=self.diagnosed.verdict,
            unsteady=trying.unsteady,
            notes=(*trying.notes, *(first.notes if first else ()), *_outside(first)),
            provenance=provenance(),
        )


def _measure(
    state: _State, wanted: Sequence[Lever], store: Store, places: Places, say: Say
) -> None:
    """Measure the plain program, levers and their best stack."""
    subject, wishes, trying = state._subject, state._wishes, state._trying
    bench = trying.bench
    say("launching the program without changes, to see that it runs")
    first = state.first = bench.launch(PLAIN, counts=False)
    say(f"  {format_ns(1e9 * first.seconds)}, in {_PLACES[first.place]}")
    state.diagnosed = _diagnosis(subject, store, wishes, bench.launches, places, say)
    bench.began = time.monotonic()
    say("comparing the program with itself")
    trying.measure_plain(first)
    known = read_all(store.root)
    advice = state.diagnosed.advice
    found = candidates(wanted, advice, first.seen, known, asked=bool(wishes.names))
    state.found = found = trying.choose(found, wishes.most, trying.unsteady)
    chosen = [one for one in found if one.left_out is None]
    rounds = trying.planned_rounds(chosen)
    if chosen:
        say(announced(bench, chosen, rounds))
        for one in chosen:
            bound = one.advice and one.advice.bound_pct
            promised = f" (at most {bound:.1f} %)" if bound else ""
            say(f"  {one.lever.name}: {one.lever.title}{promised}")
    trying.measure_levers(chosen, rounds)
    best = trying.best_stack(trying.helpful(chosen))
    if best is not None:
        say(f"confirming {best.name} on fresh launches")
        state.stack = trying.confirm(best, {row.name: row for row in state.rows})


#: Where launches run, in words.
_PLACES = {
    "overlay": "an overlay of the working directory",
    "copy": "a copy of the working directory",
    "in-place": "the working directory itself",
}


def _outside(launched: Launched | None) -> tuple[str, ...]:
    """Return a note on files elsewhere that changed during a launch."""
    files = launched.outside if launched else ()
    if not files:
        return ()
    first = ", ".join(files[:5]) + (f" and {len(files) - 5} more" if len(files) > 5 else "")
    return (f"files outside the directory that changed during the first launch: {first}",)


def _diagnosis(
    subject: Subject, store: Store, wishes: Wishes, launches: Launches, places: Places, say: Say
) -> Diagnosis:
    """Return what the latest timeline of the program says; without one, record one."""
    if not wishes.diagnose:
        return Diagnosis()
    run = subject.run or (None if wishes.fresh else _known(subject, store))
    if run is not None:
        say(f"using the timeline of {run.run_id}")
    else:
        run = _traced(subject, store, launches, places, say)
    if run is None:
        return Diagnosis()
    try:
        advice = advice_of(store, run.reports)
        verdict = make_report(store, [run.run_id]).verdict
    except PerfpipeError as error:
        say(f"no findings: {error}")
        return Diagnosis(run)
    say(f"  {verdict}")
    return Diagnosis(run, advice, verdict)


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
        traced = workload.model_copy(
            update={
                "cwd": str(place.cwd),
                "env": {**workload.env, **launches.diagnosing(folder), **place.env},
                "execution": Execution(wrapper=[*place.wrapper]),
                "collect": collect,
                "launches": 1,
            }
        )
        words = tuple(place.rewritten(subject.task.command))
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
