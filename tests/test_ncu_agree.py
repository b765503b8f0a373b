"""The same launches give the same rows from .ncu-rep and CSV, to the digits printed."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Opened

from perfpipe.ingest.ncu.csv_tables import tables
from perfpipe.ingest.ncu.csv_text import read_csv_text
from perfpipe.ingest.ncu.labels import Labels
from perfpipe.units import base_unit

Expand = Callable[[str], Path]
Ingested = Callable[[str], str]
NAMES = ("visible", "ops", "block")
PAGES = {
    "visible": ("raw", "rawbase", "details"),
    "ops": ("raw", "rawbase", "details"),
    "block": ("raw", "details"),
}

#: ncu's auto-scaled raw page prints 0 in a column of small negative percentages; the base-unit
#: page prints -1.42 there.
_PRINTED_AS_ZERO = {
    (
        "visible",
        "raw",
        14,
        "sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active"
        ".min.pct_of_peak_sustained_elapsed",
    )
}


#: Rows of the details page whose metric the report does not hold (ncu prints them all the same).
_NOT_IN_REPORT = {
    "lrc__ilc_input_sectors.sum",
    "lts__average_gcomp_input_sector_success_rate.pct",
    "lts__average_gcomp_output_sector_compression_achieved_rate.ratio",
}

Metrics = dict[tuple[int, str], tuple[float | None, str | None]]


def _metrics(opened: Opened, name: str) -> Metrics:
    with opened(name) as con:
        rows = con.execute("SELECT launch_id, metric, value, text FROM ncu_metrics").fetchall()
    return {(launch, metric): (value, text) for launch, metric, value, text in rows}


def _tolerances(path: Path) -> dict[tuple[int, str], float]:
    """Return half a unit of the last digit that each cell prints, in base units."""
    found: dict[tuple[int, str], float] = {}
    for header, rows in tables(path, read_csv_text(path, path), "ID"):
        if "Metric Name" in header:
            ids = {pair: i for i, pair in enumerate(dict.fromkeys((r[1], r[0]) for r in rows))}
            records = [dict(zip(header, row, strict=False)) for row in rows]
            labels = Labels(record["Metric Name"] for record in records)
            for row, record in zip(rows, records, strict=True):
                if metric := labels.metric(record):
                    cell, unit = record["Metric Value"], record["Metric Unit"]
                    found.setdefault((ids[row[1], row[0]], metric), _half_digit(cell, unit))
        else:
            units, *launches = rows
            for launch, row in enumerate(launches):
                for metric, cell, unit in zip(header, row, units, strict=True):
                    found[launch, metric] = _half_digit(cell, unit)
    return found


def _half_digit(cell: str, unit: str) -> float:
    digits = len(cell.partition(".")[2])
    return 0.5 * 10.0**-digits * base_unit(unit).scale * (1 + 1e-9)


@pytest.mark.parametrize(("name", "page"), [(name, page) for name in NAMES for page in PAGES[name]])
def test_every_metric_agrees_with_the_report(
    name: str, page: str, opened: Opened, expand: Expand
) -> None:
    truth = _metrics(opened, f"ncu/{name}.ncu-rep")
    printed = _metrics(opened, f"ncu/{name}.{page}.csv")
    tolerances = _tolerances(expand(f"ncu/{name}.{page}.csv"))
    compared = 0
    for key, (value, text) in printed.items():
        if key not in truth and page == "details" and key[1] in _NOT_IN_REPORT:
            continue
        assert key in truth, key
        true_value, true_text = truth[key]
        compared += 1
        if (name, page, *key) in _PRINTED_AS_ZERO:
            assert value == 0
            continue
        assert text == true_text, key
        assert (value is None) == (true_value is None), key
        if value is not None and true_value is not None:
            limit = tolerances[key] + 1e-12 * abs(true_value)
            assert abs(value - true_value) <= limit, (key, value, true_value)
    launches = {launch for launch, _ in truth}
    assert {launch for launch, _ in printed} == launches
    if page != "details":
        scalars = {k for k in truth if not k[1].startswith("breakdown:")}
        assert set(printed) == scalars, "a page holds each metric of the report and no other"
    assert compared > 70 * len(launches)


@pytest.mark.parametrize("name", NAMES)
def test_pages_agree_with_each_other_on_launches(
    name: str, ingested: Ingested, opened: Opened
) -> None:
    names = [f"ncu/{name}.ncu-rep", *(f"ncu/{name}.{page}.csv" for page in PAGES[name])]
    ids = [ingested(one) for one in names]
    columns = (
        "launch_id, workload_type, kernel_name, kernel_key(kernel_demangled), cc, device, "
        "context, stream, grid_x, grid_y, grid_z, block_x, block_y, block_z, process_id, nvtx_path"
    )
    with opened(*names) as con:
        rows = [
            con.execute(
                f"SELECT {columns} FROM ncu_launches WHERE report_id = ? ORDER BY launch_id", [i]
            ).fetchall()
            for i in ids
        ]
    for other in rows[1:]:
        assert other == rows[0]


@pytest.mark.parametrize("name", NAMES)
def test_rules_agree_with_the_details_page(
    name: str, opened: Opened, ingested: Ingested, expand: Expand
) -> None:
    report = ingested(f"ncu/{name}.ncu-rep")
    page = ingested(f"ncu/{name}.details.csv")
    with opened(f"ncu/{name}.ncu-rep", f"ncu/{name}.details.csv") as con:
        rows = {
            i: con.execute(
                "SELECT launch_id, section, rule, type, message, speedup_kind, "
                "round(speedup_pct, 1) FROM ncu_rules WHERE report_id = ? ORDER BY ALL",
                [i],
            ).fetchall()
            for i in (report, page)
        }
    # The page prints no result without a message type of its own (OK, none).
    shown = [row for row in rows[report] if row[4]]
    by_key = {row[:5] for row in shown}
    assert {row[:5] for row in rows[page]} <= by_key
    assert len(rows[page]) == sum(1 for r in _records(expand(f"ncu/{name}.details.csv")) if r)
    speedups = {row[:3] + row[5:] for row in rows[page] if row[5]}
    for *key, kind, pct in speedups:
        near = [r for r in shown if list(r[:3]) == key and r[5] == kind]
        assert any(abs(r[6] - pct) <= 0.11 for r in near), (key, kind, pct)


def _records(path: Path) -> list[str]:
    with path.open(newline="") as file:
        return [row.get("Rule Name") or "" for row in csv.DictReader(file)]
