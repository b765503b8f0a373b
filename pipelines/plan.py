"""The plan of a run: its configurations, and how they are collected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perfpipe.errors import InputError, PerfpipeError, ToolMissing
from perfpipe.pipelines.launcher import Launcher
from perfpipe.pipelines.recording import load_recording
from perfpipe.pipelines.search import Search
from perfpipe.pipelines.tasks import Task, task_of, tasks
from perfpipe.pipelines.tools import find_tool_on, gpus_on
from perfpipe.pipelines.workload import Execution, Workload

COLLECTORS = ("auto", "all", "timing", "nsys", "ncu", "torch", "replay")

#: Profilers that each collector runs, besides the launch without a profiler: timelines first, since
#: they show which kernels to profile.
_PROFILERS = {
    "all": ("nsys", "torch", "ncu", "modules"),
    "timing": (),
    "nsys": ("nsys", "modules"),
    "ncu": ("ncu",),
    "torch": ("torch",),
}

#: The same for a server: ncu only if it is asked for, because it replays each kernel.
_OF_SERVERS = {**_PROFILERS, "all": ("nsys",), "nsys": ("nsys",), "ncu": ("nsys", "ncu")}


@dataclass(frozen=True)
class Plan:
    """A workload, its path, its configurations, and how they are collected.

    `words` is the command line of a program without a workload file, else None.  With `read_later`,
    reports stay as files.
    """

    workload: Workload
    path: Path
    tasks: list[Task]
    collector: str
    resume: bool = False
    rerun_failed: bool = False
    words: tuple[str, ...] | None = None
    read_later: bool = False

    @property
    def recording(self) -> Path:
        """The directory of the recording."""
        if self.workload.recording is None:
            raise InputError(f"{self.path}: no GPU found, and the workload has no recording")
        return self.path.parent / self.workload.recording

    @property
    def profilers(self) -> tuple[str, ...]:
        """The profilers to run: those of the collector that the workload configures."""
        if self.workload.serve is not None:
            return _OF_SERVERS[self.collector]
        wanted = self.workload.collect
        return tuple(name for name in _PROFILERS[self.collector] if getattr(wanted, name))

    @property
    def alone(self) -> bool:
        """Whether there is one configuration."""
        return self.workload.tune is None and len(self.tasks) == 1

    @property
    def previewed(self) -> bool:
        """Whether another profiler follows the timeline of the only configuration."""
        return self.alone and len(self.profilers) > 1 and self.workload.serve is None

    @property
    def launches(self) -> int:
        """Maximum number of tasks."""
        tune = self.workload.tune
        if tune is None:
            return len(self.tasks)
        if self.collector == "replay":
            return len(load_recording(self.recording).tasks)
        return tune.generations * tune.population


def planned_tasks(
    workload: Workload, path: Path, filters: dict[str, list[str]] | None = None
) -> list[Task]:
    """Return the tasks known in advance: all, or the first generation of a search."""
    if workload.tune is None:
        return tasks(workload, path, filters)
    first = enumerate(Search(workload, path).next_generation([]))
    return [task_of(index, params, workload, path, 0) for index, params in first]


def choose_collector(asked: str, launcher: Launcher | None = None) -> tuple[str, str]:
    """Return the collector for `asked`, and the reason as a phrase."""
    if asked != "auto":
        return asked, f"collector {asked}, as requested"
    launcher = launcher or Launcher(Execution(), Path.cwd())
    found = gpus_on(launcher)
    if not found:
        return "replay", "no GPU found: replaying a recording, nothing is measured"
    match [name for name in ("nsys", "ncu") if find_tool_on(launcher, name)]:
        case []:
            return "replay", "found a GPU but neither nsys nor ncu: replaying a recording"
        case [only]:
            reason = (
                f"measuring on {found[0]} with {only} only (the other profiler is not installed)"
            )
            return only, reason
        case _:
            return "all", f"measuring on {found[0]}"


def nothing_to_replay(
    what: str, asked: str, found: Sequence[str], timing: str | None = None
) -> PerfpipeError:
    """Return the error of a run that can neither measure nor replay.

    `what` is the workload, `asked` the collector, `found` the GPUs.  `timing` says how to time a
    program that needs no GPU, if it may be one.
    """
    if asked == "replay":
        return InputError(f"{what}: the workload has no recording")
    if found:
        return ToolMissing(
            f"found {found[0]}, but neither nsys nor ncu; install them, or see 'perfpipe doctor'"
        )
    if timing is None:
        return InputError(f"{what}: no GPU found, and the workload has no recording")
    return InputError(
        f"no GPU found, and {what} has no recording to replay; {timing}, 'perfpipe doctor' shows "
        "what is missing"
    )
