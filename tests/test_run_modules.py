"""perfpipe run --modules: a launch of its own, whose report is no timeline."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from conftest import Cli
from moduleprogram import name_calls

from perfpipe.pipelines import tools
from perfpipe.store import Store


@pytest.fixture
def capture(expand: Callable[[str], Path], tmp_path: Path) -> Path:
    """A capture of four training steps with --pytorch=functions-trace,autograd-nvtx."""
    path = tmp_path / "capture.sqlite"
    shutil.copyfile(expand("stacks/modules.sqlite"), path)
    return path


#: A program that calls modules, beside a package called torch.
PROGRAM = """
import os
with open("seen", "a") as file:
    print(os.environ["PERFPIPE_COLLECTOR"], os.environ.get("PERFPIPE_INJECT_HELPER"),
          os.environ.get("PERFPIPE_INJECT_OPERATORS"), file=file)
"""


@pytest.fixture
def nsys(profilers: Path, capture: Path) -> Callable[[bool], Path]:
    """Let the program called nsys export a capture with modules, and say whether it knows PyTorch."""

    def prepare(knows: bool) -> Path:
        name_calls(capture)
        (profilers / "timeline.sqlite").unlink()
        shutil.copyfile(capture, profilers / "timeline.sqlite")
        with closing(sqlite3.connect(profilers / "timeline.sqlite")) as con:
            con.execute("PRAGMA application_id = 0")
            con.commit()
        if knows:
            (profilers / "HELP").write_text("\t--pytorch=\n")
        tools.find_tool.cache_clear()
        return profilers

    return prepare


def _lines(tmp_path: Path) -> list[str]:
    return (tmp_path / "seen").read_text().splitlines()


def test_a_run_has_a_launch_of_its_own_for_modules(
    nsys: Callable[[bool], Path], cli: Cli, tmp_path: Path, undrawn: None
) -> None:
    folder = nsys(True)
    (tmp_path / "train.py").write_text(PROGRAM)
    words = ["run", "--collector", "nsys", "--modules", "--", "python3", "train.py"]
    assert cli(*words, report=True) == 0, cli.err
    assert _lines(tmp_path) == ["plain None None", "nsys None None", "modules modules.py None"]
    store = Store(tmp_path / "store")
    (run,) = store.runs()
    (task,) = run.tasks
    assert (task.status, task.profilers, task.notes) == ("done", ("nsys", "modules"), ())
    assert sorted(manifest.kind for manifest in store.manifests()) == ["modules", "nsys"]
    options = [
        line for line in (folder / "nsys.log").read_text().splitlines() if "--pytorch" in line
    ]
    assert len(options) == 1 and "--pytorch=autograd-nvtx" in options[0]
    page = (tmp_path / "report.md").read_text()
    assert "GPU time by PyTorch module, as a tree" in page
    assert "% of the GPU time is in modules" in (tmp_path / "report.html").read_text()


def test_an_nsys_without_the_option_leaves_operators_to_the_start_up_file(
    nsys: Callable[[bool], Path], cli: Cli, tmp_path: Path, undrawn: None
) -> None:
    folder = nsys(False)
    (tmp_path / "train.py").write_text(PROGRAM)
    assert cli("run", "--collector", "nsys", "--modules", "--", "python3", "train.py") == 0, cli.err
    assert _lines(tmp_path)[-1] == "modules modules.py 1"
    assert "--pytorch" not in (folder / "nsys.log").read_text()


@pytest.mark.parametrize("knows", [True, False])
def test_without_the_start_up_file_nsys_names_classes(
    nsys: Callable[[bool], Path], cli: Cli, tmp_path: Path, undrawn: None, knows: bool
) -> None:
    folder = nsys(knows)
    (tmp_path / "train.py").write_text(PROGRAM)
    words = ["--collector", "nsys", "--modules", "--", "python3", "-I", "train.py"]
    assert cli("run", *words) == 0, cli.err
    (run,) = Store(tmp_path / "store").runs()
    (task,) = run.tasks
    (note,) = (note for note in task.notes if "modul" in note)
    assert "start-up file" in note
    assert len(task.reports) == (2 if knows else 1)
    assert ("--pytorch=functions-trace,autograd-nvtx" in (folder / "nsys.log").read_text()) == knows


@pytest.mark.parametrize("collector", ["timing", "ncu", "torch", "replay"])
def test_modules_need_nsys(cli: Cli, collector: str) -> None:
    assert cli("run", "--collector", collector, "--modules", "--", "true") == 2
    assert "--modules needs nsys" in cli.err


def test_a_workload_file_can_ask_for_modules(
    nsys: Callable[[bool], Path], cli: Cli, tmp_path: Path, undrawn: None
) -> None:
    nsys(True)
    (tmp_path / "train.py").write_text(PROGRAM)
    words = [
        "--collector",
        "nsys",
        "--modules",
        "--save",
        "saved.yaml",
        "--",
        "python3",
        "train.py",
    ]
    assert cli("run", *words) == 0, cli.err
    assert "modules: true" in (tmp_path / "saved.yaml").read_text()
    assert cli("run", "saved.yaml", "--collector", "nsys") == 0, cli.err
    assert _lines(tmp_path)[-1] == "modules modules.py None"
    assert cli("run", "saved.yaml", "--collector", "timing") == 0, cli.err
    assert _lines(tmp_path)[-1] == "plain None None"
