"""Stacks of forked processes: how the processes are found and sampled."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Cli, lacking
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.analysis.session import Session
from perfpipe.ingest.frames import Frame, Stack
from perfpipe.pipelines.collectors import forked, pyspy
from perfpipe.pipelines.collectors.forked import sampling_forks
from perfpipe.pipelines.process import run
from perfpipe.store import Store

#: A program with two forked processes, which sleep at one line and another in turn.
FORKS = """
import multiprocessing, sys, time
def slow(seconds): time.sleep(seconds)
def fast(seconds): time.sleep(seconds)
def work():
    until = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < until:
        slow(0.15)
        fast(0.05)
if __name__ == "__main__":
    started = [multiprocessing.get_context("fork").Process(target=work) for _ in range(2)]
    [process.start() for process in started]
    [process.join() for process in started]
"""

TRAIN = """
import time
import torch
from torch.utils.data import DataLoader, Dataset

def transform(number):
    until = time.perf_counter() + 0.04
    while time.perf_counter() < until:
        number += 1
    return float(number % 7)

class Slow(Dataset):
    def __len__(self):
        return 300
    def __getitem__(self, number):
        return torch.tensor([transform(number)])

def decoy():
    until = time.perf_counter() + 0.01
    while time.perf_counter() < until:
        pass

if __name__ == "__main__":
    for batch in DataLoader(Slow(), batch_size=4, num_workers=2, multiprocessing_context="fork"):
        decoy()
