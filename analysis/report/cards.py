"""Cards of profiled kernels: all data on one launch, like ncu's Details page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from perfpipe.analysis.knowledge import techniques
from perfpipe.analysis.report.before import beside, kernels_of
from perfpipe.analysis.report.declare import Col
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import records_of, rows_of
from perfpipe.analysis.views import views
from perfpipe.analysis.words import assumption
from perfpipe.database import in_list, quote
from perfpipe.units import counted, format_ns, format_rate, words
from perfpipe.viewmodel import Card, Fact, Source, Table, Value

#: Kernels that have a card.
CARDS = 12

#: Views that all cards read, in addition to the views of their parts.
VIEWS = (
    "kernel_sol",
    "_launch_names",
    "_labels",
    "kernel_bottleneck",
    "kernel_libraries",
    "kernel_occupancy",
    "kernel_occupancy_steps",
    "kernel_memory",
)


class Part(NamedTuple):
    """A table of a card: the rows of a view, or of the query `read` over it, on one launch.

    It has the first `most` rows by `order`.
    """

    title: str
    view: str
    columns: tuple[Col, ...]
    order: str
    where: str = "true"
    read: str = ""
    most: int | None = None


#: The facts of a card on its launch, next to the tables.
_FACTS = """
    SELECT
        report_id, launch_id, short_name, operators, label, kernel_demangled, grid, block,
        s.duration_ns, library, bound, subclass, cause, confidence, explanation, nvtx_path,
        compute_sol_pct, memory_sol_pct, s.registers, smem_allocated, s.theoretical_occupancy_pct,
        s.achieved_occupancy_pct, s.waves, tail_pct, next_step, dram_bytes_per_s, of_kernel
    FROM kernel_sol AS s
    JOIN _launch_names USING (report_id, launch_id)
    JOIN _labels USING (report_id)
    JOIN kernel_bottleneck USING (report_id, launch_id)
    JOIN kernel_libraries USING (report_id, launch_id)
    JOIN kernel_occupancy USING (report_id, launch_id)
    JOIN kernel_occupancy_steps USING (report_id, launch_id)
    JOIN kernel_memory USING (report_id, launch_id)
    JOIN chosen USING (report_id, launch_id)
    ORDER BY headroom_ns DESC NULLS LAST, s.duration_ns DESC NULLS LAST, report_id, launch_id
