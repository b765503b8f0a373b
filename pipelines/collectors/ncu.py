"""Profiles the kernels of a task with Nsight Compute."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from analysis.profile_plan import ProfilePlan, each_once
from pipelines.collectors.base import Collected, Context, ProgramFailed, ended
from pipelines.process import Finished
from pipelines.tools import explain, require_tool
from pipelines.workload import CollectNcu

#: What ncu prints for each kernel that it has profiled, and for each process that it has entered.
_PROFILING = re.compile(r'==PROF== Profiling "(?P<kernel>[^"]+)"')
_CONNECTED = re.compile(r"==PROF== Connected to process (?P<pid>\d+)")

#: Environment variable that tells the processes of one launch of ncu from all others.
MARK_VARIABLE = "PERFPIPE_NCU_LAUNCH"

#: Kernel replay saves and restores all memory that the context holds, and JAX takes most of the
#: GPU's at the start.
_ENVIRONMENT = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}

#: Programs that do the GPU work themselves.  Where ncu follows their children as well, workers of
#: data loaders hang and ncu crashes under JAX.
_INTERPRETER = re.compile(r"python[0-9.]*")

#: Modules of Python that start the processes which do the work.
_STARTERS = re.compile(r"torch\.distributed|accelerate|deepspeed|horovod|mpi4py|multiprocess")

#: The time that ncu takes besides the program's own: to start, and for each launch with the set
#: `detailed`.  Measured with ncu 2025.3.1 on H100 and H200, 18 to 32 kernels of a training step.
STARTUP_S, LAUNCH_S = 4.0, 0.9

#: The time that ncu may take by default: so many plain runs, and so many seconds.
BUDGET_RUNS, BUDGET_S = 3.0, 60.0

#: How long ncu may take to write its report once it was told to stop, s.
_WRITING_S = 30.0

#: What `timeout` exits with at its limit.
_TIMED_OUT = 124

#: Less time than this is not worth another attempt, s.
_WORTH_RETRYING_S = 20.0


@dataclass(frozen=True)
class Guide:
    """What a guided launch of ncu is to profile, and the most that it may take.

    `expected` launches and all that was asked for has been seen; None if that is unknown.
    """

    words: Sequence[str]
    limit_s: float
    expected: int | None = None
    notes: tuple[str, ...] = ()


def guide_of(plan: ProfilePlan | str, options: CollectNcu, plain_s: float) -> Guide:
    """Return how to profile the kernels of a plan; or each once, with the reason for no plan."""
    limit_s = time_limit(options, plain_s)
    if isinstance(plan, str):
        note = f"ncu profiled the first launch of each kernel configuration: {plan}"
        return Guide(each_once(), limit_s, notes=(note,))
    words = plan.ncu_words
    if options.capture_range != "none":
        # The range already leaves out what comes before it.
        words = [word for word in words if not word.startswith("--launch-skip-before-match")]
    return Guide(words, limit_s, plan.expected_launches)


def time_limit(options: CollectNcu, plain_s: float) -> float:
    """Return the seconds that a guided ncu may take."""
    return options.time_limit or BUDGET_RUNS * plain_s + BUDGET_S


def expected_seconds(launches: int, plain_s: float) -> float:
    """Return about how long ncu takes for some launches of a program, s."""
    return plain_s + STARTUP_S + LAUNCH_S * launches


def collect_ncu(context: Context, options: CollectNcu, guide: Guide | None = None) -> Collected:
    """Launch under ncu and return the .ncu-rep.

    With a guide, the program is ended as soon as all has been profiled, or at the limit, and what
    was profiled until then is kept.
    """
    ncu = require_tool("ncu", context.launcher)
    if guide is not None:
        return _Guided(context, options, guide, ncu.path).collect()
    report = context.into / "ncu.ncu-rep"
    seen = _Seen(context)
    words = [ncu.path, *profile_options(options), _export(context, report)]
    finished = context.launch("ncu", words, env=_environment(context), on_line=seen.hear)
    return context.product(finished, "ncu", report)


def works_alone(command: Sequence[str]) -> bool:
    """Return whether the first process of a command does the GPU work, as far as its words tell."""
    if not _INTERPRETER.fullmatch(Path(command[0]).name):
        return False
    modules = [word for option, word in pairwise(command) if option == "-m"]
    return not any(_STARTERS.match(module) for module in modules)


def _environment(context: Context) -> dict[str, str]:
    """Return the variables that ncu needs, but for those that are set already."""
    given = {**os.environ, **context.workload.env}
    return {name: value for name, value in _ENVIRONMENT.items() if name not in given}


def profile_options(options: CollectNcu, *, alone: bool = False) -> list[str]:
    """Return the options of ncu, without those that a timeline chooses.

    With `alone` only the first process is profiled, else its children as well.
    """
    words = [
        "--force-overwrite",
        f"--set={options.chosen_set}",
        f"--clock-control={options.clock_control}",
        f"--cache-control={options.cache_control}",
        f"--replay-mode={options.replay_mode}",
        f"--graph-profiling={options.graph_profiling}",
        f"--target-processes={'application-only' if alone else 'all'}",
        "--nvtx",
        *(f"--section={section}" for section in options.sections),
    ]
    if options.metrics:
        words.append(f"--metrics={','.join(options.metrics)}")
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
    # ncu refuses an option that is given twice: the workload's counts.
    given = {option.partition("=")[0] for option in options.options}
    return [*(word for word in words if word.partition("=")[0] not in given), *options.options]


def _export(context: Context, report: Path) -> str:
    return f"--export={context.launcher.output(report)}"


class _Seen:
    """Counts the kernels that ncu has profiled; ends the program at the last that is expected.

    In per-launch-config mode, ncu ignores --kill.  An interrupt of it and of the program makes it
    write its report; `timeout` hands the one that it receives on to both.
    """

    def __init__(self, context: Context, expected: int | None = None, *, led: bool = False) -> None:
        """`led` says that `timeout` leads the group of processes."""
        self._context, self._expected, self._led = context, expected, led
        self.mark = uuid.uuid4().hex
        self.kernels = 0
        self.stopped = False
        self.group: int | None = None
        self._pid: int | None = None

    def hear(self, line: str) -> None:
        """Read a line that ncu prints."""
        if match := _PROFILING.search(line):
            self.kernels += 1
            self._find_group()
            of = f" of {self._expected}" if self._expected else ""
            self._context.say(f"ncu: kernel {self.kernels}{of}, {match['kernel']}")
            if self.kernels == self._expected and self.group is not None:
                self.stopped = True
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    (os.kill if self._led else os.killpg)(self.group, signal.SIGINT)
        elif match := _CONNECTED.search(line):
            self._pid = int(match["pid"])
            self._find_group()

    def _find_group(self) -> None:
        """Find the group of the program, whose mark may not show when it has just begun."""
        if self.group is None and self._pid is not None and is_marked(self._pid, self.mark):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                group = os.getpgid(self._pid)
                self.group = group if group != os.getpgid(0) else None

    def end_all(self) -> None:
        """End what is left of the program: where ncu crashes, its processes go on."""
        if self.group is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.group, signal.SIGKILL)


def is_marked(pid: int, mark: str) -> bool:
    """Return whether a process of this machine was launched with a mark in its environment.

    What a program prints may look like a line of ncu, and ids of another machine mean nothing here.
    """
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"{MARK_VARIABLE}={mark}".encode() in environment.split(b"\0")


class _Guided:
    """A launch of ncu within a limit of time."""

    def __init__(self, context: Context, options: CollectNcu, guide: Guide, ncu: str) -> None:
        self.context, self.options, self.guide, self.ncu = context, options, guide, ncu
        self.report = context.into / "ncu.ncu-rep"
        self.alone = works_alone(context.task.command)
        self.limit_s = self.granted_s = self.left_s = min(guide.limit_s, context.workload.timeout)
        # It interrupts ncu at the limit, which then writes what it has; without it, ncu is killed.
        self.timeout = context.launcher.which(["timeout"])

    def collect(self) -> Collected:
        """Launch, and once more if no process worked, or if ending it early cost the report."""
        seen, finished, there = self._attempt(self._expecting())
        if self.alone and not seen.kernels and self.left_s > _WORTH_RETRYING_S:
            self.context.say("ncu: once more, with the processes that the program starts")
            self.alone = False
            seen, finished, there = self._attempt(self._expecting())
        if seen.stopped and not there and self.left_s > _WORTH_RETRYING_S:
            self.context.say("ncu: once more, without ending the program early")
            seen, finished, there = self._attempt(_Seen(self.context))
        if there and (seen.kernels or finished.ok):
            notes = self.guide.notes + self._left_out(finished, seen)
            return Collected(self.report, self.limit_s - self.left_s, notes)
        raise self._failure(finished)

    def _expecting(self) -> _Seen:
        return _Seen(self.context, self.guide.expected, led=self.timeout is not None)

    def _attempt(self, seen: _Seen) -> tuple[_Seen, Finished, bool]:
        """Launch within the time that is left; return also whether there is a report."""
        self.granted_s = self.left_s
        finished = self._launch(seen)
        self.left_s -= finished.seconds
        return seen, finished, self.context.launcher.fetch(self.report)

    def _launch(self, seen: _Seen) -> Finished:
        chosen = profile_options(self.options, alone=self.alone)
        words: list[str] = [self.ncu, *chosen, *self.guide.words]
        if self.timeout:
            kill = f"--kill-after={_WRITING_S:g}"
            words = [self.timeout, "--signal=INT", kill, f"{self.granted_s:.0f}", *words]
        try:
            return self.context.launch(
                "ncu",
                [*words, _export(self.context, self.report)],
                env={MARK_VARIABLE: seen.mark, **_environment(self.context)},
                on_line=seen.hear,
                timeout=self.granted_s + (2 * _WRITING_S if self.timeout else 0),
            )
        finally:
            seen.end_all()

    def _late(self, finished: Finished) -> bool:
        # What ignores the interrupt is killed a little later, and `timeout` with it.
        killed = not finished.ok and finished.seconds >= self.granted_s
        return finished.timed_out or finished.returncode == _TIMED_OUT or killed

    def _left_out(self, finished: Finished, seen: _Seen) -> tuple[str, ...]:
        """Return what the report lacks, as sentences."""
        expected = self.guide.expected
        so_far = f"{seen.kernels} of {expected}" if expected else f"{seen.kernels}"
        if self._late(finished):
            return (
                f"ncu was stopped at its limit of {self.limit_s:.0f} s, after {so_far} launches; "
                "raise collect.ncu.time_limit to profile more",
            )
        if not finished.ok and not seen.stopped:
            return (f"ncu {ended(finished)} after {so_far} launches; what it wrote is kept",)
        return ()

    def _failure(self, finished: Finished) -> ProgramFailed:
        """Return why there is no report, and the way out."""
        if self._late(finished):
            return ProgramFailed(
                "timeout",
                f"ncu was stopped at its limit of {self.limit_s:.0f} s and left no report: the "
                "program hangs or crawls under it; raise collect.ncu.time_limit, or name fewer "
                "kernels in collect.ncu.kernels",
            )
        known = explain(finished.stdout + finished.stderr)
        reason = known or finished.complaint() or "no output"
        if finished.ok:
            return ProgramFailed("profiler", f"ncu wrote no {self.report.name}: {reason}")
        way_out = "" if known else "; 'ncu: {replay_mode: application}' may avoid it"
        return ProgramFailed("profiler", f"ncu {ended(finished)}: {reason}{way_out}")
