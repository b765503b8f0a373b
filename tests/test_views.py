from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from analysis.views import LAYERS, install, parse_view, thresholds, views
from perfpipe.model import tables
from perfpipe.query import CATALOGUE, connect, lock, run_user_sql
from perfpipe.store import Store

SQL = Path(install.__code__.co_filename).parent / "sql"
Ingested = Callable[[str], str]


def test_every_file_is_a_view() -> None:
    files = {f"{p.parent.name}/{p.name}" for p in SQL.glob("*/*.sql")}
    assert files == {view.path for view in views().values()}
    assert {p.name for p in SQL.iterdir() if p.is_dir()} == set(LAYERS)


@pytest.mark.parametrize("view", views().values(), ids=lambda view: view.name)
def test_views_keep_the_house_rules(view: object, store: Store) -> None:
    from analysis.views import View

    assert isinstance(view, View)
    assert view.doc
    statement = re.sub(r"--[^\n]*", "", view.sql)
    assert not re.search(r"\b(INSERT|DROP|DELETE|UPDATE|ATTACH|COPY|INSTALL|LOAD)\b", statement)
    assert statement.count(";") == 1
    if view.public:
        final = statement[statement.rindex("\nSELECT") :]
        assert "*" not in final.split("FROM")[0].replace(" * ", " "), "SELECT * in a public view"
        assert "ORDER BY" in final
    lower = {
        name for name, v in views().items() if LAYERS.index(v.layer) > LAYERS.index(view.layer)
    }
    assert not view.uses(lower), "a lower layer names a higher one"
    assert len(view.sql.splitlines()) <= 120


def test_every_column_of_a_public_view_is_documented(store: Store) -> None:
    with connect(store) as con:
        for view in views().values():
            described = con.execute(f"DESCRIBE {view.name}").fetchall()
            if view.public:
                assert [name for name, *_ in described] == list(view.columns)
            assert not any(kind == "HUGEINT" for _, kind, *_ in described), view.name


def test_comments_are_in_the_catalogue(store: Store) -> None:
    names = [*tables(), *CATALOGUE, *(v.name for v in views().values() if v.public)]
    with connect(store) as con:
        missing = con.execute(
            "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal "
            "AND comment IS NULL AND NOT starts_with(table_name, '_')"
        ).fetchall()
        documented = {
            name
            for (name,) in con.execute(
                "SELECT view_name FROM duckdb_views() WHERE comment IS NOT NULL UNION ALL "
                "SELECT table_name FROM duckdb_tables() WHERE comment IS NOT NULL"
            ).fetchall()
        }
    assert missing == []
    assert set(names) <= documented


def test_a_view_of_another_form_is_refused() -> None:
    with pytest.raises(ValueError, match="expected CREATE VIEW a AS"):
        parse_view("-- x\nCREATE VIEW b AS\nSELECT 1;", "ncu", "a.sql")


def test_continued_column_comments_are_joined() -> None:
    text = "-- About a.\n--\n-- x: first\n--   second\nCREATE VIEW a AS\nSELECT 1 AS x;"
    assert parse_view(text, "ncu", "a.sql").columns == {"x": "first second"}


def test_bottleneck_equals_the_rule_of_ncu_on_every_launch(
    captures: Store, ingested: Ingested
) -> None:
    reports = [ingested(f"ncu/{name}.ncu-rep") for name in ("visible", "ops", "block")]
    with connect(captures, reports) as con:
        counts = con.execute(
            "SELECT agrees_with_ncu, count(*) FROM kernel_bottleneck GROUP BY 1"
        ).fetchall()
    assert counts == [(True, 15 + 41 + 95)]


#: (compute, memory, waves) -> (bound, verdict), on each side of every threshold.
POINTS = [
    (80.0, 10.0, 2.0, "compute", "High Throughput"),
    (10.0, 80.0, 2.0, "memory", "High Throughput"),
    (79.99, 10.0, 2.0, "compute", "High Compute Throughput"),
    (10.0, 79.99, 2.0, "memory", "High Memory Throughput"),
    (60.0, 50.01, 2.0, "balanced", "Balanced Throughput"),
    (60.0, 50.0, 2.0, "compute", "High Compute Throughput"),
    (50.0, 60.0, 2.0, "memory", "High Memory Throughput"),
    (59.99, 59.99, 1.0, "latency", "Latency Issue"),
    (59.99, 59.99, 0.99, "launch", "Small Grid"),
    (59.99, 0.0, None, "latency", "Latency Issue"),
    (None, 50.0, 2.0, "unknown", None),
    (50.0, None, 2.0, "unknown", None),
    (None, None, None, "unknown", None),
]