"""

_Launch = tuple[str, int]


def _chosen(scope: Scope) -> str:
    """Return the query of the launches with a card: the longest launch of each kernel."""
    return f"""
        SELECT report_id, launch_id, of_kernel FROM (
            SELECT report_id, launch_id, headroom_ns, duration_ns,
                count(*) OVER kernel AS of_kernel,
                row_number() OVER (
                    kernel ORDER BY duration_ns DESC NULLS LAST, report_id, launch_id
                ) AS number
            FROM kernel_sol JOIN _launch_names USING (report_id, launch_id)
            WHERE report_id IN {in_list(scope.reports)}
            WINDOW kernel AS (PARTITION BY short_name)
        )
        WHERE number = 1
        ORDER BY headroom_ns DESC NULLS LAST, duration_ns DESC NULLS LAST, report_id, launch_id
        LIMIT {CARDS}
    """


def cards_of(scope: Scope, parts: Sequence[Part]) -> Iterator[Card]:
    """Yield a card for the longest launch of each kernel, those with most SOL headroom first."""
    if not scope.profiled:
        return
    launches = rows_of(scope.con, _chosen(scope))
    if not launches:
        return
    values = ", ".join(f"({quote(report)}, {launch}, {of})" for report, launch, of in launches)
    chosen = f"WITH chosen (report_id, launch_id, of_kernel) AS (VALUES {values})"
    facts = records_of(scope.con, chosen + _FACTS)
    tables = [_rows(scope, part, chosen) for part in parts]
    several = len(scope.reports) > 1
    now = kernels_of(scope.con, scope.reports) if scope.before else {}
    for one in facts:
        launch = (one["report_id"], one["launch_id"])
        own = (
            _table(part, rows[launch], launch)
            for part, rows in zip(parts, tables, strict=True)
            if launch in rows
        )
        facts_of = tuple(_told(one, several))
        source = Source("kernel_bottleneck", launch[:1])
        before = scope.before.get(one["short_name"])
        compared = (beside(before, now[one["short_name"]], source),) if before else ()
        yield Card(one["short_name"], _title(one), facts_of, (*compared, *own), source)


def _rows(scope: Scope, part: Part, chosen: str) -> Mapping[_Launch, list[tuple[Value, ...]]]:
    columns = ", ".join(column.selected() for column in part.columns)
    source = f"({part.read})" if part.read else part.view
    sql = f"""
        {chosen}
        SELECT report_id, launch_id, {columns}
        FROM {source} SEMI JOIN chosen USING (report_id, launch_id)
        WHERE {part.where} ORDER BY report_id, launch_id, {part.order}
    """
    made: dict[_Launch, list[tuple[Value, ...]]] = {}
    for report_id, launch_id, *row in rows_of(scope.con, sql):
        made.setdefault((report_id, launch_id), []).append(_worded(part, row))
    return made


def _worded(part: Part, row: list[Any]) -> tuple[Value, ...]:
    """Return a row with the technique and the assumption of its bound in words."""
    if part.view != "kernel_findings":
        return tuple(row)
    technique, gain, floor, difficulty = row
    assumed = f"if {assumption(floor)}" if floor else "no bound known"
    return techniques()[technique].technique, gain, assumed, difficulty


def _table(part: Part, rows: list[tuple[Value, ...]], launch: _Launch) -> Table:
    docs = views()[part.view].columns
    columns = tuple(column.made(docs.get(column.name, "")) for column in part.columns)
    return Table(
        part.title, "", columns, tuple(rows[: part.most]), len(rows), Source(part.view, launch[:1])
    )


def _title(one: Mapping[str, Any]) -> str:
    said = [one["short_name"]]
    said += [format_ns(one["duration_ns"])] if one["duration_ns"] is not None else []
    said += [_bound(one)] if one["bound"] != "unknown" else []
    known = [pct for pct in (one["compute_sol_pct"], one["memory_sol_pct"]) if pct is not None]
    return ", ".join(said) + (f" at {max(known):.0f} % of SOL" if known else "")


def _bound(one: Mapping[str, Any]) -> str:
    detail = ", ".join(words(part) for part in (one["subclass"], one["cause"]) if part)
    return f"{one['bound']}-bound" + (f" ({detail})" if detail else "")


def _told(one: Mapping[str, Any], several: bool) -> Iterator[Fact]:
    """Yield the known facts on a launch."""

    def pct(name: str) -> str:
        return f"{one[name]:.1f} %" if one[name] is not None else ""

    waves = f"{one['waves']:.3g}" if one["waves"] is not None else ""
    tail = f"; the partial wave costs up to {pct('tail_pct')}" if one["tail_pct"] else ""
    most = pct("theoretical_occupancy_pct")
    occupancy = f"{pct('achieved_occupancy_pct')} achieved" + (
        f" of {most} theoretical" if most else ""
    )
    occupancy += f"; {one['next_step']}" if one["next_step"] else ""
    shared = f", {one['smem_allocated']:,.0f} B shared memory" if one["smem_allocated"] else ""
    rate = one["dram_bytes_per_s"]
    verdict = f"{_bound(one)}, {one['confidence']} confidence" if one["confidence"] else ""
    verdict += f"; {one['explanation']}" if one["explanation"] and verdict else ""
    sides = {side: pct(f"{side}_sol_pct") for side in ("compute", "memory")}
    sol = [f"{side} {value}" for side, value in sides.items() if value]
    launch = (
        f"<<<{one['grid']}; {one['block']}>>>, launch {one['launch_id']}, the longest of "
        f"{counted(one['of_kernel'], 'profiled launch')}"
    )
    for name, text, view in (
        ("Launch", launch, "kernel_sol"),
        ("Configuration", one["label"] if several else "", "kernel_sol"),
        ("Fused operators", one["operators"] or "", "kernel_names"),
        ("NVTX", one["nvtx_path"] or "", "kernel_sol"),
        ("Library", words(one["library"] or ""), "kernel_libraries"),
        ("SOL", ", ".join(sol), "kernel_sol"),
        ("Verdict", verdict, "kernel_bottleneck"),
        ("Registers", f"{one['registers']:.0f} per thread{shared}" if one["registers"] else "",
         "kernel_occupancy"),
        ("Occupancy", occupancy if pct("achieved_occupancy_pct") else "", "kernel_occupancy"),
        ("Waves", f"{waves}{tail}" if waves else "", "kernel_occupancy"),
        ("DRAM", format_rate(rate, "B/s") if rate is not None else "", "kernel_memory"),
        ("Full name", one["kernel_demangled"] or "", "kernel_sol"),
    ):  # fmt: skip
        if text:
            yield Fact(name, text, Source(view, (one["report_id"],)))
