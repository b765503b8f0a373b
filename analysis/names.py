"""Which tables and functions a query names."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING

from perfpipe.sandbox import explained_sql

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Functions whose arguments name tables, or are queries.
_INDIRECT = frozenset({"query", "query_table", "pragma_table_info"})

#: Whether the parser understood a query, and the names in its tree, which is not built: that takes
#: long.  Within a text quotes are escaped, so that no text of a query looks like either.
_ERROR = re.compile(r'\{"error":(true|false)')
_NAMED = re.compile(r'"(?:table_name|function_name|schema_name)":("(?:[^"\\]|\\.)*")')

#: Answers by text.
_known: dict[str, frozenset[str]] = {}

#: What names nothing: texts, and comments.
_SAID = re.compile(r"'(?:[^']|'')*'|--[^\n]*")
#: What follows FROM or JOIN, and what stands before a parenthesis.
_SOURCE = re.compile(r"\b(?:from|join)\s+(\w+)|\b(\w+)\s*\(", re.IGNORECASE)


@cache
def names_in_own(sql: str) -> frozenset[str]:
    """Return what SQL that comes with perfpipe may name, in lower case, columns before `(` too.

    Its style allows to read names off the text: DuckDB's parser takes a second for all of it.
    """
    found = _SOURCE.findall(_SAID.sub(" ", sql))
    return frozenset(name.lower() for pair in found for name in pair if name)


def names_in(con: DuckDBPyConnection, sql: str) -> frozenset[str]:
    """Return the tables, views and functions that a query names, in lower case, by DuckDB's parser.

    Where the parser cannot tell, every word of the text is returned: a name too many costs a
    little time, one too few would be an error.
    """
    if sql not in _known:
        query = explained_sql(sql) or sql
        ((text,),) = con.execute("SELECT json_serialize_sql(?)", [query]).fetchall()
        said = _ERROR.match(text)
        wrong = said is None or said[1] == "true"
        names = frozenset(json.loads(name).lower() for name in _NAMED.findall(text))
        if wrong or names & _INDIRECT:
            names |= frozenset(re.findall(r"\w+", query.lower()))
        _known[sql] = names
    return _known[sql]
