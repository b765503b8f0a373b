"""Work that a person states of kernels in a report that perfpipe did not make."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Cli

Expand = Callable[[str], Path]
STATE = ("--nvtx", "gemm_fp16_4096", "-p", "n=4096", "--flops", "2*n**3", "--bytes", "3*n**2*2")
ASK = (
    "SELECT nvtx_path, mfu_pct, model_intensity, hfu_pct, flop, model_flop FROM kernel_summary "
    "JOIN ncu_launches USING (report_id, launch_id) WHERE model_flop IS NOT NULL"
)


@pytest.fixture
def ops(stored: Callable[..., list[str]]) -> str:
    (report,) = stored("ncu/ops.ncu-rep")
    return report


def test_stated_work_gives_mfu_and_intensity(cli: Cli, ops: str) -> None:
    assert cli("work", ops[:6], *STATE, "--dtype", "fp16") == 0
    assert cli.out.strip() == ops
    assert cli("query", ASK, "--format", "json") == 0
    (row,) = json.loads(cli.out)["rows"]
    assert row["nvtx_path"] == "gemm_fp16_4096"
    assert row["model_intensity"] == pytest.approx(1365.33, abs=0.005)
    assert row["flop"] == row["model_flop"] == 2 * 4096**3
    assert row["mfu_pct"] == pytest.approx(77.04, abs=0.01)
    assert row["mfu_pct"] == pytest.approx(row["hfu_pct"], rel=1e-3), "every operation is needed"
    assert cli("report", ops, "--json") == 0
    assert "1365.33" in cli.out


def test_the_narrowest_statement_wins_and_one_again_replaces(cli: Cli, ops: str) -> None:
    assert cli("work", ops, "--flops", "1e9") == 0
    assert cli("work", ops, "--nvtx", "^softmax$", "--flops", "2e9") == 0
    assert cli("work", ops, "--nvtx", "^softmax$", "--flops", "3e9") == 0
    sql = (
        "SELECT model_flop, count(*) FROM kernel_summary WHERE model_flop IS NOT NULL GROUP BY 1 "
        "ORDER BY 1"
    )
    assert cli("query", sql, "--format", "csv") == 0
    assert cli.out.split() == ["model_flop,count_star()", "1000000000.0,40", "3000000000.0,1"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "give --flops, --bytes or both"),
        (("--flops", "2*n"), "unknown name 'n'"),
        (("--flops", "2*n", "-p", "n=x"), "expected NAME=NUMBER"),
        (("--flops", "0"), "must be positive"),
        (("--flops", "import os"), "not an arithmetic expression"),
        (("--flops", "1", "--nvtx", "("), "is not a regular expression"),
        (("--flops", "1", "--dtype", "fp61"), "no known peak for type 'fp61'"),
    ],
)
def test_a_wrong_statement_is_one_sentence(
    cli: Cli, ops: str, tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    assert cli("work", ops, *arguments) == 2
    assert sentence in cli.err
    assert len(cli.err.strip().splitlines()) == 1
    assert not (tmp_path / "store" / "work").exists()


def test_an_unknown_report_or_a_damaged_statement(
    cli: Cli, ops: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert cli("work", "zzz", "--flops", "1") == 2
    assert "no run, report or batch 'zzz' in the store" in cli.err
    assert cli("work", ops, "--flops", "1") == 0
    (statement,) = (tmp_path / "store" / "work" / ops).iterdir()
    for damage in ("{", '{"schema_version": 9}', '{"schema_version": 1, "x": 2}'):
        statement.write_text(damage)
        caplog.clear()
        assert cli("query", "FROM launch_work") == 0
        assert str(statement) in caplog.text
        assert len(caplog.messages) == 1
        assert cli("store", "verify") == 2
        assert str(statement) in cli.out
