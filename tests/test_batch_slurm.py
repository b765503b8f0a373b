"""Batches on a real Slurm, through the command line: what users do."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from conftest import ROOT
from slurm_cluster import SlurmCluster
from slurm_site import PATIENCE_S, PERFPIPE, Site, wait_for, write_workload

from perfpipe.store import Store


def test_from_submit_to_resume(
    accounted_slurm: SlurmCluster,
    site: Site,
    calls: Callable[[], Counter[str]],
    tmp_path: Path,
) -> None:
    more = {"setup": [f"export PATH={tmp_path}/wrappers:$PATH"]}
    kinds = write_workload(tmp_path, matrix={"kind": ["ok", "fail", "killer"]}, slurm=more)
    late = write_workload(tmp_path, "late", matrix={"kind": ["slow"]}, timeout=5, slurm=more)
    batch = site.submit(kinds, late)
    assert "4 tasks in 4 jobs" in site.cli.err
    at_submit = calls()
    assert at_submit == {"sbatch": 2, "scontrol": 1, "sinfo": 1}, "one array and the collector"
    assert {*site.states(batch)} <= {"waiting", "running", "done", "failed", "lost"}
    assert calls()["squeue"] == 1, "one call for all"
    began = time.monotonic()
    site.batch("wait", batch, "--interval", "2", code=1)
    ticks = (time.monotonic() - began) / 2 + 1
    # Those of the collector are among them.
    asked = calls()
    assert asked.pop("squeue") <= ticks + 1
    asked.pop("sacct", None)  # which is not the controller
    assert not asked
    assert batch in site.cli.err
    states = site.states(batch)
    assert states == ["done", "failed", "lost", "timeout"]
    listed = site.batch("status")
    assert "1 done, 1 failed, 1 timeout, 1 lost" in listed
    assert "no such kind" in listed
    assert "took longer than 5 s" in listed
    assert "signal 9" in listed
    assert f"perfpipe batch resume {batch}" in listed
    log = site.batch("logs", "1")
    assert "[1] w kind=fail n=1: the program exited with code 1: no such kind" in log
    assert "attempt-1/plain.err" in log
    assert "1 done" in site.batch("ls")
    before = site.launched()
    site.mend()
    # Two at once: one submits, the other is told of it or finds nothing to do.
    both = [subprocess.Popen([*PERFPIPE, "resume", batch], stderr=subprocess.PIPE) for _ in "ab"]
    errors = [process.communicate(timeout=PATIENCE_S)[1].decode() for process in both]
    assert all("in use by process" in text or not text for text in errors)
    if all(errors):
        site.batch("resume", batch)  # each saw the other
    results = site.finish(batch)
    assert site.launched() == before + Counter(["fail1", "killer1", "slow1"]), "each once more"
    assert [task.ran and task.ran.attempt for task in results] == [1, 2, 2, 2]
    assert site.states(batch) == ["done"] * 4
    assert site.batch("resume", batch).startswith("nothing to resume")


def test_cancel_and_warnings(slurm: SlurmCluster, site: Site, tmp_path: Path) -> None:
    path = write_workload(tmp_path, matrix={"kind": ["slow"], "n": [*range(1, 11)]},
                          slurm={"tasks_per_job": 2, "array_parallelism": 3})  # fmt: skip
    batch = site.submit(path)
    (array, _) = site.status(batch)["jobs"]
    at_first = site.until(batch, lambda states: states.count("running") == 3)
    assert at_first == ["running", "waiting"] * 3 + ["waiting"] * 4
    assert len(_steps(tmp_path)) == 3
    assert site.batch("cancel", "8").strip() == "2 tasks canceled: 8, 9"
    site.until(batch, lambda states: states[8:] == ["cancelled"] * 2)
    # What Slurm sends before the time limit: the program must run by then.
    wait_for(lambda: len(site.launched()) == 3)

    def warned(states: list[str]) -> bool:
        # Slurm now and then takes the job for one in transition.
        with contextlib.suppress(RuntimeError):
            slurm.run("scancel", "--signal=USR1", "--batch", f"{array}_0")
        return states[:2] == ["timeout", "stopped"]

    site.until(batch, warned)
    assert "before the job's time limit" in site.batch("logs", "0")
    assert site.batch("cancel", "2").strip() == "2 tasks canceled: 2, 3"
    states = site.until(batch, lambda states: states[6] == "running" and states[2] == "cancelled")
    assert states[4:8] == ["running", "waiting", "running", "waiting"], "others go on"
    assert "CANCELLED" in site.batch("logs", "2")
    assert site.batch("cancel", "10", code=2) == ""
    assert "no such task; the batch has tasks 0 to 9" in site.cli.err
    assert site.batch("cancel").startswith("4 tasks canceled: 4, 5, 6, 7")
    site.batch("wait", batch, "--interval", "1", code=1)
    assert site.states(batch) == ["timeout", "stopped"] + ["cancelled"] * 8
    wait_for(lambda: not site.left(), site.left)
    wait_for(lambda: not _steps(tmp_path), lambda: _steps(tmp_path))
    site.mend()
    again = json.loads(site.batch("resume", batch, "--only", "timeout", "--json"))
    assert again["tasks"] == [0]
    site.batch("wait", batch, "--interval", "1", code=1)
    site.batch("resume", batch)
    assert site.cli.out.startswith("9 tasks resubmitted")
    site.finish(batch)
    assert site.launched()["slow1"] == 2
    assert site.launched()["slow8"] == 1


def _steps(folder: Path) -> list[str]:
    """Return Slurm's processes for jobs that print into a folder; other clusters have some, too."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            title = (entry / "cmdline").read_text().rstrip("\0")
            if title.startswith("slurmstepd: "):
                files = [file.readlink() for file in (entry / "fd").iterdir()]
                if any(file.is_relative_to(folder) for file in files):
                    found.append(title)
    return found


