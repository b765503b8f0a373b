"""perfpipe export."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from perfpipe.errors import InputError, StoreError, os_error_sentence
from perfpipe.pipelines.options import range_option, resolve_store, store_option
from perfpipe.windows import WHOLE, WINDOWS

_TIMELINE = "FROM _timeline_slices"

#: What overlaps the chosen part of a report, and what launched it.
_PART = """
    WITH parts AS (
        SELECT report_id, min(start_ns) AS from_ns, max(end_ns) AS until_ns
        FROM analysis_windows GROUP BY report_id
    ),
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


@export_command.command("perfetto")
@click.argument("names", nargs=-1, metavar="[RUN|REPORT]...")
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), default="trace.json.gz",
    show_default=True, help="File to write; compressed if it ends in .gz.",
)  # fmt: skip
@click.option(
    "--window",
    metavar="|".join((*WINDOWS, "STEP")),
    default=WHOLE,
    show_default=True,
    help="Part of the timeline to write.  steady: the steady steps; whole: the whole capture; "
    "startup: start-up and warm-up; STEP: one step, by its name or number.",
)
@click.option(
    "--step",
    type=click.IntRange(min=1),
    help="Write only the step with this number in the view 'steps'.",
)
@range_option
@store_option
def perfetto_command(
    names: tuple[str, ...],
    output: Path,
    window: str,
    step: int | None,
    step_range: str | int | None,
    store_path: str | None,
) -> None:
    """Write a trace for ui.perfetto.dev or chrome://tracing.

    The trace shows each GPU's streams and idle intervals by cause, each thread's CUDA calls and
    NVTX ranges, and arrows from each call to the operation that it launched.  If you export several
    reports, each of them starts at time zero.  With --window or --step, the trace contains
    everything that overlaps the selected time range on any GPU, plus the API calls that launched
    those operations.

    \b
    perfpipe export perfetto
    perfpipe export perfetto 7a4c --step 5 -o step.json.gz
    perfpipe export perfetto 7a4c --window steady
    """
    from perfpipe.analysis.session import Session
    from perfpipe.database import in_list
    from perfpipe.files import replacing
    from perfpipe.pipelines.selection import select
    from perfpipe.templates.perfetto import COLUMNS, write_trace

    store = resolve_store(store_path, must_exist=True)
    reports = select(store, names).reports
    listed = in_list(reports)
    chosen = window if step is None else str(step)
    with Session.open(
        store,
        reports,
        use=("_timeline_slices", "analysis_windows", "reports"),
        step_range=step_range,
        window=chosen,
    ) as session:
        con = session.con
        session.check_window()
        timelines = con.execute(
            "SELECT count(*) FROM reports "
            f"WHERE kind IN ('nsys', 'torch') AND report_id IN {listed}"
        ).fetchone()
        source = "source_name || ' '" if timelines != (1,) else "''"
        columns = ", ".join((source, *COLUMNS[1:]))
        result = con.execute(
            f"SELECT {columns} FROM ({_TIMELINE if chosen == WHOLE else _PART}) "
            "JOIN (SELECT report_id, source_name FROM reports) USING (report_id) "
            f"WHERE report_id IN {listed} "
            "ORDER BY start_ns, dur_ns DESC, source_name, process, row_name, name"
        )
        if timelines == (0,):
            raise InputError(
                "no timeline among the selected reports: ncu reports do not contain one"
            )
        opened = gzip.open if output.suffix == ".gz" else open
        try:
            with replacing(output) as temporary, opened(temporary, "wt", encoding="utf-8") as file:
                count = write_trace(_rows(result), file)
        except OSError as error:
            raise StoreError(os_error_sentence(error, "cannot write")) from error
    click.echo(f"{output}: {count:,} slices")


def _rows(result: Any) -> Iterator[tuple[Any, ...]]:
    while rows := result.fetchmany(20_000):
        yield from rows
