"""Declarations of report sections: their tables, columns, and what to collect for them.

A table is a view with some of its columns, or a function that returns finished tables.  Its
declaration has everything a report needs to know: the views to read are taken from it, and
templates draw the figure that `figure` names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar, Protocol

from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import rows_of
from perfpipe.analysis.views import views
from perfpipe.database import in_list, quote
from perfpipe.viewmodel import Card, Code, Column, Kind, Section, Source, Table, columns_in

#: Maximum rows of a table, and of one that lists kernels; a note says what was cut.
SHORT, LONG = 200, 500


@dataclass(frozen=True)
class Col:
    """A column: `name` of the view, or the value of `sql` over the view.

    `unit` is shown in the header.  A `detail` is only shown in HTML and JSON; with `hover_of` it is
    the hover text of that column.  `several` columns are hidden where all rows are of one report.
    `doc` is its meaning, if no view documents it.
    """

    name: str
    title: str
    kind: Kind = "text"
    unit: str = ""
    sql: str = ""
    detail: bool = False
    hover_of: str = ""
    several: bool = False
    doc: str = ""

    def selected(self) -> str:
        """Return the column as an item of SELECT."""
        return f"{self.sql} AS {self.name}" if self.sql else self.name

    def made(self, doc: str) -> Column:
        """Return the column of the view-model, with its documentation."""
        core = not self.detail
        return Column(
            self.name, self.title, self.kind, self.unit, self.doc or doc, core, self.hover_of
        )


#: Statistics of durations, as in nsys's summaries.
DURATIONS = (
    Col("avg_ns", "Mean", "ns"),
    Col("med_ns", "Median", "ns"),
    Col("min_ns", "Min", "ns", detail=True),
    Col("max_ns", "Max", "ns", detail=True),
    Col("stddev_ns", "StdDev", "ns", detail=True),
)

LABEL = Col("label", "Configuration", several=True)

#: The kernel of a launch, and that of a table of kernels by name with its full name on hover.
KERNEL = Col("kernel_name", "Kernel", sql="short_name", doc="short name, as in kernel_names")
NAMED_KERNEL = (
    replace(KERNEL, name="kernel", sql="coalesce(short_name, name)"),
    Col("name", "Full name", detail=True, hover_of="kernel"),
)

#: Columns that identify a launch, and a GPU.
LAUNCH = (KERNEL, Col("launch_id", "Launch", "int"), LABEL)
GPU = (LABEL, Col("device", "GPU", "int"))


class Part(Protocol):
    """A part of a section."""

    @property
    def views(self) -> tuple[str, ...]:
        """The views that it reads."""

    def tables(self, scope: Scope) -> Iterable[Table]:
        """Return its tables, or none if the scope has nothing for it."""


@dataclass(frozen=True)
class TableSpec(ABC):
    """A table of a view: `where` and `order` are SQL over it; without a `limit` all rows are shown.

    `figure` names the figure that templates draw, `headline` its place on the first screen of
    Markdown (0: none).  `told` makes a sentence from the rows, appended to the documentation.
    `tree` is the column that says how many rows a row is part of.  A `folded` table has details.
    `key` is the key figure of its first row, as in Table.
    """

    view: str
    title: str
    columns: tuple[Col, ...]
    _: KW_ONLY
    order: str = ""
    where: str = "true"
    limit: int | None = SHORT
    figure: str = ""
    headline: int = 0
    told: Callable[[Scope, Table], str] | None = None
    tree: str = ""
    folded: bool = False
    key: str = ""

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        if lost := {column.hover_of for column in self.columns if column.hover_of} - {*names}:
            raise ValueError(
                f"{self.title}: hover texts for columns that do not exist: {', '.join(lost)}"
            )
        if lost := {*columns_in(self.key)} - {*names}:
            raise ValueError(f"{self.title}: key figure of no column: {', '.join(lost)}")
        if len(names) != len({*names}):
            raise ValueError(f"{self.title}: duplicate column")

    @property
    def views(self) -> tuple[str, ...]:
        """The views that it reads."""
        return (self.view,)

    @abstractmethod
    def wanted(self, scope: Scope) -> bool:
        """Return whether a scope has anything for it."""

    @abstractmethod
    def sql(self, columns: str, scope: Scope) -> str:
        """Return the query for some columns."""

    def read(self, scope: Scope) -> tuple[str, ...]:
        """Return the ids of the reports or runs behind its rows."""
        return scope.reports

    def shown(self, scope: Scope) -> tuple[Col, ...]:
        """Return the columns to show; those that identify a report only if there are several."""
        return tuple(c for c in self.columns if self.among(scope) > 1 or not c.several)

    def among(self, scope: Scope) -> int:
        """Return how many reports may have rows."""
        return len(scope.reports)

    def tables(self, scope: Scope) -> Iterable[Table]:
        """Yield the table with its first rows, or nothing if it is not wanted."""
        if not self.wanted(scope):
            return
        columns = self.shown(scope)
        sql = self.sql(", ".join(column.selected() for column in columns), scope)
        cut = "" if self.limit is None else f" LIMIT {self.limit + 1}"
        rows = rows_of(scope.con, sql + cut)
        total = len(rows)
        if self.limit is not None and total > self.limit:
            ((total,),) = rows_of(scope.con, f"SELECT count(*) FROM ({sql})")
        docs = {k: v for name in reversed(self.views) for k, v in views()[name].columns.items()}
        table = Table(
            self.title,
            views()[self.view].doc,
            tuple(column.made(docs.get(column.name, "")) for column in columns),
            tuple(rows[: self.limit]),
            total,
            Source(self.view, self.read(scope)),
            self.figure,
            self.headline,
            self.tree,
            self.folded,
            self.key,
        )
        said = self.told(scope, table) if self.told else ""
        yield replace(table, doc=f"{table.doc} {said}".strip())


@dataclass(frozen=True)
class ReportTable(TableSpec):
    """A table of timelines; with `profiled` it also needs profiled kernels.

    If it is of `kernels` by full name, `short_name` is a column.
    """

    _: KW_ONLY
    profiled: bool = False
    kernels: bool = False

    def wanted(self, scope: Scope) -> bool:
        return scope.timeline and (scope.profiled or not self.profiled)

    def sql(self, columns: str, scope: Scope) -> str:
        named = "LEFT JOIN _short_names USING (report_id, name)" if self.kernels else ""
        return f"""
            SELECT {columns} FROM {self.view} JOIN _labels USING (report_id) {named}
            WHERE report_id IN {in_list(scope.reports)} AND {self.where}
            ORDER BY {self.ordered()}
        """

    def ordered(self) -> str:
        """Return the sort order of its rows, as SQL."""
        return self.order

    @property
    def views(self) -> tuple[str, ...]:
        return (self.view, "_labels", *(("_short_names",) if self.kernels else ()))


@dataclass(frozen=True)
class GpuTable(ReportTable):
    """A table of the GPUs of timelines, sorted by configuration and then `order`."""

    def ordered(self) -> str:
        return f"position NULLS LAST, label, report_id, device, {self.order}"


@dataclass(frozen=True)
class KindTable(TableSpec):
    """A table of reports of one `kind`, sorted by configuration and then `order`."""

    kind: ClassVar[str]

    def wanted(self, scope: Scope) -> bool:
        return bool(self.among(scope))

    def among(self, scope: Scope) -> int:
        return scope.kinds.get(self.kind, 0)

    @property
    def views(self) -> tuple[str, ...]:
        return (self.view, "_labels")

    def sql(self, columns: str, scope: Scope) -> str:
        return f"""
            SELECT {columns} FROM {self.view} LEFT JOIN _labels USING (report_id)
            WHERE report_id IN {in_list(scope.reports)} AND {self.where}
            ORDER BY position NULLS LAST, label, report_id, {self.ordered()}
        """

    def ordered(self) -> str:
        """Return the sort order of the rows of a report, as SQL."""
        return self.order


@dataclass(frozen=True)
class JobTable(TableSpec):
    """A table of the jobs whose ranks are in a report together."""

    def wanted(self, scope: Scope) -> bool:
        return scope.timeline

    def sql(self, columns: str, scope: Scope) -> str:
        return f"SELECT {columns} FROM {self.view} WHERE {self.where} ORDER BY {self.order}"


@dataclass(frozen=True)
class LaunchTable(TableSpec):
    """A table of profiled launches, sorted by `first` descending, then by `order`.

    `joined` are additional views, joined by launch.  With `longest` it has only that many kernels,
    each represented by its longest launch.
    """

    _: KW_ONLY
    joined: tuple[str, ...] = ()
    longest: int = 0
    first: str = "duration_ns"

    def wanted(self, scope: Scope) -> bool:
        return scope.profiled

    @property
    def views(self) -> tuple[str, ...]:
        views = (self.view, *self.joined, "kernel_sol", "_labels", "_launch_names")
        return (*dict.fromkeys(views),)

    def sql(self, columns: str, scope: Scope) -> str:
        chosen = in_list(scope.reports)
        joins = " ".join(f"JOIN {view} USING (report_id, launch_id)" for view in self.joined)
        if "kernel_sol" not in (self.view, *self.joined):
            joins += (
                " JOIN (SELECT report_id, launch_id, duration_ns FROM kernel_sol) "
                "USING (report_id, launch_id)"
            )
        order = f", {self.order}" if self.order else ""
        where = self.where
        if self.longest:
            where += f" AND (report_id, launch_id) IN ({_longest(self.longest, chosen)})"
        return f"""
            SELECT {columns}
            FROM {self.view} {joins} JOIN _labels USING (report_id)
            JOIN _launch_names USING (report_id, launch_id)
            WHERE report_id IN {chosen} AND {where}
            ORDER BY {self.first} DESC NULLS LAST, report_id, launch_id{order}
        """


def _longest(count: int, chosen: str) -> str:
    """Return the query of the longest launches, one per kernel."""
    return f"""
        SELECT report_id, launch_id FROM (
            SELECT report_id, launch_id, duration_ns
            FROM kernel_sol
            WHERE report_id IN {chosen}
            QUALIFY row_number() OVER (
                PARTITION BY kernel_name, registers
                ORDER BY duration_ns DESC NULLS LAST, report_id, launch_id
            ) = 1
        )
        ORDER BY duration_ns DESC NULLS LAST, report_id, launch_id LIMIT {count}
    """


@dataclass(frozen=True)
class RunTable(TableSpec):
    """A table of the configurations of a run."""

    def wanted(self, scope: Scope) -> bool:
        return scope.run is not None and bool(scope.run.tasks)

    def read(self, scope: Scope) -> tuple[str, ...]:
        return (scope.run.run_id,) if scope.run else ()

    def sql(self, columns: str, scope: Scope) -> str:
        (run_id,) = self.read(scope)
        return f"""
            SELECT {columns} FROM {self.view}
            WHERE run_id = {quote(run_id)} AND {self.where} ORDER BY {self.order}
        """


@dataclass(frozen=True)
class Given:
    """Tables made by a function, from data that no view has."""

    make: Callable[[Scope], Iterable[Table]]
    views: tuple[str, ...] = ()

    def tables(self, scope: Scope) -> Iterable[Table]:
        """Return the tables of the function."""
        return self.make(scope)


@dataclass(frozen=True)
class Cards:
    """Cards made by a function, from some views; `note` describes them."""

    make: Callable[[Scope], Iterable[Card]]
    views: tuple[str, ...]
    note: str


@dataclass(frozen=True)
class Missing:
    """What a section lacks, and how each tool collects it; `perfpipe` is how with any tool.

    A report of another profiler, such as a torch.profiler trace, does not lead to NVIDIA's: its
    program may run on other hardware, or where they are not installed.
    """

    what: str
    nsys: str = ""
    ncu: str = ""
    torch: str = ""
    perfpipe: str = ""

    def sentence(self, kinds: Mapping[str, int]) -> str:
        """Return what is missing, and how the profilers of these kinds of reports collect it."""
        from_nvidia = not kinds or bool(kinds.keys() & {"nsys", "ncu"})
        ways = [self.perfpipe]
        ways += [self.nsys, self.ncu] if from_nvidia else []
        ways += [self.torch] if from_nvidia or "torch" in kinds else []
        known = ", or ".join(way for way in ways if way)
        return f"{self.what}; {known}" if known else self.what


@dataclass(frozen=True)
class SectionSpec:
    """A section: `missing` is what it lacks if none of its parts has rows.

    `codes` returns lines to copy, from views that its parts read.
    """

    id: str
    title: str
    missing: Missing
    parts: tuple[Part, ...] = ()
    cards: Cards | None = None
    codes: Callable[[Scope], Iterable[Code]] | None = None

    @property
    def views(self) -> tuple[str, ...]:
        """The views that it reads."""
        own = self.cards.views if self.cards else ()
        return (*(view for part in self.parts for view in part.views), *own)

    def section(self, scope: Scope) -> Section:
        """Return the section of a scope, with its non-empty tables."""
        tables = tuple(t for part in self.parts for t in part.tables(scope) if t.rows)
        cards = tuple(self.cards.make(scope)) if self.cards else ()
        kinds = {kind: count for kind, count in scope.kinds.items() if count}
        missing = "" if tables or cards else self.missing.sentence(kinds)
        note = self.cards.note if self.cards and cards else ""
        codes = tuple(self.codes(scope)) if self.codes else ()
        return Section(self.id, self.title, tables, missing, cards, note, codes)
