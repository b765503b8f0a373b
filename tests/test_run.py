from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, Cli

from perfpipe.pipelines import tools
from perfpipe.pipelines.tasks import tasks
from perfpipe.pipelines.workload import load_workload
from perfpipe.store import Store
from perfpipe.verify import verify

GEMM = ROOT / "workloads" / "gemm.yaml"
Expand = Callable[[str], Path]


def test_replay_says_so_everywhere(
    cli: Cli, read_before: Callable[[str], None], tmp_path: Path, undrawn: None
) -> None:
    read_before("gemm")
    assert cli("run", GEMM, "--collector", "replay", report=True) == 0
    assert cli.out.splitlines()[0].startswith("gemm - ")
    assert cli.out.splitlines()[-1] == "Report: report.html, report.md"
    assert len(cli.out.splitlines()) <= 40
    notice = "Replayed from a recording: captured on 2026-11-21T16:12:20Z (GPU: NVIDIA H200)"
    assert notice in (tmp_path / "report.html").read_text()
    assert notice in (tmp_path / "report.md").read_text()
    store = Store(tmp_path / "store")
    assert [fault for _, fault in verify(store) if fault] == []
    run = store.runs()[0]
    assert run.status == "done"
    assert len(run.reports) == 16
    assert (
        cli("query", "SELECT recorded, count(*) n FROM reports GROUP BY 1", "--format", "csv") == 0
    )
    assert cli.out.splitlines() == ["recorded,n", "True,16"]
    assert cli("report") == 0
    assert notice in cli.out.replace("\n", " ")


def test_auto_replays_without_a_gpu(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    tools.gpus.cache_clear()
    assert cli("run", GEMM, "--set", "size=512") == 0
    assert not Path("report.html").exists(), "none was asked for"
    assert "no GPU found: replaying a recording, nothing is measured" in cli.err
    tools.gpus.cache_clear()


def test_auto_measures_with_the_profilers_that_are_there(
    profilers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from perfpipe.pipelines.plan import choose_collector

    (profilers / "nvidia-smi").write_text("#!/bin/sh\necho NVIDIA H200\n")
    (profilers / "nvidia-smi").chmod(0o755)
    tools.gpus.cache_clear()
    assert choose_collector("auto") == ("all", "measuring on NVIDIA H200")
    (profilers / "nsys").unlink()
    monkeypatch.setattr(tools, "_PLACES", {"nsys": (), "ncu": ()})
    tools.find_tool.cache_clear()
    assert choose_collector("auto")[0] == "ncu"
    (profilers / "ncu").unlink()
    tools.find_tool.cache_clear()
    assert choose_collector("auto")[0] == "replay"
    tools.gpus.cache_clear()


def test_the_recording_holds_every_configuration_of_the_file() -> None:
    from perfpipe.pipelines.recording import load_recording

    workload = load_workload(GEMM)
    recording = load_recording(GEMM.parent / str(workload.recording))
    recorded = [task.params for task in recording.tasks]
    assert recorded == [dict(task.params) for task in tasks(workload, GEMM)]
    assert all(task.validation and task.validation.ok for task in recording.tasks)


def test_a_configuration_that_was_not_recorded_fails(cli: Cli) -> None:
    assert cli("run", GEMM, "--collector", "replay", "--set", "size=512,7") == 1
    assert "not in the recording" in cli.err


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda d: (d / "recording.yaml").unlink(), "no recording "),
        (lambda d: (d / "00-512-fp16.sqlite.xz").unlink(), "00-512-fp16.sqlite.xz is missing"),
        (lambda d: (d / "recording.yaml").write_text("version: 1\n"), "recording.yaml:1: "),
        (
            lambda d: _replace(d / "recording.yaml", "samples: 145", "samples: many"),
            "recording.yaml:17: Value error, samples is 'many'",
        ),
    ],
)
def test_damaged_recordings_are_refused(
    damage: Callable[[Path], object], sentence: str, cli: Cli, tmp_path: Path
) -> None:
    assert cli("init", "w") == 0
    damage(tmp_path / "w" / "recordings" / "gemm-h200")
    assert cli("run", "w/gemm.yaml", "--collector", "replay") == 2
    assert sentence in cli.err


PROGRAM = """
import json, sys, time
kind = sys.argv[1]
print("hello", flush=True)
ok = kind != "wrong"
print(json.dumps({"perfpipe": "validation", "ok": ok, "max_abs_error": 0.5}), flush=True)
if kind == "slow":
    time.sleep(60)
if kind == "broken":
    sys.exit("something broke")
print(json.dumps({"perfpipe": "time", "ms": [3.0, 1.0, 2.0]}))
"""


@pytest.fixture
def workload(tmp_path: Path) -> Callable[[str], Path]:
    (tmp_path / "program.py").write_text(PROGRAM)

    def write(kinds: str) -> Path:
        path = tmp_path / "w.yaml"
        text = f"""
            version: 1
            name: w
            command: ["{{python}}", program.py, "{{kind}}"]
            matrix: {{kind: {kinds}}}
            work: {{flops: 2e9, dtype: fp16}}
            timeout: 8
            collect: {{nsys: {{}}, ncu: {{launch_count: 3}}}}
            """
        path.write_text(textwrap.dedent(text))
        return path

    return write


