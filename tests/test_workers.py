"""Workers: one that crashes, hangs or runs out of memory fails its task, and is replaced."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import DATA, Cli
from errands import act, grow

from perfpipe.ingest import inputs
from perfpipe.ingest.inputs import hashed, identify
from perfpipe.ingest.outcome import Outcome
from perfpipe.ingest.reading import ingest
from perfpipe.pipelines import workers
from perfpipe.pipelines.ingesting import Failure, ingest_many
from perfpipe.pipelines.workers import Lost, end_idle_workers, spread
from perfpipe.store import Store


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for temporary files, which must be empty in the end; and no worker from before."""
    end_idle_workers()
    directory = tmp_path / "scratch"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    yield directory
    end_idle_workers()
    assert list(directory.iterdir()) == []


def _answers(*tasks: tuple[str, str], jobs: int = 1, limit_s: float = 60) -> list[object]:
    found = dict(spread(act, tasks, jobs=jobs, limit_s=limit_s))
    return [found[task] for task in tasks]


def test_a_worker_takes_one_task_after_another() -> None:
    first, second = _answers(("pid", "a"), ("pid", "b"))
    assert first == second != os.getpid()
    assert _answers(("pid", "c")) == [first]
    end_idle_workers()
    assert not _alive(first)


def test_an_interrupt_does_not_end_a_worker_that_starts() -> None:
    """A terminal sends Ctrl-C to the worker too; only this process reports it."""
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(_answers, ("pid", "a"))
        while not asked.done():
            for worker in multiprocessing.active_children():
                if worker.pid:
                    os.kill(worker.pid, signal.SIGINT)
            time.sleep(0.005)
    assert isinstance(asked.result()[0], int)


def test_a_worker_does_without_pandas() -> None:
    """It takes as long to import as a small report to read, and is installed here."""
    assert find_spec("pandas")
    assert _answers(("list", "")) == [([1, 2], False)]


#: A script without a guard, which ingests as it runs.
SCRIPT = """
import sys
from pathlib import Path
from perfpipe.pipelines.ingesting import ingest_many
from perfpipe.store import Store
print("ran")
print([*ingest_many([Path(sys.argv[1])], Store("store"), jobs=1)][0].new)
"""


@pytest.mark.parametrize("piped", [False, True], ids=["file", "stdin"])
def test_a_worker_does_not_run_the_script_that_uses_perfpipe(
    piped: bool, expand: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-" if piped else "script.py", expand("nsys/memcpy.sqlite")],
        input=SCRIPT if piped else None, cwd=tmp_path, capture_output=True, text=True,
        timeout=120, env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))},
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("ran\nTrue\n", "")


@pytest.mark.parametrize(
    ("what", "lost"),
    [
        ("exit", Lost("crash", 3)),
        ("signal", Lost("crash", -signal.SIGSEGV)),
        ("memory", Lost("memory")),
    ],
)
def test_a_worker_that_dies_is_replaced(what: str, lost: Lost) -> None:
    before, failed, after = _answers(("pid", "a"), (what, ""), ("pid", "b"))
    assert failed == lost
    assert after != before
    assert not _alive(before)


def test_a_worker_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_PATIENCE_S", 0.1)
    (before,) = _answers(("pid", ""))
    assert _answers(("hang", str(tmp_path / "pid")), limit_s=1) == [Lost("time")]
    assert not _alive(before)
    assert _answers(("pid", "")) != [before]


@pytest.mark.parametrize("what", ["sleep", "destroy"])
def test_leaving_early_ends_what_is_running(what: str, tmp_path: Path) -> None:
    """It cleans up, undisturbed, also if the signal comes in a destructor."""
    told = tmp_path / "pid"
    results = spread(act, [(what, str(told)), ("pid", "")], jobs=2, limit_s=60)
    next(results)
    while not (told.exists() and told.read_text()):
        time.sleep(0.01)
    results.close()  # type: ignore[attr-defined]
    assert not _alive(int(told.read_text()))
    assert (tmp_path / "pid-left").exists()


def test_a_kept_worker_sees_the_surroundings_of_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (before,) = _answers(("pid", ""))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERFPIPE_TEST", "yes")
    assert _answers(("where", ""), ("pid", "")) == [(str(tmp_path), "yes"), before]


def test_a_worker_that_grew_large_is_not_kept() -> None:
    first, second = (pid for _, pid in spread(grow, [1100 << 20, 0], jobs=1, limit_s=60))
    assert first != second


def _alive(pid: object) -> bool:
    return isinstance(pid, int) and Path(f"/proc/{pid}").exists()


@pytest.fixture
def endless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An input whose reader waits for ever: for an nsys that waits for what nobody writes."""
    tool = tmp_path / "bin" / "nsys"
    tool.parent.mkdir()
    os.mkfifo(tmp_path / "pipe")
    tool.write_text(f"#!/bin/sh\nread line <{tmp_path / 'pipe'}\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    path = tmp_path / "endless.nsys-rep"
    path.write_bytes(b"NVIDIA Tegra Profiler Report")
    return path


def test_an_input_whose_reader_crashes(
    expand: Callable[[str], Path], store: Store, endless: Path
) -> None:
    """It fails by itself: those before and behind it are ingested."""

    def crash() -> None:
        # Opens once the reader has.
        with (endless.parent / "pipe").open("wb"):
            for worker in multiprocessing.active_children():
                os.kill(worker.pid or 0, signal.SIGSEGV)

    paths = [expand("nsys/memcpy.sqlite"), endless, expand("ncu/visible.raw.csv")]
    with ThreadPoolExecutor(1) as pool:
        crashed = pool.submit(crash)
        results = list(ingest_many(paths, store, jobs=1))
        crashed.result()
    assert [str(r.error) for r in results if isinstance(r, Failure)] == [
        f"{endless}: the reader crashed (exit code -11); nothing was stored"
    ]
    assert [r.kind for r in results if isinstance(r, Outcome)] == ["nsys", "ncu"]
    assert len(store.report_ids()) == 2
    assert store.leftovers() == []


@pytest.mark.parametrize("others", [0, 1])
def test_an_input_whose_reader_hangs(cli: Cli, endless: Path, store: Store, others: int) -> None:
    paths = [endless, *[Path("/dev/null")] * others]
    # The exit code of an empty file is the higher one.
    code = 2 if others else 1
    # Longer where another file has to be read in time, on a busy machine as well.
    limit = 5 if others else 1
    assert cli("ingest", *paths, "--timeout", str(limit), "--store", store.root) == code
    assert (
        f"{endless}: reading took longer than {limit} s; nothing was stored (raise --timeout)"
        in cli.err
    )


def test_an_input_is_hashed_once(
    expand: Callable[[str], Path], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is known of an input travels to the one that reads it."""
    found = hashed(identify(expand("nsys/memcpy.sqlite")))
    monkeypatch.setattr(inputs, "_file_sha256", None)
    assert ingest(found, store).report_id == found.report_id
    assert hashed(found) is found


def test_a_packed_input_that_is_known_is_not_expanded(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = DATA / "nsys" / "memcpy.sqlite.xz"
    first = ingest(packed, store)
    monkeypatch.setattr(inputs, "_expand", None)
    assert ingest(packed, store) == replace(first, new=False)
