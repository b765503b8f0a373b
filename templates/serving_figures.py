"""Figures of servers: latency against rate, iterations by class, and the slowest request."""

from __future__ import annotations

from typing import Any

from perfpipe.templates.bars import Stacks, stacked
from perfpipe.templates.figures import GREY, Drawing, Mark, Marks, block, entry, points_of, spot
from perfpipe.templates.formats import format_value, shorten
from perfpipe.units import format_ns, request_rate, words
from perfpipe.viewmodel import Table

#: Colors and marks of latencies.
_LATENCIES = {"TTFT": ("ttft", "#2f6fde", "o"), "end to end": ("e2e", "#d9730d", "s")}

#: Colors of the classes of iterations, and of the time between them.
_CLASSES = {
    "prefill": "#d9730d",
    "mixed": "#8e5bd0",
    "decode": "#2f6fde",
    "unknown": "#808890",
    "between": "#a0522d",
    "empty": "#d0d0d0",
}

#: Colors of the parts of a request; the rest of the engine's lane as above.
_PARTS = {
    "client": "#c7b42c",
    "queue": "#a0522d",
    "prefill": "#c2417a",
    "response": "#5b9a32",
    "own": "#c2417a",
}

#: Maximum number of loads whose slowest request is drawn; the table has the rest.
_MOST = 4

#: Half the height of a lane.
_HALF = 0.36


def latencies_figure(table: Table) -> Drawing | None:
    """Return latency over rate, without a profiler; None below two rates.

    A percentile that is unknown has no point.
    """
    names = tuple(f"{key}_{q}_ms" for key, *_ in _LATENCIES.values() for q in ("p50", "p95"))
    rows = [
        (rate, dict(zip(names, values, strict=True)))
        for rate, phase, *values in points_of(table, ("rate", "phase", *names), ("rate",))
        if phase is None
    ]
    if len({rate for rate, _ in rows}) < 2 or not any(any(own.values()) for _, own in rows):
        return None

    def draw(axes: Any) -> Marks:
        axes.set(xlabel="requests/s", ylabel="ms", yscale="log")
        axes.yaxis.set_major_formatter("{x:g}")
        drawn: Marks = {}
        for name, (key, colour, mark) in _LATENCIES.items():
            for quantile, style in (("p50", "--"), ("p95", "-")):
                points = [(rate, own[f"{key}_{quantile}_ms"]) for rate, own in rows]
                known = sorted((rate, ms) for rate, ms in points if ms is not None)
                axes.plot(
                    [rate for rate, _ in known], [ms for _, ms in known], style,
                    color=colour, linewidth=1,
                )  # fmt: skip
                for at, (rate, ms) in enumerate(known):
                    gid = f"{key}-{quantile}-{at}"
                    spot(axes, (rate, ms), 30, colour, mark, gid)
                    said = f"{name} {quantile} at {request_rate(rate)}: {format_ns(1e6 * ms)}"
                    drawn[gid] = Mark(said, series=name)
            entry(axes, name, colour, mark)
        return drawn

    return Drawing(draw)


def iterations_figure(table: Table) -> Drawing | None:
    """Return a stacked bar of each load: classes of iterations, in % of the window."""
    stacks: Stacks = {}
    wanted = ("class", "share_pct", "iterations", "p50_ms")
    for load, (kind, share, count, p50) in _by_load(table, wanted):
        note = f"{load}: {words(kind)} {share:.1f} %, {count:,} of {format_value(p50, 'number')} ms"
        stacks.setdefault(load, {})[kind] = (share, Mark(f"{note} (median)"))
    return stacked(stacks, _CLASSES, "% of the window", 100) if stacks else None


def slowest_figure(table: Table) -> Drawing | None:
    """Return the phases of the slowest request of each load, above the engine's iterations."""
    rows = _by_load(table, ("lane", "part", "iterations", "from_ms", "time_ms"))
    loads = [*dict.fromkeys(load for load, _ in rows)][-_MOST:]
    lanes = [(load, lane) for load in loads for lane in ("request", "engine")]
    if not lanes:
        return None

    def draw(axes: Any) -> Marks:
        drawn: Marks = {}
        present: dict[str, str] = {}
        end = 0.0
        for number, (load, (lane, part, count, start, time)) in enumerate(rows):
            if load not in loads or not time:
                continue
            at = lanes.index((load, lane))
            name, colour = _part(lane, part)
            patch = block(axes, start, at - _HALF, time, 2 * _HALF, colour)
            patch.set_gid(f"part-{number}")
            several = f" ({count:,} iterations)" if count and count > 1 else ""
            said = f"{load}: {name}{several}, {format_ns(1e6 * time)}"
            drawn[f"part-{number}"] = Mark(said, series=name)
            present[name] = colour
            end = max(end, start + time)
        for name, colour in present.items():
            entry(axes, name, colour)
        axes.set(xlabel="ms since the request was planned", yticks=range(len(lanes)))
        axes.set_yticklabels([f"{shorten(load, 28)}: {lane}" for load, lane in lanes], fontsize=8)
        axes.set(xlim=(0, end), ylim=(len(lanes) - 0.4, -0.6))
        return drawn

    return Drawing(draw, 8.4, 1.3 + 0.36 * len(lanes))


def _part(lane: str, part: str) -> tuple[str, str]:
    """Return how a part of a lane is named, and its color."""
    if lane == "engine" and part != "own":
        return words(part), _CLASSES.get(part, GREY)
    name = "own prefill" if part in ("own", "prefill") else words(part)
    return name, _PARTS.get(part, GREY)


def _by_load(table: Table, names: tuple[str, ...]) -> list[tuple[str, tuple[Any, ...]]]:
    """Return the load of each row, and its named cells."""
    labelled = any(column.name == "label" for column in table.columns)
    who = ("label", "rate") if labelled else ("rate",)
    found = []
    for row in points_of(table, (*who, *names), (names[0],)):
        *label, rate = row[: len(who)]
        known = [str(name) for name in label if name not in (None, "-", f"rate={rate}")]
        load = "load" if rate is None else request_rate(rate)
        found.append((", ".join([load, *known]), row[len(who) :]))
    return found
