"""The content of a report besides its tables: title, summary, warnings, gaps, provenance."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from perfpipe.analysis.report import sharing, tracing
from perfpipe.analysis.report.energy import energy_of
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import rows_of
from perfpipe.analysis.thresholds import thresholds
from perfpipe.database import in_list
from perfpipe.model import public_name
from perfpipe.model import tables as stored_tables
from perfpipe.runrecord import RunRecord
from perfpipe.units import counted, format_ns
from perfpipe.viewmodel import Fact, Source

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Views that are read here.
VIEWS = (
    "job_ranks",
    "_job_ranks",
    "collection_gaps",
    "reports",
    "launches",
    "_totals",
    "_used_gpus",
    "timeline_bottleneck",
    "analysis_windows",
    "step_sources",
    "loops",
    "_program_times",
    "_labels",
    "host_coverage",
    *sharing.VIEWS,
    *tracing.VIEWS,
)

#: Where steps come from, by the sources of `steps`.
_ORIGINS = {
    "step range": "by --step-range",
    "NVTX": "by NVTX ranges",
    "ProfilerStep": "by torch.profiler's steps",
    "period": "by the repeating launch sequence",
}

#: Maximum number of other loops in the text on steps.
_LOOPS = 2

#: Maximum number of notes on verdicts.
_NOTES = 4


def title_of(con: DuckDBPyConnection, chosen: Sequence[str], run: RunRecord | None) -> str:
    """Return the name of the workload, or of the reports."""
    if run is not None:
        return run.workload
    sql = f"SELECT source_name FROM reports WHERE report_id IN {in_list(chosen)} ORDER BY 1"
    names = [str(name) for (name,) in rows_of(con, sql)]
    return names[0] if len(names) == 1 else f"{len(names)} reports"


def notice_of(run: RunRecord | None) -> str | None:
    """Return the sentence that marks every page of a replayed run."""
    recording = run and run.recording
    if not recording:
        return None
    return (
        f"Replayed from a recording: captured on {recording.captured_at} (GPU: {recording.gpu}). "
        "Nothing was measured on this machine."
    )


def gpus_of(con: DuckDBPyConnection, chosen: Sequence[str]) -> list[str]:
    """Return the models of the GPUs that the reports used with their SM counts, common ones first.

    If there are several, with the number of reports that used each model.  A GPU without a name is
    described by its SM count.
    """
    sql = f"""
        SELECT gpu, max(sm_count), count(DISTINCT report_id)
        FROM (
            FROM _used_gpus
            UNION ALL
            SELECT report_id, NULL, sm_count
            FROM reports
            WHERE sm_count > 0 AND report_id NOT IN (SELECT report_id FROM _used_gpus)
        )
        WHERE report_id IN {in_list(chosen)}
        GROUP BY gpu ORDER BY count(DISTINCT report_id) DESC, gpu
    """
    rows = rows_of(con, sql)
    return [
        ", ".join(part for part in (gpu, sms and f"{sms} SMs") if part)
        + (f" ({reports} of {len(chosen)} reports)" if len(rows) > 1 else "")
        for gpu, sms, reports in rows
    ]


def summary_of(scope: Scope) -> list[Fact]:
    """Return the facts on the first screen."""
    con, run, chosen = scope.con, scope.run, scope.reports
    facts: list[Fact] = []

    def add(name: str, text: str, view: str) -> None:
        facts.append(Fact(name, text, Source(view, chosen)))

    if gpus := gpus_of(con, chosen):
        add("GPU" if len(gpus) == 1 else "GPUs", "; ".join(gpus), "reports")
    if run is not None:
        done = sum(task.done for task in run.tasks)
        text = f"{done} of {len(run.tasks)} done"
        facts.append(Fact("Configurations", text, Source("run.json", (run.run_id,))))
        facts += _wall_times(run)
        facts += energy_of(run)
        facts += _left_out(run)
    counted = ", ".join(f"{count} {kind}" for kind, count in sorted(scope.kinds.items()))
    if counted:
        add("Reports", counted, "reports")
    ((launches, profiled, agreed, judged, kernels, traced),) = rows_of(con, "FROM _totals")
    if scope.profiled:
        lasting = f" ({format_ns(profiled)})" if profiled else ""
        add("Profiled launches", f"{launches:,}{lasting}", "ncu_launches")
        if judged:
            add("Verdicts that match NVIDIA's", f"{agreed:,} of {judged:,}", "kernel_bottleneck")
    if scope.timeline:
        lasting = f" ({format_ns(traced)} in total)" if traced else ""
        add("Kernels on the timeline", f"{kernels:,}{lasting}", "kernels")
    facts += _steps(scope)
    facts += sharing.sharing_of(scope)
    facts += tracing.tracing_of(scope)
    return facts


def _steps(scope: Scope) -> Iterator[Fact]:
    """Yield where the steps come from, if there is one timeline."""
    sql = f"""
        SELECT
            w.kind, w.source, w.steps, u.steps, w.left_out, w.why,
            s.period_launches, s.agrees, s.steps,
            w.time_ns, p.program_ns, p.before_ns
        FROM analysis_windows AS w
        LEFT JOIN _program_times AS p USING (report_id)
        LEFT JOIN step_sources AS u
            ON u.report_id = w.report_id AND u.device = w.device AND u.used
            AND u.process_id = w.process_id
        LEFT JOIN step_sources AS s
            ON s.report_id = w.report_id AND s.device = w.device AND s.source = 'period'
            AND s.process_id = w.process_id
        WHERE w.report_id IN {in_list(scope.reports)}
    """
    rows = rows_of(scope.con, sql)
    if len(rows) != 1:
        return
    kind, source, steps, found, left_out, why, period, agrees, repeats, *times = rows[0]
    if kind == "steady":
        are = "is" if steps == 1 else "are"
        text = f"{steps:,} of {found:,} {are} steady, found {_ORIGINS[source]}"
        repeat = counted(period, "launch") if period else ""
        text += f" ({repeat} each)" if source == "period" else ""
        if agrees is not None:
            says = "agrees" if agrees else "differs"
            text += f"; the launch sequence {says} ({repeats:,} iterations of {repeat})"
        if left_out:
            text += f"; excluded: {counted(left_out, 'irregular step')}"
        text += _of_program(*times)
        text += "".join(_others(scope))
        yield Fact("Steps", text, Source("analysis_windows", scope.reports))
    elif why:
        yield Fact("Steps", why, Source("analysis_windows", scope.reports))


def _others(scope: Scope) -> Iterator[str]:
    """Yield other loops that take much of the time."""
    sql = f"""
        SELECT l.launches::BIGINT, l.iterations, l.median_ns,
            100.0 * (l.end_ns - l.start_ns) / nullif(p.end_ns - p.start_ns, 0) AS span_pct
        FROM loops AS l
        JOIN _gpus AS g
            ON g.report_id = l.report_id AND g.device IS NOT DISTINCT FROM l.device
        JOIN _spans AS p USING (track)
        WHERE l.report_id IN {in_list(scope.reports)} AND l.role = 'other'
            AND span_pct >= {thresholds()["timeline.contributor_pct"]}
        ORDER BY span_pct DESC, l.loop LIMIT {_LOOPS}
    """
    for launches, iterations, median_ns, span_pct in rows_of(scope.con, sql):
        yield (
            f"; another loop ({counted(launches, 'launch')}, {format_ns(median_ns)}) repeats "
            f"{iterations:,} times and takes {span_pct:.2g} % of the time from the first to the "
            "last GPU operation"
        )


def _of_program(steps_ns: int, program_ns: float | None, before_ns: int | None) -> str:
    """Return the share of the steps in the program's time, and the time before CUDA."""
    if program_ns is None or before_ns is None:
        return ""
    text = f"; the program ran under nsys for {format_ns(program_ns)}"
    if 100 * before_ns >= thresholds()["timeline.contributor_pct"] * program_ns:
        text += f" ({format_ns(before_ns)} before its first CUDA call)"
    return f"{text}, and the steps take {100 * steps_ns / program_ns:.2g} % of this time"


