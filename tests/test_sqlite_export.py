"""An export to SQLite is read as the sqlite3 module reads it, or refused; never with fewer rows."""

from __future__ import annotations

import shutil
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
from perfpipe.ingest.nsys import sqlite_export
from perfpipe.ingest.nsys.sqlite_export import SqliteExport

Row = tuple[Any, ...]
Columns = dict[str, list[Any]]

#: Columns of the tables here, by names that the reader knows, and what Python reads of their type.
PYTHON: dict[str, tuple[type, ...]] = {
    "id": (int,),
    "whole": (int,),
    "real": (int, float),
    "name": (str,),
    "binaryData": (bytes, str),
}
NAMES = ["whole", "real", "name", "binaryData"]
DECLARED = "whole INTEGER, real REAL, name TEXT, binaryData BLOB"

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
page_sizes = st.sampled_from([512, 1024, 4096, 65_536])


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
        con.execute(declared if declared.startswith("CREATE") else f"CREATE TABLE t ({declared})")
        if contents:
            marks = ", ".join("?" * len(contents[0]))
            con.executemany(f"INSERT INTO t VALUES ({marks})", contents)
        con.commit()
        con.executescript(after)
        con.commit()
        path.write_bytes(con.serialize())
    return path


def of_sqlite(path: Path, names: Sequence[str], where: str = "") -> tuple[Columns, Counter[str]]:
    """Return what the sqlite3 module gives: None for values of another type, and their number."""
    with closing(sqlite3.connect(path)) as con:
        con.text_factory = lambda raw: raw.decode("utf-8", "replace")
        selected = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
        found = con.execute(f"SELECT {selected} FROM t {where}").fetchall()
    columns, mistyped = {}, Counter[str]()
    for name, column in zip(
        names, zip(*found, strict=True) if found else [()] * len(names), strict=True
    ):
        types = PYTHON.get(name, (int,))
        columns[name] = [_as(types, value) for value in column]
        mistyped[name] = sum(value is not None and not isinstance(value, types) for value in column)
    return columns, +mistyped


def _as(types: tuple[type, ...], value: Any) -> Any:
    if not isinstance(value, types):
        return None
    if isinstance(value, int) and float in types:
        return float(value)
    return value.encode() if bytes in types and isinstance(value, str) else value


def of_export(
    path: Path, names: Sequence[str], part: tuple[int, int] | None = None
) -> tuple[Columns, Counter[str]]:
    """Return what the reader gives, and how many values had another type."""
    export = SqliteExport(path, path)
    export.check()
    batches = list(export.scan("t", names, part=part))
    assert export.has_rows("t") or not batches
    assert all(batch.num_rows for batch in batches)
    table = pa.Table.from_batches(batches) if batches else None
    found = {name: _replaced(table[name]) if table else [] for name in names}
    return found, Counter(export.mismatches.get(("t", part), {}))


def _replaced(column: pa.ChunkedArray) -> list[Any]:
    """Return values as the door gives them: bytes that are no UTF-8 are replaced."""
    if column.type != pa.string():
        return list(column.to_pylist())
    return [
        None if raw is None else raw.decode("utf-8", "replace")
        for raw in column.cast(pa.binary()).to_pylist()
    ]


@COMMON
@given(rows, page_sizes, st.sampled_from(["UTF-8", "UTF-16le", "UTF-16be"]))
def test_rows_are_those_of_sqlite(
    tmp_path: Path, contents: list[Row], page_size: int, encoding: str
) -> None:
    before = f"PRAGMA encoding = '{encoding}';"
    path = database(tmp_path / "a.sqlite", contents, page_size=page_size, before=before)
    assert of_export(path, NAMES) == of_sqlite(path, NAMES)


@COMMON
@given(st.lists(st.tuples(values, values, values, values), max_size=20), st.booleans())
def test_values_of_another_type_are_null_and_counted(
    tmp_path: Path, contents: list[Row], late: bool
) -> None:
    # Columns without a type keep what they are given.  The first values are NULL in most exports.
    contents = [(None,) * 4] * 70_000 * late + contents
    declared = "whole, real BLOB REAL, name, binaryData"
    path = database(tmp_path / "a.sqlite", contents, declared=declared)
    assert of_export(path, NAMES) == of_sqlite(path, NAMES)


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
    where = f"WHERE rowid BETWEEN {first} AND {last}"
    names = ["id", "name"]
    assert of_export(path, names, (first, last)) == of_sqlite(path, names, where)


