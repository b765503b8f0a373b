"""Reads the SASS of ncu CSV `--page source` into ncu_source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perfpipe.errors import InputError, brief
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.ncu.csv_tables import records, tables, whole
from perfpipe.ingest.ncu.csv_text import OF_SOURCE, read_csv_text
from perfpipe.ingest.ncu.launches import SOURCE_COLUMNS, SOURCE_STALLS, Launch, ncu_tables
from perfpipe.ingest.ncu.names import function_name, stall_reason

_NOT_ISSUED = " (Not Issued)"
_SAMPLES, _EXECUTIONS = map(SOURCE_COLUMNS.index, ("samples", "executions"))

#: Columns of samples since ncu 2023, in 2022 and in 2021.  ncu prints 0 for a kernel without
#: samples; the stall columns distinguish these cases.
_ALL = (
    "Warp Stall Sampling (All Samples)",
    "Warp Stall Sampling (All Cycles)",
    "Sampling Data (All)",
)
_NOT_ISSUED_SAMPLES = (
    "Warp Stall Sampling (Not-issued Samples)",
    "Warp Stall Sampling (Not-issued Cycles)",
    "Sampling Data (Not Issued)",
)

#: The title of a table, and its rows with the header.
Table = tuple[list[str], list[list[str]]]


def read_source_csv(builder: ReportBuilder) -> None:
    """Read each kernel's instruction table; raises InputError if there is none.

    ncu prints every table twice (once for each requested source view and once for SASS), so an
    exact repetition of the previous table belongs to the same launch.
    """
    path = builder.source.path
    text = read_csv_text(builder.source.content, path, OF_SOURCE)
    found = _of_sass(list(tables(path, text, "Kernel Name")), path)
    launches = 0
    with ncu_tables(builder) as out:
        for launch_id, (title, rows) in enumerate(found):
            name = title[1] if len(title) > 1 else ""
            out.launches.add(*Launch(launch_id, function_name(name), name).row())
            if rows:
                header, *instructions = rows
                for row in _instructions(launch_id, header, instructions, path):
                    out.source.add(*row)
            launches += 1
    if not launches:
        raise InputError(f"{path}: the CSV has no kernels")
    text.warn(builder)
    for table in ("ncu_metrics", "ncu_instances", "ncu_rules"):
        builder.lacks(table, "not printed on the source page; ingest the .ncu-rep")
    for column in ("file", "line", "text"):
        builder.lacks("ncu_source", "not printed on the source page of SASS", column)


def _of_sass(found: list[Table], path: Path) -> list[Table]:
    """Return the tables of SASS, once each; raises InputError if there are other views only."""
    sass = [(title, rows) for title, rows in found if len(rows) < 2 or _is_sass(*rows[:2])]
    if found and not sass:
        raise InputError(
            f"{path}: a source page without SASS (the CUDA C++ or PTX view); export it with "
            "'ncu --import REPORT --csv --page source --print-source sass'"
        )
    pairs = list(zip(sass[::2], sass[1::2], strict=False))
    repeated = len(sass) == len(found) == 2 * len(pairs) and all(a == b for a, b in pairs)
    return sass[::2] if repeated else sass


def _is_sass(header: list[str], row: list[str]) -> bool:
    """Return whether a table has instructions: lines of CUDA C++ have no addresses."""
    return bool("Address" in header and row[header.index("Address")].strip())


def _instructions(
    launch_id: int, header: list[str], rows: list[list[str]], path: Path
) -> list[tuple[Any, ...]]:
    samples = next((name for name in _ALL if name in header), "")
    not_issued = next((name for name in _NOT_ISSUED_SAMPLES if name in header), "")
    if not samples or not {"Address", "Source"} <= set(header):
        raise InputError(f"{path}: the source page lacks Address, Source or samples")
    listed = records(path, header, rows)
    stalls = {
        stall_reason(column.removeprefix("stall_")): column
        for column in header
        if column.startswith("stall_") and not column.endswith(_NOT_ISSUED)
    }
    try:
        addresses = [_address(record["Address"]) for record in listed]
    except ValueError as error:
        raise InputError(f"{path}: damaged address on the source page ({brief(error)})") from error
    first = min(addresses, default=0)
    listing = [
        (
            launch_id,
            address - first,
            address,
            record["Source"].strip(),
            None,
            None,
            None,
            whole(record.get("# Samples", record[samples])) if stalls else None,
            whole(record.get(not_issued)) if stalls else None,
            whole(record.get("Instructions Executed")),
            whole(record.get("Thread Instructions Executed")),
            *(
                whole(record[stalls[reason]]) if reason in stalls else None
                for reason in SOURCE_STALLS
            ),
        )
        for address, record in zip(addresses, listed, strict=True)
    ]
    return [row for row in listing if row[_SAMPLES] or row[_EXECUTIONS]]


def _address(cell: str) -> int:
    """Return an address; ValueError if it is not a 64-bit address."""
    if (address := int("".join(cell.split()), 16)) >> 63:
        raise ValueError(f"{brief(cell)} is not an address")
    return address
