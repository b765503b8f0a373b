"""Profiles the kernels of a task with Nsight Compute."""

from __future__ import annotations

import re
from pathlib import Path

from pipelines.collectors.base import Context
from pipelines.tools import require_tool
from pipelines.workload import CollectNcu

#: What ncu prints for each kernel that it profiles.
_PROFILING = re.compile(r'==PROF== Profiling "(?P<kernel>[^"]+)" - (?P<index>\d+)')


def collect_ncu(context: Context, options: CollectNcu) -> Path:
    """Launch under ncu and return the .ncu-rep."""
    launcher = context.launcher
    ncu = require_tool("ncu", launcher)
    report = context.into / "ncu.ncu-rep"

    def hear(line: str) -> None:
        if match := _PROFILING.search(line):
            context.say(f"ncu: kernel {int(match['index']) + 1}, {match['kernel']}")

    words = [ncu.path, *profile_options(options), f"--export={launcher.output(report)}"]
    finished = context.launch("ncu", words, on_line=hear)
    return context.product(finished, "ncu", report)


def profile_options(options: CollectNcu) -> list[str]:
    """Return the options of ncu."""
    words = [
        "--force-overwrite",
        f"--set={options.set}",
        f"--clock-control={options.clock_control}",
        f"--cache-control={options.cache_control}",
        f"--replay-mode={options.replay_mode}",
        f"--graph-profiling={options.graph_profiling}",
        "--target-processes=all",
        "--nvtx",
        *(f"--section={section}" for section in options.sections),
    ]
    if options.metrics:
        words.append(f"--metrics={','.join(options.metrics)}")
    if options.kernels:
        words.append(f"--kernel-name=regex:{options.kernels}")
    if options.nvtx:
        words.append(f"--nvtx-include={options.nvtx}")
    if options.launch_skip:
        words.append(f"--launch-skip={options.launch_skip}")
    if options.launch_count:
        words.append(f"--launch-count={options.launch_count}")
    if options.import_source:
        words.append("--import-source=yes")
    if options.capture_range != "none":
        words.append("--profile-from-start=off")
    return [*words, *options.options]
