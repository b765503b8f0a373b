"""The figure of the memory of GPUs over time."""

from __future__ import annotations

from typing import Any, NamedTuple

from perfpipe.templates.figures import Drawing, Mark, Marks, byte_scale, entry, gpus_of, shade, spot
from perfpipe.units import format_bytes, format_ns
from perfpipe.viewmodel import Table

#: Kinds of the table that are of all memory; others are parts of it.
_USED, _HELD = "in use", "held"

#: Maximum number of GPUs; the table has the rest.
_MOST = 8


class _Course(NamedTuple):
    """The memory of a GPU in parts of equal length."""

    gpu: str
    kind: str
    start_ns: int
    end_ns: int
    parts: list[int]


def memory_figure(table: Table) -> Drawing | None:
    """Return the memory in use on each GPU over time with its peak, and the held memory."""
    courses = _courses(table)
    gpus = list(dict.fromkeys(course.gpu for course in courses))[:_MOST]
    if not gpus:
        return None
    most = max(max(course.parts) for course in courses)
    scale, unit = byte_scale(most)

    def draw(axes: Any) -> Marks:
        drawn: Marks = {}
        for course in courses:
            if course.gpu in gpus:
                _draw(axes, course, gpus.index(course.gpu), scale, drawn)
        if len(gpus) > 1:
            for number, gpu in enumerate(gpus):
                entry(axes, gpu, shade(number)[0])
        axes.set(xlabel="time (s)", ylabel=f"memory ({unit})", ylim=(0, 1.08 * most / scale))
        axes.margins(x=0.01)
        return drawn

    return Drawing(draw, 8.4, 3.2)


def _draw(axes: Any, course: _Course, number: int, scale: float, drawn: Marks) -> None:
    colour, mark = shade(number)
    begin, width = course.start_ns / 1e9, (course.end_ns - course.start_ns) / 1e9
    edges = [begin + width * at / len(course.parts) for at in range(len(course.parts) + 1)]
    heights = [value / scale for value in (*course.parts, course.parts[-1])]
    peak = max(course.parts)
    said = f"{course.gpu}: {course.kind} up to {format_bytes(peak)}"
    gid = f"memory-{len(drawn)}"
    if course.kind == _HELD:
        (line,) = axes.step(
            edges, heights, where="post", color=colour, linewidth=1, linestyle=(0, (4, 2))
        )
        line.set_gid(gid)
        drawn[gid] = Mark(said, series=course.gpu)
        return
    area = axes.fill_between(edges, 0, heights, step="post", color=colour, alpha=0.3, linewidth=0)
    area.set_gid(gid)
    drawn[gid] = Mark(said, series=course.gpu)
    axes.step(edges, heights, where="post", color=colour, linewidth=1)
    at = course.parts.index(peak)
    place = (edges[at] + edges[at + 1]) / 2
    spot(axes, (place, peak / scale), 28, colour, mark, f"{gid}-peak")
    drawn[f"{gid}-peak"] = Mark(f"{said}, after {format_ns(place * 1e9)}", series=course.gpu)


def _courses(table: Table) -> list[_Course]:
    names = ("kind", "start_ns", "end_ns", "parts_bytes")
    found = [
        _Course(gpu, kind, start, end, [int(value) for value in parts.split()])
        for gpu, (kind, start, end, parts) in gpus_of(table, names, names)
        if kind in (_USED, _HELD)
    ]
    used = {course.gpu: course.parts for course in found if course.kind == _USED}
    return [c for c in found if c.kind == _USED or c.parts != used[c.gpu]]
