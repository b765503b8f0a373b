"""A thousand tasks on a real Slurm that fails meanwhile: nothing is lost, nothing is done twice.

Run by `make soak-batch`, which takes minutes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from slurm_cluster import SlurmCluster
from slurm_site import Site, wait_for, write_workload

from perfpipe.store import Store

#: Tasks that succeed, whose program fails, and that kill the process which launched them.
OK, FAIL, KILLER = 968, 24, 8

#: Tasks that a job runs.
PER_JOB = 20


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_thousand_tasks(
    own_slurm: Callable[..., SlurmCluster], site: Site, tmp_path: Path
) -> None:
    cluster = own_slurm(accounting=True)
    others = ["fail"] * FAIL + ["killer"] * KILLER
    include = [{"kind": kind, "n": OK + at} for at, kind in enumerate(others, 1)]
    matrix = {"kind": ["ok"], "n": [*range(1, OK + 1)]}
    slurm = {"gpus": 0, "time": "30m", "tasks_per_job": PER_JOB}
    path = write_workload(tmp_path, matrix=matrix, include=include, slurm=slurm)
    batch = site.submit(path)
    wait_for(lambda: site.launched().total() > 100, site.launched)
    cluster.stop("slurmctld")
    so_far = site.launched().total()
    wait_for(lambda: site.launched().total() > so_far + 10, site.launched)
    cluster.start("slurmctld")
    so_far = site.launched().total()
    wait_for(lambda: site.launched().total() > so_far + 10, site.launched)
    cluster.run("scontrol", "update", "nodename=n2", "state=down", "reason=test")
    wait_for(lambda: "node failure" in site.states(batch) or len(_twice(site)) > 0)
    cluster.stop("slurmd.n2")
    cluster.start("slurmd.n2")

    site.batch("wait", batch, "--interval", "5", code=1)
    states = Counter(site.states(batch))
    assert states["done"] == OK, states
    assert states["failed"] >= FAIL, states
    assert states.total() == OK + FAIL + KILLER
    again = _twice(site)
    assert len(again) <= 2 * PER_JOB, "only what the node was running"

    site.mend()
    so_far = site.launched().total()
    site.batch("resume", batch)
    results = site.finish(batch)
    assert len(results) == len({task.key for task in results}) == OK + FAIL + KILLER
    assert site.launched().total() == so_far + FAIL + KILLER, "what was done is not done again"
    assert all(task.median_ms == task.params["n"] for task in results)
    outcome = json.loads((_directory(tmp_path, batch) / "outcome.json").read_text())
    assert outcome
    assert site.left() == []


def _twice(site: Site) -> list[str]:
    """Return the configurations that were launched more than once."""
    return [key for key, count in site.launched().items() if count > 1]


def _directory(folder: Path, batch: str) -> Path:
    return Store(folder / "store").batches_dir / batch
