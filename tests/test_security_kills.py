"""What was killed leaves nothing for long: the next command removes what is older than its owner."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Cli

from perfpipe.owner import has_ended, is_at_work, own_mark, own_name, owner_of
from perfpipe.runrecord import RunRecord
from perfpipe.scratch import scratch, sweep_beside, sweep_scratch
from perfpipe.store import Store
from perfpipe.sweeping import sweep
from perfpipe.verify import verify


@pytest.fixture
def ended() -> str:
    """The mark of a process of this machine that has ended."""
    words = [sys.executable, "-c", "from perfpipe.owner import own_mark; print(own_mark())"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def test_the_end_of_an_owner_is_known(ended: str) -> None:
    assert not has_ended(own_name(".tmp-x"))
    assert has_ended(f".tmp-x-1{ended}")
    _, host, space, pid, started = own_mark().split("@")
    assert has_ended(f"x@{host}@{space}@{pid}@{int(started) - 1}"), "an older one of this number"
    assert not has_ended(f"x@elsewhere@{space}@{ended.split('@')[3]}@1"), "it may live there"
    assert not has_ended(f"x@{host}@1@{ended.split('@')[3]}@1"), "in a container"
    assert not has_ended("x-4711-1a2b3c4d")
    assert owner_of(own_name("a-b")) == (host, os.getpid())


def test_a_process_that_the_system_hides_may_be_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another user, where /proc is mounted with hidepid."""
    earlier = re.sub(r"@\w+$", "@1", own_mark())
    assert has_ended(f"x{earlier}")
    monkeypatch.setattr("perfpipe.owner._started", lambda _: "unknown")
    assert not has_ended(f"x{earlier}")
    assert not is_at_work(f"x{earlier}")