def test_measuring_runs_the_program_and_both_profilers(
    workload: Callable[[str], Path], profilers: Path, cli: Cli, tmp_path: Path
) -> None:
    assert cli("run", workload("[good]"), "--collector", "all", report=True) == 0
    run = Store(tmp_path / "store").runs()[0]
    task = run.tasks[0]
    assert task.times_ms == (3.0, 1.0, 2.0)
    assert task.validation
    assert task.validation.ok
    assert len(task.reports) == 2
    kept = {p.name for p in (tmp_path / "store/runs" / run.run_id / "tasks").rglob("*")}
    assert {"plain.out", "nsys.sqlite", "ncu.ncu-rep", "nsys.err", "ncu.out"} <= kept
    assert cli("query", "SELECT median_ms, status FROM run_tasks", "--format", "csv") == 0
    assert cli.out.splitlines()[1] == "2.0,done"
    assert "Replayed" not in (tmp_path / "report.html").read_text()


def test_a_relative_store_lies_where_the_command_was_given(
    workload: Callable[[str], Path],
    profilers: Path,
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The program runs in the directory of the workload file, which is another one."""
    path = workload("[good]")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert cli("run", path, "--collector", "all", "--store", "here") == 0
    assert len(Store(elsewhere / "here").runs()[0].reports) == 2
    assert not (tmp_path / "here").exists()


def test_failures_are_data_and_the_rest_goes_on(
    workload: Callable[[str], Path], profilers: Path, cli: Cli, tmp_path: Path
) -> None:
    path = workload("[good, wrong, broken, slow]")
    assert cli("run", path, "--collector", "ncu", report=True) == 1
    assert "3 of 4 tasks failed" in cli.err
    run = Store(tmp_path / "store").runs()[0]
    errors = [task.error or "" for task in run.tasks]
    assert errors[0] == ""
    assert "wrong result (largest error 0.5); neither timed nor profiled" in errors[1]
    assert "exited with code 1: something broke" in errors[2]
    assert "longer than 8 s" in errors[3]
    assert not any(task.times_ms for task in run.tasks[1:])
    assert "wrong result" in (tmp_path / "report.html").read_text()


def test_a_run_that_failed_leaves_no_empty_page(cli: Cli, tmp_path: Path) -> None:
    words = ("run", "--collector", "timing")
    fails = ("--", sys.executable, "-c", "raise SystemExit(1)")
    assert cli(*words, *fails, report=True) == 1
    assert "No verdict: the program failed" in cli.out and "Report:" not in cli.out
    assert not [*tmp_path.glob("report*")]
    assert cli(*words, "--md", "asked.md", *fails, report=True) == 1
    assert cli.out.splitlines()[-1] == "Report: asked.md"
    assert "No verdict" in (tmp_path / "asked.md").read_text()
    assert not [*tmp_path.glob("report*")]


def test_known_profiler_messages_are_explained(
    workload: Callable[[str], Path], profilers: Path, cli: Cli
) -> None:
    for fault, sentence in (
        ("permission", "only administrators"),
        ("nothing", "did not write ncu.ncu-rep: no kernel was launched"),
        ("driver", "the NVIDIA driver is too old"),
        ("full", "the disk is full"),
        ("truncated", "truncated"),
    ):
        (profilers / "FAULT").write_text(fault)
        assert cli("run", workload("[good]"), "--collector", "ncu") == 1
        assert sentence in cli.err
    (profilers / "FAULT").write_text("libdw")
    assert cli("run", workload("[good]"), "--collector", "nsys") == 1
    assert "install the packages libdw1 and libelf1" in cli.err
    (profilers / "FAULT").write_text("importer")
    assert cli("run", workload("[good]"), "--collector", "nsys") == 1
    assert "could not import it (it left a .qdstrm)" in cli.err
    importer = profilers.parent / "host-linux-x64" / "QdstrmImporter"
    importer.parent.mkdir()
    importer.write_bytes((profilers / "nsys").read_bytes())
    importer.chmod(0o755)
    assert cli("run", workload("[good]"), "--collector", "nsys") == 0


def test_measuring_without_a_profiler_names_it(
    workload: Callable[[str], Path], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "_PLACES", {"nsys": (), "ncu": ()})
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    tools.find_tool.cache_clear()
    assert cli("run", workload("[good]"), "--collector", "ncu") == 5
    assert "ncu was not found" in cli.err
    tools.find_tool.cache_clear()


def test_dry_run_starts_nothing(workload: Callable[[str], Path], cli: Cli, tmp_path: Path) -> None:
    assert cli("run", workload("[good, slow]"), "--dry-run") == 0
    assert cli.out.count("program.py") == 2
    assert not (tmp_path / "store").exists()


def test_a_missing_workload_file(cli: Cli) -> None:
    assert cli("run", "nothing.yaml") == 2
    assert "cannot read nothing.yaml: No such file" in cli.err


def test_settings_need_a_value(cli: Cli) -> None:
    assert cli("run", GEMM, "--set", "size") == 2
    assert "NAME=VALUE" in cli.err


def test_run_records_are_json_with_a_version(replayed: Callable[[str], Path]) -> None:
    path = next((replayed("gemm") / "runs").glob("*/run.json"))
    assert json.loads(path.read_text())["schema_version"] == 1
