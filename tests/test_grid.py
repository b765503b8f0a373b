"""Rows on terminals of any width."""

from __future__ import annotations

import pytest

from perfpipe.pipelines.grid import grid

NAMES = ("class", "requests_per_s", "ttft_p95_ms")
ROWS = (("prefill", "4.26258", "14.6 ms"), ("decode", "16", "NULL"))
NUMERIC = (False, True, True)


def test_a_table_that_fits() -> None:
    assert grid(NAMES, ROWS, NUMERIC, 80) == [
        "class    requests_per_s  ttft_p95_ms",
        "prefill         4.26258      14.6 ms",
        "decode               16         NULL",
    ]


def test_names_are_broken_at_underscores() -> None:
    assert grid(NAMES, ROWS, NUMERIC, 30) == [
        "         requests_    ttft_",
        "class        per_s   p95_ms",
        "prefill    4.26258  14.6 ms",
        "decode          16     NULL",
    ]


def test_rows_that_do_not_fit_are_lists() -> None:
    assert grid(NAMES, ROWS, NUMERIC, 20) == [
        "class           prefill",
        "requests_per_s  4.26258",
        "ttft_p95_ms     14.6 ms",
        "",
        "class           decode",
        "requests_per_s  16",
        "ttft_p95_ms     NULL",
    ]


@pytest.mark.parametrize("width", [30, 60, 100, 200])
def test_nothing_is_cut_and_no_short_value_is_broken(width: int) -> None:
    rows = [
        ("prefill", f"void kernel<{'float, ' * 12}int>", "7.45 ms"),
        ("漢字", "k[bold]", "NULL"),
    ]
    lines = grid(("class", "kernel_name", "p50_ms"), rows, (False, False, True), width)
    shown = "".join("".join(lines).split())
    for cell in ("prefill", "7.45 ms", "漢字", "k[bold]"):
        assert any(cell in line for line in lines)
    for letter in "float":
        assert shown.count(letter) >= 12


def test_no_rows() -> None:
    assert grid(("a", "b_c"), [], (True, True), 80) == ["a  b_c"]