@pytest.mark.parametrize("numbers", ["rowid INTEGER", "id INTEGER"])
def test_parts_have_all_rows_together(
    numbers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a column is called like SQLite's row number, and has none."""
    monkeypatch.setattr(sqlite_export, "_LONG", 100)
    contents = [(None if n % 2 else 2**40 + n, n) for n in range(1000)]
    path = database(tmp_path / "a.sqlite", contents, declared=f"{numbers}, whole INTEGER")
    export = SqliteExport(path, path)
    found = [
        value
        for part in export.parts("t")
        for batch in export.scan("t", ["whole"], part=part)
        for value in batch["whole"].to_pylist()
    ]
    assert found == list(range(1000))


@COMMON
@given(rows, st.integers(2, 5), st.booleans())
def test_rows_that_are_left_where_others_were_deleted(
    tmp_path: Path, contents: list[Row], every: int, vacuumed: bool
) -> None:
    after = f"DELETE FROM t WHERE rowid % {every} = 0;"
    after += "UPDATE t SET name = 'x' || name WHERE rowid % 3 = 0;"
    path = database(tmp_path / "a.sqlite", contents * 3, after=after + "VACUUM;" * vacuumed)
    assert of_export(path, NAMES) == of_sqlite(path, NAMES)


#: Files of an unusual kind: how the table is made, and what comes before and after.
SHAPES: dict[str, dict[str, str]] = {
    "pages that move": {
        "before": "PRAGMA auto_vacuum = FULL;",
        "after": "DELETE FROM t WHERE whole % 3 = 0;",
    },
    "pages that may move": {
        "before": "PRAGMA auto_vacuum = INCREMENTAL;",
        "after": "DELETE FROM t WHERE whole < 99;",
    },
    "no row numbers": {
        "declared": "CREATE TABLE t (whole INTEGER PRIMARY KEY, name TEXT) WITHOUT ROWID",
    },
    "a key that is no row number": {"declared": "whole INTEGER PRIMARY KEY DESC, name TEXT"},
    "a key of two columns": {"declared": "whole INTEGER, name TEXT, PRIMARY KEY (name, whole)"},
    "a column added": {"after": "ALTER TABLE t ADD COLUMN real REAL;"},
    "a column added with a value": {
        "after": "ALTER TABLE t ADD COLUMN real REAL DEFAULT 2.5; INSERT INTO t VALUES (1, 'n', 3);",
    },
    "a column dropped": {
        "declared": "whole INTEGER, name TEXT, id INTEGER DEFAULT 3",
        "insert": "whole, name",
        "after": "ALTER TABLE t DROP COLUMN id;",
    },
    "a column renamed": {
        "declared": "id INTEGER, name TEXT",
        "after": "ALTER TABLE t RENAME COLUMN id TO whole;",
    },
    "a column that is computed": {
        "declared": "whole INTEGER, name TEXT, real REAL AS (whole / 2.0)",
    },
    "a column that is computed and stored": {
        "declared": "whole INTEGER, name TEXT, real REAL AS (whole / 2.0) STORED",
    },
    "a view": {
        "declared": "CREATE TABLE inner (whole INTEGER, name TEXT)",
        "after": "CREATE VIEW t AS SELECT whole, name FROM inner WHERE whole > 9;",
    },
    "an index that covers it": {"after": "CREATE INDEX i ON t (name, whole);"},
    "a damaged index": {
        "after": "CREATE INDEX i ON t (name, whole); PRAGMA writable_schema = ON;"
        "UPDATE sqlite_master SET sql = 'CREATE INDEX i ON t (whole, name)' WHERE name = 'i';",
    },
    "a table without rows": {"after": "DELETE FROM t;"},
    "strict types": {"declared": "CREATE TABLE t (whole INTEGER, name TEXT) STRICT"},
    "names in quotes": {
        "declared": '"whole" INTEGER, "name" TEXT, "a ""b"" c" INTEGER DEFAULT 7',
        "insert": "whole, name",
    },
}


@pytest.mark.parametrize("page_size", [512, 4096])
@pytest.mark.parametrize("shape", SHAPES)
def test_files_of_every_shape(shape: str, page_size: int, tmp_path: Path) -> None:
    made = dict(SHAPES[shape])
    insert = made.pop("insert", None)
    made.setdefault("declared", "whole INTEGER, name TEXT")
    into = "inner" if shape == "a view" else "t"
    if insert:
        into += f" ({insert})"
    filled = "".join(
        f"INSERT INTO {into} VALUES ({number}, 'name {number * 7919 % 300}');"
        for number in range(300)
    )
    if "AS (" in made["declared"]:
        filled = filled.replace("INTO t", "INTO t (whole, name)")
    made["after"] = filled + made.get("after", "")
    path = database(tmp_path / "a.sqlite", [], page_size=page_size, **made)
    export = SqliteExport(path, path)
    with closing(sqlite3.connect(path)) as con:
        described = con.execute("SELECT * FROM t LIMIT 0").description
    names = [name for name, *_ in described]
    assert export.columns("t") == set(names)
    try:
        found, _ = of_export(path, names)
    except InputError as error:
        assert shape == "a damaged index", error
        return
    expected, _ = of_sqlite(path, names, "" if shape == "a view" else "NOT INDEXED")
    assert found == expected
    assert len(found["whole"]) == (0 if shape == "a table without rows" else len(found["name"]))


def test_text_that_is_none_and_has_nul_bytes(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as con:
        con.execute("CREATE TABLE t (name TEXT)")
        con.execute("INSERT INTO t VALUES ('a' || char(0) || 'b'), (''), (CAST(x'61ff' AS TEXT))")
        con.commit()
    export = SqliteExport(tmp_path / "a.sqlite", tmp_path / "a.sqlite")
    (batch,) = export.scan("t", ["name"])
    raw = batch["name"].cast(pa.binary()).to_pylist()
    # The door replaces what is no UTF-8.
    assert raw == [b"a\0b", b"", b"a\xff"]


def test_views_that_cannot_be_read_are_no_empty_tables(tmp_path: Path) -> None:
    after = "CREATE TABLE u (x); CREATE VIEW v AS SELECT x FROM u; DROP TABLE u;"
    path = database(tmp_path / "a.sqlite", [(1, 1.5, "a", b"")], after=after)
    export = SqliteExport(path, path)
    assert export.has_rows("v")
    assert not export.columns("v")
    assert of_export(path, NAMES) == of_sqlite(path, NAMES)


@pytest.mark.parametrize("mode", ["WAL", "DELETE", "PERSIST", "TRUNCATE"])
def test_rows_that_the_file_lacks_are_not_missed(mode: str, tmp_path: Path) -> None:
    """Copies of a file and its journal, as a writer leaves them: committed or in the middle."""
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as con:
        con.execute(f"PRAGMA journal_mode = {mode}")
        con.execute("PRAGMA cache_size = 1")
        con.execute("CREATE TABLE t (whole INTEGER, name TEXT)")
        for state in ("committed", "in the middle"):
            con.execute("BEGIN")
            con.executemany("INSERT INTO t VALUES (?, ?)", [(n, "x" * 99) for n in range(999)])
            if state == "committed":
                con.execute("COMMIT")
            copied = tmp_path / state
            copied.mkdir()
            for file in tmp_path.glob("a.sqlite*"):
                shutil.copy(file, copied)
            try:
                found, _ = of_export(copied / "a.sqlite", ["whole", "name"])
            except InputError as error:
                assert "still being written" in str(error)
                assert mode == "WAL" or state == "in the middle"
                continue
            assert state == "committed"
            assert found["whole"] == list(range(999))


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
        if set(NAMES) - export.columns("t"):
            # A name was changed.
            return
        found, mistyped = of_export(path, NAMES)
    except InputError:
        return
    expected, _ = of_sqlite(path, NAMES)
    for name in mistyped:
        # The declared type of that column may have been changed.
        assert len(found.pop(name)) == len(expected.pop(name))
    assert found == expected


def test_a_row_that_goes_on_in_its_own_pages_is_refused(tmp_path: Path) -> None:
    path = database(tmp_path / "a.sqlite", [(1, 0.5, "long " * 4000, b"")])
    content = bytearray(path.read_bytes())
    # The second of the row's further pages names itself as the next.
    page = content.index(b"long long", 2 * 512) // 512 + 1
    content[page * 512 : page * 512 + 4] = (page + 1).to_bytes(4, "big")
    path.write_bytes(bytes(content))
    with pytest.raises(InputError, match="damaged"):
        of_export(path, NAMES)
