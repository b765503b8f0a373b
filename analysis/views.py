"""Loads the SQL views: one .sql file a view, its header comment being its documentation.

Files lie in layer/topic/name.sql, or layer/name.sql; topics sort files and mean nothing else.
A file reads::

    -- What the view is for, in one or more lines.
    -- @materialize
    --
    -- report_id: report
    -- time_pct: share of ..., %
    CREATE VIEW name AS
    SELECT ...

`@materialize` marks a view whose rows cost much: it is computed once where several views read
it.  A view whose name begins with `_` is private and documents no columns.  Dependencies are read
off the SQL: a view may use stored tables and views of its own or a lower layer.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.catalogue import (
    CATALOGUE_COLUMNS,
    CATALOGUE_DOC,
    install_catalogue,
    metrics,
    metrics_view_sql,
)
from analysis.knowledge import install_knowledge
from analysis.peaks import ARCHITECTURE_DOC, PEAKS_COLUMNS, PEAKS_DOC, install_peaks
from perfpipe.errors import InputError, did_you_mean, os_error_sentence
from perfpipe.query import STEP_RANGE_VARIABLE, comment, quote
from perfpipe.specs import Architecture

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Names a TOML file with thresholds of one's own, in the form of thresholds.toml.
THRESHOLDS_VARIABLE = "PERFPIPE_THRESHOLDS"

#: Folders of analysis/sql, lower ones first.
LAYERS = ("ncu", "nsys", "joined")

#: Windows that a command asks time budgets of, numbered from -1 down; empty in a plain query.
CHOSEN_WINDOWS = (
    "CREATE TABLE _chosen_windows "
    "(track INTEGER, window_id INTEGER, name VARCHAR, start_ns BIGINT, end_ns BIGINT)"
)

_MATERIALIZE = "-- @materialize"
_CREATE = re.compile(r"^CREATE VIEW (\w+) AS$", re.MULTILINE)
_COLUMN = re.compile(r"^-- ([a-z_0-9]+): (.+)$")
_CONTINUED = re.compile(r"^--   +(.+)$")


@dataclass(frozen=True)
class View:
    """One .sql module: `path` is layer/topic/name.sql, `columns` maps names to documentation.

    A generated view has no file: its columns come from the metric catalogue.
    """

    name: str
    path: str
    layer: str
    doc: str
    columns: Mapping[str, str]
    sql: str
    generated: bool = False
    materialize: bool = False

    @property
    def public(self) -> bool:
        """Whether the view is part of the public interface."""
        return not self.name.startswith("_")

    @property
    def kept(self) -> bool:
        """Whether it is computed once where several views read it: its rows are few or costly."""
        return self.layer == "ncu" or self.materialize

    @cached_property
    def mentions(self) -> frozenset[str]:
        """Words of the view's SQL, its own name left out."""
        return _words(self.sql) - {self.name}

    def uses(self, names: set[str]) -> set[str]:
        """Return which of the names the view's SQL mentions."""
        return names & self.mentions


@cache
def views() -> dict[str, View]:
    """Return every view by name, each after those that it uses."""
    found = {"kernel_metrics": _metrics_view()}
    for layer in LAYERS:
        for path, file in _sql_files(_sql_root().joinpath(layer), layer):
            view = parse_view(file.read_text(encoding="utf-8"), path)
            found[view.name] = view
    return dict(_by_dependency(found))


def parse_view(text: str, path: str) -> View:
    """Parse a .sql module of a path such as layer/topic/name.sql.

    Raises ValueError when it does not follow the form.
    """
    layer, *_, file_name = path.split("/")
    created = _CREATE.search(text)
    if created is None or f"{created[1]}.sql" != file_name:
        raise ValueError(f"{path}: expected CREATE VIEW {file_name[:-4]} AS")
    doc: list[str] = []
    columns: dict[str, str] = {}
    last = None
    header = text[: created.start()].splitlines()
    for line in header:
        if (column := _COLUMN.match(line)) and ((doc and doc[-1] == "") or columns):
            last = column[1]
            columns[last] = column[2]
        elif last and (more := _CONTINUED.match(line)):
            columns[last] += " " + more[1]
        elif line.startswith("--") and line != _MATERIALIZE:
            doc.append(line[2:].strip())
    return View(
        created[1],
        path,
        layer,
        " ".join(doc).strip(),
        columns,
        text[created.start() :],
        materialize=_MATERIALIZE in header,
    )


def install(con: DuckDBPyConnection, sql: str | None = None) -> None:
    """Create the macros, the catalogue tables and the views, with their documentation.

    With `sql` only the views that it mentions, and those that they use; what several of these
    read of kernels is then computed once, as a table, where a view would be evaluated anew each
    time that it is named.
    """
    con.execute(threshold_macro())
    _install_name_macros(con)
    for file in ("macros.sql", "timeline_macros.sql"):
        con.execute(_sql_root().joinpath(file).read_text(encoding="utf-8"))
    install_catalogue(con)
    install_peaks(con)
    install_knowledge(con)
    con.execute(CHOSEN_WINDOWS)
    chosen = list(views().values()) if sql is None else _mentioned(sql)
    tables = set() if sql is None else _read_often(chosen, sql)
    for view in chosen:
        kind = "TABLE" if view.name in tables else "VIEW"
        con.execute(view.sql.replace("CREATE VIEW", f"CREATE {kind}", 1))
        # Documentation costs as much as the view; a query sees it in the catalogue only.
        if len(chosen) == len(views()):
            comment(con, kind, view.name, view.doc, dict(view.columns))


