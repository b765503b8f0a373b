"""The context of every collector, with functions that launch and check a command."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from perfpipe.cores import cores
from perfpipe.errors import TaskFailed, ToolMissing
from perfpipe.pipelines.complaint import ended
from perfpipe.pipelines.ingesting import Failure, ingest_many
from perfpipe.pipelines.launcher import Launcher
from perfpipe.pipelines.process import Finished
from perfpipe.pipelines.tasks import Task
from perfpipe.pipelines.tools import explain
from perfpipe.pipelines.workload import Workload
from perfpipe.runrecord import TaskResult
from perfpipe.store import Store
from perfpipe.units import format_ns

#: Environment variable with the collector that launched a program: plain, nsys, ncu or torch.
COLLECTOR_VARIABLE = "PERFPIPE_COLLECTOR"

#: Removes the profiler's words in all srun tasks except the first; $0 is their number.
_FIRST_OF_SRUN = '[ "${SLURM_PROCID:-0}" = 0 ] || shift "$0"; exec "$@"'

#: Exit code of `timeout` if it interrupted a command.
TIMED_OUT = 124

#: Receives progress messages of a tool.
Say = Callable[[str], None]


class ProgramFailed(TaskFailed):
    """A task that failed; `kind` is one of TaskResult.failure.

    `program_code` is the program's exit code, None if it did not exit by itself.
    """

    def __init__(self, kind: str, message: str, program_code: int | None = None) -> None:
        super().__init__(message)
        self.kind, self.program_code = kind, program_code


@dataclass(frozen=True)
class Collected:
    """A profiler's report, the time of its launches, s, and its gaps.

    `others` are the reports of further ranks.
    """

    path: Path
    seconds: float
    notes: tuple[str, ...] = ()
    others: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Context:
    """A task to collect; `into` is the directory for output and reports of its launches.

    `say` gets messages that a display may replace by the next one; `lasting`, if given, gets those
    that are to stay.
    """

    workload: Workload
    task: Task
    launcher: Launcher
    into: Path
    say: Say
    lasting: Say | None = None

    def tell(self, text: str) -> None:
        """Print a message that stays, if the display keeps any."""
        (self.lasting or self.say)(text)

    def launch(
        self,
        collector: str,
        before: Sequence[str | Path] = (),
        *,
        log: str | None = None,
        env: dict[str, str] | None = None,
        command: Sequence[str | Path] | None = None,
        on_line: Say | None = None,
        timeout: float | None = None,
        every_rank: bool = False,
        grace_s: float | None = None,
    ) -> Finished:
        """Launch the task's command, prefixed by a profiler's; `timeout`: the workload's, else.

        With several srun tasks only the first is profiled, unless each writes its own report.
        With `grace_s` it is ended after the workload's duration, if one is set: interrupted as by
        Ctrl-C, with its processes, and killed after the grace period.
        """
        if before and self.launcher.execution.kind == "srun" and not every_rank:
            before = ["sh", "-c", _FIRST_OF_SRUN, str(len(before)), *before]
        return self.launcher.run(
            [*self._ending_early(grace_s), *before, *(command or self.task.command)],
            env={**self.workload.env, COLLECTOR_VARIABLE: collector, **(env or {})},
            timeout=timeout or self.workload.timeout,
            log=self.into / (log or collector),
            on_line=on_line,
        )

    def _ending_early(self, grace_s: float | None) -> list[str]:
        """Return the words in front of a command that end it after the workload's duration."""
        duration = self.workload.duration
        if duration is None or grace_s is None:
            return []
        timeout = self.launcher.which(["timeout"])
        if timeout is None:
            raise ToolMissing("timeout: no such program; it is needed to stop a launch early")
        return interrupting(timeout, duration, grace_s)

    def ended_early(self, finished: Finished) -> bool:
        """Return whether a launch ran for the workload's duration and was then ended."""
        duration = self.workload.duration
        return duration is not None and finished.seconds >= duration and not finished.timed_out

    def check(self, finished: Finished, what: str) -> None:
        """Raise ProgramFailed if a launch failed that was not ended early."""
        if not self.ended_early(finished):
            check(finished, what, self.workload.timeout)

    def product(self, finished: Finished, what: str, path: Path) -> Collected:
        """Return the report that a launch wrote; raises ProgramFailed if there is none."""
        self.check(finished, what)
        return self.written(finished, what, path)

    def written(self, finished: Finished, what: str, path: Path) -> Collected:
        """Return the file of a successful command; raises ProgramFailed if it is missing."""
        if not self.launcher.fetch(path):
            reason = explain(finished.stdout + finished.stderr) or finished.complaint()
            raise ProgramFailed(
                "profiler", f"{what} did not write {path.name}: {reason or 'no output'}"
            )
        return Collected(path, finished.seconds)


