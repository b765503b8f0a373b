"""Profiles the kernels of a task with Nsight Compute."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from perfpipe.pipelines.collectors import compiled
from perfpipe.pipelines.collectors.base import (
    TIMED_OUT,
    Collected,
    Context,
    Job,
    ProgramFailed,
    interrupting,
)
from perfpipe.pipelines.collectors.guide import (
    BUDGET_RUNS,
    BUDGET_S,
    Budget,
    Depth,
    Guide,
    without_skip,
)
from perfpipe.pipelines.collectors.ncu_watch import MARK_VARIABLE, Seen
from perfpipe.pipelines.collectors.nsys import children_work
from perfpipe.pipelines.complaint import ended
from perfpipe.pipelines.process import Finished
from perfpipe.pipelines.tools import explain, require_tool
from perfpipe.pipelines.workload import CollectNcu
from perfpipe.runrecord import GpuState

#: Kernel replay saves and restores all memory of the context, and JAX allocates most of the GPU's
#: memory at the start.
_ENVIRONMENT = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}

#: Programs that do the GPU work themselves.  If ncu also follows their children, data loaders
#: hang, and ncu crashes under JAX.
_INTERPRETER = re.compile(r"python[0-9.]*")

#: Python modules that start worker processes.
_STARTERS = re.compile(r"torch\.distributed|accelerate|deepspeed|horovod|mpi4py|multiprocess")

#: Why ncu may wait in vain for the chosen kernels.
_TUNES = "an autotuning program may have chosen other kernels"
_RANKS = (
    "ncu restores memory between passes while other ranks write to it, so communication can hang; "
    "profile a single rank, for example with --nproc-per-node 1"
)

#: Note if all kernels were skipped.
_FEWER = (
    "ncu profiled from the start of the program: it found no kernels after the launches that "
    "precede the steps on the timeline"
)

#: How long ncu may take to write its report after it was interrupted, s.
_WRITING_S = 30.0

#: Less time than this is not worth another attempt, s.
_WORTH_RETRYING_S = 20.0


class Ncu:
    """Profiles kernels with ncu; the timeline of the task chooses them unless the file does."""

    tool = "ncu"

    def collect(self, job: Job) -> Collected:
        """Return the .ncu-rep; raises NothingToProfile if the timeline has no kernel for it."""
        options = job.context.workload.collect.ncu
        if options is None:
            raise ValueError("ncu")
        guide = guide_of_job(job, options) if options.guided else None
        job.announce("ncu", guide.takes(job.context.workload.timeout) if guide else None)
        return collect_ncu(job.context, options, guide)


def guide_of_job(job: Job, options: CollectNcu) -> Guide:
    """Return which kernels to profile, from the first of the task's timelines."""
    # Only guided launches need the analysis.
    from perfpipe.pipelines.guiding import guide_by

    result = job.result
    job.read(job.files[:1])
    state = result.gpu_state or GpuState()
    budget = Budget(
        job.plain_s or 0.0,
        time.monotonic() - job.started,
        state.program_gb,
        # Only kernel replay saves memory.
        state.pinned_gb if options.replay_mode == "kernel" else None,
    )
    report = job.reports.get(job.files[0]) if job.files else None
    same = report is not None and compiled.is_kept(job.context)
    guide = guide_by(job.store, report, options, budget, from_start=same)
    return replace(guide, children="nsys" in job.seconds and children_work(job.files[0]))


def collect_ncu(context: Context, options: CollectNcu, guide: Guide | None = None) -> Collected:
    """Launch under ncu and return the .ncu-rep.

    With a guide, the program is ended when all kernels have been profiled, or at the limit; the
    kernels profiled by then are kept.
    """
    ncu = require_tool("ncu", context.launcher)
    if guide is not None:
        return _Guided(context, options, guide, ncu.path).collect()
    report = context.into / "ncu.ncu-rep"
    seen = Seen(context)
    words = [ncu.path, *profile_options(options), _export(context, report)]
    env = _environment(context)
    finished = context.launch("ncu", words, env=env, on_line=seen.hear, grace_s=_WRITING_S)
    return context.product(finished, "ncu", report)


