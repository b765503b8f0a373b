"""perfpipe doctor."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from importlib.machinery import PathFinder
from pathlib import Path

import click

from perfpipe.errors import PerfpipeError
from perfpipe.pipelines.checks import MISSING, NEEDS, OK, WARNING, Check, require
from perfpipe.pipelines.options import json_document, json_option, resolve_store, store_option
from perfpipe.pipelines.process import run
from perfpipe.pipelines.slurm.doctor import cluster_checks
from perfpipe.pipelines.tools import find_tool
from perfpipe.units import counted, format_bytes

#: Warn if less space than this is free, bytes.
_LITTLE_SPACE = 2e9


@click.command("doctor")
@json_option()
@click.option(
    "--need",
    multiple=True,
    type=click.Choice(NEEDS),
    help="What must be present; exit with code 5 if it is missing (repeat for several).",
)
@store_option
def doctor_command(as_json: bool, need: tuple[str, ...], store_path: str | None) -> None:
    """Check nsys, ncu, driver, counter permission, Slurm, disk space and packages.

    'perfpipe ingest' and 'perfpipe report' work without profilers or a GPU, so a missing tool is an
    error only with --need.
    """
    checks = list(_checks(store_path))
    if as_json:
        click.echo(json_document(checks=[asdict(check) for check in checks]))
    else:
        for check in checks:
            click.echo(str(check))
    require(checks, need)


def _checks(store_path: str | None) -> Iterator[Check]:
    yield _tool("nsys", "needed to trace timelines and to read .nsys-rep")
    yield _tool("ncu", "needed to profile kernels")
    yield _gpu()
    yield _counters()
    yield _slurm()
    yield from cluster_checks()
    yield _store(store_path)
    yield _temporary()
    yield _packages()


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
        return Check(
            "gpu", MISSING, "no nvidia-smi, so no NVIDIA driver; 'perfpipe run' replays recordings"
        )
    lines = [line.strip() for line in answer.stdout.splitlines() if line.strip()]
    if not answer.ok or not lines:
        return Check("gpu", MISSING, f"nvidia-smi finds no GPU ({answer.complaint()})")
    return Check("gpu", OK, f"{counted(len(lines), 'GPU')}: {lines[0]}")


def _counters() -> Check:
    """Check whether ncu may read counters, which the driver can restrict to administrators."""
    params = Path("/proc/driver/nvidia/params")
    try:
        text = params.read_text(encoding="utf-8")
    except OSError:
        return Check("counters", MISSING, "no NVIDIA driver")
    restricted = "RmProfilingAdminOnly: 1" in text
    if not restricted:
        return Check("counters", OK, "every user may read performance counters")
    if os.geteuid() == 0:
        return Check("counters", OK, "only administrators may read counters, and you are one")
    return Check(
        "counters",
        WARNING,
        "only administrators may read counters (ERR_NVGPUCTRPERM): run as root, or set "
        "NVreg_RestrictProfilingToAdminUsers=0",
    )


def _slurm() -> Check:
    if shutil.which("srun") is None:
        return Check(
            "slurm",
            MISSING,
            "no srun; needed for batches and for workloads with execution kind srun",
        )
    try:
        version = run(["srun", "--version"], timeout=20)
    except PerfpipeError as error:
        return Check("slurm", WARNING, str(error))
    text = version.stdout.strip() if version.ok else f"srun fails: {version.complaint()}"
    return Check("slurm", OK if version.ok else WARNING, text)


def _store(store_path: str | None) -> Check:
    root = resolve_store(store_path).root
    there = next(p for p in (root, *root.resolve().parents) if p.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        return Check("store", WARNING, f"{root}: {there} is not writable")
    return _space("store", there, f"{root}: ")


def _temporary() -> Check:
    return _space("temporary", Path(tempfile.gettempdir()), f"{tempfile.gettempdir()}: ")


def _space(name: str, path: Path, text: str) -> Check:
    free = shutil.disk_usage(path).free
    return Check(name, OK if free > _LITTLE_SPACE else WARNING, f"{text}{format_bytes(free)} free")


def _packages() -> Check:
    optional = {"torch": "workloads", "pandas": "notebook .df()"}
    absent = [
        f"{name} ({use})" for name, use in optional.items() if PathFinder.find_spec(name) is None
    ]
    text = f"not installed: {', '.join(absent)}" if absent else "torch and pandas are installed"
    return Check("packages", WARNING if absent else OK, text)
