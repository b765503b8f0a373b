"""Sizes of a sweep: rates, classes, and a sentence on how the class changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Cli, Tiny

from perfpipe.analysis import runs
from perfpipe.analysis.runs import class_change
from perfpipe.analysis.session import Session
from perfpipe.store import Store


def test_a_sweep_by_size(
    cli: Cli, replayed: Callable[[str], Path], pages: Callable[..., Path]
) -> None:
    """The recorded GEMM: too small at 512 and 1024, on the tensor cores from 2048."""
    store = replayed("gemm")
    assert cli("query", "FROM run_efficiency", "--format", "json", "--store", store) == 0
    rows = json.loads(cli.out)["rows"]
    assert [(row["size"], row["size_class"], row["bound"], row["subclass"]) for row in rows] == [
        (512, "small", "launch", "small_grid"),
        (1024, "small", "latency", "small_grid"),
        (2048, "small", "compute", "tensor"),
        (4096, "medium", "compute", "tensor"),
        (8192, "large", "compute", "tensor"),
        (8192, "large", "compute", "tensor"),
        (8192, "large", "compute", "tensor"),
        (16384, "large", "compute", "tensor"),
    ]
    for row in rows:
        n, seconds = row["size"], row["median_ms"] / 1e3
        width, peak = (1, 1979e12) if row["dtype"] == "fp8" else (2, 989.4e12)
        assert row["intensity"] == pytest.approx(2 * n / 3 / width), "2 n^3 over 3 n^2 elements"
        assert row["intensity_band"] == "compute"
        assert row["memory_level"] == ("dram" if n >= 4096 else "l2")
        if n >= 4096:
            assert row["ridge"] == pytest.approx(peak / 4.8e12, rel=1e-3)
        assert row["roof"] == "compute"
        assert row["model_flop_per_s"] == pytest.approx(2 * n**3 / seconds)
        assert row["mfu_pct"] == pytest.approx(100 * 2 * n**3 / seconds / peak, rel=1e-3)
        assert row["effective_bytes_per_s"] == pytest.approx(3 * width * n**2 / seconds)
        # Timed warm and under load, counted by ncu alone and with cold caches.
        assert row["hfu_pct"] == pytest.approx(row["mfu_pct"], rel=0.2)
    document = json.loads((pages("gemm") / "report.json").read_text())
    sizes = next(
        table
        for section in document["sections"]
        for table in section["tables"]
        if table["title"] == "Problem sizes"
    )
    assert sizes["doc"].endswith(
        "The bound changes with size: launch (small grid) at 512, latency (small grid) at 1024, "
        "compute (tensor) from 2048."
    )


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([], ""),
        ([(512, "latency", None)], ""),
        ([(None, "latency", None), (512, None, None)], ""),
        (
            [(1, "memory", "l2"), (2, "memory", "l2")],
            "The bound is the same at every size: memory (l2).",
        ),
        (
            [
                (1, "launch", "short"),
                (2, "launch", "short"),
                (4, "memory", "dram"),
                (8, "compute", None),
            ],
            "The bound changes with size: launch (short) at 1 to 2, memory (dram) at 4, compute from 8.",
        ),
        (
            [(1, "memory", "l2"), (1, "compute", "fma"), (2, "memory", "l2")],
            "The bound changes with size: compute (fma) or memory (l2) at 1, memory (l2) from 2.",
        ),
    ],
)
def test_how_the_class_changes(
    rows: list[tuple[int | None, str | None, str | None]], sentence: str
) -> None:
    assert class_change(rows) == sentence


def test_groups_of_sizes_on_both_sides() -> None:
    db = Tiny()
    for index, size in enumerate((1, 2048, 2049, 8191, 8192)):
        params = json.dumps({"m": size, "k": 1, "dtype": "fp16"})
        db.add("run_tasks", {"run_id": "r", "task_index": index, "params": params, "reports": []})
    db.add("run_tasks", {"run_id": "r", "task_index": 9, "params": "{}", "reports": []})
    assert db.rows("SELECT size, size_class FROM run_efficiency ORDER BY task_index") == [
        (1, "small"),
        (2048, "small"),
        (2049, "medium"),
        (8191, "medium"),
        (8192, "large"),
        (None, None),
    ]


def test_data_that_fits_in_l2_is_not_held_against_dram(replayed: Callable[[str], Path]) -> None:
    """12 MB of a vector addition stay in L2 from one iteration to the next."""
    with Session.open(Store(replayed("vector_add"))) as con:
        ((run_id,),) = con.execute("SELECT run_id FROM runs").fetchall()
        rows = con.execute(
            "SELECT size, memory_level, sol_pct, memory_roof_flop_per_s / intensity "
            "FROM run_efficiency WHERE series = 'block=1024' ORDER BY size"
        ).fetchall()
        told = runs.reach(con.con, run_id)
    assert [(size, level) for size, level, *_ in rows] == [
        *((size, "l2") for size in (65536, 1048576, 4194304)),
        *((size, "dram") for size in (16777216, 268435456)),
    ]
    assert {round(roof) for _, level, _, roof in rows if level == "dram"} == {4800000000000}
    assert all(roof > 8e12 for _, level, _, roof in rows if level == "l2")
    assert told is not None and "of L2 bandwidth; " in told and "of DRAM bandwidth" in told
    assert "vendor" not in told
