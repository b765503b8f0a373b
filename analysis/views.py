"""Loads the SQL views: one .sql file a view, its header comment being its documentation.

A file reads::

    -- What the view is for, in one or more lines.
    --
    -- report_id: report
    -- time_pct: share of ..., %
    CREATE VIEW name AS
    SELECT ...

A view whose name begins with `_` is private and documents no columns.  What it needs is read off
the SQL (analysis.session): it may name stored tables and views of its own or a lower folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from analysis.metrics import metrics, metrics_view_sql

#: Folders of analysis/sql, lower ones first.
LAYERS = ("ncu", "nsys", "joined")

#: Ends the comment of a view that is worth keeping where several others read it.
_ONCE = "Computed once."

_CREATE = re.compile(r"^CREATE VIEW (\w+) AS$", re.MULTILINE)
_COLUMN = re.compile(r"^-- ([a-z_0-9]+): (.+)$")
_CONTINUED = re.compile(r"^--   +(.+)$")


@dataclass(frozen=True)
class View:
    """One .sql module: `path` is layer/name.sql, `columns` maps names to documentation.

    A generated view has no file: its columns come from the metric catalogue.  A costly one says
    so in its comment, which is not part of the documentation.
    """

    name: str
    path: str
    layer: str
    doc: str
    columns: Mapping[str, str]
    sql: str
    generated: bool = False
    costly: bool = False

    @property
    def public(self) -> bool:
        """Whether the view is part of the public interface."""
        return not self.name.startswith("_")

    @property
    def kept(self) -> bool:
        """Whether it is computed once where several views read it: its rows are few or costly."""
        return self.layer == "ncu" or self.costly

    @property
    def query(self) -> str:
        """The query that follows CREATE VIEW name AS, without the semicolon."""
        return self.sql.partition(" AS\n")[2].rstrip().removesuffix(";")


@cache
def views() -> dict[str, View]:
    """Return every view by name."""
    found = {"kernel_metrics": _metrics_view()}
    for layer in LAYERS:
        for file in _sql_files(_sql_root().joinpath(layer)):
            view = parse_view(file.read_text(encoding="utf-8"), layer, file.name)
            found[view.name] = view
    return found


def parse_view(text: str, layer: str, file_name: str) -> View:
    """Parse a .sql module; ValueError when it does not follow the form."""
    created = _CREATE.search(text)
    if created is None or f"{created[1]}.sql" != file_name:
        raise ValueError(f"{layer}/{file_name}: expected CREATE VIEW {file_name[:-4]} AS")
    doc: list[str] = []
    columns: dict[str, str] = {}
    last = None
    for line in text[: created.start()].splitlines():
        if (column := _COLUMN.match(line)) and ((doc and doc[-1] == "") or columns):
            last = column[1]
            columns[last] = column[2]
        elif last and (more := _CONTINUED.match(line)):
            columns[last] += " " + more[1]
        elif line.startswith("--"):
            doc.append(line[2:].strip())
    whole = " ".join(doc).strip()
    described = whole.removesuffix(_ONCE).strip()
    return View(
        created[1],
        f"{layer}/{file_name}",
        layer,
        described,
        columns,
        text[created.start() :],
        costly=whole != described,
    )


def _metrics_view() -> View:
    columns = {
        "report_id": "report",
        "launch_id": "launch, counted from 0 in report order",
        **{metric.name: metric.documentation for metric in metrics()},
    }
    doc = (
        "The metrics that the analyses read, by canonical name, a row a launch; NULL where the "
        "report does not hold the metric (kernel_gaps says what collects it)."
    )
    sql = metrics_view_sql()
    return View("kernel_metrics", "ncu/kernel_metrics", "ncu", doc, columns, sql, generated=True)


def _sql_root() -> Traversable:
    return resources.files("analysis").joinpath("sql")


def _sql_files(folder: Traversable) -> Iterator[Traversable]:
    """Yield the .sql files of a folder and those below it, by name."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _sql_files(entry)
        elif entry.name.endswith(".sql"):
            yield entry
