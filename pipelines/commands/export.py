"""perfpipe export."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import click

from perfpipe.errors import InputError
from perfpipe.pipelines.options import range_option, resolve_store, store_option
from perfpipe.pipelines.writing import written
from perfpipe.windows import WHOLE, WINDOWS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from perfpipe.templates.speedscope import Frame, Profile

_TIMELINE = "FROM _timeline_slices"

#: The chosen part of each report.
_PARTS = """
    parts AS (
        SELECT report_id, min(start_ns) AS from_ns, max(end_ns) AS until_ns
        FROM analysis_windows GROUP BY report_id
    )
"""

#: Slices on the clock of the job, if several ranks of the job are exported.
_ON_CLOCK = """
    SELECT s.* REPLACE (
        s.start_ns + coalesce(c.offset_ns, 0) AS start_ns,
        s.api_start_ns + coalesce(c.offset_ns, 0) AS api_start_ns
    )
    FROM slices AS s LEFT JOIN _clocks AS c USING (report_id)
"""

#: What overlaps the chosen part of a report, and what launched it.
_PART = f"""
    WITH {_PARTS},
    placed AS (
        SELECT s.*, s.start_ns < p.until_ns AND s.start_ns + s.dur_ns >= p.from_ns AS inside
        FROM _timeline_slices AS s JOIN parts AS p USING (report_id)
    )
    SELECT * EXCLUDE (inside) FROM placed
    WHERE inside OR (kind = 'api' AND (report_id, pid, correlation_id) IN (
        SELECT (report_id, pid, correlation_id) FROM placed
        WHERE inside AND api_start_ns IS NOT NULL
    ))
