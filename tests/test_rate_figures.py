"""Sweeps and searches in rates: the first screen and its figure, with the peak and the library."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from conftest import Cli

from perfpipe.templates.rate_figures import sizes_figure
from perfpipe.viewmodel import Column, Source, Table

Pages = Callable[..., Path]


def _opening(folder: Path) -> Mapping[str, Any]:
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())["opening"]
    return found


def test_a_sweep_of_a_library_shows_its_name_and_the_peaks(pages: Pages) -> None:
    page = (pages("gemm") / "report.html").read_text()
    assert (
        "fp16 peak, bf16 peak: 989 TFLOP/s" in page or "bf16 peak, fp16 peak: 989 TFLOP/s" in page
    )
    assert "fp8 peak: 1,979 TFLOP/s" in page
    assert "cuBLAS, dtype=fp16" in page
    assert "size=4096 dtype=fp16: 758.4 TFLOP/s, 77 % of the fp16 peak" in page


def test_a_search_shows_rates_and_the_peak(pages: Pages) -> None:
    folder = pages("fused_matmul_tuning")
    page = (folder / "report.html").read_text()
    assert "dense peak: 989 TFLOP/s" in page
    assert re.search(r"group_m=4 warps=4 [^<]*: 0\.2006 ms, 685 TFLOP/s", page)
    opening = _opening(folder)
    assert opening["subject"]["text"].endswith("20 of 24 configurations, findings on the fastest")
    # Suggestions are on the winner, not on the default as well.
    (own,) = {r for budget in opening["budgets"] for r in budget["source"]["reports"]}
    assert own and "similar finding" not in opening["actions"][0]["evidence"]
    tile = opening["tiles"][1]
    assert (
        tile["note"] == "default 207 us; within noise for one launch each; --set launches=5 decides"
    )


def test_shares_are_of_one_configuration(pages: Pages) -> None:
    for name in ("gemm", "vector_add", "fused_matmul_tuning", "transformer_step"):
        text = json.dumps(_opening(pages(name)))
        assert "all timelines" not in text, name


def test_two_sizes_are_compared_by_their_rates(cli: Cli, tmp_path: Path) -> None:
    workload = Path(__file__).parents[1] / "workloads" / "gemm.yaml"
    assert cli("run", workload, "--collector", "replay", "--quick", "--sizes", "512,4096") == 0, (
        cli.err
    )
    assert cli("report", "--json", "r.json") == 0, cli.err
    said = json.loads((tmp_path / "r.json").read_text())["opening"]["verdict"]["text"]
    assert said == "fp16 peaks at 758 TFLOP/s (77 % of peak) at size 4096; size 512 reaches 6.4 %"


def _table(rows: list[tuple[Any, ...]]) -> Table:
    names = ("size", "label", "series", "library", "model_flop_per_s", "peak_flop_per_s", "dtype",
             "effective_bytes_per_s", "sol_pct", "roof", "memory_level")  # fmt: skip
    columns = tuple(Column(name, name, "text") for name in names)
    return Table("Problem sizes", "", columns, tuple(rows), len(rows), Source("run_efficiency", ()))


def test_bandwidths_where_memory_is_the_roof() -> None:
    rows = [
        (size, f"size={size}", "", "own", 1e9, 6e13, "fp32", rate, pct, "memory", "dram")
        for size, rate, pct in ((10, 1e12, 25.0), (20, 3e12, 75.0))
    ]
    drawing = sizes_figure(_table(rows))
    assert drawing is not None
    svg = drawing.svg("f")
    assert "size=20: 3000 GB/s, 75 % of the DRAM bandwidth" in svg
    assert "DRAM bandwidth: 4,000 GB/s" in svg
    # Kernels of the user have no name of a library, and unknown peaks no line.
    assert "cuBLAS" not in svg
    bare = [(*row[:5], None, None, *row[7:9], "compute", None) for row in rows]
    drawing = sizes_figure(_table(bare))
    assert drawing is not None and "peak:" not in drawing.svg("f")