def test_kinds_of_batches(
    slurm: SlurmCluster,
    profilers: Path,
    expand: Callable[[str], Path],
    site: Site,
    tmp_path: Path,
) -> None:
    """Tasks of several nodes, reports that other jobs read, arms in turn, packed tasks, files."""
    for rank in (0, 1):
        capture = expand(f"nsys/collectives_rank{rank}.sqlite")
        (profilers / f"timeline{rank}.sqlite").symlink_to(capture)
    traced = {"setup": [f"export PATH={profilers}:$PATH"]}
    two = {"n": [1, 2]}
    separate = site.submit(
        write_workload(
            tmp_path, "separate", matrix=two, collect={"nsys": {}},
            slurm={**traced, "ingest": "separate"},
        ),
        collector="nsys",
    )  # fmt: skip
    ranks = site.submit(
        write_workload(
            tmp_path, "ranks", collect={"nsys": {}}, execution={"kind": "srun", "wrapper": ["srun"]},
            slurm={**traced, "nodes": 2},
        ),
        collector="nsys",
    )  # fmt: skip
    arms = site.submit(write_workload(tmp_path, "arms", matrix=two, launches=4), "--arms", "n")
    assert "2 tasks in 1 job;" in site.cli.err
    packed = site.submit(write_workload(tmp_path, "packed", matrix=two), "--tasks-per-job", "5")
    inputs = site.submit(expand("nsys/collectives_rank0.sqlite"), "--ingest-only", collector="")
    gemm = ROOT / "workloads" / "gemm.yaml"
    recorded = site.submit(gemm, "--filter", "size=512", collector="replay")

    found = site.finish(separate)
    assert [len(task.reports) for task in found] == [1, 1]
    assert len(site.status(separate)["jobs"]) == 3, "profile, read, collect"
    (of_two,) = site.finish(ranks)
    assert len(of_two.reports) == 2, of_two
    assert sorted(Path(name).name for name in of_two.files) == [
        "nsys-rank0.sqlite", "nsys-rank1.sqlite"
    ]  # fmt: skip
    lines = (tmp_path / "launched").read_text().splitlines()
    assert [len(task.launches_ms) for task in site.finish(arms)] == [4, 4]
    assert len(site.finish(packed)) == 2
    (read,) = site.finish(inputs)
    assert set(read.reports) == set(found[0].reports), "the same timeline"
    (shown,) = site.finish(recorded)
    assert len(shown.reports) == 2, "a timeline and a profile"
    nodes = {line.split()[1] for line in lines}
    assert nodes == {"n1", "n2"}, "they write the same store"


def test_a_run_in_an_allocation(slurm: SlurmCluster, site: Site, tmp_path: Path) -> None:
    path = write_workload(tmp_path)
    words = ["salloc", "-Q", "-n1", *PERFPIPE[:-1], "run", str(path), "--collector", "timing"]
    done = subprocess.run([*words, "--no-report"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (run,) = Store(tmp_path / "store").runs()
    assert run.status == "done"
    assert site.launched() == {"ok1": 1}


def test_a_store_whose_path_slurm_could_read(
    slurm: SlurmCluster, site: Site, tmp_path: Path
) -> None:
    store = tmp_path / "100 %j %u"
    batch = site.submit(write_workload(tmp_path), "--store", store)
    (result,) = site.finish(batch, store)
    assert result.done
    assert [*(store / "batches" / batch / "logs").glob("*_0.out")]
