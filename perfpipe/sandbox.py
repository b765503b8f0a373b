"""Restricts user SQL to reading tables and views.

DuckDB locks the connection (no other files, no network, extensions or settings).  A text is run
only if DuckDB's parser finds a single query that uses only the listed features.  This is an
allow-list, since new DuckDB versions add functions.
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

#: Allowed kinds of queries.  Others insert, delete, or copy to files, also within WITH.
_QUERIES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})

#: Functions of DuckDB that list tables, columns, types and functions, but not view definitions,
#: which contain file names.
_CATALOG_FUNCTIONS = frozenset(
    "duckdb_tables duckdb_columns duckdb_types duckdb_functions duckdb_schemas duckdb_keywords "
    "pragma_table_info pragma_version".split()
)

#: Table functions that create rows from their arguments.
_TABLE_FUNCTIONS = _CATALOG_FUNCTIONS | frozenset(
    "range generate_series unnest repeat repeat_row json_each json_tree summary".split()
)

#: Schemas, or databases instead, that contain tables of a store.
_SCHEMAS = frozenset({"", "main", "memory", "temp"})

#: Functions that reveal facts about this process, or change something outside of the query.
_REFUSED_FUNCTIONS = frozenset(
    "getenv current_setting getvariable write_log nextval setval currval setseed "
    "json_execute_serialized_sql sleep_ms current_query".split()
)

#: Characters of file names that table names do not have.
_OF_FILES = frozenset("./\\*?[]:~")

_ONLY = "only SELECT is allowed here"


def lock(con: DuckDBPyConnection, directories: Sequence[Path]) -> None:
    """Permanently restrict the connection to reading files below these directories."""
    paths = [str(path.resolve()) for path in directories]
    # Also escaped as in queries, if names have brackets or stars.
    every = dict.fromkeys([*paths, *map(pattern_of, paths)])
    allowed = ", ".join(quote(f"{path}/") for path in every)
    con.execute(f"SET allowed_directories = [{allowed}]")
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")


def readable_sql(con: DuckDBPyConnection, sql: str) -> str:
    """Return the statement to run for a text: one SELECT, or an EXPLAIN of one.

    Raises InputError for anything else.  EXPLAIN ANALYZE runs the query, so the statement is
    rebuilt from the checked query.
    """
    start, explained = _parts(sql)
    query = sql if explained is None else explained
    _check_query(con, query)
    return query if explained is None else f"{start} {query}"


def explained_sql(sql: str) -> str | None:
    """Return the query of an EXPLAIN statement, None for any other statement."""
    return _parts(sql)[1]


def _parts(sql: str) -> tuple[str, str | None]:
    """Return the beginning of an EXPLAIN statement, and the rest; None for another statement.

    The words come from DuckDB's parser, so that comments and quotes cannot hide any.
    """
    import duckdb

    try:
        sql.encode()
    except UnicodeEncodeError as error:
        raise InputError("SQL: the text is not UTF-8") from error
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
        raise InputError(f"SQL: expected one statement, not {len(statements)}")
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
    """Return the names of DuckDB's built-in views: catalog, definitions, settings."""
    sql = "SELECT lower(view_name) FROM duckdb_views() WHERE internal AND schema_name <> ?"
    # Views of the information schema are recognized by the schema name only.
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
    """Return why a part of a query is not allowed; empty if it is allowed.

    `catalog` are DuckDB's built-in views.
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
            return f"the table function {name} is not available: queries can only read the store"
    table = node.get("table_name")
    if kind == "BASE_TABLE" and isinstance(table, str) and _OF_FILES.intersection(table):
        return f"'{table}' is not a table: queries can only read the store"
    if kind == "BASE_TABLE" and isinstance(table, str):
        schema, name = str(node.get("schema_name") or "").lower(), table.lower()
        if schema not in _SCHEMAS or name in catalog - _CATALOG_FUNCTIONS:
            listed = "use duckdb_tables() and duckdb_columns()"
            return f"{schema}{'.' if schema else ''}{name} is not available here: {listed}"
    return ""