"""


@pytest.fixture
def py_spy() -> str:
    """The path of py-spy, which must be able to sample other processes of this user."""
    found = pyspy.find()
    if found is None:
        lacking("py-spy is not installed")
    if pyspy._is_restricted():
        pytest.skip("processes must not read the memory of others on this machine")
    return found


def _processes(mark: str) -> list[int]:
    """Return the living processes with a variable, and every py-spy that samples one of theirs."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            marked = mark.encode() in (path / "environ").read_bytes().split(b"\0")
            dead = (path / "stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"
        except OSError:
            continue
        found += [int(path.name)] if marked and not dead else []
    return found


# What py-spy writes, and what is made of it.

_A, _B = "f.py", "g.py"


def _events(samples: list[tuple[int, int, int, int, tuple[tuple[str, str, int], ...]]]) -> Any:
    """Yield the events that py-spy writes for samples: time, process, thread, address, frames.

    It ends the frames of the last sample at the same address that the new one does not have, in the
    name of the process that was sampled.
    """
    last: dict[int, list[tuple[str, str, int]]] = {}
    at, pid, address = 0, 0, 0
    for at, pid, tid, address, frames in samples:
        new = [(f'process {pid}:"python"', "", 0), (f"thread ({tid}): T", "", 0), *frames]
        old = last.get(address, [])
        same = 0
        while same < min(len(old), len(new)) and old[same] == new[same]:
            same += 1
        yield from (_event("E", pid, address, at, frame) for frame in reversed(old[same:]))
        yield from (_event("B", pid, address, at, frame) for frame in new[same:])
        last[address] = new
    for address, old in last.items():
        yield from (_event("E", pid, address, at + 1, frame) for frame in reversed(old))


def _event(kind: str, pid: int, address: int, at: int, frame: tuple[str, str, int]) -> Any:
    name, file, line = frame
    return {"ph": kind, "pid": pid, "tid": address, "ts": at, "name": name, "cat": "py-spy",
            "args": {"filename": file, "line": line}}  # fmt: skip


def _frames(*names: str) -> tuple[tuple[str, str, int], ...]:
    return tuple((name, _A, 1) for name in names)


def _stack(*names: str) -> Stack:
    return tuple(Frame(name, _A, 1) for name in reversed(names))


def _made(samples: list[Any]) -> list[tuple[int, int, int, Stack]]:
    found = pyspy.merged(pyspy.states(_events(samples)))
    return sorted((i.start_us, i.end_us, i.tid, i.stack) for i in found)


def test_processes_with_threads_at_the_same_address_are_told_apart() -> None:
    samples = []
    for number in range(4):
        at = 10_000 * (number + 1)
        samples.append((at, 1, 1, 77, _frames("main")))
        samples.append((at + 50, 2, 2, 77, _frames("main", "slow")))
        samples.append((at + 90, 3, 3, 77, _frames("main", "slow" if number < 2 else "fast")))
    rows = [row for row in _made(samples) if row[2] != 1]
    assert [(tid, stack) for _, _, tid, stack in rows] == [
        (2, _stack("main", "slow")), (3, _stack("main", "slow")), (3, _stack("main", "fast")),
    ]  # fmt: skip
    # The border is in the middle between 20.09 and 30.09 ms.
    assert rows[0][:2] == (5_050, 40_090)
    assert rows[1][1] == rows[2][0] == 25_090


def test_equal_samples_that_py_spy_leaves_out_end_half_a_period_before_the_next() -> None:
    kept = [(at, 2, 2, 5, _frames("wait")) for at in range(10_000, 100_000, 10_000)]
    rows = _made([*kept, (100_000, 2, 2, 5, _frames("work"))])
    assert rows[0] == (5_000, 95_000, 2, _stack("wait"))


def test_time_without_samples_belongs_to_no_stack() -> None:
    samples = [(at + pid, pid, pid, 5, _frames("f")) for at in (10_000, 500_000) for pid in (1, 2)]
    rows = [row for row in _made(samples) if row[2] == 1]
    assert len(rows) == 2
    assert rows[0][1] <= 20_000


def test_frames_of_the_parent_and_classes_are_not_kept() -> None:
    """A forked process has the frames of its parent; host_frames has names without classes."""
    samples = [
        (10_000, 2, 2, 5, (
            ("<module>", "train.py", 9), ("BaseProcess.start", "/lib/multiprocessing/process.py", 1),
            ("BaseProcess._bootstrap", "/lib/multiprocessing/process.py", 3),
            ("Data.__getitem__", "data.py", 7), ("f.<locals>.<lambda>", "data.py", 8),
        )),
        (20_000, 2, 2, 5, _frames("g")),
    ]  # fmt: skip
    assert [(frame.function, frame.line) for frame in _made(samples)[0][3]] == [
        ("<lambda>", 8), ("__getitem__", 7), ("_bootstrap", 3),
    ]  # fmt: skip


@st.composite
def _sampled(draw: st.DrawFn) -> list[tuple[int, int, int, int, Any]]:
    """Rounds of samples, some of which are late, of threads that may have the same address."""
    address = draw(st.lists(st.integers(1, 2), min_size=3, max_size=3))
    stacks = st.sampled_from([_frames("f"), _frames("f", "g"), _frames("h"), _frames("f", "h")])
    at, samples = 0, []
    for _ in range(draw(st.integers(1, 12))):
        at += draw(st.sampled_from([10_000, 12_000, 25_000, 200_000]))
        for pid in (1, 2, 3):
            if draw(st.booleans()):
                at += 7
                samples.append((at, pid, pid, address[pid - 1], draw(stacks)))
    return samples


@given(_sampled())
def test_every_sample_is_in_an_interval_with_its_stack(samples: list[Any]) -> None:
    rows = _made(samples)
    for tid in (1, 2, 3):
        of_thread = [row for row in rows if row[2] == tid]
        for (_, end, *_), (start, *_) in pairwise(of_thread):
            assert end <= start
    for at, _, tid, _, frames in samples:
        stack = _stack(*(name for name, _, _ in frames))
        holding = [row for row in rows if row[2] == tid and row[0] <= at <= row[1]]
        assert stack in [row[3] for row in holding]


# Sampling.


def test_the_processes_of_a_launch_that_were_forked_are_sampled(
    py_spy: str, tmp_path: Path
) -> None:
    """The shares of two lines are known; the times are those of CLOCK_REALTIME."""
    (tmp_path / "forks.py").write_text(FORKS)
    began = time.time_ns()
    with sampling_forks(tmp_path, wanted=True) as forks:
        done = run([sys.executable, str(tmp_path / "forks.py"), "8"], env=forks.env, timeout=120)
    ended = time.time_ns()
    assert done.ok, done.stderr
    assert forks.notes == []
    found = forks._stacks
    numbers = {
        number: {frame.function for frame in stack} for stack, number in found.stacks.items()
    }
    sums = {"slow": 0, "fast": 0}
    for start, end, number in zip(found.start_ns, found.end_ns, found.stack, strict=True):
        assert began < start < end < ended
        for name in sums.keys() & numbers[number]:
            sums[name] += end - start
    assert len({*found.pid}) == 2
    # The truth is 0.75; py-spy begins late on a busy machine.
    assert sum(sums.values()) > 2e9
    assert 0.6 < sums["slow"] / sum(sums.values()) < 0.9
    assert not list(tmp_path.glob("perfpipe*")), "traces are temporary"


def test_a_launcher_that_forks_before_it_executes_the_program(py_spy: str, tmp_path: Path) -> None:
    """nsys starts a program in a process that exists for a while before."""
    (tmp_path / "forks.py").write_text(FORKS)
    late = (
        "import os, sys, time\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    time.sleep(1)\n"
        f"    os.execv(sys.executable, [sys.executable, {str(tmp_path / 'forks.py')!r}, '4'])\n"
        "os.waitpid(child, 0)\n"
    )
    with sampling_forks(tmp_path, wanted=True) as forks:
        assert run([sys.executable, "-c", late], env=forks.env, timeout=120).ok
    assert forks.notes == []
    called = {frame.function for stack in forks._stacks.stacks for frame in stack}
    assert called >= {"slow", "fast"}


def test_no_forked_process_means_no_py_spy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that are started by exec, also from a fork, are not forked processes."""
    monkeypatch.setattr(pyspy, "find", lambda: None)
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(2)'])"
    with sampling_forks(tmp_path, wanted=True) as forks:
        assert run([sys.executable, "-c", program], env=forks.env, timeout=60).ok
        assert run(["sh", "-c", "(sleep 1; :) & wait"], env=forks.env, timeout=60).ok
    assert forks.notes == []


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, "py-spy is not installed"),
        ("/bin/false", "py-spy cannot read this Python (exit code 1)"),
    ],
)
def test_a_py_spy_that_cannot_sample_is_one_sentence(
    found: str | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspy, "find", lambda: found)
    monkeypatch.setattr(pyspy, "_is_restricted", lambda: False)
    (tmp_path / "forks.py").write_text(FORKS)
    with sampling_forks(tmp_path, wanted=True) as forks:
        # On a busy machine it takes seconds until the processes are seen.
        assert run([sys.executable, str(tmp_path / "forks.py"), "6"], env=forks.env, timeout=60).ok
    (note,) = forks.notes
    assert expected in note
    assert "workers of a DataLoader" in note


def test_a_py_spy_without_a_sample_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails when the program has ended, which is no fault of its own."""
    waits = tmp_path / "waits"
    waits.write_text("#!/bin/sh\nwhile [ -d /proc/$3 ]; do sleep 0.1; done\nexit 1\n")
    waits.chmod(0o755)
    monkeypatch.setattr(pyspy, "find", lambda: str(waits))
    (tmp_path / "forks.py").write_text(FORKS)
    with sampling_forks(tmp_path, wanted=True) as forks:
        assert run([sys.executable, str(tmp_path / "forks.py"), "2"], env=forks.env, timeout=60).ok
    (note,) = forks.notes
    assert note.endswith("the program ended before py-spy wrote a sample of them")


def test_only_the_latest_traces_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked, "_MOST_BYTES", 25)
    forks = forked.Forks(tmp_path)
    done = run(["true"])
    for number in range(4):
        path = tmp_path / f"{number}.json"
        path.write_text("0123456789")
        forks._keep(7, done, pyspy.Trace(path, 7, 0))
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["2.json", "3.json"]
    (note,) = forks.notes
    assert "the last part of the program only" in note


