"""Programs behind a wrapper, and on another machine: a real sshd on loopback."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import textwrap
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Cli, lacking
from kills import PERFPIPE, heed_signals

from perfpipe.pipelines.launcher import Launcher
from perfpipe.pipelines.workload import Execution
from perfpipe.store import Store

PROGRAM = """
import json, os, sys
print(json.dumps({"perfpipe": "validation", "ok": True, "max_abs_error": 0.0}))
print(json.dumps({"perfpipe": "time", "ms": [float(os.environ["MS"])], "method": os.getcwd()}))
"""


def _workload(tmp_path: Path, execution: str) -> Path:
    there = tmp_path / "there's a blank"
    there.mkdir(exist_ok=True)
    (there / "program.py").write_text(PROGRAM)
    path = tmp_path / "w.yaml"
    path.write_text(
        textwrap.dedent(f"""
        version: 1
        name: w
        command: ["{{python}}", program.py, "a $HOME 'quoted' b"]
        env: {{MS: "2.5"}}
        collect: {{nsys: {{}}, ncu: {{}}}}
        execution: {execution}
        """)
    )
    return path


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The words of an ssh client that reaches a server of this test's own."""
    server = shutil.which("sshd", path="/usr/sbin:/usr/bin")
    if server is None or shutil.which("ssh") is None:
        lacking("openssh is not installed")
    folder = tmp_path_factory.mktemp("sshd")
    for name in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True
        )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nStrictModes no\n"
        f"AuthorizedKeysFile {folder}/user.pub\nPidFile none\nUsePAM no\n"
        "PasswordAuthentication no\nPermitRootLogin yes\nKexAlgorithms curve25519-sha256\n"
        # What the user's own shell begins with is not run: it may take longer than the program.
        f"SetEnv HOME={folder}\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    words = [server, "-D", "-e", "-f", str(folder / "config")]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(words, stderr=log)
    client = [
        "ssh", "-p", str(port), "-i", str(folder / "user"), "-o", "StrictHostKeyChecking=no",
        "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o", "BatchMode=yes",
        f"{getpass.getuser()}@127.0.0.1",
    ]  # fmt: skip
    until = time.monotonic() + 120
    while subprocess.run([*client, "true"], capture_output=True).returncode:
        assert time.monotonic() < until, (folder / "log").read_text()
        time.sleep(0.2)
    yield client
    process.terminate()
    process.wait()


def test_a_task_runs_over_ssh_and_its_reports_come_back(
    sshd: list[str], profilers: Path, cli: Cli, tmp_path: Path
) -> None:
    there = tmp_path / "there's a blank"
    # The other side finds the profilers on its own PATH.
    through = [*sshd, f"PATH={profilers}:$PATH;"]
    path = _workload(tmp_path, f'{{kind: ssh, wrapper: {through}, directory: "{there}"}}')
    assert cli("run", path, "--collector", "all") == 0, cli.err
    (run,) = Store(tmp_path / "store").runs()
    (task,) = run.tasks
    assert task.times_ms == (2.5,)
    assert task.timing_method == str(there)
    assert len(task.reports) == 2
    assert task.gpu_state and task.gpu_state.missing
    folder = next((tmp_path / "store" / "runs").glob("*/tasks/*"))
    assert (folder / "nsys.nsys-rep").read_text() == "recorded"
    assert (folder / "ncu.ncu-rep").read_bytes() == (profilers / "capture.ncu-rep").read_bytes()
    written = (profilers / "ncu.log").read_text()
    scratch = next(w.partition("=")[2] for w in written.split() if w.startswith("--export="))
    assert Path(scratch).parent != folder
    assert not Path(scratch).parent.exists(), "nothing is left on the other side"


