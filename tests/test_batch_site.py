"""What a site and its users set for batches: files, names, mails, logs; what jobs used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from batch_helpers import Said, batch, element, submitted
from conftest import Cli
from slurm_cluster import SlurmCluster
from slurm_site import Site, wait_for, write_workload

from perfpipe.errors import InputError
from perfpipe.pipelines import settings
from perfpipe.pipelines.batch.disk import BatchDirectory
from perfpipe.pipelines.batch.page import items_of
from perfpipe.pipelines.batch.resuming import resume
from perfpipe.pipelines.batch.state import state_of
from perfpipe.pipelines.batch.submitting import comment_of
from perfpipe.pipelines.slurm.usage import parse_usage


def _scripts(directory: BatchDirectory) -> list[str]:
    cluster = Said()
    submitted(directory, cluster)
    return [one for one in cluster.asked if isinstance(one, str)]


def test_names_mails_and_dependencies(workload: Path, tmp_path: Path) -> None:
    stated = {"job_name": "sweep", "comment": "project 7", "dependency": "afterok:12",
              "mail_user": "me@site.org", "ingest": "separate"}  # fmt: skip
    directory = batch(workload, tmp_path / "store", slurm=stated)
    profile, ingest, collect = _scripts(directory)
    names = [re.search("--job-name=(.*)", script) for script in (profile, ingest, collect)]
    assert [name and name[1] for name in names] == ["sweep", "sweep-ingest", "sweep-collect"]
    ours = comment_of(directory, 1)
    assert f'#SBATCH --comment="{ours} project 7"\n' in profile
    assert "#SBATCH --dependency=afterok:12\n" in profile
    assert "afterok:12" not in ingest + collect
    again = Said()
    resume(directory, again)
    assert "afterok:12" not in "".join(one for one in again.asked if isinstance(one, str))
    mails = "#SBATCH --mail-user=me@site.org\n#SBATCH --mail-type=END,FAIL\n"
    assert [mails in script for script in (profile, ingest, collect)] == [False, False, True]


def test_options_with_a_setting_of_their_own_are_named(cli: Cli, tmp_path: Path) -> None:
    path = write_workload(tmp_path)
    assert cli("batch", "submit", path, "--extra", "--job-name=x", "--dry-run") == 2
    assert "--job-name is set by perfpipe; use job_name" in cli.err


def test_the_collector_runs_outside_of_the_container(workload: Path, tmp_path: Path) -> None:
    stated = {"container": {"image": "/images/perfpipe.sif"}}
    directory = batch(workload, tmp_path / "store", slurm=stated)
    profile, collect = _scripts(directory)
    assert "apptainer exec" in profile and " perfpipe batch _task" in profile
    assert "apptainer" not in collect
    assert f"exec {directory.batch.python} -m perfpipe batch _collect" in collect


@pytest.mark.parametrize(
    ("provided", "code"),
    [
        ([], 5),
        (["--setup", "module load pytorch"], 0),
        ('[slurm.container]\nimage = "/images/pytorch.sif"\n', 0),
    ],
    ids=["nowhere", "by a module", "in a container"],
)
def test_jobs_may_have_programs_that_are_not_here(
    provided: list[str] | str, code: int, cli: Cli, tmp_path: Path
) -> None:
    options = ["--gpus", "0", "--collector", "timing", "--dry-run"]
    if isinstance(provided, str):
        (tmp_path / settings.PROJECT_FILE).write_text(provided)
    else:
        options += provided
    assert cli("batch", "submit", *options, "--", "no-such-program", "train.py") == code, cli.err
    assert ("no-such-program: no such program" in cli.err) == bool(code)


def test_logs_can_go_elsewhere(workload: Path, tmp_path: Path) -> None:
    there = tmp_path / "logs of jobs"
    directory = batch(workload, tmp_path / "store", slurm={"log_dir": str(there)})
    (profile, _) = _scripts(directory)
    assert f"--output={directory.path}/logs/%A_%a.out" in profile.replace('"', "")
    (there / directory.batch.batch_id / "101_0.out").write_text("of the job\n")
    log = directory.log_of("101_0")
    assert log is not None and log.read_text() == "of the job\n"


def test_the_page_has_the_errors_of_the_program(workload: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import os\nraise ValueError('loss is nan')\n")
    directory = batch(workload, tmp_path / "store")
    cluster = Said()
    submitted(directory, cluster)
    element(directory, 1, 0)
    (item, *_) = items_of(directory, state_of(directory, cluster), tmp_path)
    assert item.log is not None
    lines = item.log.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "ValueError: loss is nan"


def test_a_sites_file_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    site = tmp_path / "site.toml"
    site.write_text('[slurm]\naccount = "all"\npartition = "gpu"\nsetup = ["module load cuda"]\n')
    monkeypatch.setenv(settings.SITE_VARIABLE, str(site))
    (tmp_path / "perfpipe.toml").write_text('[slurm]\naccount = "mine"\n')
    found = settings.slurm_options()
    assert (found.account, found.partition, found.setup) == ("mine", "gpu", ["module load cuda"])
    assert cli("config", "show", "--origin") == 0
    assert f"{site}:3" in cli.out and "perfpipe.toml:2" in cli.out
    monkeypatch.setenv(settings.SITE_VARIABLE, str(tmp_path / "none.toml"))
    with pytest.raises(InputError, match="PERFPIPE_SITE_CONFIG: no such file"):
        settings.slurm_options()
    monkeypatch.delenv(settings.SITE_VARIABLE)
    monkeypatch.setattr(settings, "SITE_FILE", site)
    assert settings.slurm_options().partition == "gpu"


SACCT = """\
12_0|400|05:20.500|4000M||1|4|
12_0.batch|400|05:20|||1|4|
12_0.0|400|00:00.500||2000000K|1|4|cpu=00:05:20,gres/gpumem=100M,gres/gpuutil=83
12_1|0|00:00:00|4Gc||1|4|
12_1.batch|0|00:00:00||1G|1|4|
13|100|1-00:00:00|1Gn||2|1|
13.extern|100|||?|1|1|
12_[2-9]|0|00:00:00|4000M|||4|
garbage
"""


def test_what_jobs_used() -> None:
    found = parse_usage(SACCT)
    memory = 100 * 2e6 / (4000 * 1024)
    assert [*found["12_0"]] == [pytest.approx(80.125), pytest.approx(memory), 83.0]
    assert [*found["12_1"]] == [None, pytest.approx(100 / 16), None]
    assert [*found["13"]] == [pytest.approx(86400), None, None]
    assert parse_usage("") == {}


def test_what_jobs_used_is_on_the_page(
    accounted_slurm: SlurmCluster, site: Site, tmp_path: Path
) -> None:
    # Slurm counts whole seconds.
    more = {"setup": ["sleep 2"]}
    batch = site.submit(write_workload(tmp_path, matrix={"kind": ["ok"], "n": [1, 2]}, slurm=more))
    said = site.cli.err
    site.batch("wait", batch, "--interval", "1", "--quiet")
    assert site.cli.err == "", said
    page = tmp_path / "store" / "batches" / batch / "report.md"

    def written() -> bool:
        # Accounting may know of a job later than its dependents start.
        found = "Use of requested resources" in page.read_text()
        assert found or site.cli("report", batch, "--md", page) == 0, site.cli.err
        return found

    wait_for(written, page.read_text)
    assert re.search(r"\| w \| 2 \| [\d.]+ \|", page.read_text()), page.read_text()
