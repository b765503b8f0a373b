"""Figures of occupancy: what there is, and what other resources would give."""

from __future__ import annotations

from typing import Any

from perfpipe.viewmodel import Table
from templates.figures import GREY, Drawing, Mark, Marks, points_of
from templates.formats import shorten

#: Bars of a figure; the rest is in the table.
_MOST = 16

_SHADES = ("#2f6fde", "#d9730d", "#8e5bd0", "#5b9a32")

#: Resources that could be changed, in the order of their panels.
_RESOURCES = {
    "registers": "registers per thread",
    "shared_mem": "shared memory per block (KiB)",
    "block_size": "threads per block",
}


def occupancy_figure(table: Table) -> Drawing | None:
    """Return theoretical and achieved occupancy of each launch, with what limits it."""
    names = ("kernel_name", "launch_id", "limiters", "theoretical_occupancy_pct")
    rows = points_of(table, (*names, "achieved_occupancy_pct"), names[3:])[:_MOST]
    if not rows:
        return None

    def draw(axes: Any) -> Marks:
        drawn = {}
        for at, (kernel, launch, limiters, most, achieved) in enumerate(rows):
            (patch,) = axes.barh([at], [most], height=0.75, color="#b6c7dd")
            patch.set_gid(f"most-{at}")
            drawn[f"most-{at}"] = Mark(
                f"{kernel} ({launch}): theoretical {most:.1f} %, limited by "
                f"{limiters or 'nothing'}",
                str(kernel),
                "theoretical",
            )
            if achieved is not None:
                (patch,) = axes.barh([at], [achieved], height=0.4, color="#2f6fde")
                patch.set_gid(f"achieved-{at}")
                title = f"{kernel} ({launch}): achieved {achieved:.1f} %"
                drawn[f"achieved-{at}"] = Mark(title, str(kernel), "achieved")
        axes.scatter([], [], marker="s", c="#b6c7dd", label="theoretical")
        axes.scatter([], [], marker="s", c="#2f6fde", label="achieved")
        axes.set(xlabel="% of the warps an SM can hold", xlim=(0, 100))
        axes.set(yticks=range(len(rows)), ylim=(len(rows) - 0.4, -0.6))
        labels = [f"{shorten(str(row[0]), 36)} ({row[1]})" for row in rows]
        axes.set_yticklabels(labels, fontsize=8)
        return drawn

    return Drawing(draw, 8.4, 1.3 + 0.32 * len(rows))


def what_if_figure(table: Table) -> Drawing | None:
    """Return occupancy against each resource, a line a kernel; a dot is what the launch has."""
    names = ("kernel_name", "launch_id", "resource", "value", "occupancy_pct", "current")
    lines: dict[tuple[str, int], dict[str, list[tuple[float, float, bool]]]] = {}
    for kernel, launch, resource, value, occupancy, now in points_of(table, names, names[3:5]):
        scaled = value / 1024 if resource == "shared_mem" else value
        lines.setdefault((str(kernel), launch), {}).setdefault(resource, []).append(
            (scaled, occupancy, bool(now))
        )
    chosen = list(lines)[: len(_SHADES)]
    if not chosen:
        return None

    def draw(panels: Any) -> Marks:
        drawn = {}
        for axes, (resource, title) in zip(panels, _RESOURCES.items(), strict=True):
            axes.set(xlabel=title, ylim=(0, 105))
            for number, owner in enumerate(chosen):
                points = sorted(lines[owner].get(resource, []))
                colour = _SHADES[number]
                xs, ys = [p[0] for p in points], [p[1] for p in points]
                axes.step(xs, ys, where="post", color=colour, linewidth=1.2)
                for x, y, _ in (p for p in points if p[2]):
                    gid = f"now-{resource}-{number}"
                    axes.scatter([x], [y], s=34, c=colour, zorder=3).set_gid(gid)
                    note = f"{owner[0]} ({owner[1]}): {y:.1f} % with {x:g} {title}"
                    drawn[gid] = Mark(note, owner[0])
        panels[0].set_ylabel("occupancy (%)")
        for number, (kernel, launch) in enumerate(chosen):
            label = f"{shorten(kernel, 40)} ({launch})"
            panels[0].plot([], [], color=_SHADES[number], marker="o", label=label)
        for axes in panels:
            axes.axhline(100, color=GREY, linewidth=0.6)
        return drawn

    return Drawing(draw, 8.4, 3.4, panels=len(_RESOURCES))
