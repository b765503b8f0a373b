"""The same rows to the last bit, whatever the order of the stored rows and the number of threads."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.analysis.session import Session
from perfpipe.analysis.views import views
from perfpipe.catalogue import CATALOGUE
from perfpipe.model import tables
from perfpipe.store import Store

#: Steps and sampled metrics; unified memory; two ranks; profiled launches of the first one's kernels;
#: stacks; requests to a server, which lie on the first timeline; memory of PyTorch.
INPUTS = (
    "nsys/gpumetrics.sqlite",
    "unified/prefetch.sqlite",
    "nsys/ddp_straggler_rank0.sqlite",
    "nsys/ddp_straggler_rank1.sqlite",
    "stacks/modules.sqlite",
    "ncu/block.ncu-rep",
    "ncu/visible.ncu-rep",
    "stacks/tensor_loop.sqlite",
    "serving/loads.jsonl",
    "snapshot/training.pickle",
)
PUBLIC = [name for name, view in views().items() if view.public]

#: What these captures have nothing for.
EMPTY = {
    "allocation_findings",
    "batch_limit_findings",
    "benchmark_loops",
    "cold_start_findings",
    "device_memory",
    "device_memory_course",
    "device_memory_peak",
    "engine_flush_findings",
    "engine_host_findings",
    "expert_imbalance_findings",
    "expert_loads",
    "few_blocks_findings",
    "gpu_processes",
    "gpu_use",
    "graph_ranges",
    "hang_drifts",
    "hang_mismatches",
    "hang_ranks",
    "hang_waits",
    "loop_findings",
    "narrow_blocks_findings",
    "no_work_findings",
    "operator_gemms",
    "operator_shapes",
    "pipeline_bubble_findings",
    "pipeline_schedules",
    "pipeline_stages",
    "process_use",
    "rank_pairs",
    "ras_differences",
    "ras_states",
    "run_contrasts",
    "stage_imbalance_findings",
    "starting_findings",
    "window_budget",
    "rule_cuda_memcpy_sync",
    "rule_cuda_memset_sync",
}

Rows = dict[str, list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def source(captures: Store, ingested: Callable[[str], str]) -> Iterator[duckdb.DuckDBPyConnection]:
    """The stored tables of a run with one configuration."""
    reports = [ingested(name) for name in INPUTS]
    with Session.open(captures, reports, use=[*tables(), *CATALOGUE]) as session:
        con = session.con
        con.execute("UPDATE reports SET run_id = 'run'")
        con.execute(
            "INSERT INTO run_tasks BY NAME SELECT 'run' AS run_id, 0 AS task_index, 'one' AS label, "
            "'one' AS short_label, ? AS reports, 3.0 AS median_ms, 1e12 AS flops, 1e9 AS bytes, "
            "'fp16' AS dtype, '{}' AS params",
            [reports],
        )
        con.execute(
            "INSERT INTO trials BY NAME SELECT 't' AS trial_id, '2026' AS tried_at, [] AS command, "
            "'lever' AS kind, ? AS reports, 'tf32' AS lever, 'mixed_precision' AS technique, "
            "'gain' AS verdict, 'identical' AS results, 2 AS launches, 'single_precision' AS finding, "
            "'step' AS unit, 10.0 AS gain_pct, 9.0 AS low_pct, 11.0 AS high_pct",
            [reports],
        )
        yield con


def _copy(source: duckdb.DuckDBPyConnection, seed: int, threads: int) -> duckdb.DuckDBPyConnection:
    """Return a database with the tables in an order of its own, and work dealt out in small pieces."""
    con = duckdb.connect(config={"threads": threads})
    con.execute("PRAGMA verify_parallelism")
    for name in (*tables(), *CATALOGUE):
        rows = source.sql(f"FROM {name}").to_arrow_table()
        con.register("given", rows)
        order = "" if seed == 0 else f"ORDER BY hash(number, {seed})"
        con.execute(
            f"CREATE TABLE {name} AS SELECT * EXCLUDE number "
            f"FROM (SELECT *, row_number() OVER () AS number FROM given) {order}"
        )
        con.unregister("given")
    return con


@pytest.fixture(scope="module")
def checked(source: duckdb.DuckDBPyConnection) -> tuple[Rows, list[str]]:
    """The rows of the views, each one made of those below it, and which add up doubles in no order.

    Both are of one database: planning all views takes longer than all else here.
    """
    with _copy(source, 0, 1) as con:
        con.execute(
            "CREATE MACRO whole(x) AS "
            "CASE WHEN typeof(x) IN ('DOUBLE', 'FLOAT') THEN error('a sum of doubles') ELSE x END"
        )
        session = Session(con, materialize=False)
        doubtful = []
        for name in session.closure(views()):
            if name not in views():
                session.use(name)
                continue
            view = views()[name]
            try:
                con.execute(_checked(view.sql).replace("CREATE VIEW", "CREATE TABLE", 1))
            except duckdb.InvalidInputException:
                doubtful.append(name)
                con.execute(view.sql)
            session._made.add(name)
        return {name: con.execute(f"FROM {name}").fetchall() for name in PUBLIC}, doubtful


def test_views_do_not_depend_on_threads_and_order(
    source: duckdb.DuckDBPyConnection, checked: tuple[Rows, list[str]]
) -> None:
    expected, _ = checked
    assert {name for name, rows in expected.items() if not rows} == EMPTY
    with _copy(source, 1, 4) as con:
        Session(con).use(*PUBLIC)
        found = {name: con.execute(f"FROM {name}").fetchall() for name in PUBLIC}
    # As text: NaN equals itself, and 1 is not 1.0.
    assert [name for name in PUBLIC if str(found[name]) != str(expected[name])] == []


_AGGREGATE = re.compile(r"\b(sum|avg)\(")
_WINDOW = re.compile(r"\s*(?:FILTER \(.*?\)\s*)?OVER (?:(\w+)|\()", re.DOTALL)
#: The order of rows decides the last digits of these, or the very answer.
_DOUBTFUL = re.compile(r"\b(stddev\w*|var_\w+|variance|covar_\w+|corr|regr_\w+|fsum|favg|mode)\(")


def _bare(sql: str) -> str:
    """Return SQL of the same length without texts and comments, which may hold parentheses."""
    return re.sub(r"'[^']*'|^ *--.*$", lambda m: "." * len(m[0]), sql, flags=re.MULTILINE)


def _closing(sql: str, opening: int) -> int:
    depth = 0
    for at in range(opening, len(sql)):
        depth += {"(": 1, ")": -1}.get(sql[at], 0)
        if depth == 0:
            return at
    raise ValueError(sql[opening:])


def _checked(sql: str) -> str:
    """Return a view that fails where it adds up doubles in no order."""
    for start in reversed([found.end() for found in _AGGREGATE.finditer(_bare(sql))]):
        bare = _bare(sql)
        end = _closing(bare, start - 1)
        term = sql[start:end]
        over = _WINDOW.match(bare, end + 1)
        frame = ""
        if over:
            name = over[1] and re.search(rf"WINDOW {over[1]} AS \(", bare)
            opening = name.end() - 1 if name else over.end() - 1
            frame = bare[opening : _closing(bare, opening)]
        if "ORDER BY" not in term + frame and not term.startswith("COLUMNS"):
            sql = f"{sql[:start]}whole({term}){sql[end:]}"
    return sql


def test_no_view_adds_up_doubles_in_no_order(checked: tuple[Rows, list[str]]) -> None:
    assert [view.name for view in views().values() if _DOUBTFUL.search(view.sql)] == []
    _, doubtful = checked
    assert doubtful == []


def test_a_sum_of_doubles_is_noticed(source: duckdb.DuckDBPyConnection) -> None:
    sql = _checked("CREATE VIEW a AS SELECT sum(greatest(x, 0)) FILTER (x > 0), sum(y) FROM t;")
    assert "sum(whole(greatest(x, 0))) FILTER (x > 0), sum(whole(y))" in sql
    kept = (
        "CREATE VIEW a AS SELECT sum(x ORDER BY x), sum(x) OVER w FROM t WINDOW w AS (ORDER BY y);"
    )
    assert _checked(kept) == kept


@pytest.fixture(scope="module")
def macros() -> Iterator[Session]:
    """A database with the macros alone."""
    with Session(duckdb.connect()) as session:
        yield session


@given(values=st.lists(st.integers(0, 10**14), max_size=60), random=st.randoms())
def test_exact_deviation_against_brute_force(
    macros: Session, values: list[int], random: Random
) -> None:
    sql = "SELECT exact_stddev(x) FROM (SELECT unnest(?::BIGINT[]) AS x)"
    ((ours,),) = macros.execute(sql, [values]).fetchall()
    ((again,),) = macros.execute(sql, [random.sample(values, len(values))]).fetchall()
    assert ours == again
    if len(values) > 1:
        assert ours == pytest.approx(statistics.stdev(values), rel=1e-15)
    else:
        assert ours is None


def test_deviation_of_values_beyond_128_bits(macros: Session) -> None:
    values = [5 * 10**18] + [1] * 9
    sql = "SELECT exact_stddev(x) FROM (SELECT unnest(?::BIGINT[]) AS x)"
    ((ours,),) = macros.execute(sql, [values]).fetchall()
    assert ours == pytest.approx(statistics.stdev(values), rel=1e-12)
