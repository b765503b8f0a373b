"""Views of which a session has no data: the same columns and rows as where each is planned."""

from __future__ import annotations

import json
from collections.abc import Callable

import duckdb
import pytest
from conftest import Tiny

from perfpipe.analysis import emptiness, planned
from perfpipe.analysis.session import Session
from perfpipe.analysis.views import views
from perfpipe.database import execute_known
from perfpipe.store import Store


def _columns(con: duckdb.DuckDBPyConnection) -> dict[str, list[tuple[str, str]]]:
    """Return name and type of the columns of all tables and views."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name, column, of in con.execute(
        "SELECT table_name, column_name, data_type FROM duckdb_columns() "
        "WHERE NOT internal ORDER BY table_name, column_index"
    ).fetchall():
        found.setdefault(name, []).append((column, of))
    return found


@pytest.mark.parametrize(
    "names",
    [
        ["ncu/visible.raw.csv"],
        ["nsys/eager_small.sqlite"],
        ["nsys/ddp_comm_rank0.sqlite", "nsys/ddp_comm_rank1.sqlite", "ncu/ops.ncu-rep"],
    ],
)
def test_views_without_rows_have_none_where_they_are_planned(
    captures: Store,
    ingested: Callable[[str], str],
    names: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a profile alone, a timeline alone, and a job with a profile."""
    known = emptiness._shipped()
    assert len(known) > 200, "make docs"
    monkeypatch.setattr(emptiness, "_shipped", dict)
    reports = [ingested(name) for name in names]
    with Session.open(captures, reports, use=views()) as session, duckdb.connect() as bare:
        columns = _columns(session.con)
        empty = {
            name
            for name in columns
            if session.con.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone() is None
        }
        told = {
            view
            for view, of in known.items()
            if any(empty.issuperset(group) for group in of.groups)
        }
        assert told <= empty
        assert told, "nothing was asked"
        for view in told:
            bare.execute(f"CREATE TABLE {view} ({known[view].columns})")
        assert _columns(bare) == {view: columns[view] for view in told}


def test_it_depends_on_no_window(
    captures: Store, ingested: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def spy(con: duckdb.DuckDBPyConnection, sql: str) -> duckdb.DuckDBPyConnection:
        made.append(sql)
        return execute_known(con, sql)

    monkeypatch.setattr("perfpipe.analysis.emptiness.execute_known", spy)
    report = ingested("ncu/visible.raw.csv")
    Session.open(captures, [report], use=["gpu_time_budget"], window="whole").close()
    (sql,) = [sql for sql in made if "gpu_time_budget" in sql.partition("(")[0]]
    assert " AS " not in sql, "it was not planned"


def _groups(con: duckdb.DuckDBPyConnection, query: str) -> list[list[str]]:
    """Return which of the tables a, b and c must have rows for a query to have some."""
    ((_, plan),) = con.execute(f"EXPLAIN (FORMAT json) {query}").fetchall()
    return sorted(sorted(group) for group in planned._groups(json.loads(plan)[0], {}))


@pytest.mark.parametrize(
    ("query", "groups"),
    [
        ("FROM a WHERE x > 1", [["a"]]),
        ("SELECT count(*) FROM a", []),
        ("SELECT x, count(*) FROM a GROUP BY x ORDER BY x", [["a"]]),
        ("FROM a JOIN b USING (x) JOIN c USING (x)", [["a"], ["b"], ["c"]]),
        ("FROM a, b", [["a"], ["b"]]),
        ("FROM a LEFT JOIN b USING (x)", [["a"]]),
        ("FROM a RIGHT JOIN b USING (x)", [["b"]]),
        ("FROM a FULL JOIN b USING (x)", [["a", "b"]]),
        ("FROM a SEMI JOIN b USING (x)", [["a"], ["b"]]),
        ("FROM a ANTI JOIN b USING (x)", [["a"]]),
        ("FROM a WHERE x IN (SELECT x FROM b)", [["a"]]),
        ("FROM a WHERE x NOT IN (SELECT x FROM b)", [["a"]]),
        ("SELECT (SELECT max(x) FROM b WHERE b.y = a.y) FROM a", [["a"]]),
        ("FROM a UNION ALL (FROM b JOIN c USING (x, y))", [["a", "b"], ["a", "c"]]),
        ("SELECT x FROM a UNION ALL SELECT 1", []),
        ("WITH k AS (FROM a), l AS (FROM k, b) FROM l JOIN k USING (x)", [["a"], ["b"]]),
        ("WITH RECURSIVE r AS (SELECT x FROM a UNION ALL SELECT r.x FROM r, b) FROM r", [["a"]]),
        ("SELECT x, row_number() OVER (ORDER BY y), unnest([x, y]) FROM a", [["a"]]),
    ],
)
def test_a_plan_tells_what_must_have_rows(query: str, groups: list[list[str]]) -> None:
    with duckdb.connect() as con:
        for name in "abc":
            con.execute(f"CREATE TABLE {name} (x INTEGER, y INTEGER)")
        con.execute("PRAGMA disable_optimizer")
        assert _groups(con, query) == groups


def test_what_had_no_rows_elsewhere_has_its_own_here() -> None:
    sql = "SELECT count(*), sum(time_ns) FROM gpu_time_budget WHERE time_ns > 0"
    for _ in range(2):
        assert Tiny().rows(sql) == [(0, None)]
        db = Tiny()
        db.add("launches", {"kind": "kernel", "device": 0, "pid": 1, "start_ns": 0, "end_ns": 9})
        assert db.rows(sql) == [(1, 9)]
