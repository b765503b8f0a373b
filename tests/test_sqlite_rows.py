"""Rows read from the pages of an SQLite file are those that SQLite gives, or are left to it."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfpipe.errors import InputError
from perfpipe.ingest.nsys import sqlite_rows
from perfpipe.ingest.nsys.sqlite_export import SqliteExport
from perfpipe.ingest.nsys.sqlite_rows import Layout, Rows
from perfpipe.ingest.nsys.sqlite_tree import SqliteFile, UnusualError, trees_of
from perfpipe.ingest.nsys.sqlite_values import BLOB, FLOAT, INT, TEXT

Row = tuple[Any, ...]

#: Columns of the tables here, and what their values are as Python reads them.
TYPES = {"whole": INT, "real": FLOAT, "words": TEXT, "raw": BLOB}
DECLARED = "whole INTEGER, real REAL, words TEXT, raw BLOB"
PYTHON: dict[str, type] = {INT: int, FLOAT: float, TEXT: str, BLOB: bytes}

COMMON = settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

wholes = st.one_of(
    st.sampled_from([0, 1, -1, 127, -128, 128, 2**15, 2**23 - 1, -(2**23), 2**31, 2**47, -(2**63)]),
    st.integers(-(2**63), 2**63 - 1),
)
# Some are longer than the smallest pages, and go on in several others.
texts = st.builds(
    lambda word, times: word * times, st.text(max_size=6), st.sampled_from([1, 9, 400])
)
blobs = st.builds(
    lambda word, times: word * times, st.binary(max_size=6), st.sampled_from([1, 300])
)
values = st.one_of(st.none(), wholes, st.floats(allow_nan=False), texts, blobs)
rows = st.lists(
    st.tuples(
        st.one_of(st.none(), wholes),
        st.one_of(st.none(), st.floats(allow_nan=False), wholes.filter(lambda v: abs(v) < 2**50)),
        st.one_of(st.none(), texts),
        st.one_of(st.none(), blobs, texts),
    ),
    max_size=40,
)
page_sizes = st.sampled_from([512, 1024, 4096])


def database(
    path: Path,
    contents: Sequence[Row],
    *,
    page_size: int = 512,
    declared: str = DECLARED,
    before: str = "",
    after: str = "",
) -> Path:
    """Write a file with one table of some rows, and run SQL before and after it is filled."""
    with closing(sqlite3.connect(":memory:")) as con:
        con.execute(f"PRAGMA page_size = {page_size}")
        con.executescript(before)
        con.execute(f"CREATE TABLE t ({declared})" if "(" not in declared else declared)
        if contents:
            marks = ", ".join("?" * len(contents[0]))
            con.executemany(f"INSERT INTO t VALUES ({marks})", contents)
        con.executescript(after)
        con.commit()
        path.write_bytes(con.serialize())
    return path


def of_sqlite(path: Path, names: Sequence[str], where: str = "") -> dict[str, list[Any]]:
    """Return what SQLite gives, with None for values of another type than their column."""
    with closing(sqlite3.connect(path)) as con:
        con.text_factory = lambda raw: raw.decode("utf-8", "replace")
        found = con.execute(f"SELECT {', '.join(names)} FROM t {where} ORDER BY rowid").fetchall()
    columns = list(zip(*found, strict=True)) or [()] * len(names)
    return {
        name: [_as(TYPES.get(name, INT), value) for value in column]
        for name, column in zip(names, columns, strict=True)
    }


def _as(type_: str, value: Any) -> Any:
    if type_ == FLOAT and isinstance(value, int | float):
        return float(value)
    if type_ == BLOB and isinstance(value, str):
        return value.encode()
    return value if isinstance(value, PYTHON[type_]) else None


def of_pages(
    path: Path, layout: Layout, names: Sequence[str], part: tuple[int, int] | tuple[()] = ()
) -> tuple[dict[str, list[Any]], Counter[str]]:
    """Return what the pages have, and how many values were of another type."""
    with closing(sqlite3.connect(path)) as con:
        roots = dict(con.execute("SELECT name, rootpage FROM sqlite_master").fetchall())
    trees = trees_of(path, {"sqlite_master": 1, **roots})
    assert not trees.doubtful
    with SqliteFile(path) as file:
        reader = Rows(file, trees, "t", layout, names)
        batches = list(reader.batches(*part))
    table = pa.Table.from_batches(batches) if batches else None
    return {n: table[n].to_pylist() if table else [] for n in names}, +reader.mistyped


@COMMON
@given(rows, page_sizes)
def test_rows_are_those_of_sqlite(tmp_path: Path, contents: list[Row], page_size: int) -> None:
    path = database(tmp_path / "a.sqlite", contents, page_size=page_size)
    found, mistyped = of_pages(path, Layout(TYPES), list(TYPES))
    assert found == of_sqlite(path, list(TYPES))
    assert not mistyped


def test_long_rows_are_read_a_few_pages_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_rows, "_MOST_AT_A_TIME", 10_000)
    contents = [(number, None, "long " * 400 * (number % 5), b"") for number in range(200)]
    path = database(tmp_path / "a.sqlite", contents)
    found, _ = of_pages(path, Layout(TYPES), list(TYPES))
    assert found == of_sqlite(path, list(TYPES))
    export = SqliteExport(path, path)
    sizes = [batch.nbytes for batch in export.scan("t", list(TYPES))]
    assert len(sizes) > 1
    assert max(sizes) < 25_000


@COMMON
@given(st.lists(st.tuples(values, values, values, values), max_size=20))
def test_values_of_another_type_are_null_and_counted(tmp_path: Path, contents: list[Row]) -> None:
    # Columns without a type keep what they are given.
    path = database(tmp_path / "a.sqlite", contents, declared="whole, real, words, raw")
    found, mistyped = of_pages(path, Layout(TYPES), list(TYPES))
    expected = of_sqlite(path, list(TYPES))
    assert found == expected
    given_ = dict(zip(TYPES, zip(*contents, strict=True), strict=True)) if contents else {}
    assert mistyped == +Counter(
        {n: expected[n].count(None) - list(given_[n]).count(None) for n in given_}
    )


@COMMON
@given(
    rows,
    st.lists(st.integers(-50, 200), min_size=40, max_size=40, unique=True),
    st.integers(-60, 210),
    st.integers(-60, 210),
)
def test_parts_are_rows_from_one_number_to_another(
    tmp_path: Path, contents: list[Row], numbers: list[int], first: int, last: int
) -> None:
    numbered = [(number, *row) for number, row in zip(numbers, contents, strict=False)]
    path = database(tmp_path / "a.sqlite", numbered, declared=f"id INTEGER PRIMARY KEY, {DECLARED}")
    layout, names = Layout({"id": INT, **TYPES}, rowid="id"), ["id", "words"]
    found, _ = of_pages(path, layout, names, (first, last))
    assert found == of_sqlite(path, names, f"WHERE rowid BETWEEN {first} AND {last}")


@COMMON
@given(rows, st.integers(2, 5), st.booleans())
def test_rows_that_are_left_where_others_were_deleted(
    tmp_path: Path, contents: list[Row], every: int, vacuumed: bool
) -> None:
    after = f"DELETE FROM t WHERE rowid % {every} = 0;"
    after += "UPDATE t SET words = 'x' || words WHERE rowid % 3 = 0;"
    path = database(tmp_path / "a.sqlite", contents * 3, after=after + "VACUUM;" * vacuumed)
    found, _ = of_pages(path, Layout(TYPES), list(TYPES))
    assert found == of_sqlite(path, list(TYPES))


#: What is read through SQLite: by name, how the table is made and what comes before and after.
UNUSUAL: dict[str, dict[str, str]] = {
    "in UTF-16": {"before": "PRAGMA encoding = 'UTF-16le';"},
    "of pages that move": {"before": "PRAGMA auto_vacuum = FULL;"},
    "without row numbers": {
        "declared": "CREATE TABLE t (whole INTEGER PRIMARY KEY, name TEXT) WITHOUT ROWID"
    },
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_what_is_unusual_is_read_through_sqlite(name: str, tmp_path: Path) -> None:
    made = {"declared": "whole INTEGER, name TEXT", "before": "", "after": "", **UNUSUAL[name]}
    contents = [(number, f"name {number}") for number in range(300)]
    path = database(
        tmp_path / "a.sqlite",
        contents,
        declared=made["declared"],
        before=made["before"],
        after=made["after"],
    )
    export = SqliteExport(path, path)
    columns = sorted(export.columns("t"))
    with pytest.raises(UnusualError):
        list(export._batches("t", columns, (), None))
    export.check()
    found = pa.Table.from_batches(list(export.scan("t", columns)))
    with closing(sqlite3.connect(path)) as con:
        expected = con.execute(f"SELECT {', '.join(columns)} FROM t").fetchall()
    assert list(zip(*(found[c].to_pylist() for c in columns), strict=True)) == expected


damage = st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), min_size=1, max_size=3)


def _changed(content: bytes, changes: list[tuple[int, int]], near: int) -> bytes:
    """Return bytes of which some were changed: in the heads of pages, or anywhere."""
    found = bytearray(content)
    for at, value in changes:
        place = at % len(found)
        if near:
            place = place // 512 * 512 + place % 16
        found[place] = value
    return bytes(found)


@settings(COMMON, max_examples=250)
@given(damage, st.booleans())
def test_damage_is_found_or_changes_nothing_but_values(
    tmp_path: Path, changes: list[tuple[int, int]], near: bool
) -> None:
    contents = [
        (number, number / 3, f"words {number}" * (1 + number // 55 * 30), b"")
        for number in range(60)
    ]
    whole = database(
        tmp_path / "whole.sqlite", contents, after="DELETE FROM t WHERE rowid % 9 = 0;"
    )
    path = tmp_path / "damaged.sqlite"
    path.write_bytes(_changed(whole.read_bytes(), changes, near))
    try:
        export = SqliteExport(path, path)
        columns = sorted(export.columns("t"))
        export.check()
        batches = list(export._batches("t", columns, (), None)) if export.has_rows("t") else []
    except (InputError, UnusualError):
        return
    if columns != sorted(TYPES):
        # SQLite takes a name in quotes that is not UTF-8 for a text.
        return
    # Nothing was doubted: SQLite agrees, and gives the same.
    with closing(sqlite3.connect(path)) as con:
        faults = [text for (text,) in con.execute("PRAGMA quick_check") if " value in " not in text]
        assert faults == ["ok"] or not faults
    found = pa.Table.from_batches(batches).to_pydict() if batches else {}
    asked = list(export._asked("t", columns, (), None)) if batches else []
    expected = pa.Table.from_batches(asked).to_pydict() if asked else {}
    assert found.keys() == expected.keys()
    for column in expected:
        assert found[column] == expected[column]


def test_a_row_that_goes_on_in_its_own_pages_is_refused(tmp_path: Path) -> None:
    path = database(tmp_path / "a.sqlite", [(1, 0.5, "long " * 4000, b"")])
    content = bytearray(path.read_bytes())
    # The second of the row's further pages names itself as the next.
    page = content.index(b"long long", 2 * 512) // 512 + 1
    content[page * 512 : page * 512 + 4] = (page + 1).to_bytes(4, "big")
    path.write_bytes(bytes(content))
    export = SqliteExport(path, path)
    with pytest.raises(UnusualError):
        list(export._batches("t", ["whole"], (), None))
    with pytest.raises(InputError, match="damaged SQLite file"):
        export.check()
