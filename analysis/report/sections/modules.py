"""GPU time of PyTorch's modules."""

from __future__ import annotations

from perfpipe.analysis.report.declare import GPU, LONG, Col, GpuTable, Missing, SectionSpec
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import rows_of
from perfpipe.database import in_list
from perfpipe.viewmodel import Table

#: Share of the GPU time below which modules are excluded from the tree, %.
_LEAST_PCT = 0.05

#: The last part of a path, the model itself by its class, and the parts without modules.
_NAME = """CASE part
    WHEN 'module' THEN coalesce(nullif(string_split(module, '.')[-1], ''), model)
    WHEN 'outside' THEN '(outside of modules)'
    ELSE '(unplaced)'
END"""


def _coverage(scope: Scope, _: Table) -> str:
    """Return how much of the GPU time could be placed."""
    sql = f"""
        SELECT part, sum(gpu_time_ns)::DOUBLE FROM module_times
        WHERE depth = 0 AND report_id IN {in_list(scope.reports)} GROUP BY part
    """
    times = dict(rows_of(scope.con, sql))
    whole = sum(times.values())
    if not whole:
        return ""
    inside, outside, unplaced = (
        100 * times.get(part, 0) / whole for part in ("module", "outside", "unplaced")
    )
    return (
        f"{inside:.1f} % of the GPU time is in modules, {outside:.1f} % in operators outside of "
        f"modules (optimizer, loss functions), and {unplaced:.1f} % could not be placed. "
        f"Modules below {_LEAST_PCT} % of the GPU time are excluded."
    )


class _ModuleTable(GpuTable):
    """A table of modules: of timelines, or of launches for modules alone."""

    def wanted(self, scope: Scope) -> bool:
        return scope.timeline or bool(scope.kinds.get("modules"))


MODULE_TIMES = _ModuleTable(
    "module_times",
    "GPU time by PyTorch module, as a tree",
    (
        Col("range", "Module", sql=_NAME, doc="last part of the module's path"),
        Col("module", "Path", detail=True, hover_of="range"),
        Col("depth", "Depth", "int", detail=True),
        Col("class", "Class"),
        *GPU,
        Col("kernels", "Kernels", "int", "of the module itself"),
        Col("gpu_time_ns", "GPU time", "ns"),
        Col("own_gpu_time_ns", "Self time", "ns"),
        Col("share_pct", "Share", "pct", "% of all kernels"),
        Col("forward_ns", "Forward", "ns"),
        Col("backward_ns", "Backward", "ns"),
        Col("optimizer_ns", "Optimizer", "ns"),
    ),
    order="tree_order",
    where=f"share_pct >= {_LEAST_PCT}",
    told=_coverage,
    limit=LONG,
    figure="icicle",
    tree="depth",
)

MODULE_CLASSES = _ModuleTable(
    "module_classes",
    "GPU time by class of PyTorch module",
    (
        Col("class", "Class"),
        *GPU,
        Col("modules", "Modules", "int"),
        Col("kernels", "Kernels", "int"),
        Col("gpu_time_ns", "GPU time", "ns"),
        Col("share_pct", "Share", "pct", "% of all kernels"),
        Col("forward_ns", "Forward", "ns"),
        Col("backward_ns", "Backward", "ns"),
        Col("operators", "Operators"),
    ),
    order="gpu_time_ns DESC, class",
    key="{class} {share_pct} of the kernel time",
)

SECTION = SectionSpec(
    "modules",
    "PyTorch modules",
    Missing(
        "no calls of PyTorch modules were recorded",
        nsys="run the program with 'perfpipe run --modules -- PROGRAM'",
    ),
    (MODULE_TIMES, MODULE_CLASSES),
)