def _words(sql: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", sql))


def _read_often(chosen: Sequence[View], sql: str) -> set[str]:
    """Return the views that are worth computing once: several of `chosen`, or of `sql`, read them.

    Who reads a plain view reads what that uses as well.
    """
    words = _words(sql.lower())
    tables: set[str] = set()
    readings: dict[str, int] = {}
    for view in reversed(chosen):
        readers = [other.name for other in chosen if view.name in other.mentions]
        times = sum(1 if name in tables else readings[name] for name in readers)
        readings[view.name] = times + (view.name in words)
        if view.kept and readings[view.name] > 1:
            tables.add(view.name)
    return tables


def _mentioned(sql: str) -> list[View]:
    """Return the views that a text mentions and those that they use, the latter first."""
    known = views()
    words = _words(sql.lower())
    # The catalogue of the database can be asked for any of them.
    if any(word.startswith(("duckdb_", "information_schema")) for word in words):
        return list(known.values())
    wanted = words & known.keys()
    for name in reversed(known):
        if name in wanted:
            wanted |= known[name].uses(set(known))
    return [view for name, view in known.items() if name in wanted]


@cache
def thresholds() -> dict[str, float]:
    """Return the thresholds of all rules by dotted name, such as sol.high_pct.

    A TOML file named by $PERFPIPE_THRESHOLDS overrides some of them.  Raises InputError for a
    file that cannot be read or names what is no threshold.
    """
    text = resources.files("analysis").joinpath("thresholds.toml").read_text(encoding="utf-8")
    known = _flat(tomllib.loads(text))
    path = os.environ.get(THRESHOLDS_VARIABLE)
    if not path:
        return known
    try:
        own = _flat(tomllib.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(os_error_sentence(error, "cannot read thresholds")) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, TypeError, ValueError) as error:
        raise InputError(f"{path}: {error}") from error
    for name in own.keys() - known.keys():
        raise InputError(f"{path}: no threshold '{name}'{did_you_mean(name, known)}")
    return known | own


def _flat(document: dict[str, Any]) -> dict[str, float]:
    flat: dict[str, float] = {}
    for group, values in document.items():
        if isinstance(values, dict):
            flat |= {f"{group}.{name}": float(value) for name, value in values.items()}
        else:
            flat[group] = float(values)
    return flat


def reference_tables() -> list[tuple[str, str, dict[str, str]]]:
    """Return the public tables that come with perfpipe: name, meaning, meaning of each column."""
    peaks = {name: doc for name, (_, doc) in PEAKS_COLUMNS.items()}
    return [
        ("metric_catalogue", CATALOGUE_DOC, CATALOGUE_COLUMNS),
        ("gpu_peaks", PEAKS_DOC, peaks),
        ("gpu_architectures", ARCHITECTURE_DOC, Architecture.documentation()),
    ]


def threshold_macro() -> str:
    """Return the macro threshold(name); constants are folded away, a table would be joined."""
    # Without the type they are DECIMAL, and what is compared with them is cast, value by value.
    cases = " ".join(
        f"WHEN {quote(name)} THEN {value!r}::DOUBLE" for name, value in thresholds().items()
    )
    return f"CREATE MACRO threshold(name) AS CASE name {cases} END"


def _install_name_macros(con: DuckDBPyConnection) -> None:
    """Create the macros that tell names on a timeline apart, from timeline.toml.

    PERFPIPE_STEP_RANGE says what a step is called instead; InputError where it is no expression.
    """
    import duckdb

    text = resources.files("analysis").joinpath("timeline.toml").read_text(encoding="utf-8")
    patterns = tomllib.loads(text)
    if own := os.environ.get(STEP_RANGE_VARIABLE):
        try:
            con.execute("SELECT regexp_matches('', ?)", [own])
        except duckdb.Error as error:
            raise InputError(f"{own}: no regular expression of ranges ({error})") from error
        patterns["step"] = own
    options = {"communication": "i", "synchronising": "", "step": "i", "loading": ""}
    for name, option in options.items():
        con.execute(
            f"CREATE MACRO is_{name}(name) AS "
            f"regexp_matches(name, {quote(patterns[name])}, {quote(option)})"
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


def _sql_files(folder: Traversable, path: str) -> list[tuple[str, Traversable]]:
    """Return the .sql files in and below a folder with their paths, sorted by name."""
    found: list[tuple[str, Traversable]] = []
    for entry in folder.iterdir():
        below = f"{path}/{entry.name}"
        if entry.is_dir():
            found += _sql_files(entry, below)
        elif entry.name.endswith(".sql"):
            found.append((below, entry))
    return sorted(found, key=lambda item: item[1].name)


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
