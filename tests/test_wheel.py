"""What is released: sdist and wheel, and an installation beside packages of the same names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from conftest import ROOT, publish

import perfpipe

#: Folders of the repository that are links in perfpipe/.
LINKED = ("analysis", "ingest", "pipelines", "templates", "workloads")


def _build(kind: str, tree: Path, into: Path) -> Path:
    """Build a distribution of a tree; return its file."""
    code = f"import sys, setuptools.build_meta as b; print(b.build_{kind}(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(into)],
        cwd=tree,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert "is absent from the `packages` configuration" not in done.stdout + done.stderr
    assert "SetuptoolsDeprecationWarning" not in done.stderr
    return into / done.stdout.splitlines()[-1]


def _files(folder: Path) -> set[str]:
    """Return the files in a folder and below it, behind links too; not what Python puts there."""
    return {
        Path(top, name).relative_to(folder).as_posix()
        for top, _, names in os.walk(folder, followlinks=True)
        for name in names
        if not top.endswith("__pycache__")
    }


@pytest.fixture(scope="session")
def released(shared: Path) -> Path:
    """A directory with the sdist, and the wheel that is built from it."""

    def make(at: Path) -> None:
        tree = at / "tree"
        ignored = shutil.ignore_patterns("__pycache__", "data", "examples")
        for package in ("perfpipe", *LINKED, "tests", "benchmarks", "docs"):
            shutil.copytree(ROOT / package, tree / package, symlinks=True, ignore=ignored)
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copyfile(ROOT / name, tree / name)
        # What a run leaves, and what Python does.
        (tree / "perfpipe-store" / "runs").mkdir(parents=True)
        (tree / "perfpipe-store" / "runs" / "workload.yaml").touch()
        (tree / "analysis" / "__pycache__").mkdir()
        (tree / "analysis" / "__pycache__" / "views.pyc").touch()
        sdist = _build("sdist", tree, at)
        (at / "unpacked").mkdir()
        subprocess.run(["tar", "-xf", sdist, "-C", at / "unpacked"], check=True)
        (source,) = (at / "unpacked").iterdir()
        _build("wheel", source, at)
        shutil.rmtree(tree)
        shutil.rmtree(at / "unpacked")

    return publish(shared / "released", make)


@pytest.fixture(scope="session")
def wheel(released: Path) -> Path:
    (found,) = released.glob("*.whl")
    return found


def test_a_wheel_has_one_importable_name_and_every_file(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path)
    (metadata,) = tmp_path.glob("*.dist-info")
    assert {path.name for path in tmp_path.iterdir()} == {"perfpipe", metadata.name}
    assert _files(tmp_path / "perfpipe") == _files(ROOT / "perfpipe")
    assert (metadata / "licenses" / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    stated = (metadata / "METADATA").read_text()
    assert f"\nVersion: {perfpipe.__version__}\n" in stated
    assert "\nAuthor: perfpipe maintainers\n" in stated
    assert stated.count("\nClassifier: ") >= 5


#: Packages of a project that have the names of perfpipe's folders, and what they define.
OWN = "mine = '{name} of the project'\n"

NOTEBOOK = """
import analysis, ingest, pipelines, templates, workloads
from analysis.loss import mine
import perfpipe
assert mine == "analysis of the project", mine
with perfpipe.open_store() as store:
    assert store.sql("SELECT count(*) FROM nsys_kernels").fetchall() == [(10,)]
    assert len(store.sql("FROM timeline_bottleneck").df()) == 1
print(perfpipe.__version__, perfpipe.__file__)
"""

FUNCTION = """
import analysis.loss, perfpipe
def step(n):
    return lambda: analysis.loss.mine * n
print(*perfpipe.profile(step, {"n": [2]}, collector="timing").frame()["status"])
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(params=["packages", "folders"])
def project(request: pytest.FixtureRequest, shared: Path, wheel: Path, tmp_path: Path) -> Run:
    """Return what runs words in a project with packages, or plain folders, of all five names.

    perfpipe is installed from its wheel, beside what it needs.
    """

    def install(at: Path) -> None:
        venv.create(at, symlinks=True)
        python = at / "bin" / "python"
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
        subprocess.run([*pip, "install", "-q", "--no-deps", "--no-index", str(wheel)], check=True)
        (site,) = (at / "lib").glob("python*/site-packages")
        (site / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")

    home = publish(shared / "installed", install)
    folder = tmp_path / "project"
    for name in LINKED:
        (folder / name).mkdir(parents=True)
        (folder / name / "loss.py").write_text(OWN.format(name=name))
        if request.param == "packages":
            (folder / name / "__init__.py").write_text(OWN.format(name=name))

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        # Scripts of a venv that was renamed know its old place.
        program = [str(home / "bin" / "python"), *map(str, words)]
        path = f"{home / 'bin'}:/usr/bin:/bin"
        env = {"PATH": path, "HOME": str(tmp_path), "PYTHONPATH": ".", "TMPDIR": str(tmp_path)}
        done = subprocess.run(
            program, cwd=folder, env=env, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stderr
        return done

    return run


def _commands(capture: Path) -> Sequence[tuple[str | Path, ...]]:
    return (
        ("ingest", capture),
        ("report", "--html"),
        ("run", "--collector", "timing", "--", "python", "train.py"),
        ("query", "--all", "SELECT count(*) FROM nsys_kernels", "--format", "csv"),
    )


def test_it_works_in_a_project_with_packages_of_the_same_names(
    project: Run, expand: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = tmp_path / "project"
    (folder / "train.py").write_text("import analysis.loss; print(analysis.loss.mine)\n")
    for words in _commands(expand("nsys/memcpy.sqlite")):
        done = project("-m", "perfpipe", *words)
        assert "Traceback" not in done.stderr
    assert done.stdout == "count_star()\n10\n"
    assert (folder / "report.html").exists()
    (folder / "bench.py").write_text(FUNCTION)
    assert project("bench.py").stdout == "done\n"
    version, place = project("-c", NOTEBOOK).stdout.split()
    assert version == perfpipe.__version__
    assert "site-packages/perfpipe/" in place
