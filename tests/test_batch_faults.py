"""Batches on a real Slurm where nodes, the controller, disks and processes fail.

After each fault the states are right, and a resume ends with every result exactly once.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import lacking
from slurm_cluster import SlurmCluster
from slurm_conf import keep_login_environment
from slurm_site import PATIENCE_S, PERFPIPE, Site, wait_for, write_workload

from perfpipe.store import Store


@pytest.mark.parametrize("accounting", [False, True])
def test_what_the_cluster_breaks(
    accounting: bool,
    own_slurm: Callable[..., SlurmCluster],
    site: Site,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node goes down, jobs reach their limits, the controller is away for a while, and forgets."""
    cluster = own_slurm(accounting=accounting)
    # A job fills a node, so that each has one.
    slow = {"kind": ["slow"], "n": [1, 2]}
    batch = site.submit(write_workload(tmp_path, matrix=slow, slurm={"gpus": 2}))
    on_n1 = {"partition": "debug", "warn_s": 120}
    slow = {"kind": ["slow"], "n": [3]}
    warned = site.submit(write_workload(tmp_path, "warned", matrix=slow, slurm=on_n1))
    on_n1["warn_s"] = 0
    slow["n"] = [4]
    killed = site.submit(write_workload(tmp_path, "killed", matrix=slow, slurm=on_n1))
    wait_for(lambda: len(site.launched()) == 4, site.launched)
    if not accounting:
        for one, ends_in in ((warned, 100), (killed, 5)):
            job = site.status(one)["jobs"][0]
            cluster.run("scontrol", "update", f"jobid={job}_0", f"endtime=now+{ends_in}")
    nodes = [task["node"] for task in site.status(batch)["tasks"]]
    assert sorted(nodes) == ["n1", "n2"], "both write the same store"
    cluster.run("scontrol", "update", "nodename=n2", "state=down", "reason=test")
    site.until(batch, lambda states: sorted(states) == ["node failure", "running"])
    heard = tmp_path / "heard"
    with monkeypatch.context() as patched, heard.open("w") as stderr:
        if not accounting:
            patched.setenv("SLURM_CONF", str(cluster.hasty()))
        waiting = subprocess.Popen(
            [*PERFPIPE, "wait", batch, "--interval", "1"],
            stdout=subprocess.PIPE, stderr=stderr, text=True,
        )  # fmt: skip
    with waiting:
        try:
            if not accounting:
                # Limits are enforced up to half a minute late, counted from the controller's start.
                for one in (warned, killed):
                    site.until(one, lambda states: states == ["timeout"])
                with monkeypatch.context() as patched:
                    patched.setenv("SLURM_CONF", str(cluster.hasty()))
                    _away(cluster, site, batch, 1 + nodes.index("n1"), heard)
            else:
                site.batch("cancel", "--batch", killed)
                site.until(killed, lambda states: states == ["cancelled"])
            site.mend()
            said = waiting.communicate(timeout=PATIENCE_S)[0], heard.read_text()
        finally:
            waiting.kill()
    assert waiting.returncode == 0, said
    assert "report.html" in said[0]
    assert ("Slurm does not answer" in said[1]) != accounting
    results = site.finish(batch)
    assert {task.ran.host for task in results if task.ran} == {"n1"}
    assert sorted(task.ran.attempt or 0 for task in results if task.ran) == [1, 2]
    assert {key: site.launched()[key] for key in ("slow1", "slow2")} in (
        {"slow1": 1, "slow2": 2}, {"slow1": 2, "slow2": 1}
    )  # fmt: skip
    site.batch("wait", warned, "--interval", "1", code=0 if accounting else 1)
    site.batch("wait", killed, "--interval", "1", code=1)
    _forget(cluster)
    assert site.states(warned) == ["done" if accounting else "timeout"], "there is a result"
    assert site.states(killed) == ["cancelled" if accounting else "timeout"], "a batch remembers"
    for one in (warned, killed):
        site.batch("resume", one)
    for one in (warned, killed):
        (result,) = site.finish(one)
        assert result.ran
        assert result.ran.attempt == (1 if accounting and one is warned else 2)


def _forget(cluster: SlurmCluster) -> None:
    """Let the controller forget all jobs, as it does some minutes after they ended."""
    cluster.stop("slurmctld")
    shutil.rmtree(cluster.root / "state")
    keep_login_environment(cluster.root)
    cluster.start("slurmctld")
    # It asks nodes for their state some seconds later; a node that starts tells it.
    for node in ("slurmd.n1", "slurmd.n2"):
        cluster.stop(node)
        cluster.start(node)


