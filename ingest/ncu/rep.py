"""Reads .ncu-rep: metrics from its bytes, the rest with NVIDIA's `ncu-report` package."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from perfpipe.errors import InputError, brief
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.ncu.checks import LaunchChecks
from perfpipe.ingest.ncu.container import Container, read_container
from perfpipe.ingest.ncu.instances import rows
from perfpipe.ingest.ncu.launches import DURATION, Launch, NcuTables, ncu_tables
from perfpipe.ingest.ncu.lean import LeanCopies
from perfpipe.ingest.ncu.names import nvtx_step, plain_message, readable, unit_of
from perfpipe.ingest.ncu.parts import LaunchRead, in_order, read_part, split
from perfpipe.ingest.ncu.program import program
from perfpipe.ingest.ncu.reader import require_reader
from perfpipe.ingest.ncu.sass import Listing, actions
from perfpipe.ingest.ncu.values import Metrics, Value
from perfpipe.ingest.used_gpus import UsedGpus
from perfpipe.scratch import scratch

_WORKLOAD_TYPES = ("kernel", "range", "cmdlist", "graph", "subgrid")
_RULE_TYPES = {0: "INF", 1: "INF", 2: "OPT", 3: "WRN", 4: "ERR"}
_SPEEDUP_KINDS = {1: "local", 2: "global"}

#: Integers in the store are below this.
_LARGEST = 2.0**63

Action = Any


def read_ncu_rep(builder: ReportBuilder) -> None:
    """Read a whole .ncu-rep into the ncu tables; raises InputError if it has no launches."""
    container = read_container(builder.source.content, builder.source.path)
    builder.facts.host = container.host
    builder.facts.command = program(container.executable, container.command)
    builder.facts.captured_at = container.created_at
    builder.facts.tool_version = _tool_version(container)
    with scratch() as directory, ncu_tables(builder) as tables:
        reader = _Reader(builder, tables, container)
        try:
            reader.read(directory)
        except (IndexError, ValueError, struct.error) as error:
            raise InputError(
                f"{builder.source.path}: the report is damaged ({brief(error)})"
            ) from error
    if not reader.launches:
        raise InputError(f"{builder.source.path}: the report has no launches")
    reader.checks.report(builder)
    reader.gpus.state(builder)


def _name(action: Action, base: int) -> str:
    """Return a name of a launch; raises ValueError if its text is not in the report."""
    # NVIDIA's reader then returns None, although it is declared to return a text.
    name: str | None = action.name(base)
    if name is None:
        raise ValueError("a launch has no name")
    return readable(name)


def _tool_version(container: Container) -> str | None:
    for name, value in container.versions.items():
        if "Nsight Compute" in name:
            return value.split(" ")[0]
    return None


class _Reader:
    """Reads the results of a report, one at a time."""

    def __init__(self, builder: ReportBuilder, tables: NcuTables, container: Container) -> None:
        self._builder = builder
        self._tables = tables
        self._container = container
        self._units: dict[str, str | None] = {}
        self.launches = 0
        self.checks = LaunchChecks()
        self.gpus = UsedGpus()

    def read(self, directory: Path) -> None:
        """Read every result; data that only NVIDIA's reader can read comes from lean copies."""
        require_reader()
        import ncu_report

        copies = LeanCopies(self._container)
        path = directory / "results.ncu-rep"
        copies.write_results(path)
        lean = list(actions(ncu_report.load_report(str(path))))
        if len(lean) != len(copies.results):
            raise ValueError(f"only {len(lean)} of {len(copies.results)} results can be read")
        for index in sorted(set(copies.first.values())):
            action = lean[index][2]
            names = [name for name in action.metric_names() if copies.first.get(name) == index]
            found = [action.metric_by_name(name) for name in names]
            for name, metric in zip(names, found, strict=True):
                # A damaged metric has only a name.
                told = readable((metric and metric.unit()) or "") or None
                self._units[name] = unit_of(name, told)
        workers = self._builder.workers
        parts = workers.each(read_part, split(copies, directory, workers))
        for launch, listing in in_order(parts):
            range_index, action_index, action = lean[launch.launch_id]
            self._add_metrics(launch.launch_id, launch.metrics)
            self._add_launch(
                launch.launch_id, range_index, action_index, action, launch.metrics.values
            )
            self._add_rules(launch.launch_id, action)
            self._add_source(launch, listing)
            self.checks.add(launch.launch_id, launch.metrics.values)
            self.launches += 1

    def _add_metrics(self, launch_id: int, metrics: Metrics) -> None:
        self._tables.metrics.write(
            len(metrics.names),
            {
                "launch_id": pa.array(np.full(len(metrics.names), launch_id)),
                "metric": pa.array(metrics.names),
                "value": pa.array(metrics.numbers, from_pandas=True),
                "text": list(map(metrics.texts.get, metrics.names)),
                "unit": list(map(self._units.get, metrics.names)),
            },
        )
        if metrics.instances:
            total = sum(len(found.values) for found in metrics.instances.values())
            self._tables.instances.write(total, rows(launch_id, metrics.instances))

    def _add_launch(
        self,
        launch_id: int,
        range_index: int,
        action_index: int,
        action: Action,
        values: dict[str, Value],
    ) -> None:
        def whole(name: str) -> int | None:
            value = values.get(name)
            plain = isinstance(value, (int, float)) and abs(value) < _LARGEST
            return int(value) if plain else None  # type: ignore[arg-type]

        def extent(name: str) -> tuple[int | None, ...]:
            return tuple(whole(f"launch__{name}_dim_{axis}") for axis in "xyz")

        major = whole("device__attribute_compute_capability_major")
        minor = whole("device__attribute_compute_capability_minor")
        device_name = values.get("device__attribute_display_name")
        duration = values.get(DURATION)
        pids = self._container.process_ids
        launch = Launch(
            launch_id,
            kernel_name=_name(action, action.NameBase_FUNCTION),
            kernel_demangled=_name(action, action.NameBase_DEMANGLED),
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
                readable(rule["rule_identifier"]),
                readable(rule.get("section_identifier") or "") or None,
                readable(message.get("title") or "") or None,
                plain_message(readable(message.get("message", ""))) or None,
                _RULE_TYPES.get(message.get("type", -1)),
                _SPEEDUP_KINDS.get(speedup.get("type", 0)),
                speedup.get("speedup") if speedup else None,
            )

    def _add_source(self, launch: LaunchRead, listing: Listing) -> None:
        if reached := launch.reached.tolist():
            texts = zip(*(listing[address] for address in reached), strict=True)
            columns = dict(zip(("sass", "file", "line", "text"), map(list, texts), strict=True))
            ids = {"launch_id": [launch.launch_id] * len(reached)}
            self._tables.source.write(len(reached), {**ids, **columns, **launch.counts})


def _nvtx_path(action: Action) -> str | None:
    state = action.nvtx_state()
    if state is None:
        return None
    steps = []
    for domain_id in state.domains():
        domain = state.domain_by_id(domain_id)
        steps += [nvtx_step(domain.name(), name) for name in domain.push_pop_ranges()]
    return readable("/".join(steps)) or None