def test_memory_that_must_not_be_read_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """py-spy then says only that it finds no Python."""
    said = "[2026 INFO] config\nError: No python processes found in process 7\n\nStack backtrace:\n"
    failed = run([sys.executable, "-c", f"import sys; sys.stderr.write({said!r}); sys.exit(1)"])
    monkeypatch.setattr(pyspy, "_is_restricted", lambda: True)
    assert "--cap-add=SYS_PTRACE" in pyspy.why(os.getpid(), failed)
    monkeypatch.setattr(pyspy, "_is_restricted", lambda: False)
    assert "No python processes found" in pyspy.why(os.getpid(), failed)
    monkeypatch.setattr(pyspy, "_may_read", lambda pid: False)
    assert "kernel.yama.ptrace_scope=0" in pyspy.why(os.getpid(), failed)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_remains_of_a_killed_launch(py_spy: str, tmp_path: Path, number: int) -> None:
    (tmp_path / "forks.py").write_text(FORKS)
    (tmp_path / "launch.py").write_text(
        "import sys\nfrom pathlib import Path\n"
        "from perfpipe.pipelines.signals import install\n"
        "from perfpipe.pipelines.collectors.forked import sampling_forks\n"
        "from perfpipe.pipelines.process import run\n"
        "install()\n"
        "with sampling_forks(Path('.'), wanted=True) as forks:\n"
        "    run([sys.executable, 'forks.py', '300'], env=forks.env)\n"
    )
    mark = f"PERFPIPE_TEST={tmp_path}"
    launch = subprocess.Popen(
        [sys.executable, "launch.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PERFPIPE_TEST": str(tmp_path)},
        stderr=subprocess.DEVNULL,
    )
    try:
        assert _until(lambda: any(_is_py_spy(pid) for pid in _processes(mark)))
    finally:
        launch.send_signal(number)
        launch.wait()
    assert _until(lambda: not _processes(mark)), [*map(_words, _processes(mark))]


