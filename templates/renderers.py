"""HTML, Markdown and terminal text of a report."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Literal, NamedTuple

from perfpipe.blas import load_numpy
from perfpipe.templates.bars import CATEGORIES, IDLE, part_words
from perfpipe.templates.cells import rows_of
from perfpipe.templates.figures import GREY, Drawing, load_matplotlib
from perfpipe.templates.formats import RAW_UNITS, format_value, header, is_number, shorten
from perfpipe.templates.gallery import FIGURES
from perfpipe.templates.icicle import Icicle
from perfpipe.templates.keys import key_of, section_key
from perfpipe.templates.markdown import markdown_block, markdown_code, markdown_text
from perfpipe.templates.memory_chart import memory_chart
from perfpipe.templates.policy import policy
from perfpipe.templates.step_drawing import step_png, step_svg
from perfpipe.templates.step_picture import categories_of, paint_of, payload
from perfpipe.templates.strip import strip_svg
from perfpipe.units import counted, words
from perfpipe.viewmodel import Column, Report, Source, Table, Value
from perfpipe.visible import visible

if TYPE_CHECKING:
    from jinja2 import Environment
    from rich.console import Console

#: Template of a page.
_PAGE = "report.html.j2"

#: Longest cell in Markdown and on a terminal; HTML has the full text.
_LONGEST = 60

#: Name of the file with the picture of the step.
_STEP = "step"

#: Size of the figure on the first screen, inches.
_WIDE, _LOW = 12.6, 3.4

#: Rows of the table on the first screen of a page, of which the script shows the first ones.
_MOST_FIRST = 100

#: Rows of a table in Markdown and on a terminal.
_FEW = 10

#: Rows of a table on the first screen of Markdown: it shall fit the comment of a pull request, with
#: all else folded away.
_FIRST_ROWS = 5


def render_html(report: Report) -> str:
    """Return one self-contained page: no network requests, readable without JavaScript."""
    template = environment().get_template(_PAGE)
    lead = _lead(report)
    figures = _figures(report, lead.table if lead is not None and lead.svg else None)
    step = _step(report)
    css = text_of("report.css")
    js = "".join(
        text_of(f"{name}.js") for name in ("common", "tree", "icicle", "find", "fit", "report")
    )
    drawings = [
        *(svg for svg, _ in figures.values()),
        lead.svg if lead else "",
        step.svg if step else "",
    ]
    return template.render(
        report=report,
        css=css,
        js=js,
        policy=policy([css], [js, step.js] if step else [js], drawings),
        figures=figures,
        lead=lead,
        step=step,
        glossary=_glossary(report),
    )


def load_ahead() -> None:
    """Start to load the modules of a page in a thread."""
    threading.Thread(target=_load, name="page").start()


def _load() -> None:
    # The error is raised where it can be reported.
    with contextlib.suppress(Exception):
        load_numpy()
        environment().get_template(_PAGE)
        load_matplotlib()


class Step(NamedTuple):
    """The picture of a step: for pages without scripts, and the data for the script.

    `strip` is the whole capture around it.
    """

    svg: str
    data: str
    js: str
    strip: str


def _step(report: Report) -> Step | None:
    picture = report.picture
    if picture is None:
        return None
    js = "".join(text_of(f"{name}.js") for name in ("perfetto", "step"))
    return Step(step_svg(picture, "step"), payload(picture), js, strip_svg(picture))


class Lead(NamedTuple):
    """The table on the first screen, and its figure, if it is drawn."""

    table: Table
    svg: str = ""
    caption: str = ""


def _lead(report: Report) -> Lead | None:
    """Return the leading table of the first screen, drawn at full width; None if the step leads."""
    title = report.opening.lead if report.opening else ""
    for table in report.tables:
        if title and table.title == title:
            drawn_so = table.figure and report.opening and not report.opening.first_rows
            figure = FIGURES[table.figure] if drawn_so else None
            drawn = figure.draw(table) if figure else None
            if figure is None or not isinstance(drawn, Drawing):
                return Lead(table)
            return Lead(
                table,
                replace(drawn, width=_WIDE, height=min(drawn.height, _LOW)).svg("lead"),
                figure.caption,
            )
    return None


def _figures(report: Report, leading: Table | None) -> dict[str, tuple[str, str]]:
    """Return SVG and caption by title of the drawn table, but of the one that leads the page."""
    return {
        title: (drawing.svg(f"f{number}"), caption)
        for number, (title, drawing, caption) in enumerate(_drawings(report))
        if leading is None or title != leading.title
    }


def _drawings(report: Report) -> Iterator[tuple[str, Drawing | Icicle, str]]:
    """Yield title, drawing and caption of each table that is drawn; KeyError for no such figure."""
    for table in report.tables:
        if table.figure:
            figure = FIGURES[table.figure]
            if drawing := figure.draw(table):
                yield table.title, drawing, figure.caption


def figure_files(report: Report, kind: Literal["svg", "png"]) -> dict[str, bytes]:
    """Return the figures of a report as files, by their names."""
    files = {_file_name(title, kind): drawing.file(kind) for title, drawing, _ in _drawings(report)}
    if report.picture is not None:
        drawn = step_svg(report.picture, "file", white=True).encode()
        files[f"{_STEP}.{kind}"] = drawn if kind == "svg" else step_png(report.picture)
    return files


def _file_name(title: str, kind: str) -> str:
    return f"{slug(title)}.{kind}"


def slug(title: str) -> str:
    """Return a title as a file name or page anchor."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _glossary(report: Report) -> list[tuple[str, str]]:
    """Return column titles with their meanings; the first meaning if there are several."""
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
    picture = None
    if folder is not None and report.picture is not None:
        picture = f"{folder}/{_STEP}.{kind}", report.picture.views[0].title
    elif report.opening is not None:
        picture = figures.get(report.opening.lead)
    template = environment().get_template("report.md.j2")
    first = [table for table in report.tables if table.headline]
    first.sort(key=lambda table: table.headline)
    others = [table for table in report.tables if table not in first and not table.folded]
    return template.render(
        report=report,
        first=first,
        others=others,
        few=_FIRST_ROWS,
        many=_FEW,
        figures=figures,
        picture=picture,
    )


