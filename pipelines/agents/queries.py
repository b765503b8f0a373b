"""The MCP tools `schema` and `query`: views with their columns, and sandboxed SQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perfpipe.analysis.names import names_in
from perfpipe.database import in_list
from perfpipe.errors import InputError, did_you_mean
from perfpipe.model import public_name
from perfpipe.pipelines.agents.desk import Desk, rows
from perfpipe.pipelines.agents.envelope import Answer, Next, Status
from perfpipe.pipelines.agents.wording import plain, value
from perfpipe.pipelines.commands.schema import relations
from perfpipe.sandbox import readable_sql

#: Tables that are not for agents: the environment of programs.
_WITHHELD = frozenset({"environment"})

#: Longest description in the list, characters: the whole list fits into an answer.
_SHORT = 60

#: Most rows that are counted beyond the returned ones.
_COUNTED = 1_000_000


def schema(name: str | None) -> Answer:
    """Return all views and tables, one line each, or the columns of one of them."""
    known = {one.name: one for one in relations() if one.name not in _WITHHELD}
    if name is None:
        told = [
            {"name": one.name, "kind": one.kind, "doc": plain(one.doc.split(".")[0], _SHORT)}
            for one in sorted(known.values(), key=lambda one: (one.kind != "view", one.name))
        ]
        return Answer({"relations": told}, rows="relations")
    if name not in known:
        raise InputError(f"no table or view '{plain(name, 60)}'{did_you_mean(name, known)}")
    one = known[name]
    columns = [{"name": column, "meaning": doc} for column, doc in one.columns]
    data = {"name": one.name, "kind": one.kind, "doc": one.doc, "columns": columns}
    return Answer(data, rows="columns", next=Next("query", {"sql": f"FROM {one.name}"}))


def query(desk: Desk, sql: str, target: str | None, limit: int) -> Answer:
    """Return the first rows of a query, or the reason why its tables were not collected."""
    reports = desk.select(target).reports if target else None
    with desk.fresh(reports) as session:
        statement = readable_sql(session.con, sql)
        if statement.startswith("EXPLAIN ANALYZE"):
            raise InputError(
                "EXPLAIN ANALYZE is not available to agents, because it names files; use EXPLAIN"
            )
        named = names_in(session.con, statement)
        asked = session.closure([*named])
        if withheld := sorted(name for name in named if public_name(name) in _WITHHELD):
            raise InputError(
                f"{withheld[0]} is not available to agents: it contains environment variables"
            )
        result = session.run_user_sql(sql)
        columns = [plain(str(column[0]), 60) for column in result.description]
        found = result.fetchmany(limit)
        total = len(found)
        while total < _COUNTED and (more := len(result.fetchmany(10_000))):
            total += more
    told = [dict(zip(columns, map(_cell, row), strict=True)) for row in found]
    data = {"columns": columns, "rows": [list(row.values()) for row in told]}
    if found:
        return Answer(data, rows="rows", total=total)
    gaps = _gaps(desk, reports, asked)
    return Answer(
        data,
        Status.ABSTAINED if gaps else Status.ANSWERED,
        f"no rows; not collected: {'; '.join(gaps)}" if gaps else "no rows",
    )


def _cell(found: Any) -> Any:
    return value(found.as_posix() if isinstance(found, Path) else found)


def _gaps(desk: Desk, reports: list[str] | None, asked: list[str]) -> list[str]:
    """Return the tables behind a query that a report lacks, with the reasons."""
    with desk.fresh(reports) as session:
        found = rows(
            session,
            "SELECT table_name, any_value(reason ORDER BY reason) AS reason FROM collection_gaps "
            f"WHERE column_name = '' AND table_name IN {in_list([*map(public_name, asked)])} "
            "GROUP BY table_name ORDER BY table_name LIMIT 5",
        )
    return [f"{row['table_name']}: {plain(row['reason'], 200)}" for row in found]
