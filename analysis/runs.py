"""Sentences on the configurations of a run: how close they come to the peaks, and their bounds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from perfpipe.analysis.rows import rows_of
from perfpipe.database import quote
from perfpipe.units import words

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Views that are read here.
VIEWS = ("run_efficiency",)


def reach(con: DuckDBPyConnection, run_id: str) -> str | None:
    """Return a sentence on how close a run comes to its roofs; None if its work is unknown.

    Each roof has a part of its own; MFU stands where the workload file declares FLOPs alone.
    """
    rows = rows_of(
        con,
        "SELECT short_label, e.dtype, roof, memory_level, sol_pct, e.mfu_pct "
        "FROM run_efficiency AS e JOIN run_tasks USING (run_id, task_index) "
        f"WHERE run_id = {quote(run_id)} ORDER BY task_index",
    )
    reached: dict[str, list[tuple[float, str]]] = {}
    for label, dtype, roof, level, sol_pct, mfu_pct in rows:
        if sol_pct is not None:
            of = _LEVELS[level] if roof == "memory" else f"the {dtype} peak"
            reached.setdefault(f"of {of}", []).append((sol_pct, label))
        elif mfu_pct is not None:
            reached.setdefault("MFU", []).append((mfu_pct, label))
    if not reached:
        return None
    alone = sum(len(of) for of in reached.values()) == 1
    parts = [f"{_span(sorted(of), alone)} {what}" for what, of in reached.items()]
    return f"Timed without a profiler: {'; '.join(parts)}"


#: Bandwidths that are roofs.
_LEVELS = {"dram": "DRAM bandwidth", "l2": "L2 bandwidth"}


def _span(known: list[tuple[float, str]], alone: bool) -> str:
    """Return the least and the largest of some shares, with what they are of."""
    low, high = known[0], known[-1]
    if alone:
        return f"{low[0]:.1f} %"
    if len(known) == 1:
        return f"{low[0]:.1f} % ({low[1]})"
    return f"{low[0]:.1f} % ({low[1]}) to {high[0]:.1f} % ({high[1]})"


def class_change(classes: Iterable[tuple[Any, Any, Any]]) -> str:
    """Return a sentence on how the bound changes with size, for (size, bound, subclass) rows.

    >>> class_change([(512, "latency", "small_grid"), (8192, "compute", "tensor")])
    'The bound changes with size: latency (small grid) at 512, compute (tensor) from 8192.'
    """
    by_size: dict[int, set[str]] = {}
    for size, bound, subclass in classes:
        if size is not None and bound is not None:
            name = f"{bound} ({words(subclass)})" if subclass else bound
            by_size.setdefault(size, set()).add(name)
    steps: list[tuple[list[int], str]] = []
    for size in sorted(by_size):
        name = " or ".join(sorted(by_size[size]))
        if steps and steps[-1][1] == name:
            steps[-1][0].append(size)
        else:
            steps.append(([size], name))
    if len(by_size) < 2:
        return ""
    if len(steps) == 1:
        return f"The bound is the same at every size: {steps[0][1]}."
    parts = [
        f"{name} {'from' if sizes is steps[-1][0] else 'at'} "
        + (
            f"{sizes[0]}"
            if sizes is steps[-1][0] or len(sizes) == 1
            else f"{sizes[0]} to {sizes[-1]}"
        )
        for sizes, name in steps
    ]
    return f"The bound changes with size: {', '.join(parts)}."
