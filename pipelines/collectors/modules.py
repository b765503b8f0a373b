"""Traces a task with NVTX ranges for PyTorch's modules and operators, in a launch of its own.

The ranges take much time on the host.  The export is marked, so that its reader keeps only which
module launched each kernel: no time on the host or idle time of this launch is in the store.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from perfpipe.ingest.formats import MODULES_ID
from perfpipe.pipelines.collectors.base import Collected, Context, Job
from perfpipe.pipelines.collectors.guide import NothingToProfile
from perfpipe.pipelines.collectors.nsys import collect_ranks, trace
from perfpipe.pipelines.collectors.observing import HELPER, observing
from perfpipe.pipelines.tools import nsys_offers, require_tool
from perfpipe.pipelines.workload import CollectNsys

#: The name of the launch and of its files.
_NAME = "modules"

#: The option of nsys for ranges of PyTorch: those of operators, and those of functions as well.
_OPTION, _OPERATORS, _FUNCTIONS = "--pytorch", "autograd-nvtx", "functions-trace,autograd-nvtx"

#: The injected file that names modules, and the variable that lets it name operators as well.
_FILE, _NAME_OPERATORS = "modules.py", "PERFPIPE_INJECT_OPERATORS"

_CLASSES_ONLY = (
    "modules have classes but no paths, because the program's Python did not run perfpipe's "
    "start-up file: {}"
)
_ELSEWHERE = "the program runs on another machine or through srun"
_REFUSED = "an option (-I, -E, -S), or an environment without PYTHONPATH"
_NO_MODULES = (
    "GPU time cannot be shown by module: this nsys has no option --pytorch, and the program's "
    "Python did not run perfpipe's start-up file: {}"
)


class Modules:
    """Traces the modules of a PyTorch program with nsys."""

    tool = "nsys"

    def collect(self, job: Job) -> Collected:
        """Return the marked export.

        If the start-up file cannot run, nsys names the classes of modules itself.
        """
        context = job.context
        nsys = require_tool("nsys", context.launcher).path
        job.announce("nsys")
        known = nsys_offers(_OPTION, nsys, context.launcher)
        with observing(context.workload.env, context.launcher.here) as observer:
            reason = _ELSEWHERE
            if observer is not None:
                env = {**observer.env, HELPER: _FILE}
                env |= {} if known else {_NAME_OPERATORS: "1"}
                traced = _traced(context, nsys, _OPERATORS if known else "", env)
                reason = "" if observer.started else _REFUSED
        if reason and known:
            if observer is not None:
                context.tell("the program is launched again under nsys, which names modules itself")
            traced = _traced(context, nsys, _FUNCTIONS, {})
            traced = replace(traced, notes=(_CLASSES_ONLY.format(reason),))
        elif reason:
            raise NothingToProfile(_NO_MODULES.format(reason))
        return traced


def _traced(context: Context, nsys: str, ranges: str, env: dict[str, str]) -> Collected:
    """Launch the program under nsys, and mark the exports."""
    own = context.workload.collect.nsys or CollectNsys()
    # What is not needed to place kernels in modules is not recorded.
    options = CollectNsys(
        cuda_graph_trace=own.cuda_graph_trace,
        capture_range=own.capture_range,
        nvtx=own.nvtx,
        duration=own.duration,
        stacks=False,
        options=[*own.options, *([f"{_OPTION}={ranges}"] if ranges else [])],
    )
    collect = collect_ranks if context.launcher.execution.kind == "srun" else trace
    collected = collect(context, options, nsys, env, _NAME)
    mark([collected.path, *collected.others])
    return collected


def mark(databases: Sequence[Path]) -> None:
    """Mark exports as those of this launch."""
    for database in databases:
        with closing(sqlite3.connect(database)) as con:
            con.execute(f"PRAGMA application_id = {MODULES_ID}")
            con.commit()