"""


@click.group("export")
def export_command() -> None:
    """Export a timeline for another viewer."""


def _options(default: str) -> Callable[[Any], Any]:
    """Return what adds the arguments and options of an export; `default` is the file to write."""
    added = (
        click.argument("names", nargs=-1, metavar="[RUN|REPORT]..."),
        click.option(
            "--output", "-o", type=click.Path(path_type=Path), default=default,
            show_default=True, help="File to write; compressed if it ends in .gz.",
        ),
        click.option(
            "--window",
            metavar="|".join((*WINDOWS, "STEP")),
            default=WHOLE,
            show_default=True,
            help="Part of the timeline to write.  steady: the steady steps; whole: the whole "
            "capture; startup: start-up and warm-up; STEP: one step, by its name or number.",
        ),
        click.option(
            "--step",
            type=click.IntRange(min=1),
            help="Write only the step with this number in the view 'steps'.",
        ),
        range_option,
        store_option,
    )  # fmt: skip

    def add(command: Any) -> Any:
        for option in reversed(added):
            command = option(command)
        return command

    return add


class _Part(NamedTuple):
    """Reports to export: the list of their ids, and what a name begins with, both as SQL."""

    con: DuckDBPyConnection
    listed: str
    source: str
    whole: bool


@contextmanager
def _chosen(
    use: tuple[str, ...],
    names: tuple[str, ...],
    window: str,
    step: int | None,
    step_range: str | int | None,
    store_path: str | None,
) -> Iterator[_Part]:
    """Open the part of some timelines; raises InputError if none of the reports is one."""
    from perfpipe.analysis.session import Session
    from perfpipe.database import in_list
    from perfpipe.pipelines.selection import chosen

    store = resolve_store(store_path, must_exist=True)
    reports = chosen(store, names).reports
    listed = in_list(reports)
    part = window if step is None else str(step)
    with Session.open(
        store,
        reports,
        use=(*use, "analysis_windows", "reports"),
        step_range=step_range,
        window=part,
    ) as session:
        session.check_window()
        rows = session.con.execute(
            "SELECT count(*), count(DISTINCT source_name) FROM reports "
            f"WHERE kind IN ('nsys', 'torch') AND report_id IN {listed}"
        ).fetchall()
        ((timelines, names_apart),) = rows
        if not timelines:
            raise InputError(
                "no timeline among the selected reports: ncu reports do not contain one"
            )
        named = "source_name" if names_apart == timelines else "source_name || ' ' || report_id"
        source = f"{named} || ' '" if timelines > 1 else "''"
        yield _Part(session.con, listed, source, part == WHOLE)


def _write(output: Path, write: Callable[[TextIO], int]) -> int:
    """Write a file, compressed if its name says so; return what `write` returns."""
    opened = gzip.open if output.suffix == ".gz" else open
    with written(output) as temporary, opened(temporary, "wt", encoding="utf-8") as file:
        return write(file)


@export_command.command("perfetto")
@_options("trace.json.gz")
def perfetto_command(output: Path, **part: Any) -> None:
    """Write a trace for ui.perfetto.dev or chrome://tracing.

    The trace shows each GPU's streams and idle intervals by cause, each thread's CUDA calls, NVTX
    ranges and sampled stacks, and arrows from each call to the operation that it launched.  Reports
    of the ranks of one job are put on the clock of the job, as in the view job_ranks; the command
    and the trace state the offset of each report, and how well the ranks agree.  Other reports
    start at time zero.  With --window or --step, the trace contains everything that overlaps the
    selected time range on any GPU, plus the API calls that launched those operations.

    \b
    perfpipe export perfetto
    perfpipe export perfetto 7a4c --step 5 -o step.json.gz
    perfpipe export perfetto 7a4c --window steady
    perfpipe export perfetto 7a4c 81d2 -o ranks.json.gz
    """
    from perfpipe.pipelines.console import say
    from perfpipe.templates.perfetto import COLUMNS, write_trace

    with _chosen(("_timeline_slices", "_clocks", "_job_ranks"), **part) as chosen:
        clocks = dict(_clocks(chosen))
        columns = ", ".join((chosen.source, *COLUMNS[1:]))
        result = chosen.con.execute(
            f"WITH slices AS ({_TIMELINE if chosen.whole else _PART}) "
            f"SELECT {columns} FROM ({_ON_CLOCK}) "
            "JOIN (SELECT report_id, source_name FROM reports) USING (report_id) "
            f"WHERE report_id IN {chosen.listed} "
            "ORDER BY start_ns, dur_ns DESC, source_name, process, row_name, depth, name"
        )
        count = _write(output, lambda file: write_trace(_rows(result), file, clocks))
    for source, clock in clocks.items():
        say(f"{source.strip()}: {clock}")
    click.echo(f"{output}: {count:,} slices")


def _clocks(part: _Part) -> Iterator[tuple[str, str]]:
    """Yield how the clock of each report was set, by what its names begin with; none for one."""
    if part.source == "''":
        return
    rows = part.con.execute(
        f"""
        WITH firsts AS (SELECT job, arg_min(report_id, rank) AS first FROM _job_ranks GROUP BY job)
        SELECT
            {part.source}, count(job) OVER (PARTITION BY job), report_id = first,
            offset_ns, shift_ns, residual_ns, started_ns
        FROM reports LEFT JOIN _clocks USING (report_id) LEFT JOIN firsts USING (job)
        WHERE kind IN ('nsys', 'torch') AND report_id IN {part.listed}
        ORDER BY job NULLS LAST, offset_ns, report_id
        """
    ).fetchall()
    for source, ranks, *clock in rows:
        yield source, _clock(*clock) if ranks > 1 else "time zero, no other rank of its job"


def _clock(
    first: bool,
    offset_ns: int,
    shift_ns: int | None,
    residual_ns: float | None,
    started_ns: int | None,
) -> str:
    """Return the offset of a report on the clock of its job, and where it comes from."""
    from perfpipe.units import format_ns

    offset = f"{'-' if offset_ns < 0 else '+'}{format_ns(abs(offset_ns))}"
    if first:
        return f"{offset}, the rank that sets the clock of the job"
    if shift_ns is not None and residual_ns is not None:
        return f"{offset}, ends of collectives agree within {format_ns(residual_ns)} (median)"
    if started_ns is None:
        return "offset unknown, no start of the capture and no collective to compare"
    return f"{offset}, from the start of the capture alone; error unknown, no collective to compare"


@export_command.command("speedscope")
@_options("stacks.speedscope.json.gz")
def speedscope_command(output: Path, **part: Any) -> None:
    """Write the sampled stacks of the host for speedscope.app.

    The file has a profile for each GPU and one for each sampled thread.  In the profile of a GPU,
    the weight of a stack is the time for which the GPU was idle; in that of a thread, it is the
    time of the sample.  With --window or --step, only this part of the timeline counts.

    \b
    perfpipe export speedscope
    perfpipe export speedscope 7a4c --window steady -o stacks.speedscope.json
    """
    from perfpipe.templates.speedscope import write_profiles

    use = ("host_samples", "host_stacks", "host_frames", "idle_stacks")
    with _chosen(use, **part) as chosen:
        stacks, frames = _stacks(chosen)
        if not stacks:
            raise InputError(
                "no stacks in the selected reports; record them with nsys profile "
                "--python-sampling=true, and export with nsys export --include-blobs=true"
            )
        profiles = [*_idle_profiles(chosen, stacks, frames), *_thread_profiles(chosen, stacks)]
    count = _write(output, lambda file: write_profiles(profiles, frames, file))
    click.echo(f"{output}: {count:,} profiles")


#: Numbers of the frames of a stack by its report and number, outermost frame first.
_Stacks = Mapping[tuple[str, int], list[int]]


def _stacks(part: _Part) -> tuple[_Stacks, list[Frame]]:
    """Return the stacks of some reports, and their frames, which these number."""
    from perfpipe.templates.speedscope import Frame

    frames = part.con.execute(
        "SELECT report_id, frame_id, function, file, line FROM host_frames "
        f"WHERE report_id IN {part.listed} ORDER BY report_id, frame_id"
    ).fetchall()
    numbers = {row[:2]: number for number, row in enumerate(frames)}
    stacks = part.con.execute(
        "SELECT report_id, stack_id, list(frame_id ORDER BY depth DESC) FROM host_stacks "
        f"WHERE report_id IN {part.listed} GROUP BY report_id, stack_id"
    ).fetchall()
    known = {
        (report, stack): [numbers[report, frame] for frame in own] for report, stack, own in stacks
    }
    return known, [Frame(*row[2:]) for row in frames]


def _idle_profiles(part: _Part, stacks: _Stacks, frames: list[Frame]) -> Iterator[Profile]:
    """Yield a profile of the idle time of each GPU; adds frames for time without a stack."""
    from perfpipe.templates.speedscope import Frame, Profile

    rows = part.con.execute(
        f"SELECT {part.source}, device, report_id, stack_id, worker_stack_id, reason, "
        "sum(time_ns)::BIGINT FROM idle_stacks JOIN (SELECT report_id, source_name FROM reports) "
        f"USING (report_id) WHERE report_id IN {part.listed} GROUP BY ALL "
        "ORDER BY report_id, device, 7 DESC, stack_id, worker_stack_id, reason"
    ).fetchall()
    profiles: dict[tuple[str, int | None], Profile] = {}
    reasons: dict[str, int] = {}
    for source, device, report, stack, worker, reason, ns in rows:
        if reason is not None and reason not in reasons:
            reasons[reason] = len(frames)
            frames.append(Frame(f"[{reason}]"))
        own = [reasons[reason]] if stack is None else stacks[report, stack]
        name = f"{source}GPU {'?' if device is None else device} idle time"
        profile = profiles.setdefault((report, device), Profile(name))
        profile.samples.append(own + stacks.get((report, worker), []))
        profile.weights.append(ns)
    yield from profiles.values()


def _thread_profiles(part: _Part, stacks: _Stacks) -> Iterator[Profile]:
    """Yield a profile of the samples of each thread in the chosen part, in order of time."""
    from perfpipe.templates.speedscope import Profile

    inside = "true" if part.whole else "s.time_ns >= p.from_ns AND s.time_ns < p.until_ns"
    rows = part.con.execute(
        f"WITH {_PARTS} "
        f"SELECT {part.source}, s.pid, s.tid, s.source, s.report_id, s.stack_id, "
        "s.end_ns - s.start_ns FROM host_samples AS s JOIN parts AS p USING (report_id) "
        "JOIN (SELECT report_id, source_name FROM reports) USING (report_id) "
        f"WHERE {inside} AND s.start_ns < s.end_ns AND s.stack_id IS NOT NULL "
        f"AND report_id IN {part.listed} "
        "ORDER BY s.report_id, s.pid, s.tid, s.source, s.time_ns"
    )
    profiles: dict[tuple[Any, ...], Profile] = {}
    for source, pid, tid, origin, report, stack, ns in _rows(rows):
        name = f"{source}Process {pid}, thread {tid} ({origin})"
        profile = profiles.setdefault((report, pid, tid, origin), Profile(name))
        profile.samples.append(stacks[report, stack])
        profile.weights.append(ns)
    yield from profiles.values()


def _rows(result: Any) -> Iterator[tuple[Any, ...]]:
    while rows := result.fetchmany(20_000):
        yield from rows
