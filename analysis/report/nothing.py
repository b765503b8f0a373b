"""Why a report has no verdict, or no findings."""

from __future__ import annotations

from perfpipe.analysis.report import untraced
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import rows_of
from perfpipe.analysis.thresholds import thresholds
from perfpipe.database import in_list
from perfpipe.runrecord import DETACH
from perfpipe.units import words
from perfpipe.viewmodel import Fact, Source

#: Views that are read here.
VIEWS = (
    "reports",
    "launches",
    "timeline_bottleneck",
    "gpu_time_budget",
    "_idle_captures",
    "kernel_bottleneck",
    "kernel_sol",
    "_launch_names",
    "_setup_launches",
    *untraced.VIEWS,
)

#: Categories of the time budget that are no findings, in words.
_UNEXPLAINED = {
    "edge": "time before the first operation of a step, or after the last",
    "unattributed": "idle time without a recorded cause",
    "profiler_overhead": "overhead of the profiler",
}


def nothing_of(scope: Scope) -> str:
    """Return why there are no findings."""
    if scope.timeline:
        if why := _without_budget(scope):
            return why
        return _without_contributors(scope)
    if not scope.kinds:
        return "no report was collected"
    if not scope.profiled:
        return "findings need a timeline or profiled kernels"
    return f"no kernel was classified: {_without_sol(scope)}"


def _without_contributors(scope: Scope) -> str:
    """Return why no category of a time budget is a finding."""
    chosen = in_list(scope.reports)
    sql = f"SELECT count(*) > 0 FROM _idle_captures WHERE report_id IN {chosen}"
    ((hardly_used,),) = rows_of(scope.con, sql)
    if hardly_used:
        return "the GPU was hardly used, so that its time budget explains nothing"
    least = thresholds()["timeline.contributor_pct"]
    sql = f"""
        SELECT category, max(share_pct) AS most_pct
        FROM gpu_time_budget
        WHERE report_id IN {chosen} AND category != 'compute'
        GROUP BY category HAVING most_pct >= {least}
        ORDER BY most_pct DESC, category
    """
    if parts := rows_of(scope.con, sql):
        shares = " and ".join(
            f"{_UNEXPLAINED.get(name) or words(name)} takes {pct:.0f} %" for name, pct in parts
        )
        return f"{shares} of the analyzed time, on which there is no advice"
    return f"no category other than compute takes {least:g} % or more of the analyzed time"


def no_verdict(scope: Scope) -> Fact:
    """Return the text that replaces a missing verdict."""
    text = f"No verdict: {_without_sol(scope)}"
    if not scope.kinds:
        text = f"No verdict: {_unprofiled(scope)}"
    elif not scope.profiled:
        text = f"No verdict: {_without_budget(scope) or untraced.why_untraced(scope)}"
    return Fact("", text, Source("reports", scope.reports))


def _without_sol(scope: Scope) -> str:
    """Return why the longest launch has no verdict, and what is known about it.

    Launches of set-up and reference kernels count only if there are no others.
    """
    sql = f"""
        SELECT count(*) OVER (), duration_ns, short_name, explanation
        FROM kernel_bottleneck
        JOIN _launch_names USING (report_id, launch_id)
        JOIN kernel_sol USING (report_id, launch_id)
        LEFT JOIN _setup_launches USING (report_id, launch_id)
        WHERE report_id IN {in_list(scope.reports)}
        ORDER BY setup IS NOT NULL, duration_ns DESC NULLS LAST, report_id, launch_id LIMIT 1
    """
    for launches, duration_ns, name, explanation in rows_of(scope.con, sql):
        longest = "" if duration_ns is None else ", the longest launch"
        if explanation:
            return f"{explanation}{f' ({name}{longest})' if launches > 1 else ''}"
    return "speed-of-light metrics were not collected (ncu --set basic collects them)"


def _without_budget(scope: Scope) -> str:
    """Return why no timeline has a budget; an empty text if one has."""
    chosen = in_list(scope.reports)
    sql = f"""
        SELECT max(missed), (SELECT count(*) FROM launches WHERE report_id IN {chosen})
        FROM reports
        WHERE report_id IN {chosen} AND missed_pct > {thresholds()["timeline.missed_pct"]}
            AND report_id NOT IN (SELECT report_id FROM timeline_bottleneck WHERE bound IS NOT NULL)
    """
    ((missed, operations),) = rows_of(scope.con, sql)
    if not operations:
        return untraced.why_untraced(scope)
    return f"{missed}, so the GPU's busy time is unknown" if missed else ""


def _unprofiled(scope: Scope) -> str:
    """Return why there is no report of a profiler."""
    if scope.run is not None and scope.run.collector == DETACH:
        return "the program was started to be attached to (perfpipe attach makes a run of its own)"
    status = scope.run.status if scope.run is not None else ""
    if status == "interrupted":
        return "the run was interrupted (perfpipe run --resume continues it)"
    if status == "failed":
        return "the program failed, and nothing was profiled"
    return "nothing was profiled (perfpipe run --collector all)"
