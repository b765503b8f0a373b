"""What the configurations of a run tell: how near they come to the peaks, and their classes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from perfpipe.database import quote
from perfpipe.units import words

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Views that are read here.
VIEWS = ("run_efficiency",)


def reach(con: DuckDBPyConnection, run_id: str) -> str | None:
    """Return a sentence on how near to the vendor's peaks a run comes; None where work is unknown.

    Of the roof where the workload file states operations and bytes, else MFU.
    """
    rows = con.execute(
        "SELECT short_label, sol_pct, e.mfu_pct FROM run_efficiency AS e "
        "JOIN run_tasks USING (run_id, task_index) "
        f"WHERE run_id = {quote(run_id)} ORDER BY task_index"
    ).fetchall()
    for at, what in ((1, "of the vendor's peak"), (2, "MFU")):
        known = [(row[at], row[0]) for row in rows if row[at] is not None]
        if not known:
            continue
        low, high = min(known), max(known)
        if len(known) == 1:
            return f"Timed without a profiler: {low[0]:.1f} % {what}"
        return (
            f"Timed without a profiler: {low[0]:.1f} % ({low[1]}) to {high[0]:.1f} % ({high[1]}) "
            f"{what}"
        )
    return None


def class_change(classes: Iterable[tuple[Any, Any, Any]]) -> str:
    """Return a sentence on how the class changes with size, for (size, bound, subclass) rows.

    >>> class_change([(512, "latency", "small_grid"), (8192, "compute", "tensor")])
    'With size the class changes: latency (small grid) at 512, compute (tensor) from 8192.'
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
        return f"The class is the same at every size: {steps[0][1]}."
    parts = [
        f"{name} {'from' if sizes is steps[-1][0] else 'at'} "
        + (
            f"{sizes[0]}"
            if sizes is steps[-1][0] or len(sizes) == 1
            else f"{sizes[0]} to {sizes[-1]}"
        )
        for sizes, name in steps
    ]
    return f"With size the class changes: {', '.join(parts)}."
