"""Vendor peaks and architecture limits as tables, so that views can join them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from perfpipe.database import ColumnSpec, comment, create_table
from perfpipe.specs import Architecture, GpuSpec, architectures, find_spec

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

PEAKS_DOC = "Vendor peaks of the GPU of each report, one row per type; no rows for an unknown GPU."
PEAKS_COLUMNS: tuple[ColumnSpec, ...] = (
    ("report_id", "VARCHAR", "report"),
    ("gpu", "VARCHAR", "GPU model, from device name and SM count"),
    ("dtype", "VARCHAR", "type, as in 'perfpipe specs'"),
    ("flop_per_s", "DOUBLE", "dense peak, FLOP/s (int8: operations/s)"),
    ("bytes_per_s", "DOUBLE", "DRAM bandwidth, byte/s"),
    ("source", "VARCHAR", "the vendor's document"),
)
_LINK_COLUMNS: tuple[ColumnSpec, ...] = (
    ("report_id", "VARCHAR", ""),
    ("dram_bytes_per_s", "DOUBLE", ""),
    ("pcie_bytes_per_s", "DOUBLE", ""),
    ("nvlink_bytes_per_s", "DOUBLE", ""),
)
ARCHITECTURE_DOC = "Resources of an SM, by compute capability."


def make_gpu_peaks(con: DuckDBPyConnection) -> None:
    """Create gpu_peaks from `reports`."""
    rows = [
        (*device, spec.name, dtype, peak * 1e12, spec.bandwidth_gbs * 1e9, spec.source)
        for device, spec in _specs(con)
        for dtype, peak in spec.dense.items()
    ]
    _make_for_reports(con, "gpu_peaks", PEAKS_COLUMNS, rows)
    comment(con, "TABLE", "gpu_peaks", PEAKS_DOC, {name: doc for name, _, doc in PEAKS_COLUMNS})


def make_gpu_links(con: DuckDBPyConnection) -> None:
    """Create the private table of bandwidths of each report's GPU, from `reports`."""
    rows = []
    for device, spec in _specs(con):
        links = (spec.bandwidth_gbs, spec.pcie_gbs, spec.nvlink_gbs)
        rows.append((*device, *(None if rate is None else rate * 1e9 for rate in links)))
    _make_for_reports(con, "_gpu_links", _LINK_COLUMNS, rows)


def make_architectures(con: DuckDBPyConnection) -> None:
    """Create gpu_architectures."""
    docs = Architecture.documentation()
    columns = [(n, "VARCHAR" if n == "cc" else "BIGINT", doc) for n, doc in docs.items()]
    rows = [tuple(getattr(a, name) for name in docs) for a in architectures().values()]
    create_table(con, "gpu_architectures", columns, rows, ARCHITECTURE_DOC)


def _specs(con: DuckDBPyConnection) -> Iterator[tuple[tuple[str, int | None], GpuSpec]]:
    """Yield each kind of device among the reports, as name and SM count, with its peaks."""
    devices = con.execute(
        "SELECT DISTINCT gpu, sm_count FROM reports WHERE gpu IS NOT NULL ORDER BY gpu, sm_count"
    ).fetchall()
    for gpu, sm_count in devices:
        spec = find_spec(gpu, sm_count)
        if spec:
            yield (gpu, sm_count), spec


def _make_for_reports(
    con: DuckDBPyConnection, name: str, columns: Sequence[ColumnSpec], rows: Sequence[Sequence[Any]]
) -> None:
    """Create a table whose rows, given for a device, stand for each report of that device."""
    device = (("device", "VARCHAR", ""), ("device_sms", "BIGINT", ""))
    create_table(con, "_by_device", (*device, *columns[1:]), rows)
    values = ", ".join(f"d.{column}" for column, *_ in columns[1:])
    con.execute(
        f"CREATE TABLE {name} AS SELECT r.report_id, {values} FROM reports AS r "
        "JOIN _by_device AS d ON r.gpu = d.device AND r.sm_count IS NOT DISTINCT FROM d.device_sms "
        "ORDER BY ALL"
    )
    con.execute("DROP TABLE _by_device")
