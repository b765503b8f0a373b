"""Figures of collectives: when ranks arrive, and bandwidth by message size."""

from __future__ import annotations

from typing import Any

from perfpipe.templates.figures import CLASSES, Drawing, Mark, Marks, points_of, shade
from perfpipe.templates.formats import shorten
from perfpipe.units import format_bytes, format_ns, format_rate
from perfpipe.viewmodel import Table

#: Color and mark of the rank that arrives last, and of the others.
_LAST, _OTHERS = CLASSES["memory"], CLASSES["compute"]


def arrivals_figure(table: Table) -> Drawing | None:
    """Return a lane for each collective with a mark where each rank arrives, us after the first."""
    names = ("job", "collective", "rank", "late_ns", "waiting_ns", "last")
    rows = points_of(table, names, ("late_ns",))
    lanes = list(dict.fromkeys(row[:2] for row in rows))
    if not lanes:
        return None
    labels = _labels(table) if len({job for job, _ in lanes}) > 1 else {}

    def draw(axes: Any) -> Marks:
        drawn: Marks = {}
        for number, (job, collective, rank, late, waiting, last) in enumerate(rows):
            colour, sign = _LAST if last else _OTHERS
            at = lanes.index((job, collective))
            marks = axes.scatter([late / 1e3], [at], s=46, c=colour, marker=sign, alpha=0.8)
            marks.set_gid(f"arrival-{number}")
            title = f"{collective}, rank {rank}: arrives {format_ns(late)} after the first rank"
            series = "last" if last else "others"
            drawn[f"arrival-{number}"] = Mark(f"{title}, waits {format_ns(waiting)}", series=series)
        for name, (colour, sign) in (("last", _LAST), ("others", _OTHERS)):
            if any(mark.series == name for mark in drawn.values()):
                axes.scatter([], [], c=colour, marker=sign, label=name)
        axes.set(xlabel="arrival after the first rank (us)", ylim=(len(lanes) - 0.4, -0.6))
        named = [f"{labels[job]}: {name}" if job in labels else name for job, name in lanes]
        axes.set_yticks(range(len(lanes)), [shorten(name, 40) for name in named], fontsize=8)
        return drawn

    return Drawing(draw, 8.4, 1.1 + 0.26 * len(lanes))


def _labels(table: Table) -> dict[str, str]:
    """Return the configuration of each job."""
    if not any(column.name == "label" for column in table.columns):
        return {}
    return {job: str(label) for job, label in reversed(points_of(table, ("job", "label"), ()))}


def bandwidths_figure(table: Table) -> Drawing | None:
    """Return bus bandwidth by message size, a line for each operation; None for a single point."""
    rows = points_of(
        table, ("operation", "bytes", "bus_bytes_per_s", "count"), ("bytes", "bus_bytes_per_s")
    )
    if len({row[1] for row in rows}) < 2:
        return None

    def draw(axes: Any) -> Marks:
        drawn: Marks = {}
        for number, name in enumerate(dict.fromkeys(row[0] for row in rows)):
            colour, sign = shade(number)
            line = sorted(row[1:] for row in rows if row[0] == name)
            axes.plot([p[0] for p in line], [p[1] / 1e9 for p in line], color=colour, linewidth=1)
            for at, (size, rate, count) in enumerate(line):
                marks = axes.scatter([size], [rate / 1e9], s=40, c=colour, marker=sign, alpha=0.8)
                marks.set_gid(f"size-{number}-{at}")
                title = f"{name}, {format_bytes(size)}: {format_rate(rate, 'B/s')}, {count:,} calls"
                drawn[f"size-{number}-{at}"] = Mark(title, series=name)
            axes.scatter([], [], c=colour, marker=sign, label=name)
        axes.set(xscale="log", xlabel="message size", ylabel="bus bandwidth (GB/s)")
        axes.xaxis.set_major_formatter(lambda size, _: format_bytes(size))
        axes.set_ylim(0, 1.1 * max(row[2] for row in rows) / 1e9)
        return drawn

    return Drawing(draw, 8.4, 3.4)
