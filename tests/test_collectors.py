"""Options of the profilers, what programs say, launches that go wrong, and the state of the GPU."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, Cli, lacking
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.errors import TaskFailed, ToolMissing
from perfpipe.pipelines import tools
from perfpipe.pipelines.collectors import ncu, nsys, nvml
from perfpipe.pipelines.process import KEPT_OUTPUT, run
from perfpipe.pipelines.protocol import ProgramOutput
from perfpipe.pipelines.workload import CollectNcu, CollectNsys, CollectNvml
from perfpipe.runrecord import Spread, Validation
from perfpipe.store import Store

PROGRAM = """
import json, os, sys, time
kind = sys.argv[1]
def say(what, **more): print(json.dumps({"perfpipe": what, **more}), flush=True)
if kind == "garbage":
    sys.stdout.buffer.write(bytes(range(256)) * 50 + b"\\n{not json}\\n[1]\\n{\\"perfpipe\\": 3}\\n")
    sys.stdout.buffer.write(b'{"perfpipe": "other", "ms": "x"}\\n' + b"[" * 9999 + b"\\n")
    sys.stdout.flush()
say("validation", ok=kind != "wrong", max_abs_error=0.5)
if kind == "crash":
    os.abort()
if kind == "hang":
    time.sleep(60)
if kind == "oor":
    say("out_of_resources", reason="shared memory: 300 KB, limit 227 KB")
    sys.exit(4)
if kind == "endless":
    line = "x" * 1000 + "\\n"
    for _ in range(30000): sys.stdout.write(line)
if kind == "fills":
    with open(sys.argv[2] + "/big", "wb") as file:
        while True: file.write(bytes(1 << 20))
