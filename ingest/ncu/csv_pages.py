"""Reads ncu CSV: `--page raw`, `--page details`, and live output mixed with other lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from perfpipe.errors import InputError, brief
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.ncu.checks import check_launches
from perfpipe.ingest.ncu.csv_launches import PUSH_POP, START_STOP, CsvLaunches, Record
from perfpipe.ingest.ncu.csv_tables import TEXT_METRICS, records, tables
from perfpipe.ingest.ncu.csv_text import read_csv_text
from perfpipe.ingest.ncu.faults import failure_of
from perfpipe.ingest.ncu.labels import Labels
from perfpipe.ingest.ncu.launches import ncu_tables
from perfpipe.ingest.ncu.number_style import number_style

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


def read_csv_pages(builder: ReportBuilder) -> None:
    """Read every table of a CSV file into the ncu tables; raises InputError without launches."""
    source = builder.source
    text = read_csv_text(source.content, source.path)
    pages = [_page(source.path, header, rows) for header, rows in tables(source.path, text, "ID")]
    raw = [page for page in pages if isinstance(page, _Raw)]
    _check_units(source.path, raw)
    style = number_style(source.path, (cell for page in pages for cell in page.numbers()))
    with ncu_tables(builder) as out:
        launches = CsvLaunches(builder, out, style)
        for page in pages:
            page.read(launches)
    if not launches.launches:
        failure = failure_of("".join(text.log))
        raise InputError(
            f"{source.path}: the CSV has no launches{f' ({failure})' if failure else ''}"
        )
    launches.report()
    for page in pages:
        if isinstance(page, _Details):
            page.labels.warn(builder)
    if raw and not launches.has_rules:
        builder.lacks("ncu_rules", "not printed on the raw page")
    check_launches(builder, found=launches.launches, expected=text.profiled)
    text.warn(builder)
    for column in ("range_index", "action_index"):
        builder.lacks("ncu_launches", "not printed in CSV; ingest the .ncu-rep", column)
    for table in ("ncu_instances", "ncu_source"):
        builder.lacks(table, "not printed on this CSV page; ingest the .ncu-rep")


def _page(path: Path, header: list[str], rows: list[list[str]]) -> _Raw | _Details:
    if "Minimum" in header and "Maximum" in header:
        raise InputError(f"{path}: a summary over launches; export it without --print-summary")
    if "Metric Name" not in header:
        return _Raw(path, header, records(path, header, rows))
    for name in _DETAILS:
        if name not in header:
            raise InputError(f"{path}: damaged CSV (no column {name})")
    # A row with a metric ends with a comma after its value.
    return _Details(path, records(path, header, rows, header.index("Metric Value") + 2))


class _Raw:
    """A raw page: a record of units, then one record per launch."""

    def __init__(self, path: Path, header: list[str], rows: list[Record]) -> None:
        """Separate units and launches.

        Raises InputError if the units are not first: values would have the wrong units.
        """
        self.units, *others = rows or [{}]
        if self.units.get("ID"):
            raise InputError(
                f"{path}: damaged CSV (the second row of a raw page, which has the units, is "
                "missing); export it again with 'ncu --import REPORT --csv --page raw'"
            )
        # Each process prints the header and the units.
        if any(not record["ID"] and record != self.units for record in others):
            raise InputError(f"{path}: damaged CSV (a row without a launch ID)")
        self.launches = [record for record in others if record["ID"]]
        self._metrics = [
            name
            for name in header
            if name not in _IDENTITY and not name.startswith((PUSH_POP, START_STOP))
        ]

    def numbers(self) -> Iterator[tuple[str, str]]:
        """Yield the cells that may be numbers, with their units."""
        for metric in self._metrics:
            if metric not in TEXT_METRICS:
                unit = self.units.get(metric, "")
                for cell in dict.fromkeys(record[metric] for record in self.launches):
                    yield cell, unit

    def read(self, launches: CsvLaunches) -> None:
        """Write the launches."""
        for record in self.launches:
            launches.begin(record)
            for metric in self._metrics:
                launches.add_metric(metric, record[metric], self.units.get(metric, ""))
        launches.finish()


def _check_units(path: Path, pages: list[_Raw]) -> None:
    """Raise InputError if rows of several processes are mixed whose units differ."""
    before: list[Record] = []
    for page in pages:
        processes = {record.get("Process ID") for record in page.launches}
        if len(processes) > 1 and any(units and units != page.units for units in before):
            raise InputError(
                f"{path}: mixed rows of processes whose units differ; write one file per process "
                "(ncu --log-file name_%p.csv)"
            )
        before = [] if page.launches else [*before, page.units]


class _Details:
    """A details page: one record per metric and per rule result."""

    def __init__(self, path: Path, rows: list[Record]) -> None:
        """Name the metrics; raises InputError if the records of a launch are scattered."""
        self.labels = Labels(record.get("Metric Name", "") for record in rows)
        #: Records by launch, each with its metric: an empty name if it only has a rule result.
        self._launches = [
            [(self.labels.metric(record), record) for record in launch]
            for launch in _by_launch(path, rows)
        ]

    def numbers(self) -> Iterator[tuple[str, str]]:
        """Yield the cells that may be numbers, with their units."""
        for launch in self._launches:
            for metric, record in launch:
                if metric and metric not in TEXT_METRICS:
                    yield record.get("Metric Value", ""), record.get("Metric Unit", "")

    def read(self, launches: CsvLaunches) -> None:
        """Write the launches."""
        for launch in self._launches:
            launches.begin(launch[0][1])
            for metric, record in launch:
                if metric:
                    cell, unit = record.get("Metric Value", ""), record.get("Metric Unit", "")
                    launches.add_metric(metric, cell, unit)
                if record.get("Rule Name"):
                    launches.add_rule(record)
        launches.finish()


def _by_launch(path: Path, rows: list[Record]) -> list[list[Record]]:
    """Return the records of each launch; several processes may print at the same time.

    Raises InputError if the records of a launch are not consecutive among those of its process.
    """
    found: dict[tuple[str, str], list[Record]] = {}
    last: dict[str, str] = {}
    before, mixed = None, ""
    for record in rows:
        process, number = key = record.get("Process ID", ""), record["ID"]
        if not number:
            raise InputError(f"{path}: damaged CSV (rows without a launch ID)")
        if key != before and key in found:
            mixed = number
            if last[process] != number:
                break
        before, last[process] = key, number
        found.setdefault(key, []).append(record)
    else:
        # All launches begin with the same row; after a damaged process ID another row seems first.
        firsts = {(own[0]["Section Name"], own[0].get("Metric Name")) for own in found.values()}
        mixed = mixed if len(firsts) > 1 else ""
    if mixed:
        raise InputError(f"{path}: damaged CSV (scattered rows of launch {brief(mixed)})")
    return list(found.values())
