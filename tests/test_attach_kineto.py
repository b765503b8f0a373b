"""Kineto's on-demand traces: perfpipe attach in the place of PyTorch's daemon."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import DATA, Cli, lacking
from running_programs import Start, goes_on, until

from perfpipe.pipelines.attaching import kineto_signal
from perfpipe.pipelines.attaching.kineto import client_of
from perfpipe.pipelines.attaching.target import find
from perfpipe.store import Store

#: A program that asks for a configuration as libkineto does, several times a second, and writes a
#: trace.  Its answers go to a file.  BUSY lets it say that it is profiling itself.
CLIENT = """
import os, shutil, socket, struct, sys, time
folder, trace, answers, busy = sys.argv[1:]
me = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
me.bind(f"{folder}/dynoconfigclient-{os.getpid()}")
me.settimeout(0.1)
print("runs", flush=True)
request = struct.pack("=iiqi", 1 if busy else 3, 1, 0, os.getpid())
while True:
    time.sleep(0.1)
    try:
        me.sendto(struct.pack("=Q32s", len(request), b"req") + request, f"{folder}/dynolog")
        size, kind = struct.unpack_from("=Q32s", answer := me.recv(4096))
    except OSError:
        continue
    said = dict(line.split("=") for line in answer[40:40 + size].decode().splitlines())
    open(answers, "a").write(f"{kind.rstrip(bytes(1)).decode()} {' '.join(said)}\\n")
    if said:
        path = said["ACTIVITIES_LOG_FILE"].replace(".json", f"_{os.getpid()}.json")
        shutil.copyfile(trace, path + ".tmp")
        os.rename(path + ".tmp", path)
"""

#: A program that reacts to SIGUSR2 as older versions of libkineto do.
SIGNALED = """
import os, shutil, signal, sys, time
request, trace = sys.argv[1:]
def react(*_):
    said = dict(line.split("=") for line in open(request).read().splitlines())
    path = said["ACTIVITIES_LOG_FILE"].replace(".json", f"_{os.getpid()}.json")
    shutil.copyfile(trace, path + ".tmp")
    os.rename(path + ".tmp", path)
signal.signal(signal.SIGUSR2, react)
print("runs", flush=True)
while True:
    time.sleep(0.1)
"""

TORCH = """
import sys, time, torch
from pathlib import Path
x = torch.randn(64, 64)
count = 0
while True:
    (x @ x).relu().sum()
    time.sleep(0.005)
    count += 1
    Path(sys.argv[1]).write_text(str(count))
"""


@pytest.fixture
def sockets() -> Iterator[str]:
    """A directory whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield folder


@pytest.fixture
def client(start: Start, tmp_path: Path, sockets: str) -> Iterator[list[str]]:
    """The words of a program that asks."""
    trace = tmp_path / "trace.json"
    trace.write_bytes(gzip.decompress((DATA / "torch/train_step.kineto.json.gz").read_bytes()))
    (tmp_path / "client.py").write_text(CLIENT)
    yield [sys.executable, str(tmp_path / "client.py"), sockets, str(trace)]


def test_a_pytorch_program_is_traced_on_demand(
    cli: Cli, tmp_path: Path, store: Store, needs_torch: None
) -> None:
    (tmp_path / "train.py").write_text(TORCH)
    # The default is 5 s.
    (tmp_path / "kineto.conf").write_text("ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=1\n")
    options = [
        "--detach",
        "--json",
        "--collector=torch",
        "--env",
        f"KINETO_CONFIG={tmp_path}/kineto.conf",
    ]
    words = [sys.executable, str(tmp_path / "train.py"), str(tmp_path / "count")]
    assert cli("run", *options, "--", *words, report=True) == 0, cli.err
    said = json.loads(cli.out)
    run_id, pid = said["run"]["run_id"], said["pid"]
    try:
        assert goes_on(tmp_path) and until(lambda: client_of(find(pid)))
        assert cli("attach", run_id, "--duration=1", "--json") == 0, cli.err
        found = json.loads(cli.out)
        assert {way["name"] for way in found["ways"] if way["used"]} >= {"Kineto", "/proc and NVML"}
        reports = store.run(found["run"]["run_id"]).reports
        assert sorted(store.manifest(report).kind for report in reports) == ["attached", "torch"]
        (torch,) = (own for own in reports if store.manifest(own).kind == "torch")
        sql = "SELECT count(*) AS n FROM nvtx_ranges WHERE name = 'aten::mm'"
        assert cli("query", "--report", torch, sql, "--format", "json") == 0
        assert json.loads(cli.out)["rows"][0]["n"] > 0
        assert goes_on(tmp_path)
        assert (store.runs_dir / run_id / "tasks/000-detach/plain.err").read_text() == ""
    finally:
        os.kill(pid, signal.SIGKILL)
    assert until((store.runs_dir / run_id / "end.json").exists)
    assert cli("ls") == 0