say("time", ms=[3.0, 1.0, 2.0], method="queued")
"""


@pytest.fixture
def workload(tmp_path: Path) -> Callable[..., Path]:
    (tmp_path / "program.py").write_text(PROGRAM)

    def write(kinds: str, more: str = "") -> Path:
        path = tmp_path / "w.yaml"
        text = f"""
            version: 1
            name: w
            command: ["{{python}}", program.py, "{{kind}}"]
            matrix: {{kind: {kinds}}}
            timeout: 8
            collect: {{nsys: {{}}, ncu: {{launch_count: 3}}}}
            """
        path.write_text(textwrap.dedent(text) + more)
        return path

    return write


def test_options_of_nsys() -> None:
    assert "--capture-range" not in " ".join(nsys.profile_options(CollectNsys()))
    words = nsys.profile_options(
        CollectNsys(
            trace=["cuda", "osrt"], cuda_graph_trace="graph", capture_range="nvtx", nvtx="step 3",
            gpu_metrics=True, cuda_memory_usage=True, page_faults=True, duration=2.5,
            options=["--delay=1"],
        )
    )  # fmt: skip
    assert words == [
        "--trace=cuda,osrt", "--cuda-graph-trace=graph", "--sample=none", "--cpuctxsw=none",
        "--force-overwrite=true", "--capture-range=nvtx", "--capture-range-end=stop",
        "--nvtx-capture=step 3", "--gpu-metrics-devices=all", "--cuda-memory-usage=true",
        "--cuda-um-cpu-page-faults=true", "--cuda-um-gpu-page-faults=true", "--duration=2.5", "--delay=1",
    ]  # fmt: skip


def test_options_of_ncu() -> None:
    words = ncu.profile_options(
        CollectNcu(
            set="full", sections=["SourceCounters"], metrics=["a.sum", "b.max"], kernels="^gemm",
            nvtx="iteration 0/", launch_count=3, launch_skip=2, clock_control="none",
            cache_control="none", replay_mode="application", graph_profiling="graph",
            import_source=True, capture_range="cudaProfilerApi", options=["--verbose"],
        )
    )  # fmt: skip
    assert words == [
        "--force-overwrite", "--set=full", "--clock-control=none", "--cache-control=none",
        "--replay-mode=application", "--graph-profiling=graph", "--target-processes=all", "--nvtx",
        "--section=SourceCounters", "--metrics=a.sum,b.max", "--kernel-name=regex:^gemm",
        "--nvtx-include=iteration 0/", "--launch-skip=2", "--launch-count=3", "--import-source=yes",
        "--profile-from-start=off", "--verbose",
    ]  # fmt: skip


def test_each_launch_is_its_own(
    workload: Callable[..., Path], profilers: Path, cli: Cli, tmp_path: Path
) -> None:
    """The program is launched plain, under nsys and under ncu, and told by which."""
    (tmp_path / "program.py").write_text(
        "import os, pathlib, sys\n"
        f"with open({str(tmp_path / 'launches')!r}, 'a') as file:\n"
        "    file.write(os.environ['PERFPIPE_COLLECTOR'] + '\\n')\n"
    )
    assert cli("run", workload("[good]", "launches: 2\n"), "--collector", "all") == 0
    assert (tmp_path / "launches").read_text().split() == ["plain", "plain", "nsys", "ncu"]
    (exported,) = [line for line in (profilers / "nsys.log").open() if line.startswith("export")]
    assert "--include-blobs=true" in exported


def test_what_goes_wrong_is_one_sentence_and_the_rest_stays(
    workload: Callable[..., Path], profilers: Path, cli: Cli, tmp_path: Path
) -> None:
    path = workload("[good, wrong, crash, hang, oor, garbage, endless]")
    assert cli("run", path, "--collector", "ncu") == 1
    assert "4 of 7 tasks failed" in cli.err
    tasks = {t.params["kind"]: t for t in Store(tmp_path / "store").runs()[0].tasks}
    assert {kind: task.failure for kind, task in tasks.items()} == {
        "good": None,
        "wrong": "wrong_result",
        "crash": "crash",
        "hang": "timeout",
        "oor": "out_of_resources",
        "garbage": None,
        "endless": None,
    }
    assert "the program was killed by SIGABRT" in str(tasks["crash"].error)
    assert "the program took longer than 8 s and was killed" in str(tasks["hang"].error)
    assert "limit 227 KB" in str(tasks["oor"].error)
    assert tasks["garbage"].times_ms == (3.0, 1.0, 2.0)
    assert tasks["endless"].times_ms == (3.0, 1.0, 2.0)
    assert all("\n" not in (task.error or "") for task in tasks.values())
    assert len(tasks["good"].reports) == 1
    kept = max(p.stat().st_size for p in tmp_path.rglob("plain.out"))
    assert kept <= KEPT_OUTPUT + 100


def test_a_profiler_that_fails_takes_nothing_from_the_others(
    workload: Callable[..., Path], profilers: Path, cli: Cli, tmp_path: Path
) -> None:
    (profilers / "ncu").write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo 2025.3.1 && exit 0\n'
        "echo '==ERROR== ERR_NVGPUCTRPERM'; exit 1\n"
    )
    assert cli("run", workload("[good]"), "--collector", "all") == 1
    assert "only administrators" in cli.err
    (task,) = Store(tmp_path / "store").runs()[0].tasks
    assert task.times_ms == (3.0, 1.0, 2.0)
    assert len(task.reports) == 1
    assert task.failure == "profiler"


def test_a_full_disk_is_said_and_what_was_done_stays(
    workload: Callable[..., Path], profilers: Path, cli: Cli, tmp_path: Path
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True).returncode:
        lacking("mounting a tmpfs needs root")
    try:
        path = workload("[good, fills]")
        path.write_text(path.read_text().replace('"{kind}"]', f'"{{kind}}", "{small}"]'))
        assert cli("run", path, "--collector", "ncu") == 1
        assert "the disk is full" in cli.err
        good, fills = Store(tmp_path / "store").runs()[0].tasks
        assert good.status == "done"
        assert fills.failure == "crash"
        (small / "big").unlink()
        assert cli("run", path, "--collector", "ncu", "--store", small / "store") in (1, 2)
        assert "No space left" in cli.err or "disk is full" in cli.err
        assert not [p for p in small.rglob(".tmp-*") if p.is_dir()]
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_tools_that_are_too_old_or_missing(
    workload: Callable[..., Path], profilers: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    (profilers / "ncu").write_text("#!/bin/sh\necho Version 2020.3.1\n")
    assert cli("run", workload("[good]"), "--collector", "ncu") == 5
    assert "ncu 2020.3.1 is too old: Nsight Compute 2022.1 or newer is needed" in cli.err
    (profilers / "ncu").unlink()
    monkeypatch.setattr(tools, "_PLACES", {"nsys": (), "ncu": ()})
    tools.find_tool.cache_clear()
    assert cli("run", workload("[good]"), "--collector", "all") == 5
    assert "ncu was not found" in cli.err
    assert not (profilers / "nsys.log").exists(), "nothing is launched where a tool is missing"


def test_a_program_that_is_not_there(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text("version: 1\nname: w\ncommand: [no-such-program]\n")
    assert cli("run", path, "--collector", "timing") == 5
    assert "no-such-program: no such program" in cli.err
    path.write_text("version: 1\nname: w\ncommand: [echo]\ncwd: nowhere\n")
    assert cli("run", path, "--collector", "timing") == 5
    assert "nowhere: no such directory" in cli.err


def test_output_of_a_child_that_outlives_the_program_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("perfpipe.pipelines.process._LINGER_S", 0.5)
    finished = run(["sh", "-c", "echo begun; sleep 300 & exit 0"])
    assert finished.ok
    assert finished.stdout == "begun\n"
    assert finished.seconds < 30


def test_a_name_with_a_null_byte_is_no_traceback() -> None:
    with pytest.raises(TaskFailed, match="cannot start"):
        run(["echo", "a\0b"])
    with pytest.raises(ToolMissing, match="no such program"):
        run(["/nowhere/program"])


@given(st.text() | st.recursive(st.none() | st.floats() | st.text(), lambda x: st.lists(x)
       | st.dictionaries(st.sampled_from(["perfpipe", "ms", "ok"]), x)).map(json.dumps))  # fmt: skip
def test_nothing_that_a_program_prints_breaks_the_reader(line: str) -> None:
    said = ProgramOutput()
    said.feed(line)
    assert all(ms > 0 for ms in said.times_ms)


@pytest.mark.parametrize(
    "printed",
    [
        *(f'"ms": [1, {ms}]' for ms in ("0", "-1.5", "NaN", "Infinity", '"fast"', "true", "[1]")),
        *(f'"ms": {ms}' for ms in ("[]", "0", "1e400", '"5.0"', "null")),
        '"time": [1]',
    ],
)
def test_a_time_that_is_none_is_a_failure(printed: str, cli: Cli, tmp_path: Path) -> None:
    text = f'{{"perfpipe": "time", {printed}}}'
    (tmp_path / "program.py").write_text(f"print({text!r})")
    assert cli("run", "--collector", "timing", "--", "python3", "program.py") == 1
    assert "a time is a number of ms above 0" in cli.err
    ((task,),) = (run.tasks for run in Store(tmp_path / "store").runs())
    assert (task.status, task.failure, task.times_ms) == ("failed", "invalid_time", ())


def test_a_single_time_needs_no_list() -> None:
    said = ProgramOutput()
    said.feed('{"perfpipe": "time", "ms": 5}')
    assert (said.times_ms, said.invalid_times) == ([5.0], [])


def test_a_wrong_rank_counts() -> None:
    said = ProgramOutput()
    for ok in (True, False, True):
        said.feed(json.dumps({"perfpipe": "validation", "ok": ok}))
    assert said.validation == Validation(ok=False)


@pytest.mark.usefixtures("needs_torch")
def test_torch_profiler_traces_a_python_program(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import json, os\n"
        "if os.environ['PERFPIPE_COLLECTOR'] == 'torch':\n"
        "    import torch\n"
        "    torch.ones(8) @ torch.ones(8)\n"
        "print(json.dumps({'perfpipe': 'time', 'ms': [1.0]}))\n"
    )
    path = tmp_path / "w.yaml"
    path.write_text(
        'version: 1\nname: w\ncommand: ["{python}", program.py]\ncollect: {torch: {}}\n'
    )
    assert cli("run", path, "--collector", "torch") == 0, cli.err
    (report,) = Store(tmp_path / "store").manifests()
    assert report.kind == "torch"
    path.write_text("version: 1\nname: w\ncommand: [echo, a]\ncollect: {torch: {}}\n")
    assert cli("run", path, "--collector", "torch") == 1
    assert "needs a command with a Python interpreter" in cli.err


def test_the_state_of_the_gpu_is_summed_up() -> None:
    state = nvml.Samples()
    for busy, mhz, reasons in ((0, 345, 1), (90, 1980, 0), (95, 1500, 0x4 | 0x20), (99, 1600, 0x4)):
        state.samples.append({"ms": 1.0, "gpu": 0, "gpu_pct": busy, "sm_mhz": mhz,
                              "power_w": None, "reasons": reasons})  # fmt: skip
    (gpu,) = state.summary().gpus
    assert gpu.sm_mhz == Spread(1500, 1600, 1980)
    assert gpu.busy_samples == 3
    assert gpu.throttled_by == ("power cap", "software thermal slowdown")
    assert gpu.power_w is None


def test_without_a_driver_the_state_is_missing_with_a_reason(tmp_path: Path) -> None:
    with nvml.sampling(CollectNvml(), tmp_path) as state:
        pass
    if not state.samples:
        assert "NVML does not respond" in str(state.summary().missing)


@pytest.mark.usefixtures("needs_torch")
def test_gemm_runs_from_the_file_to_the_report_on_the_cpu(cli: Cli, tmp_path: Path) -> None:
    """The shipped workload with its program: only the GPU is missing."""
    words = ("--set", "size=64", "--set", "dtype=fp16", "--set", "repeats=3")
    path = ROOT / "workloads" / "gemm.yaml"
    assert cli("run", path, "--collector", "timing", *words, report=True) == 0
    (task,) = Store(tmp_path / "store").runs()[0].tasks
    assert len(task.times_ms) == 3
    assert task.software and task.software["torch"]
    assert "size=64 dtype=fp16" in (tmp_path / "report.md").read_text()
    assert sys.executable in task.command[0]
