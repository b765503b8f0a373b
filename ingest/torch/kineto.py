"""Reads a torch.profiler trace (Chrome JSON written by Kineto) into the timeline tables."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

from perfpipe.errors import InputError, brief
from perfpipe.ingest.arrays import give_back
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.columns import Columns
from perfpipe.ingest.compressed import chunks
from perfpipe.ingest.nsys.launches import join_launches
from perfpipe.ingest.nsys.timeline import RANGES as RANGES_TABLE
from perfpipe.ingest.nsys.timeline import write_timeline
from perfpipe.ingest.torch.events import FUNCTIONS, LATEST_NS, Admission, number_of, text_of
from perfpipe.ingest.torch.memory import MemoryEvents
from perfpipe.ingest.torch.other_traces import kind_of_trace, without_events
from perfpipe.ingest.torch.python_stacks import PythonFunctions
from perfpipe.ingest.torch.ranks import DistinctNumbers
from perfpipe.ingest.torch.rows import Rows
from perfpipe.ingest.torch.spool import open_sorter
from perfpipe.ingest.torch.tables import Tables
from perfpipe.ingest.torch.trace_json import DAMAGED, EVENTS, Damaged, TraceJson
from perfpipe.scratch import scratch

#: Tables of nsys that a trace has no data for, or whose data is not read from it.
_LACKING = (
    "nsys_syncs", "nsys_cuda_events", "nsys_graph_nodes", "nsys_osrt", "nsys_overhead",
    "nsys_memory_usage", "nsys_gpu_metrics", "nsys_diagnostics", "nsys_gpu_page_faults",
    "nsys_cpu_page_faults",
)  # fmt: skip

#: Earlier times count from something else than 1970: September 2001, ns.
_EARLIEST_UNIX = 10**18


def read_kineto(builder: ReportBuilder) -> None:
    """Read the complete events of a trace; raises InputError if it has none.

    Times are exact: the microseconds of the trace become integer nanoseconds digit by digit.
    Events are read one by one, sorted on disk, and joined a few at a time.  Only distinct values
    stay in memory: names, shapes, arguments of torch.distributed calls, threads, streams.
    """
    trace = TraceJson(chunks(builder.source.content))
    admission = Admission()
    with scratch() as directory:
        rows, memory, functions = (
            Rows(directory),
            MemoryEvents(directory),
            PythonFunctions(directory),
        )
        processes = set[str]()
        try:
            for event in trace.events():
                kind = event.get("ph")
                if kind == "X":
                    if (admitted := admission.admit(event)) is not None:
                        if admitted.category == FUNCTIONS:
                            functions.add(admitted, rows.process(admitted))
                        else:
                            rows.add(admitted)
                    elif "cat" not in event:
                        processes.add(text_of(event.get("pid")) or "")
                elif kind == "i":
                    memory.add(event)
                elif kind == "M":
                    processes.add(_process_name(event))
        except Damaged as error:
            raise InputError(f"{builder.source.path}: {error}") from error
        _state_damage(builder, trace)
        admission.report(builder)
        if other := kind_of_trace(admission.categories, processes):
            raise InputError(f"{builder.source.path}: {other}")
        if not rows.count:
            nothing = (
                without_events(admission.categories) if trace.read else "the trace has no events"
            )
            why = builder.incomplete or builder.lost[1] or nothing
            raise InputError(f"{builder.source.path}: {why}")
        _write(builder, trace.members, rows, memory, functions, Columns(directory))


def _process_name(event: Mapping[str, Any]) -> str:
    args = event.get("args")
    if event.get("name") != "process_name" or not isinstance(args, dict):
        return ""
    return text_of(args.get("name")) or ""


def _state_damage(builder: ReportBuilder, trace: TraceJson) -> None:
    """Add what is wrong with the JSON of the trace to the report."""
    events = trace.read + trace.lost
    if trace.repaired:
        reason = "are not valid JSON; they were repaired"
        builder.lose(EVENTS, reason, trace.repaired, events, counts=False)
    if trace.lost:
        builder.lose(EVENTS, "are not events or not JSON; they were skipped", trace.lost, events)
    if trace.stray:
        builder.warn(f"{trace.stray:,} bytes of the trace are not UTF-8; they are shown as '?'")
    if trace.cut:
        builder.cut(f"{DAMAGED}: it ends after {events:,} complete events")


def _write(
    builder: ReportBuilder,
    members: Mapping[str, Any],
    rows: Rows,
    memory: MemoryEvents,
    functions: PythonFunctions,
    columns: Columns,
) -> None:
    if rows.at_zero and rows.zero > 0:
        reason = "have the time 0, long before all others; they were skipped"
        builder.lose(EVENTS, reason, rows.at_zero, rows.count)
    _facts(builder, members, rows)
    with closing(open_sorter()) as con:
        tables = Tables(builder, con, rows, columns)
        tables.write_kernels()
        tables.write_memory_ops()
        tables.write_calls()
        tables.write_arguments()
        memory.write(builder, con, rows.zero)
        functions.write(builder, con, rows.zero)
    give_back()
    ranges = tables.ranges()
    builder.write("nsys_graph_launches", {}, 0)
    for table in _LACKING:
        builder.lacks(table, "read from nsys exports only, not from torch.profiler traces")
    if ranges is None:
        builder.lacks(RANGES_TABLE, "the trace has neither annotations nor operators")
    write_timeline(builder, join_launches(builder, columns), ranges)
    if not builder.stored["nsys_kernels"].rows:
        recorded = builder.stored["nsys_api_calls"].rows
        why = (
            ", although it has calls of the GPU's runtime"
            if recorded
            else "; profile with ProfilerActivity.CUDA"
        )
        builder.warn(f"the trace has no kernels{why}")


def _facts(builder: ReportBuilder, members: Mapping[str, Any], rows: Rows) -> None:
    facts = builder.facts
    facts.tool_version = f"torch.profiler, schema {brief(members.get('schemaVersion', 'unknown'))}"
    facts.started_ns = _unix_time(members.get("baseTimeNanoseconds"), rows.zero)
    if facts.started_ns is not None:
        stamp = datetime.fromtimestamp(facts.started_ns // 10**9, UTC)
        facts.captured_at = stamp.strftime("%Y-%m-%dT%H:%M:%SZ")
    stated = members.get("distributedInfo")
    # The environment of a merged trace belongs to one of its ranks.
    job = stated if isinstance(stated, dict) and rows.ranks == 1 else {}
    names = {"RANK": "rank", "WORLD_SIZE": "world_size"}
    known = {name: brief(job[key]) for name, key in names.items() if key in job}
    variables = {"source": ["variable"] * len(known), "name": [*known], "value": [*known.values()]}
    builder.write("nsys_environment", variables, len(known))
    _gpus(builder, members.get("deviceProperties"), rows.devices)


def _unix_time(base: object, zero: int) -> int | None:
    """Return the Unix time of the first event, ns.

    PyTorch 2.4 and later state times relative to a base.  Earlier versions state Unix times.
    """
    possible = [zero, (number_of(base, LATEST_NS) or 0) + zero]
    return next((time for time in possible if _EARLIEST_UNIX <= time <= LATEST_NS), None)


def _gpus(builder: ReportBuilder, stated: object, devices: DistinctNumbers) -> None:
    """Write the GPUs of a trace; entries that are not objects are skipped."""
    every = stated if isinstance(stated, list) else []
    objects = [gpu for gpu in every if isinstance(gpu, dict)]
    if len(objects) < len(every):
        reason = "are not objects; they were skipped"
        lost = len(every) - len(objects)
        builder.lose("deviceProperties", reason, lost, len(every), counts=False)
    # A merged trace lists the GPUs once per rank.
    known = {number_of(gpu.get("id")): gpu for gpu in reversed(objects)}
    again = {
        given: known[original] for given, original in devices.changed.items() if original in known
    }
    gpus = [*sorted((known | again).items(), key=lambda gpu: (gpu[0] is None, gpu[0]))]
    numbers = {
        "sm_count": "numSms", "memory_bytes": "totalGlobalMem",
        "registers_per_sm": "regsPerMultiprocessor", "smem_per_sm": "sharedMemPerMultiprocessor",
    }  # fmt: skip
    columns: dict[str, list[Any]] = {
        ours: [number_of(gpu.get(theirs)) for _, gpu in gpus] for ours, theirs in numbers.items()
    }
    columns |= {name: [number for number, _ in gpus] for name in ("gpu", "device")}
    columns["name"] = [text_of(gpu.get("name")) for _, gpu in gpus]
    versions = [[number_of(gpu.get(f"compute{n}")) for n in ("Major", "Minor")] for _, gpu in gpus]
    columns["cc"] = [None if None in pair else "{}.{}".format(*pair) for pair in versions]
    builder.write("nsys_gpus", columns, len(gpus))
