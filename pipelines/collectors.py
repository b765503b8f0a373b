"""Launches a task: plain for its time, then once under each profiler."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfpipe.errors import TaskFailed
from pipelines.process import Finished, run
from pipelines.tools import explain, need_tool
from pipelines.workload import CollectNcu, CollectNsys, Task, Workload

#: Key of the JSON lines by which a program talks to perfpipe.
_PROTOCOL_KEY = "perfpipe"


@dataclass
class Collected:
    """What launches of a task gave: times of its iterations in ms, its validation, report files."""

    times_ms: list[float] = field(default_factory=list)
    validation: dict[str, Any] | None = None
    files: list[Path] = field(default_factory=list)


def time_task(workload: Workload, task: Task, cwd: Path, into: Path) -> Collected:
    """Launch without a profiler; TaskFailed when it fails or its result is wrong."""
    finished = _launch(task.command, workload, cwd, into / "plain")
    collected = Collected()
    for line in finished.stdout.splitlines():
        message = _message(line)
        if message.get(_PROTOCOL_KEY) == "validation":
            collected.validation = message
        elif message.get(_PROTOCOL_KEY) == "time":
            collected.times_ms += [float(ms) for ms in message["ms"]]
    if collected.validation is not None and not collected.validation.get("ok"):
        raise TaskFailed(
            f"wrong result (largest error {collected.validation.get('max_abs_error')}); "
            "not timed, not profiled"
        )
    _check(finished, "the program", workload.timeout)
    return collected


def _message(line: str) -> dict[str, Any]:
    if not line.startswith("{"):
        return {}
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def collect_nsys(
    options: CollectNsys, workload: Workload, task: Task, cwd: Path, into: Path
) -> Path:
    """Launch under nsys and return the exported SQLite file."""
    nsys = need_tool("nsys")
    report, database = into / "nsys.nsys-rep", into / "nsys.sqlite"
    words: list[str | Path] = [
        nsys.path,
        "profile",
        f"--trace={','.join(options.trace)}",
        f"--cuda-graph-trace={options.cuda_graph_trace}",
        "--sample=none",
        "--cpuctxsw=none",
        "--force-overwrite=true",
        f"--output={report}",
    ]
    if options.capture_range != "none":
        words += [f"--capture-range={options.capture_range}", "--capture-range-end=stop"]
    finished = _launch([*words, *task.command], workload, cwd, into / "nsys")
    _check(finished, "nsys", workload.timeout, report)
    export_nsys_rep(report, database)
    return database


def export_nsys_rep(report: Path, database: Path) -> Path:
    """Export an .nsys-rep to SQLite; ToolMissing without nsys, TaskFailed when it fails."""
    nsys = need_tool("nsys")
    exported = run(
        [
            nsys.path,
            "export",
            "--type=sqlite",
            "--lazy=false",
            "--force-overwrite=true",
            f"--output={database}",
            report,
        ]
    )
    _check(exported, "nsys export", None, database)
    return database


def collect_ncu(options: CollectNcu, workload: Workload, task: Task, cwd: Path, into: Path) -> Path:
    """Launch under ncu and return the .ncu-rep."""
    ncu = need_tool("ncu")
    report = into / "ncu.ncu-rep"
    words: list[str | Path] = [
        ncu.path,
        "--force-overwrite",
        f"--export={report}",
        f"--set={options.set}",
        f"--clock-control={options.clock_control}",
        "--nvtx",
        *(f"--section={section}" for section in options.sections),
    ]
    if options.kernels:
        words.append(f"--kernel-name=regex:{options.kernels}")
    if options.launch_skip:
        words.append(f"--launch-skip={options.launch_skip}")
    if options.launch_count:
        words.append(f"--launch-count={options.launch_count}")
    if options.capture_range != "none":
        words.append("--profile-from-start=off")
    finished = _launch([*words, *task.command], workload, cwd, into / "ncu")
    _check(finished, "ncu", workload.timeout, report)
    return report


def _launch(
    words: list[str | Path] | tuple[str, ...], workload: Workload, cwd: Path, log: Path
) -> Finished:
    environment: Mapping[str, str] = workload.env
    return run(words, cwd=cwd, env=environment, timeout=workload.timeout, log=log)


def _check(
    finished: Finished, what: str, timeout: float | None, product: Path | None = None
) -> None:
    if finished.timed_out:
        raise TaskFailed(f"{what} took longer than {timeout:g} s and was ended")
    whole = product is None or product.is_file()
    if finished.ok and whole:
        return
    advice = explain(finished.stdout + finished.stderr)
    reason = advice or finished.complaint() or "it printed nothing"
    if not finished.ok:
        raise TaskFailed(f"{what} ended with exit code {finished.returncode}: {reason}")
    raise TaskFailed(f"{what} left no {product and product.name}: {reason}")
