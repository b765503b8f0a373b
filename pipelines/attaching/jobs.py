"""Attaches to a Slurm job: perfpipe runs on the job's node, in a step of the job.

The step is `srun --overlap`, which needs no free resources of the job.  It runs the same perfpipe
with the same store, which must be on a file system that the node shares, as for batches.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace

from perfpipe.errors import InputError, TaskFailed
from perfpipe.pipelines.attaching.target import Target, stat_of, target_of
from perfpipe.pipelines.process import Finished, run
from perfpipe.pipelines.slurm.client import Cluster
from perfpipe.store import Store

_JOB = re.compile(r"\d+(_\d+)?")

#: Processes of Slurm in a job.
_OF_SLURM = ("slurmstepd", "srun")


def is_here(job: str, node: str | None) -> bool:
    """Return whether this process runs in a job, on the node."""
    own = os.environ.get("SLURM_JOB_ID")
    array = f"{os.environ.get('SLURM_ARRAY_JOB_ID')}_{os.environ.get('SLURM_ARRAY_TASK_ID')}"
    return job in (own, array) and node in (None, os.environ.get("SLURMD_NODENAME"))


def attach_there(job: str, node: str | None, options: Sequence[str], store: Store) -> Finished:
    """Run `perfpipe attach` on a node of a job, and return how it ended.

    Raises InputError for a node that the job does not have, TaskFailed if the job does not run.
    """
    if not _JOB.fullmatch(job):
        raise InputError(f"--job {job}: expected the number of a job, or JOB_INDEX")
    nodes = Cluster().nodes_of(job)
    if node is not None and node not in nodes:
        raise InputError(f"--node {node}: job {job} runs on {', '.join(nodes)}")
    words = ["srun", f"--jobid={job}", "--overlap", f"--nodelist={node or nodes[0]}"]
    words += ["--nodes=1", "--ntasks=1", "--mem=0", "--input=none", "--export=ALL"]
    words += [sys.executable, "-m", "perfpipe", "attach", "--job", job, *options]
    words += ["--store", str(store.root.resolve())]
    # Steps of srun would otherwise take over the settings of the step around this process.
    return run(words, env={"SLURM_STEP_ID": ""} if "SLURM_STEP_ID" in os.environ else None)


def process_of(job: str) -> Target:
    """Return the outermost process of a job on this node; if it has several tasks, their parent.

    The parent is slurmstepd; it stands for its tasks, with the command of the first.
    """
    node, step = os.environ.get("SLURMD_NODENAME"), os.environ.get("SLURM_STEP_ID")
    found = [one for pid in Cluster().processes_of(job, node, step) if (one := target_of(pid))]
    found = [one for one in found if one.name not in _OF_SLURM]
    own = {one.pid for one in found}
    tasks: dict[int, list[Target]] = {}
    for one in sorted(found, key=lambda one: one.pid):
        if (stat := stat_of(one.pid)) and stat.parent not in own:
            tasks.setdefault(stat.parent, []).append(one)
    if not tasks:
        raise TaskFailed(f"job {job} has no process of its own on this node")
    parent, roots = max(tasks.items(), key=lambda item: _weight(item[1]))
    daemon = target_of(parent)
    if len(roots) == 1 or daemon is None:
        return roots[0]
    return replace(daemon, command=roots[0].command)


def _weight(roots: Sequence[Target]) -> tuple[int, int]:
    """Return how many processes a step has, and when it started.

    The script of a job only waits for its steps, which start later.
    """
    processes = [one for root in roots for one in root.tree() if one.name not in _OF_SLURM]
    return len(processes), roots[0].started
