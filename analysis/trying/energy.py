"""The energy of a unit of work in a launch of a trial, over the units whose time is compared."""

from __future__ import annotations

from perfpipe.analysis.energy import NO_STEPS, Course, Unknown
from perfpipe.analysis.observed import Span
from perfpipe.analysis.trying.pace import ITERATION, LAUNCH, Pace, Window


def unit_j(course: Course, pace: Pace, window: Window) -> float:
    """Return the mean energy of a unit in the window of a comparison, J; raises Unknown.

    As for its time, compilation does not count.
    """
    if window.different_work:
        raise Unknown(window.different_work)
    if window.unit == LAUNCH:
        if pace.cut:
            raise Unknown("perfpipe ended the launch before its end")
        return course.launch_j()
    if window.unit == ITERATION:
        raise Unknown(NO_STEPS)
    if not 0 <= window.first < window.last < len(pace.times_ns):
        raise Unknown("the launch does not have the units that are compared")
    return course.step_j(_without_compilation(pace, window))


def _without_compilation(pace: Pace, window: Window) -> list[Span]:
    """Return when the units of a window were, apart from compilation; the first has all units."""
    start, end = pace.times_ns[window.first], pace.times_ns[window.last]
    ends = [start]
    for begun, ended in sorted(pace.compiling_ns):
        if begun < end and ended > ends[-1]:
            ends += [max(begun, ends[-1]), min(ended, end)]
    ends.append(end)
    found = [Span(a, b, 0) for a, b in zip(ends[::2], ends[1::2], strict=True) if a < b]
    return [
        own._replace(steps=0 if n else window.last - window.first) for n, own in enumerate(found)
    ]
