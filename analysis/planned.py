"""Reads off DuckDB's plans which tables must have rows for a view to have some."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from perfpipe.analysis.emptiness import Emptiness
from perfpipe.analysis.reference import REFERENCE_TABLES
from perfpipe.analysis.session import Session
from perfpipe.analysis.views import views
from perfpipe.catalogue import CATALOGUE
from perfpipe.database import SQL_TYPES, create_table, open_database
from perfpipe.model import tables

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: There are no rows if in one of these groups of tables none has any.
_Groups = frozenset[frozenset[str]]

#: Of operators that always may have rows, and of all that are not looked into.
_NEVER: _Groups = frozenset()

#: Operators that make no rows of none.  Grouping by nothing among other sets would make one, of
#: which a plan says nothing: no view does so.
_OF_ROWS = (
    "PROJECTION FILTER HASH_GROUP_BY WINDOW STREAMING_WINDOW ORDER_BY UNNEST PIVOT INOUT_FUNCTION"
).split()

#: Operators without a side whose rows they need, and joins by the sides that they need.
_EITHER, _FIRST, _SECOND, _BOTH = "INNER SEMI", "LEFT ANTI MARK SINGLE", "RIGHT", "FULL"


def views_without_rows() -> dict[str, Emptiness]:
    """Return when each view has no rows, except those that always have some."""
    with open_database() as con:
        make_stored_tables(con)
        with _Planned(con) as session:
            session.use(*views())
            return session.found
    raise AssertionError("unreachable")


def make_stored_tables(con: DuckDBPyConnection) -> None:
    """Create the tables of a store, without rows."""
    for name, table in tables().items():
        create_table(con, name, [(c.name, SQL_TYPES[c.type], "") for c in table.columns])
    for name, spec in CATALOGUE.items():
        create_table(con, name, spec)


class _Planned(Session):
    """A session whose views are all tables without rows, so that a plan names what a view reads."""

    def __init__(self, con: DuckDBPyConnection) -> None:
        super().__init__(con)
        self.found: dict[str, Emptiness] = {}

    def _make(self, con: DuckDBPyConnection, name: str, kind: str) -> str:
        if name not in views():
            return super()._make(con, name, kind)
        query = self._query(name)
        described = con.execute(f"DESCRIBE {query}").fetchall()
        columns = ", ".join(f'"{column}" {of}' for column, of, *_ in described)
        # The plan as the SQL has it: what the optimizer leaves out may depend on the data.
        con.execute("PRAGMA disable_optimizer")
        ((_, plan),) = con.execute(f"EXPLAIN (FORMAT json) {query}").fetchall()
        con.execute("PRAGMA enable_optimizer")
        if groups := _groups(json.loads(plan)[0], {}):
            ordered = sorted((sorted(group) for group in groups), key=lambda one: (len(one), one))
            self.found[name] = Emptiness(columns, ordered)
        con.execute(f"CREATE TABLE {name} ({columns})")
        return "TABLE"


def _groups(operator: Mapping[str, Any], ctes: Mapping[str, _Groups]) -> _Groups:
    """Return which tables must have rows for an operator of a plan to have some."""
    name, said, below = operator["name"], operator["extra_info"], operator["children"]
    if name == "CTE":
        found = _groups(below[0], ctes)
        return _groups(below[1], {**ctes, said["Table Index"]: found})
    if name == "CTE_SCAN":
        return ctes[said["CTE Index"]]
    if name == "SEQ_SCAN":
        return _of_table(said["Table"].rpartition(".")[2])
    # What a recursion adds follows from its first rows.
    sides = [_groups(one, ctes) for one in (below[:1] if name == "REC_CTE" else below)]
    join = said.get("Join Type", "")
    if name == "CROSS_PRODUCT" or join in _EITHER.split():
        return _least(frozenset().union(*sides))
    if name == "UNION" or join in _BOTH.split():
        return _all(sides)
    if name in (*_OF_ROWS, "REC_CTE") or join in _FIRST.split():
        return sides[0]
    return sides[1] if join == _SECOND else _NEVER


def _of_table(name: str) -> _Groups:
    """Return that a table must have rows itself; those that come with perfpipe do."""
    filled = name in REFERENCE_TABLES and not REFERENCE_TABLES[name].needs
    return _NEVER if filled else frozenset({frozenset({name})})


def _all(sides: list[_Groups]) -> _Groups:
    """Return that none of some sides has rows."""
    found = frozenset({frozenset[str]()})
    for side in sides:
        found = _least(frozenset(one | other for one in found for other in side))
    return found


def _least(groups: _Groups) -> _Groups:
    """Return the groups that contain no other."""
    return frozenset(group for group in groups if not any(other < group for other in groups))
