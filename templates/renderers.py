"""HTML, Markdown and terminal text of a report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Literal

from perfpipe.viewmodel import Column, Kind, Report, Source, Table, Value
from templates.figures import Drawing
from templates.formats import format_value, header, is_number, shorten
from templates.gallery import FIGURES

if TYPE_CHECKING:
    from jinja2 import Environment
    from rich.console import Console

#: Longest cell in Markdown and on a terminal; HTML shows the whole text on demand.
_LONGEST = 60

#: Longest text of a cell in HTML that is shown as it is; the whole is a hover text.
_BRIEF = 64

#: Rows of a table in Markdown and on a terminal.
_FEW = 10

#: Rows of a table on the first screen of Markdown: it shall fit the comment of a pull request, with
#: all else folded away.
_FIRST_ROWS = 5


def render_html(report: Report) -> str:
    """Return one self-contained page: no request, readable without JavaScript."""
    template = _environment().get_template("report.html.j2")
    return template.render(
        report=report,
        css=_text("report.css"),
        js=_text("report.js"),
        figures=_figures(report),
        glossary=_glossary(report),
    )


@dataclass(frozen=True)
class Entry:
    """A run in an index of runs: `file` is its page, relative to the index."""

    file: str
    run_id: str
    started_at: str
    status: str
    tasks: int
    report: Report


def render_index(entries: Sequence[Entry]) -> str:
    """Return a page that links to the reports of several runs."""
    template = _environment().get_template("index.html.j2")
    return template.render(entries=entries, css=_text("report.css"), js=_text("report.js"))


def _figures(report: Report) -> dict[str, tuple[str, str]]:
    """Return SVG and caption by the title of the table that is drawn."""
    return {
        title: (drawing.svg(f"f{number}"), caption)
        for number, (title, drawing, caption) in enumerate(_drawings(report))
    }


def _drawings(report: Report) -> Iterator[tuple[str, Drawing, str]]:
    """Yield title, drawing and caption of each table that is drawn; KeyError for no such figure."""
    for table in report.tables:
        if table.figure:
            figure = FIGURES[table.figure]
            if drawing := figure.draw(table):
                yield table.title, drawing, figure.caption


def figure_files(report: Report, kind: Literal["svg", "png"]) -> dict[str, bytes]:
    """Return the figures of a report as files, by their names."""
    return {_file_name(title, kind): drawing.file(kind) for title, drawing, _ in _drawings(report)}


def _file_name(title: str, kind: str) -> str:
    return f"{slug(title)}.{kind}"


def slug(title: str) -> str:
    """Return a title as a name of a file or of a part of a page."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _glossary(report: Report) -> list[tuple[str, str]]:
    """Return the titles of columns with their meanings; of several meanings the first."""
    terms: dict[str, str] = {}
    for table in report.tables:
        for column in table.columns:
            if column.doc:
                terms.setdefault(header(column), column.doc)
    return sorted(terms.items(), key=lambda term: term[0].lower())


def render_markdown(
    report: Report, folder: str | None = None, kind: Literal["svg", "png"] = "svg"
) -> str:
    """Return Markdown that fits a pull request; it shows the figure files in `folder`, if any."""
    figures = {}
    if folder is not None:
        figures = {
            title: (f"{folder}/{_file_name(title, kind)}", caption)
            for title, _, caption in _drawings(report)
        }
    template = _environment().get_template("report.md.j2")
    first = [table for table in report.tables if table.headline]
    first.sort(key=lambda table: table.headline)
    others = [table for table in report.tables if table not in first]
    return template.render(
        report=report, first=first, others=others, few=_FIRST_ROWS, many=_FEW, figures=figures
    )


def print_terminal(report: Report, console: Console) -> None:
    """Print the verdict and the head of each table."""
    from rich.markup import escape

    console.print(f"[bold]{escape(report.title)}[/bold]")
    if report.notice:
        console.print(f"[yellow]{escape(report.notice)}[/yellow]")
    console.print(f"[bold]{escape(report.verdict)}[/bold]")
    for fact in report.summary:
        console.print(f"  {escape(fact.name)}: {escape(fact.text)}", highlight=False)
    print_tables(report.tables, console)
    for finding in report.findings[:5]:
        console.print(f"- {escape(finding.claim)}: {escape(finding.evidence)}", highlight=False)
    for warning in report.warnings:
        console.print(f"[yellow]warning:[/yellow] {escape(warning.text)}", highlight=False)


