"""The figure of the activity of kernels over time."""

from __future__ import annotations

from typing import Any, NamedTuple

from perfpipe.templates.figures import GREY, Drawing, Mark, Marks, launches_of
from perfpipe.viewmodel import Table

#: Maximum number of launches; the table has the rest.
_MOST = 4

#: Colors of units.
_UNITS = {
    "sm": "#708090",
    "issue": "#2f6fde",
    "tensor": "#1f4f9e",
    "fma": "#20808d",
    "alu": "#8e5bd0",
    "fp64": "#c2417a",
    "xu": "#a0522d",
    "l1": "#c7b42c",
    "l2": "#5b9a32",
    "dram": "#d9730d",
}

#: Opacity of a unit in parts in which it is the busiest, and in other parts.
_STRONG, _PALE = 0.95, 0.35


class _Lane(NamedTuple):
    """One unit of a launch: its activity in parts of equal length, and the parts that it leads."""

    kernel: str
    owner: str
    unit: str
    mean: float
    parts: list[float]
    leads: set[int]
    ramp: float
    tail: float


def courses_figure(table: Table) -> Drawing | None:
    """Return the activity of SMs and units over the time of each kernel, a lane for each unit.

    A unit is drawn strong where it is the busiest; ramp and tail of the SMs are shaded.
    """
    lanes = _lanes(table)
    if not lanes:
        return None

    def draw(axes: Any) -> Marks:
        drawn: Marks = {}
        owners = list(dict.fromkeys(lane.owner for lane in lanes))
        ticks = []
        top = 0.0
        for owner in owners:
            own = [lane for lane in lanes if lane.owner == owner]
            axes.text(0.5, top + 0.75, owner, fontsize=8, color=GREY)
            top += 1
            for lane in own:
                top += 1
                ticks.append((top - 0.45, "SMs" if lane.unit == "sm" else lane.unit))
                _draw(axes, lane, top, f"lane-{len(drawn)}", drawn)
            for begin, end in ((0.0, own[0].ramp), (100 - own[0].tail, 100.0)):
                if end > begin:
                    box = [top - len(own)] * 2, [top] * 2
                    axes.fill_between([begin, end], *box, color=GREY, alpha=0.2, linewidth=0)
        axes.set(xlim=(0, 100), ylim=(top + 0.2, 0), xlabel="% of the kernel duration")
        axes.set_yticks([at for at, _ in ticks], labels=[unit for _, unit in ticks], fontsize=7)
        axes.grid(visible=False, axis="y")
        return drawn

    rows = len(lanes) + len({lane.owner for lane in lanes})
    return Drawing(draw, 8.4, 0.8 + 0.24 * rows)


def _draw(axes: Any, lane: _Lane, base: float, gid: str, drawn: Marks) -> None:
    """Draw a lane above `base`: the y axis points down."""
    width = 100 / len(lane.parts)
    edges = [width * index for index in range(len(lane.parts) + 1)]
    for name, alpha in (("pale", _PALE), ("strong", _STRONG)):
        if name == "strong" and (lane.unit == "sm" or not lane.leads):
            continue
        shown = lane.parts
        if name == "strong":
            shown = [pct if at in lane.leads else 0 for at, pct in enumerate(lane.parts)]
        heights = [base - 0.9 * min(pct, 100) / 100 for pct in [*shown, shown[-1]]]
        patch = axes.fill_between(
            edges, base, heights, step="post", color=_UNITS[lane.unit], alpha=alpha, linewidth=0
        )
        patch.set_gid(f"{gid}-{name}")
        peak = "the plateau" if lane.unit == "sm" else "peak"
        title = f"{lane.owner}: {lane.unit} {lane.mean:.0f} % of {peak} on average, "
        title += f"{min(lane.parts):.0f} to {max(lane.parts):.0f} %"
        drawn[f"{gid}-{name}"] = Mark(title, lane.kernel)


def _lanes(table: Table) -> list[_Lane]:
    names = ("kernel_name", "unit", "mean_pct", "parts_pct", "leads", "ramp_pct", "tail_pct")
    found = []
    for owner, (kernel, unit, mean, parts, leads, ramp, tail) in launches_of(
        table, names, names[:3]
    ):
        values = [float(value) for value in parts.split()]
        led = {int(at) for at in leads.split()}
        found.append(_Lane(str(kernel), owner, unit, mean, values, led, ramp or 0, tail or 0))
    shown = list(dict.fromkeys(lane.owner for lane in found))[:_MOST]
    return [lane for lane in found if lane.owner in shown]
