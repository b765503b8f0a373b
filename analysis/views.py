"""Loads the SQL views: one .sql file per view, documented by its header comment.

Files lie in layer/topic/name.sql, or layer/name.sql; topics sort files and mean nothing else.
A file reads::

    -- What the view is for, in one or more lines.
    -- @materialize
    --
    -- report_id VARCHAR: report
    -- time_pct DOUBLE: share of ..., %
    CREATE VIEW name AS
    SELECT ...

`@materialize` marks a private view whose rows cost much, or are few: it is computed once where
other views read it.  A view whose name begins with `_` is private and documents no columns; what
a public one gives is declared, so that a session without reports of its layer need not plan it.
What it needs is read off the SQL (session.py): stored tables, and views of its own or a
lower layer.  Before CREATE VIEW there may be the block of a finding (finding_files.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from importlib.resources.abc import Traversable

from perfpipe.analysis.finding_files import FindingFile, advice_sql, claims_sql, parse_block
from perfpipe.analysis.metrics import metrics, metrics_view_sql

#: Folders of analysis/sql, lower ones first; `names` reads reports of both profilers.
LAYERS = ("ncu", "serving", "hangs", "snapshot", "names", "nsys", "joined")

#: Those that have no rows without a report of a profiler, a load generator, a hang or an allocator.
PROFILERS = ("ncu", "nsys", "serving", "hangs", "snapshot")

#: Tables of loads on a server.
_OF_LOADS = ("request_loads", "requests", "request_tokens")

_MATERIALIZE = "-- @materialize"
_CREATE = re.compile(r"^CREATE VIEW (\w+) AS$", re.MULTILINE)
_COLUMN = re.compile(r"^-- ([a-z_0-9]+) ([A-Z][^:]*): (.+)$")
_FINDING = re.compile(r"^/\* finding\n(.*?)\n\*/\n", re.MULTILINE | re.DOTALL)
_CONTINUED = re.compile(r"^--   +(.+)$")


@dataclass(frozen=True)
class View:
    """One .sql module: `path` is layer/topic/name.sql.

    `columns` maps names to documentation, `types` names to types of DuckDB; both in order.
    A generated view has no file: its columns come from the metric catalogue.
    """

    name: str
    path: str
    layer: str
    doc: str
    columns: Mapping[str, str]
    types: Mapping[str, str]
    sql: str
    generated: bool = False
    materialize: bool = False
    finding: FindingFile | None = None

    @property
    def public(self) -> bool:
        """Whether the view is part of the public interface."""
        return not self.name.startswith("_")

    @property
    def kept(self) -> bool:
        """Whether it is computed once where it is read again: its rows are few or costly."""
        return self.layer == "ncu" or self.materialize

    @property
    def few(self) -> bool:
        """Whether it is computed once where another view reads it; public views are summaries."""
        return self.kept or self.public

    @cached_property
    def query(self) -> str:
        """The query that follows CREATE VIEW name AS, without the semicolon."""
        return self.sql.partition(" AS\n")[2].rstrip().removesuffix(";")


@cache
def views() -> dict[str, View]:
    """Return every view by name."""
    found = {"kernel_metrics": _metrics_view()}
    for layer in LAYERS:
        for path, file in _sql_files(_sql_root().joinpath(layer), layer):
            view = parse_view(file.read_text(encoding="utf-8"), path)
            found[view.name] = view
    return found | _finding_views([v.finding for v in found.values() if v.finding])


def layer_of(table: str) -> str:
    """Return the layer of a table of the data model: the profiler that it comes from."""
    if table in _OF_LOADS:
        return "serving"
    if table.startswith("snapshot_"):
        return "snapshot"
    if table.startswith(("hang_", "ras_")):
        return "hangs"
    return "ncu" if table.startswith("ncu_") else "nsys"


def parse_view(text: str, path: str) -> View:
    """Parse a .sql module of a path such as layer/topic/name.sql.

    Raises ValueError if it does not follow the form.
    """
    layer, *_, file_name = path.split("/")
    created = _CREATE.search(text)
    if created is None or f"{created[1]}.sql" != file_name:
        raise ValueError(f"{path}: expected CREATE VIEW {file_name[:-4]} AS")
    doc: list[str] = []
    columns: dict[str, str] = {}
    types: dict[str, str] = {}
    last = None
    head = text[: created.start()]
    block = _FINDING.search(head)
    header = _FINDING.sub("", head).splitlines()
    for line in header:
        if (column := _COLUMN.match(line)) and ((doc and doc[-1] == "") or columns):
            last, types[column[1]], columns[column[1]] = column.groups()
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
        types,
        text[created.start() :],
        materialize=_MATERIALIZE in header,
        finding=parse_block(block[1], path, created[1], types) if block else None,
    )


def _metrics_view() -> View:
    keys = {"report_id": "VARCHAR", "launch_id": "BIGINT"}
    columns = {
        "report_id": "report",
        "launch_id": "launch number in report order, from 0",
        **{metric.name: metric.documentation for metric in metrics()},
    }
    doc = (
        "The metrics that the analyses read, by canonical name, one row per launch; NULL if the "
        "report lacks the metric (kernel_gaps shows how to collect it)."
    )
    types = {**dict.fromkeys(columns, "DOUBLE"), **keys}
    sql = metrics_view_sql()
    path = "ncu/kernel_metrics"
    return View("kernel_metrics", path, "ncu", doc, columns, types, sql, generated=True)


def _finding_views(files: list[FindingFile]) -> dict[str, View]:
    """Return the views of what all findings that are files claim, and of what they advise."""
    made = {
        "_own_claims": ("What findings in files of their own claim.", claims_sql(files)),
        "_own_advice": ("The techniques of findings in files of their own.", advice_sql(files)),
    }
    return {
        name: View(
            name, f"joined/{name}", "joined", doc, {}, {}, f"CREATE VIEW {name} AS\n{sql};",
            generated=True,
        )
        for name, (doc, sql) in made.items()
    }  # fmt: skip


def _sql_root() -> Traversable:
    return resources.files("perfpipe.analysis").joinpath("sql")


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
