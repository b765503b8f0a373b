"""The picture of a step, from the views step_pictures and step_slices."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from perfpipe.analysis.report import captures
from perfpipe.analysis.report.captures import Drawn, captures_of
from perfpipe.analysis.report.ranks import Place, names_of
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import rows_of
from perfpipe.database import in_list, quote, same
from perfpipe.picture import Arrival, Label, Lane, Panel, Picture, Sample, Slice, View
from perfpipe.units import format_bytes, format_ns, words
from perfpipe.windows import WINDOWS

#: Views that are read here.
VIEWS = (
    "step_pictures",
    "step_slices",
    "collective_arrivals",
    "kernel_headroom",
    "_short_names",
    "_labels",
    "_metric_samples",
    "device_memory",
    "_gpus",
    "_step_windows",
    *captures.VIEWS,
    "_gpu_ranks",
    "step_times",
)

#: What is drawn at most: GPUs; of each the threads that launch most, nested ranges of these, the
#: busiest streams, rows of one; slices, of longer windows the first.
_GPUS, _THREADS, _DEPTHS, _STREAMS, _ROWS = 8, 2, 2, 4, 3
_MOST = 60_000

#: Letters of the operation that ends an idle interval, and of the name of a step.
_NEXT = 60

#: Names of steps that a command shows as they are.  Steps are counted from 1, names often from 0.
_PLAIN = re.compile(r"(?!-)[\w .:#=-]*[^\W\d][\w .:#=-]*")

#: Kinds of lanes by those of slices; all others are GPU operations.
_KINDS = {"range": "range", "call": "call", "code": "code", "idle": "idle"}

#: Collectives that are linked at most, of a longer window the first.
_LINKS = 1_000

#: Slices of the median step beyond which the slowest is left to `--window`.
_BOTH = 12_000

#: Samples of memory in a step.
_SAMPLES = 1_200

#: Tracers by kind of report.
_TRACERS = {"nsys": "nsys", "torch": "torch.profiler"}

_METRICS = {
    "sm_active": "SMs active",
    "tensor_active": "Tensor pipes",
    "dram_read": "DRAM read",
    "dram_write": "DRAM write",
}


class _Window(NamedTuple):
    """A step of a GPU: times in ns, those of a median step with and without the profiler."""

    report_id: str
    device: int
    job: str
    role: str
    step: int | None
    name: str | None
    start_ns: int
    end_ns: int
    offset_ns: int
    label: str
    alone: bool
    rank: int | None
    traced_ns: float | None
    plain_ns: float | None

    @property
    def place(self) -> Place:
        """What the GPU is named by."""
        return Place(self.report_id, self.device, self.label, self.job, self.rank)


class _Alike(NamedTuple):
    """Slices of a lane that have one label, and calls of one thread.

    Starts and durations, and the starts of the calls that launched them, in ns from the window's
    start.
    """

    report_id: str
    device: int
    lane: str
    kind: str
    depth: int
    name: str
    kernel_name: str | None
    category: str
    grid: str | None
    block: str | None
    next_name: str | None
    stack: str | None
    call_lane: str | None
    starts: list[int]
    durations: list[int]
    calls: list[int | None]


@dataclass
class _Labels:
    """Numbers labels in the order in which they appear."""

    known: dict[Label, int] = field(default_factory=dict)

    def number(self, label: Label) -> int:
        return self.known.setdefault(label, len(self.known))


def picture_of(
    scope: Scope, reports: Sequence[str], names: Mapping[str, str] | None = None
) -> Picture | None:
    """Return the picture of the steps of some timelines; None where they have no GPU work.

    GPUs of a job are on one clock; other timelines begin side by side, in the order of `names`
    (labels by report), where they have any.
    """
    windows = [_Window(*row) for row in rows_of(scope.con, _windows(reports))] if reports else []
    if names is not None:
        windows = [window._replace(label=names[window.report_id]) for window in windows]
        windows.sort(key=lambda window: [*names].index(window.report_id))
    labels = _Labels()
    views: list[View] = []
    for role in ("median", "slowest"):
        own = _drawn([window for window in windows if window.role == role])
        new = not views or [w.step for w in own] != [w.step for w in windows if w.role == "median"]
        if own and new and sum(_slices(view) for view in views) <= _BOTH:
            views.append(_view(scope, own, role, labels))
    if not views:
        return None
    drawn = [window for window in windows if window.role == "median"][:_GPUS]
    named = zip(drawn, names_of([own.place for own in drawn]), strict=True)
    gpus = [Drawn(own.report_id, own.device, name) for own, name in named]
    return Picture(tuple(views), tuple(labels.known), tuple(captures_of(scope, gpus)))


def _slices(view: View) -> int:
    return sum(len(lane.slices) for panel in view.panels for lane in panel.lanes)


def _windows(reports: Sequence[str]) -> str:
    return f"""
        WITH named AS (
            SELECT report_id, device, name, count(*) = 1 AS alone
            FROM _step_windows JOIN _gpus USING (track)
            GROUP BY report_id, device, name
        )
        SELECT
            report_id, device, job, role, step, name, start_ns, end_ns, offset_ns, label,
            coalesce(alone, false) AS alone, rank, traced_ns, plain_ns
        FROM step_pictures
        JOIN _labels USING (report_id)
        LEFT JOIN named USING (report_id, device, name)
        LEFT JOIN (SELECT report_id, device, rank FROM _gpu_ranks) USING (report_id, device)
        LEFT JOIN step_times USING (report_id, device)
        WHERE report_id IN {in_list(reports)}
        ORDER BY position NULLS LAST, min(label) OVER (PARTITION BY job),
            rank NULLS LAST, label, report_id, device, role
    """


def _drawn(windows: Sequence[_Window]) -> list[_Window]:
    """Return the GPUs that there is room for, about as many of each job."""
    places: dict[str, int] = {}
    order = []
    for window in windows:
        places[window.job] = places.get(window.job, -1) + 1
        order.append(places[window.job])
    least = sorted(range(len(windows)), key=lambda at: (order[at], at))[:_GPUS]
    return [windows[at] for at in sorted(least)]


def _view(scope: Scope, windows: Sequence[_Window], role: str, labels: _Labels) -> View:
    rows = _slices_of(scope, [window.report_id for window in windows], role)
    sol = _sol(scope, [window.report_id for window in windows])
    first: dict[str, int] = {}
    for window in windows:
        at = window.start_ns + window.offset_ns
        first[window.job] = min(at, first.get(window.job, at))
    panels = []
    several = len({window.job for window in windows}) > 1
    for window, named in zip(windows, names_of([w.place for w in windows]), strict=True):
        shift = window.start_ns + window.offset_ns - first[window.job]
        own = [r for r in rows if (r.report_id, r.device) == (window.report_id, window.device)]
        lanes = [
            *_lanes(own, shift, window.end_ns - window.start_ns, labels, sol),
            *_metrics(scope, window, shift),
            *_memory(scope, window, shift),
        ]
        dur_ns = shift + window.end_ns - window.start_ns
        name = f"{named}: {_length([window], _tracer(scope))}" if several else named
        panels.append(
            Panel(f"{name}{_left_out(own)}", dur_ns, tuple(lanes), _command(window, windows))
        )
    cut = f" (first {_MOST:,} slices)" if sum(map(_count, rows)) == _MOST else ""
    title = f"{_title(windows, _tracer(scope))}{cut}"
    return View(title, tuple(panels), tuple(_links(scope, windows, first)))


def _title(windows: Sequence[_Window], tracer: str) -> str:
    """Return what is drawn, and how long it takes; panels of several jobs say it themselves."""
    steps = {window.step for window in windows}
    what = "Analyzed window" if None in steps else f"{windows[0].role.capitalize()} step"
    if len({window.job for window in windows}) > 1:
        return f"{what}s{tracer}"
    name = (windows[0].name or "")[:_NEXT]
    drawn = f" (drawn: {name})" if name and len(steps) == 1 else ""
    return f"{what}: {_length(windows, tracer)}{drawn}"


def _length(windows: Sequence[_Window], tracer: str) -> str:
    """Return the time of a step: of the median step as the first screen states it."""
    longest = max(windows, key=lambda window: window.traced_ns or 0)
    traced = max(window.end_ns - window.start_ns for window in windows)
    if windows[0].role == "median" and longest.traced_ns and longest.step is not None:
        if longest.plain_ns:
            plain, with_it = format_ns(longest.plain_ns), format_ns(longest.traced_ns)
            if plain != with_it:
                return f"{plain}, {with_it}{tracer or ' when traced'}"
        return f"{format_ns(longest.traced_ns)}{tracer}"
    return f"{format_ns(traced)}{tracer}"


def _links(
    scope: Scope, windows: Sequence[_Window], first: Mapping[str, int]
) -> Iterator[tuple[Arrival, ...]]:
    """Yield the start of each collective on each rank, for collectives in several panels."""
    panels = {(window.report_id, window.device): at for at, window in enumerate(windows)}
    if len(panels) < 2:
        return
    sql = f"""
        SELECT job, place, report_id, device, start_ns FROM collective_arrivals
        WHERE report_id IN {in_list([window.report_id for window in windows])}
        ORDER BY job, min(start_ns) OVER (PARTITION BY job, place), place, report_id, device
    """
    found: dict[tuple[str, int], list[Arrival]] = {}
    for job, place, report_id, device, start_ns in rows_of(scope.con, sql):
        panel = panels.get((report_id, device))
        if panel is not None:
            window = windows[panel]
            start = window.start_ns + window.offset_ns
            if start <= start_ns < start + window.end_ns - window.start_ns:
                arrival = Arrival(panel, start_ns - first[window.job])
                found.setdefault((job, place), []).append(arrival)
    several = [tuple(sorted(arrivals)) for arrivals in found.values() if len(arrivals) > 1]
    yield from several[:_LINKS]


def _tracer(scope: Scope) -> str:
    """Return the profiler that traced the step, since tracing makes the step longer."""
    names = [name for kind, name in _TRACERS.items() if scope.kinds.get(kind)]
    return f" under {names[0]}" if len(names) == 1 else ""


def _left_out(rows: Sequence[_Alike]) -> str:
    """Return how many streams are not drawn, if there are more than fit."""
    streams = {row.lane for row in rows if row.kind not in _KINDS}
    return f" ({len(streams) - _STREAMS} more streams)" if len(streams) > _STREAMS else ""


def _command(window: _Window, windows: Sequence[_Window]) -> str:
    """Return the command that exports the step of all ranks of a job, by its name if it has one."""
    job = [other for other in windows if other.job == window.job]
    reports = " ".join(dict.fromkeys(other.report_id for other in job))
    name = window.name or ""
    alone = name not in WINDOWS and all(other.name == name and other.alone for other in job)
    by_name = alone and _PLAIN.fullmatch(name)
    chosen = f" --window {shlex.quote(name)}" if by_name else f" --step {window.step}"
    return f"perfpipe export perfetto {reports}{chosen if window.step is not None else ''}"


def _slices_of(scope: Scope, reports: Sequence[str], role: str) -> list[_Alike]:
    """Return the slices of some windows, those with one label together, sorted by name."""
    labels, by = ", ".join(_Alike._fields[:-3]), "ORDER BY start_ns, dur_ns, call_start_ns"
    sql = f"""
        WITH drawn AS (
            SELECT {labels}, start_ns, dur_ns, call_start_ns FROM step_slices
            WHERE report_id IN {in_list(reports)} AND role = '{role}'
            ORDER BY start_ns, depth, dur_ns DESC, name, lane LIMIT {_MOST}
        )
        SELECT {labels}, list(start_ns {by}), list(dur_ns {by}), list(call_start_ns {by})
        FROM drawn
        GROUP BY ALL
        ORDER BY name, {labels}
    """
    return [_Alike(*row) for row in rows_of(scope.con, sql)]


def _count(alike: _Alike) -> int:
    return len(alike.starts)


def _sol(scope: Scope, reports: Sequence[str]) -> Mapping[tuple[str, str, str], float]:
    """Return the SOL of profiled kernels, by name, grid and block."""
    if not scope.profiled:
        return {}
    sql = f"""
        SELECT short_name, grid, block, max(max_sol_pct) FROM kernel_headroom
        JOIN _short_names USING (report_id, name)
        WHERE report_id IN {in_list(reports)} AND max_sol_pct IS NOT NULL
        GROUP BY short_name, grid, block
    """
    return {(name, grid, block): pct for name, grid, block, pct in rows_of(scope.con, sql)}


def _lanes(
    rows: Sequence[_Alike],
    shift: int,
    length: int,
    labels: _Labels,
    sol: Mapping[tuple[str, str, str], float],
) -> Iterator[Lane]:
    """Yield the lanes of a GPU: ranges, calls and code of its threads, streams, idle time."""
    lanes: dict[tuple[str, str, int], list[_Alike]] = {}
    for row in rows:
        lanes.setdefault((_KINDS.get(row.kind, "stream"), row.lane, row.depth), []).append(row)
    calls: _Calls = {}

    def drawn(kind: str, title: str, lane: str, depth: int = 0) -> Iterator[Lane]:
        own = lanes.get((kind, lane, depth), [])
        numbers = [labels.number(_label(alike, sol)) for alike in own]
        for number, slices in enumerate(_in_rows(own, numbers, length, shift, calls)):
            if kind == "call":
                calls.update(
                    {(lane, one.start_ns): at for at, one in enumerate(slices, len(calls))}
                )
            yield Lane(title if not number and not depth else "", kind, tuple(slices))

    for thread in _longest(lanes, "call", _THREADS):
        for depth in range(_DEPTHS):
            yield from drawn("range", f"Thread {thread} ranges", thread, depth)
        yield from drawn("call", f"Thread {thread} calls", thread)
        yield from drawn("code", f"Thread {thread} code", thread)
    for stream in sorted(_longest(lanes, "stream", _STREAMS), key=lambda name: (len(name), name)):
        yield from drawn("stream", f"Stream {stream}" if stream.isdigit() else stream, stream)
    yield from drawn("idle", "Idle, by cause", "idle")


def _longest(lanes: Mapping[tuple[str, str, int], list[_Alike]], kind: str, most: int) -> list[str]:
    """Return the lanes of a kind with most slices."""
    own = {lane: sum(map(_count, rows)) for (what, lane, _), rows in lanes.items() if what == kind}
    chosen = sorted(own, key=lambda lane: (-own[lane], lane))[:most]
    return sorted(chosen, key=lambda lane: min(alike.starts[0] for alike in lanes[kind, lane, 0]))


def _label(alike: _Alike, sol: Mapping[tuple[str, str, str], float]) -> Label:
    told = []
    if alike.grid:
        told.append(f"<<<{alike.grid}; {alike.block}>>>")
        pct = sol.get((alike.name, alike.grid, alike.block or ""))
        told += [f"{pct:.0f} % of SOL (profiled)"] if pct is not None else []
    elif alike.next_name:
        told.append("before " + alike.next_name[:_NEXT])
    elif alike.stack:
        told.append("stack: " + alike.stack)
    name = words(alike.name) if alike.kind == "idle" else alike.name
    kernel = alike.name if alike.kernel_name else ""
    return Label(name or "(no name)", alike.category, kernel, "; ".join(told))


#: Numbers of calls by thread and start, ns from the left border.
_Calls = dict[tuple[str, int], int]


def _in_rows(
    rows: Sequence[_Alike], numbers: Sequence[int], length: int, shift: int, calls: _Calls
) -> list[list[Slice]]:
    """Return the slices of a lane as far as they lie in the step, on rows without overlap."""
    import numpy as np

    starts = np.fromiter(chain.from_iterable(alike.starts for alike in rows), np.int64)
    durations = np.fromiter(chain.from_iterable(alike.durations for alike in rows), np.int64)
    places = np.repeat(np.arange(len(rows)), [*map(_count, rows)])
    order = np.lexsort((places, -durations, starts))
    begins = np.maximum(starts, 0)[order]
    ends = np.minimum(starts + durations, length)[order]
    labels = np.array(numbers, np.int64)[places[order]]
    launched = np.array(
        [*chain.from_iterable(_calls_of(row, shift, calls) for row in rows)], np.int64
    )
    columns = (begins + shift, ends - begins, labels, launched[order])
    slices = [*map(Slice, *(column.tolist() for column in columns))]
    alone = slices and bool((ends[:-1] <= begins[1:]).all())
    return [slices] if alone else _side_by_side(slices)


def _calls_of(alike: _Alike, shift: int, calls: _Calls) -> list[int]:
    """Return the number of the call that launched each slice; -1 if it is not drawn."""
    lane = alike.call_lane
    if lane is None:
        return [-1] * _count(alike)
    return [-1 if at is None else calls.get((lane, at + shift), -1) for at in alike.calls]


def _side_by_side(slices: Sequence[Slice]) -> list[list[Slice]]:
    """Return the minimum number of rows without overlap; outer slices come first."""
    rows: list[list[Slice]] = []
    until: list[int] = []
    for one in slices:
        start, dur = one.start_ns, one.dur_ns
        row = next((at for at, end in enumerate(until) if end <= start), None)
        if row is None:
            rows.append([one])
            until.append(start + dur)
        else:
            rows[row].append(one)
            until[row] = start + dur
    return rows[:_ROWS]


def _metrics(scope: Scope, window: _Window, shift: int) -> Iterator[Lane]:
    """Yield the sampled metrics of a GPU in the step."""
    names = ", ".join(f"{name} / 256" for name in _METRICS)
    sql = f"""
        SELECT end_ns, {names} FROM _metric_samples JOIN _gpus USING (track)
        WHERE report_id = {quote(window.report_id)} AND {same("device", window.device)}
            AND end_ns > {window.start_ns} AND start_ns < {window.end_ns}
        ORDER BY end_ns
    """
    rows = rows_of(scope.con, sql)
    for at, title in enumerate(_METRICS.values(), 1):
        samples = [Sample(row[0] - window.start_ns + shift, row[at]) for row in rows]
        known = tuple(sample for sample in samples if sample.pct is not None)
        if known:
            yield Lane(title, "metric", samples=known)


def _memory(scope: Scope, window: _Window, shift: int) -> Iterator[Lane]:
    """Yield the memory in use on a GPU in the step, as a share of its peak."""
    start, end = window.start_ns, window.end_ns
    sql = f"""
        WITH held AS (
            SELECT
                time_ns, total_bytes AS bytes, max(total_bytes) OVER () AS peak,
                lead(time_ns, 1, {end}) OVER (ORDER BY time_ns) AS until_ns
            FROM (
                SELECT DISTINCT time_ns, total_bytes FROM device_memory
                WHERE report_id = {quote(window.report_id)} AND {same("device", window.device)}
            )
        )
        SELECT least(max(until_ns), {end}), 100 * max(bytes) / any_value(peak), any_value(peak)
        FROM held
        WHERE until_ns > {start} AND time_ns < {end} AND peak > 0
        GROUP BY greatest(until_ns - {start}, 0) * {_SAMPLES} // {max(end - start, 1)}
        ORDER BY 1
    """
    if rows := rows_of(scope.con, sql):
        samples = tuple(Sample(until - start + shift, pct) for until, pct, _ in rows)
        yield Lane(f"Memory (of {format_bytes(rows[0][2])})", "metric", samples=samples)