def print_terminal(report: Report, console: Console, most: int | None = None) -> None:
    """Print the verdict and the first rows of each table; of at most so many tables."""
    from rich.markup import escape

    console.print(f"[bold]{escape(report.title)}[/bold]")
    if report.notice:
        console.print(f"[yellow]{escape(report.notice)}[/yellow]")
    console.print(f"[bold]{escape(report.verdict)}[/bold]")
    for fact in report.summary:
        console.print(f"  {escape(fact.name)}: {escape(fact.text)}", highlight=False)
    print_tables(report.tables[:most], console)
    if left := len(report.tables[most:]) if most is not None else 0:
        console.print(f"{counted(left, 'more table')} with --html, --md or --json")
    for finding in report.findings[:5]:
        console.print(f"- {escape(finding.claim)}: {escape(finding.evidence)}", highlight=False)
    for warning in report.warnings:
        console.print(f"[yellow]warning:[/yellow] {escape(warning.text)}", highlight=False)


def print_tables(tables: Iterable[Table], console: Console) -> None:
    """Print the first rows of each table, but of those that are folded."""
    from rich.markup import escape
    from rich.table import Table as Grid

    for table in tables:
        if table.folded:
            continue
        grid = Grid(title=escape(table.title), title_justify="left", caption=_cut(table, _FEW))
        columns = _shown(table, core=True)
        for column in columns:
            right = is_number(column.kind)
            grid.add_column(escape(header(column)), justify="right" if right else "left")
        at = [table.columns.index(column) for column in columns]
        for row in table.rows[:_FEW]:
            cells = [(row[index], table.columns[index]) for index in at]
            first, *others = (shorten(format_value(v, c.kind), _LONGEST) for v, c in cells)
            grid.add_row(*map(escape, (_indented(first, row, table), *others)))
        console.print(grid)


def _indented(text: str, row: tuple[Value, ...], table: Table) -> str:
    """Return the first cell of a row, marked by its depth in a tree."""
    return "- " * (_depth(row, table) or 0) + text