def _away(cluster: SlurmCluster, site: Site, batch: str, n: int, heard: Path) -> None:
    """Stop the controller until who waits has heard of it and task n has ended; ask meanwhile."""
    cluster.stop("slurmctld")
    site.mend(n)
    wait_for(lambda: "Slurm does not answer" in heard.read_text(), heard.read_text)
    wait_for(lambda: site.states(batch)[n - 1] != "unknown")
    shown = site.status(batch)
    states = [task["state"] for task in shown["tasks"]]
    assert states.pop(n - 1) == "done"
    assert states == ["unknown"]
    assert "squeue: " in shown["unknown_because"]
    assert not shown["finished"]
    site.batch("resume", batch, code=1)
    assert "cannot find out which tasks still run" in site.cli.err
    cluster.start("slurmctld")


def test_a_full_disk(slurm: SlurmCluster, site: Site, tmp_path: Path) -> None:
    store = tmp_path / "small"
    store.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(store)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        lacking("cannot mount a small file system")
    try:
        at = ("--store", store)
        path = write_workload(tmp_path, matrix={"kind": ["slow"], "n": [1, 2]})
        batch = site.submit(path, *at)
        wait_for(lambda: len(site.launched()) == 2)
        with contextlib.suppress(OSError), (store / "filler").open("wb", buffering=0) as file:
            while file.write(b"0" * 4096):
                pass
        site.mend()
        site.batch("wait", batch, "--interval", "1", *at, code=1)
        assert f"perfpipe batch resume {batch}" in site.cli.err
        assert re.search(r": the collector, job \d+, ended on n\d: failed \(", site.cli.err)
        tasks = json.loads(site.batch("status", batch, "--json", *at))["tasks"]
        assert [task["state"] for task in tasks] == ["lost", "lost"]
        site.batch("resume", batch, *at, code=2)
        assert "No space left on device" in site.cli.err
        (store / "filler").unlink()
        assert site.batch("resume", batch, *at).startswith("2 tasks resubmitted")
        site.batch("wait", batch, "--interval", "1", *at)
        (run,) = Store(store).runs()
        assert [task.times_ms for task in run.tasks] == [(1.0, 1.0), (2.0, 2.0)]
        assert site.launched() == {"slow1": 2, "slow2": 2}
    finally:
        subprocess.run(["umount", "-l", store], check=True)


#: Kills a process where it makes something final: a report, or a result.  Each happens once.
CRASHES = """
import os, pathlib
for name in ("rename", "replace"):
    def crashing(self, target, real=getattr(pathlib.Path, name)):
        for part in ("reports", "result.json"):
            if part in pathlib.Path(target).parts[-2:]:
                try:
                    os.rename(f"{FOLDER}/{part}", f"{FOLDER}/{part}-done")
                except FileNotFoundError:
                    continue
                os.killpg(0, 9)
        return real(self, target)
    setattr(pathlib.Path, name, crashing)
"""


def test_writes_that_are_cut_off(
    slurm: SlurmCluster, expand: Callable[[str], Path], site: Site, tmp_path: Path
) -> None:
    folder = tmp_path / "crashes"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(f"FOLDER = {str(folder)!r}\n{CRASHES}")
    for name in ("reports", "result.json"):
        (folder / name).touch()
    words = ("--tasks-per-job", "1", "--setup", f"export PYTHONPATH={folder}")
    captures = [expand(f"nsys/{name}.sqlite") for name in ("memcpy", "h2d")]
    batch = site.submit(*captures, "--ingest-only", *words, collector="")
    site.batch("wait", batch, "--interval", "1", code=1)
    assert site.states(batch) == ["lost", "lost"]
    assert "signal 9" in site.batch("status", batch)
    assert {path.name for path in folder.glob("re*")} == {"reports-done", "result.json-done"}
    found = Store(tmp_path / "store").manifests()
    assert site.batch("resume", batch).startswith("2 tasks resubmitted")
    results = site.finish(batch)
    reports = [report for task in results for report in task.reports]
    store = Store(tmp_path / "store")
    assert store.report_ids() == sorted(reports)
    assert {one.report_id for one in found} < {*reports}, "what was whole is kept"
    assert site.cli("query", "--all", "SELECT count(*) FROM reports") == 0, site.cli.err
    assert site.cli.out.split()[-1] == str(len(reports))
