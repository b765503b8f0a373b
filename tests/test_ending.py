"""However a run ends, nothing that it launched goes on: real processes, real signals."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Cli
from kills import PERFPIPE

from perfpipe.errors import TaskFailed
from perfpipe.pipelines import signals
from perfpipe.pipelines.process import run
from perfpipe.store import Store

#: Leaves the group, the session and the tree of its parent.
TREE = """
sleep 9000 &
setsid sleep 9000 &
(setsid sh -c 'trap "" TERM; sleep 9000; sleep 9000' &)
touch started
sleep 9000
"""


def _marked(mark: str) -> list[int]:
    """Return the processes with a variable in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"MARK={mark}".encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def _until(true: Callable[[], object], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def mark() -> Iterator[str]:
    """A value of MARK; whatever still has it is killed after the test."""
    value = uuid.uuid4().hex
    yield value
    for pid in _marked(value):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def started(tmp_path: Path, mark: str) -> Callable[..., subprocess.Popen[str]]:
    """Start a run of the tree behind some words, and return once all of the tree is there."""
    (tmp_path / "tree.sh").write_text(TREE)

    def start(*before: str) -> subprocess.Popen[str]:
        words = ["run", "--collector", "timing", "--no-report", "--store", "store"]
        words += ["--env", f"MARK={mark}", "--", "sh", "tree.sh"]
        process: subprocess.Popen[str] = subprocess.Popen(
            [*before, *PERFPIPE, *words],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: [signal.signal(n, signal.SIG_DFL) for n in (1, 2, 15)] and None,
        )
        _until(lambda: process.poll() is not None or (tmp_path / "started").exists())
        _until(lambda: process.poll() is not None or len(_marked(mark)) >= 5)
        assert process.poll() is None, process.communicate()
        return process

    return start


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (signal.SIGTERM, "perfpipe: ended by SIGTERM; to continue: perfpipe run --resume"),
        (signal.SIGHUP, "perfpipe: ended by SIGHUP; to continue: perfpipe run --resume"),
        (signal.SIGINT, "perfpipe: interrupted; to continue: perfpipe run --resume"),
        (signal.SIGKILL, None),
    ],
)
def test_a_signal_ends_everything_and_the_run_can_be_resumed(
    number: signal.Signals,
    said: str | None,
    started: Callable[..., subprocess.Popen[str]],
    mark: str,
    cli: Cli,
    tmp_path: Path,
) -> None:
    process = started()
    process.send_signal(number)
    if said:
        # As `timeout` and terminals do.
        process.send_signal(number)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == (128 + number if said else -number)
    if said:
        assert _marked(mark) == [], "nothing is left when it returns"
        assert stderr.splitlines()[-1].startswith(said)
        assert "Traceback" not in stderr
    _until(lambda: not _marked(mark))
    (before,) = Store(tmp_path / "store").runs()
    assert before.status == "interrupted"
    record = json.loads((tmp_path / "store/runs" / before.run_id / "run.json").read_text())
    assert record["status"] == ("interrupted" if said else "running"), (
        "who is killed writes nothing"
    )
    (tmp_path / "tree.sh").write_text("exit 0")
    words = ["--collector", "timing", "--env", f"MARK={mark}", "--", "sh", "tree.sh"]
    assert cli("run", "--resume", *words) == 0, cli.err
    assert f"resuming {before.run_id}" in cli.err
    (after,) = Store(tmp_path / "store").runs()
    assert after.status == "done"
    assert not list((tmp_path / "store").glob("runs/*/claim@*"))


def test_a_run_ends_with_the_process_that_started_it(
    started: Callable[..., subprocess.Popen[str]], mark: str, tmp_path: Path
) -> None:
    parent = started("sh", "-c", '"$@"; true', "sh")
    parent.kill()
    _until(lambda: not _marked(mark))
    assert parent.stderr
    assert "the parent process ended; to continue" in parent.stderr.read()
    parent.wait()
    assert Store(tmp_path / "store").runs()[0].status == "interrupted"


def test_a_run_in_the_background_outlives_what_started_it(
    started: Callable[..., subprocess.Popen[str]], mark: str
) -> None:
    parent = started("nohup", "sh", "-c", '"$@"; true', "sh")
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
    parent.kill()
    parent.wait()
    time.sleep(1.5)
    assert len(_marked(mark)) >= 5
    os.kill(int(children[0]), signal.SIGTERM)
    _until(lambda: not _marked(mark))


