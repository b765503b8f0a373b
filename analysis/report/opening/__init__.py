"""The first screen of a report: verdict in a sentence, tiles, what to try first."""

from __future__ import annotations

from collections.abc import Sequence

from perfpipe.analysis.report import facts, tried
from perfpipe.analysis.report.opening import (
    allocator,
    comparisons,
    hangs,
    kernels,
    running,
    searches,
    servers,
    steps,
    sweeps,
)
from perfpipe.analysis.report.opening.actions import MOST, actions_of
from perfpipe.analysis.report.opening.gpus import longest
from perfpipe.analysis.report.opening.parts import Part, lever
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import rows_of
from perfpipe.database import in_list
from perfpipe.runrecord import OBSERVED
from perfpipe.units import counted
from perfpipe.viewmodel import Fact, Finding, Opening, Source

#: Views that are read here.
VIEWS = (
    *servers.VIEWS,
    *allocator.VIEWS,
    *sweeps.VIEWS,
    *steps.VIEWS,
    *kernels.VIEWS,
    *tried.VIEWS,
    *running.VIEWS,
    *hangs.VIEWS,
)

#: Tiles on the first screen; the last of a part's own gives way to the largest lever.
_TILES = 4

_TIMELINES = "SELECT DISTINCT report_id FROM analysis_windows"


def opening_of(
    scope: Scope, findings: Sequence[Finding], otherwise: Fact
) -> tuple[Opening, tuple[str, ...]]:
    """Return the first screen, and the timelines whose steps are drawn.

    `otherwise` is the verdict where there is nothing else to say.

    A search begins with its winner, a hang with the rank that others wait for, a server with its
    latencies, a sweep with how its configurations compare, other reports with a step, else with the
    kernels, else with memory.  A screen about a step is about one configuration, or job: the
    slowest.
    """
    part = running.with_running(scope, _part(scope)) or Part(otherwise)
    concerned = searches.open_of(scope, _concerned(scope, findings, part))
    actions = actions_of(scope, concerned, part.about)
    if scope.compared is None:
        actions = (*searches.next_of(scope), *actions)[:MOST]
    if scope.compared is None:
        actions = (*tried.stack_of(scope), *actions)[:MOST]
    if scope.compared is None and scope.run is None:
        actions = (*actions, *kernels.next_of(scope))[:MOST]
    levers = () if scope.compared is not None else lever(actions)
    tiles = (*part.tiles[: _TILES - 1], *levers, *part.tiles[_TILES - 1 :])[:_TILES]
    budgets = tuple(steps.budgets_of(scope, part.reports))
    subject = _subject(scope, part.about)
    opening = Opening(subject, part.verdict, tiles, actions, part.lead, part.rows, budgets)
    return opening, part.reports or longest(scope)


def _concerned(scope: Scope, findings: Sequence[Finding], part: Part) -> Sequence[Finding]:
    """Return the findings on what the screen is about."""
    if not part.about:
        return findings
    tasks = scope.run.tasks if scope.run is not None else ()
    timelines = {report for (report,) in rows_of(scope.con, _TIMELINES)}
    others = timelines.union(*(task.reports for task in tasks)) - {*part.reports}
    for task in tasks:
        if {*part.reports} & {*task.reports}:
            others -= {*task.reports}
    return [finding for finding in findings if not others >= {*finding.source.reports}]


def _part(scope: Scope) -> Part | None:
    if scope.compared is not None:
        return comparisons.change_of(scope.compared)
    if scope.history is not None:
        return searches.search_of(scope)
    if (hang := hangs.hang_of(scope)) is not None:
        return hang
    if (server := servers.server_of(scope)) is not None:
        return server
    other = sweeps.sweep_of(scope) or steps.steps_of(scope) or kernels.kernels_of(scope)
    return other or allocator.memory_of(scope)


def _subject(scope: Scope, about: str) -> Fact:
    """Return what was run, where and when, in a line, and which part of it the screen is about."""
    run = scope.run
    said = facts.gpus_of(scope.con, scope.reports)[:1]
    captured = run.recording.captured_at if run and run.recording else run and run.started_at
    if captured is None:
        sql = f"SELECT min(captured_at) FROM reports WHERE report_id IN {in_list(scope.reports)}"
        ((captured,),) = rows_of(scope.con, sql)
    said += [str(captured)[:10]] if captured else []
    if about:
        said.append(about)
    elif run is not None and len(run.tasks) > 1:
        done = sum(task.done for task in run.tasks)
        of = "" if done == len(run.tasks) else f"{done} of "
        said.append(of + counted(len(run.tasks), "configuration"))
    elif run is not None and (times := sum(len(task.times_ms) for task in run.tasks)):
        observed = all(task.timing_method == OBSERVED for task in run.tasks)
        said.append(counted(times, "observed step" if observed else "timed iteration"))
    if run is None or len(run.tasks) < 2:
        kinds = [counted(n, f"{kind} report") for kind, n in sorted(scope.kinds.items())]
        said.append(", ".join(kinds)) if kinds else None
    return Fact("", " · ".join(said), Source("reports", scope.reports))
