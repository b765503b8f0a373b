from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT, Cli, Opened, Tiny, empty_database
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.analysis.macros import macros
from perfpipe.analysis.names import names_in, names_in_own
from perfpipe.analysis.reference import REFERENCE_TABLES
from perfpipe.analysis.session import Session
from perfpipe.analysis.thresholds import thresholds
from perfpipe.analysis.views import LAYERS, View, parse_view, views
from perfpipe.catalogue import CATALOGUE
from perfpipe.database import open_database
from perfpipe.errors import InputError
from perfpipe.model import aliases, tables
from perfpipe.sandbox import _nodes
from perfpipe.store import Store

SQL = ROOT / "analysis" / "sql"
Ingested = Callable[[str], str]


def test_every_file_is_a_view() -> None:
    files = {p.relative_to(SQL).as_posix() for p in SQL.glob("*/**/*.sql")}
    assert files == {view.path for view in views().values() if not view.generated}
    assert {view.layer for view in views().values()} == set(LAYERS)
    assert {p.name for p in SQL.iterdir() if p.is_dir()} == set(LAYERS)


@pytest.fixture(scope="module")
def parser() -> Iterator[Session]:
    """A session without a store, to see what views name."""
    with Session(open_database()) as session:
        yield session


@pytest.mark.parametrize("view", views().values(), ids=lambda view: view.name)
def test_views_keep_the_house_rules(view: View, parser: Session) -> None:
    assert view.doc
    statement = re.sub(r"--[^\n]*|'[^']*'", "", view.sql)
    assert not re.search(r"\b(INSERT|DROP|DELETE|UPDATE|ATTACH|COPY|INSTALL|LOAD)\b", statement)
    assert statement.count(";") == 1
    if view.public:
        final = statement[statement.rindex("\nSELECT") :]
        assert "*" not in re.sub(r"count\(\*\)| \* ", " ", final.split("FROM")[0]), (
            "SELECT * in a public view"
        )
        assert "ORDER BY" in final
    lower = {
        name for name, v in views().items() if LAYERS.index(v.layer) > LAYERS.index(view.layer)
    }
    assert not parser.needs(view.name) & lower, "a lower layer names a higher one"


def test_names_read_off_the_text_are_those_of_the_parser(parser: Session) -> None:
    made = macros(thresholds(), step_range="from steps(")
    known = made.keys() | views().keys() | tables().keys() | REFERENCE_TABLES.keys()
    texts = [view.query for view in views().values()]
    texts += [f"SELECT {macro.body}" for macro in made.values()]
    for text in texts:
        assert names_in_own(text) & known == names_in(parser.con, text) & known, text


def test_no_running_window_has_a_filter(parser: Session) -> None:
    """DuckDB takes 25 times as long for one as for count(if(...)) or sum(if(...))."""
    windows = 0
    for view in views().values():
        ((text,),) = parser.con.execute("SELECT json_serialize_sql(?)", [view.query]).fetchall()
        for node in _nodes(json.loads(text)):
            if node.get("class") == "WINDOW":
                windows += 1
                assert not (node["filter_expr"] and node["orders"]), view.name
    assert windows > 100