def _wall_times(run: RunRecord) -> Iterator[Fact]:
    """Yield the wall time of programs that report no times of their own."""
    untimed = [task for task in run.tasks if task.done and not task.times_ms]
    times = sorted(task.wall_s for task in untimed if task.wall_s is not None)
    ended = sorted(task.ended_after_s for task in untimed if task.ended_after_s is not None)
    told = []
    if times:
        low, high = format_ns(times[0] * 1e9), format_ns(times[-1] * 1e9)
        text = low if low == high else f"{low} to {high}"
        text += " from start to end, without a profiler; the time per iteration is unknown"
        told.append(text)
    if ended:
        which = f"{counted(len(ended), 'configuration')} stopped" if times else "unknown: stopped"
        told.append(f"{which} after {format_ns(ended[-1] * 1e9)}, as requested")
    if told:
        yield Fact("Wall time", "; ".join(told), Source("run_tasks", (run.run_id,)))


def _left_out(run: RunRecord) -> Iterator[Fact]:
    """Yield notes on what was collected or skipped, each note once for many configurations."""
    tasks: dict[str, list[str]] = {}
    for task in run.tasks:
        for note in task.notes:
            tasks.setdefault(note, []).append(task.label)
    for note, labels in tasks.items():
        of = f" ({labels[0]}{f' and {len(labels) - 1} more' if labels[1:] else ''})"
        text = f"{note}{of if len(run.tasks) > 1 else ''}"
        yield Fact("Collection", text, Source("run_tasks", (run.run_id,)))


