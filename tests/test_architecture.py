"""The house rules: import direction, sizes, and nothing that ties the project to a place."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import warnings
from pathlib import Path

import pytest
from conftest import ROOT
from mypy.main import process_options

#: Packages and those that they may import; all but the ground floor are links in perfpipe/.
ALLOWED = {
    "perfpipe": set(),
    "ingest": {"perfpipe"},
    "analysis": {"perfpipe", "ingest"},
    "templates": {"perfpipe"},
    "pipelines": {"perfpipe", "ingest", "analysis", "templates"},
    "workloads": set(),
}
LINKED = ALLOWED.keys() - {"perfpipe"}

#: What notebooks import and what starts: the face of the whole, not a part of the ground floor.
FACES = {"__init__.py": {"analysis", "pipelines"}, "__main__.py": {"pipelines"}}


def _files(folder: Path) -> list[Path]:
    """Return the files in a folder and below it, not behind links."""
    return sorted(Path(top, name) for top, _, names in os.walk(folder) for name in names)


def _modules(folder: Path) -> list[Path]:
    return [path for path in _files(folder) if path.suffix == ".py"]


MODULES = [path for package in ALLOWED for path in _modules(ROOT / package)]


def _imports(path: Path) -> set[str]:
    """Return the names that a module imports: whole ones, and those of their packages."""
    tree = ast.parse(path.read_text())
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{name.name}" for name in node.names}
    return found


def _package(name: str) -> str:
    """Return which of ours holds what is imported; empty for others."""
    first, _, rest = name.partition(".")
    second = rest.partition(".")[0]
    return "" if first != "perfpipe" else second if second in LINKED else first


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_import_runs_upward(path: Path) -> None:
    package, *_, name = path.relative_to(ROOT).parts
    allowed = {*ALLOWED[package], *(FACES.get(name, ()) if package == "perfpipe" else ())}
    ours = {_package(imported) for imported in _imports(path)} - {""}
    assert ours <= allowed | {package}


def test_packages_have_one_importable_name() -> None:
    """As analysis, ingest, ... they would take the place of somebody's own packages."""
    others = [
        path for folder in ("tests", "benchmarks", "docs") for path in _modules(ROOT / folder)
    ]
    for path in (*MODULES, *others):
        bare = {name.partition(".")[0] for name in _imports(path)} & LINKED
        assert not bare, f"{path}: import them as perfpipe.{min(bare)}"
    for package in LINKED:
        link = ROOT / "perfpipe" / package
        assert link.is_symlink() and link.readlink() == Path("..", package)


def test_mypy_checks_every_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a link a whole package is passed over without a word."""
    monkeypatch.chdir(ROOT)
    sources, _ = process_options([])
    checked = {Path(source.path).resolve() for source in sources if source.path}
    folders = (*ALLOWED, "tests", "benchmarks", "docs")
    assert checked == {path for folder in folders for path in _modules(ROOT / folder)}
    ours = {source.module for source in sources} - {"perfpipe"}
    assert not {name.partition(".")[0] for name in ours} & LINKED


def test_only_pipelines_start_processes() -> None:
    for path in MODULES:
        if path.relative_to(ROOT).parts[0] != "pipelines":
            names = {name.partition(".")[0] for name in _imports(path)}
            assert not names & {"subprocess", "multiprocessing"}, path


def test_evaluate_has_three_doors() -> None:
    room = ROOT / "pipelines" / "evaluate"
    doors = {
        str(path.relative_to(ROOT))
        for path in MODULES
        if room not in path.parents
        and any(name.startswith("perfpipe.pipelines.evaluate") for name in _imports(path))
    }
    searching = {name for name in doors if name.startswith("pipelines/searching/")}
    assert doors - searching == {"pipelines/commands/evaluate.py", "pipelines/workload.py"}


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


LONGEST_LINE = 110


def test_no_line_is_too_long() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in (*ALLOWED, "tests", "benchmarks", "docs")
        for path in _files(ROOT / folder)
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
    assert size < 24e6
