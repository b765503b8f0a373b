"""Converts the records of ncu's CSV pages to launches, metrics and rule results."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from perfpipe.errors import brief
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.ncu.checks import LaunchChecks
from perfpipe.ingest.ncu.csv_tables import NOTHING, capability, extent, parse_cell, whole
from perfpipe.ingest.ncu.launches import DURATION, Launch, NcuTables
from perfpipe.ingest.ncu.names import function_name, nvtx_path_from_csv
from perfpipe.ingest.ncu.number_style import NumberStyle
from perfpipe.ingest.used_gpus import UsedGpus

#: Begins of the names of columns of NVTX ranges.
PUSH_POP = "thread Domain:Push/Pop_Range"
START_STOP = "Id:Domain:Start/Stop_Range"

Record = dict[str, str]
T = TypeVar("T")

#: Grid and block of a launch without them, such as a range.
_NO_EXTENT = (None, None, None)


class CsvLaunches:
    """Writes launches; a launch is complete when the next one begins."""

    def __init__(self, builder: ReportBuilder, out: NcuTables, style: NumberStyle) -> None:
        self._builder = builder
        self._out = out
        self._style = style
        self._record: Record | None = None
        self._values: dict[str, float | str | None] = {}
        self._rules = 0
        self._damaged: dict[str, list[str]] = {}
        self.launches = 0
        self.has_rules = False
        self._checks = LaunchChecks()
        self._gpus = UsedGpus()

    def begin(self, record: Record) -> None:
        """Begin a launch with the first of its records."""
        self.finish()
        self._record = record
        self._values, self._rules = {}, 0
        self.launches += 1
        facts = self._builder.facts
        facts.host = facts.host or record.get("Host Name") or None
        facts.command = facts.command or record.get("Process Name") or None

    def add_metric(self, metric: str, cell: str, unit: str) -> None:
        """Add a metric of the launch, unless its cell is empty or the launch has it already."""
        value = parse_cell(metric, cell, unit, self._style)
        if value is None or metric in self._values:
            return
        self._values[metric] = value.text if value.value is None else value.value
        self._out.metrics.add(self.launches - 1, metric, value.value, value.text, value.unit)

    def add_rule(self, record: Record) -> None:
        """Add the rule result in a record of the launch."""
        rule = record["Rule Name"]
        # A percentage with four significant digits: whatever separates them, it is decimals.
        speedup = parse_cell(rule, record.get("Estimated Speedup", "").replace(",", "."), "%")
        self._out.rules.add(
            self.launches - 1,
            self._rules,
            rule,
            record.get("Section Name") or None,
            None,
            record.get("Rule Description") or None,
            record.get("Rule Type") or None,
            record.get("Estimated Speedup Type") or None,
            speedup.value if speedup else None,
        )
        self._rules += 1
        self.has_rules = True

    def _identity(self, column: str, parse: Callable[[str], T | None]) -> T | None:
        """Return a cell that identifies the launch; None if it is empty or damaged."""
        cell = (self._record or {}).get(column, "").strip()
        if not cell or cell in NOTHING:
            return None
        value = parse(cell)
        if value is None:
            self._damaged.setdefault(column, []).append(cell)
        return value

    def report(self) -> None:
        """Add the gaps and warnings of all launches to the report."""
        for column, cells in self._damaged.items():
            reason = f"have a damaged {column} ({brief(cells[0], 20)!r}), read as NULL"
            self._builder.lose("the CSV", reason, len(cells), self.launches, counts=False)
        self._checks.report(self._builder)
        self._gpus.state(self._builder)

    def finish(self) -> None:
        """Write the current launch."""
        if self._record is None:
            return
        record, values = self._record, self._values
        name = record.get("Kernel Name", "")
        duration = values.get(DURATION)
        device_name = values.get("device__attribute_display_name")
        pushed = next((v for k, v in record.items() if k.startswith(PUSH_POP)), "")
        launch = Launch(
            self.launches - 1,
            kernel_name=function_name(name),
            kernel_demangled=name,
            cc=self._identity("CC", capability),
            device=self._identity("Device", whole),
            device_name=str(device_name) if device_name else None,
            context=self._identity("Context", whole),
            stream=self._identity("Stream", whole),
            grid=self._identity("Grid Size", extent) or _NO_EXTENT,
            block=self._identity("Block Size", extent) or _NO_EXTENT,
            process_id=self._identity("Process ID", whole),
            nvtx_path=nvtx_path_from_csv(pushed),
            duration_ns=duration if isinstance(duration, float) else None,
        )
        self._out.launches.add(*launch.row())
        # Older versions of ncu state the SMs of the device only, details pages those of the launch.
        names = ("device__attribute_multiprocessor_count", "launch__sm_count")
        sm_count = next((int(v) for n in names if isinstance(v := values.get(n), float)), None)
        self._gpus.add(launch.device_name, sm_count, launch.duration_ns or 0)
        self._checks.add(launch.launch_id, values)
        self._record = None
