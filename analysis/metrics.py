"""The metric catalog: the ncu metrics that the analyses read, by canonical name.

metrics.toml lists single metrics and families.toml the measures that exist for many keys (stall
reasons, pipelines, tensor paths, FLOP instructions).  Both become tables that the SQL joins, and
the single metrics become the view kernel_metrics with one column each.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from perfpipe.database import create_table, quote
from perfpipe.files import packaged

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Compute capabilities, and as numbers (9.0 is 90): any.
_CAPABILITY = r"[0-9]+\.[0-9]"
_ANY = (0, 999)

#: How a throughput is told: the mean over units, % of what they sustain over elapsed cycles.
_OF_PEAK = "avg.pct_of_peak_sustained_elapsed"

_STALL_PARTS = {
    "cycles": "smsp__average_warps_issue_stalled_{averaged}_per_issue_active.ratio",
    "cycles_old": "smsp__average_warp_latency_issue_stalled_{averaged}.ratio",
    "share_old": "smsp__warp_issue_stalled_{averaged}_per_warp_active.pct",
    "samples": "smsp__pcsamp_warps_issue_stalled_{sampled}",
    "samples_not_issued": "smsp__pcsamp_warps_issue_stalled_{sampled}_not_issued",
}
_TENSOR_PARTS = {
    "flop": "sum",
    "flop_per_s": "sum.per_second",
    "flop_per_cycle": "sum.per_cycle_elapsed",
    "peak_per_cycle": "sum.peak_sustained",
}
_FLOP_PARTS = {"sum": "sum", "per_cycle": "sum.per_cycle_elapsed", "per_s": "sum.per_second"}


@dataclass(frozen=True)
class Alias:
    """A metric as ncu spells it, and the compute capabilities (9.0 is 90) where it means this."""

    metric: str
    cc_low: int
    cc_high: int

    def holds_for(self, capability: str) -> bool:
        """Return whether it means this on a compute capability; not for what is none."""
        known = re.fullmatch(_CAPABILITY, capability)
        return known is not None and self.cc_low <= _number(capability) <= self.cc_high

    @classmethod
    def parse(cls, text: str) -> Alias:
        """Read `metric` or `metric@7.5-8.9`, where either end may be left open."""
        metric, _, capabilities = text.partition("@")
        return cls(metric, *(parse_capabilities(capabilities) if capabilities else _ANY))


@dataclass(frozen=True)
class Metric:
    """A canonical metric; `section` is what `ncu --section` collects it with."""

    name: str
    kind: str
    unit: str
    aliases: tuple[Alias, ...]
    doc: str
    section: str

    @property
    def documentation(self) -> str:
        """Meaning, unit, and where it comes from."""
        names = " or ".join(alias.metric for alias in self.aliases)
        return f"{self.doc} [{self.unit}]; {names} (section {self.section})"


def parse_capabilities(text: str) -> tuple[int, int]:
    """Return the range of `9.0`, `7.5-8.9`, `9.0-` or `-7.2` as numbers, ends included."""
    low, dash, high = text.partition("-")
    first = _number(low) if low else _ANY[0]
    return first, (_number(high) if high else _ANY[1]) if dash else first


def _number(capability: str) -> int:
    if not re.fullmatch(_CAPABILITY, capability):
        raise ValueError(f"{capability!r} is not a compute capability")
    major, minor = capability.split(".")
    return int(major) * 10 + int(minor)


@cache
def metrics() -> tuple[Metric, ...]:
    """Return the single metrics, in the order of metrics.toml."""
    return tuple(
        Metric(name, kind, unit, tuple(Alias.parse(n) for n in _list(names)), doc, section)
        for section, rows in _toml("metrics.toml").items()
        for name, (kind, unit, names, doc) in rows.items()
    )


def _list(names: str | list[str]) -> list[str]:
    return [names] if isinstance(names, str) else names


@cache
def _toml(name: str) -> dict[str, Any]:
    return tomllib.loads(packaged("perfpipe.analysis", name))


def make_catalogue(con: DuckDBPyConnection) -> None:
    """Create metric_catalogue: each metric that may hold a canonical one, with its rank."""
    _make(con, "metric_catalogue", ", ".join(CATALOGUE_COLUMNS), _metric_rows())


#: Types of columns that are no text.
_TYPES = {
    **dict.fromkeys(("rank", "cc_low", "cc_high", "flop"), "INTEGER"),
    **dict.fromkeys(("one_pass", "aggregate"), "BOOLEAN"),
    "dense": "DOUBLE",
}


def make_stall_metrics(con: DuckDBPyConnection) -> None:
    """Create the private table of stall metrics."""
    _make(con, "_stall_metrics", "metric, reason, family, part", _stall_rows())


def make_pipe_metrics(con: DuckDBPyConnection) -> None:
    """Create the private table of pipeline metrics."""
    _make(con, "_pipe_metrics", "metric, pipe, rank, cc_low, cc_high", _pipe_rows())


def sol_units() -> dict[str, tuple[Alias, ...]]:
    """Return the main constituents of the compute and the memory SOL."""
    stated = _toml("families.toml")["sol_units"]
    return {side: _units(stated[side]) for side in ("compute", "memory")}


def one_pass_units() -> tuple[Alias, ...]:
    """Return those of them that ncu counts in one pass."""
    return _units(_toml("families.toml")["sol_units"]["one_pass"])


def _units(names: list[str]) -> tuple[Alias, ...]:
    capabilities = _toml("families.toml")["sol_units"]["capabilities"]
    return tuple(Alias.parse(f"{name}.{_OF_PEAK}@{capabilities}") for name in names)


def make_sol_units(con: DuckDBPyConnection) -> None:
    """Create the private table of the main constituents of the SOLs."""
    once = one_pass_units()
    rows = (
        (unit.metric, side, unit in once, unit.cc_low, unit.cc_high)
        for side, units in sol_units().items()
        for unit in units
    )
    _make(con, "_sol_units", "metric, side, one_pass, cc_low, cc_high", rows)


def make_tensor_metrics(con: DuckDBPyConnection) -> None:
    """Create the private table of tensor-core metrics."""
    columns = "metric, path, precision, part, dense, aggregate, cc_low, cc_high"
    _make(con, "_tensor_metrics", columns, _tensor_rows())


def make_flop_metrics(con: DuckDBPyConnection) -> None:
    """Create the private table of FLOP metrics."""
    _make(con, "_flop_metrics", "metric, precision, part, prefix, flop", _flop_rows())


def make_series_metrics(con: DuckDBPyConnection) -> None:
    """Create the private table of series of PM sampling, without their prefixes."""
    _make(con, "_series_metrics", "metric, unit, rank", _series_rows())


def _make(
    con: DuckDBPyConnection, name: str, columns: str, rows: Iterator[tuple[Any, ...]]
) -> None:
    spec = [(column, _TYPES.get(column, "VARCHAR"), "") for column in columns.split(", ")]
    create_table(con, name, spec, list(rows))


CATALOGUE_DOC = (
    "Metric catalog: ncu metrics for each canonical name.  The first metric in a report is used."
)
CATALOGUE_COLUMNS = {
    "name": "canonical name; a column of kernel_metrics",
    "kind": "counter, rate, ratio, throughput (percent of peak), occupancy or attribute",
    "unit": "base unit, as stored",
    "section": "ncu section that collects the metric: ncu --section NAME",
    "metric": "name of the metric in ncu",
    "rank": "order of preference, from 0",
    "cc_low": "lowest compute capability that the row applies to; 90 means 9.0",
    "cc_high": "highest compute capability that the row applies to",
    "doc": "meaning of the metric",
}


def _metric_rows() -> Iterator[tuple[Any, ...]]:
    for metric in metrics():
        for rank, alias in enumerate(metric.aliases):
            yield (
                metric.name,
                metric.kind,
                metric.unit,
                metric.section,
                alias.metric,
                rank,
                alias.cc_low,
                alias.cc_high,
                metric.doc,
            )


def _stall_rows() -> Iterator[tuple[Any, ...]]:
    for reason, row in _toml("families.toml")["stalls"].items():
        for part, template in _STALL_PARTS.items():
            yield template.format(**row), reason, row["family"], part


def _pipe_rows() -> Iterator[tuple[Any, ...]]:
    for pipe, names in _toml("families.toml")["pipes"].items():
        for rank, name in enumerate(names):
            alias = Alias.parse(name)
            yield f"{alias.metric}.{_OF_PEAK}", pipe, rank, alias.cc_low, alias.cc_high


def _tensor_rows() -> Iterator[tuple[Any, ...]]:
    for row in _toml("families.toml")["tensor"]["paths"]:
        low, high = parse_capabilities(row["cc"])
        for part, submetric in _TENSOR_PARTS.items():
            yield (
                f"sm__ops_path_tensor_{row['path']}.{submetric}",
                row["path"],
                row["precision"],
                part,
                row.get("dense"),
                row.get("aggregate", False),
                low,
                high,
            )


def _flop_rows() -> Iterator[tuple[Any, ...]]:
    for precision, ops in _toml("families.toml")["flops"].items():
        for op, flop in ops.items():
            for prefix in ("smsp", "sm"):
                stem = f"{prefix}__sass_thread_inst_executed_op_{op}_pred_on"
                for part, submetric in _FLOP_PARTS.items():
                    yield f"{stem}.{submetric}", precision, part, prefix, flop


def _series_rows() -> Iterator[tuple[Any, ...]]:
    for unit, names in _toml("families.toml")["series"].items():
        for rank, name in enumerate(names):
            yield name, unit, rank


#: Numbers of a launch or a GPU that are neither 0 nor between these are damaged: most for blocks of
#: a grid, and for all others.
_LEAST, _MOST_BLOCKS, _MOST = 0.001, 10**15, 2**32


def metrics_view_sql() -> str:
    """Return the SQL of kernel_metrics: one row per launch, one column per canonical metric."""
    names = ", ".join(quote(metric.name) for metric in metrics())
    columns = ",\n    ".join(f"p.{metric.name}" for metric in metrics())
    return f"""CREATE VIEW kernel_metrics AS
WITH named AS (
    SELECT l.report_id, l.launch_id, c.name, arg_min(m.value, c.rank) AS value
    FROM ncu_metrics AS m
    JOIN metric_catalogue AS c USING (metric)
    JOIN ncu_launches AS l USING (report_id, launch_id)
    WHERE coalesce(cc_number(l.cc) BETWEEN c.cc_low AND c.cc_high, true)
        AND (
            c.kind NOT IN ('attribute', 'occupancy')
            OR m.value = 0
            OR m.value BETWEEN {_LEAST} AND if(c.name = 'grid_size', {_MOST_BLOCKS}, {_MOST})
        )
    GROUP BY l.report_id, l.launch_id, c.name
),
pivoted AS (
    PIVOT named ON name IN ({names}) USING max(value) GROUP BY report_id, launch_id
)
SELECT
    l.report_id,
    l.launch_id,
    {columns}
FROM ncu_launches AS l
LEFT JOIN pivoted AS p USING (report_id, launch_id)
ORDER BY l.report_id, l.launch_id;
"""
