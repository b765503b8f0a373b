"""Reads .ncu-rep: metrics from its bytes, all else through NVIDIA's `ncu-report` package."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ingest.builder import ReportBuilder
from ingest.ncu.checks import LaunchChecks
from ingest.ncu.container import Container, read_container
from ingest.ncu.instances import rows
from ingest.ncu.launches import DURATION, Launch, NcuTables, ncu_tables
from ingest.ncu.lean import LeanCopies
from ingest.ncu.names import keeps_instances, nvtx_step, plain_message
from ingest.ncu.sass import Disassembly, actions
from ingest.ncu.source_rows import SourceCounts
from ingest.ncu.values import MetricReader, Metrics, Value
from ingest.used_gpus import UsedGpus
from perfpipe.errors import InputError

_WORKLOAD_TYPES = ("kernel", "range", "cmdlist", "graph", "subgrid")
_RULE_TYPES = {0: "INF", 1: "INF", 2: "OPT", 3: "WRN", 4: "ERR"}
_SPEEDUP_KINDS = {1: "local", 2: "global"}

Action = Any


def read_ncu_rep(builder: ReportBuilder) -> None:
    """Read a whole .ncu-rep into the ncu tables; raises InputError if it has no launches."""
    container = read_container(builder.source.content)
    builder.facts.host = container.host
    builder.facts.command = container.executable
    builder.facts.captured_at = container.created_at
    builder.facts.tool_version = _tool_version(container)
    with TemporaryDirectory() as directory, ncu_tables(builder) as tables:
        reader = _Reader(builder, tables, container)
        try:
            reader.read(Path(directory))
        except (IndexError, ValueError, struct.error) as error:
            raise InputError(f"{builder.source.path}: the report is damaged ({error})") from error
    if not reader.launches:
        raise InputError(f"{builder.source.path}: the report has no launches")
    reader.checks.report(builder)
    reader.gpus.state(builder)


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
        """Read every result: what only NVIDIA's reader can tell, it tells from lean copies."""
        import ncu_report

        copies = LeanCopies(self._container)
        path = directory / "results.ncu-rep"
        copies.write_results(path)
        lean = list(actions(ncu_report.load_report(str(path))))
        if len(lean) != len(copies.results):
            raise ValueError(f"{len(copies.results)} results, of which {len(lean)} can be read")
        for index in sorted(set(copies.first.values())):
            action = lean[index][2]
            # In this order: the reader tells some units by what it was asked for before.
            for name in action.metric_names():
                if copies.first[name] == index:
                    self._units[name] = action.metric_by_name(name).unit() or None
        code = Disassembly(copies, directory, ncu_report)
        for (range_index, action_index, action), metrics in zip(
            lean, self._read_metrics(), strict=True
        ):
            launch_id = self.launches
            self._add_metrics(launch_id, metrics)
            self._add_launch(launch_id, range_index, action_index, action, metrics.values)
            self._add_rules(launch_id, action)
            self._add_source(launch_id, metrics, code)
            self.checks.add(launch_id, metrics.values)
            self.launches += 1

    def _read_metrics(self) -> Iterator[Metrics]:
        reader = MetricReader(self._container.strings)
        with self._container.path.open("rb") as file:
            for block in self._container.blocks:
                for kind, _, message in self._container.messages(file, block):
                    if kind:
                        yield reader.read(message, kind.metrics)

    def _add_metrics(self, launch_id: int, metrics: Metrics) -> None:
        told = metrics.values.values()
        self._tables.metrics.extend(
            len(told),
            launch_id=launch_id,
            metric=list(metrics.values),
            value=[None if isinstance(value, str) else value for value in told],
            text=[value if isinstance(value, str) else None for value in told],
            unit=list(map(self._units.get, metrics.values)),
        )
        kept = {name: found for name, found in metrics.instances.items() if keeps_instances(name)}
        if kept:
            self._tables.instances.write(
                sum(len(found.values) for found in kept.values()), rows(launch_id, kept)
            )

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

    def _add_source(self, launch_id: int, metrics: Metrics, code: Disassembly) -> None:
        counts = SourceCounts(metrics.instances, metrics.function_start)
        if reached := counts.reached.tolist():
            texts = zip(*code.listing(launch_id, reached), strict=True)
            listing = dict(zip(("sass", "file", "line", "text"), map(list, texts), strict=True))
            launch = {"launch_id": [launch_id] * len(reached)}
            self._tables.source.write(len(reached), {**launch, **listing, **counts.columns()})


def _nvtx_path(action: Action) -> str | None:
    state = action.nvtx_state()
    if state is None:
        return None
    steps = []
    for domain_id in state.domains():
        domain = state.domain_by_id(domain_id)
        steps += [nvtx_step(domain.name(), name) for name in domain.push_pop_ranges()]
    return "/".join(steps) or None
