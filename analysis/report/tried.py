"""What trials measured of the techniques that a report recommends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import rows_of
from perfpipe.analysis.trying.outcomes import Outcome
from perfpipe.database import in_list, quote
from perfpipe.trialrecord import Gained
from perfpipe.units import counted, format_ns, with_article
from perfpipe.viewmodel import Action, Source

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Views that are read here.
VIEWS = ("tried_techniques", "_report_trials", "trials")

#: The lines of a change, as rows.
_LINES = "unnest(string_split(manual, chr(10)))"

#: What was tried, by report and technique.
Tried = Mapping[tuple[str, str], Outcome]


def tried_of(con: DuckDBPyConnection, reports: Sequence[str]) -> Tried:
    """Return what was tried of the techniques of each report."""
    sql = (
        "SELECT report_id, technique, verdict, gain_pct, low_pct, high_pct, results, why, "
        f"results_why FROM tried_techniques WHERE report_id IN {in_list(reports)}"
    )
    return {
        (report, technique): Outcome(verdict, Gained(gain, low, high), results, why, results_why)
        for report, technique, verdict, gain, low, high, results, why, results_why in rows_of(
            con, sql
        )
    }


def outcome(tried: Tried, reports: Iterable[str], technique: str | None) -> Outcome | None:
    """Return what was tried of a technique: None unless the program of every report tried it."""
    found = {tried.get((report, technique or "")) for report in reports}
    return found.pop() if len(found) == 1 else None


def latest(scope: Scope) -> str | None:
    """Return the latest trial of the programs of a report; None without one."""
    sql = (
        f"SELECT trial_id FROM _report_trials WHERE report_id IN {in_list(scope.reports)} "
        "ORDER BY tried_at DESC, trial_id DESC LIMIT 1"
    )
    return next((trial for (trial,) in rows_of(scope.con, sql)), None)


def outcomes_of(scope: Scope, trial: str) -> list[tuple[str, Outcome]]:
    """Return what a trial launched: the stack first, then the levers, largest gain first."""
    rows = rows_of(
        scope.con,
        "SELECT lever, verdict, gain_pct, low_pct, high_pct, results, why, results_why "
        f"FROM trials WHERE trial_id = {quote(trial)} AND launches > 0 "
        "ORDER BY kind = 'stack' DESC, gain_pct DESC NULLS LAST, lever",
    )
    return [
        (lever, Outcome(verdict, Gained(gain, low, high), results, why, results_why))
        for lever, verdict, gain, low, high, results, why, results_why in rows
    ]


def stack_of(scope: Scope) -> list[Action]:
    """Return the levers that help together as what to try first, if the latest trial found some.

    A single lever is the advice of a finding.
    """
    trial = latest(scope)
    if trial is None:
        return []
    condition = f"trial_id = {quote(trial)} AND kind = 'stack'"
    rows = rows_of(
        scope.con,
        "SELECT lever, verdict, gain_pct, low_pct, high_pct, results, results_why, plain_ms, ms, "
        f"unit, launches, gpu FROM trials WHERE {condition} AND contains(lever, ' + ')",
    )
    made = []
    for lever, verdict, gain, low, high, results, why, plain_ms, ms, unit, launches, gpu in rows:
        found = Outcome(verdict, Gained(gain, low, high), results, "", why)
        if found.helps:
            where = f"{counted(launches, 'fresh launch')} on {gpu or 'an unknown GPU'}"
            evidence = f"Measured in {where}, trial {trial}"
            if plain_ms and ms:
                times = f"{format_ns(1e6 * plain_ms)} -> {format_ns(1e6 * ms)}"
                evidence += f": {times} {with_article(unit)}"
            made.append(
                Action(
                    f"Apply what helps together: {lever}",
                    evidence,
                    found.sentence(),
                    f'perfpipe query "SELECT {_LINES} AS change FROM trials WHERE {condition}"',
                    "",
                    Source("trials", (trial,)),
                    f"{gain:.1f} %",
                )
            )
    return made
