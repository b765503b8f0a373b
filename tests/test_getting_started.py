"""The tutorial: its commands run, and print what it says."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest
from conftest import ROOT, Cli

TEXT = (ROOT / "docs" / "getting-started.md").read_text()


def _blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", TEXT, re.DOTALL)


def _flat(text: str) -> str:
    return " ".join(text.split())


def test_the_recorded_part_prints_what_it_says(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "workloads").symlink_to(ROOT / "workloads")
    said = []
    for block in _blocks("sh"):
        for line in block.splitlines():
            program, *words = shlex.split(line)
            assert program == "perfpipe"
            if words[0] in ("run", "report", "query"):
                assert cli(*words, report=True) == 0, cli.err
                said.append(_flat(cli.out))
    shown = [_flat(text) for text in _blocks("text")]
    assert shown[0] in said[0] and shown[1] in said[0]
    assert shown[2] in said[2]
    assert (tmp_path / "first.html").exists()


def test_the_program_can_be_saved_and_run() -> None:
    (program,) = _blocks("python")
    ast.parse(program)
