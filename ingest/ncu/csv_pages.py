"""Reads ncu CSV: `--page raw`, `--page details`, and live output mixed with other lines."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

from perfpipe.errors import InputError, brief
from perfpipe.files import packaged
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.ncu.checks import LaunchChecks, check_launches
from perfpipe.ingest.ncu.csv_tables import (
    NOTHING,
    Cell,
    capability,
    extent,
    parse_cell,
    read_csv_text,
    records,
    tables,
    whole,
)
from perfpipe.ingest.ncu.launches import DURATION, Launch, NcuTables, ncu_tables
from perfpipe.ingest.ncu.names import function_name, nvtx_path_from_csv
from perfpipe.ingest.used_gpus import UsedGpus

_IDENTITY = frozenset(
    {
        "ID",
        "Process ID",
        "Process Name",
        "Host Name",
        "Kernel Name",
        "Kernel Time",
        "Context",
        "Stream",
        "Block Size",
        "Grid Size",
        "Device",
        "CC",
    }
)
#: Columns needed to read a details page.
_DETAILS = ("Kernel Name", "Section Name", "Metric Unit", "Metric Value")

_PUSH_POP = "thread Domain:Push/Pop_Range"
_START_STOP = "Id:Domain:Start/Stop_Range"

Record = dict[str, str]
T = TypeVar("T")

#: Grid and block of a launch without them, such as a range.
NO_EXTENT = (None, None, None)


def read_csv_pages(builder: ReportBuilder) -> None:
    """Read every table of a CSV file into the ncu tables; raises InputError without launches."""
    source = builder.source
    text = read_csv_text(source.content, source.path)
    with ncu_tables(builder) as out:
        reader = _Reader(builder, out)
        for header, rows in tables(source.path, text, "ID"):
            if "Minimum" in header and "Maximum" in header:
                raise InputError(
                    f"{source.path}: a summary over launches; export it without --print-summary"
                )
            if "Metric Name" in header:
                _check_columns(source.path, header, _DETAILS)
                # A row with a metric ends with a comma after its value.
                short = header.index("Metric Value") + 2
                reader.details(records(source.path, header, rows, short))
            else:
                reader.raw(header, records(source.path, header, rows))
        reader.finish()
    if not reader.launches:
        raise InputError(f"{source.path}: the CSV has no launches")
    reader.report()
    check_launches(builder, found=reader.launches, expected=text.profiled)
    text.warn(builder)
    for column in ("range_index", "action_index"):
        builder.lacks("ncu_launches", "not printed in CSV; ingest the .ncu-rep", column)
    for table in ("ncu_instances", "ncu_source"):
        builder.lacks(table, "not printed on this CSV page; ingest the .ncu-rep")


def _check_columns(path: Path, header: list[str], needed: tuple[str, ...]) -> None:
    for name in needed:
        if name not in header:
            raise InputError(f"{path}: damaged CSV (no column {name})")


def _key_of(record: Record) -> tuple[str, str]:
    return record.get("Process ID", ""), record["ID"]


class _Reader:
    """Converts records to rows; a launch is complete when the next one begins."""

    def __init__(self, builder: ReportBuilder, out: NcuTables) -> None:
        self._builder = builder
        self._out = out
        self._key: tuple[str, str] | None = None
        self._record: Record = {}
        self._values: dict[str, float | str | None] = {}
        self._rules = 0
        self._has_rules = False
        self._damaged: dict[str, list[str]] = {}
        self.launches = 0
        self.checks = LaunchChecks()
        self.gpus = UsedGpus()

    def raw(self, header: list[str], rows: list[Record]) -> None:
        """Read a raw page: a record of units, then one record per launch.

        Raises InputError if the units are not first: values would have the wrong units.
        """
        metrics = [
            name
            for name in header
            if name not in _IDENTITY and not name.startswith((_PUSH_POP, _START_STOP))
        ]
        units, *launches = rows or [{}]
        if any(not record["ID"] for record in launches) or units.get("ID"):
            path = self._builder.source.path
            raise InputError(f"{path}: damaged CSV (the row of units is not the first row)")
        for record in launches:
            self._begin(record)
            for metric in metrics:
                self._add_metric(metric, parse_cell(metric, record[metric], units.get(metric, "")))
        self.finish()
        if not self._has_rules:
            self._builder.lacks("ncu_rules", "not printed on the raw page")

    def details(self, rows: list[Record]) -> None:
        """Read a details page: one record per metric and per rule result.

        Raises InputError if the records of a launch are not consecutive.
        """
        labels = section_labels()
        before: set[tuple[str, str]] = set()
        for record in rows:
            key = _key_of(record)
            if key != self._key:
                name = brief(key[1])
                what = f"scattered rows of launch {name}" if name else "rows without a launch ID"
                if key in before or not key[1]:
                    path = self._builder.source.path
                    raise InputError(f"{path}: damaged CSV ({what})")
                before.add(key)
                self._begin(record)
            if label := record.get("Metric Name"):
                section = record["Section Name"]
                metric = labels.get(section, {}).get(label, f"{section}:{label}")
                if metric not in self._values:
                    cell = record.get("Metric Value", "")
                    self._add_metric(
                        metric, parse_cell(metric, cell, record.get("Metric Unit", ""))
                    )
            if rule := record.get("Rule Name"):
                speedup = parse_cell(rule, record.get("Estimated Speedup", ""), "%")
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
                self._has_rules = True
        self.finish()

    def _begin(self, record: Record) -> None:
        self.finish()
        self._key, self._record = _key_of(record), record
        self._values, self._rules = {}, 0
        self.launches += 1
        facts = self._builder.facts
        facts.host = facts.host or record.get("Host Name") or None
        facts.command = facts.command or record.get("Process Name") or None

    def _identity(self, column: str, parse: Callable[[str], T | None]) -> T | None:
        """Return a cell that identifies the launch; None if it is empty or damaged."""
        cell = self._record.get(column, "").strip()
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
        self.checks.report(self._builder)
        self.gpus.state(self._builder)

    def _add_metric(self, metric: str, cell: Cell | None) -> None:
        if cell is None:
            return
        self._values[metric] = cell.text if cell.value is None else cell.value
        self._out.metrics.add(self.launches - 1, metric, cell.value, cell.text, cell.unit)

    def finish(self) -> None:
        """Write the current launch."""
        if self._key is None:
            return
        record, values = self._record, self._values
        name = record.get("Kernel Name", "")
        duration = values.get(DURATION)
        device_name = values.get("device__attribute_display_name")
        pushed = next((v for k, v in record.items() if k.startswith(_PUSH_POP)), "")
        launch = Launch(
            self.launches - 1,
            kernel_name=function_name(name),
            kernel_demangled=name,
            cc=self._identity("CC", capability),
            device=self._identity("Device", whole),
            device_name=str(device_name) if device_name else None,
            context=self._identity("Context", whole),
            stream=self._identity("Stream", whole),
            grid=self._identity("Grid Size", extent) or NO_EXTENT,
            block=self._identity("Block Size", extent) or NO_EXTENT,
            process_id=self._identity("Process ID", whole),
            nvtx_path=nvtx_path_from_csv(pushed),
            duration_ns=duration if isinstance(duration, float) else None,
        )
        self._out.launches.add(*launch.row())
        # Older versions of ncu state the SMs of the device only, details pages those of the launch.
        names = ("device__attribute_multiprocessor_count", "launch__sm_count")
        sm_count = next((int(v) for n in names if isinstance(v := values.get(n), float)), None)
        self.gpus.add(launch.device_name, sm_count, launch.duration_ns or 0)
        self.checks.add(launch.launch_id, values)
        self._key = None


@cache
def section_labels() -> dict[str, dict[str, str]]:
    """Return section -> label -> metric of the details page."""
    text = packaged("perfpipe.ingest.ncu", "labels.toml")
    return tomllib.loads(text)
