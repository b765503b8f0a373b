"""Vendor peaks and architecture limits as tables, so that views can join them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfpipe.query import comment
from perfpipe.specs import Architecture, architectures, find_spec

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

PEAKS_DOC = "Vendor peaks of the GPU of each report, one row a type; no row where it is not known."
PEAKS_COLUMNS = {
    "report_id": ("VARCHAR", "report"),
    "gpu": ("VARCHAR", "GPU model that the device name and SM count stand for"),
    "dtype": ("VARCHAR", "type, as in 'perfpipe specs'"),
    "flop_per_s": ("DOUBLE", "dense peak, FLOP/s (int8: operations/s)"),
    "bytes_per_s": ("DOUBLE", "DRAM bandwidth, byte/s"),
    "source": ("VARCHAR", "where the vendor states it"),
}
ARCHITECTURE_DOC = "What an SM holds, by compute capability."


def install_peaks(con: DuckDBPyConnection) -> None:
    """Create gpu_peaks, gpu_architectures and the private table of links."""
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in PEAKS_COLUMNS.items())
    con.execute(f"CREATE TABLE gpu_peaks ({columns})")
    con.execute(
        "CREATE TABLE _gpu_links (report_id VARCHAR, dram_bytes_per_s DOUBLE, "
        "pcie_bytes_per_s DOUBLE, nvlink_bytes_per_s DOUBLE)"
    )
    rows = []
    for report_id, gpu, sm_count in con.execute(
        "SELECT report_id, gpu, sm_count FROM reports WHERE gpu IS NOT NULL ORDER BY report_id"
    ).fetchall():
        spec = find_spec(gpu, sm_count)
        if spec:
            links = (spec.bandwidth_gbs, spec.pcie_gbs, spec.nvlink_gbs)
            rates = [None if rate is None else rate * 1e9 for rate in links]
            con.execute("INSERT INTO _gpu_links VALUES (?, ?, ?, ?)", [report_id, *rates])
            rows += [
                (report_id, spec.name, dtype, peak * 1e12, spec.bandwidth_gbs * 1e9, spec.source)
                for dtype, peak in spec.dense.items()
            ]
    if rows:
        con.executemany(
            f"INSERT INTO gpu_peaks VALUES ({', '.join('?' * len(PEAKS_COLUMNS))})", rows
        )
    comment(con, "TABLE", "gpu_peaks", PEAKS_DOC, {n: d for n, (_, d) in PEAKS_COLUMNS.items()})
    docs = Architecture.documentation()
    columns = ", ".join(f"{name} {'VARCHAR' if name == 'cc' else 'BIGINT'}" for name in docs)
    con.execute(f"CREATE TABLE gpu_architectures ({columns})")
    con.executemany(
        f"INSERT INTO gpu_architectures VALUES ({', '.join('?' * len(docs))})",
        [tuple(getattr(a, name) for name in docs) for a in architectures().values()],
    )
    comment(con, "TABLE", "gpu_architectures", ARCHITECTURE_DOC, docs)
