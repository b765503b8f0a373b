"""A task of a batch with its state and results; counts and compares tasks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from perfpipe.analysis.batch.nodes import Timed
from perfpipe.batchrecord import State, TaskState, TaskSummary, Usage
from perfpipe.runrecord import TaskResult

#: States in the order of interest: failed, in progress, done.
ORDER = (
    State.FAILED,
    State.OUT_OF_MEMORY,
    State.TIMEOUT,
    State.NODE_FAILURE,
    State.PREEMPTED,
    State.LOST,
    State.STOPPED,
    State.CANCELLED,
    State.UNKNOWN,
    State.RUNNING,
    State.WAITING,
    State.UNSUBMITTED,
    State.DONE,
)

#: States that may still change, with or without a new submission, and failed ones.
OPEN = (State.UNKNOWN, State.RUNNING, State.WAITING, State.UNSUBMITTED)
FAILED = tuple(state for state in ORDER if state not in (State.DONE, *OPEN))

#: Control sequences of terminals.
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


@dataclass(frozen=True)
class Item:
    """A task of a batch: its state, and its results.

    `gpus` are the UUIDs of the GPUs that it used.  `page` is the task's own page, relative to the
    batch's page; `log` has the last lines that it printed, if it failed.  `usage` is
    that of its job.
    """

    state: TaskState
    result: TaskResult | None = None
    summary: TaskSummary = TaskSummary()  # noqa: RUF009 (it is frozen)
    gpus: tuple[str, ...] = ()
    page: str | None = None
    log: str | None = None
    usage: Usage | None = None

    @property
    def index(self) -> int:
        """Number of the task in the batch."""
        return self.state.task.index

    @property
    def done(self) -> bool:
        """Whether it has a result."""
        return self.state.state is State.DONE

    @property
    def failed(self) -> bool:
        """Whether it ended without success."""
        return self.state.state in FAILED

    @property
    def time_ms(self) -> float | None:
        """Median time of an iteration without a profiler, ms; None if the program reports none."""
        return self.result.median_ms if self.result is not None else None

    @property
    def step_ms(self) -> float | None:
        """Median step of the timeline, ms."""
        return self.summary.step_ms if self.summary.steps is not None else None

    @property
    def reason(self) -> str | None:
        """The reason for its state, on one line."""
        said = self.state.reason or (self.result.error if self.result is not None else None)
        return " ".join(plain_text(said).split()) if said else None


def plain_text(text: str) -> str:
    """Return the output of a program without terminal control sequences: colors, bells.

    >>> plain_text("\x1b[31mred\x1b[0m\x07")
    'red '
    """
    text = _ESCAPES.sub("", text)
    return "".join(char if char.isprintable() or char in "\n\t" else " " for char in text)


def in_order(items: Sequence[Item]) -> list[Item]:
    """Return tasks, failed ones first."""
    places = {state: place for place, state in enumerate(ORDER)}
    return sorted(items, key=lambda item: (places[item.state.state], item.index))


def times_of(items: Sequence[Item], *, by_gpu: bool = False) -> list[Timed]:
    """Return the times of finished tasks, by node, or by GPU for tasks that used one GPU.

    The same work is the same configuration of the same workload on the same GPU model, timed the
    same way.
    """
    found = []
    for item in items:
        place = item.state.node
        if by_gpu:
            place = gpu_name(place, item.gpus[0]) if len(item.gpus) == 1 else None
        time = item.time_ms or item.step_ms
        if item.done and place and time:
            task = item.state.task
            how = "own" if item.time_ms else "timeline"
            work = "\0".join((task.workload, task.label, item.summary.gpu or "", how))
            found.append(Timed(work, place, time))
    return found


def gpu_name(node: str | None, uuid: str) -> str:
    """Return the name of a GPU, with its node."""
    return f"{node or '-'} {uuid}"