def works_alone(command: Sequence[str]) -> bool:
    """Return whether the first process of a command does the GPU work, judged by its words."""
    if not _INTERPRETER.fullmatch(Path(command[0]).name):
        return False
    modules = [word for option, word in pairwise(command) if option == "-m"]
    return not any(_STARTERS.match(module) for module in modules)


def _environment(context: Context) -> dict[str, str]:
    """Return the variables that ncu needs, except those that are already set."""
    given = {**os.environ, **context.workload.env}
    return {name: value for name, value in _ENVIRONMENT.items() if name not in given}


def profile_options(
    options: CollectNcu, depth: Depth | None = None, *, alone: bool = False
) -> list[str]:
    """Return the options of ncu, without those that a timeline determines.

    `depth` says what to collect per launch unless the options do.  With `alone` only the first
    process is profiled, else also its children.
    """
    stated = (f"--set={options.chosen_set}", *(f"--section={name}" for name in options.sections))
    chosen, *sections = depth.words if depth else stated
    words = [
        "--force-overwrite",
        chosen,
        f"--clock-control={options.clock_control}",
        f"--cache-control={options.cache_control}",
        f"--replay-mode={options.replay_mode}",
        f"--graph-profiling={options.graph_profiling}",
        f"--target-processes={'application-only' if alone else 'all'}",
        "--nvtx",
        *sections,
    ]
    metrics = (*options.metrics, *(depth.metrics if depth else ()))
    if metrics:
        words.append(f"--metrics={','.join(metrics)}")
    if options.kernels:
        words.append(f"--kernel-name=regex:{options.kernels}")
    if options.nvtx:
        words.append(f"--nvtx-include={options.nvtx}")
    if options.launch_skip:
        words.append(f"--launch-skip={options.launch_skip}")
    if options.launch_count:
        words.append(f"--launch-count={options.launch_count}")
    if options.import_source:
        words.append("--import-source=yes")
    if options.capture_range != "none":
        words.append("--profile-from-start=off")
    # ncu rejects an option that occurs twice: the workload's wins.
    given = {option.partition("=")[0] for option in options.options}
    return [*(word for word in words if word.partition("=")[0] not in given), *options.options]


def _export(context: Context, report: Path) -> str:
    return f"--export={context.launcher.output(report)}"


