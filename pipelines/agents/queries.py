"""The MCP tools `schema` and `query`: views with their columns, and sandboxed SQL."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfpipe.analysis.names import names_in
from perfpipe.analysis.views import views
from perfpipe.database import UNSHOWN, in_list, unshown
from perfpipe.errors import InputError, PerfpipeError, did_you_mean
from perfpipe.model import public_name
from perfpipe.pipelines.agents.cutting import Cut, first, lean
from perfpipe.pipelines.agents.desk import Desk, rows
from perfpipe.pipelines.agents.envelope import Answer, Next, Status
from perfpipe.pipelines.agents.wording import plain, value
from perfpipe.pipelines.bounds import OWN_BYTES, crashed, out_of_memory, query_memory
from perfpipe.pipelines.commands.schema import Relation, relations
from perfpipe.pipelines.workers import Lost, spread
from perfpipe.sandbox import readable_sql
from perfpipe.store import Store

#: Tables that are not for agents: the environment of programs.
_WITHHELD = frozenset({"environment"})

#: Longest description in a list, characters; relations and columns that a search finds.
_SHORT, _FOUND, _COLUMNS = 160, 8, 6

#: Fewest names that an index lists as a family.
_FAMILY = 3

#: Names of a family: they begin with the same word, else they end with it.
_FAMILIES = (
    (re.compile(r"(?P<common>[a-z0-9]+)_(?P<own>\w+)"), "{0}_{1}"),
    (re.compile(r"(?P<own>\w+)_(?P<common>[a-z0-9]+)"), "{1}_{0}"),
)

#: Letters of words that say little in a search, such as "of" and "the".
_LITTLE = 3

#: The target of a query on the whole store.
ALL = "all"

#: Most rows that are counted beyond the returned ones.
_COUNTED = 1_000_000


def schema(name: str | None, search: str | None = None) -> Answer:
    """Return an index of views and tables, those that match a search, or the columns of one."""
    known = {one.name: one for one in relations() if one.name not in _WITHHELD}
    if name is None:
        return _index(known) if search is None else _found(known, search)
    if name not in known:
        raise InputError(f"no table or view '{plain(name, 60)}'{did_you_mean(name, known)}")
    one = known[name]
    columns = [{"name": column, "meaning": doc} for column, doc in one.columns]
    data = {"name": one.name, "kind": one.kind, "doc": one.doc, "columns": columns}
    return Answer(data, rows="columns", next=Next("query", {"sql": f"FROM {one.name}"}))


def described() -> Answer:
    """Return every view and table with its first sentence."""
    known = [one for one in relations() if one.name not in _WITHHELD]
    told = [_short(one) for one in sorted(known, key=lambda one: (one.kind != "view", one.name))]
    return Answer({"relations": told}, rows="relations")


def _index(known: Mapping[str, Relation]) -> Answer:
    """Return the names of all relations by topic."""
    topics: dict[str, list[str]] = {}
    for name, one in known.items():
        view = views().get(name)
        topics.setdefault(one.kind if view is None else view.path.rpartition("/")[0], []).append(
            name
        )
    told = {topic: " ".join(folded(names)) for topic, names in topics.items()}
    more = "a_{b,c} means a_b and a_c; schema(search=WORDS) or schema(name=NAME)"
    return Answer({"index": told, "more": more})


def folded(names: Iterable[str]) -> list[str]:
    """Return names in order; `a_{b,c,d}` or `{b,c,d}_a` stands for a family with a common word."""
    rest, told = {*names}, {}
    for pattern, form in _FAMILIES:
        families: dict[str, list[str]] = {}
        for match in filter(None, map(pattern.fullmatch, sorted(rest))):
            families.setdefault(match["common"], []).append(match["own"])
        for common, own in families.items():
            if len(own) >= _FAMILY:
                members = [form.format(common, one) for one in own]
                told[members[0]] = form.format(common, f"{{{','.join(own)}}}")
                rest.difference_update(members)
    told |= {name: name for name in rest}
    return [told[name] for name in sorted(told)]


def _found(known: Mapping[str, Relation], search: str) -> Answer:
    """Return the relations that match most of the words of a search, best first."""
    asked = _tokens(search)
    words = [word for word in asked if len(word) > _LITTLE or not word.isalpha()] or [*asked]
    if not words:
        raise InputError("search: no words to look for")
    matches = {name: _matches(one, words) for name, one in known.items()}
    hits = (name for name in known if matches[name] > (0, 0))
    best = sorted(hits, key=lambda name: (matches[name], name), reverse=True)
    told = [
        _short(known[name]) | {"columns": first(_columns(known[name], words), _COLUMNS)}
        for name in best[:_FOUND]
    ]
    following = Next("schema", {"name": best[0]}) if best else Next("schema", {})
    return Answer(
        {"relations": first(lean(told), _FOUND, len(best))},
        reason="" if best else f"no view or table matches '{plain(search, 60)}'",
        rows="relations",
        next=following,
    )


def _matches(one: Relation, words: Sequence[str]) -> tuple[int, int]:
    """Return how many words occur in a relation, and how prominently."""
    columns, meanings = zip(*one.columns, strict=True) if one.columns else ((), ())
    weighted = {4: [one.name], 3: [one.doc], 2: columns, 1: meanings}
    found = {weight: _tokens(" ".join(texts)) for weight, texts in weighted.items()}
    weights = [
        sum(weight for weight, tokens in found.items() if _is_in(word, tokens)) for word in words
    ]
    return sum(weight > 0 for weight in weights), sum(weights)


def _columns(one: Relation, words: Sequence[str]) -> list[str]:
    return [
        column
        for column, meaning in one.columns
        if any(_is_in(word, _tokens(f"{column} {meaning}")) for word in words)
    ]


def _tokens(text: str) -> set[str]:
    return {*re.findall(r"[a-z0-9]+", text.lower())}


def _is_in(word: str, tokens: Collection[str]) -> bool:
    """Return whether a word or one that it begins is among some, without a plural's ending."""
    stem = word.removesuffix("s") if len(word) > _LITTLE else word
    return any(token.startswith(stem) for token in tokens)


