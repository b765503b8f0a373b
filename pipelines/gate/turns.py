"""Launches arms alternately (A B B A), so that drift affects all of them equally."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

from perfpipe.analysis.gate.ab import Round
from perfpipe.errors import InputError, PerfpipeError, ToolMissing
from perfpipe.pipelines.collectors.base import Context, Say
from perfpipe.pipelines.collectors.timing import Timing
from perfpipe.pipelines.gate.arms import Arm
from perfpipe.pipelines.launcher import Launcher
from perfpipe.pipelines.measuring import failed
from perfpipe.pipelines.place import stopwatch
from perfpipe.pipelines.runs import Run, result_of
from perfpipe.pipelines.tasks import Task, directory_of
from perfpipe.runrecord import TaskResult
from perfpipe.store import Store


class Measuring:
    """An arm during measurement: one run in the store per round."""

    def __init__(self, arm: Arm, launcher: Launcher, store: Store, say: Say) -> None:
        self.arm, self.launcher, self.store, self.say = arm, launcher, store, say
        self.tasks = arm.tasks
        self.rounds: list[Round] = []
        self.runs: list[str] = []

    def measure(self, turn: int) -> None:
        """Launch every configuration once, and keep the results as a run."""
        file = self.arm.path.name
        words = self.arm.words
        run = Run.new(self.store, self.arm.workload.name, file, "timing", words=words)
        with run.track_status():
            for task in self.tasks:
                directory = run.task_directory(task)
                run.add(self._launched(task, run, turn), directory)
        self.rounds.append(Round(turn, run.record.tasks))
        self.runs.append(run.record.run_id)

    def _launched(self, task: Task, run: Run, turn: int) -> TaskResult:
        into = run.task_directory(task, fresh=False)
        context = Context(self.arm.workload, task, self.launcher, into, self.say)
        ran = stopwatch(self.launcher, self.arm.workload.env, task.command)
        timing = Timing(context)
        try:
            timing.launch()
        except ToolMissing:
            raise
        except PerfpipeError as error:
            return replace(failed(result_of(task), error), ran=ran())
        notes = (f"arm {self.arm.name}, turn {turn}",)
        result = timing.result(replace(result_of(task), ran=ran(), notes=notes))
        if result.median_ms is None and result.wall_s is None:
            raise InputError(
                f"{self.arm.path}: the program prints no times and is stopped early "
                "(duration), so there is nothing to compare"
            )
        return replace(result, variant=self.arm.variant)

    @property
    def failures(self) -> list[str]:
        """The configurations that failed."""
        return [own.label for one in self.rounds for own in one.results if not own.done]


def in_turns(
    arms: Sequence[Arm], store: Store, rounds: int, say: Say
) -> Iterator[tuple[int, list[Measuring]]]:
    """Launch every arm once a round, and yield the number of rounds and the arms after each."""
    with ExitStack() as stack:
        sides = []
        for arm in arms:
            cwd = directory_of(arm.workload, arm.path)
            launcher = stack.enter_context(Launcher(arm.workload.execution, cwd))
            sides.append(Measuring(arm, launcher, store, say))
        for number in range(rounds):
            for at, side in enumerate(sides if number % 2 == 0 else reversed(sides)):
                side.measure(len(sides) * number + at)
            yield number + 1, sides
