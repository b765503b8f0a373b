"""Figures of occupancy: of each launch, and as its resources change."""

from __future__ import annotations

from typing import Any

from perfpipe.templates.figures import (
    GREY,
    Drawing,
    Mark,
    Marks,
    block,
    entry,
    launches_of,
    shade,
    spot,
)
from perfpipe.viewmodel import Table

#: Maximum number of bars, and of lines; the tables have the rest.
_MOST, _LINES = 16, 4

#: Resources that can be changed, in panel order.
_RESOURCES = {
    "registers": "registers per thread",
    "shared_mem": "shared memory per block (KiB)",
    "block_size": "threads per block",
}


def occupancy_figure(table: Table) -> Drawing | None:
    """Return theoretical and achieved occupancy of each launch, with its limiters."""
    names = ("kernel_name", "limiters", "theoretical_occupancy_pct", "achieved_occupancy_pct")
    rows = launches_of(table, names, names[2:3])[:_MOST]
    if not rows:
        return None

    def draw(axes: Any) -> Marks:
        drawn = {}
        for at, (owner, (kernel, limiters, most, achieved)) in enumerate(rows):
            patch = block(axes, 0, at - 0.375, most, 0.75, "#b6c7dd")
            patch.set_gid(f"most-{at}")
            title = f"{owner}: theoretical {most:.1f} %, limited by {limiters or 'nothing'}"
            drawn[f"most-{at}"] = Mark(title, str(kernel), "theoretical")
            if achieved is not None:
                patch = block(axes, 0, at - 0.2, achieved, 0.4, "#2f6fde")
                patch.set_gid(f"achieved-{at}")
                title = f"{owner}: achieved {achieved:.1f} %"
                drawn[f"achieved-{at}"] = Mark(title, str(kernel), "achieved")
        entry(axes, "theoretical", "#b6c7dd")
        entry(axes, "achieved", "#2f6fde")
        axes.set(xlabel="% of the maximum warps per SM", xlim=(0, 100))
        axes.set(yticks=range(len(rows)), ylim=(len(rows) - 0.4, -0.6))
        axes.set_yticklabels([owner for owner, _ in rows], fontsize=8)
        return drawn

    return Drawing(draw, 8.4, 1.3 + 0.32 * len(rows))


def what_if_figure(table: Table) -> Drawing | None:
    """Return occupancy by resource, one line per kernel; a dot marks the launch."""
    names = ("kernel_name", "resource", "value", "occupancy_pct", "current")
    lines: dict[str, dict[str, list[tuple[float, float, str | None]]]] = {}
    for owner, (kernel, resource, value, occupancy, now) in launches_of(table, names, names[2:4]):
        scaled = value / 1024 if resource == "shared_mem" else value
        points = lines.setdefault(owner, {}).setdefault(resource, [])
        points.append((scaled, occupancy, str(kernel) if now else None))
    chosen = list(lines)[:_LINES]
    if not chosen:
        return None

    def draw(panels: Any) -> Marks:
        drawn: Marks = {}
        for axes, (resource, title) in zip(panels, _RESOURCES.items(), strict=True):
            axes.set(xlabel=title, ylim=(0, 105))
            axes.axhline(100, color=GREY, linewidth=0.6)
            for number, owner in enumerate(chosen):
                colour, sign = shade(number)
                points = sorted(lines[owner].get(resource, []), key=lambda point: point[0])
                xs, ys = [p[0] for p in points], [p[1] for p in points]
                axes.step(xs, ys, where="post", color=colour, linewidth=1.2)
                for x, y, kernel in points:
                    if kernel is None:
                        continue
                    gid = f"now-{len(drawn)}"  # Each launch of a kernel has its own mark.
                    spot(axes, (x, y), 34, colour, sign, gid, zorder=3)
                    drawn[gid] = Mark(f"{owner}: occupancy {y:.1f} %, {title}: {x:g}", kernel)
        panels[0].set_ylabel("occupancy (%)")
        for number, owner in enumerate(chosen):
            colour, sign = shade(number)
            panels[0].plot([], [], color=colour, marker=sign, label=owner)
        return drawn

    return Drawing(draw, 8.4, 3.4, panels=len(_RESOURCES))
