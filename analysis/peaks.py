"""Vendor peaks and architecture limits as tables, so that views can join them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from perfpipe.database import ColumnSpec, create_table
from perfpipe.specs import (
    Architecture,
    GpuSpec,
    TensorRate,
    architectures,
    find_spec,
    tensor_rates,
)

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

PEAKS_DOC = (
    "Vendor-published peak rates of each report's GPU, one row per data type.  Unknown GPUs "
    "have no rows."
)
PEAKS_COLUMNS: tuple[ColumnSpec, ...] = (
    ("report_id", "VARCHAR", "report"),
    ("gpu", "VARCHAR", "GPU model, identified by device name and SM count"),
    ("dtype", "VARCHAR", "data type, as in 'perfpipe gpu'"),
    ("flop_per_s", "DOUBLE", "dense peak, FLOP/s (int8: operations/s); NULL if unknown"),
    ("bytes_per_s", "DOUBLE", "DRAM bandwidth, byte/s; NULL if unknown"),
    ("source", "VARCHAR", "vendor document that states the peak"),
    ("missing", "VARCHAR", "why flop_per_s or bytes_per_s is NULL; NULL if both are known"),
)
_LINK_COLUMNS: tuple[ColumnSpec, ...] = (
    ("report_id", "VARCHAR", ""),
    ("device", "BIGINT", ""),
    ("dram_bytes_per_s", "DOUBLE", ""),
    ("pcie_bytes_per_s", "DOUBLE", ""),
    ("nvlink_bytes_per_s", "DOUBLE", ""),
)
ARCHITECTURE_DOC = "Resources of an SM, by compute capability."
TENSOR_RATES_DOC = (
    "Tensor-core throughput per SM and cycle, for data types whose throughput depends on the "
    "instruction: on compute capability 9.0, mma reaches two thirds of the wgmma rate.  The "
    "vendor's peak refers to wgmma."
)


def make_gpu_peaks(con: DuckDBPyConnection) -> None:
    """Create gpu_peaks from `reports`."""
    of = "SELECT report_id, gpu AS model, sm_count AS model_sms FROM reports"
    rows = [
        (*device, spec.name, dtype, _scaled(peak, 1e12), _scaled(spec.bandwidth_gbs, 1e9), *why)
        for device, spec in _specs(con, of)
        for dtype, peak, *why in _peaks(spec)
    ]
    _make_for(con, of, "gpu_peaks", PEAKS_COLUMNS, ("report_id",), rows)


def make_gpu_links(con: DuckDBPyConnection) -> None:
    """Create the private table of bandwidths of each GPU with work on a timeline."""
    of = (
        "SELECT u.report_id, u.device, coalesce(g.name, r.gpu) AS model, "
        "CASE WHEN g.name IS NULL THEN r.sm_count ELSE g.sm_count END AS model_sms "
        "FROM _gpus AS u JOIN reports AS r USING (report_id) "
        "LEFT JOIN nsys_gpus AS g ON g.report_id = u.report_id AND g.gpu = u.device"
    )
    rows = []
    for device, spec in _specs(con, of):
        links = (spec.bandwidth_gbs, spec.pcie_gbs, spec.nvlink_gbs)
        rows.append((*device, *(_scaled(rate, 1e9) for rate in links)))
    _make_for(con, of, "_gpu_links", _LINK_COLUMNS, ("report_id", "device"), rows)


def _peaks(spec: GpuSpec) -> Iterator[tuple[str, float | None, str, str | None]]:
    """Yield the type, peak, source and missing figures of each row of gpu_peaks."""
    bandwidth = [f"bandwidth: {why}" for what, why in spec.missing.items() if what == "bandwidth"]
    for dtype in (*spec.dense, *spec.types_without_peak):
        peak = [f"{dtype}: {why}" for what, why in spec.missing.items() if what == dtype]
        yield dtype, spec.dense.get(dtype), spec.source, "; ".join([*peak, *bandwidth]) or None


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value * unit


def make_architectures(con: DuckDBPyConnection) -> None:
    """Create gpu_architectures."""
    docs = Architecture.documentation()
    types = {"cc": "VARCHAR", "dram_counters": "BOOLEAN"}
    columns = [(n, types.get(n, "BIGINT"), doc) for n, doc in docs.items()]
    rows = [tuple(getattr(a, name) for name in docs) for a in architectures().values()]
    create_table(con, "gpu_architectures", columns, rows)


def make_tensor_rates(con: DuckDBPyConnection) -> None:
    """Create gpu_tensor_rates."""
    docs = TensorRate.documentation()
    numbers = ("flop_per_cycle",)
    columns = [(n, "DOUBLE" if n in numbers else "VARCHAR", doc) for n, doc in docs.items()]
    rows = [tuple(getattr(rate, name) for name in docs) for rate in tensor_rates()]
    create_table(con, "gpu_tensor_rates", columns, rows)


def _specs(con: DuckDBPyConnection, of: str) -> Iterator[tuple[tuple[str, int | None], GpuSpec]]:
    """Yield the name, the SM count and the peaks of each GPU model in the rows of a query."""
    models = con.execute(
        f"SELECT DISTINCT model, model_sms FROM ({of}) WHERE model IS NOT NULL ORDER BY ALL"
    ).fetchall()
    for name, sm_count in models:
        spec = find_spec(name, sm_count)
        if spec:
            yield (name, sm_count), spec


def _make_for(
    con: DuckDBPyConnection,
    of: str,
    name: str,
    columns: Sequence[ColumnSpec],
    keys: Sequence[str],
    rows: Sequence[Sequence[Any]],
) -> None:
    """Create a table with the rows of a GPU model for each row of a query with that model."""
    own = columns[len(keys) :]
    model = (("of_model", "VARCHAR", ""), ("of_sms", "BIGINT", ""))
    # Several of these tables may be created concurrently.
    by_model = f"_{name}_by_model"
    create_table(con, by_model, (*model, *own), rows)
    values = ", ".join([*(f"r.{key}" for key in keys), *(f"m.{column}" for column, *_ in own)])
    con.execute(
        f"CREATE TABLE {name} AS SELECT {values} FROM ({of}) AS r JOIN {by_model} AS m "
        "ON r.model = m.of_model AND r.model_sms IS NOT DISTINCT FROM m.of_sms ORDER BY ALL"
    )
    con.execute(f"DROP TABLE {by_model}")
