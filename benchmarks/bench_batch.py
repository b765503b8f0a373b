"""Measures the end of a batch: reading what its tasks left, and making the page and JUnit XML.

Usage: python benchmarks/bench_batch.py [--tasks 100 1000 10000]

A batch is made up on disk by cloning one result and one summary, with times of their own, over 16
nodes; one task in 50 failed.  Each size is a process of its own: CPU time in s and peak memory in
MB, and how the time grows from one size to the next (1 is linear).
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from perfpipe.analysis.batch.page import batch_report
from perfpipe.batchrecord import Batch, BatchRun, BatchTask, TaskSummary
from perfpipe.pipelines.batch.disk import BatchDirectory
from perfpipe.pipelines.batch.junit import junit
from perfpipe.pipelines.batch.page import items_of
from perfpipe.pipelines.batch.state import state_of
from perfpipe.pipelines.reporting import to_json
from perfpipe.pipelines.runs import RESULT
from perfpipe.provenance import provenance
from perfpipe.ranrecord import Ran
from perfpipe.runrecord import GpuState, OneGpu, Spread, TaskResult
from perfpipe.store import Store
from perfpipe.templates.renderers import render_html, render_markdown

#: Configurations of a run, repeats of each, nodes.
CONFIGURATIONS, REPEATS, NODES = 25, 4, 16


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tasks", type=int, nargs="+", default=(100, 1000, 10_000))
    options = parser.parse_args()
    if len(options.tasks) == 1:
        print(json.dumps(measured(options.tasks[0])))
        return 0
    sizes = []
    for tasks in options.tasks:
        command = [sys.executable, __file__, "--tasks", str(tasks)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        sizes.append(json.loads(done.stdout))
    print(json.dumps({"sizes": sizes, "exponents": exponents(sizes)}, indent=1))
    return 0


def measured(tasks: int) -> dict[str, float]:
    """Return the cost of each part for a number of tasks."""
    found: dict[str, float] = {"tasks": tasks}

    def timed(name: str, part: Callable[[], Any]) -> Any:
        before = time.process_time()
        made = part()
        found[f"{name}_s"] = round(time.process_time() - before, 3)
        return made

    with tempfile.TemporaryDirectory() as folder:
        directory = made_up(Store(Path(folder) / "store"), tasks)
        begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        directory = BatchDirectory.read(directory.store, directory.batch.batch_id)
        state = timed("results", lambda: state_of(directory, None))
        items = timed("summaries", lambda: items_of(directory, state, directory.path))
        report = timed("report", lambda: batch_report(directory.batch, items, {}))
        pages = timed("html", lambda: render_html(report))
        found["html_mb"] = round(len(pages.encode()) / 1e6, 3)
        timed("markdown", lambda: render_markdown(report))
        timed("json", lambda: to_json(report))
        found["junit_mb"] = round(
            len(timed("junit", lambda: junit(directory.batch, items))) / 1e6, 3
        )
    found["all_s"] = round(sum(value for name, value in found.items() if name.endswith("_s")), 3)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {**found, "peak_mb": round(peak / 1e3, 1), "more_mb": round((peak - begun) / 1e3, 1)}


def exponents(sizes: list[dict[str, float]]) -> list[dict[str, float]]:
    """Return how the time of each part grows from one size to the next."""
    grown = []
    for small, large in itertools.pairwise(sizes):
        factor = math.log(large["tasks"] / small["tasks"])
        names = [name for name in small if name.endswith("_s") and small[name]]
        found = {name: round(math.log(large[name] / small[name]) / factor, 2) for name in names}
        grown.append({"from": small["tasks"], "to": large["tasks"], **found})
    return grown


def made_up(store: Store, count: int) -> BatchDirectory:
    """Return a batch on disk of which every task has a result."""
    rng = random.Random(1)
    in_run = CONFIGURATIONS * REPEATS
    names = [f"workload{number}" for number in range(-(-count // in_run))]
    runs = tuple(BatchRun(f"{name}-1", name, f"{name}.yaml", "all") for name in names)
    tasks = [
        BatchTask(
            index, runs[index // in_run].run_id, runs[index // in_run].workload, index % in_run,
            f"{rng.getrandbits(64):016x}", f"size={512 + index % CONFIGURATIONS} dtype=fp16",
            {"size": 512 + index % CONFIGURATIONS, "dtype": "fp16"},
        )
        for index in range(count)
    ]  # fmt: skip
    batch = Batch(
        "batch-1", "2026-11-22T14:43:38Z", runs, count, str(store.root), sys.executable, ".",
        provenance=provenance(),
    )  # fmt: skip
    directory = BatchDirectory.create(store, batch, tasks, {})
    for task in tasks:
        _leave(directory, task, rng)
    return directory


def _leave(directory: BatchDirectory, task: BatchTask, rng: random.Random) -> None:
    """Write what a task leaves, without waiting for the disk."""
    folder = directory.task_directory(task)
    folder.mkdir(parents=True)
    spread = Spread(1755.0, 1770.0, 1785.0)
    node = rng.randrange(NODES)
    scale = (1 + task.task_index % CONFIGURATIONS) * (1.06 if node == 0 else 1)
    launches = tuple(
        tuple(scale * rng.lognormvariate(0, 0.01) for _ in range(20)) for _ in range(5)
    )
    result = TaskResult(
        task.task_index, task.label, task.params, flops=1e12, bytes=1e9, dtype="fp16",
        times_ms=sum(launches, ()), launches_ms=launches, seconds=(3.1, 3.2, 3.0, 3.1, 3.3),
        reports=(f"{task.key}a", f"{task.key}b"), profilers=("nsys", "ncu"),
        gpu_state=GpuState(50, (OneGpu(0, 50, spread, spread, spread, spread, spread),)),
        command=("python", "gemm.py", "--size", "512"), key=task.key,
        ran=Ran("2026-11-22T14:43:38Z", "2026-11-22T14:44:38Z", 60.0, f"node{node:02d}",
                (f"GPU-{node}-{rng.randrange(4)}",), f"817_{task.index}", 1, 0),
    )  # fmt: skip
    if rng.random() < 0.02:
        why = f"the program exited with code 1: illegal address at 0x{rng.getrandbits(32):08x}"
        result = replace(result, status="failed", error=why, times_ms=(), reports=())
        log = directory.path / "logs" / f"817_{task.index}.out"
        log.write_text("".join(f"step {step}: loss {rng.random()}\n" for step in range(400)))
    summary = TaskSummary(
        scale, scale * 1.1, 18, rng.choice(["compute", "launch_overhead"]), 71.5, 63.2, 63.2,
        "Timed without a profiler: 63.2 % of the fp16 peak", "GPU 0 idles, launch-bound",
        "report.html", "NVIDIA H200, 132 SMs", "compute (tensor)",
    )  # fmt: skip
    for name, record in ((RESULT, result), ("summary.json", summary)):
        content = {"schema_version": 1, **asdict(record)}
        (folder / name).write_text(json.dumps(content, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    sys.exit(main())
