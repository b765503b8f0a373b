"""The first screen of profiled kernels without a timeline."""

from __future__ import annotations

from collections.abc import Iterator

from perfpipe.analysis.report.opening.parts import Part
from perfpipe.analysis.report.profiled import of_profiled, setup_of, verdict_on_kernels
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import rows_of
from perfpipe.analysis.thresholds import thresholds
from perfpipe.database import in_list
from perfpipe.units import counted, format_ns
from perfpipe.viewmodel import Action, Fact, Source, Tile

#: Kernels on the first screen.
_ROWS = 10

#: Views that are read here.
VIEWS = (
    "_kernel_verdict",
    "kernel_bottleneck",
    "kernel_libraries",
    "kernel_sol",
    "_totals",
    "_launch_names",
    "_launch_shares",
    "_setup_launches",
)


def kernels_of(scope: Scope) -> Part | None:
    """Return what bounds most of the profiled time; None without classified kernels."""
    verdict = _verdict(scope)
    if verdict is None:
        return None
    source = Source("kernel_bottleneck", scope.reports)
    text = of_profiled(scope, *verdict)
    return Part(Fact("", text, source), tuple(_tiles(scope, source)), "Profiled kernels", _ROWS)


def sol_of(scope: Scope) -> Iterator[Tile]:
    """Yield how close to SOL the kernels of the most frequent bound are."""
    if verdict := _verdict(scope):
        bound, share, sol = verdict
        setup = setup_of(scope)
        whole = "the other kernels' time" if setup.names and setup.work else "profiled time"
        note = f"for the {share:.0f} % of {whole} that is bound by {bound}"
        yield Tile("SOL", f"{sol:.0f} %", note, Source("kernel_bottleneck", scope.reports))


def _verdict(scope: Scope) -> tuple[str, float, float] | None:
    return verdict_on_kernels(scope) if scope.profiled else None


def _tiles(scope: Scope, source: Source) -> Iterator[Tile]:
    ((launches, profiled_ns, *_),) = rows_of(scope.con, "FROM _totals")
    if profiled_ns:
        yield Tile("Profiled time", format_ns(profiled_ns), counted(launches, "launch"), source)
    yield from sol_of(scope)
    longest = rows_of(
        scope.con,
        f"""
        SELECT short_name, duration_ns, max_sol_pct
        FROM kernel_sol JOIN _launch_names USING (report_id, launch_id)
        LEFT JOIN _setup_launches USING (report_id, launch_id)
        WHERE report_id IN {in_list(scope.reports)} AND duration_ns IS NOT NULL
        ORDER BY setup IS NOT NULL, duration_ns DESC, report_id, launch_id LIMIT 1
        """,
    )
    for name, duration_ns, max_sol in longest:
        at = f", {max_sol:.0f} % of SOL" if max_sol is not None else ""
        yield Tile("Longest kernel", format_ns(duration_ns), f"{name}{at}", source)


def next_of(scope: Scope) -> Iterator[Action]:
    """Yield what to profile next, if no other kernel or not all of a verdict was collected."""
    if not scope.profiled or scope.timeline:
        return
    source = Source("kernel_bottleneck", scope.reports)
    if setup_of(scope).alone:
        yield Action(
            "Profile the kernels that do the work",
            "ncu --kernel-name regex:NAME profiles kernels by name, and --launch-skip N skips the "
            "first N launches",
            "",
            "",
            "",
            source,
        )
        return
    rows = rows_of(
        scope.con,
        f"""
        SELECT short_name, bound, subclass, collect, explanation, notable
        FROM kernel_bottleneck
        JOIN ncu_launches USING (report_id, launch_id)
        LEFT JOIN _launch_shares USING (report_id, launch_id)
        JOIN _launch_names USING (report_id, launch_id)
        JOIN kernel_libraries USING (report_id, launch_id)
        ANTI JOIN _setup_launches USING (report_id, launch_id)
        WHERE report_id IN {in_list(scope.reports)} AND NOT closed
            AND (collect IS NOT NULL OR subclass = 'dram_unknown')
            AND coalesce(100 * share >= {thresholds()["finding.minor_pct"]}, true)
        ORDER BY duration_ns DESC NULLS LAST, report_id, launch_id LIMIT 1
        """,
    )
    for name, bound, subclass, collect, explanation, notable in rows:
        known = f"; {notable}" if notable else ""
        what, why = f"Collect what limits {name}", f"The limiter was not collected{known}"
        if subclass is not None and bound == "latency":
            what, why = f"Collect the stall reasons of {name}", "They were not collected"
        elif subclass is not None:
            what = f"Collect the access patterns of {name}"
            why = "Whether accesses are coalesced, and which source lines cause them, is unknown"
        if subclass == "dram_unknown":
            what, why = "Compare the traffic with the bandwidth of DRAM", explanation
        what += f": ncu {collect}" if collect else ""
        yield Action(what, why, "", "", name, source)
