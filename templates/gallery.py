"""The figures of reports, by the name that a table declares."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from perfpipe.templates.bars import (
    budget_figure,
    categories_figure,
    idle_figure,
    stalls_figure,
)
from perfpipe.templates.change_figure import change_figure
from perfpipe.templates.collective_figures import arrivals_figure, bandwidths_figure
from perfpipe.templates.course_figure import courses_figure
from perfpipe.templates.figures import Drawing, sol_figure
from perfpipe.templates.history_figure import history_figure
from perfpipe.templates.icicle import Icicle, icicle, stacks_icicle
from perfpipe.templates.memory_figure import memory_figure
from perfpipe.templates.occupancy_figures import occupancy_figure, what_if_figure
from perfpipe.templates.places_figure import places_figure, tried_figure
from perfpipe.templates.rate_figures import sizes_figure, tuning_figure
from perfpipe.templates.roofline_figure import roofline_figure
from perfpipe.templates.serving_figures import (
    iterations_figure,
    latencies_figure,
    slowest_figure,
)
from perfpipe.templates.snapshot_figure import snapshot_figure
from perfpipe.templates.speedup_figure import speedup_figure
from perfpipe.templates.step_figure import LONG, steps_figure
from perfpipe.viewmodel import Table


class Figure(NamedTuple):
    """The drawing of a table, and its caption; `draw` returns None if there is too little data."""

    draw: Callable[[Table], Drawing | Icicle | None]
    caption: str


FIGURES = {
    "time_budget": Figure(budget_figure, "Time budget of each GPU"),
    "kernel_categories": Figure(categories_figure, "Kernel time of each GPU by category"),
    "steps": Figure(
        steps_figure,
        "Duration of each step, by category; an arrow with the duration marks a step that takes "
        f"more than {LONG} times the median",
    ),
    "idle_time": Figure(idle_figure, "Idle time by interval length and cause"),
    "occupancy_what_if": Figure(
        what_if_figure, "Occupancy as a function of one resource; dots show the launch itself"
    ),
    "stalls": Figure(stalls_figure, "The three largest warp states of each profiled kernel"),
    "occupancy": Figure(occupancy_figure, "Occupancy of each profiled kernel"),
    "courses": Figure(
        courses_figure,
        "Activity over time of the kernels with the most idle SM time: SMs in % of their plateau, "
        "other units in % of peak; the busiest unit is dark, and ramp-up and tail are shaded",
    ),
    "device_memory": Figure(
        memory_figure,
        "Memory in use on each GPU; the dot marks the peak, the dashed line shows held memory",
    ),
    "snapshot": Figure(
        snapshot_figure,
        "What PyTorch's memory is for, over the events of its allocator; the dashed line shows "
        "reserved memory",
    ),
    "icicle": Figure(
        icicle,
        "GPU time by range: width shows GPU time, nested ranges are below; click to zoom in",
    ),
    "idle_stacks": Figure(
        stacks_icicle,
        "Idle time of each GPU by stack: width shows idle time, called functions are below their "
        "caller; click to zoom in",
    ),
    "arrivals": Figure(
        arrivals_figure, "Arrival of each rank at the collectives with the longest waits"
    ),
    "bandwidths": Figure(bandwidths_figure, "Bus bandwidth of collectives by message size"),
    "sizes": Figure(sizes_figure, "Throughput by problem size"),
    "speed_of_light": Figure(
        sol_figure,
        "Compute and memory SOL of each profiled kernel; the area of a mark shows the duration",
    ),
    "search": Figure(tuning_figure, "Result of each tested configuration"),
    "speedups": Figure(
        speedup_figure,
        "Speedup of each candidate with its 95 % interval; lines lead from a candidate's parent",
    ),
    "change": Figure(
        change_figure,
        "Mean step before and after, and the change by category; saved time is hatched",
    ),
    "places": Figure(
        places_figure, "Time of each node for the same work, with 95 % confidence intervals"
    ),
    "tried": Figure(
        tried_figure,
        "Time saved by each lever, with its interval; a vertical line marks the finding's bound",
    ),
    "history": Figure(
        history_figure,
        "Time of each run or commit with 95 % confidence intervals; the line shows the level",
    ),
    "latencies": Figure(
        latencies_figure,
        "Latency at each rate without a profiler: median (dashed) and 95th percentile",
    ),
    "iterations": Figure(
        iterations_figure,
        "Captured window of each load: iterations of the engine by class, and the time between",
    ),
    "slowest_request": Figure(
        slowest_figure,
        "The slowest request of each load until its first token, and the engine meanwhile",
    ),
    "roofline": Figure(
        roofline_figure,
        "Roofline at each memory level; color and shape show the bound, area shows the duration",
    ),
}
