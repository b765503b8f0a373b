"""SQL that somebody typed reads the store and nothing else: a list of escapes that grows."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Cli

from perfpipe.analysis.session import Session
from perfpipe.errors import InputError
from perfpipe.pipelines.agents.desk import Desk
from perfpipe.pipelines.agents.tools import call
from perfpipe.ranrecord import Ran
from perfpipe.runrecord import RunRecord, TaskResult
from perfpipe.store import Store

#: STORED and OUT stand for a file of the store and one that is not there; SECRET for one outside.
ESCAPES = (
    # what EXPLAIN ANALYZE runs
    "EXPLAIN ANALYZE COPY (SELECT 'x') TO 'STORED' (FORMAT parquet)",
    "EXPLAIN (ANALYZE) COPY (SELECT 'x') TO 'STORED' (FORMAT parquet)",
    "EXPLAIN (FORMAT json, ANALYZE /* ) SELECT 1 -- */ ) COPY (SELECT 'x') TO 'STORED'",
    "EXPLAIN (ANALYZE -- ) SELECT 1 /*\n) COPY (SELECT 'x') TO 'STORED' -- */",
    "EXPLAIN /* ANALYZE */ ANALYZE /* SELECT */ COPY (SELECT 'x') TO 'STORED'",
    "/* SELECT */ EXPLAIN ANALYZE COPY (SELECT 'x') TO 'STORED'",
    "EXPLAIN ANALYZE EXPLAIN ANALYZE COPY (SELECT 'x') TO 'STORED'",
    "explain\nanalyze\ncopy (SELECT 'x') TO 'STORED'",
    "EXPLAIN ANALYZE DROP VIEW kernel_sol",
    "EXPLAIN COPY (SELECT 1) TO 'OUT'",
    "EXPLAIN",
    "EXPLAIN ANALYZE",
    # statements within a query
    "WITH x AS (COPY (SELECT 'x') TO 'STORED' (FORMAT parquet)) SELECT 1",
    "WITH x AS MATERIALIZED (COPY (SELECT 1) TO 'OUT') FROM x",
    "SELECT (WITH x AS (COPY (SELECT 1) TO 'OUT') SELECT 1)",
    "EXPLAIN ANALYZE WITH x AS (COPY (SELECT 'x') TO 'STORED') SELECT 1",
    "FROM (WITH RECURSIVE x AS (COPY (SELECT 1) TO 'OUT') SELECT 1)",
    "WITH x AS (DELETE FROM reports RETURNING *) FROM x",
    "WITH x AS (INSERT INTO reports BY NAME (SELECT 'x' AS report_id) RETURNING *) FROM x",
    "WITH x AS (UPDATE reports SET host = 'x' RETURNING *) FROM x",
    # other statements
    "COPY (SELECT 1) TO 'OUT'",
    "COPY reports FROM 'SECRET'",
    "EXPORT DATABASE 'OUT'",
    "IMPORT DATABASE 'OUT'",
    "CREATE TABLE x AS SELECT 1",
    "CREATE SECRET (TYPE s3, KEY_ID 'x', SECRET 'x')",
    "DROP VIEW reports",
    "DELETE FROM reports",
    "INSERT INTO reports (report_id) VALUES ('x')",
    "UPDATE reports SET host = 'x'",
    "ATTACH 'OUT' AS x",
    "DETACH memory",
    "USE memory",
    "INSTALL httpfs",
    "LOAD httpfs",
    "CALL enable_logging()",
    "PRAGMA database_size",
    "CHECKPOINT",
    "VACUUM",
    "PREPARE x AS SELECT 1",
    "EXECUTE x",
    "BEGIN",
    "SET VARIABLE x = 1",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "SET allowed_directories = ['/']",
    "SET temp_directory = '/'",
    "RESET allowed_directories",
    "SELECT 1; SELECT 2",
    "SELECT 1; COPY (SELECT 1) TO 'OUT'",
    "",
    ";",
    "-- nothing",
    "no sql",
    # files and folders
    "FROM 'SECRET'",
    'FROM "SECRET"',
    "FROM read_text('SECRET')",
    "FROM read_blob('SECRET')",
    "FROM read_csv('SECRET')",
    "FROM read_json('SECRET')",
    "FROM read_parquet('STORED')",
    "FROM parquet_metadata('STORED')",
    "FROM sniff_csv('SECRET')",
    "FROM read_duckdb('OUT')",
    "FROM glob('/etc/*')",
    "SELECT (SELECT content FROM read_text('SECRET'))",
    "SELECT 1 WHERE EXISTS (FROM read_text('SECRET'))",
    "SELECT 1 ORDER BY (SELECT content FROM read_text('SECRET'))",
    "DESCRIBE FROM read_text('SECRET')",
    "SUMMARIZE 'SECRET'",
    "FROM (SUMMARIZE FROM read_csv('SECRET'))",
    "UNPIVOT (FROM read_text('SECRET')) ON content",
    "VALUES ((SELECT content FROM read_text('SECRET')))",
    "FROM read_text('STORED/../manifest.json')",
    "FROM read_csv('http://127.0.0.1/x')",
    "FROM 's3://bucket/x.parquet'",
    # queries in texts
    "FROM query('FROM read_text(''SECRET'')')",
    "FROM query_table('SECRET')",
    "FROM json_execute_serialized_sql(json_serialize_sql('FROM read_text(''SECRET'')'))",
    # this process
    "SELECT getenv('HOME')",
    "SELECT current_setting('temp_directory')",
    "FROM duckdb_settings()",
    "FROM duckdb_secrets()",
    "FROM duckdb_temporary_files()",
    "FROM duckdb_logs()",
    "FROM duckdb_databases()",
    "FROM pg_settings",
    "FROM pg_catalog.pg_settings",
    'SELECT name FROM "PG_Settings"',
    "SELECT (SELECT string_agg(setting) FROM pg_settings)",
    "SUMMARIZE pg_settings",
    "FROM pg_views",
    "FROM pg_catalog.pg_class",
    "FROM duckdb_views()",
    "FROM duckdb_views",
    "FROM system.main.duckdb_views",
    "FROM duckdb_databases",
    "FROM pragma_database_list",
    "FROM sqlite_master",
    "FROM sqlite_schema",
    "FROM main.sqlite_master",
    "FROM information_schema.views",
    "FROM system.information_schema.tables",
    "DESCRIBE information_schema.views",
    "WITH x AS (FROM pg_tables) FROM x",
    "SELECT pg_get_viewdef(view_oid) FROM range(9) AS r (view_oid)",
    "FROM enable_profiling(save_location = 'OUT')",
    "FROM enable_logging(storage = 'file', storage_path = 'OUT')",
    "FROM checkpoint()",
    "FROM force_checkpoint()",
    "FROM register_external_resource('x')",
    "FROM create_external_resource('x')",
    "FROM pandas_scan(0)",
    "FROM python_map_function(0)",
    "SELECT write_log('x')",
    "SELECT sleep_ms(100000)",
    "SELECT nothing",
)

#: What somebody asks who means no harm.
HARMLESS = (
    "SELECT count(*) FROM nsys_kernels",
    "FROM reports",
    "/* why */ SELECT 1 -- so",
    "SELECT 1;",
    "EXPLAIN FROM reports",
    "explain analyze /* it */ FROM nsys_kernels",
    "EXPLAIN ANALYZE (SELECT 1)",
    "EXPLAIN ANALYZE WITH x AS (SELECT 1) FROM x",
    "DESCRIBE reports",
    "SUMMARIZE nsys_kernels",
    "SHOW TABLES",
    "VALUES (1), (2)",
    "WITH RECURSIVE x AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM x WHERE a < 3) FROM x",
    "FROM reports, range(2), unnest([1, 2])",
    "FROM nsys_kernels PIVOT (count(*) FOR stream IN (7))",
    "UNPIVOT (SELECT 1 AS a, 2 AS b) ON a, b",
    "SELECT table_name FROM duckdb_tables()",
    "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal",
    "SELECT table_name FROM duckdb_tables",
    "FROM duckdb_functions()",
    "FROM pragma_table_info('nsys_kernels')",
    "WITH tables AS (SELECT 1 AS a), columns AS (FROM tables) FROM columns",
    "FROM main.reports, memory.reports AS r, memory.main.reports AS s",
    "FROM reports UNION ALL BY NAME FROM reports",
    "SELECT 'ä /* EXPLAIN ANALYZE COPY */', \"report_id\" FROM reports",
)


@pytest.fixture(scope="module")
def store(
    captures: Store, ingested: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Store:
    """A store of one report, with a file beside it."""
    root = tmp_path_factory.mktemp("sql")
    made = Store(root / "store")
    report = ingested("nsys/memcpy.sqlite")
    shutil.copytree(captures.reports_dir / report, made.reports_dir / report)
    (root / "secret.csv").write_text("a\n1\n")
    return made


def _content(root: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(root.rglob("*")):
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        yield str(path.relative_to(root)), digest


def _filled(sql: str, store: Store) -> str:
    (report,) = store.reports_dir.iterdir()
    for word, path in (
        ("STORED", report / "nsys_kernels.parquet"),
        ("OUT", store.reports_dir / "out.csv"),
        ("SECRET", store.root.parent / "secret.csv"),
    ):
        sql = sql.replace(word, str(path))
    return sql


@pytest.fixture(scope="module")
def session(store: Store) -> Iterator[Session]:
    """A session of all tests, as that of an agent: what one leaves behind the next one finds."""
    with Session.open(store) as opened:
        yield opened


@pytest.mark.parametrize("sql", ESCAPES)
def test_an_escape_is_refused_and_changes_nothing(sql: str, store: Store, session: Session) -> None:
    before = list(_content(store.root.parent))
    with pytest.raises(InputError, match=r"^SQL: ") as refused:
        session.run_user_sql(_filled(sql, store)).fetchall()
    assert "\n" not in str(refused.value)
    assert session.run_user_sql("SELECT count(*) FROM nsys_kernels").fetchall() == [(10,)]
    assert list(_content(store.root.parent)) == before


@pytest.mark.parametrize("sql", HARMLESS)
def test_a_query_is_let_through(sql: str, session: Session) -> None:
    assert session.run_user_sql(sql).fetchall()


def test_a_locked_connection_holds_without_the_check(store: Store) -> None:
    """DuckDB itself refuses what is outside, should a text get through."""
    outside = store.root.parent
    with Session.open(store) as session:
        session.run_user_sql("FROM reports")
        for sql in (
            f"FROM read_text('{outside}/secret.csv')",
            f"COPY (SELECT 1) TO '{outside}/out.csv'",
            f"ATTACH '{outside}/x.db'",
            f"FROM glob('{outside}/*')",
            "SET enable_external_access = true",
            "SET allowed_directories = ['/']",
            "SET lock_configuration = false",
            "INSTALL httpfs",
        ):
            with pytest.raises(Exception, match="Error"):
                session.con.execute(sql).fetchall()
    assert {path.name for path in outside.iterdir()} == {"store", "secret.csv"}


def test_the_command_refuses_in_a_sentence(store: Store, cli: Cli) -> None:
    before = list(_content(store.root))
    for sql in ESCAPES[:3]:
        assert cli("query", _filled(sql, store), "--store", store.root) == 2
        assert cli.err.startswith("perfpipe: SQL: ")
        assert cli.err.count("\n") == 1
    assert list(_content(store.root)) == before


#: What lists, explains or shows something, one query each.
LISTS = (
    "FROM duckdb_tables()",
    "FROM duckdb_columns()",
    "FROM duckdb_functions()",
    "FROM duckdb_types()",
    "FROM duckdb_schemas()",
    "FROM duckdb_keywords()",
    "FROM pragma_table_info('nsys_kernels')",
    "FROM pragma_version()",
    "SHOW TABLES",
    "SHOW ALL TABLES",
    "SHOW DATABASES",
    "SHOW VARIABLES",
    "DESCRIBE nsys_kernels",
    "SUMMARIZE reports",
    "EXPLAIN FROM nsys_kernels",
    "FROM reports",
    "FROM run_tasks",
    "FROM nsys_processes",
)


def test_agents_see_no_directory_and_no_host(store: Store) -> None:
    """Not even where a query takes paths apart."""
    host, root = "planted-node-17", store.root.parent.name
    ran = Ran("t", "t", 1.0, host=host)
    store.write_run(RunRecord("run", "w", "all", "t", tasks=(TaskResult(0, "a", {}, ran=ran),)))
    desk = Desk(store)
    apart = (f"SELECT replace(x::VARCHAR, '/', '|') AS y FROM ({sql}) AS x" for sql in LISTS)
    for sql in (*LISTS, *apart):
        text, _ = call(desk, "query", {"sql": sql, "limit": 1000})
        assert root not in text, sql
        assert host not in text, sql
    text, failed = call(desk, "query", {"sql": "EXPLAIN ANALYZE FROM nsys_kernels"})
    assert failed
    assert "EXPLAIN ANALYZE is not available to agents" in text
