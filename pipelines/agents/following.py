"""What to ask next: the question that the captures do not answer yet, else more on a finding."""

from __future__ import annotations

from collections.abc import Sequence

from perfpipe.analysis.report import profiled
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.session import Session
from perfpipe.database import in_list, quote, same
from perfpipe.pipelines.agents.desk import Row, rows
from perfpipe.pipelines.agents.envelope import Next
from perfpipe.pipelines.agents.lacking import has_stacks

#: The question about the host for each claim that the code of the program explains.
_OF_HOST = {
    **dict.fromkeys(("launch_overhead", "sync", "readback", "host", "host_loop"), "host"),
    **dict.fromkeys(("transfer", "allocation", "process_starts"), "host"),
    **dict.fromkeys(("engine_host", "engine_flushes"), "host"),
    **dict.fromkeys(("building", "loading"), "loading"),
    "startup": "startup",
}

#: Claims about the code of kernels, which only ncu explains.
_OF_KERNELS = (
    "operator", "single_precision", "few_blocks", "narrow_blocks", "compute", "kernel_gap",
)  # fmt: skip

_OF_RANKS = ("communication", "ranks_wait", "start_skew")


def question_of(session: Session, scope: Scope, row: Row) -> str | None:
    """Return the question that a finding leaves open because something was not captured."""
    if row["claim"] in _OF_HOST:
        return None if has_stacks(session, row["reports"]) else _OF_HOST[row["claim"]]
    if row["claim"] in _OF_RANKS:
        return None if _ranks(session, scope) > 1 else "communication"
    if row["claim"] in _OF_KERNELS and _computes(session, row):
        return None if _is_profiled(scope) else "kernels"
    return None


def after(
    session: Session, scope: Scope, target: str, row: Row, found: Sequence[Row]
) -> Next | None:
    """Return what to ask after the explanation of a finding on a timeline, if anything."""
    if question := question_of(session, scope, row):
        return Next("next_capture", {"target": target, "question": question})
    if row["claim"] in _OF_HOST:
        # The lines are known; what a change of them brings is not.
        return Next("next_capture", {"target": target, "question": "try"})
    kernels = [other for other in found if other["subject"] == "kernel"]
    if kernels and row["claim"] in _OF_KERNELS and _is_profiled(scope):
        return Next("explain", {"target": target, "finding": kernels[0]["rank"]})
    return None


def open_question(session: Session, scope: Scope) -> tuple[str, str]:
    """Return the question to answer next for some reports, and why."""
    if not scope.timeline:
        return "timeline", "there is no timeline: the share of these kernels in a step is unknown"
    for row in rows(session, "FROM findings WHERE subject = 'timeline' ORDER BY rank"):
        if question := question_of(session, scope, row):
            return question, f"finding {row['rank']} ({row['claim']}) leaves it open"
    compute = rows(session, "SELECT 1 FROM _timeline_bounds WHERE bound = 'compute'")
    if compute and not _is_profiled(scope):
        return "kernels", "compute takes most of the time, and its kernels were not profiled"
    return "try", "the captures explain the findings; what their advice brings is not measured"


def _is_profiled(scope: Scope) -> bool:
    """Return whether ncu profiled kernels that take time on the timelines."""
    return scope.profiled and not profiled.uncovered(scope)


def _computes(session: Session, row: Row) -> bool:
    """Return whether compute takes most of the time of a finding's GPU: else ncu says little."""
    found = session.execute(
        f"SELECT bound FROM _timeline_bounds WHERE report_id = {quote(row['reports'][0])} "
        f"AND {same('device', row['device'])}"
    ).fetchall()
    return found == [("compute",)]


def _ranks(session: Session, scope: Scope) -> int:
    reports = in_list(scope.reports)
    ((count,),) = session.execute(
        f"SELECT count(DISTINCT rank) FROM job_ranks WHERE report_id IN {reports}"
    ).fetchall()
    return int(count)