def _shown(table: Table, core: bool = False) -> list[Column]:
    """Return the columns to show: with a value in some row, and not in another column's hover text.

    With `core` only those for where there is little room.
    """
    return [
        column
        for at, column in enumerate(table.columns)
        if column.shown
        and column.name != table.tree
        and (column.core if core else not _is_common(table, at))
        and any(row[at] is not None for row in table.rows)
    ]


def _minor(table: Table, column: Column) -> bool:
    """Return whether a column may give way to others: a detail, or a share of 0 in all rows."""
    at = table.columns.index(column)
    return not column.core or (column.kind == "pct" and not any(row[at] for row in table.rows))


def _is_common(table: Table, at: int) -> bool:
    """Return whether a column is the configuration or GPU of several rows, of all the same."""
    return (
        table.columns[at].name in ("label", "device")
        and len(table.rows) > 1
        and len({row[at] for row in table.rows}) == 1
        and table.rows[0][at] is not None
    )


def _common(table: Table) -> str:
    """Return the configuration or GPU of all rows, if no column shows it."""
    common = [(c, table.rows[0][at]) for at, c in enumerate(table.columns) if _is_common(table, at)]
    # A configuration without parameters has no name.
    said = [f"GPU {v}" if c.name == "device" else str(v) for c, v in common if v != "-"]
    return ", ".join(said)


def _without(table: Table) -> list[str]:
    """Return the headers of the columns that have no value in any row."""
    known = {column.name for column in _shown(table)}
    return [
        header(column)
        for at, column in enumerate(table.columns)
        if column.shown and column.name not in (*known, table.tree) and not _is_common(table, at)
    ]


def _cut(table: Table, shown: int) -> str:
    shown = min(shown, len(table.rows))
    return f"showing {shown} of {table.total_rows:,}" if table.total_rows > shown else ""


def _keyed(table: Table) -> bool:
    """Return whether rows are kernels, named by the first column; of a tree the innermost."""
    return table.columns[0].name in ("kernel_name", "kernel")


def _depth(row: tuple[Value, ...], table: Table) -> int | None:
    """Return how many rows a row of a tree is part of; None for one of another table."""
    return next(
        (int(v or 0) for v, c in zip(row, table.columns, strict=True) if c.name == table.tree), None
    )


def _origin(source: Source) -> str:
    """Return the source of a statement or table, as hover text."""
    few = ", ".join(source.reports[:4])
    more = f" and {len(source.reports) - 4} more" if len(source.reports) > 4 else ""
    return f"Source: {source.view}{' of ' if few else ''}{few}{more}"


@cache
def text_of(name: str) -> str:
    """Return the content of a file of this package."""
    return resources.files("perfpipe.templates").joinpath(name).read_text(encoding="utf-8")


def _escapes(name: str | None) -> bool:
    """Return whether Jinja escapes: HTML yes; Markdown has its own filter."""
    return name is not None and name.endswith(".html.j2")


@cache
def environment() -> Environment:
    """Return the environment that renders templates."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("perfpipe.templates", ""),
        autoescape=_escapes,  # noqa: S701
        undefined=StrictUndefined,
        # Texts that are safe already are of another type.
        finalize=lambda value: visible(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "value": format_value,
        "header": header,
        "shown": _shown,
        "rows": rows_of,
        "without": _without,
        "minor": _minor,
        "raw_unit": lambda column: RAW_UNITS.get(column.kind, ""),
        "common": _common,
        "keyed": _keyed,
        "depth": _depth,
        "slug": slug,
        "origin": _origin,
        "sentence": lambda text: text if text.endswith(".") else f"{text}.",
        "markdown": markdown_text,
        "code": markdown_code,
        "fenced": markdown_block,
        "colour": lambda name: CATEGORIES.get(name, GREY),
        "idle": lambda name: "idle" if name in IDLE else "",
        "words": words,
        "key": key_of,
        "memory_chart": memory_chart,
        "section_key": section_key,
        "part": part_words,
        "categories": categories_of,
        "paint": paint_of,
        "cell": lambda value, kind: markdown_text(shorten(format_value(value, kind), _LONGEST)),
    }
    made.tests["numeric"] = is_number
    made.globals |= {"cut": _cut, "counted": counted, "most_first": _MOST_FIRST}
    return made