@pytest.mark.parametrize(("compute", "memory", "waves", "bound", "verdict"), POINTS)
def test_bottleneck_at_the_thresholds(
    compute: float | None,
    memory: float | None,
    waves: float | None,
    bound: str,
    verdict: str | None,
) -> None:
    with duckdb.connect() as con:
        _one_launch(con, compute, memory, waves)
        row = con.execute("SELECT bound, verdict, confidence FROM kernel_bottleneck").fetchone()
    assert row == (bound, verdict, None if bound == "unknown" else "high")


def _one_launch(
    con: duckdb.DuckDBPyConnection,
    compute: float | None,
    memory: float | None,
    waves: float | None,
) -> None:
    types = {"string": "VARCHAR", "int64": "BIGINT", "double": "DOUBLE"}
    for table in tables().values():
        columns = ", ".join(f"{c.name} {types[c.type]}" for c in table.columns)
        con.execute(f"CREATE TABLE {table.name} ({columns})")
    for name, spec in CATALOGUE.items():
        con.execute(f"CREATE TABLE {name} ({', '.join(f'{c} {t}' for c, t, _ in spec)})")
    install(con)
    con.execute("INSERT INTO ncu_launches BY NAME SELECT 'r' AS report_id, 0 AS launch_id")
    values = {
        "sm__throughput.avg.pct_of_peak_sustained_elapsed": compute,
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": memory,
        "launch__waves_per_multiprocessor": waves,
    }
    for metric, value in values.items():
        if value is not None:
            con.execute("INSERT INTO ncu_metrics VALUES ('r', 0, ?, ?, NULL, '%')", [metric, value])


def test_sol_equals_the_details_page(captures: Store, ingested: Ingested) -> None:
    report, page = ingested("ncu/visible.ncu-rep"), ingested("ncu/visible.details.csv")
    with connect(captures, [report, page]) as con:
        rows = con.execute(
            "SELECT launch_id, max(a) - min(a) < 0.0051, max(b) - min(b) < 0.0051 FROM ("
            "SELECT launch_id, compute_sol_pct a, memory_sol_pct b FROM kernel_sol) "
            "GROUP BY launch_id"
        ).fetchall()
    assert len(rows) == 15
    assert all(a and b for _, a, b in rows)


def test_headroom_joins_the_timeline_with_profiled_kernels(
    captures: Store, ingested: Ingested
) -> None:
    """ncu/block is one step of the model whose timeline is nsys/gpumetrics."""
    timeline, profile = ingested("nsys/gpumetrics.sqlite"), ingested("ncu/block.ncu-rep")
    with connect(captures, [timeline, profile]) as con:
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


def test_headroom_joins_csv_names_too(captures: Store, ingested: Ingested) -> None:
    """The CSV pages print shortened names; the join is the same."""
    timeline = ingested("nsys/gpumetrics.sqlite")
    answers = []
    for profile in ("ncu/block.ncu-rep", "ncu/block.raw.csv"):
        with connect(captures, [timeline, ingested(profile)]) as con:
            rows = con.execute(
                "SELECT name, grid, block, ncu_launches, round(max_sol_pct, 3) "
                "FROM kernel_headroom ORDER BY ALL"
            )
            answers.append(rows.fetchall())
    assert answers[0] == answers[1]


def test_unprofiled_kernels_have_no_headroom(captures: Store, ingested: Ingested) -> None:
    with connect(captures, [ingested("nsys/memcpy.sqlite")]) as con:
        rows = con.execute(
            "SELECT matched, headroom_ns, headroom_pct, max_sol_pct FROM kernel_headroom"
        )
        assert rows.fetchall() == [(False, None, None, None)] * 2


def test_thresholds_are_versioned() -> None:
    assert thresholds()["version"] >= 1
    used = set()
    for view in views().values():
        used |= set(re.findall(r"name = '([a-z_.]+)'", view.sql))
    assert used <= thresholds().keys()


def test_user_sql_reads_the_store_and_nothing_else(
    captures: Store, ingested: Ingested, tmp_path: Path
) -> None:
    from perfpipe.errors import InputError

    report = ingested("nsys/memcpy.sqlite")
    outside = tmp_path / "x.csv"
    outside.write_text("a\n1\n")
    with connect(captures, [report]) as con:
        lock(con, captures)
        assert run_user_sql(con, "SELECT count(*) FROM nsys_kernels").fetchone() == (10,)
        for sql in (
            f"SELECT * FROM read_csv('{outside}')",
            f"SELECT * FROM '{outside}'",
            f"COPY (SELECT 1) TO '{tmp_path}/y.csv'",
            "DROP VIEW kernel_sol",
            "SET enable_external_access = true",
            "INSTALL httpfs",
            "ATTACH 'x.db'",
            "SELECT 1; SELECT 2",
            "SELECT nothing",
            "no sql",
            "",
        ):
            with pytest.raises(InputError, match="SQL"):
                run_user_sql(con, sql)
    assert not (tmp_path / "y.csv").exists()
