"""The expert rules: what `nsys analyze` finds, with its known faults mended."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import DATA, Cli, Opened, Tiny

from perfpipe.analysis.thresholds import thresholds

Ingested = Callable[[str], str]
Stored = Callable[..., list[str]]
ANSWERS = sorted((DATA / "nsys" / "analyze").glob("*.csv"))

#: nsys's header -> our column, and how nsys prints it.
COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "Duration (ns)": ("duration_ns", str),
    "Start (ns)": ("start_ns", str),
    "In-Use (%)": ("in_use_pct", str),
    "Src Kind": ("src_kind", str),
    "Dst Kind": ("dst_kind", str),
    "Bytes (MB)": ("bytes", lambda size: f"{size / 1e6:.3f}"),
    "API Name": ("api_name", str),
    "Stream ID": ("stream_id", str),
    "TID": ("tid", str),
}


@pytest.fixture
def gaps_of_a_millisecond(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[None]:
    """NVIDIA's answers were asked for with gap=1."""
    own = tmp_path / "own.toml"
    own.write_text("[analyze]\ngap_ns = 1000000\n")
    monkeypatch.setenv("PERFPIPE_THRESHOLDS", str(own))
    thresholds.cache_clear()
    yield
    thresholds.cache_clear()


@pytest.mark.parametrize("path", ANSWERS, ids=lambda path: path.stem)
def test_equal_to_nsys(path: Path, opened: Opened, gaps_of_a_millisecond: None) -> None:
    match = re.fullmatch(r"(\w+?)_analyze_(\w+)", path.stem)
    assert match is not None
    capture, rule = match.groups()
    with path.open(newline="") as file:
        header, *printed = [row for row in csv.reader(file) if row]
    known = [(index, *COLUMNS[name]) for index, name in enumerate(header) if name in COLUMNS]
    assert len(known) >= 2
    with opened(f"nsys/{capture}.sqlite") as con:
        rows = con.execute(
            f"SELECT {', '.join(column for _, column, _ in known)} FROM rule_{rule}"
        ).fetchall()
    ours = [[show(v) for v, (_, _, show) in zip(row, known, strict=True)] for row in rows]
    assert ours == [[row[index] for index, _, _ in known] for row in printed]


def test_a_rule_that_found_nothing_there_finds_nothing_here(
    opened: Opened, gaps_of_a_millisecond: None
) -> None:
    answered = {path.stem for path in ANSWERS}
    for capture in ("compute", "graph_node", "h2d", "eager_small", "memcpy"):
        with opened(f"nsys/{capture}.sqlite") as con:
            count = con.execute("SELECT count(*) FROM rule_gpu_gaps").fetchone()
        assert (count != (0,)) == (f"{capture}_analyze_gpu_gaps" in answered), capture


def test_what_nsys_misses() -> None:
    """Joins across processes, the driver's copies, event synchronisation, graphs as a whole."""
    db = Tiny()
    copy = {"operation": "[CUDA memcpy Host-to-Device]", "src_kind": "Pageable", "dst_kind": "Device",
            "device": 0, "correlation_id": 1}  # fmt: skip
    db.add(
        "nsys_memory_ops",
        {**copy, "pid": 1, "start_ns": 5, "dur_ns": 10},
        {**copy, "pid": 2, "start_ns": 6, "dur_ns": 20},
    )
    call = {"tid": 1, "correlation_id": 1, "api": "driver"}
    db.add(
        "nsys_api_calls",
        {**call, "pid": 1, "name": "cuMemcpyHtoDAsync", "recorded_name": "cuMemcpyHtoDAsync_v2"},
        {**call, "pid": 2, "name": "cudaMemcpy", "recorded_name": "cudaMemcpy_v3020"},
        {**call, "pid": 2, "name": "cudaEventSynchronize", "recorded_name": "cudaEventSynchronize_v3020",
         "correlation_id": 7, "start_ns": 0, "end_ns": 9, "dur_ns": 9},
    )  # fmt: skip
    assert db.rows("SELECT pid, duration_ns FROM rule_cuda_memcpy_async") == [(1, 10)]


def test_the_command(cli: Cli, stored: Stored) -> None:
    stored("nsys/memcpy.sqlite")
    assert cli("report", "--rules", "--limit", "2") == 0
    assert "cuda_memcpy_async: asynchronous copies" in cli.out
    assert "cuda_memcpy_sync: copies that block the host: none" in cli.out
    assert "... 8 more (raise --limit)" in cli.out
    assert cli("report", "--rules", "-r", "cuda_api_sync", "--json") == 0
    document = json.loads(cli.out)
    assert list(document["rules"]) == ["cuda_api_sync"]
    assert document["rules"]["cuda_api_sync"][0]["duration_ns"] == 18457
    assert cli("report", "--rules", "-r", "gpu_gap") == 2
    assert "did you mean 'gpu_gaps'?" in cli.err
