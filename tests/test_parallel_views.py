"""Steps that need one another run side by side, each after what it needs."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.analysis.parallel_views import in_parallel
from perfpipe.analysis.reference import REFERENCE_TABLES, ReferenceTable
from perfpipe.analysis.session import Session
from perfpipe.analysis.views import views
from perfpipe.database import open_database
from perfpipe.store import Store

#: Which earlier steps each one needs.
GRAPHS = st.lists(st.sets(st.integers(0, 30), max_size=3), max_size=12).map(
    lambda made: {
        f"t{n}": frozenset(f"t{before % n}" for before in needs if n)
        for n, needs in enumerate(made)
    }
)


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfpipe.analysis.session.cores", lambda: 2)


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database for all examples, which clear it: to open one takes longer than an example."""
    with open_database() as con:
        yield con


@given(steps=GRAPHS, at_once=st.integers(1, 4))
def test_each_step_sees_what_it_needs(
    database: duckdb.DuckDBPyConnection, steps: dict[str, frozenset[str]], at_once: int
) -> None:
    def step(name: str, con: duckdb.DuckDBPyConnection) -> None:
        before = "".join(f" + (SELECT n FROM {needed})" for needed in sorted(steps[name]))
        con.execute(f"CREATE TABLE {name} AS SELECT 1{before} AS n")

    expected: dict[str, int] = {}
    for name, needs in steps.items():
        expected[name] = 1 + sum(expected[needed] for needed in needs)
    try:
        in_parallel(database, at_once, steps, step)
        found = {name: database.execute(f"FROM {name}").fetchone() for name in steps}
    finally:
        for name in steps:
            database.execute(f"DROP TABLE IF EXISTS {name}")
    assert found == {name: (number,) for name, number in expected.items()}


def test_steps_run_in_parallel() -> None:
    together = threading.Barrier(2)

    def step(name: str, con: duckdb.DuckDBPyConnection) -> None:
        together.wait(timeout=60)

    with open_database() as con:
        steps = dict.fromkeys(("a", "b"), frozenset[str]())
        in_parallel(con, 2, steps, step)


@pytest.mark.parametrize("at_once", [1, 3])
def test_an_error_ends_what_comes_after(at_once: int) -> None:
    begun: list[str] = []

    def step(name: str, con: duckdb.DuckDBPyConnection) -> None:
        begun.append(name)
        con.execute(f"SELECT {name}")

    with open_database() as con:
        needs = {"nonsense": frozenset[str](), "after": frozenset({"nonsense"})}
        with pytest.raises(duckdb.BinderException, match="nonsense"):
            in_parallel(con, at_once, needs, step)
        assert begun == ["nonsense"]
        in_parallel(con, at_once, {"1": frozenset()}, step)


def test_views_are_the_same_made_in_parallel_or_not(
    captures: Store, ingested: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    report = ingested("nsys/gpumetrics.sqlite")
    public = sorted(name for name, view in views().items() if view.public)
    found = []
    beside = Mock(wraps=in_parallel)
    monkeypatch.setattr("perfpipe.analysis.session.in_parallel", beside)
    for cores, small in ((1, 0), (4, 0), (4, 1 << 30)):
        monkeypatch.setattr("perfpipe.analysis.session.cores", lambda cores=cores: cores)
        monkeypatch.setattr("perfpipe.analysis.session._SMALL", small)
        with Session.open(captures, [report], use=public) as session:
            rows = {name: session.con.execute(f"FROM {name}").fetchall() for name in public}
            threads = session.con.execute("SELECT current_setting('threads')").fetchone()
        found.append({name: sorted(map(repr, own)) for name, own in rows.items()})
    assert threads == (1,)
    assert [call.args[1] for call in beside.call_args_list] == [2, 4], "large data, then small"
    assert found[0] == found[1] == found[2]


def test_views_are_made_after_a_query_that_somebody_typed(
    captures: Store, ingested: Callable[[str], str]
) -> None:
    """That query locks the configuration, and connections opened later are set up by it."""
    report = ingested("nsys/gpumetrics.sqlite")
    with Session.open(captures, [report], use=["timeline_bottleneck"]) as session:
        assert session.run_user_sql("SELECT 1").fetchone() == (1,)
        session.use(*views())
        assert session.run_user_sql("SELECT count(*) FROM steps").fetchone() is not None


def test_tables_that_are_made_at_a_time_share_no_name(
    captures: Store, ingested: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    makers: dict[str, set[str]] = {}

    class Told:
        """A connection that notes which tables are created for another one."""

        def __init__(self, con: duckdb.DuckDBPyConnection, maker: str) -> None:
            self.con, self.maker = con, maker

        def __getattr__(self, name: str) -> Any:
            return getattr(self.con, name)

        def execute(self, query: Any, *more: Any) -> Any:
            for name in re.findall(r"CREATE TABLE (\w+)", str(query)):
                makers.setdefault(name, set()).add(self.maker)
            return self.con.execute(query, *more)

    def told(name: str, table: ReferenceTable) -> ReferenceTable:
        return replace(table, make=lambda con: table.make(Told(con, name)))  # type: ignore[arg-type]

    for name, table in REFERENCE_TABLES.items():
        monkeypatch.setitem(REFERENCE_TABLES, name, told(name, table))
    report = ingested("ncu/visible.ncu-rep")
    with Session.open(captures, [report]) as session:
        session.use(*REFERENCE_TABLES)
    assert {"gpu_tensor_rates", "_known_kernels"} <= makers.keys()
    assert [name for name, several in makers.items() if len(several) > 1] == []


def test_what_most_others_wait_for_comes_first(database: duckdb.DuckDBPyConnection) -> None:
    steps = {"alone": (), "a": (), "b": ("a",), "c": ("b",), "d": ("alone",)}
    made: list[str] = []
    in_parallel(
        database,
        1,
        {name: frozenset(needs) for name, needs in steps.items()},
        lambda name, _: made.append(name),
    )
    assert made == ["a", "alone", "b", "c", "d"]