def notes_of(scope: Scope, warnings: Sequence[Fact]) -> Iterator[Fact]:
    """Yield notes on verdicts that are not warnings: one of those that differ only in numbers."""
    sql = f"""
        SELECT DISTINCT unnest(notes) AS note
        FROM timeline_bottleneck WHERE report_id IN {in_list(scope.reports)}
        ORDER BY note
    """
    warned = " ".join(warning.text for warning in warnings)
    forms: dict[str, list[str]] = {}
    for (note,) in rows_of(scope.con, sql):
        if note not in warned:
            forms.setdefault(re.sub(r"[\d.,]*\d", "#", note), []).append(note)
    notes = [
        f"{one} (and {len(others)} similar)" if others else one for one, *others in forms.values()
    ]
    if notes:
        few = [f"{notes[0][0].upper()}{notes[0][1:]}", *notes[1:_NOTES]]
        few += [f"{len(notes) - _NOTES} more in timeline_bottleneck"] if notes[_NOTES:] else []
        yield Fact("Notes", "; ".join(few), Source("timeline_bottleneck", scope.reports))
    yield from _clocks(scope)


def _clocks(scope: Scope) -> Iterator[Fact]:
    """Yield a note on each job whose clocks differ so much that only collectives align them."""
    sql = f"""
        SELECT max(abs(clock_shift_ns)) AS apart_ns, count(*), min(paired)
        FROM job_ranks WHERE report_id IN {in_list(scope.reports)}
        GROUP BY job HAVING apart_ns > threshold('timeline.clock_slack_ns') ORDER BY job
    """
    for apart_ns, ranks, collectives in rows_of(scope.con, sql):
        text = (
            f"the clocks of the {ranks} ranks differ by up to {format_ns(apart_ns)}; their times "
            f"are aligned on the ends of {counted(collectives, 'collective')}"
        )
        yield Fact("Clocks", text, Source("job_ranks", scope.reports))


def warnings_of(scope: Scope) -> list[Fact]:
    """Return the skipped reports, and the warnings of ingest, most frequent first."""
    chosen = scope.reports
    sql = f"""
        SELECT warning, count(*), any_value(source_name ORDER BY source_name)
        FROM (
            SELECT source_name, unnest(warnings) AS warning
            FROM reports WHERE report_id IN {in_list(chosen)}
        )
        GROUP BY warning ORDER BY 2 DESC, 1
    """
    source = Source("reports", chosen)
    return [
        *(
            Fact("", f"report {report_id} cannot be read and is skipped: {fault}", source)
            for report_id, fault in sorted(scope.left_out.items())
        ),
        *(
            Fact("", f"{warning} ({name}{f' and {count - 1} more' if count > 1 else ''})", source)
            for warning, count, name in rows_of(scope.con, sql)
        ),
        *_separate_ranks(scope),
        *_biased_samples(scope),
    ]