def test_a_process_that_nobody_waited_for_has_ended() -> None:
    words = [sys.executable, "-c", "from perfpipe.owner import own_mark; print(own_mark())"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        mark = process.stdout.read().strip()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert has_ended(f"x{mark}")


def test_leftovers_of_the_ended_go_and_others_stay(store: Store, ended: str) -> None:
    kept: list[Path] = []
    gone: list[Path] = []
    for parent in (store.reports_dir, store.segments_dir, store.batches_dir):
        for begin in (".tmp-1a2b", ".trash-1a2b"):
            for mark, found in ((ended, gone), (own_mark(), kept), ("-1-2", kept)):
                path = parent / f"{begin}{mark}"
                (path / "x").mkdir(parents=True)
                found.append(path)
    assert sorted(sweep(store)) == sorted(gone)
    assert not any(path.exists() for path in gone)
    assert all(path.is_dir() for path in kept)
    assert sweep(store) == []


def test_a_run_whose_process_was_killed_is_interrupted(
    store: Store, ended: str, cli: Cli, expand: Callable[[str], Path]
) -> None:
    for name, status in (("dead", "running"), ("done", "done"), ("alive", "running")):
        store.write_run(RunRecord(name, "w", "all", "t", status=status))
        (store.runs_dir / name / f"claim{own_mark() if name == 'alive' else ended}").touch()
        (store.runs_dir / name / f".tmp-1{ended}").touch()
    assert cli("ingest", expand("nsys/memcpy.sqlite")) == 0
    assert {run.run_id: run.status for run in store.runs()} == {
        "dead": "interrupted", "done": "done", "alive": "running"}  # fmt: skip
    assert [path.parent.name for path in store.runs_dir.glob("*/claim@*")] == ["alive"]
    assert not list(store.runs_dir.glob("*/.tmp-*"))


@pytest.mark.parametrize(
    "words",
    [
        ("scrub", "memcpy.sqlite", "--to", "out"),
        ("query", "FROM nsys_kernels", "-o", "out", "--format", "csv"),
        ("export", "perfetto", "--output", "out"),
        ("init", "."),
    ],
    ids=lambda words: words[0],
)
def test_output_of_killed_commands_is_removed_by_the_next(
    words: tuple[str, ...],
    cli: Cli,
    expand: Callable[[str], Path],
    ended: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(expand("nsys/memcpy.sqlite"), "memcpy.sqlite")
    assert cli("ingest", "memcpy.sqlite") == 0
    (tmp_path / f".tmp-1{ended}").touch()
    (tmp_path / f".tmp-2{ended}").mkdir()
    (tmp_path / f".tmp-1{ended}-journal").touch()
    assert cli(*words) == 0, cli.err
    assert not list(tmp_path.glob(".tmp-*"))


def test_temporary_files_are_their_owners(tmp_path: Path, ended: str) -> None:
    for name in (f"perfpipe-1{ended}", f"perfpipe-duckdb-1{ended}"):
        (tmp_path / name / "x").mkdir(parents=True)
    for name in ("perfpipe-1", "other", f"other-1{ended}"):
        (tmp_path / name).mkdir()
    (tmp_path / f".tmp-1{ended}").touch()
    sweep_scratch.cache_clear()
    with scratch(tmp_path) as own:
        assert {path.name for path in tmp_path.iterdir() if path.name.startswith("perfpipe")} == {
            own.name, "perfpipe-1"}  # fmt: skip
        assert own.stat().st_mode & 0o077 == 0
    assert not own.exists()
    assert (tmp_path / f"other-1{ended}").exists()
    sweep_beside(tmp_path / "report.html")
    assert not list(tmp_path.glob(".tmp-*"))


#: Kills itself where a name of a file is about to be published, the so-many-th time.
KILLED = """
import os, signal, sys
from pathlib import Path
at = int(sys.argv.pop(1))
def killing(real):
    def call(*given, **more):
        global at
        at -= 1
        if at == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*given, **more)
    return call
Path.rename, Path.replace = killing(Path.rename), killing(Path.replace)
from perfpipe.pipelines.cli import run_cli
import perfpipe.ingest.reading
from perfpipe.pipelines import ingesting
def here(work, tasks, **_):
    yield from ((task, work(task)) for task in tasks)
ingesting.spread = here
sys.exit(run_cli(sys.argv[1:]))
"""


def _whole(store: Store, tmp_path: Path) -> None:
    assert not [fault for _, fault in verify(store) if fault]
    assert store.leftovers() == []
    assert not list(store.root.rglob(".tmp-*"))
    assert not list(store.root.rglob("claim@*"))
    assert not list(tmp_path.glob("tmp/perfpipe-*"))
    assert not [run for run in store.runs() if run.status == "running"]


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (1, ("ingest", "CAPTURE")),
        (2, ("ingest", "CAPTURE")),
        (1, ("store", "compact", "--grace", "0")),
        (2, ("store", "compact", "--grace", "0")),
        (3, ("store", "compact", "--grace", "0")),
        (1, ("report", "--md", "OUT")),
        (1, ("run", "--collector", "timing", "--no-report", "--", "true")),
        (3, ("run", "--collector", "timing", "--no-report", "--", "true")),
    ],
)
def test_a_command_that_is_killed_at_a_point_loses_nothing(
    at: int,
    words: tuple[str, ...],
    stored: Callable[..., list[str]],
    store: Store,
    expand: Callable[[str], Path],
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = stored("nsys/memcpy.sqlite", "nsys/h2d.sqlite")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    filled = [
        word.replace("CAPTURE", str(expand("nsys/ops.sqlite"))).replace("OUT", "report.md")
        for word in words
    ]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(at), *filled],
        capture_output=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert set(before) <= set(store.report_ids())
    assert not [fault for _, fault in verify(store) if fault]
    sweep_scratch.cache_clear()
    assert cli(*filled) == 0, cli.err
    assert cli("ingest", expand("nsys/ops.sqlite")) == 0, cli.err
    _whole(store, tmp_path)
    assert set(before) <= set(store.report_ids())
    assert not list(tmp_path.glob(".tmp-*"))
