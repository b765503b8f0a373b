"""Compares two sides, decides, draws a step of either, and writes what was decided."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from perfpipe.analysis.gate.compare.comparison import Pairs, pairs_of
from perfpipe.analysis.gate.compare.explain import Explanation
from perfpipe.analysis.gate.compare.story import Comparison, compare
from perfpipe.analysis.gate.decision import Decision, Endpoint, Verdict, decide, headline
from perfpipe.analysis.gate.limits import Limits, limits_of
from perfpipe.analysis.trying.results import Compared as Results
from perfpipe.calibrationrecord import Calibration
from perfpipe.errors import Inconclusive, Regressed, TaskFailed
from perfpipe.picture import Picture
from perfpipe.pipelines.console import stdout
from perfpipe.pipelines.gate import outputs as texts
from perfpipe.pipelines.gate.calibrate import calibration_of
from perfpipe.pipelines.gate.options import Outputs
from perfpipe.pipelines.gate.results import compared_results
from perfpipe.pipelines.gate.sides import Named, named
from perfpipe.pipelines.options import json_document
from perfpipe.pipelines.writing import write_text
from perfpipe.store import Store
from perfpipe.templates.renderers import render_html
from perfpipe.windows import STEADY

if TYPE_CHECKING:
    from rich.console import Console

from perfpipe.analysis.report.build import PICTURE_VIEWS, picture_of_sides
from perfpipe.analysis.session import Session


@dataclass(frozen=True)
class Compared:
    """Two sides and the decision about them; `confirmed` if fresh runs agree.

    A calibration of the workload on the machine says which changes count.  With `same_work` the
    second side must measure the same work as the first one.  `results` are those that they print.
    The `endpoint` decides.
    """

    before: Named
    after: Named
    confirmed: bool = False
    allow_mixed: bool = False
    calibration: Calibration | None = None
    same_work: bool = False
    results: Results | None = None
    endpoint: Endpoint = Endpoint.TIME

    @cached_property
    def pairs(self) -> Pairs:
        """The measurements of both sides."""
        return pairs_of(
            self.before.side,
            self.after.side,
            allow_mixed=self.allow_mixed,
            same_work=self.same_work,
            limits=self._limits,
        )

    @cached_property
    def comparison(self) -> Comparison:
        """The comparison as tables and sentences."""
        return compare(
            self.before.side, self.after.side, allow_mixed=self.allow_mixed, limits=self._limits
        )

    @cached_property
    def decision(self) -> Decision:
        """The decision."""
        replayed = self.before.replayed or self.after.replayed
        decision = decide(
            self.pairs,
            failed=self.after.failed,
            replayed=replayed,
            confirmed=self.confirmed,
            calibration=self.calibration,
            endpoint=self.endpoint,
        )
        return replace(decision, results=self.results)

    @property
    def _limits(self) -> Limits:
        return limits_of(self.calibration)

    def confirming(self, earlier: Compared) -> Compared:
        """Return the same, confirmed if an earlier comparison also found a regression."""
        return replace(self, confirmed=earlier.decision.verdict == Verdict.REGRESSED)

    def write(
        self, outputs: Outputs, store: Store, step_range: str | int | None, window: str
    ) -> None:
        """Print the decision, or write files; the page shows a step of each side."""
        both = partial(self.both_steps, store, step_range, window)
        write(self.decision, self.comparison, outputs, both)

    def both_steps(self, store: Store, step_range: str | int | None, window: str) -> Picture | None:
        """Return the picture of a step of either side; None if a side has no timeline."""
        return both_steps(store, self.before.reports, self.after.reports, step_range, window)


def compared(
    store: Store,
    before: Sequence[str],
    after: Sequence[str],
    step_range: str | int | None = None,
    window: str = STEADY,
    *,
    allow_mixed: bool = False,
    same_work: bool = False,
    endpoint: str = Endpoint.TIME,
) -> Compared:
    """Compare the sides behind two lists of names; raises InputError if they cannot be compared."""
    old, new = named(store, before, after, step_range=step_range, window=window)
    return Compared(
        old,
        new,
        allow_mixed=allow_mixed,
        calibration=calibration_of(store, new.runs, old.calibration),
        same_work=same_work,
        results=compared_results(store, old.runs, new.runs, "runs of the baseline"),
        endpoint=Endpoint(endpoint),
    )


def raise_for(decision: Decision, *, unknown_too: bool, allow_not_comparable: bool) -> None:
    """Raise the error with the exit code of a decision.

    With `unknown_too` an unknown verdict is an error; with `allow_not_comparable` sides that cannot
    be compared are not.
    """
    if decision.verdict == Verdict.FAILED:
        raise TaskFailed(decision.reason)
    if decision.verdict == Verdict.REGRESSED:
        raise Regressed(f"regressed: {decision.reason}")
    unknown = decision.verdict in (Verdict.INCONCLUSIVE, Verdict.UNREPLICATED) and unknown_too
    apart = decision.verdict == Verdict.NOT_COMPARABLE and not allow_not_comparable
    if unknown or apart:
        raise Inconclusive(f"{decision.verdict}: {decision.reason}")


def write(
    decision: Decision,
    comparison: Comparison,
    outputs: Outputs,
    both: Callable[[], Picture | None] = lambda: None,
) -> None:
    """Print a decision, or write the requested files; - is stdout.

    `both` makes the picture of a step of either side, for the page.
    """
    made: dict[str, Callable[[], str]] = {
        "json": lambda: json_document(**texts.as_data(decision, comparison.why)) + "\n",
        "md": lambda: texts.comment(decision, comparison.why),
        "html": lambda: _page(decision, comparison, both()),
        "junit": lambda: texts.junit(decision),
        "bmf": lambda: texts.bencher(decision),
        "openmetrics": lambda: texts.openmetrics(decision),
    }
    said = False
    for name, make in made.items():
        target = getattr(outputs, name)
        if target == "-":
            click.echo(make(), nl=False)
            said = True
        elif target is not None:
            write_text(Path(target), make())
    if not said:
        _print(decision, comparison.why)


def _page(decision: Decision, comparison: Comparison, both: Picture | None) -> str:
    from perfpipe.analysis.gate.compare.page import page_of

    return render_html(page_of(decision, comparison, both))


#: Smallest width of a column that is folded.
_LEAST = 16


def _print(decision: Decision, why: Explanation) -> None:
    console = stdout()
    console.print(f"{headline(decision)}.", markup=False)
    for note in decision.sentences:
        console.print(note, markup=False)
    if decision.endpoints:
        console.print(f"{decision.basis}.", markup=False)
        console.print()
        _print_table(console, texts.TITLES, texts.rows(decision))
        if note := texts.table_note(decision):
            console.print(note, markup=False)
    print_why(why)


def print_why(why: Explanation) -> None:
    """Print why a time changed, and the differences."""
    console = stdout()
    if why.text:
        console.print(f"\n{why.title}: {why.text}", markup=False)
    if why.rows:
        console.print()
        _print_table(console, texts.WHY_TITLES, texts.why_rows(why))


#: Columns of texts; the first of them in a table is folded if a terminal has no room.
_TEXTS = ("what", "what differs", "kind", "verdict")


def _print_table(console: Console, titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table; the names in it are never cut, since they tell configurations apart."""
    from rich.markup import escape
    from rich.table import Table

    titles, found = texts.filled(titles, [*rows])
    widths = [max(len(row[at]) for row in (titles, *found)) for at in range(len(titles))]
    needed = sum(widths) + 2 * len(widths)
    if console.is_terminal:
        name = next(at for at, title in enumerate(titles) if title in _TEXTS[:2])
        widths[name] = min(widths[name], max(console.width - needed + widths[name], _LEAST))
    else:
        console.width = max(console.width, needed)
    table = Table(box=None, pad_edge=False)
    for title, own in zip(titles, widths, strict=True):
        justify: Literal["left", "right"] = "left" if title in _TEXTS else "right"
        folded = title in _TEXTS[:2]
        table.add_column(title, justify=justify, no_wrap=not folded, overflow="fold", width=own)
    for row in found:
        table.add_row(*map(escape, row))
    console.print(table)


def both_steps(
    store: Store,
    before: Sequence[str],
    after: Sequence[str],
    step_range: str | int | None,
    window: str,
) -> Picture | None:
    """Return the picture of a step before and after; None if a side has no timeline."""
    if not before or not after:
        return None
    reports = {"Before": before, "After": after}
    every = [*before, *after]
    with Session.open(
        store, every, use=PICTURE_VIEWS, step_range=step_range, window=window
    ) as session:
        return picture_of_sides(session.con, reports)
    raise AssertionError("unreachable")