def _biased_samples(scope: Scope) -> Iterator[Fact]:
    """Yield a warning about each report whose stacks are not spread evenly over the time."""
    sql = f"""
        SELECT source_name, arg_max((tid, sampled_pct, idle_pct), abs(sampled_pct - idle_pct))
        FROM host_coverage JOIN (SELECT report_id, source_name FROM reports) USING (report_id)
        WHERE is_biased AND report_id IN {in_list(scope.reports)}
        GROUP BY report_id, source_name ORDER BY source_name
    """
    for name, (tid, sampled_pct, idle_pct) in rows_of(scope.con, sql):
        yield Fact(
            "",
            f"the shares of idle time by line of code may be off: {sampled_pct:.0f} % of the "
            f"samples of thread {tid} are from idle time of the GPU, which is {idle_pct:.0f} % of "
            f"the time ({name})",
            Source("host_coverage", scope.reports),
        )


def _separate_ranks(scope: Scope) -> Iterator[Fact]:
    """Yield a warning about ranks whose captures lie together but cannot be compared."""
    sql = f"""
        SELECT
            string_agg(DISTINCT rank::VARCHAR, ', ' ORDER BY rank::VARCHAR),
            count(DISTINCT job),
            max(j.first_ns) - min(j.last_ns),
        FROM (
            SELECT
                r.directory, c.job, c.rank,
                min(r.started_ns + c.start_ns) OVER own AS first_ns,
                max(r.started_ns + c.end_ns) OVER own AS last_ns,
            FROM _job_ranks AS c
            JOIN reports AS r USING (report_id)
            WHERE c.report_id IN {in_list(scope.reports)} AND c.rank_source != 'file order'
            WINDOW own AS (PARTITION BY c.job)
        ) AS j
        GROUP BY directory
        HAVING count(DISTINCT job) > 1 AND count(DISTINCT rank) = count(*)
        ORDER BY directory
    """
    for ranks, jobs, apart_ns in rows_of(scope.con, sql):
        yield Fact(
            "",
            f"ranks {ranks} are in one directory, but form {jobs} jobs and are not compared: their "
            f"communication is up to {format_ns(apart_ns)} apart, and too few collectives end at "
            "matching times to align the clocks; record the same steps on all ranks",
            Source("job_ranks", scope.reports),
        )


def gaps_of(con: DuckDBPyConnection, chosen: Sequence[str]) -> list[Fact]:
    """Return what was not collected, whole tables first."""
    sql = f"""
        SELECT table_name, column_name, reason, count(*)
        FROM collection_gaps WHERE report_id IN {in_list(chosen)}
        GROUP BY table_name, column_name, reason
        ORDER BY column_name != '', table_name, column_name, reason
    """
    known = {public_name(name): table for name, table in stored_tables().items()}
    source = Source("collection_gaps", tuple(chosen))
    found = []
    for table, column, reason, count in rows_of(con, sql):
        what = (
            f"{table}.{column}"
            if column
            else f"{table} ({known[table].doc.split(',')[0].rstrip('.')})"
        )
        several = f" ({count} reports)" if count > 1 else ""
        found.append(Fact(what, f"{reason}{several}", source))
    return found


def provenance_of(
    con: DuckDBPyConnection, chosen: Sequence[str], run: RunRecord | None
) -> list[Fact]:
    """Return the provenance of the run and of each report."""
    facts = []
    if run is not None:
        of_run = Source("run.json", (run.run_id,))
        facts.append(Fact("Run", run.run_id, of_run))
        facts.append(Fact("Collector", run.collector, of_run))
        recording = run.recording
        if recording:
            tools = ", ".join(f"{name} {version}" for name, version in recording.tools.items())
            text = f"{recording.gpu}, {recording.captured_at}, {tools}"
            facts.append(Fact("Recording", text, of_run))
    rules = Source("thresholds.toml", ())
    facts.append(Fact("Rules", f"thresholds version {_thresholds_version()}", rules))
    sql = f"""
        SELECT report_id, kind, format, source_name, tool_version, captured_at, command, sha256
        FROM reports WHERE report_id IN {in_list(chosen)} ORDER BY source_name, report_id
    """
    for report_id, kind, form, name, version, captured, command, sha256 in rows_of(con, sql):
        parts = [
            version if (version or "").startswith(kind) else f"{kind} {version or ''}".strip(),
            form,
            captured,
            command,
            f"sha256 {sha256[:16]}…",
        ]
        source = Source("reports", (report_id,))
        facts.append(Fact(f"{name} ({report_id})", "; ".join(p for p in parts if p), source))
    return facts


def _thresholds_version() -> str:
    return f"{thresholds()['version']:g}"
