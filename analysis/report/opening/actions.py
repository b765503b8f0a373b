"""What to try first: one finding of each technique."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perfpipe.analysis.report.profiled import uncovered
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.thresholds import thresholds
from perfpipe.units import counted
from perfpipe.viewmodel import Action, Finding, with_bound

#: How many there is room for.
MOST = 3


def actions_of(scope: Scope, findings: Sequence[Finding], about: str = "") -> tuple[Action, ...]:
    """Return what to try first: one finding of each technique, slowest configurations first.

    Findings without advice are skipped, such as a kernel close to its limit, and so are findings
    on little of the time, or on little compared with what another finding can save, and findings
    on kernels of profiles that say little about the timelines.

    What a trial has shown to help comes first, largest gain first, and what it has shown not to
    help comes last.  In a sweep, a large share of a short configuration saves less than a small
    share of a long one.  Findings on one configuration keep their order.  If the screen is `about`
    this one, they do not repeat its name.
    """
    times = _times(scope)
    longest = max(times.values(), default=0.0)
    limits = thresholds()
    beside = set(uncovered(scope))
    advised = [
        finding
        for finding in findings
        if finding.advice and not (finding.kernel and beside >= set(finding.source.reports))
    ]
    # Set-up and reference kernels come last, however long they take.
    largest = max(
        (finding.most_pct or 0.0 for finding in advised if not finding.setup), default=0.0
    )
    least = max(limits["finding.small_pct"], limits["finding.beside_share"] * largest)

    def length(finding: Finding) -> float:
        return max((times.get(report, longest) for report in finding.source.reports), default=0)

    def place(finding: Finding) -> tuple[int, float, float]:
        if finding.helped:
            return 0, -(finding.tried_pct or 0.0), 0.0
        return (2 if finding.tried else 1), 0.0, -length(finding)

    made: dict[str, list[Finding]] = {}
    for finding in sorted(advised, key=place):
        if finding.helped or finding.most_pct is None or finding.most_pct >= least:
            made.setdefault(finding.advice, []).append(finding)
    shown = dict([*made.items()][:MOST])
    if about and len({_label(one) for found in shown.values() for one in found}) == 1:
        shown = {what: [*map(_without_label, found)] for what, found in shown.items()}
    return tuple(_action(what, *found) for what, found in shown.items())


def _times(scope: Scope) -> dict[str, float]:
    """Return how long an iteration takes, ms, by report of its configuration."""
    tasks = scope.run.tasks if scope.run is not None else ()
    return {r: task.median_ms for task in tasks if task.median_ms for r in task.reports}


def _action(what: str, finding: Finding, *others: Finding) -> Action:
    more = f" (and {counted(len(others), 'similar finding')})" if others else ""
    if len(others) == 1 and _says(others[0]) != _says(finding):
        more = f"; {others[0].claim}"
    first = finding.evidence.partition("; ")[0]
    evidence = f"{finding.claim}{more}. {first[:1].upper()}{first[1:]}"
    bound = finding.bound.partition(", if ")[0]
    if not bound and finding.share:
        bound = f"{finding.share}, gain unknown"
    bound = with_bound(finding.tried, finding.tried_pct, bound)
    saved = f"{finding.tried_pct:.1f} %" if finding.helped and finding.tried_pct else ""
    return Action(what, evidence, bound, finding.command, finding.kernel, finding.source, saved)


def _says(finding: Finding) -> str:
    """Return the claim without the GPU and the report that it is about."""
    return _without_label(finding).claim.removeprefix(finding.subject.partition(" in ")[0])


def _label(finding: Finding) -> str:
    """Return the configuration or file that a finding is about."""
    return finding.subject.partition(" in ")[2]


def _without_label(finding: Finding) -> Finding:
    return replace(finding, claim=finding.claim.removesuffix(f" ({_label(finding)})"))