def _short(one: Relation) -> dict[str, Any]:
    return {"name": one.name, "kind": one.kind, "doc": plain(one.doc.split(". ")[0], _SHORT)}


def query(desk: Desk, sql: str, target: str | None, limit: int) -> Answer:
    """Return the first rows of a query, or the reason why its tables were not collected.

    It reads the latest run, else every report; the target `all` is the whole store.
    """
    whole = target == ALL
    chosen = None if whole else desk.select(target)
    reports = None if chosen is None else chosen.reports
    found = apart(_Asked(desk.store, reports, sql, limit), desk.is_stopped)
    of = ALL if chosen is None else desk.name_of(chosen)
    shown = first(found.rows, len(found.rows), found.total)
    data = {"of": of, "columns": found.columns, "rows": shown}
    if found.rows:
        return Answer(data, rows="rows")
    gaps = _gaps(desk, reports, found.read)
    return Answer(
        data,
        Status.ABSTAINED if gaps else Status.ANSWERED,
        f"no rows; not collected: {'; '.join(gaps)}" if gaps else "no rows",
    )


@dataclass(frozen=True)
class _Asked:
    """A query, the reports that it reads (None: all), and how many rows to return."""

    store: Store
    reports: list[str] | None
    sql: str
    limit: int


@dataclass(frozen=True)
class _Found:
    """The first rows of a query, how many there are, and what it read."""

    columns: list[str]
    rows: list[list[Any]]
    total: int
    read: list[str]


def apart(asked: _Asked, stopped: Callable[[], bool]) -> _Found:
    """Return what a query finds, in a process that is kept for the next one.

    Raises InputError if it takes too much memory, or is stopped.
    """
    memory = query_memory()
    most = memory and memory + OWN_BYTES
    every = spread(_attempt, [asked], jobs=1, limit_s=math.inf, memory=most, stopped=stopped)
    for _, found in every:
        if isinstance(found, Lost):
            raise out_of_memory(memory) if found.why == "memory" else crashed(found.exitcode)
        if isinstance(found, PerfpipeError):
            raise found
        answered: _Found = found
        return answered
    raise InputError("the query was stopped")


def warm(stopped: Callable[[], bool]) -> None:
    """Start the process of queries, which loads what they need."""
    for _ in spread(_load, [None], jobs=1, limit_s=math.inf, stopped=stopped):
        return


def _load(_: None) -> None:
    import duckdb  # noqa: F401


def _attempt(asked: _Asked) -> _Found | PerfpipeError:
    desk = Desk(asked.store)
    try:
        return desk.call(lambda: _run(desk, asked))
    except PerfpipeError as error:
        return error
    finally:
        desk.close()


def _run(desk: Desk, asked: _Asked) -> _Found:
    with desk.fresh(asked.reports) as session:
        sql, limit = asked.sql, asked.limit
        statement = readable_sql(session.con, sql)
        if statement.startswith("EXPLAIN ANALYZE"):
            raise InputError(
                "EXPLAIN ANALYZE is not available to agents, because it names files; use EXPLAIN"
            )
        named = names_in(session.con, statement)
        read = session.closure([*named])
        if withheld := sorted(name for name in named if public_name(name) in _WITHHELD):
            raise InputError(
                f"{withheld[0]} is not available to agents: it contains environment variables"
            )
        result = session.run_user_sql(sql)
        columns = [plain(str(column[0]), 60) for column in result.description]
        try:
            found = result.fetchmany(limit)
            total = len(found)
            while total < _COUNTED and (more := len(result.fetchmany(10_000))):
                total += more
        except UNSHOWN as error:
            raise unshown(error) from error
    cells = [
        [_cell(one, column) for one, column in zip(row, columns, strict=True)] for row in found
    ]
    return _Found(columns, cells, total, read)


def _cell(found: Any, column: str) -> Any:
    told = value(found.as_posix() if isinstance(found, Path) else found)
    return Cut(told, told.total, f"rows[].{column}") if isinstance(told, Cut) else told


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
