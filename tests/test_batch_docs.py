"""The commands of docs/batch.md and of docs/commands.md on batches, on a real cluster."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from conftest import ROOT, Cli
from slurm_cluster import SlurmCluster

#: What would need a GPU or the profilers is shown, and checked by Slurm, instead of run.
_MEASURES = "--dry-run"

#: Of what is replayed, one configuration is enough.
_ONE = ["--filter", "size=512", "--no-pages"]


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the commands of a page's shell blocks that are about batches, and those before them."""
    for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        if page.name == "commands.md" and "perfpipe batch" not in block:
            continue
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            assert words[0] == "perfpipe", line
            yield words[1:]


def test_every_command_works(slurm: SlurmCluster, cli: Cli, tmp_path: Path) -> None:
    """What both pages show runs once."""
    (tmp_path / "train.py").write_text("print(1)")
    (tmp_path / "captures").mkdir()
    capture = ROOT / "tests" / "data" / "ncu" / "pm.ncu-rep.xz"
    (tmp_path / "captures" / capture.name).write_bytes(capture.read_bytes())
    shown = [*commands(ROOT / "docs" / "batch.md")]
    also = [*commands(ROOT / "docs" / "commands.md")]
    assert shown[0] == ["init"]
    assert also
    for words in shown + [words for words in also if words not in shown]:
        if words[:2] == ["batch", "submit"] and "replay" in words:
            words += _ONE
        elif words[:2] == ["batch", "submit"] and "--ingest-only" not in words:
            words.insert(2, _MEASURES)
        if words[:2] == ["batch", "wait"]:
            words += ["--interval", "1"]
        assert cli(*words) == 0, f"{shlex.join(words)}: {cli.err}"
        if words[:2] == ["batch", "submit"] and _MEASURES in words:
            assert "#SBATCH --array=0" in cli.out
            assert "Slurm: " in cli.err, "checked by sbatch --test-only"
    assert cli("batch", "wait", "--interval", "1") == 0, cli.err
    assert cli("query", "SELECT DISTINCT status FROM run_tasks") == 0
    assert cli.out.split() == ["status", "done"]
    assert (tmp_path / "report.html").exists()
