from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click import Command, Group
from conftest import ROOT, Cli

from perfpipe.pipelines.cli import GROUPS, MOVED, UNLISTED
from perfpipe.pipelines.cli import cli as root_command
from perfpipe.pipelines.lazy import WithViews, load

Expand = Callable[[str], Path]
Stored = Callable[..., list[str]]

#: Commands that --help lists.
LISTED = [name for commands in GROUPS.values() for name in commands]


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys; from perfpipe.pipelines.cli import run_cli; run_cli(['--help']);"
        "print([m for m in ('duckdb','pyarrow','numpy','rich','jinja2','matplotlib','pydantic')"
        " if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"
    assert all(f"\n  {name} " in done.stdout for name in LISTED)


def test_a_checkout_that_is_not_installed_runs(tmp_path: Path) -> None:
    script = (
        "import importlib.metadata as metadata, sys\n"
        "def gone(name): raise metadata.PackageNotFoundError(name)\n"
        "metadata.version = metadata.distribution = gone\n"
        "from perfpipe.pipelines.cli import run_cli; sys.exit(run_cli(sys.argv[1:]))"
    )

    def answer(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", script, *words], capture_output=True, text=True, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert answer("--version").startswith("perfpipe, version ")
    answer("run", "--collector", "timing", "--no-report", "--", "true")


def _commands(group: Group, path: tuple[str, ...] = ()) -> list[tuple[str, Command]]:
    import click

    found: list[tuple[str, Command]] = []
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found.append((" ".join((*path, name)), command))
        if isinstance(command, WithViews):
            views = command.views.items()
            found += [(" ".join((*path, name, word)), load(view)) for word, view in views]
        if isinstance(command, Group):
            found += _commands(command, (*path, name))
    return found


@pytest.mark.parametrize(("name", "command"), _commands(root_command))
def test_every_command_and_option_has_help(name: str, command: Command, cli: Cli) -> None:
    assert command.help
    assert "\\b" not in command.help
    assert cli(*name.split(), "--help") == 0
    for parameter in command.params:
        if parameter.param_type_name == "option":
            record = parameter.to_info_dict()
            assert record.get("help"), parameter.name


@pytest.mark.parametrize("name", [name for name, _ in _commands(root_command)])
def test_every_command_is_documented(name: str) -> None:
    assert f"\n## perfpipe {name}\n" in (ROOT / "docs" / "cli.md").read_text()


@pytest.mark.parametrize(("name", "words"), MOVED.items())
def test_former_names_work_with_a_hint(name: str, words: str, cli: Cli) -> None:
    assert cli(*words.split(), "--help") == 0
    assert cli.err == ""
    usage, _, text = cli.out.partition("\n")
    assert cli(name, "--help") == 0
    assert cli.err == f"'perfpipe {name}' is now 'perfpipe {words}'\n"
    own, _, old_text = cli.out.partition("\n")
    assert old_text == text
    assert own.replace(f"perfpipe {name} ", f"perfpipe {words} ") == usage
    assert cli("--help") == 0
    assert f"\n  {name} " not in cli.out


def test_unlisted_commands_work(cli: Cli) -> None:
    for name in UNLISTED:
        assert cli(name, "--help") == 0
        assert cli.err == ""


def test_views_of_a_report_exclude_each_other(cli: Cli) -> None:
    assert cli("report", "--findings", "--rules") == 2
    assert "--findings and --rules exclude each other" in cli.err
    assert cli("report", "--rules", "--html") == 2
    assert "No such option '--html'" in cli.err or "No such option: --html" in cli.err


def test_unknown_commands_are_corrected(cli: Cli) -> None:
    assert cli("ingets") == 2
    assert "Did you mean 'ingest'?" in cli.err


def test_ingest_says_what_it_did(cli: Cli, expand: Expand, tmp_path: Path) -> None:
    paths = [expand("nsys/memcpy.sqlite"), expand("ncu/live_stdout.csv")]
    assert cli("ingest", *paths) == 0
    assert len(cli.out.splitlines()) == 2
    assert "[2/2]" in cli.err
    assert cli("ingest", *paths) == 0
    assert cli.err.count("already in the store") == 2


def test_a_bad_file_does_not_stop_the_others(cli: Cli, expand: Expand, tmp_path: Path) -> None:
    bad = tmp_path / "bad.ncu-rep"
    bad.write_bytes(b"NVR\0garbage that is no report")
    empty = tmp_path / "empty.sqlite"
    empty.touch()
    assert cli("ingest", bad, empty, expand("nsys/memcpy.sqlite"), "--jobs", "2") == 2
    assert len(cli.out.splitlines()) == 1
    assert "2 of 3 inputs could not be ingested" in cli.err
    sentences = [line for line in cli.err.splitlines() if line.startswith("perfpipe: ")]
    assert len(sentences) == 3
    assert "Traceback" not in cli.err


def test_an_nsys_rep_needs_nsys(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "x.nsys-rep"
    report.write_bytes(b"NVIDIA Tegra Profiler Report 36398880.\n\x0b")
    monkeypatch.setenv("PATH", "/nowhere")
    assert cli("ingest", report) == 5
    assert "nsys was not found" in cli.err
    assert "install Nsight Systems" in cli.err


def test_query_formats(cli: Cli, stored: Stored, tmp_path: Path) -> None:
    stored("nsys/memcpy.sqlite")
    sql = "SELECT operation, count, total_time_ns FROM cuda_gpu_mem_time_sum"
    assert cli("query", sql) == 0
    assert cli.out.splitlines()[0].split() == ["operation", "count", "total_time_ns"]
    assert "[CUDA memcpy Device-to-Host]" in cli.out
    assert "227 ms" in cli.out and "227304355" not in cli.out, "a table has units"
    assert cli("query", sql, "--format", "csv") == 0
    rows = list(csv.DictReader(io.StringIO(cli.out)))
    assert rows[0]["total_time_ns"] == "227304355"
    assert cli("query", sql, "--format", "json") == 0
    document = json.loads(cli.out)
    assert document["schema_version"] == 1
    assert document["rows"][1]["count"] == 10
    assert cli("query", sql, "--format", "parquet", "-o", "x.parquet") == 0
    assert pq.read_table(tmp_path / "x.parquet").num_rows == 2
    assert cli("query", sql, "--format", "parquet") == 2
    assert "--output" in cli.err


def test_query_reports_faults_in_a_sentence(cli: Cli, stored: Stored) -> None:
    stored("nsys/memcpy.sqlite")
    for sql in ("SELECT x FROM kernel_sol", "nonsense", "DROP VIEW kernel_sol"):
        assert cli("query", sql) == 2
        assert cli.err.startswith("perfpipe: SQL: ")
        assert len(cli.err.splitlines()) == 1
    assert cli("query") == 2
    assert cli("query", "SELECT 1", "--file", "x.sql") == 2


def test_query_limits_the_table(cli: Cli, stored: Stored) -> None:
    stored("nsys/memcpy.sqlite")
    assert cli("query", "SELECT range FROM range(100)", "--limit", "3") == 0
    assert "97 more rows" in cli.out


def test_schema(cli: Cli) -> None:
    assert cli("schema") == 0
    for name in ("reports", "ncu_metrics", "launches", "kernel_headroom"):
        assert name in cli.out
    assert cli("schema", "kernel_sol") == 0
    assert "compute_sol_pct" in cli.out
    assert cli("schema", "kernel_sool") == 2
    assert "did you mean 'kernel_sol'" in cli.err
    assert cli("schema", "--json") == 0
    assert len(json.loads(cli.out)["relations"]) > 30


def test_specs(cli: Cli) -> None:
    assert cli("gpu") == 0
    assert "H200" in cli.out
    assert cli("gpu", "NVIDIA H200") == 0
    assert "989.4 TFLOP/s" in cli.out
    assert "source:" in cli.out
    assert cli("gpu", "abacus") == 2
    assert cli("gpu", "--json") == 0
    gpus = {gpu["key"]: gpu for gpu in json.loads(cli.out)["gpus"]}
    assert {"v100_sxm", "h200", "b300", "rtx_5090"} <= gpus.keys()
    assert cli("gpu", "b300") == 0
    assert "tensor core peaks are quoted at 1,856 MHz" in cli.out
    assert gpus["b300"]["missing"]["int8"] in cli.out


def test_doctor(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from perfpipe.pipelines import tools

    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(tools, "_PLACES", {"nsys": (), "ncu": ()})
    tools.find_tool.cache_clear()
    assert cli("doctor") == 0
    names = [line.split()[1] for line in cli.out.splitlines()]
    assert names == [
        "nsys", "ncu", "gpu", "counters", "slurm", "store", "temporary", "packages",
    ]  # fmt: skip
    assert cli("doctor", "--json") == 0
    states = {check["name"]: check["state"] for check in json.loads(cli.out)["checks"]}
    assert states["nsys"] == "missing"
    assert cli("doctor", "--need", "nsys") == 5
    assert "missing: nsys" in cli.err
    tools.find_tool.cache_clear()


def test_doctor_asks_slurm(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    srun = tmp_path / "srun"
    monkeypatch.setenv("PATH", str(tmp_path))
    for script, line in (
        ("echo slurm 24.05.1", "ok       slurm        slurm 24.05.1"),
        ("echo no controller >&2; exit 1", "warning  slurm        srun fails: no controller"),
    ):
        srun.write_text(f"#!/bin/sh\n{script}\n")
        srun.chmod(0o755)
        assert cli("doctor") == 0
        assert line in cli.out.splitlines()
    srun.unlink()
    assert cli("doctor", "--need", "slurm") == 5
    assert "needed for batches and for workloads with execution kind srun" in cli.out


def test_tools_are_found_where_installers_put_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from perfpipe.pipelines import tools

    for version in ("2024.1.1", "2025.3.1"):
        place = tmp_path / "nsight-compute" / version
        place.mkdir(parents=True)
        (place / "ncu").write_text(f"#!/bin/sh\necho Version {version}.0 build 1\n")
        (place / "ncu").chmod(0o755)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(tools, "_PLACES", {"ncu": (f"{tmp_path}/nsight-compute/*/ncu",)})
    tools.find_tool.cache_clear()
    tool = tools.find_tool("ncu")
    tools.find_tool.cache_clear()
    assert tool is not None
    assert tool.version == "2025.3.1.0"


def test_init_copies_the_workloads(cli: Cli, tmp_path: Path) -> None:
    assert cli("init", "mine") == 0
    assert (tmp_path / "mine" / "gemm.yaml").is_file()
    assert (tmp_path / "mine" / "recordings" / "gemm-h200" / "recording.yaml").is_file()
    assert cli("init", "mine") == 2
    assert "--force" in cli.err
    assert cli("init", "mine", "--force") == 0
    assert cli("run", "mine/gemm.yaml", "--dry-run") == 0


def test_store_commands(cli: Cli, stored: Stored) -> None:
    (report,) = stored("nsys/memcpy.sqlite")
    assert cli("store", "ls") == 0
    assert report in cli.out
    assert cli("store", "verify") == 0
    assert "1 intact, 0 damaged" in cli.out
    assert cli("store", "ls", "--json") == 0
    assert json.loads(cli.out)["reports"][0]["report_id"] == report
    assert cli("store", "gc") == 0
    assert cli("store", "rm", report) == 0
    assert cli("store", "rm", report) == 2
    assert cli("store", "ls") == 0
    assert cli.out == ""


def test_store_verify_fails_on_damage(cli: Cli, stored: Stored, tmp_path: Path) -> None:
    (report,) = stored("nsys/memcpy.sqlite")
    (tmp_path / "store" / "reports" / report / "launches.parquet").write_bytes(b"")
    assert cli("store", "verify") == 2
    assert "size or checksum differs" in cli.out


def test_completion(cli: Cli) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert cli("completion", shell) == 0
        assert "_PERFPIPE_COMPLETE" in cli.out


def test_notebook_interface(cli: Cli, expand: Expand, tmp_path: Path) -> None:
    import perfpipe

    assert cli("ingest", expand("nsys/memcpy.sqlite")) == 0
    frame = perfpipe.open_store(tmp_path / "store").sql("SELECT * FROM cuda_gpu_kern_sum").df()
    assert list(frame["instances"]) == [5, 5]