def test_faults_of_the_other_side(
    sshd: list[str], profilers: Path, cli: Cli, tmp_path: Path
) -> None:
    there = tmp_path / "there's a blank"
    path = _workload(tmp_path, f'{{kind: ssh, wrapper: {sshd}, directory: "{there}"}}')
    assert cli("run", path, "--collector", "ncu") == 5
    assert "ncu was not found on PATH" in cli.err
    through = [*sshd, f"PATH={profilers}:$PATH;"]
    (profilers / "FAULT").write_text("permission")
    path = _workload(tmp_path, f'{{kind: ssh, wrapper: {through}, directory: "{there}"}}')
    assert cli("run", path, "--collector", "ncu") == 1
    assert "only administrators" in cli.err
    (profilers / "FAULT").write_text("nothing")
    assert cli("run", path, "--collector", "ncu") == 1
    assert "did not write ncu.ncu-rep" in cli.err
    path = _workload(tmp_path, f"{{kind: ssh, wrapper: {sshd}, directory: /nowhere}}")
    assert cli("run", path, "--collector", "timing") == 1
    assert "/nowhere" in cli.err
    closed = [word if word != sshd[2] else "1" for word in sshd]
    path = _workload(tmp_path, f'{{kind: ssh, wrapper: {closed}, directory: "{there}"}}')
    assert cli("run", path, "--collector", "timing") == 1
    assert "refused" in cli.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_what_runs_there_ends_with_a_run_that_is_ended(
    number: signal.Signals, sshd: list[str], tmp_path: Path
) -> None:
    """A tree of processes in sessions of their own, one of which does not heed SIGTERM."""
    path = _workload(tmp_path, f"{{kind: ssh, wrapper: {sshd}}}")
    there = tmp_path / "there's a blank"
    (there / "program.py").write_text(
        "import os, subprocess, sys\n"
        "deaf = ['setsid', 'sh', '-c', 'trap \"\" TERM; sleep 9000; sleep 9000']\n"
        "subprocess.Popen(deaf, stdout=2)\n"
        "subprocess.Popen(['sleep', '9000'], stdout=2)\n"
        "open('started', 'w').close()\n"
        "subprocess.run(['sleep', '9000'], stdout=2)\n"
    )
    mark = f"MARK={uuid.uuid4().hex}"
    text = path.read_text().replace('MS: "2.5"', mark.replace("=", ": "))
    path.write_text(text + f'cwd: "{there}"\n')
    words = ["run", str(path), "--collector", "timing", "--store", str(tmp_path / "store")]
    process = subprocess.Popen(
        [*PERFPIPE, *words], stderr=subprocess.PIPE, text=True, preexec_fn=heed_signals
    )

    def left() -> list[str]:
        found = []
        for file in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark.encode() in file.read_bytes().split(b"\0"):
                    found.append(file.parent.name)
        return found

    until = time.monotonic() + 120
    while not (there / "started").exists() or len(left()) < 5:
        assert time.monotonic() < until and process.poll() is None, process.communicate()
        time.sleep(0.1)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=120)
    if number == signal.SIGTERM:
        assert process.returncode == 143
        assert stderr.splitlines()[-1].startswith("perfpipe: ended by SIGTERM; to continue: ")
    while left():
        assert time.monotonic() < until
        time.sleep(0.1)


def test_without_a_gpu_there_the_recording_is_replayed(
    sshd: list[str], cli: Cli, tmp_path: Path
) -> None:
    path = _workload(tmp_path, f"{{kind: ssh, wrapper: {sshd}}}")
    assert cli("run", path) == 2
    assert "no GPU found, and the workload has no recording" in cli.err


@pytest.mark.parametrize("kind", ["local", "srun"])
def test_a_plain_wrapper_stands_before_the_profiler(
    kind: str, profilers: Path, cli: Cli, tmp_path: Path
) -> None:
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(f'#!/bin/sh\necho "$@" >> "{tmp_path}/wrapped"\nexec "$@"\n')
    wrapper.chmod(0o755)
    there = tmp_path / "there's a blank"
    path = _workload(tmp_path, f'{{kind: {kind}, wrapper: [{wrapper}], directory: "{there}"}}')
    assert cli("run", path, "--collector", "all") == 0, cli.err
    (task,) = Store(tmp_path / "store").runs()[0].tasks
    assert task.times_ms == (2.5,)
    assert len(task.reports) == 2
    lines = (tmp_path / "wrapped").read_text().splitlines()
    assert any(f"{profilers}/nsys profile" in line for line in lines)
    assert any(f"{profilers}/ncu --force-overwrite" in line for line in lines)


def test_a_kind_needs_its_wrapper(cli: Cli, tmp_path: Path) -> None:
    assert cli("run", _workload(tmp_path, "{kind: ssh}")) == 2
    assert "kind: ssh needs a wrapper" in cli.err


def test_programs_of_the_other_side_are_found(tmp_path: Path) -> None:
    wrapper = tmp_path / "wrapper"
    wrapper.write_text('#!/bin/sh\nexec "$@"\n')
    wrapper.chmod(0o755)
    launcher = Launcher(Execution(kind="srun", wrapper=[str(wrapper)]), tmp_path)
    assert launcher.which(["no-such-program", "sh"]) == shutil.which("sh")
    assert launcher.which(["/usr/bin/en*"]) is not None
    assert launcher.which(["no-such-program", "/nowhere/*/nsys"]) is None
