"""Reads a torch.profiler trace (Chrome JSON written by Kineto) into the timeline tables."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from perfpipe.errors import InputError, brief
from perfpipe.ingest.arrays import NONE, Vocabulary
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.ncu.names import function_name
from perfpipe.ingest.nsys.launches import join_launches
from perfpipe.ingest.nsys.payloads import TABLE as PAYLOADS
from perfpipe.ingest.nsys.ranges import PUSH_POP, Ranges
from perfpipe.ingest.nsys.timeline import RANGES as RANGES_TABLE
from perfpipe.ingest.nsys.timeline import write_timeline
from perfpipe.ingest.torch.events import (
    CALLS,
    KERNELS,
    LATEST_NS,
    MEMORY,
    RANGES,
    Admission,
    Event,
    Written,
    number_of,
    plain,
    text_of,
)
from perfpipe.ingest.torch.memory import write_memory

_COPY = re.compile(r"Memcpy ([HDAP])to([HDAP])")
_KINDS = re.compile(r"\((\w+) -> (\w+)\)")
_SIDES = {"H": "Host", "D": "Device", "A": "Array", "P": "Peer"}

#: Ranges of the program, and PyTorch operators, which get a separate domain.
_DOMAINS = {"user_annotation": None, "cpu_op": "cpu_op"}

#: Arguments that only torch.distributed calls have.
_COLLECTIVE = "Collective name"

#: Dimensions of the inputs of an operator, if shapes were recorded, and their types.
_SHAPES, _TYPES = "Input Dims", "Input type"

#: Table of operator inputs.
_OPERATORS = "torch_operators"

#: Data that a trace does not contain.
_LACKING = {
    "nsys_syncs": "a Kineto trace has only the synchronizing calls",
    "nsys_cuda_events": "not in a Kineto trace",
    "nsys_graph_nodes": "not in a Kineto trace",
    "nsys_osrt": "not in a Kineto trace",
    "nsys_overhead": "not in a Kineto trace",
    "nsys_memory_usage": "not in a Kineto trace",
    "nsys_gpu_metrics": "not in a Kineto trace",
    "nsys_diagnostics": "not in a Kineto trace",
}


def read_kineto(builder: ReportBuilder) -> None:
    """Read the complete events of a trace; raises InputError if it is not a complete trace.

    Times are exact: the microseconds of the trace become integer nanoseconds digit by digit.
    """
    document = _load(builder)
    admission = Admission()
    events: dict[str, list[Event]] = {}
    for event in admission.admit(document["traceEvents"]):
        events.setdefault(event.category, []).append(event)
    admission.report(builder)
    if not events:
        why = builder.lost[1] or "the trace has no PyTorch or CUDA events"
        raise InputError(f"{builder.source.path}: {why}")
    zero = min(event.start for event in chain.from_iterable(events.values()))
    _write(builder, document, events, zero)
    write_memory(builder, document["traceEvents"], zero)
    if not events.get(KERNELS):
        builder.warn("the trace has no kernels; profile with ProfilerActivity.CUDA")


def _load(builder: ReportBuilder) -> dict[str, Any]:
    path = builder.source.path
    try:
        with builder.source.content.open(encoding="utf-8") as file:
            # Binary floating point would lose the last nanoseconds of long clocks.
            document = json.load(file, parse_float=Written)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: the trace is truncated or damaged ({brief(error)})") from error
    if isinstance(document, list):
        document = {"traceEvents": document}
    if not isinstance(document, dict) or not isinstance(document.get("traceEvents"), list):
        raise InputError(f"{path}: JSON, but not a trace (no traceEvents)")
    if not all(isinstance(event, dict) for event in document["traceEvents"]):
        raise InputError(f"{path}: the trace has an invalid event")
    return document


def _write(
    builder: ReportBuilder, document: dict[str, Any], events: dict[str, list[Event]], zero: int
) -> None:
    calls = [event for name in CALLS for event in events.get(name, [])]
    kernels = events.get(KERNELS, [])
    memory = [event for name in MEMORY for event in events.get(name, [])]
    # Same order as nsys_nvtx_ranges: outer ranges come first.
    ranges = sorted(
        (event for name in RANGES for event in events.get(name, [])),
        key=lambda event: (event.start, -event.end),
    )
    pids = Counter(event.pid for event in calls or ranges)
    pid = max(pids, key=pids.__getitem__, default=None)
    _facts(builder, document, zero)
    _kernels(builder, kernels, zero, pid)
    _memory_ops(builder, memory, zero, pid)
    _calls(builder, calls, zero)
    builder.write("nsys_graph_launches", {}, 0)
    for table, reason in _LACKING.items():
        builder.lacks(table, reason)
    if not ranges:
        builder.lacks(RANGES_TABLE, "the trace has neither annotations nor operators")
    _payloads(builder, ranges)
    _shapes(builder, ranges)
    write_timeline(builder, join_launches(builder), _ranges(ranges, zero))


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    rows.sort(key=lambda row: (row["start_ns"], row["end_ns"]))
    for row in rows:
        row["dur_ns"] = row["end_ns"] - row["start_ns"]
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def _store(builder: ReportBuilder, table: str, rows: list[dict[str, Any]]) -> None:
    if not rows:
        builder.lacks(table, "not in this trace")
    builder.write(table, _columns(rows), len(rows))


def _gpu_row(event: Event, zero: int, pid: int | None) -> dict[str, Any]:
    args = event.args
    return {
        "device": args.get("device", event.pid),
        "context": args.get("context"),
        "stream": args.get("stream", event.tid),
        "pid": pid,
        "correlation_id": args.get("correlation"),
        "start_ns": event.start - zero,
        "end_ns": event.end - zero,
    }


def _kernels(builder: ReportBuilder, kernels: list[Event], zero: int, pid: int | None) -> None:
    rows = []
    for event in kernels:
        args = event.args
        grid, block = args.get("grid") or (None,) * 3, args.get("block") or (None,) * 3
        row = _gpu_row(event, zero, pid) | {
            "name": function_name(event.name),
            "demangled": event.name,
            "registers": args.get("registers per thread"),
            "dynamic_smem": None,
            "static_smem": None,
        }
        row |= {f"grid_{axis}": value for axis, value in zip("xyz", grid, strict=True)}
        row |= {f"block_{axis}": value for axis, value in zip("xyz", block, strict=True)}
        rows.append(row)
    builder.lacks("nsys_kernels", "Kineto has only the sum of static and dynamic", "static_smem")
    builder.lacks("nsys_kernels", "Kineto has only the sum of static and dynamic", "dynamic_smem")
    _store(builder, "nsys_kernels", rows)


def _memory_ops(builder: ReportBuilder, memory: list[Event], zero: int, pid: int | None) -> None:
    rows = []
    for event in memory:
        kinds = _KINDS.search(event.name)
        source, target = kinds.groups() if kinds else (None, None)
        rows.append(
            _gpu_row(event, zero, pid)
            | {
                "operation": _operation(event.name),
                "bytes": event.args.get("bytes"),
                "src_kind": source,
                "dst_kind": target,
            }
        )
    _store(builder, "nsys_memory_ops", rows)


def _operation(name: str) -> str:
    """Return nsys's name of a copy or memset.

    >>> _operation("Memcpy HtoD (Pageable -> Device)")
    '[CUDA memcpy Host-to-Device]'
    """
    match = _COPY.match(name)
    if match:
        return f"[CUDA memcpy {_SIDES[match[1]]}-to-{_SIDES[match[2]]}]"
    return "[CUDA memset]" if name.startswith("Memset") else f"[CUDA {name}]"


def _calls(builder: ReportBuilder, calls: list[Event], zero: int) -> None:
    rows = []
    for event in calls:
        rows.append(
            {
                "pid": event.pid,
                "tid": event.tid,
                "api": event.category.removeprefix("cuda_"),
                "name": event.name,
                "recorded_name": event.name,
                "correlation_id": event.args.get("correlation"),
                "start_ns": event.start - zero,
                "end_ns": event.end - zero,
            }
        )
    _store(builder, "nsys_api_calls", rows)


def _payloads(builder: ReportBuilder, ranges: list[Event]) -> None:
    """Write the torch.distributed data of calls; ranges are in the order of their table."""
    told = [
        (range_id, text_of(field), value)
        for range_id, event in enumerate(ranges)
        if _COLLECTIVE in event.args
        for field, value in sorted(event.args.items())
        if plain(value)
    ]
    if not told:
        builder.lacks(PAYLOADS, "the trace has no torch.distributed calls with sizes")
    columns = {
        "range_id": [range_id for range_id, _, _ in told],
        "field": [field for _, field, _ in told],
        "value": [None if n is None else float(n) for n in map(_number, told)],
        "text": [text_of(str(value)) for _, _, value in told],
    }
    builder.write(PAYLOADS, columns, len(told))


def _shapes(builder: ReportBuilder, ranges: list[Event]) -> None:
    """Write the inputs of operators; ranges are in the order of their table."""
    told = [
        (range_id, args[_SHAPES], args.get(_TYPES))
        for range_id, event in enumerate(ranges)
        if (args := event.args).get(_SHAPES)
    ]
    if not told:
        builder.lacks(_OPERATORS, "the trace has no shapes; profile with record_shapes=True")
    columns = {
        "range_id": [range_id for range_id, _, _ in told],
        "shapes": [_as_json(shapes) for _, shapes, _ in told],
        "types": [_as_json(types) for _, _, types in told],
    }
    builder.write(_OPERATORS, columns, len(told))


def _as_json(value: object) -> str | None:
    return None if value is None else json.dumps(value, separators=(",", ":"))


def _number(told: tuple[int, str | None, object]) -> int | None:
    value = told[2]
    return None if isinstance(value, str) else int(value) if value is True else number_of(value)


def _ranges(ranges: list[Event], zero: int) -> Ranges | None:
    if not ranges:
        return None
    threads, names, domains = Vocabulary(), Vocabulary(), Vocabulary()
    start = np.array([event.start for event in ranges], np.int64) - zero
    end = np.array([event.end for event in ranges], np.int64) - zero
    owners = [event.pid << 32 | event.tid for event in ranges]
    thread = threads.codes(pa.array(owners, pa.int64()))
    name = names.codes(pa.array([event.name for event in ranges]))
    domain = domains.codes(pa.array([_DOMAINS[event.category] or "" for event in ranges]))
    none = np.full(len(ranges), NONE, np.int32)
    return Ranges(
        start=start,
        end=end,
        style=np.full(len(ranges), PUSH_POP, np.int8),
        thread=thread,
        threads=[(owner >> 32, owner & 0xFFFF_FFFF) for owner in threads.values],
        name=name,
        names=names.values,
        domain=domain,
        domains=[text or None for text in domains.values],
        end_thread=none,
        category=none,
        categories=[],
    )


def _facts(builder: ReportBuilder, document: dict[str, Any], zero: int) -> None:
    facts = builder.facts
    facts.tool_version = f"torch.profiler, schema {brief(document.get('schemaVersion', 'unknown'))}"
    base = number_of(document.get("baseTimeNanoseconds"), LATEST_NS)
    if base is not None and 0 <= base + zero <= LATEST_NS:
        facts.started_ns = base + zero
        stamp = datetime.fromtimestamp((base + zero) // 10**9, UTC)
        facts.captured_at = stamp.strftime("%Y-%m-%dT%H:%M:%SZ")
    stated = document.get("distributedInfo")
    job = stated if isinstance(stated, dict) else {}
    names = {"RANK": "rank", "WORLD_SIZE": "world_size"}
    known = {name: brief(job[key]) for name, key in names.items() if key in job}
    variables = {"source": ["variable"] * len(known), "name": [*known], "value": [*known.values()]}
    builder.write("nsys_environment", variables, len(known))
    _gpus(builder, document.get("deviceProperties"))


def _gpus(builder: ReportBuilder, stated: object) -> None:
    """Write the GPUs of a trace; entries that are not objects are skipped."""
    every = stated if isinstance(stated, list) else []
    gpus = [gpu for gpu in every if isinstance(gpu, dict)]
    if len(gpus) < len(every):
        reason = "are not objects; they were skipped"
        builder.lose("deviceProperties", reason, len(every) - len(gpus), len(every), counts=False)
    numbers = {
        "gpu": "id", "device": "id", "sm_count": "numSms", "memory_bytes": "totalGlobalMem",
        "registers_per_sm": "regsPerMultiprocessor", "smem_per_sm": "sharedMemPerMultiprocessor",
    }  # fmt: skip
    columns: dict[str, list[Any]] = {
        ours: [number_of(gpu.get(theirs)) for gpu in gpus] for ours, theirs in numbers.items()
    }
    columns["name"] = [text_of(gpu.get("name")) for gpu in gpus]
    versions = [[number_of(gpu.get(f"compute{n}")) for n in ("Major", "Minor")] for gpu in gpus]
    columns["cc"] = [None if None in pair else "{}.{}".format(*pair) for pair in versions]
    builder.write("nsys_gpus", columns, len(gpus))
