"""perfpipe attach: a program that already runs is looked at, and goes on."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import fakenvml
import pytest
from conftest import ROOT, Cli, lacking
from fakenvml import Gpu
from running_programs import Start, goes_on, native, until

from perfpipe.errors import TaskFailed
from perfpipe.pipelines.attaching import kineto_signal, stacks
from perfpipe.pipelines.attaching.kineto_signal import refusal
from perfpipe.pipelines.attaching.target import Target, find, stat_of, target_of
from perfpipe.pipelines.attaching.ways import Prepared, Subject
from perfpipe.pipelines.collectors import pyspy
from perfpipe.store import Store
from perfpipe.verify import verify

#: Time for which programs are looked at, s.
SHORT = "--duration=1"


def _spy() -> None:
    if pyspy.find() is None or pyspy._is_restricted():
        pytest.skip("py-spy cannot sample the processes of this machine")


def test_the_line_in_which_a_program_spends_its_time(
    cli: Cli, loop: subprocess.Popen[str], tmp_path: Path, store: Store
) -> None:
    _spy()
    assert cli("attach", str(loop.pid), "--duration=2", "--json") == 0, cli.err
    said = json.loads(cli.out)
    assert re.match(r"In [12][.\d]* s, .* in train\.py:6 load\(\)", said["answer"])
    assert said["process"]["pid"] == loop.pid and said["process"]["running"]
    used = {way["name"]: way["used"] for way in said["ways"]}
    assert used["stacks"] and used["/proc and NVML"] and not used["nsys session"]
    assert goes_on(tmp_path)
    # It is a run like any other.
    (run,) = store.runs()
    assert (run.collector, run.status, run.workload) == ("attach", "done", "train")
    assert cli("ls") == 0
    assert "train.py:6 load()" in cli.out
    assert cli("report", "@1", "--md", "-") == 0
    assert "Time of the host by line" in cli.out and "Processes of the program" in cli.out
    sql = "SELECT function, share_pct FROM host_code WHERE rank = 1 AND tid = pid"
    assert cli("query", sql, "--format", "json") == 0
    (row,) = json.loads(cli.out)["rows"]
    assert row["function"] == "load" and row["share_pct"] > 50
    assert cli("query", "SELECT cpu_pct, threads FROM process_use", "--format", "json") == 0
    (row,) = json.loads(cli.out)["rows"]
    assert 0 <= row["cpu_pct"] < 150 and row["threads"] == 1
    assert [fault for _, fault in verify(store) if fault] == []


def test_the_gpus_of_a_program_are_those_that_nvml_shows(
    cli: Cli, loop: subprocess.Popen[str], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPU 0 is used by another program alone."""
    gpus = [Gpu(load_pct=lambda _: 99), Gpu(load_pct=lambda _: 31)]
    fakenvml.install(monkeypatch, gpus)
    used = {0: (1, 8 << 30), 1: (loop.pid, 3 << 30)}

    def processes(handle: int) -> list[SimpleNamespace]:
        pid, size = used[handle]
        return [SimpleNamespace(pid=pid, usedGpuMemory=size)]

    monkeypatch.setattr("pynvml.nvmlDeviceGetComputeRunningProcesses", processes)
    assert cli("attach", str(loop.pid), SHORT, "--json") == 0, cli.err
    assert "the GPU was busy 31 % (NVML, all programs)" in json.loads(cli.out)["answer"]
    assert cli("query", "FROM gpu_use", "--format", "json") == 0
    (row,) = json.loads(cli.out)["rows"]
    assert (row["device"], row["busy_pct"], row["program_bytes"]) == (1, 31, 3 << 30)
    assert (row["power_w"], row["memory_bytes"], row["name"]) == (100, None, "NVIDIA H200")