@pytest.fixture(scope="module")
def documented(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A session on an empty store, with all there is: a query of the catalogue makes it."""
    with Session.open(Store(tmp_path_factory.mktemp("empty") / "store")) as session:
        assert session.execute("SELECT count(*) FROM duckdb_views()").fetchone() != (0,)
        yield session


def test_public_views_declare_their_columns() -> None:
    with Session(empty_database()) as session:
        session.use(*views())
        for view in views().values():
            described = session.con.execute(f"DESCRIBE {view.name}").fetchall()
            assert view.public == bool(view.columns)
            if view.public:
                assert [(name, type_) for name, type_, *_ in described] == [*view.types.items()]
            assert not any(type_ == "HUGEINT" for _, type_, *_ in described), view.name


@pytest.mark.parametrize(
    ("names", "layer"),
    [
        (["ncu/visible.raw.csv", "ncu/ops.ncu-rep"], "nsys"),
        (["nsys/eager_small.sqlite"], "ncu"),
        ([], "ncu"),
        ([], "nsys"),
    ],
)
def test_views_of_a_profiler_have_no_rows_without_its_reports(
    captures: Store, ingested: Ingested, names: list[str], layer: str
) -> None:
    """So a session need not plan them: `materialize` and rows are those of tables without rows."""
    of_layer = [view for view in views().values() if view.layer == layer and view.public]
    reports = [ingested(name) for name in names]
    with Session.open(captures, reports) as session:
        session.use(*views())
        kinds = dict(session.con.execute("SELECT view_name, sql FROM duckdb_views()").fetchall())
        assert not {view.name for view in of_layer} & kinds.keys(), "they were planned"
    with Session.open(captures, reports) as session:
        session.__dict__["_without_reports"] = frozenset[str]()
        for view in of_layer:
            assert session.execute(f"FROM {view.name}").fetchall() == [], view.name


def test_comments_are_in_the_catalogue(documented: Session) -> None:
    names = [*tables(), *CATALOGUE, *(v.name for v in views().values() if v.public)]
    missing = documented.con.execute(
        "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal "
        "AND comment IS NULL AND NOT starts_with(table_name, '_')"
    ).fetchall()
    found = {
        name
        for (name,) in documented.con.execute(
            "SELECT view_name FROM duckdb_views() WHERE comment IS NOT NULL UNION ALL "
            "SELECT table_name FROM duckdb_tables() WHERE comment IS NOT NULL"
        ).fetchall()
    }
    assert missing == []
    assert set(names) <= found


def test_a_view_of_another_form_is_refused() -> None:
    with pytest.raises(ValueError, match="expected CREATE VIEW a AS"):
        parse_view("-- x\nCREATE VIEW b AS\nSELECT 1;", "ncu/topic/a.sql")


def test_continued_column_comments_are_joined() -> None:
    text = "-- About a.\n--\n-- x BIGINT: first\n--   second\nCREATE VIEW a AS\nSELECT 1 AS x;"
    assert parse_view(text, "ncu/a.sql").columns == {"x": "first second"}


def test_a_view_says_that_it_is_materialized() -> None:
    text = "-- About a.\n{}--\n-- x BIGINT: first\nCREATE VIEW a AS\nSELECT 1 AS x;"
    plain, marked = (
        parse_view(text.format(line), "nsys/a.sql") for line in ("", "-- @materialize\n")
    )
    assert (plain.materialize, marked.materialize) == (False, True)
    assert (plain.kept, marked.kept) == (False, True)
    assert plain.few
    assert not replace(plain, name="_a").few
    assert plain.doc == marked.doc == "About a."
    assert plain.columns == marked.columns == {"x": "first"}


def test_only_known_marks_stand_in_comments() -> None:
    for file in SQL.glob("*/**/*.sql"):
        for line in file.read_text().splitlines():
            assert line == "-- @materialize" or not line.startswith("-- @"), file


def test_sol_equals_the_details_page(opened: Opened) -> None:
    with opened("ncu/visible.ncu-rep", "ncu/visible.details.csv") as con:
        rows = con.execute(
            "SELECT launch_id, max(a) - min(a) < 0.0051, max(b) - min(b) < 0.0051 FROM ("
            "SELECT launch_id, compute_sol_pct a, memory_sol_pct b FROM kernel_sol) "
            "GROUP BY launch_id"
        ).fetchall()
    assert len(rows) == 15
    assert all(a and b for _, a, b in rows)


def test_headroom_joins_the_timeline_with_profiled_kernels(opened: Opened) -> None:
    """ncu/block is one step of the model whose timeline is nsys/gpumetrics."""
    with opened("nsys/gpumetrics.sqlite", "ncu/block.ncu-rep") as con:
        rows = con.execute(
            "SELECT matched, count(*), sum(time_pct), sum(headroom_ns), sum(total_time_ns) "
            "FROM kernel_headroom GROUP BY 1"
        ).fetchall()
        total = con.execute("SELECT sum(dur_ns) FROM nsys_kernels").fetchone()
        names = con.execute("SELECT count(DISTINCT (name, grid, block)) FROM kernel_headroom")
        assert names.fetchone() == (38,)
    assert total is not None
    assert [(matched, count) for matched, count, *_ in rows] == [(True, 38)]
    _, _, share, headroom, time = rows[0]
    assert share == pytest.approx(100)
    assert time == total[0]
    assert 0 < headroom < time


def test_headroom_joins_csv_names_too(opened: Opened) -> None:
    """The CSV pages print shortened names; the join is the same."""
    answers = []
    for profile in ("ncu/block.ncu-rep", "ncu/block.raw.csv"):
        with opened("nsys/gpumetrics.sqlite", profile) as con:
            rows = con.execute(
                "SELECT name, grid, block, ncu_launches, round(max_sol_pct, 3) "
                "FROM kernel_headroom ORDER BY ALL"
            )
            answers.append(rows.fetchall())
    assert answers[0] == answers[1]


def test_unprofiled_kernels_have_no_headroom(opened: Opened) -> None:
    with opened("nsys/memcpy.sqlite") as con:
        rows = con.execute(
            "SELECT matched, headroom_ns, headroom_pct, max_sol_pct FROM kernel_headroom"
        )
        assert rows.fetchall() == [(False, None, None, None)] * 2


def test_thresholds_are_versioned_and_each_is_used() -> None:
    assert thresholds()["version"] >= 1
    sql = " ".join(path.read_text() for path in SQL.rglob("*.sql"))
    folders = (SQL.parent, ROOT / "pipelines")
    python = " ".join(path.read_text() for folder in folders for path in folder.rglob("*.py"))
    used = set(re.findall(r"threshold\('([a-z_.0-9]+)'\)", sql))
    assert used <= thresholds().keys()
    named = {name for name in thresholds() if f'"{name}"' in python}
    assert not thresholds().keys() - used - named - {"version"}


def test_thresholds_of_ones_own(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(thresholds.cache_clear)
    own = tmp_path / "own.toml"
    monkeypatch.setenv("PERFPIPE_THRESHOLDS", str(own))
    for text, answer in (
        ("[size]\nsmall = 1", None),
        ("[size]\nsmal = 1", "unknown threshold 'size.smal'; did you mean 'size.small'?"),
        ("[size", "own.toml"),
        ("size = 'x'", "own.toml"),
    ):
        own.write_text(text)
        thresholds.cache_clear()
        if answer is None:
            assert thresholds()["size.small"] == 1
            assert thresholds()["size.large"] == 8192
        else:
            with pytest.raises(InputError, match=answer.replace("?", ".")):
                thresholds()
    own.unlink()
    thresholds.cache_clear()
    with pytest.raises(InputError, match="cannot read thresholds"):
        thresholds()


def test_only_views_that_are_mentioned_are_made(captures: Store, ingested: Ingested) -> None:
    report = ingested("ncu/visible.ncu-rep")
    sql = "SELECT bound, subclass, count(*) FROM kernel_bottleneck GROUP BY ALL ORDER BY ALL"
    with Session.open(captures, [report], use=views()) as con:
        every = con.execute(sql).fetchall()
    with Session.open(captures, [report]) as con:
        assert con.execute(sql).fetchall() == every
        made = con.con.execute(
            "SELECT view_name FROM duckdb_views() WHERE NOT internal UNION ALL "
            "SELECT table_name FROM duckdb_tables()"
        ).fetchall()
    assert {("kernel_sol",), ("kernel_metrics",)} <= set(made)
    assert not {("kernel_findings",), ("cuda_api_sum",)} & set(made)


def test_user_sql_reads_the_store_and_nothing_else(
    captures: Store, ingested: Ingested, tmp_path: Path
) -> None:
    report = ingested("nsys/memcpy.sqlite")
    outside = tmp_path / "x.csv"
    outside.write_text("a\n1\n")
    with Session.open(captures, [report]) as con:
        counted = con.run_user_sql("SELECT count(*) FROM nsys_kernels").fetchone()
        assert counted == (10,)
        for sql in (
            f"SELECT * FROM read_csv('{outside}')",
            f"SELECT * FROM '{outside}'",
            f"COPY (SELECT 1) TO '{tmp_path}/y.csv'",
            "DROP VIEW kernel_sol",
            "SET enable_external_access = true",
            "INSTALL httpfs",
            f"EXPLAIN ANALYZE COPY (SELECT 1) TO '{captures.reports_dir / report}/manifest.json'",
            "EXPLAIN (ANALYZE) DROP VIEW kernel_sol",
            "ATTACH 'x.db'",
            "SELECT 1; SELECT 2",
            "SELECT nothing",
            "no sql",
            "",
        ):
            with pytest.raises(InputError, match="SQL"):
                con.run_user_sql(sql)
    assert not (tmp_path / "y.csv").exists()


def test_a_table_that_is_not_there_is_told_with_one_that_is(
    captures: Store, ingested: Ingested
) -> None:
    """Also one that no query has named so far, which DuckDB does not know."""
    with Session.open(captures, [ingested("nsys/memcpy.sqlite")]) as con:
        for sql in (
            "FROM kernel_sool",
            "EXPLAIN SELECT 1 FROM launches JOIN kernel_sool USING (x)",
        ):
            with pytest.raises(InputError, match="'kernel_sool'; did you mean 'kernel_sol'"):
                con.run_user_sql(sql)
        with pytest.raises(InputError, match=r"no table or view 'nope' \("):
            con.run_user_sql("FROM nope")


def test_what_a_second_query_reads_is_kept(captures: Store, ingested: Ingested) -> None:
    """A marked view is a view at first, and a table when it is read again, by name or through others."""
    report = ingested("ncu/visible.ncu-rep")

    def kinds(session: Session) -> dict[str, str]:
        sql = "SELECT table_name, table_type FROM information_schema.tables"
        return dict(session.con.execute(sql).fetchall())

    with Session.open(captures, [report]) as session:
        first = session.execute("FROM kernel_sol").fetchall()
        assert kinds(session)["kernel_sol"] == "VIEW"
        below = session.execute("FROM kernel_roofline").fetchall()
        assert session.execute("FROM kernel_sol").fetchall() == first
        assert kinds(session)["kernel_sol"] == "BASE TABLE"
        assert kinds(session)["kernel_metrics"] == "BASE TABLE"
        assert session.execute("FROM kernel_roofline").fetchall() == below
    with Session.open(captures, [report], use=["kernel_sol", "kernel_roofline"]) as session:
        assert session.execute("FROM kernel_sol").fetchall() == first
        assert session.execute("FROM kernel_roofline").fetchall() == below


#: Views that stand on each other; those above them take long to plan where nothing is kept.
STACKED = ("kernel_bottleneck", "kernel_occupancy", "kernel_roofline", "cuda_gpu_kern_sum")


def test_what_another_view_reads_is_computed_once(captures: Store, ingested: Ingested) -> None:
    """The answer is that of a session which keeps nothing."""
    ids = [ingested("nsys/memcpy.sqlite"), ingested("ncu/visible.raw.csv")]
    with Session.open(captures, ids, use=["findings", *STACKED]) as session:
        rows = session.con.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        found = {name: session.con.execute(f"FROM {name}").fetchall() for name in STACKED}
    computed = {name for (name,) in rows}
    assert {"kernel_sol", "_bottleneck_class", "kernel_findings"} <= computed
    assert {"timeline_findings", "gpu_time_budget", "_ops"} <= computed
    assert not {"findings", "_classed_ops", "_sync_calls"} & computed
    with Session.open(captures, ids) as session:
        session._materialize = False
        # Over views that stand in each other many times, this step takes most of the time.
        session.con.execute("SET disabled_optimizers = 'projection_pullup'")
        for name in STACKED:
            assert session.execute(f"FROM {name}").fetchall() == found[name], name
        assert session.con.execute(
            "SELECT count(*) FROM duckdb_tables() WHERE table_name = '_bottleneck_class'"
        ).fetchone() == (0,)
    assert all(found.values())


def test_timeline_tables_name_no_tool(captures: Store, ingested: Ingested, cli: Cli) -> None:
    """The names with nsys_ stay, for queries that have them."""
    report = ingested("nsys/eager_small.sqlite")
    with Session.open(captures, [report]) as session:
        for public, stored in aliases().items():
            rows = session.execute(
                f"SELECT (SELECT count(*) FROM {public}), count(*) FROM {stored}"
            )
            ((one, other),) = rows.fetchall()
            assert one == other
        assert session.execute("WITH kernels AS (SELECT 1 AS x) FROM kernels").fetchall() == [(1,)]
        gaps = session.execute("SELECT DISTINCT table_name FROM collection_gaps").fetchall()
        assert gaps and not any(name.startswith("nsys_") for (name,) in gaps)
    assert cli("schema", "kernels") == 0
    described = cli.out
    assert cli("schema", "nsys_kernels") == 0
    assert cli.out == described


@given(st.lists(st.integers(0, 99), max_size=20))
def test_an_alias_has_the_rows_of_its_table(starts: list[int]) -> None:
    db = Tiny()
    db.add("nsys_kernels", *({"start_ns": start} for start in starts))
    assert sorted(db.rows("SELECT start_ns FROM kernels")) == sorted((start,) for start in starts)
