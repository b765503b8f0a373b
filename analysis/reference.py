"""Tables that ship with perfpipe: metrics, peaks, architectures, techniques."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perfpipe.analysis.critical.tables import NEEDS as PATH_NEEDS
from perfpipe.analysis.critical.tables import make_path_gains, make_path_segments
from perfpipe.analysis.gemm import NEEDS as GEMM_NEEDS
from perfpipe.analysis.gemm import make_gemm_launches
from perfpipe.analysis.knowledge import make_techniques
from perfpipe.analysis.metrics import (
    CATALOGUE_COLUMNS,
    CATALOGUE_DOC,
    make_catalogue,
    make_flop_metrics,
    make_pipe_metrics,
    make_series_metrics,
    make_sol_units,
    make_stall_metrics,
    make_tensor_metrics,
)
from perfpipe.analysis.peaks import (
    ARCHITECTURE_DOC,
    PEAKS_COLUMNS,
    PEAKS_DOC,
    TENSOR_RATES_DOC,
    make_architectures,
    make_gpu_links,
    make_gpu_peaks,
    make_tensor_rates,
)
from perfpipe.analysis.range_nodes import NEEDS as RANGE_NODE_NEEDS
from perfpipe.analysis.range_nodes import make_range_nodes
from perfpipe.analysis.short_names import make_known_kernels
from perfpipe.analysis.windows import make_chosen_windows
from perfpipe.specs import Architecture, TensorRate

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


@dataclass(frozen=True)
class ReferenceTable:
    """A table that `make` creates from `needs`; it is private if `doc` is empty."""

    make: Callable[[DuckDBPyConnection], None]
    needs: frozenset[str] = frozenset()
    doc: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)


REFERENCE_TABLES = {
    "metric_catalogue": ReferenceTable(
        make_catalogue, doc=CATALOGUE_DOC, columns=CATALOGUE_COLUMNS
    ),
    "gpu_peaks": ReferenceTable(
        make_gpu_peaks,
        frozenset({"reports"}),
        PEAKS_DOC,
        {name: doc for name, _, doc in PEAKS_COLUMNS},
    ),
    "gpu_architectures": ReferenceTable(
        make_architectures, doc=ARCHITECTURE_DOC, columns=Architecture.documentation()
    ),
    "gpu_tensor_rates": ReferenceTable(
        make_tensor_rates, doc=TENSOR_RATES_DOC, columns=TensorRate.documentation()
    ),
    "_gpu_links": ReferenceTable(make_gpu_links, frozenset({"reports", "nsys_gpus", "_gpus"})),
    "_stall_metrics": ReferenceTable(make_stall_metrics),
    "_series_metrics": ReferenceTable(make_series_metrics),
    "_pipe_metrics": ReferenceTable(make_pipe_metrics),
    "_sol_units": ReferenceTable(make_sol_units),
    "_tensor_metrics": ReferenceTable(make_tensor_metrics),
    "_flop_metrics": ReferenceTable(make_flop_metrics),
    "_techniques": ReferenceTable(make_techniques),
    "_chosen_windows": ReferenceTable(make_chosen_windows),
    "_gemm_launches": ReferenceTable(make_gemm_launches, GEMM_NEEDS),
    "_range_nodes": ReferenceTable(make_range_nodes, RANGE_NODE_NEEDS),
    "_path_segments": ReferenceTable(make_path_segments, PATH_NEEDS),
    "_path_gains": ReferenceTable(make_path_gains, PATH_NEEDS),
    "_known_kernels": ReferenceTable(
        make_known_kernels, frozenset({"nsys_kernels", "ncu_launches"})
    ),
}