def _until(condition: Callable[[], bool], patience_s: float = 90) -> bool:
    late = time.monotonic() + patience_s
    while not condition() and time.monotonic() < late:
        time.sleep(0.1)
    return condition()


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _is_py_spy(pid: int) -> bool:
    return b"py-spy\0record" in _words(pid)


# Whole runs.


@pytest.fixture
def now(profilers: Path) -> Iterator[Path]:
    """Profilers whose capture begins now."""
    database = profilers / "timeline.sqlite"
    content = database.read_bytes()
    database.unlink()
    database.write_bytes(content)
    with closing(sqlite3.connect(database)) as con:
        con.execute("UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = ?", (time.time_ns(),))
        con.commit()
    yield profilers


@pytest.mark.timeout(300)
def test_a_run_records_what_the_workers_of_a_dataloader_do(
    needs_torch: None, py_spy: str, now: Path, cli: Cli, tmp_path: Path
) -> None:
    """Their transform has most of their time; the decoy of the main process is not theirs."""
    (now / "py-spy").symlink_to(py_spy)
    (tmp_path / "train.py").write_text(TRAIN)
    words = ("run", "--collector", "nsys", "--", sys.executable, "train.py")
    assert cli(*words) == 0, cli.err
    options = (now / "nsys.log").read_text().splitlines()[0]
    assert "--python-sampling=true --python-sampling-frequency=1000" in options
    store = Store(tmp_path / "store")
    (task,) = store.runs()[0].tasks
    assert task.notes == ()
    with Session.open(store, task.reports) as session:
        found = session.execute(
            "SELECT f.function, s.pid, s.end_ns - s.start_ns FROM host_samples AS s"
            " JOIN host_stacks AS k USING (report_id, stack_id)"
            " JOIN host_frames AS f USING (report_id, frame_id) WHERE s.source = 'py-spy'"
            " AND f.kind = 'user'"
            " QUALIFY row_number() OVER (PARTITION BY s.time_ns, s.pid, s.tid ORDER BY k.depth) = 1"
        ).fetchall()
    assert len({pid for _, pid, _ in found}) == 2
    whole = sum(ns for *_, ns in found)
    assert whole > 1e8
    assert sum(ns for function, _, ns in found if function == "transform") > 0.5 * whole
    assert "decoy" not in {function for function, *_ in found}


def test_no_stacks(now: Path, cli: Cli, tmp_path: Path) -> None:
    words = ("run", "--collector", "nsys", "--no-stacks", "--save", "off.yaml", "--", "true")
    assert cli(*words) == 0, cli.err
    assert "--python-sampling" not in (now / "nsys.log").read_text()
    assert "stacks: false" in (tmp_path / "off.yaml").read_text()
    (tmp_path / "on.yaml").write_text(
        (tmp_path / "off.yaml").read_text().replace("stacks: false", "stacks: true")
    )
    assert cli("run", "on.yaml", "--collector", "nsys", "--no-stacks") == 0, cli.err
    assert "--python-sampling" not in (now / "nsys.log").read_text()
    assert cli("run", "on.yaml", "--collector", "nsys") == 0, cli.err
    assert "--python-sampling=true" in (now / "nsys.log").read_text()


def test_options_of_the_workload_come_first(now: Path, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text(
        "version: 1\nname: w\ncommand: ['true']\n"
        "collect: {nsys: {options: [--python-sampling-frequency=200]}}\n"
    )
    assert cli("run", "w.yaml", "--collector", "nsys") == 0, cli.err
    options = (now / "nsys.log").read_text()
    assert "--python-sampling=true" in options
    assert options.count("--python-sampling-frequency") == 1


def test_an_nsys_without_the_option_is_one_sentence(now: Path, cli: Cli, tmp_path: Path) -> None:
    """Programs that are not in Python lack nothing."""
    nsys = now / "nsys"
    nsys.write_text(nsys.read_text().replace("--python-sampling=", "--sample="))
    store = Store(tmp_path / "store")
    for program in (sys.executable, "/bin/sh"):
        assert cli("run", "--collector", "nsys", "--", program, "-c", "") == 0, cli.err
    notes = [note for run in store.runs() for task in run.tasks for note in task.notes]
    assert sum("--python-sampling" in note for note in notes) == 1
    assert "--python-sampling" not in (now / "nsys.log").read_text()


def test_the_log_of_py_spy_gives_the_zero_of_its_trace() -> None:
    log = "[2026-11-26T16:40:43.887406598Z INFO  py_spy::config] config Config {\n    pid: 1,\n"
    assert pyspy._zero(log) == 1_795_711_243_887_406_598
    assert pyspy._zero("py-spy> Sampling process") is None
