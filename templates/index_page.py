"""The index of runs: verdict, times, share of the peak, change since the previous run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from perfpipe.runrecord import RunRecord
from perfpipe.templates.cells import local_url
from perfpipe.templates.policy import policy
from perfpipe.templates.renderers import environment, text_of
from perfpipe.units import format_ns
from perfpipe.viewmodel import Report, Tile

#: Tiles on how close a run comes to its roof, best first.
_REACHED = ("Best", "Share of peak", "MFU", "Mean SOL", "SOL")

#: Size of a sparkline, pixels, and its border; values that its text names.
_WIDTH, _HEIGHT, _BORDER = 110, 26, 3
_TOLD = 8


@dataclass(frozen=True)
class Difference:
    """How a run compares with the one before: its page, and the verdict with the change."""

    file: str
    verdict: str
    change: str


@dataclass(frozen=True)
class Summary:
    """What an index takes from the report of a run: the verdict in a sentence, tiles, notice.

    `reached` says how close the run comes to its roof, `step` how long a traced step takes; None if
    unknown.
    """

    verdict: str
    reached: Tile | None = None
    step: str | None = None
    notice: str | None = None

    @classmethod
    def of(cls, report: Report) -> Summary:
        """Return the summary of a report."""
        opening = report.opening
        tiles = opening.tiles if opening else ()
        known = [tile for tile in tiles if tile.name in _REACHED and tile.number.endswith("%")]
        return cls(
            verdict=opening.verdict.text if opening else report.verdict,
            reached=min(known, key=lambda tile: _REACHED.index(tile.name), default=None),
            step=next((tile.number for tile in tiles if tile.name == "Step"), None),
            notice=report.notice,
        )


@dataclass(frozen=True)
class Entry:
    """A run in an index of runs: `file` is its page, relative to the index.

    `earlier` are runs of the same workload before it, oldest first.
    """

    file: str
    run: RunRecord
    summary: Summary
    earlier: tuple[RunRecord, ...] = ()
    difference: Difference | None = None

    @property
    def times(self) -> dict[str, float]:
        """The median time of each configuration, ms."""
        return times_of(self.run)

    @property
    def time(self) -> str:
        """The time of an iteration, the shortest and longest of several; else of a traced step."""
        found = sorted(self.times.values())
        ends = dict.fromkeys(format_ns(1e6 * ms) for ms in found[:1] + found[-1:])
        step = self.summary.step
        return " to ".join(ends) or (f"{step} (step)" if step else "-")

    @property
    def course(self) -> list[float]:
        """The times of the workload up to this run, ms, where there are several.

        Each is the geometric mean of the configurations that all of these runs timed.
        """
        found = [times for run in (*self.earlier, self.run) if (times := times_of(run))]
        shared = set.intersection(*(set(times) for times in found)) if found else set()
        if len(found) < 2 or not shared:
            return []
        return [statistics.geometric_mean(own[name] for name in sorted(shared)) for own in found]


def times_of(run: RunRecord) -> dict[str, float]:
    """Return the median time of each configuration of a run, ms."""
    return {task.label: task.median_ms for task in run.tasks if task.median_ms}


def sparkline(values: Sequence[float]) -> str:
    """Return values as a line from zero, its last point marked; empty for fewer than two."""
    if len(values) < 2:
        return ""
    across = (_WIDTH - 2 * _BORDER) / (len(values) - 1)
    down = (_HEIGHT - 2 * _BORDER) / max(values)
    points = [
        (_BORDER + at * across, _HEIGHT - _BORDER - value * down) for at, value in enumerate(values)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    told = escape(" -> ".join(format_ns(1e6 * value) for value in values[-_TOLD:]))
    return (
        f'<svg class="spark" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"><title>{told}</title>'
        f'<polyline points="{line}" fill="none" stroke="currentColor"/>'
        f'<circle cx="{points[-1][0]:.1f}" cy="{points[-1][1]:.1f}" r="2.5"/></svg>'
    )


def render_index(entries: Sequence[Entry]) -> str:
    """Return a page that links to the reports of several runs, newest first."""
    page = environment().get_template("index.html.j2")
    newest = sorted(entries, key=lambda entry: entry.run.started_at, reverse=True)
    css, js = text_of("report.css"), text_of("report.js")
    return page.render(
        entries=newest,
        css=css,
        js=js,
        policy=policy([css], [js]),
        sparkline=sparkline,
        url=local_url,
    )