def test_a_native_program_has_counters_and_the_answer_says_what_is_not_seen(
    cli: Cli, start: Start, tmp_path: Path
) -> None:
    program = start(native(tmp_path))
    assert cli("attach", str(program.pid), SHORT) == 0, cli.err
    assert "CPU cores" in cli.out
    said = " ".join(cli.out.split())
    assert "stacks was not used: no process of it is Python" in said
    assert "perfpipe run --detach -- PROGRAM" in said and "KINETO_USE_DAEMON=1" in said
    assert program.poll() is None


def test_a_program_that_ends_meanwhile_is_an_answer(
    cli: Cli, start: Start, tmp_path: Path, store: Store
) -> None:
    script = tmp_path / "short.py"
    script.write_text("import time\nprint('runs', flush=True)\ntime.sleep(1.5)\n")
    program = start(sys.executable, script)
    # Nothing of the test may wait for it: it would stay in the list of processes.
    threading.Thread(target=program.wait, daemon=True).start()
    began = time.monotonic()
    assert cli("attach", str(program.pid), "--duration=600", "--json") == 0, cli.err
    assert time.monotonic() - began < 300
    said = json.loads(cli.out)
    assert not said["process"]["running"]
    assert any("the program ended" in note for note in said["run"]["tasks"][0]["notes"])
    assert store.runs()[0].status == "done"


