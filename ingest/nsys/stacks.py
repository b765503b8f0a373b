"""Writes the stacks of an nsys export: of Python, and backtraces of native code."""

from __future__ import annotations

from collections.abc import Sequence

from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.host_stacks import HostStacks
from perfpipe.ingest.nsys.export import Export
from perfpipe.ingest.nsys.forked_stacks import read_forked
from perfpipe.ingest.nsys.native_stacks import add_native_stacks
from perfpipe.ingest.nsys.python_stacks import BACKTRACE, Calls, Mark, add_stacks
from perfpipe.ingest.nsys.resolve import Resolver
from perfpipe.ingest.stored import read_columns

_NO_STACKS = (
    "the capture has no samples of stacks; record them with nsys profile --python-sampling=true, "
    "or with --sample=process-tree for native code"
)
_NO_BLOBS = "the stacks are not in the export; export with nsys export --include-blobs=true"

_CALLS, _CALL_COLUMNS = "nsys_api_calls", ("pid", "tid", "start_ns", "end_ns", "correlation_id")
_KERNELS = "nsys_kernels"


def write_stacks(
    builder: ReportBuilder, export: Export, resolver: Resolver, marks: Sequence[Mark]
) -> None:
    """Write host_samples, host_stacks and host_frames; `marks` have the stacks of Python."""
    stacks = HostStacks()
    readable = [mark for mark in marks if mark.content]
    if readable:
        calls = _calls(builder) if any(mark.domain == BACKTRACE for mark in readable) else Calls()
        if damaged := add_stacks(stacks, resolver.texts(), readable, calls):
            builder.lose("NVTX_EVENTS", "have an unreadable Python stack", damaged, len(readable))
    read_forked(export, stacks)
    add_native_stacks(stacks, export, resolver.texts(), _kernels(builder), stacks.calls())
    stacks.write(builder, _NO_BLOBS if marks and not readable else _NO_STACKS)


def _calls(builder: ReportBuilder) -> Calls:
    if not builder.stored[_CALLS].rows:
        return Calls()
    return Calls(read_columns(builder.directory / f"{_CALLS}.parquet", [*_CALL_COLUMNS]))


def _kernels(builder: ReportBuilder) -> set[str]:
    """Return the functions of kernels."""
    if not builder.stored[_KERNELS].rows:
        return set()
    names = read_columns(builder.directory / f"{_KERNELS}.parquet", ["name"])["name"]
    return set(names.unique().drop_null().to_pylist())
