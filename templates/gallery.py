"""The figures of reports, by the name that a table gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from perfpipe.viewmodel import Table
from templates.bars import budget_figure, idle_figure, sizes_figure, stalls_figure
from templates.figures import Drawing, sol_figure, tuning_figure
from templates.occupancy_figures import occupancy_figure, what_if_figure
from templates.roofline_figure import roofline_figure
from templates.step_figure import steps_figure


class Figure(NamedTuple):
    """How a table is drawn, and what that shows; `draw` gives None where there is too little."""

    draw: Callable[[Table], Drawing | None]
    caption: str


FIGURES = {
    "time_budget": Figure(budget_figure, "Where the time of each GPU went"),
    "steps": Figure(steps_figure, "Length of each step, by what its time went into"),
    "idle_time": Figure(idle_figure, "Idle time by length of the interval and cause"),
    "occupancy_what_if": Figure(
        what_if_figure, "Occupancy if one resource were another; dots are what the launch has"
    ),
    "stalls": Figure(stalls_figure, "Warp states of each profiled kernel, the largest three"),
    "occupancy": Figure(occupancy_figure, "Occupancy of each profiled kernel"),
    "sizes": Figure(sizes_figure, "Rate by size"),
    "speed_of_light": Figure(
        sol_figure,
        "Compute against memory speed of light of each profiled kernel; area is duration",
    ),
    "search": Figure(tuning_figure, "Time of each configuration of the search"),
    "roofline": Figure(
        roofline_figure,
        "Rate against arithmetic intensity at each memory level; colour and shape are the class, "
        "area is duration",
    ),
}