def test_readers_of_reports_end_in_the_middle_of_one(mark: str) -> None:
    program = (
        "import time; from perfpipe.pipelines.workers import spread\n"
        "list(spread(time.sleep, [9000], jobs=1, limit_s=9000))"
    )
    process = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "MARK": mark})
    workers = f"/proc/{process.pid}/task/{process.pid}/children"
    _until(lambda: len(Path(workers).read_text().split()) == 2)
    # Time to begin; a worker that has not ends all the more.
    time.sleep(2)
    process.kill()
    process.wait()
    _until(lambda: not _marked(mark))


def test_a_time_limit_ends_everything(mark: str, tmp_path: Path) -> None:
    (tmp_path / "tree.sh").write_text(TREE)
    finished = run(["sh", "tree.sh"], cwd=tmp_path, env={"MARK": mark}, timeout=2)
    assert finished.timed_out
    assert not _marked(mark)


def test_what_a_program_leaves_running_is_ended(mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfpipe.pipelines.process._LINGER_S", 0.2)
    words = ["sh", "-c", "setsid sleep 9000 & (sleep 0.05; echo late) & echo early; exit 3"]
    finished = run(words, env={"MARK": mark})
    assert (finished.returncode, finished.stdout) == (3, "early\nlate\n")
    assert not _marked(mark)


def test_a_connection_that_ssh_shares_stays(mark: str) -> None:
    """What has a session of its own, after the end of a program and after its time."""
    words = ["sh", "-c", "setsid sleep 9000 >/dev/null 2>&1 & sleep $0; wait $$"]
    assert not run([*words, "0"], env={"MARK": mark}, keep_rest=True).timed_out
    (kept,) = _marked(mark)
    assert run([*words, "9000"], env={"MARK": mark}, keep_rest=True, timeout=2).timed_out
    assert kept in _marked(mark) and len(_marked(mark)) == 2


def test_a_supervisor_that_is_killed_takes_the_program_along(mark: str) -> None:
    words = ["sh", "-c", "sleep 9000 & kill -9 $PPID; sleep 9000"]
    with pytest.raises(TaskFailed, match="sh: its supervisor was killed"):
        run(words, env={"MARK": mark})
    _until(lambda: not _marked(mark))


def test_a_program_is_started_as_from_a_shell(mark: str) -> None:
    """No signal is ignored, no file is open but the three, and it leads its session."""
    program = textwrap.dedent("""
        import os, signal
        ignored = [n for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN]
        fds = [fd for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")]
        print(ignored == [13, 25], fds, os.getsid(0) == os.getpid(), os.environ["MARK"])
    """)
    # What the test run itself was told to ignore (nohup, the background) it would hand down.
    ignored = {n for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN}
    background = sorted(ignored - {signal.SIGPIPE, signal.SIGXFSZ})
    before = [signal.signal(number, signal.SIG_DFL) for number in background]
    try:
        finished = run([sys.executable, "-c", program], env={"MARK": mark})
    finally:
        for number, handler in zip(background, before, strict=True):
            signal.signal(number, handler)
    assert finished.stdout == f"True ['0', '1', '2'] True {mark}\n", finished.stderr


def test_the_time_of_a_program_is_its_own() -> None:
    finished = run(["sleep", "0.2"])
    assert finished.seconds >= 0.2
    assert run(["true"]).seconds < finished.seconds + 60


def test_a_signal_that_another_thread_gets_ends_a_waiting_main_thread(
    tmp_path: Path, mark: str
) -> None:
    """A process's signal may go to any thread; the main thread waits for a program meanwhile."""
    (tmp_path / "tree.sh").write_text("touch started; sleep 9000")
    code = f"""
    import os, signal, sys, threading, time
    from pathlib import Path
    from perfpipe.pipelines import cli, signals

    def deliver():
        while not Path("started").exists():
            time.sleep(0.02)
        time.sleep(0.5)
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        time.sleep(9000)

    threading.Thread(target=deliver, daemon=True).start()
    signals.install()
    words = ["run", "--collector", "timing", "--no-report", "--store", "store"]
    sys.exit(cli.run_cli([*words, "--env", "MARK={mark}", "--", "sh", "tree.sh"]))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    (recorded,) = Store(tmp_path / "store").runs()
    assert (done.returncode, recorded.status) == (143, "interrupted"), done.stderr
    assert _marked(mark) == []


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit])
def test_an_end_within_set_name_stays_one(raised: type[BaseException]) -> None:
    """Python before 3.12 makes a RuntimeError of it: it is met while modules are imported."""

    class Field:
        def __set_name__(self, owner: type, name: str) -> None:
            raise raised

    with pytest.raises(raised), signals.unwrapped():
        type("Owner", (), {"field": Field()})


def test_other_errors_within_set_name_stay_errors() -> None:
    with pytest.raises(RuntimeError), signals.unwrapped():
        raise RuntimeError from ValueError()