class _Guided:
    """A launch of ncu with a time limit."""

    def __init__(self, context: Context, options: CollectNcu, guide: Guide, ncu: str) -> None:
        self.context, self.options, self.guide, self.ncu = context, options, guide, ncu
        self.report = context.into / "ncu.ncu-rep"
        self.alone = works_alone(context.task.command) and not guide.children
        self.limit_s = self.granted_s = self.left_s = min(guide.limit_s, context.workload.timeout)
        # It interrupts ncu at the limit, so that ncu writes its report; without it, ncu is killed.
        self.timeout = context.launcher.which(["timeout"])

    def collect(self) -> Collected:
        """Launch; repeat if nothing was profiled, or if ending it early lost the report."""
        self.context.say(self.guide.summary())
        seen, finished, there = self._attempt(self._expecting())
        while not seen.kernels and self.left_s > _WORTH_RETRYING_S and self._widen(seen, finished):
            seen, finished, there = self._attempt(self._expecting())
        if seen.stopped and not there and self.left_s > _WORTH_RETRYING_S:
            self.context.tell(
                "the program is launched again under ncu, and not ended early: its report was lost"
            )
            seen, finished, there = self._attempt(Seen(self.context))
        if there and (seen.kernels or finished.ok):
            notes = self.guide.notes + self._left_out(finished, seen)
            return Collected(self.report, self.limit_s - self.left_s, notes)
        raise self._failure(finished)

    def _widen(self, seen: Seen, finished: Finished) -> bool:
        """Switch to other processes or launches before the steps; return whether that is new."""
        words = without_skip(self.guide.words)
        if finished.ok and seen.connected and words != self.guide.words:
            # A benchmark that lasts a fixed time launches fewer kernels under ncu.
            self.context.tell(
                "the program is launched again under ncu, which profiles it from its start: it "
                "ended before the chosen kernels"
            )
            notes = (*self.guide.notes, _FEWER)
            self.guide = replace(self.guide, words=words, from_start=True, notes=notes)
        elif self.alone:
            self.context.tell(
                "the program is launched again under ncu, with its child processes: its first "
                "process has no kernels to profile"
            )
        else:
            return False
        self.alone = False
        return True

    def _expecting(self) -> Seen:
        quiet_s, led = self.guide.quiet_s, self.timeout is not None
        expected, from_start = self.guide.expected, self.guide.from_start
        return Seen(self.context, expected, quiet_s, led=led, from_start=from_start)

    def _attempt(self, seen: Seen) -> tuple[Seen, Finished, bool]:
        """Launch within the remaining time; also return whether there is a report."""
        self.granted_s = self.left_s
        finished = self._launch(seen)
        self.left_s -= finished.seconds
        return seen, finished, self.context.launcher.fetch(self.report)

    def _launch(self, seen: Seen) -> Finished:
        chosen = profile_options(self.options, self.guide.depth, alone=self.alone)
        words: list[str] = [self.ncu, *chosen, *self.guide.words]
        if self.timeout:
            words = [*interrupting(self.timeout, round(self.granted_s), _WRITING_S), *words]
        try:
            return self.context.launch(
                "ncu",
                [*words, _export(self.context, self.report)],
                env={
                    MARK_VARIABLE: seen.mark,
                    **_environment(self.context),
                    **compiled.environment(self.context),
                },
                on_line=seen.hear,
                timeout=self.granted_s + (2 * _WRITING_S if self.timeout else 0),
            )
        finally:
            seen.end_all()

    def _late(self, finished: Finished) -> bool:
        # Processes that ignore the interrupt are killed a little later, with `timeout`.
        killed = not finished.ok and finished.seconds >= self.granted_s
        return finished.timed_out or finished.returncode == TIMED_OUT or killed

    def _left_out(self, finished: Finished, seen: Seen) -> tuple[str, ...]:
        """Return sentences on gaps of the report."""
        expected = self.guide.expected
        so_far = f"{seen.kernels} of {expected}" if expected else f"{seen.kernels}"
        if self._late(finished):
            return (
                f"ncu was stopped at its limit of {self.limit_s:.0f} s{self._of_all()}, after "
                f"{so_far} launches; raise collect.ncu.time_limit to profile more",
            )
        if seen.quiet and (expected is None or seen.kernels < expected):
            return (
                f"ncu profiled {so_far} launches and was stopped after {self.guide.quiet_s:.0f} s "
                f"without another one: {_RANKS if self.guide.ranks else _TUNES}",
            )
        if not finished.ok and not seen.stopped:
            return (
                f"ncu {ended(finished.returncode)} after {so_far} launches; its report is kept",
            )
        return ()

    def _of_all(self) -> str:
        """Return the origin of the limit, unless the workload sets it."""
        if self.guide.budget_s is None or self.limit_s < self.guide.limit_s:
            return ""
        return (
            f" (all profilers and the report share {self.guide.budget_s:.0f} s: {BUDGET_RUNS:g} "
            f"plain runs plus {BUDGET_S:g} s)"
        )

    def _failure(self, finished: Finished) -> ProgramFailed:
        """Return why there is no report, and the remedy."""
        if self._late(finished):
            return ProgramFailed(
                "timeout",
                f"ncu was stopped at its limit of {self.limit_s:.0f} s without a report: the "
                "program hangs or is very slow under ncu; raise collect.ncu.time_limit, or select "
                "fewer kernels with collect.ncu.kernels",
            )
        known = explain(finished.stdout + finished.stderr)
        reason = known or finished.complaint() or "no output"
        if finished.ok:
            return ProgramFailed("profiler", f"ncu did not write {self.report.name}: {reason}")
        way_out = "" if known else "; 'ncu: {replay_mode: application}' may avoid it"
        return ProgramFailed("profiler", f"ncu {ended(finished.returncode)}: {reason}{way_out}")
