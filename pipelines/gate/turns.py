"""Launches two arms in rounds, each in a random order, after launches that do not count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from perfpipe.analysis.gate.ab import Round
from perfpipe.analysis.gate.order import orders
from perfpipe.errors import InputError, PerfpipeError, ToolMissing
from perfpipe.pipelines.collectors.base import Context, Say
from perfpipe.pipelines.collectors.timing import Timing
from perfpipe.pipelines.console import Progress
from perfpipe.pipelines.gate.arms import Arm
from perfpipe.pipelines.launcher import Launcher
from perfpipe.pipelines.measuring import failed
from perfpipe.pipelines.place import stopwatch
from perfpipe.pipelines.runs import Run, result_of
from perfpipe.pipelines.tasks import Task, directory_of
from perfpipe.runrecord import TaskResult
from perfpipe.scratch import scratch
from perfpipe.store import Store
from perfpipe.units import counted


class Measuring:
    """An arm during measurement: one run in the store per round.

    `first` are the results of the first launches, which do not count, as far as they succeeded.
    """

    def __init__(self, arm: Arm, launcher: Launcher, store: Store, say: Say) -> None:
        self.arm, self.launcher, self.store, self.say = arm, launcher, store, say
        self.tasks = arm.tasks
        self.first: list[TaskResult] = []
        self.rounds: list[Round] = []
        self.runs: list[str] = []

    def warm_up(self) -> str | None:
        """Launch every configuration once, without a run in the store.

        A failure ends it, and is returned: the first round shows whether the program fails again.
        """
        with scratch() as folder:
            for task in self.tasks:
                into = folder / str(task.index)
                into.mkdir()
                result = self._launched(task, into)
                if not result.done:
                    return result.error
                self.first.append(result)
        return None

    def measure(self, turn: int, seed: int | None = None) -> None:
        """Launch every configuration once, and keep the results as a run.

        Its notes name the seed of the order, if there is one.
        """
        file = self.arm.path.name
        words = self.arm.words
        origin = "" if seed is None else f", order from seed {seed}"
        notes = (f"arm {self.arm.name}, turn {turn}{origin}",)
        run = Run.new(self.store, self.arm.workload.name, file, "timing", words=words)
        with run.track_status():
            for task in self.tasks:
                directory = run.task_directory(task)
                result = self._launched(task, directory)
                if result.done:
                    result = replace(
                        result, notes=(*notes, *result.notes), variant=self.arm.variant
                    )
                run.add(result, directory)
        self.rounds.append(Round(turn, run.record.tasks))
        self.runs.append(run.record.run_id)

    def _launched(self, task: Task, into: Path) -> TaskResult:
        context = Context(self.arm.workload, task, self.launcher, into, self.say)
        ran = stopwatch(self.launcher, self.arm.workload.env, task.command)
        timing = Timing(context)
        try:
            timing.launch()
        except ToolMissing:
            raise
        except PerfpipeError as error:
            return replace(failed(result_of(task), error), ran=ran())
        result = timing.result(replace(result_of(task), ran=ran()))
        if result.median_ms is None and result.wall_s is None:
            raise InputError(
                f"{self.arm.path}: the program prints no times and is stopped early "
                "(duration), so there is nothing to compare"
            )
        return result

    @property
    def failures(self) -> list[TaskResult]:
        """The results of the configurations that failed, of all rounds."""
        return [own for one in self.rounds for own in one.results if not own.done]


@contextmanager
def measuring(
    arms: tuple[Arm, Arm], store: Store, progress: Progress
) -> Iterator[tuple[Measuring, Measuring]]:
    """Open both arms, and launch each different one once: first launches may fill caches."""
    with ExitStack() as stack:

        def opened(arm: Arm) -> Measuring:
            cwd = directory_of(arm.workload, arm.path)
            launcher = stack.enter_context(Launcher(arm.workload.execution, cwd))
            return Measuring(arm, launcher, store, progress.detail)

        sides = opened(arms[0]), opened(arms[1])
        cold = sides[:1] if arms[0].alike(arms[1]) else sides
        launches = counted(sum(len(side.tasks) for side in cold), "launch")
        progress.note(f"warm-up: {launches}, not counted")
        for side in cold:
            side.warm_up()
        yield sides


def in_turns(sides: Sequence[Measuring], rounds: int, seed: int) -> Iterator[int]:
    """Launch both arms once a round, in an order from a seed, and yield the number of rounds.

    A later call measures further rounds, in an order of their own.
    """
    start = len(sides[0].rounds)
    for number, order in zip(range(rounds), orders(f"{seed} {start}"), strict=False):
        for at, which in enumerate(order):
            sides[which].measure(2 * (start + number) + at, seed)
        yield number + 1
