"""Simulated batches: workloads x configurations x repeats over nodes, some of which fail."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

from perfpipe.analysis.batch.items import Item
from perfpipe.batchrecord import Batch, BatchRun, BatchTask, State, TaskState, TaskSummary
from perfpipe.runrecord import Recorded, TaskResult

#: Failures as clusters have them: state, reason, last lines of the log.
FAILURES = (
    (State.FAILED, "the program ended with exit code 1",
     'File "train.py", line 88\nValueError: loss is nan'),
    (State.TIMEOUT, "over its time limit of 30 min",
     "step 412/1000\nslurmstepd: *** JOB 817 CANCELLED DUE TO TIME LIMIT ***"),
    (State.OUT_OF_MEMORY, "killed: over its memory of 64 GB", "slurmstepd: error: Detected 1 oom_kill event"),
    (State.NODE_FAILURE, "node03 went down", ""),
    (State.LOST, "the job ended without a result", "Killed"),
)  # fmt: skip

#: Bounds of a timeline with what bounds its kernels.
BOUNDS = (
    ("compute", "compute (tensor)"),
    ("launch_overhead", "launch (small grid)"),
    ("compute", "memory (dram)"),
    ("host", None),
)


def simulated(
    configurations: int = 5,
    repeats: int = 4,
    workloads: Sequence[str] = ("gemm", "attention", "transformer_step"),
    nodes: int = 4,
    *,
    slow: float = 0.06,
    scatter: float = 0.01,
    failures: Mapping[int, int] | None = None,
    recording: Recorded | None = None,
    seed: int = 1,
) -> tuple[Batch, list[Item]]:
    """Return a batch whose last node is slower by `slow`; `failures` are kinds by task number."""
    rng = random.Random(seed)
    failures = {7: 0, 18: 1, 23: 2, 31: 3, 44: 4} if failures is None else failures
    runs = tuple(
        BatchRun(f"{name}-20261122t144338z-{n:04x}", name, f"workloads/{name}.yaml", "all", recording)
        for n, name in enumerate(workloads)
    )  # fmt: skip
    items = []
    for task, time_ms in _tasks(rng, runs, configurations, repeats):
        node = rng.randrange(nodes)
        kind = failures.get(task.index)
        took = time_ms * rng.lognormvariate(0, scatter) * (1 + slow * (node == nodes - 1))
        items.append(_item(rng, task, f"node{node:02d}", took, kind))
    batch = Batch(
        batch_id="batch-20261122t144338z-1f2e",
        created_at="2026-11-22T14:43:38Z",
        runs=runs,
        tasks=len(items),
        store="/shared/store",
        python="/usr/bin/python3",
        directory="/home/user",
        command=("perfpipe", "batch", "submit", *(run.file for run in runs)),
        provenance={"perfpipe": "0.1.0", "python": "3.11.2"},
    )
    return batch, items


def _tasks(
    rng: random.Random, runs: Sequence[BatchRun], configurations: int, repeats: int
) -> Iterator[tuple[BatchTask, float]]:
    index = 0
    for run in runs:
        times = [rng.uniform(0.05, 40) for _ in range(configurations)]
        for at in range(configurations * repeats):
            size = 512 * 2 ** (at % configurations % 12)
            params: dict[str, bool | int | float | str] = {
                "size": size,
                "batch": at % configurations,
            }
            label = " ".join(f"{name}={value}" for name, value in params.items())
            key = f"{rng.getrandbits(64):016x}"
            yield (
                BatchTask(index, run.run_id, run.workload, at, key, label, params),
                times[at % configurations],
            )
            index += 1


def _item(rng: random.Random, task: BatchTask, node: str, time_ms: float, kind: int | None) -> Item:
    element = f"817_{task.index}"
    gpus = (f"GPU-{node}-{rng.randrange(2)}",)
    if kind is not None:
        state, reason, log = FAILURES[kind]
        return Item(
            TaskState(task, state, reason, 2, element, node, "logs/817.out", 1800.0),
            gpus=gpus,
            log=log,
        )
    bound, kernels = BOUNDS[task.task_index % len(BOUNDS)]
    folder = f"../../runs/{task.run_id}/tasks/{task.task_index:03d}-{task.key[:8]}"
    peak = rng.uniform(20, 90)
    return Item(
        TaskState(task, State.DONE, None, 1, element, node, "logs/817.out", rng.uniform(40, 90)),
        TaskResult(task.task_index, task.label, task.params, times_ms=(time_ms,) * 3, key=task.key),
        TaskSummary(
            step_ms=time_ms * 1.04, step_p95_ms=time_ms * 1.1, steps=18, bound=bound, share_pct=71.5,
            sol_pct=peak, mfu_pct=peak, headline=f"Timed without a profiler: {peak:.1f} % of the peak",
            finding="GPU 0 idles, launch-bound", page="report.html", gpu="NVIDIA H200, 132 SMs",
            kernel_bound=kernels,
        ),
        gpus,
        f"{folder}/report.html",
    )  # fmt: skip
