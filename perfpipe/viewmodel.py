"""A report as plain data: made by analysis, formatted by templates, printed by --json.

Every figure carries its source: a SQL view or table with the report ids that it was read from.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from perfpipe.model import SCHEMA_VERSION
from perfpipe.picture import Picture
from perfpipe.visible import show_fields

#: How a column is formatted; `lines` is text of several lines, of which the last matters most,
#: `change` a difference in %.
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

    Only `core` columns are shown where space is limited (Markdown, terminal).  One with
    `hover_of` is the hover text of that column; one with `link_of` the file that its cells link to
    in HTML, as a path relative to the page.
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
        """Whether it is a column of its own."""
        return not self.hover_of and not self.link_of


@dataclass(frozen=True)
class Table:
    """A table of a report; `total_rows` exceeds the number of rows if it was cut.

    `figure` names the figure that is drawn of it, `headline` its place on the first screen where
    there is little room; 0 where it has none.  With `tree` its rows are a tree: that column, which
    is not shown, says how many rows each is part of, and those come before it.
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


@dataclass(frozen=True)
class Card:
    """All about one thing: `key` is the kernel that it is about, its tables have no notes."""

    key: str
    title: str
    facts: tuple[Fact, ...]
    tables: tuple[Table, ...]
    source: Source


@dataclass(frozen=True)
class Section:
    """A part of a report; `missing` says what to collect if it has neither tables nor cards.

    `note` says what its cards are of.
    """

    id: str
    title: str
    tables: tuple[Table, ...]
    missing: str
    cards: tuple[Card, ...] = ()
    note: str = ""

    @property
    def filled(self) -> bool:
        """Whether it has tables or cards."""
        return bool(self.tables or self.cards)


@dataclass(frozen=True)
class Finding:
    """One finding: a claim, the numbers behind it, a bound on the gain, the confidence.

    `bound_pct` is None where no bound can be derived; `bound` says it in words, with what it is a
    share of and what it assumes.  `share_pct` is the share that it is about, of the same whole,
    None where that is unknown; `most_pct` is the most that it could save, also with no bound.
    `kernel` is the function name of the kernel that it is about, empty where it is about a GPU;
    `command` shows more about it.
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


@dataclass(frozen=True)
class Recommendation:
    """What to try and how (`detail`), what to check first, and NVIDIA's documentation.

    `gain` is an upper bound on the saving with what it assumes, not a promise.
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
    """A number of the first screen: its name, the number with its unit, and what it rests on."""

    name: str
    number: str
    note: str
    source: Source


@dataclass(frozen=True)
class Action:
    """What to try first: the evidence in a line, a bound on the gain, and a command to paste."""

    what: str
    evidence: str
    bound: str
    command: str
    kernel: str
    source: Source


@dataclass(frozen=True)
class Budget:
    """What a GPU does in the analyzed time: its categories with their shares, %, largest first."""

    name: str
    shares: tuple[tuple[str, float], ...]
    source: Source


@dataclass(frozen=True)
class Opening:
    """The first screen: what was run, the verdict in one sentence, tiles, budgets, actions.

    `lead` is the title of the table whose figure stands there, or its first `first_rows`; empty
    where the step is drawn.
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
    """A whole report; `notice` is set when it was replayed from a recording.

    `nothing_found` is the reason if there are no findings.
    """

    title: str
    notice: str | None
    statements: tuple[Fact, ...]
    summary: tuple[Fact, ...]
    sections: tuple[Section, ...]
    findings: tuple[Finding, ...]
    findings_total: int
    nothing_found: str
    recommendations: tuple[Recommendation, ...]
    warnings: tuple[Fact, ...]
    gaps: tuple[Fact, ...]
    provenance: tuple[Fact, ...]
    opening: Opening | None = None
    picture: Picture | None = None

    def __post_init__(self) -> None:
        # Names come from programs and files of others.
        show_fields(self)

    @property
    def verdict(self) -> str:
        """The statements as one text."""
        return ". ".join(statement.text.rstrip(".") for statement in self.statements)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables of all sections, in order."""
        return tuple(table for section in self.sections for table in section.tables)

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON data; the view step_slices has what the picture shows."""
        return {"schema_version": SCHEMA_VERSION, **asdict(replace(self, picture=None))}
