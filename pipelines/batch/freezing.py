"""Freezes workloads into the tasks of a batch: later edits do not change it."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfpipe.batchrecord import Batch, BatchRun, BatchTask
from perfpipe.errors import InputError, did_you_mean
from perfpipe.ingest.finding import expand_paths
from perfpipe.pipelines.batch.packing import reads_long
from perfpipe.pipelines.plan import planned_tasks
from perfpipe.pipelines.ranks import starts_ranks
from perfpipe.pipelines.recording import load_recording
from perfpipe.pipelines.runs import new_id
from perfpipe.pipelines.slurm.options import Slurm, merged
from perfpipe.pipelines.tasks import Task, task_of
from perfpipe.pipelines.workload import Execution, Workload
from perfpipe.provenance import provenance, utc_now
from perfpipe.runrecord import Recorded, Scalar
from perfpipe.store import Store

#: Collector of a run that reads existing reports.
INGEST = "ingest"


@dataclass(frozen=True)
class Wanted:
    """A workload to run, and its file; `words` is the command of a program without a file."""

    workload: Workload
    path: Path
    words: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Frozen:
    """A batch that has not been written yet."""

    batch: Batch
    tasks: tuple[BatchTask, ...]
    workloads: Mapping[str, Workload]


def freeze(
    wanted: Sequence[Wanted],
    *,
    store: Store,
    collector: str,
    slurm_of: Callable[[Slurm | None], Slurm],
    filters: Mapping[str, list[str]],
    command: Sequence[str],
    pages: bool,
    max_attempts: int,
    arms: str | None = None,
    flags: Slurm | None = None,
) -> Frozen:
    """Return the batch of some workloads; `slurm_of` returns job options from a workload's own.

    Configurations that differ only in the parameter `arms` are measured alternately.  `flags` are
    the options of the command line.  Raises InputError if a workload cannot be a batch.
    """
    now = utc_now()
    runs, tasks, workloads = [], [], dict[str, Workload]()
    for one in wanted:
        _refuse_search(one)
        run_id = new_id(one.workload.name, now)
        asked = slurm_of(one.workload.slurm)
        if collector == "replay":
            asked = merged(asked, Slurm(gpus=0, gpu_type=None))
        recording = _recording(one) if collector == "replay" else None
        kind = "all" if collector == "auto" else collector
        path = str(one.path.resolve())
        runs.append(BatchRun(run_id, one.workload.name, path, kind, recording, one.words))
        own = [
            _frozen(run_id, one.workload.name, task)
            for task in planned_tasks(one.workload, one.path, dict(filters))
        ]
        if asked.ingest == "auto":
            apart = kind != "replay" and reads_long(store, own)
            asked = merged(asked, Slurm(ingest="separate" if apart else "inside"))
        workloads[run_id] = spread(one.workload, asked)
        tasks += own
    if arms is not None and not any(arms in task.params for task in tasks):
        known = {name for task in tasks for name in task.params}
        raise InputError(f"--arms {arms}: no such parameter{did_you_mean(arms, known)}")
    batch = _batch(runs, len(tasks), store, command, pages, max_attempts, now)
    batch = replace(_with_flags(batch, flags), arms=arms)
    return Frozen(batch, _numbered(tasks), workloads)


def freeze_inputs(
    paths: Iterable[str],
    *,
    store: Store,
    slurm: Slurm,
    command: Sequence[str],
    pages: bool,
    max_attempts: int,
    flags: Slurm | None = None,
) -> Frozen:
    """Return the batch that reads reports, also those in directories; it needs no GPU.

    Raises InputError without reports.
    """
    found = [path.resolve() for path in expand_paths([*paths])]
    if not found:
        raise InputError("no reports to read")
    now = utc_now()
    run_id = new_id(INGEST, now)
    tasks = []
    for number, path in enumerate(found):
        key = hashlib.sha256(str(path).encode()).hexdigest()[:16]
        params: dict[str, Scalar] = {"input": path.name}
        tasks.append(BatchTask(number, run_id, INGEST, number, key, path.name, params, str(path)))
    workload = Workload(
        version=1, name=INGEST, command=["perfpipe", "ingest"], slurm=merged(slurm, Slurm(gpus=0))
    )
    runs = [BatchRun(run_id, INGEST, "", INGEST)]
    batch = _batch(runs, len(tasks), store, command, pages, max_attempts, now)
    return Frozen(_with_flags(batch, flags), tuple(tasks), {run_id: workload})


def _with_flags(batch: Batch, flags: Slurm | None) -> Batch:
    if flags is None:
        return batch
    stated = flags.model_dump(exclude_unset=True)
    return replace(
        batch, flags={k: tuple(v) if isinstance(v, list) else v for k, v in stated.items()}
    )


def spread(workload: Workload, slurm: Slurm) -> Workload:
    """Return a workload with its job options; srun starts the ranks of a program."""
    if slurm.nodes > 1 and slurm.ranks_per_node is None and starts_ranks(workload.command):
        slurm = merged(slurm, Slurm(ranks_per_node=1))
    changed: dict[str, object] = {"slurm": slurm}
    if slurm.ranks is not None and workload.execution.kind == "local":
        changed["execution"] = Execution(kind="srun", wrapper=["srun"])
    return workload.model_copy(update=changed)


def task_again(task: BatchTask, workload: Workload, path: Path) -> Task:
    """Return the task of a run for a frozen one; its key covers the program's files now."""
    return task_of(task.task_index, task.params, workload, path)


def _batch(
    runs: Sequence[BatchRun],
    count: int,
    store: Store,
    command: Sequence[str],
    pages: bool,
    max_attempts: int,
    now: str,
) -> Batch:
    return Batch(
        batch_id=new_id("batch", now),
        created_at=now,
        runs=tuple(runs),
        tasks=count,
        store=str(store.root.resolve()),
        python=sys.executable,
        directory=str(Path.cwd()),
        command=tuple(command),
        max_attempts=max_attempts,
        pages=pages,
        provenance=provenance(),
    )


def _frozen(run_id: str, workload: str, task: Task) -> BatchTask:
    params = dict(task.params)
    return BatchTask(0, run_id, workload, task.index, task.key, task.label, params)


def _numbered(tasks: Iterable[BatchTask]) -> tuple[BatchTask, ...]:
    return tuple(replace(task, index=index) for index, task in enumerate(tasks))


def _refuse_search(one: Wanted) -> None:
    if one.workload.tune is not None:
        raise InputError(
            f"{one.path}: a search (tune) runs its generations in sequence, so it is a single job: "
            f"salloc --gpus 1 perfpipe run {one.path}"
        )


def _recording(one: Wanted) -> Recorded:
    if one.workload.recording is None:
        raise InputError(f"{one.path}: the workload has no recording to replay")
    found = load_recording(one.path.parent / one.workload.recording)
    return Recorded(found.gpu, found.captured_at, found.tools)
