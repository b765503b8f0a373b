"""What SQL that somebody typed may do: read tables and views, and nothing else.

DuckDB locks the connection (no other files, no network, extensions or settings), and the text is
let through only where its own parser finds one query made of what is listed here.  A list of what
is allowed, not of what is not: new versions bring new functions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfpipe.database import quote, sql_error
from perfpipe.errors import InputError
from perfpipe.paths import pattern_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Kinds of queries.  Others insert, delete, or copy to files, within WITH as well.
_QUERIES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})

#: Functions of DuckDB that list tables, columns, types and functions.  Not how views are defined:
#: that names files.
_CATALOG_FUNCTIONS = frozenset(
    "duckdb_tables duckdb_columns duckdb_types duckdb_functions duckdb_schemas duckdb_keywords "
    "pragma_table_info pragma_version".split()
)

#: Table functions that make rows of their arguments, or list what there is.
_TABLE_FUNCTIONS = _CATALOG_FUNCTIONS | frozenset(
    "range generate_series unnest repeat repeat_row json_each json_tree summary".split()
)

#: Schemas, and databases in their place, that tables of a store are in.
_SCHEMAS = frozenset({"", "main", "memory", "temp"})

#: Functions that tell of this process, or change something outside of the query.
_REFUSED_FUNCTIONS = frozenset(
    "getenv current_setting getvariable write_log nextval setval currval setseed "
    "json_execute_serialized_sql sleep_ms current_query".split()
)

#: What a name of a file has and a name of a table has not.
_OF_FILES = frozenset("./\\*?[]:~")

_ONLY = "only SELECT is allowed here"


def lock(con: DuckDBPyConnection, directories: Sequence[Path]) -> None:
    """Let the connection read files below the directories and nothing else, for good."""
    paths = [str(path.resolve()) for path in directories]
    # Also as queries name them, where names have brackets or stars.
    every = dict.fromkeys([*paths, *map(pattern_of, paths)])
    allowed = ", ".join(quote(f"{path}/") for path in every)
    con.execute(f"SET allowed_directories = [{allowed}]")
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")


def readable_sql(con: DuckDBPyConnection, sql: str) -> str:
    """Return the statement to run for a text: one SELECT, or an EXPLAIN of one.

    Raises InputError for anything else.  EXPLAIN ANALYZE runs what it explains, so that is put
    together anew from the query that was looked at.
    """
    start, explained = _parts(sql)
    query = sql if explained is None else explained
    _check_query(con, query)
    return query if explained is None else f"{start} {query}"


def explained_sql(sql: str) -> str | None:
    """Return what an EXPLAIN statement is about, None for any other."""
    return _parts(sql)[1]


def _parts(sql: str) -> tuple[str, str | None]:
    """Return how an EXPLAIN begins, and the rest; None for another statement.

    The words are those of DuckDB's own parser, so that comments and quotes cannot hide any.
    """
    import duckdb

    tokens = duckdb.tokenize(sql)
    starts = [at for at, kind in tokens if kind != duckdb.token_type.comment]
    words = [_word(sql, at) for at in starts[:2]]
    if words[:1] != ["EXPLAIN"]:
        return "", None
    if words[1:] == ["ANALYZE"]:
        at = starts[2] if len(starts) > 2 else len(sql)
        return "EXPLAIN ANALYZE", _from(sql, at)
    at = starts[1] if len(starts) > 1 else len(sql)
    return "EXPLAIN", _from(sql, at)


def _word(sql: str, at: int) -> str:
    text = sql.encode()[at : at + 10].decode(errors="replace").upper()
    return next((word for word in ("EXPLAIN", "ANALYZE") if text.startswith(word)), "")


def _from(sql: str, at: int) -> str:
    # DuckDB counts bytes.
    return sql.encode()[at:].decode()


def _check_query(con: DuckDBPyConnection, sql: str) -> None:
    import duckdb

    try:
        statements = con.extract_statements(sql)
        ((text,),) = con.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    except (duckdb.Error, UnicodeError) as error:
        raise sql_error(error) from error
    if len(statements) != 1:
        raise InputError(f"SQL: one statement is needed, not {len(statements)}")
    tree = json.loads(text)
    if statements[0].type != duckdb.StatementType.SELECT:
        raise InputError(f"SQL: {_ONLY}, not {statements[0].type.name}")
    if tree["error"]:
        raise InputError(f"SQL: {_ONLY} ({tree.get('error_message')})")
    catalog = _catalog(con)
    for node in _nodes(tree):
        if why := _fault(node, catalog):
            raise InputError(f"SQL: {why}")


def _catalog(con: DuckDBPyConnection) -> frozenset[str]:
    """Return the names of DuckDB's own views: what is there, how it is defined, settings."""
    sql = "SELECT lower(view_name) FROM duckdb_views() WHERE internal AND schema_name <> ?"
    # Those of the information schema are found by the name of the schema only.
    return frozenset(name for (name,) in con.execute(sql, ["information_schema"]).fetchall())


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of a parser's tree."""
    todo = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            yield node
            todo += node.values()
        elif isinstance(node, list):
            todo += node


def _fault(node: dict[str, Any], catalog: frozenset[str]) -> str:
    """Return what a part of a query does that is not allowed; empty if it may.

    `catalog` are the views of DuckDB's own.
    """
    kind = node.get("type")
    kind = kind if isinstance(kind, str) else ""
    if kind.endswith("_NODE") and kind not in _QUERIES:
        return f"{_ONLY}, not {kind.removesuffix('_QUERY_NODE').removesuffix('_NODE')}"
    if "info_type" in node:
        return f"{_ONLY}, not {node['info_type']}"
    called = node.get("function_name")
    if isinstance(called, str) and (
        called.lower() in _REFUSED_FUNCTIONS or called.lower().startswith("pg_")
    ):
        return f"the function {called} is not available here"
    if kind == "TABLE_FUNCTION":
        name = str((node.get("function") or {}).get("function_name")).lower()
        if name not in _TABLE_FUNCTIONS:
            return f"the table function {name} is not available here: queries read the store only"
    table = node.get("table_name")
    if kind == "BASE_TABLE" and isinstance(table, str) and _OF_FILES.intersection(table):
        return f"'{table}' is not a table: queries read the store only"
    if kind == "BASE_TABLE" and isinstance(table, str):
        schema, name = str(node.get("schema_name") or "").lower(), table.lower()
        if schema not in _SCHEMAS or name in catalog - _CATALOG_FUNCTIONS:
            listed = "duckdb_tables() and duckdb_columns() list what is there"
            return f"{schema}{'.' if schema else ''}{name} is not available here: {listed}"
    return ""
