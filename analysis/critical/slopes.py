"""Predicts from a timeline how much of a delay of each event would reach the step.

`perfpipe try --sensitivity` measures the same by delaying events of the program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perfpipe.analysis.critical.events import NONE, Flags
from perfpipe.analysis.critical.graph import Graph
from perfpipe.analysis.critical.replay import steps_of
from perfpipe.analysis.critical.tables import NEEDS, replayed_steps
from perfpipe.ingest.arrays import Ints

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from perfpipe.analysis.critical.reading import Step

#: Views that are read here.
VIEWS = (*sorted(NEEDS),)

#: Share of the step's time that the delays of all its events take together.
_SHARE = 0.1


def predicted_slopes(con: DuckDBPyConnection) -> dict[str, float]:
    """Return the slopes of the handicaps launch and collectives, without those that meet no event.

    Empty if there are several jobs, or none: it is unknown which of them a trial would measure.
    """
    steps = [*replayed_steps(con)]
    if len(steps) != 1:
        return {}
    (step,) = steps
    slopes = {"launch": launch_slope(step), "collectives": collective_slope(step)}
    return {name: slope for name, slope in slopes.items() if slope is not None}


def launch_slope(step: Step) -> float | None:
    """Return the slope of delays within each launch of a kernel or graph."""
    graph = step.graph
    calls = _launching(graph, ("compute", "communication"))
    entries = calls + 2 * len(graph.operations)
    return _slope(step, calls, np.isin(graph.source, entries))


def collective_slope(step: Step) -> float | None:
    """Return the slope of delays of the host before each launch of a collective."""
    graph = step.graph
    calls = _launching(graph, ("communication",))
    entries = calls + 2 * len(graph.operations)
    return _slope(step, calls, np.isin(graph.target, entries))


def _launching(graph: Graph, categories: tuple[str, ...]) -> Ints:
    ops = graph.operations
    own = np.array([category in categories for category in ops.category], bool)
    return np.unique(ops.call[own & (ops.call != NONE)])


def _slope(step: Step, calls: Ints, delayed: Flags) -> float | None:
    """Return the part of a delay that reaches the step: of edges, by as much for each call."""
    graph, bounds = step.graph, step.bounds
    ops, middle = graph.operations, bounds[(len(bounds) - 1) // 2]
    within = (ops.gpu == step.gpu) & (ops.start >= middle) & (ops.start < bounds[-1])
    events = len(np.intersect1d(ops.call[within], calls))
    if not events:
        return None
    delay = _SHARE * (bounds[-1] - middle) / events
    lasting = graph.least.astype(np.float64)[:, None].copy()
    lasting[delayed] += delay
    found = steps_of(graph, lasting, step.gpu, bounds)
    if found is None:
        return None
    return (found.new_ns[0] - found.step_ns) * found.steps / (delay * events)
