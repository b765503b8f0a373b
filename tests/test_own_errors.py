"""Errors of DuckDB in queries of perfpipe's own: whose fault they are."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from conftest import ROOT, Cli

from perfpipe.analysis.views import views
from perfpipe.database import own_error
from perfpipe.errors import QueryFailed, StoreError
from perfpipe.model import tables
from perfpipe.snapshot import Files


def test_duckdb_is_required_in_versions_that_answer() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (needed,) = [one for one in project["dependencies"] if one.startswith("duckdb")]
    assert {*needed.removeprefix("duckdb").split(",")} == {">=2.0.1", "<3"}


@pytest.mark.parametrize(
    "words", [("report", "--md", "-"), ("query", "FROM kernel_sol"), ("report", "--findings")]
)
def test_a_failing_query_is_named_with_the_version_of_duckdb(
    words: tuple[str, ...],
    stored: Callable[..., list[str]],
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored("ncu/visible.ncu-rep", "ncu/ops.ncu-rep")
    sql = "CREATE VIEW kernel_sol AS\nSELECT nosuch AS report_id FROM ncu_launches;"
    broken = replace(views()["kernel_sol"], sql=sql)
    monkeypatch.setitem(views(), "kernel_sol", broken)
    assert cli(*words) == 1
    assert "perfpipe's own query 'FROM kernel_sol' failed under DuckDB " in cli.err
    assert f"DuckDB {duckdb.__version__}: Binder Error" in cli.err
    assert "perfpipe needs duckdb" in cli.err
    assert "store" not in cli.err
    assert cli.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (duckdb.IOException("x"), StoreError, "cannot read the store: x; 'perfpipe store verify'"),
        (duckdb.NotImplementedException("x"), QueryFailed, "own query 'FROM v' failed under"),
        (duckdb.ConversionException("x"), QueryFailed, "own query 'FROM v' failed under"),
        (duckdb.InternalException("x"), QueryFailed, "own query 'FROM v' failed under"),
    ],
)
def test_the_store_is_blamed_for_files_only(
    error: duckdb.Error, kind: type[Exception], said: str
) -> None:
    found = own_error(error, "FROM v")
    assert type(found) is kind
    assert said in str(found)
    assert ("store" in str(found)) == (kind is StoreError)


def test_a_file_that_vanishes_is_a_fault_of_the_store(
    stored: Callable[..., list[str]],
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Each time between being listed and being read."""
    (report,) = stored("nsys/memcpy.sqlite")

    def files(*_: object) -> list[Files]:
        table = tables()["launches"]
        return [Files((tmp_path / "gone.parquet",), table.signature, None)]

    monkeypatch.setattr("perfpipe.snapshot.Snapshot.files", files)
    assert cli("query", "FROM launches", "--report", report) == 2
    assert "gone.parquet" in cli.err
    assert "under DuckDB" not in cli.err
    assert cli.err.count("\n") == 1