#: Takes a result that is not complete yet, with the files that profilers have written: all that is
#: left if the task ends here.
Keep = Callable[[TaskResult, Sequence[Path]], None]


@dataclass
class Job:
    """A task that is launched under one profiler after another.

    `result` has the times without a profiler, `profilers` the names of all that are run, `started`
    is when the first launch was (time.monotonic).  What the profilers gave so far: `files`, the
    times of their launches, s, their notes, and `reports` by file, with the time to read these, s.
    `shown` says whether a verdict on these has been printed.
    """

    context: Context
    store: Store
    result: TaskResult
    profilers: Sequence[str]
    started: float
    files: list[Path] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    reports: dict[Path, str] = field(default_factory=dict)
    reading_s: float = 0.0
    shown: bool = False

    @property
    def plain_s(self) -> float | None:
        """How long the program takes without a profiler, s; None if it was not launched so."""
        return statistics.median(self.result.seconds) if self.result.seconds else None

    def announce(self, name: str, takes: str | None = None) -> None:
        """Print that a profiler is next, how long it takes, and what Ctrl-C keeps.

        Without `takes`, the message has the time of the program without a profiler, if it is known.
        """
        if takes is None and self.plain_s is not None:
            plain = format_ns(1e9 * self.plain_s)
            takes = f"about {plain} plus its overhead"
        known = f", {takes}" if takes else ""
        if self.shown:
            self.context.tell(f"{name} continues{known}; Ctrl-C keeps this")
        else:
            self.context.tell(f"{name} is next{known}")

    def read(self, files: Sequence[Path]) -> None:
        """Ingest files whose reports are unknown; one that cannot be ingested has none."""
        began = time.monotonic()
        new = [path for path in files if path not in self.reports]
        for outcome in ingest_many(new, self.store, jobs=cores()):
            if not isinstance(outcome, Failure):
                self.reports[outcome.path] = outcome.report_id
        self.reading_s += time.monotonic() - began

    def so_far(self, missing: Sequence[str] = ()) -> TaskResult:
        """Return the result with what the profilers gave; `missing` have not finished."""
        root = self.store.runs_dir.resolve()
        unfinished = [f"{name} did not finish" for name in missing]
        return replace(
            self.result,
            profilers=tuple(name for name in self.profilers if name not in missing),
            files=tuple(str(path.relative_to(root)) for path in self.files),
            notes=(*self.result.notes, *self.notes, *unfinished),
            profiler_s=dict(self.seconds),
            reports=tuple(sorted(self.reports.values())),
        )


class Profiler(Protocol):
    """Launches a program once under a tool.  `tool` must be installed; empty if none is needed."""

    tool: str

    def collect(self, job: Job) -> Collected:
        """Return the report that the tool wrote.

        Raises ProgramFailed, or NothingToProfile if the earlier reports leave nothing to do.
        """


def interrupting(timeout: str, seconds: float, grace_s: float) -> list[str]:
    """Return the words of `timeout` that interrupt a command after a time, and kill it later."""
    return [timeout, "--signal=INT", f"--kill-after={grace_s:g}", f"{seconds:g}"]


def check(finished: Finished, what: str, timeout: float | None, kind: str = "profiler") -> None:
    """Raise ProgramFailed if a launch failed, with the meaning of its output."""
    if finished.timed_out:
        more = "; raise the limit with --set timeout=SECONDS"
        raise ProgramFailed(
            "timeout", f"{what} took longer than {timeout:g} s and was killed{more}"
        )
    if finished.ok:
        return
    advice = explain(finished.stdout + finished.stderr)
    reason = advice or finished.complaint() or "no output"
    raise ProgramFailed(kind, f"{what} {ended(finished.returncode)}: {reason}", finished.returncode)
