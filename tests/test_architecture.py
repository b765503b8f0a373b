"""The house rules: import direction, sizes, and nothing that ties the project to a place."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from conftest import ROOT

#: Packages and those that they may import.
ALLOWED = {
    "perfpipe": set(),
    "ingest": {"perfpipe"},
    "analysis": {"perfpipe", "ingest"},
    "templates": {"perfpipe"},
    "pipelines": {"perfpipe", "ingest", "analysis", "templates"},
    "workloads": set(),
}
MODULES = [path for package in ALLOWED for path in (ROOT / package).rglob("*.py")]


def _imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(str(node.module).split(".")[0])
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_import_runs_upward(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    # What notebooks import is the face of the whole, not a part of the ground floor.
    allowed = {"analysis"} if path == ROOT / "perfpipe" / "__init__.py" else ALLOWED[package]
    ours = _imports(path) & ALLOWED.keys()
    assert ours <= allowed | {package}


def test_only_pipelines_start_processes() -> None:
    for path in MODULES:
        if path.relative_to(ROOT).parts[0] != "pipelines":
            assert not _imports(path) & {"subprocess", "multiprocessing"}, path


def test_no_file_is_too_long() -> None:
    files = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    limits = {".py": 400, ".sql": 130, ".js": 400, ".j2": 400, ".toml": 400, ".css": 400}
    for name in files:
        path = ROOT / name
        limit = limits.get(path.suffix)
        if limit and path.exists():
            assert len(path.read_text().splitlines()) <= limit, name


def test_packages_are_listed() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    there = {
        path.parent.relative_to(ROOT).as_posix().replace("/", ".")
        for package in ALLOWED
        for path in (ROOT / package).rglob("*.py")
        if "__pycache__" not in path.parts
    }
    assert there == set(setuptools["packages"])
    packed = {
        path
        for package, globs in setuptools["package-data"].items()
        for glob in globs
        for path in (ROOT / package.replace(".", "/")).glob(glob)
    }
    assert {path for package in ALLOWED for path in (ROOT / package).rglob("*.sql")} <= packed


LONGEST_LINE = 110


def test_no_line_is_too_long() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in (*ALLOWED, "tests", "benchmarks", "docs")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".sql")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > LONGEST_LINE
    ]
    assert not long


def test_nothing_names_a_place_outside_the_project() -> None:
    pattern = re.compile(r"\.\./shared|/work/|/root/|\bissue #?\d")
    for path in [*MODULES, *(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "Makefile"]:
        assert not pattern.search(path.read_text()), path


def test_docs_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "build.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_readme_begins_with_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    first_block = text.split("```")[1]
    assert "make demo" in first_block
    assert "make test" in first_block


def test_fixtures_stay_small() -> None:
    size = sum(path.stat().st_size for path in (ROOT / "tests" / "data").rglob("*"))
    assert size < 15e6