def print_tables(tables: Iterable[Table], console: Console) -> None:
    """Print the head of each table."""
    from rich.markup import escape
    from rich.table import Table as Grid

    for table in tables:
        grid = Grid(title=escape(table.title), title_justify="left", caption=_cut(table, _FEW))
        columns = _shown(table, core=True)
        for column in columns:
            right = is_number(column.kind)
            grid.add_column(escape(header(column)), justify="right" if right else "left")
        at = [table.columns.index(column) for column in columns]
        for row in table.rows[:_FEW]:
            cells = [(row[index], table.columns[index]) for index in at]
            grid.add_row(*(escape(shorten(format_value(v, c.kind), _LONGEST)) for v, c in cells))
        console.print(grid)


def _shown(table: Table, core: bool = False) -> list[Column]:
    """Return the columns that are shown: with a value in any row, and not told by another's hover.

    With `core` only those for where there is little room.
    """
    return [
        column
        for at, column in enumerate(table.columns)
        if not column.hover_of
        and (column.core or not core)
        and any(row[at] is not None for row in table.rows)
    ]


def _without(table: Table) -> list[str]:
    """Return the titles of the columns that have no value in any row."""
    known = {column.name for column in _shown(table)}
    return [c.title for c in table.columns if not c.hover_of and c.name not in known]


def _hover(row: tuple[Value, ...], table: Table, column: Column) -> Value:
    """Return the text that belongs to a cell but has no column of its own."""
    return next(
        (v for v, c in zip(row, table.columns, strict=True) if c.hover_of == column.name), None
    )


def _cut(table: Table, shown: int) -> str:
    shown = min(shown, len(table.rows))
    return f"showing {shown} of {table.total_rows:,}" if table.total_rows > shown else ""


def _keyed(table: Table) -> bool:
    """Say whether rows are of kernels, which the first column names."""
    return table.columns[0].name == "kernel_name"


def _bound(row: tuple[Value, ...], table: Table) -> Value:
    """Return the class by which a script filters a row."""
    cells = zip(row, table.columns, strict=True)
    return next((value for value, column in cells if column.name == "bound"), None)


def _origin(source: Source) -> str:
    """Return where something comes from, as a text to rest the pointer on."""
    few = ", ".join(source.reports[:4])
    more = f" and {len(source.reports) - 4} more" if len(source.reports) > 4 else ""
    return f"Source: {source.view}{' of ' if few else ''}{few}{more}"


def _raw(value: Value, kind: Kind) -> str | None:
    """Return a number as a script reads it; None where its text says as much."""
    if value is None or kind in ("int", "pct", "number", "ms"):
        return None
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@cache
def _text(name: str) -> str:
    return resources.files("templates").joinpath(name).read_text(encoding="utf-8")


def _escapes(name: str | None) -> bool:
    """HTML is escaped by Jinja, Markdown by its own filter."""
    return name is not None and name.endswith(".html.j2")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("templates", ""),
        autoescape=_escapes,  # noqa: S701
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "value": format_value,
        "header": header,
        "hover": _hover,
        "shown": _shown,
        "without": _without,
        "keyed": _keyed,
        "bound": _bound,
        "raw": _raw,
        "slug": slug,
        "brief": lambda text: shorten(text, _BRIEF),
        "origin": _origin,
        "sentence": lambda text: text if text.endswith(".") else f"{text}.",
        "markdown": markdown_text,
        "cell": lambda value, kind: markdown_text(shorten(format_value(value, kind), _LONGEST)),
    }
    environment.tests["numeric"] = is_number
    environment.globals["cut"] = _cut
    return environment


_MARKDOWN = str.maketrans(
    {char: f"\\{char}" for char in "\\`*_{}[]()<>#|~!$"} | {"\n": " ", "\r": " "}
)


def markdown_text(text: str) -> str:
    """Escape a text for Markdown, so that a hostile name stays a name."""
    return "".join(char if char.isprintable() else " " for char in text).translate(_MARKDOWN)
