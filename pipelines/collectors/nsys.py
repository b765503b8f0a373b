"""Traces a task with Nsight Systems and exports the report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from perfpipe.errors import TaskFailed
from pipelines.collectors.base import Collected, Context, ProgramFailed, check
from pipelines.launcher import Launcher
from pipelines.tools import require_tool
from pipelines.workload import CollectNsys, Execution

#: Explanation if nsys leaves its raw data instead of a report.
_NOT_IMPORTED = (
    "nsys recorded, but could not import its own data (it left a .qdstrm): its importer lacks a "
    "library; install the packages libdw1 and libelf1"
)


def collect_nsys(context: Context, options: CollectNsys) -> Collected:
    """Launch under nsys and return the exported SQLite file; the .nsys-rep is next to it.

    Its time is that of the launch, without the export.
    """
    launcher = context.launcher
    nsys = require_tool("nsys", launcher)
    report, database = context.into / "nsys.nsys-rep", context.into / "nsys.sqlite"
    words = [nsys.path, "profile", *profile_options(options), f"--output={launcher.output(report)}"]
    # Also capture ranges whose names are not registered strings.
    env = {"NSYS_NVTX_PROFILER_REGISTER_ONLY": "0"} if options.nvtx else None
    finished = context.launch("nsys", words, env=env)
    if not report.is_file() and report.with_suffix(".qdstrm").is_file():
        raise ProgramFailed("profiler", _NOT_IMPORTED)
    traced = context.product(finished, "nsys", report)
    context.say("nsys export")
    exported = launcher.run(
        [nsys.path, *export_options(launcher.output(database)), launcher.output(report)],
        log=context.into / "nsys-export",
    )
    context.product(exported, "nsys export", database)
    return replace(traced, path=database)


def profile_options(options: CollectNsys) -> list[str]:
    """Return the options of `nsys profile`."""
    words = [
        f"--trace={','.join(options.trace)}",
        f"--cuda-graph-trace={options.cuda_graph_trace}",
        "--sample=none",
        "--cpuctxsw=none",
        "--force-overwrite=true",
    ]
    if options.capture_range != "none":
        words += [f"--capture-range={options.capture_range}", "--capture-range-end=stop"]
    if options.nvtx:
        words.append(f"--nvtx-capture={options.nvtx}")
    if options.gpu_metrics:
        words.append("--gpu-metrics-devices=all")
    if options.cuda_memory_usage:
        words.append("--cuda-memory-usage=true")
    if options.duration:
        words.append(f"--duration={options.duration:g}")
    return [*words, *options.options]


def export_options(database: str | Path) -> list[str]:
    """Return the options of `nsys export`; NVTX payloads have NCCL's sizes and communicators."""
    return [
        "export",
        "--type=sqlite",
        "--lazy=false",
        "--include-blobs=true",
        "--force-overwrite=true",
        f"--output={database}",
    ]


def export_nsys_rep(report: Path, database: Path) -> Path:
    """Export an .nsys-rep locally; raises ToolMissing without nsys, TaskFailed on failure."""
    nsys = require_tool("nsys")
    launcher = Launcher(Execution(), Path.cwd())
    exported = launcher.run([nsys.path, *export_options(database), report])
    check(exported, "nsys export", None)
    if not database.is_file():
        raise TaskFailed(f"nsys export wrote no {database.name}: {exported.complaint()}")
    return database
