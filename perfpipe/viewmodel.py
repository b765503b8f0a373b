"""A report as plain data: made by analysis, formatted by templates, printed by --json.

Every figure has its source: a SQL view or table, and the ids of the reports.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from perfpipe.model import SCHEMA_VERSION
from perfpipe.picture import Picture
from perfpipe.visible import show_fields

#: Format of a column; `lines` is text of several lines, the last being the most important,
#: `change` is a difference in %.
Kind = Literal[
    "text",
    "lines",
    "int",
    "pct",
    "change",
    "ns",
    "ms",
    "number",
    "bytes",
    "flops",
    "bandwidth",
    "hz",
]

Value = str | int | float | bool | None


@dataclass(frozen=True)
class Source:
    """The source of values: a view or table, and the reports (or run) read."""

    view: str
    reports: tuple[str, ...]


@dataclass(frozen=True)
class Fact:
    """A statement of a report; `name` is empty if the text needs none."""

    name: str
    text: str
    source: Source


@dataclass(frozen=True)
class Column:
    """A column: `unit` is shown in its header, `doc` is the glossary's text.

    Only `core` columns are shown if space is limited (Markdown, terminal).  A column with
    `hover_of` is the hover text of that column; a column with `link_of` is the file that the cells
    of that column link to in HTML, as a path relative to the page.
    """

    name: str
    title: str
    kind: Kind
    unit: str = ""
    doc: str = ""
    core: bool = True
    hover_of: str = ""
    link_of: str = ""

    @property
    def shown(self) -> bool:
        """Whether it is displayed as a separate column."""
        return not self.hover_of and not self.link_of


@dataclass(frozen=True)
class Table:
    """A table of a report; `total_rows` exceeds the number of rows if it was cut.

    `figure` names its figure, `headline` its place on the first screen if space is limited, or 0.
    With `tree`, its rows are a tree: that column, which is not shown, is the depth of a row, and
    ancestors come before it.  A `folded` table has details: HTML shows it on demand, Markdown and
    the terminal leave it out.  `key` is the key figure beside the heading of a folded table:
    a text with names of columns in braces, for the values of the first row.
    """

    title: str
    doc: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    total_rows: int
    source: Source
    figure: str = ""
    headline: int = 0
    tree: str = ""
    folded: bool = False
    key: str = ""


def columns_in(key: str) -> list[str]:
    """Return the columns that a key figure names.

    >>> columns_in("{steps} steps, median {p50_ns}")
    ['steps', 'p50_ns']
    """
    return re.findall(r"\{(\w+)\}", key)


@dataclass(frozen=True)
class Code:
    """Lines to copy."""

    title: str
    text: str
    source: Source


@dataclass(frozen=True)
class Card:
    """Everything about one kernel, which is `key`; its tables have no notes."""

    key: str
    title: str
    facts: tuple[Fact, ...]
    tables: tuple[Table, ...]
    source: Source


@dataclass(frozen=True)
class Section:
    """A part of a report; `missing` says what to collect if it has neither tables nor cards.

    `note` describes its cards.
    """

    id: str
    title: str
    tables: tuple[Table, ...]
    missing: str
    cards: tuple[Card, ...] = ()
    note: str = ""
    codes: tuple[Code, ...] = ()

    @property
    def filled(self) -> bool:
        """Whether it has tables or cards."""
        return bool(self.tables or self.cards)


@dataclass(frozen=True)
class Finding:
    """One finding: a claim, the numbers behind it, a bound on the gain, the confidence.

    `bound_pct` is None if no bound can be derived; `bound` is the bound in words, with its whole
    and its assumption.  `share_pct` is the affected share of the same whole, None if unknown;
    `share` is this share in words, with its whole, empty if unknown.
    `most_pct` is the maximum saving, even without a bound.  `kernel` is the function name of the
    affected kernel, empty if the finding is about a GPU; `command` shows details.  `setup` is true
    for a kernel that only prepares or checks the work of the program.  `tried` is what a trial of
    the advice gave, empty without one; `tried_pct` is the time that it saved, if it was measured,
    and `helped` whether it saved time and left the results equal.
    """

    claim: str
    evidence: str
    bound_pct: float | None
    bound: str
    confidence: str
    subject: str
    advice: str
    source: Source
    kernel: str = ""
    command: str = ""
    share_pct: float | None = None
    most_pct: float | None = None
    share: str = ""
    setup: bool = False
    tried: str = ""
    tried_pct: float | None = None
    helped: bool = False

    @property
    def gain(self) -> str:
        """What the advice gains: as measured, else at most."""
        return with_bound(self.tried, self.tried_pct, self.bound)


def with_bound(tried: str, tried_pct: float | None, bound: str) -> str:
    """Return what was tried, with the bound on the gain unless a measurement replaces it."""
    parts = (tried, bound if tried_pct is None else "")
    return "; ".join(part for part in parts if part)


@dataclass(frozen=True)
class Recommendation:
    """What to try and how (`detail`), what to check first, and NVIDIA's documentation.

    `gain` is what a trial measured, else an upper bound on the savings with its assumption, which
    is not a promise.
    """

    priority: int
    technique: str
    reason: str
    check_first: str
    gain: str
    difficulty: str
    link: str
    detail: str
    source: Source


@dataclass(frozen=True)
class Tile:
    """A number of the first screen: its name, the number with its unit, and its basis."""

    name: str
    number: str
    note: str
    source: Source


@dataclass(frozen=True)
class Action:
    """What to try first: the evidence in one line, the gain, and a command to run.

    `bound` is the gain that a trial measured, else a bound on it; `saved` is the former as a number
    with its unit, empty if the gain was not measured.
    """

    what: str
    evidence: str
    bound: str
    command: str
    kernel: str
    source: Source
    saved: str = ""


@dataclass(frozen=True)
class Budget:
    """Time of a GPU in the analyzed window by category, with shares in %, largest first."""

    name: str
    shares: tuple[tuple[str, float], ...]
    source: Source


@dataclass(frozen=True)
class Opening:
    """The first screen: what was run, the verdict in one sentence, tiles, budgets, actions.

    `lead` is the title of the table whose figure, or rows if `first_rows`, is shown there; empty if
    the step is drawn.
    """

    subject: Fact
    verdict: Fact
    tiles: tuple[Tile, ...] = ()
    actions: tuple[Action, ...] = ()
    lead: str = ""
    first_rows: int = 0
    budgets: tuple[Budget, ...] = ()


@dataclass(frozen=True)
class Report:
    """A whole report; `notice` says what qualifies all of it, such as a replay of a recording.

    `nothing_found` is the reason if there are no findings; `contents` is the heading of the tables
    of a report that is not about findings.
    """

    title: str
    notice: str | None
    statements: tuple[Fact, ...]
    summary: tuple[Fact, ...]
    sections: tuple[Section, ...]
    findings: tuple[Finding, ...] = ()
    findings_total: int = 0
    nothing_found: str = ""
    recommendations: tuple[Recommendation, ...] = ()
    warnings: tuple[Fact, ...] = ()
    gaps: tuple[Fact, ...] = ()
    provenance: tuple[Fact, ...] = ()
    opening: Opening | None = None
    picture: Picture | None = None
    contents: str = "Tasks"

    def __post_init__(self) -> None:
        # Names come from programs and files of other people.
        show_fields(self)

    @property
    def verdict(self) -> str:
        """The statements as one text."""
        return ". ".join(statement.text.rstrip(".") for statement in self.statements)

    @property
    def headline(self) -> str:
        """The verdict of the first screen, else the statements."""
        return self.opening.verdict.text if self.opening else self.verdict

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables of all sections, in order."""
        return tuple(table for section in self.sections for table in section.tables)

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON data; the view step_slices has the data of the picture."""
        return {"schema_version": SCHEMA_VERSION, **asdict(replace(self, picture=None))}