def test_a_program_that_expects_sigusr2_is_traced(
    cli: Cli, start: Start, tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("cc") is None:
        lacking("there is no C compiler")
    request, trace = tmp_path / "libkineto.conf", tmp_path / "trace.json"
    monkeypatch.setattr(kineto_signal, "REQUEST", request)
    trace.write_bytes(gzip.decompress((DATA / "torch/train_step.kineto.json.gz").read_bytes()))
    (tmp_path / "torch.c").write_text("int handleOnDemandSignal(void) { return 0; }\n")
    library = tmp_path / "libtorch_cpu.so"
    subprocess.run(["cc", "-shared", "-fPIC", tmp_path / "torch.c", "-o", library], check=True)
    (tmp_path / "kineto.conf").write_text("ENABLE_SIGUSR2=YES\n")
    (tmp_path / "program.py").write_text(SIGNALED)
    env = {"KINETO_CONFIG": str(tmp_path / "kineto.conf"), "LD_PRELOAD": str(library)}
    program = start(sys.executable, tmp_path / "program.py", request, trace, **env)
    assert cli("attach", str(program.pid), "--duration=1") == 0, cli.err
    assert "Kineto by SIGUSR2: shows kernels" in " ".join(cli.out.split())
    reports = store.runs()[0].reports
    assert sorted(store.manifest(report).kind for report in reports) == ["attached", "torch"]
    assert program.poll() is None and not request.exists()


def test_only_the_attached_process_gets_a_configuration_and_only_once(
    cli: Cli, start: Start, client: list[str], tmp_path: Path, store: Store, sockets: str
) -> None:
    other = start(*client, str(tmp_path / "other"), "")
    own = start(*client, str(tmp_path / "own"), "")
    # A daemon that was killed leaves its socket.
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stale:
        stale.bind(f"{sockets}/dynolog")
    assert cli("attach", str(own.pid), "--duration=1") == 0, cli.err
    assert "Kineto: shows kernels" in " ".join(cli.out.split())
    answers = [line for line in (tmp_path / "own").read_text().splitlines() if line.split()[1:]]
    keys = "ACTIVITIES_LOG_FILE PROFILE_START_TIME ACTIVITIES_DURATION_MSECS"
    assert answers == [f"req {keys} ACTIVITIES_WARMUP_PERIOD_SECS"]
    assert {*(tmp_path / "other").read_text().splitlines()} == {"req "}
    (run,) = store.runs()
    assert sorted(store.manifest(report).kind for report in run.reports) == ["attached", "torch"]
    assert other.poll() is None and own.poll() is None
    assert not Path(sockets, "dynolog").exists()


def test_an_empty_trace_is_no_report(
    cli: Cli, start: Start, client: list[str], tmp_path: Path, store: Store
) -> None:
    (tmp_path / "trace.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    own = start(*client, str(tmp_path / "own"), "")
    assert cli("attach", str(own.pid), "--duration=1") == 0, cli.err
    assert f"note: process {own.pid} used no PyTorch meanwhile" in " ".join(cli.out.split())
    assert len(store.runs()[0].reports) == 1


def test_a_daemon_is_left_alone(
    cli: Cli, start: Start, client: list[str], tmp_path: Path, sockets: str
) -> None:
    program = start(*client, str(tmp_path / "own"), "")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as daemon:
        daemon.bind(f"{sockets}/dynolog")
        assert cli("attach", str(program.pid), "--duration=1") == 0, cli.err
        said = " ".join(cli.out.split())
        assert "Kineto was not used: a daemon serves the PyTorch processes" in said
        assert "dyno gputrace --pids PID" in said
        daemon.settimeout(60)
        assert daemon.recv(4096)


def test_a_program_that_profiles_itself(
    cli: Cli, start: Start, client: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfpipe.pipelines.attaching.kineto._ASKING_S", 1.0)
    program = start(*client, str(tmp_path / "own"), "busy")
    assert cli("attach", str(program.pid), "--duration=1") == 0, cli.err
    assert "PyTorch is profiling itself (waited for 1 s)" in " ".join(cli.out.split())
    assert program.poll() is None
