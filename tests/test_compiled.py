"""Timelines that guide ncu: what JAX compiled for them is kept, and lost events are traced again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Cli

from perfpipe.pipelines.collectors.nsys import lost_events
from perfpipe.runrecord import TaskResult
from perfpipe.store import Store

#: Stands for a JAX program: it keeps what it compiles where the variable says, if it is set.
PROGRAM = """
import os, pathlib
where = os.environ.get("JAX_COMPILATION_CACHE_DIR")
if where and {keeps}:
    pathlib.Path(where).mkdir(exist_ok=True)
    kept = pathlib.Path(where, "step")
    print("warm" if kept.exists() else "cold")
    kept.write_text("compiled")
with open("seen", "a") as seen:
    print(os.environ["PERFPIPE_COLLECTOR"], where, file=seen)
"""


@pytest.fixture
def run(
    tmp_path: Path, profilers: Path, cli: Cli, expand: Callable[[str], Path]
) -> Callable[..., TaskResult]:
    def launch(env: str = "{}", keeps: bool = True, collector: str = "all") -> TaskResult:
        (tmp_path / "prog.py").write_text(PROGRAM.format(keeps=keeps))
        (profilers / "timeline.sqlite").unlink()
        (profilers / "timeline.sqlite").symlink_to(expand("nsys/compute.sqlite"))
        path = tmp_path / "w.yaml"
        path.write_text(
            "version: 1\nname: w\ncommand: ['{python}', prog.py]\n"
            f"env: {env}\ncollect: {{nsys: {{}}, ncu: {{}}}}\n"
        )
        assert cli("run", path, "--collector", collector) == 0, cli.err
        (task,) = Store(tmp_path / "store").runs()[-1].tasks
        return task

    return launch


def _seen(tmp_path: Path) -> dict[str, str]:
    lines = (tmp_path / "seen").read_text().splitlines()
    return dict(line.split(maxsplit=1) for line in lines)


def test_ncu_finds_what_was_compiled_under_nsys(
    run: Callable[..., TaskResult], profilers: Path, tmp_path: Path
) -> None:
    """Nothing of it is there in the plain run or stays behind."""
    task = run()
    seen = _seen(tmp_path)
    assert seen["plain"] == "None"
    assert seen["nsys"] == seen["ncu"] != "None"
    assert not Path(seen["ncu"]).exists()
    (log,) = (tmp_path / "store").rglob("ncu.out")
    assert "warm" in log.read_text()
    (words,) = (profilers / "ncu.log").read_text().splitlines()
    assert "--filter-mode=per-launch-config" in words
    assert "--launch-skip-before-match" not in words
    assert task.notes == ()


def test_other_programs_begin_at_their_steps(
    run: Callable[..., TaskResult], profilers: Path
) -> None:
    run(keeps=False)
    (words,) = (profilers / "ncu.log").read_text().splitlines()
    assert "--launch-skip-before-match" in words


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ("{JAX_COMPILATION_CACHE_DIR: mine}", "mine"),
        ("{JAX_ENABLE_COMPILATION_CACHE: 'false'}", "None"),
    ],
)
def test_what_the_user_says_of_the_cache_counts(
    run: Callable[..., TaskResult], tmp_path: Path, env: str, expected: str
) -> None:
    run(env)
    assert set(_seen(tmp_path).values()) == {expected}


def test_a_timeline_alone_keeps_nothing(run: Callable[..., TaskResult], tmp_path: Path) -> None:
    run(collector="nsys")
    assert _seen(tmp_path)["nsys"] == "None"


def test_a_timeline_that_lost_its_events_is_made_once_more(
    profilers: Path, cli: Cli, tmp_path: Path, edited: Callable[..., Path]
) -> None:
    """What nsys lost differs from launch to launch; where it loses them again, the report says so."""
    emptied = "DELETE FROM DIAGNOSTIC_EVENT WHERE text LIKE 'Number of CUPTI%'"
    text = "UPDATE DIAGNOSTIC_EVENT SET text = {} WHERE rowid = (SELECT {}(rowid) FROM DIAGNOSTIC_EVENT)"
    lossy = edited(
        "memcpy",
        emptied,
        text.format("'Error: ProcessEventsError (4005)'", "min"),
        text.format("'Number of CUPTI events produced: 100000, CUPTI buffers: 50.'", "max"),
    )
    assert lost_events(lossy) > 99
    (profilers / "timeline.sqlite").unlink()
    (profilers / "timeline.sqlite").symlink_to(lossy)
    path = tmp_path / "w.yaml"
    path.write_text("version: 1\nname: w\ncommand: [echo, good]\ncollect: {nsys: {}}\n")
    assert cli("run", path, "--collector", "nsys") == 0, cli.err
    assert cli("report", "--md") == 0
    (task,) = Store(tmp_path / "store").runs()[-1].tasks
    (note,) = task.notes
    assert "lost 100 % of the CUDA events" in note
    assert "covers only the others" in (tmp_path / "report.md").read_text()


def test_captures_that_are_whole_lost_nothing(expand: Callable[[str], Path]) -> None:
    for name in ("memcpy", "compute", "graph_whole"):
        assert lost_events(expand(f"nsys/{name}.sqlite")) == 0
