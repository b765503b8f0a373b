"""The profilers that can follow a launch without one, in the order in which they run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from perfpipe.ingest.ncu.reader import require_reader
from perfpipe.pipelines.collectors.base import Profiler
from perfpipe.pipelines.collectors.modules import Modules
from perfpipe.pipelines.collectors.ncu import Ncu
from perfpipe.pipelines.collectors.nsys import Nsys
from perfpipe.pipelines.collectors.torch_profiler import Torch
from perfpipe.pipelines.launcher import Launcher
from perfpipe.pipelines.tools import require_tool

#: Timelines first: they show which kernels ncu is to profile.
PROFILERS: Mapping[str, Profiler] = {
    "nsys": Nsys(),
    "torch": Torch(),
    "ncu": Ncu(),
    "modules": Modules(),
}


def require_tools(names: Iterable[str], launcher: Launcher) -> None:
    """Raise ToolMissing if the tool of a profiler, or the reader of its files, is not installed."""
    for name in names:
        if tool := PROFILERS[name].tool:
            require_tool(tool, launcher)
        if name == "ncu":
            require_reader()
