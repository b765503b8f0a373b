"""The installation of a gate in CI: a few of the dependencies, which the commands do with."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from conftest import ROOT

#: Starts the command line as if some distributions were not installed.
_WITHOUT = """
import sys
class Without:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Without())
from perfpipe.__main__ import main
main()
"""

_PROGRAM = """
import json, os
print(json.dumps({"perfpipe": "time", "ms": [float(os.environ.get("MS", "10"))] * 3}))
"""


def _requirements(lines: list[str]) -> set[str]:
    return {line for line in lines if line and not line.startswith("#")}


def _whole() -> set[str]:
    return {*tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]}


def _gate() -> set[str]:
    return _requirements((ROOT / "ci" / "requirements.txt").read_text().splitlines())


def test_it_is_a_part_of_the_dependencies() -> None:
    assert _gate() < _whole()


@pytest.fixture
def perfpipe(tmp_path: Path) -> _Perfpipe:
    (tmp_path / "program.py").write_text(_PROGRAM)
    (tmp_path / "w.yaml").write_text(
        "version: 1\nname: w\ncommand: ['{python}', program.py]\ncollect: {nvml: null}\n"
    )
    return _Perfpipe(tmp_path)


class _Perfpipe:
    """Runs perfpipe without the other dependencies."""

    def __init__(self, where: Path) -> None:
        self.where = where
        names = {re.split(r"[<>=]", line)[0].replace("-", "_") for line in _whole() - _gate()}
        assert {"duckdb", "numpy", "pyarrow", "scipy"} <= names
        self._code = _WITHOUT.format(missing=names)

    def __call__(self, *words: str, code: int = 0, ms: str = "10") -> str:
        done = subprocess.run(
            [sys.executable, "-c", self._code, *words],
            cwd=self.where, env={**os.environ, "MS": ms},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr


def test_it_checks(perfpipe: _Perfpipe, tmp_path: Path) -> None:
    for ms in ("10", "12"):
        for _ in range(2):
            words = ("--collector", "timing", "--no-report", "--store", f"store{ms}")
            perfpipe("run", "w.yaml", *words, ms=ms)
    runs = {
        ms: sorted(path.name for path in (tmp_path / f"store{ms}" / "runs").iterdir())
        for ms in ("10", "12")
    }
    perfpipe("gate", "baseline", "export", ",".join(runs["10"]), "base.json", "--store", "store10")
    assert "workload: w" in perfpipe("gate", "baseline", "show", "base.json")
    outputs = {name: f"perfpipe.{name}" for name in ("json", "md", "html", "junit", "bmf")}
    files = [f"--{name}={file}" for name, file in outputs.items()]
    said = perfpipe(
        "check", *runs["12"], "--baseline", "base.json", "--store", "store12", *files, code=3
    )
    assert "regressed: iteration: +20.0 %" in said
    assert json.loads((tmp_path / "perfpipe.json").read_text())["verdict"] == "regressed"
    assert "Regressed" in (tmp_path / "perfpipe.html").read_text()


def test_it_compares_arms(perfpipe: _Perfpipe) -> None:
    words = ("--a", "env.MS=10", "--b", "env.MS=9", "--rounds", "3", "--html", "x.html")
    assert "Improved: iteration: -10.0 %" in perfpipe("ab", "w.yaml", *words)


def test_what_it_lacks_is_one_sentence(perfpipe: _Perfpipe) -> None:
    perfpipe("run", "w.yaml", "--collector", "timing", "--no-report")
    said = perfpipe("query", "SELECT 1", code=5)
    assert re.fullmatch(r"perfpipe: \w+ is not installed: this .* run pip install perfpipe\n", said)