def _perfpipe(*words: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "perfpipe", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PERFPIPE_STORE": str(folder / "store")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def _children(pid: int) -> set[int]:
    return {own.pid for own in target.tree()} - {pid} if (target := target_of(pid)) else set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_attach_leaves_the_program_alone(
    number: int, loop: subprocess.Popen[str], tmp_path: Path, store: Store, cli: Cli
) -> None:
    attach = _perfpipe("attach", str(loop.pid), "--duration=600", folder=tmp_path)
    assert until(lambda: list(store.runs_dir.glob("*/tasks/*")))
    if pyspy.find():
        assert until(lambda: len(_children(attach.pid)) >= 2)
    helpers = [one for pid in _children(attach.pid) if (one := target_of(pid))]
    attach.send_signal(number)
    _, said = attach.communicate(timeout=120)
    assert attach.returncode == (-number if number == signal.SIGKILL else 128 + number)
    if number != signal.SIGKILL:
        assert "; the program continues" in said
    assert until(lambda: not any(one.alive for one in helpers))
    assert loop.poll() is None and goes_on(tmp_path)
    # The next command says what became of the run.
    assert cli("attach", str(loop.pid), SHORT, "--no-timeline") == 0
    assert sorted(run.status for run in store.runs()) == ["done", "interrupted"]


def test_what_no_program_is_or_what_must_not_be_looked_at(
    cli: Cli, tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    zombie = subprocess.Popen([sys.executable, "-c", ""])
    assert until(lambda: (stat := stat_of(zombie.pid)) and stat.ended)
    waiting = threading.Event()
    thread = threading.Thread(target=waiting.wait)
    thread.start()
    free = int(Path("/proc/sys/kernel/pid_max").read_text()) + 1
    for pid, sentence in (
        (str(zombie.pid), "has ended; its parent has not collected it"),
        (str(free), "on this machine: it has ended, or runs elsewhere"),
        (str(os.getpid()), "is perfpipe itself"),
        (str(thread.native_id), f"is a thread of process {os.getpid()}: attach to {os.getpid()}"),
        ("@1", "no run @1"),
        ("9" * 30, "it has ended, or runs elsewhere"),
    ):
        assert cli("attach", pid) == 2, pid
        assert sentence in cli.err and cli.err.count("\n") == 1
    waiting.set()
    thread.join()
    zombie.wait()
    if (stat := stat_of(2)) and stat.of_kernel:
        assert cli("attach", "2") == 2
        assert "is a thread of the kernel" in cli.err
    assert cli("attach") == 2 and cli("attach", "1", "--job", "2") == 2
    assert cli("attach", str(os.getppid()), "--duration=0") == 2
    # Processes of other users.
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    assert cli("attach", str(os.getppid())) == 2
    assert "only this user, or root, can attach to it" in cli.err
    assert not store.root.exists()


def test_a_later_process_with_the_same_id_is_another_one(loop: subprocess.Popen[str]) -> None:
    own = find(loop.pid)
    assert own.alive
    other = Target(own.pid, own.started - 1, own.uid, own.name, own.command)
    assert not other.alive
    loop.kill()
    # It is not alive although its parent has not collected it yet.
    assert until(lambda: (stat := stat_of(own.pid)) and stat.ended)
    assert not own.alive
    loop.wait()
    assert not own.alive and own.tree() == []


def test_py_spy_that_may_not_read_is_one_sentence(
    cli: Cli, loop: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = tmp_path / "py-spy"
    denied.write_text("#!/bin/sh\necho 'Error: Permission Denied' >&2\nexit 1\n")
    denied.chmod(0o755)
    monkeypatch.setattr(pyspy, "find", lambda: str(denied))
    assert cli("attach", str(loop.pid), SHORT) == 0, cli.err
    said = " ".join(cli.out.split())
    assert "stacks was not used: py-spy may not read the memory of the program" in said
    assert "kernel.yama.ptrace_scope=0" in said and "sudo" not in said
    monkeypatch.setattr(pyspy, "find", lambda: None)
    subject = Subject(find(loop.pid), [find(loop.pid)], Prepared())
    assert stacks.why_not(subject) == pyspy.MISSING


def test_sigusr2_is_sent_only_to_programs_that_expect_it(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any other program would be killed, or do something else."""
    monkeypatch.setattr(kineto_signal, "REQUEST", tmp_path / "request.conf")
    library = tmp_path / "libtorch_cpu.so"
    if shutil.which("cc") is None:
        lacking("there is no C compiler")
    for folder, function in (("torch", "handleOnDemandSignal"), ("later", "other")):
        (tmp_path / folder).mkdir()
        source = tmp_path / folder / "torch.c"
        source.write_text(f"int {function}(void) {{ return 0; }}\n")
        library = tmp_path / folder / "libtorch_cpu.so"
        subprocess.run(["cc", "-shared", "-fPIC", source, "-o", library], check=True)
    config = tmp_path / "kineto.conf"
    config.write_text("ENABLE_SIGUSR2=YES\n")
    quiet = tmp_path / "quiet.conf"
    quiet.write_text("# ENABLE_SIGUSR2=YES\n")
    bare, handling = native(tmp_path / "bare"), native(tmp_path / "handling", "-DHANDLER")
    linked = f"{tmp_path}/torch/libtorch_cpu.so"
    for program, env, why in (
        (bare, {}, "the program was not prepared for it"),
        (handling, {"LD_PRELOAD": linked}, "the program was not prepared for it"),
        (handling, {"KINETO_CONFIG": str(tmp_path / "none")}, "cannot read"),
        (handling, {"KINETO_CONFIG": str(quiet), "LD_PRELOAD": linked}, "does not say"),
        (bare, {"KINETO_CONFIG": str(config), "LD_PRELOAD": linked}, "which would kill it"),
        (handling, {"KINETO_CONFIG": str(config)}, "it has not loaded PyTorch"),
        (
            handling,
            {"KINETO_CONFIG": str(config), "LD_PRELOAD": f"{tmp_path}/later/libtorch_cpu.so"},
            "does not react to SIGUSR2",
        ),
        (handling, {"KINETO_CONFIG": str(config), "LD_PRELOAD": linked}, None),
    ):
        running = start(program, **env)
        said = refusal(find(running.pid))
        assert (why is None and said is None) or (why and said and why in said), (env, said)
        if why is None:
            continue
        # Neither does a process that has its id now.
        with pytest.raises(TaskFailed, match="has ended, or no longer handles SIGUSR2"):
            kineto_signal._send(Target(running.pid, 1, 0, "", ()))
        assert running.poll() is None
    # The last one gets it, and lives.
    target = find(running.pid)
    kineto_signal._send(target)
    assert running.stdout is not None and running.stdout.readline() == "heard\n"
    kineto_signal.REQUEST.write_text("another's")
    assert "belongs to another request" in (refusal(target) or "")
