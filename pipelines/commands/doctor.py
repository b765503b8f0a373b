"""perfpipe doctor."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from perfpipe.errors import PerfpipeError, ToolMissing
from perfpipe.units import format_bytes
from pipelines.options import json_document, json_option, resolve_store, store_option
from pipelines.process import run
from pipelines.tools import find_tool

#: Less free space than this is worth a warning.
_LITTLE_SPACE = 2e9

OK, MISSING, WARNING = "ok", "missing", "warning"


@dataclass(frozen=True)
class Check:
    """One line of the doctor: `state` is ok, warning or missing."""

    name: str
    state: str
    text: str


@click.command("doctor")
@json_option()
@click.option(
    "--need",
    multiple=True,
    type=click.Choice(["nsys", "ncu", "gpu", "slurm"]),
    help="End with exit code 5 when this is missing.",
)
@store_option
def doctor_command(as_json: bool, need: tuple[str, ...], store_path: str | None) -> None:
    """Check what profiling needs: nsys, ncu, driver, counter permission, Slurm, disk, packages.

    Reading and reporting need none of the tools, so their absence is an error only with --need.
    """
    checks = [check() for check in _checks(store_path)]
    if as_json:
        click.echo(json_document(checks=[asdict(check) for check in checks]))
    else:
        for check in checks:
            click.echo(f"{check.state:8} {check.name:12} {check.text}")
    missing = [c.name for c in checks if c.name in need and c.state == MISSING]
    if missing:
        raise ToolMissing(f"missing: {', '.join(missing)}")


def _checks(store_path: str | None) -> list[Callable[[], Check]]:
    return [
        lambda: _tool("nsys", "needed to trace timelines and to read .nsys-rep"),
        lambda: _tool("ncu", "needed to profile kernels"),
        _gpu,
        _counters,
        _slurm,
        lambda: _store(store_path),
        _temporary,
        _packages,
    ]


def _tool(name: str, purpose: str) -> Check:
    tool = find_tool(name)
    if tool is None:
        return Check(name, MISSING, f"not on PATH, in CUDA_HOME or under /opt/nvidia; {purpose}")
    return Check(name, OK, f"{tool.version} at {tool.path}")


def _gpu() -> Check:
    query = "--query-gpu=name,driver_version,memory.total"
    try:
        answer = run(["nvidia-smi", query, "--format=csv,noheader"], timeout=60)
    except PerfpipeError:
        return Check("gpu", MISSING, "no nvidia-smi: no NVIDIA driver; runs replay recordings")
    lines = [line.strip() for line in answer.stdout.splitlines() if line.strip()]
    if not answer.ok or not lines:
        return Check("gpu", MISSING, f"nvidia-smi shows no GPU ({answer.complaint()})")
    return Check("gpu", OK, f"{len(lines)} GPU: {lines[0]}")


def _counters() -> Check:
    """Say whether ncu may read counters: the driver restricts them to administrators or not."""
    params = Path("/proc/driver/nvidia/params")
    try:
        text = params.read_text(encoding="utf-8")
    except OSError:
        return Check("counters", MISSING, "no NVIDIA driver to ask")
    restricted = "RmProfilingAdminOnly: 1" in text
    if not restricted:
        return Check("counters", OK, "every user may read performance counters")
    if os.geteuid() == 0:
        return Check("counters", OK, "only administrators may read counters, and this is one")
    return Check(
        "counters",
        WARNING,
        "only administrators may read counters (ERR_NVGPUCTRPERM): run as root, or set "
        "NVreg_RestrictProfilingToAdminUsers=0",
    )


def _slurm() -> Check:
    if shutil.which("srun") is None:
        return Check("slurm", MISSING, "no srun; needed by workloads with execution kind srun")
    try:
        version = run(["srun", "--version"], timeout=60)
    except PerfpipeError as error:
        return Check("slurm", WARNING, str(error))
    text = version.stdout.strip() if version.ok else f"srun fails: {version.complaint()}"
    return Check("slurm", OK if version.ok else WARNING, text)


def _store(store_path: str | None) -> Check:
    root = resolve_store(store_path).root
    there = next(p for p in (root, *root.resolve().parents) if p.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        return Check("store", WARNING, f"{root}: {there} cannot be written")
    return _space("store", there, f"{root}: ")


def _temporary() -> Check:
    return _space("temporary", Path(tempfile.gettempdir()), f"{tempfile.gettempdir()}: ")


def _space(name: str, path: Path, text: str) -> Check:
    free = shutil.disk_usage(path).free
    return Check(name, OK if free > _LITTLE_SPACE else WARNING, f"{text}{format_bytes(free)} free")


def _packages() -> Check:
    optional = {"torch": "workloads", "pandas": "notebook .df()"}
    absent = [
        f"{name} ({use})"
        for name, use in optional.items()
        if importlib.util.find_spec(name) is None
    ]
    text = f"not installed: {', '.join(absent)}" if absent else "torch and pandas are installed"
    return Check("packages", WARNING if absent else OK, text)
