"""Secrets of a batch on a real Slurm are found nowhere but where docs/security.md says."""

from __future__ import annotations

from pathlib import Path

import pytest
from slurm_cluster import SlurmCluster
from slurm_site import Site, write_workload


def test_a_batch_with_secrets(
    slurm: SlurmCluster, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "PLANT-of-the-job")
    site.mend()
    words = ["{python}", "-IS", "program.py", "{kind}", "{n}", "--api-key", "PLANT-of-words"]
    words += [
        "--pw",
        "PLANT",
        "sh",
        "-c",
        "mysql -pPLANT; curl -u me:PLANT x",
        "npm_" + 8 * "PLANT",
    ]
    path = write_workload(tmp_path, command=words, env={"DB_PASSWORD": "PLANT-of-the-file"})
    batch = site.submit(path)
    site.finish(batch)
    told = [site.batch("status", batch, "--json"), site.batch("logs", "0"), site.cli.err]
    assert "PLANT" not in "".join(told)
    page = tmp_path / "page.html"
    assert site.cli("report", batch, "--html", page) == 0, site.cli.err
    assert batch in page.read_text()
    assert "PLANT" not in page.read_text()
    files = [file for file in (tmp_path / "store").rglob("*") if file.is_file()]
    assert len(files) > 10
    holding = [file for file in files if b"PLANT" in file.read_bytes()]
    # What jobs need as it was given; nothing of the job's own environment.
    assert {file.parent.name for file in holding} == {"workloads"}
    assert not [file for file in holding if b"PLANT-of-the-job" in file.read_bytes()]
