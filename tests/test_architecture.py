"""The house rules: import direction, sizes, and nothing that ties the project to a place."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT

from analysis.views import views

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


#: Lines from which a file may be more than one thing that can be named.
LONG = {".py": 500, ".sql": 300, ".js": 500, ".j2": 500, ".toml": 500, ".css": 500}


def test_long_files_are_named_in_a_warning() -> None:
    files = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    for path in (ROOT / name for name in files):
        if path.suffix in LONG and path.exists():
            lines = len(path.read_text().splitlines())
            if lines > LONG[path.suffix]:
                warnings.warn(f"{path.relative_to(ROOT)} has {lines} lines", stacklevel=1)


def _files(folder: Path) -> set[str]:
    """Return the files of the packages below a folder, without what Python itself puts there."""
    return {
        path.relative_to(folder).as_posix()
        for package in ALLOWED
        for path in (folder / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_a_wheel_holds_every_file_of_the_packages_and_nothing_else(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for package in (*ALLOWED, "tests", "benchmarks", "docs"):
        ignored = shutil.ignore_patterns("__pycache__", "data", "examples")
        shutil.copytree(ROOT / package, tree / package, ignore=ignored)
    (tree / "analysis" / "__pycache__").mkdir()
    (tree / "analysis" / "__pycache__" / "views.pyc").touch()
    # What a run leaves beside the packages is somebody's own.
    (tree / "perfpipe-store" / "runs").mkdir(parents=True)
    (tree / "perfpipe-store" / "runs" / "workload.yaml").touch()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, tree / name)
    build = "import setuptools.build_meta as b; print(b.build_wheel('..'))"
    done = subprocess.run(
        [sys.executable, "-c", build], cwd=tree, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "is absent from the `packages` configuration" not in done.stdout + done.stderr
    assert "SetuptoolsDeprecationWarning" not in done.stderr
    installed = tmp_path / "installed"
    with zipfile.ZipFile(tmp_path / done.stdout.splitlines()[-1]) as wheel:
        wheel.extractall(installed)
    folders = {path.name for path in installed.iterdir() if path.suffix != ".dist-info"}
    assert folders == ALLOWED.keys()
    assert _files(installed) == _files(ROOT)
    found = subprocess.run(
        [sys.executable, "-P", "-c", FIND], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(installed)}, check=True,
    ).stdout.splitlines()  # fmt: skip
    assert found == [str(installed / "analysis/views.py"), str(len(views())), "True", "True"]


#: What an installed perfpipe finds of its own.
FIND = """
from importlib import resources
import perfpipe, pipelines.cli
from analysis import views
print(views.__file__)
print(len(views.views()))
print(resources.files("templates").joinpath("report.html.j2").is_file())
print(resources.files("workloads").joinpath("recordings/gemm-h200/recording.yaml").is_file())
"""


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


def test_readme_begins_with_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    first_block = text.split("```")[1]
    assert "make demo" in first_block
    assert "make test" in first_block


def test_fixtures_stay_small() -> None:
    size = sum(path.stat().st_size for path in (ROOT / "tests" / "data").rglob("*"))
    assert size < 18e6
