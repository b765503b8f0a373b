"""Reads .ncu-rep through NVIDIA's `ncu-report` package."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ingest.builder import ReportBuilder
from ingest.ncu.checks import LaunchChecks, check_launches
from ingest.ncu.container import Container, read_container
from ingest.ncu.launches import DURATION, SOURCE_STALLS, Launch, NcuTables, ncu_tables
from ingest.ncu.names import keeps_instances, nvtx_step, plain_message, stall_reason
from ingest.used_gpus import UsedGpus
from perfpipe.errors import InputError

_WORKLOAD_TYPES = ("kernel", "range", "cmdlist", "graph", "subgrid")
_RULE_TYPES = {0: "INF", 1: "INF", 2: "OPT", 3: "WRN", 4: "ERR"}
_SPEEDUP_KINDS = {1: "local", 2: "global"}

Metric = Any
Action = Any

#: Text of an instruction, and of its source: file, line, text of that line.
Instruction = tuple[str, str | None, int | None, str | None]


def read_ncu_rep(builder: ReportBuilder) -> None:
    """Read a whole .ncu-rep into the ncu tables; raises InputError if it has no launches."""
    import ncu_report

    path = builder.source.content
    container = read_container(path)
    report = ncu_report.load_report(str(path))
    builder.facts.host = container.host
    builder.facts.command = container.executable
    builder.facts.captured_at = container.created_at
    builder.facts.tool_version = _tool_version(container)
    with ncu_tables(builder) as tables:
        reader = _Reader(builder, tables, container, ncu_report)
        launch_id = 0
        for range_index in range(report.num_ranges()):
            actions = report.range_by_idx(range_index)
            for action_index in range(actions.num_actions()):
                action = actions.action_by_idx(action_index)
                reader.read(launch_id, range_index, action_index, action)
                launch_id += 1
    if not launch_id:
        raise InputError(f"{builder.source.path}: the report has no launches")
    reader.checks.report(builder)
    reader.gpus.state(builder)
    check_launches(builder, found=launch_id, expected=len(container.process_ids))


def _tool_version(container: Container) -> str | None:
    for name, value in container.versions.items():
        if "Nsight Compute" in name:
            return value.split(" ")[0]
    return None


class _Reader:
    """Reads actions; keeps the disassembly of functions that were launched before."""

    def __init__(
        self, builder: ReportBuilder, tables: NcuTables, container: Container, api: Any
    ) -> None:
        self._builder = builder
        self._tables = tables
        self._container = container
        self.checks = LaunchChecks()
        self.gpus = UsedGpus()
        self._api = api
        self._functions: dict[tuple[str, int], dict[int, Instruction]] = {}
        self._sources: dict[str, list[str]] = {}

    def read(self, launch_id: int, range_index: int, action_index: int, action: Action) -> None:
        values: dict[str, float | str | None] = {}
        units: dict[str, str | None] = {}
        by_pc: dict[str, dict[int, int]] = {}
        for name in action.metric_names():
            if name.startswith("group:"):
                continue
            metric = action.metric_by_name(name)
            if not metric.has_value():
                if metric.kind() == self._api.IMetric.ValueKind_UNKNOWN:
                    units[name] = metric.unit() or None
                continue
            value = _value(metric, self._api)
            if value == "":
                continue
            values[name], units[name] = value, metric.unit() or None
            if metric.num_instances() and keeps_instances(name):
                keys, items = _instances(metric, self._api)
                texts = isinstance(keys[0], str)
                self._tables.instances.extend(
                    len(items),
                    launch_id=launch_id,
                    metric=name,
                    instance=list(range(len(items))),
                    key_int=None if texts else keys,
                    key_text=keys if texts else None,
                    value=items,
                )
                if not texts:
                    by_pc[name] = dict(zip(keys, map(int, items), strict=True))
        told = [values.get(name) for name in units]
        self._tables.metrics.extend(
            len(units),
            launch_id=launch_id,
            metric=list(units),
            value=[None if isinstance(value, str) else value for value in told],
            text=[value if isinstance(value, str) else None for value in told],
            unit=list(units.values()),
        )
        self._add_launch(launch_id, range_index, action_index, action, values)
        self._add_rules(launch_id, action)
        self._add_source(launch_id, action, by_pc)
        self.checks.add(launch_id, values)

    def _add_launch(
        self,
        launch_id: int,
        range_index: int,
        action_index: int,
        action: Action,
        values: dict[str, float | str | None],
    ) -> None:
        def whole(name: str) -> int | None:
            value = values.get(name)
            return int(value) if isinstance(value, (int, float)) else None

        def extent(name: str) -> tuple[int | None, ...]:
            return tuple(whole(f"launch__{name}_dim_{axis}") for axis in "xyz")

        major = whole("device__attribute_compute_capability_major")
        minor = whole("device__attribute_compute_capability_minor")
        device_name = values.get("device__attribute_display_name")
        duration = values.get(DURATION)
        pids = self._container.process_ids
        launch = Launch(
            launch_id,
            kernel_name=action.name(action.NameBase_FUNCTION),
            kernel_demangled=action.name(action.NameBase_DEMANGLED),
            workload_type=_WORKLOAD_TYPES[action.workload_type()],
            range_index=range_index,
            action_index=action_index,
            cc=None if major is None else f"{major}.{minor}",
            device=whole("launch__device_id"),
            device_name=str(device_name) if device_name else None,
            context=whole("launch__context_id"),
            stream=whole("launch__stream_id"),
            grid=extent("grid"),
            block=extent("block"),
            process_id=pids[launch_id] if launch_id < len(pids) else None,
            nvtx_path=_nvtx_path(action),
            duration_ns=duration if isinstance(duration, (int, float)) else None,
        )
        self._tables.launches.add(*launch.row())
        sm_count = whole("device__attribute_multiprocessor_count")
        self.gpus.add(launch.device_name, sm_count, launch.duration_ns or 0)

    def _add_rules(self, launch_id: int, action: Action) -> None:
        for index, rule in enumerate(action.rule_results_as_dicts()):
            message = rule.get("rule_message") or {}
            speedup = rule.get("speedup_estimation") or {}
            self._tables.rules.add(
                launch_id,
                index,
                rule["rule_identifier"],
                rule.get("section_identifier") or None,
                message.get("title") or None,
                plain_message(message.get("message", "")) or None,
                _RULE_TYPES.get(message.get("type", -1)),
                _SPEEDUP_KINDS.get(speedup.get("type", 0)),
                speedup.get("speedup") if speedup else None,
            )

    def _add_source(self, launch_id: int, action: Action, by_pc: dict[str, dict[int, int]]) -> None:
        samples = by_pc.get("smsp__pcsamp_sample_count", {})
        executed = by_pc.get("inst_executed", {})
        if not samples and not executed:
            return
        threads = by_pc.get("thread_inst_executed", {})
        stalls: dict[str, dict[int, int]] = {}
        not_issued: dict[int, int] = {}
        for name, counts in by_pc.items():
            if match := re.fullmatch(r"smsp__pcsamp_warps_issue_stalled_(\w+)", name):
                reason = match[1].removesuffix("_not_issued")
                if reason == match[1]:
                    stalls[stall_reason(reason)] = counts
                else:
                    for pc, count in counts.items():
                        not_issued[pc] = not_issued.get(pc, 0) + count
        first = _function_start(action) or min([*samples, *executed])
        reached = sorted({pc for counts in (samples, executed) for pc, n in counts.items() if n})
        for pc, instruction in self._function(action, first, reached):
            self._tables.source.add(
                launch_id,
                pc - first,
                pc,
                *instruction,
                samples.get(pc, 0) if samples else None,
                not_issued.get(pc, 0) if not_issued else None,
                executed.get(pc, 0) if executed else None,
                threads.get(pc, 0) if threads else None,
                *(
                    stalls[reason].get(pc, 0) if reason in stalls else None
                    for reason in SOURCE_STALLS
                ),
            )

    def _function(
        self, action: Action, first: int, reached: Iterable[int]
    ) -> Iterator[tuple[int, Instruction]]:
        """Yield the listing of instructions; disassembling one costs more than all its counts."""
        known = self._functions.setdefault((action.name(action.NameBase_MANGLED), first), {})
        for pc in reached:
            if pc not in known:
                info = action.source_info(pc)
                file, line = (info.file_name(), info.line()) if info else (None, None)
                text = self._source_line(action, file, line)
                known[pc] = (action.sass_by_pc(pc).strip(), file, line, text)
            yield pc, known[pc]

    def _source_line(self, action: Action, file: str | None, line: int | None) -> str | None:
        """Return the text of a source line, None where ncu did not import the file."""
        if file is None or line is None:
            return None
        if file not in self._sources:
            # All files of an action come at once, and most actions have the same ones.
            for name, content in action.source_files().items():
                self._sources.setdefault(name, content.splitlines())
            # Debug information may have a different path for a file than the importer.
            alike = [name for name in self._sources if _base(name) == _base(file)]
            same = self._sources[alike[0]] if len(alike) == 1 else []
            self._sources.setdefault(file, same)
        lines = self._sources[file]
        return lines[line - 1].strip() if 0 < line <= len(lines) else None


def _base(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]


def _value(metric: Metric, api: Any) -> float | str:
    kind = metric.kind()
    if kind == api.IMetric.ValueKind_DOUBLE or kind == api.IMetric.ValueKind_FLOAT:
        number = float(metric.as_double())
        return number if math.isfinite(number) else str(number)
    if kind == api.IMetric.ValueKind_STRING:
        return str(metric.as_string())
    return float(metric.as_uint64())


def _instances(metric: Metric, api: Any) -> tuple[list[Any], list[float]]:
    """Return the correlation ids of a metric's instances (else their numbers) and the values."""
    indices = range(metric.num_instances())
    items = list(map(_number_reader(metric, api), indices))
    if not metric.has_correlation_ids():
        return list(indices), items
    keys = metric.correlation_ids()
    texts = keys.kind() == api.IMetric.ValueKind_STRING
    return list(map(keys.as_string if texts else keys.as_uint64, indices)), items


def _number_reader(metric: Metric, api: Any) -> Callable[[int], float]:
    whole = (api.IMetric.ValueKind_UINT64, api.IMetric.ValueKind_UINT32)
    read: Callable[[int], float] = metric.as_uint64 if metric.kind() in whole else metric.as_double
    return read


def _function_start(action: Action) -> int | None:
    metric = action.metric_by_name("launch__function_pcs")
    return int(metric.as_uint64(0)) if metric is not None and metric.num_instances() else None


def _nvtx_path(action: Action) -> str | None:
    state = action.nvtx_state()
    if state is None:
        return None
    steps = []
    for domain_id in state.domains():
        domain = state.domain_by_id(domain_id)
        steps += [nvtx_step(domain.name(), name) for name in domain.push_pop_ranges()]
    return "/".join(steps) or None
