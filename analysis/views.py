"""Loads the SQL views: one .sql file a view, its header comment being its documentation.

A file reads::

    -- What the view is for, in one or more lines.
    --
    -- report_id: report
    -- time_pct: share of ..., %
    CREATE VIEW name AS
    SELECT ...

A view whose name begins with `_` is private and documents no columns.  Dependencies are read
off the SQL: a view may use stored tables and views of its own or a lower folder.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING

from analysis.catalogue import install_catalogue, metrics, metrics_view_sql
from analysis.knowledge import install_knowledge
from analysis.peaks import install_peaks
from perfpipe.query import comment, quote

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Folders of analysis/sql, lower ones first.
LAYERS = ("ncu", "nsys", "joined")

_CREATE = re.compile(r"^CREATE VIEW (\w+) AS$", re.MULTILINE)
_COLUMN = re.compile(r"^-- ([a-z_0-9]+): (.+)$")
_CONTINUED = re.compile(r"^--   +(.+)$")


@dataclass(frozen=True)
class View:
    """One .sql module: `path` is layer/name.sql, `columns` maps names to documentation.

    A generated view has no file: its columns come from the metric catalogue.
    """

    name: str
    path: str
    layer: str
    doc: str
    columns: Mapping[str, str]
    sql: str
    generated: bool = False

    @property
    def public(self) -> bool:
        """Whether the view is part of the public interface."""
        return not self.name.startswith("_")

    def uses(self, names: set[str]) -> set[str]:
        """Return which of the names the view's SQL mentions."""
        return names & set(re.findall(r"\w+", self.sql)) - {self.name}


@cache
def views() -> dict[str, View]:
    """Return every view by name, each after those that it uses."""
    found = {"kernel_metrics": _metrics_view()}
    for layer in LAYERS:
        for file in _sql_files(_sql_root().joinpath(layer)):
            view = parse_view(file.read_text(encoding="utf-8"), layer, file.name)
            found[view.name] = view
    return dict(_by_dependency(found))


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
    path = f"{layer}/{file_name}"
    return View(created[1], path, layer, " ".join(doc).strip(), columns, text[created.start() :])


def install(con: DuckDBPyConnection) -> None:
    """Create the macros, the catalogue tables and every view, with their documentation."""
    con.execute(_threshold_macro())
    con.execute(_sql_root().joinpath("macros.sql").read_text(encoding="utf-8"))
    install_catalogue(con)
    install_peaks(con)
    install_knowledge(con)
    for view in views().values():
        con.execute(view.sql)
        comment(con, "VIEW", view.name, view.doc, dict(view.columns))


@cache
def thresholds() -> dict[str, float]:
    """Return the thresholds of all rules by dotted name, such as sol.high_pct."""
    text = resources.files("analysis").joinpath("thresholds.toml").read_text(encoding="utf-8")
    flat: dict[str, float] = {}
    for group, values in tomllib.loads(text).items():
        if isinstance(values, dict):
            flat |= {f"{group}.{name}": float(value) for name, value in values.items()}
        else:
            flat[group] = float(values)
    return flat


def _threshold_macro() -> str:
    """A macro over constants is folded away, where a table of them would be joined."""
    cases = " ".join(f"WHEN {quote(name)} THEN {value!r}" for name, value in thresholds().items())
    return f"CREATE MACRO threshold(name) AS CASE name {cases} END"


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


def _sql_files(folder: Traversable) -> list[Traversable]:
    return sorted(
        (file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda f: f.name
    )


def _by_dependency(found: dict[str, View]) -> Iterator[tuple[str, View]]:
    done: set[str] = set()
    names = set(found)

    def visit(name: str, above: tuple[str, ...]) -> Iterator[tuple[str, View]]:
        if name in above:
            raise ValueError(f"views use one another in a circle: {' > '.join((*above, name))}")
        for needed in sorted(found[name].uses(names) - done):
            yield from visit(needed, (*above, name))
        if name not in done:
            done.add(name)
            yield name, found[name]

    for name in found:
        yield from visit(name, ())
