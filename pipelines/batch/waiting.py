"""Waits for the end of a batch, and reports changes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator

from perfpipe.batchrecord import Outcome, State, TaskState
from perfpipe.errors import TaskFailed
from perfpipe.pipelines.batch.disk import BatchDirectory
from perfpipe.pipelines.batch.state import BatchState, last_collector, state_of
from perfpipe.pipelines.console import Progress, progress
from perfpipe.pipelines.slurm.client import Cluster
from perfpipe.pipelines.slurm.reasons import stays
from perfpipe.pipelines.slurm.states import JobState
from perfpipe.units import counted
from perfpipe.visible import visible_line

#: What to do about a job that does not start.
CHANGE = "perfpipe batch cancel, then perfpipe batch resume with another --time or --partition"

#: How many times in a row a batch may be over without a collector before waiting stops.
_PATIENCE = 4


def wait_for(
    directory: BatchDirectory,
    cluster: Cluster,
    interval_s: float,
    sleep: Callable[[float], None] = time.sleep,
    *,
    quiet: bool = False,
) -> Outcome:
    """Wait until a collector has finished a batch, and return the outcome.

    With `quiet`, nothing is printed meanwhile.  Raises TaskFailed if the batch is over but no
    collector runs.  While Slurm does not answer, it is queried again.
    """
    batch = directory.batch
    over = 0
    said: dict[int, State] = {}
    noted: set[str] = set()
    trouble: str | None = None
    with progress(batch.batch_id, batch.tasks, quiet=quiet) as shown:
        while True:
            state = state_of(directory, cluster)
            _tell(state, said, shown)
            for line in waiting_lines(state):
                if line not in noted and line.endswith(CHANGE):
                    shown.note(f"waiting: {line}")
                    noted.add(line)
            if state.unasked and state.unasked != trouble:
                shown.note(f"Slurm does not answer: {state.unasked}")
            trouble = state.unasked
            outcome = directory.outcome()
            if outcome is not None and outcome.submission == last_collector(directory):
                return outcome
            over = over + 1 if _abandoned(state) else 0
            if over > _PATIENCE:
                why = "the jobs have ended, but no collector gathers their results"
                if not directory.submitted:
                    why = "Slurm took no job of this batch"
                raise TaskFailed(
                    f"{batch.batch_id}: {why}{_ended(state.collector)}; run 'perfpipe batch resume "
                    f"{batch.batch_id}'"
                )
            sleep(interval_s)


def _abandoned(state: BatchState) -> bool:
    return state.finished and not state.collecting and state.unasked is None


def _ended(collector: JobState | None) -> str:
    """Return how the collector's job ended."""
    if collector is None:
        return ""
    why = [f"exit code {collector.exit_code}"] if collector.exit_code else []
    why += [f"signal {collector.signal}"] if collector.signal else []
    why += [collector.reason] if collector.reason else []
    said = f" ({', '.join(why)})" if why else ""
    where = f" on {collector.node}" if collector.node else ""
    return f": the collector, job {collector.job}, ended{where}: {collector.state.value}{said}"


def _tell(state: BatchState, said: dict[int, State], shown: Progress) -> None:
    """Report the tasks that have ended since the last report."""
    for task in state.tasks:
        index = task.task.index
        if task.state == said.get(index):
            continue
        if not task.state.in_flight and task.state != State.UNSUBMITTED:
            if index not in said or said[index].in_flight:
                shown.step(line_of(task))
            else:
                shown.note(line_of(task))
        said[index] = task.state


def waiting_lines(state: BatchState) -> Iterator[str]:
    """Yield why tasks wait, the most frequent reason first, and what ends a wait for ever."""
    waiting = Counter(t.reason for t in state.tasks if t.state == State.WAITING and t.reason)
    for reason, count in waiting.most_common():
        text = f"{counted(count, 'task')}: {reason}"
        yield f"{text}; {CHANGE}" if stays(reason) else text


def line_of(task: TaskState) -> str:
    """Return a task as a line, without characters of its program that a terminal obeys."""
    own = task.task
    what = f"[{own.index}] {own.workload} {own.label}: {task.state}"
    where = f" on {task.node}" if task.node else ""
    took = f", {task.seconds:.1f} s" if task.seconds is not None else ""
    why = f": {task.reason}" if task.reason and task.state != State.DONE else ""
    return visible_line(f"{what}{where}{took}{why}")
