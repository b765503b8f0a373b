"""Timeline views: a few rows in, what they say out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, Opened, Tiny

from perfpipe.analysis.knowledge import techniques

Ingested = Callable[[str], str]
Expand = Callable[[str], Path]


def _kernel(start: int, end: int, call: int, returned: int, **more: Any) -> dict[str, Any]:
    return {"kind": "kernel", "name": "k", "device": 0, "stream": 7, "pid": 1, "tid": 1,
            "correlation_id": call, "start_ns": start, "end_ns": end, "api_name": "cudaLaunchKernel",
            "api_start_ns": call, "api_end_ns": returned, **more}  # fmt: skip


def test_launching_of_a_gpu() -> None:
    db = Tiny()
    db.add(
        "launches",
        _kernel(0, 100_000, -20, -10),
        _kernel(100_040, 100_050, 100_010, 100_020),
        _kernel(100_050, 110_049, 100_030, 100_034),
        _kernel(110_050, 120_050, 100_060, 100_070, graph_node_id=5),
    )
    rows = db.rows("SELECT * FROM launch_summary")
    assert [column[0] for column in db.con.description or []][2] == "kernels"
    assert rows == [
        ("r", 0, 4, 4, 4 / 0.12005, 10.0, 34, 18.0, 2, 50.0, 100.0 * 10_009 / 120_009, 0, 1, 40,
         100 * 40 / 120_050)
    ]  # fmt: skip


def test_collectives_and_their_overlap() -> None:
    db = Tiny()
    db.add(
        "launches",
        _kernel(0, 100, -9, -8),
        _kernel(50, 150, -7, -6, name="ncclDevKernel_AllReduce", stream=8),
        _kernel(140, 160, -5, -4, name="ncclDevKernel_AllReduce", stream=9),
        _kernel(200, 210, 5, 6, name="ncclDevKernel_Broadcast"),
    )
    assert db.rows("SELECT * EXCLUDE report_id FROM comm_overlap") == [
        (0, 120, 100, 50, 70, 100 * 50 / 120)
    ]
    assert db.con.execute("SELECT 1").fetchone()
    db = Tiny()
    db.add("launches", _kernel(0, 10, -9, -8))
    assert db.rows("SELECT communication_ns, exposed_ns, overlap_pct FROM comm_overlap") == [
        (0, 0, None)
    ]


def test_collectives_by_operation() -> None:
    db = Tiny()
    db.add(
        "launches",
        _kernel(50, 150, -7, -6, name="ncclDevKernel_AllReduce"),
        _kernel(200, 220, -5, -4, name="ncclDevKernel_AllReduce"),
        _kernel(300, 380, 5, 6, name="ncclDevKernel_Broadcast"),
        _kernel(400, 500, 7, 8),
    )
    assert db.rows(
        "SELECT operation, count, total_ns, share_pct, med_ns, min_ns, max_ns FROM nccl_collectives"
    ) == [
        ("ncclDevKernel_AllReduce", 2, 120, 60.0, 60.0, 20, 100),
        ("ncclDevKernel_Broadcast", 1, 80, 40.0, 80.0, 80, 80),
    ]


def test_copies_by_kind_of_memory() -> None:
    db = Tiny()
    copy = {
        "device": 0,
        "pid": 1,
        "operation": "[CUDA memcpy Host-to-Device]",
        "dst_kind": "Device",
    }
    db.add(
        "nsys_memory_ops",
        {
            **copy,
            "src_kind": "Pageable",
            "start_ns": 0,
            "end_ns": 100,
            "dur_ns": 100,
            "bytes": 1000,
        },
        {**copy, "src_kind": "Pinned", "start_ns": 100, "end_ns": 150, "dur_ns": 50, "bytes": 1000},
        {**copy, "src_kind": "Pinned", "start_ns": 160, "end_ns": 160, "dur_ns": 0, "bytes": None},
    )
    db.add(
        "launches", _kernel(120, 140, -9, -8), _kernel(125, 145, -7, -6), _kernel(90, 101, -5, -4)
    )
    for start, end in ((0, 100), (100, 150), (160, 160)):
        db.add(
            "launches", {"kind": "memcpy", "pid": 1, "device": 0, "start_ns": start, "end_ns": end}
        )
    assert db.rows(
        "SELECT src_kind, count, total_ns, bytes, bytes_per_s, covered_pct, pageable "
        "FROM memory_op_summary"
    ) == [
        ("Pageable", 1, 100, 1000, 1e10, 10.0, True),
        ("Pinned", 2, 50, 1000, 2e10, 52.0, False),
    ]


@pytest.mark.parametrize("window", ["steady", "whole", "startup"])
def test_copies_are_those_of_the_window(opened: Opened, window: str) -> None:
    with opened("nsys/h2d.sqlite", window=window) as con:
        found = con.execute(
            "SELECT operation, src_kind, dst_kind, count, total_ns, bytes FROM memory_op_summary "
            "ORDER BY ALL"
        ).fetchall()
        expected = con.execute(
            "SELECT operation, src_kind, dst_kind, count(*), sum(dur_ns), sum(bytes) "
            "FROM nsys_memory_ops AS m JOIN analysis_windows AS w USING (report_id) "
            "WHERE m.start_ns >= w.start_ns AND (m.start_ns < w.end_ns OR w.kind = 'whole') "
            "GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        (kind, every) = (
            con.execute(
                "SELECT any_value(kind), (SELECT count(*) FROM nsys_memory_ops) FROM analysis_windows"
            ).fetchone()
            or ()
        )
    assert found == expected
    assert kind == window
    assert (sum(row[3] for row in found) == every) == (window == "whole")


def test_a_kernel_without_length_hides_no_other() -> None:
    db = Tiny()
    copy = {"device": 0, "pid": 1, "operation": "[CUDA memset]", "bytes": 8}
    db.add("nsys_memory_ops", {**copy, "start_ns": 15, "end_ns": 25, "dur_ns": 10})
    db.add("launches", _kernel(0, 5, -9, -8), _kernel(10, 10, -7, -6), _kernel(10, 30, -5, -4))
    assert db.rows("SELECT covered_pct FROM memory_op_summary") == [(100.0,)]


def test_findings_name_a_technique_for_every_contributor(opened: Opened) -> None:
    sql = (
        "SELECT bound, list(technique ORDER BY rank), any_value(largest_gap) "
        "FROM timeline_findings GROUP BY 1"
    )
    expected = {
        "eager_small": {"launch_overhead": ["cuda_graphs", "larger_training_batch"]},
        "graph_node": {"kernel_gap": ["dependent_launch"]},
        "h2d": {"transfer": ["pinned_prefetch"]},
        "ddp_comm_rank1": {"communication": ["overlap_communication", "bucket_sizes"]},
        "ops": {"sync": ["fewer_syncs"]},
        "compute": {},
    }
    for capture, found in expected.items():
        with opened(f"nsys/{capture}.sqlite") as con:
            rows = con.execute(sql).fetchall()
        assert {bound: names for bound, names, _ in rows} == found, capture
        assert all(gap for bound, _, gap in rows if bound in ("sync", "launch_overhead"))


def test_every_contributor_has_a_technique() -> None:
    bounds = {bound for item in techniques().values() for bound, *_ in item.classes}
    assert {
        "communication",
        "transfer",
        "launch_overhead",
        "sync",
        "loading",
        "kernel_gap",
        "host",
    } <= bounds


def test_a_timeline_that_computes_says_what_to_profile(texts: Callable[..., Path]) -> None:
    folder = texts("nsys/compute.sqlite")
    document = json.loads((folder / "report.json").read_text())
    (text,) = [fact["text"] for fact in document["summary"] if fact["name"] == "Next"]
    assert re.fullmatch(
        r"Profile the 14 kernels that take 85 % of the steps' kernel time: perfpipe plan [0-9a-f]{16} "
        "prints the ncu command",
        text,
    )
    (finding,) = document["findings"]
    assert "pointwise kernels outside matrix products" in finding["claim"]


def test_time_without_advice_is_not_passed_over(cli: Cli, tmp_path: Path) -> None:
    """A step of which only the beginning uses the GPU."""
    common = {"ph": "X", "pid": 1, "tid": 1}
    of = {"args": {"correlation": 1, "device": 0, "stream": 7}}
    events = [
        {**common, "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 0, "dur": 1000},
        {**common, **of, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 1, "dur": 5},
        {**common, **of, "cat": "kernel", "name": "k", "ts": 8, "dur": 40},
    ]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    assert cli("ingest", tmp_path / "trace.json") == 0, cli.err
    assert cli("report", "--findings") == 0, cli.err
    assert "time before the first operation of a step, or after the last takes 95 %" in cli.out


def test_a_timeline_without_findings_says_so(pages: Callable[..., Path]) -> None:
    """Traced whole, a graph does not show its kernels."""
    folder = pages("nsys/graph_whole.sqlite")
    document = json.loads((folder / "report.json").read_text())
    assert document["findings"] == []
    assert (
        document["nothing_found"]
        == "no category other than compute takes 10 % or more of the analyzed time"
    )
    nothing = document["nothing_found"].replace("'", "&#39;")
    assert f"None: {nothing}." in (folder / "report.html").read_text()


def test_a_report_of_a_timeline_alone(cli: Cli, stored: Callable[..., list[str]]) -> None:
    stored("nsys/eager_small.sqlite")
    assert cli("report", "--md", "-") == 0
    assert "85 % launch overhead" in cli.out
    assert "GPU time budget" in cli.out
    assert "Launch the step as a CUDA graph" in cli.out
    assert "longest interval: 690.9 us before" in cli.out.replace("\\", "")


def test_a_capture_without_gpu_work_has_no_budget() -> None:
    db = Tiny()
    for view in ("gpu_time_budget", "gpu_idle_gaps", "timeline_bottleneck", "timeline_findings"):
        assert Tiny().rows(f"SELECT * FROM {view}") == []
    assert db.rows("SELECT * FROM launch_summary") == []


def test_copies_against_their_links(opened: Opened) -> None:
    """256 MiB copies between host and an H200, pinned and pageable."""
    with opened("nsys/memcpy.sqlite", window="whole") as con:
        rows = con.execute(
            "SELECT operation, src_kind, dst_kind, link, link_bytes_per_s, link_pct "
            "FROM memory_op_summary WHERE bytes > 1e6"
        ).fetchall()
    found = {(o, s, d): (link, peak, share) for o, s, d, link, peak, share in rows}
    up, down = "[CUDA memcpy Host-to-Device]", "[CUDA memcpy Device-to-Host]"
    assert {rest[:2] for rest in found.values()} == {("PCIe", 64e9)}
    assert 80 < found[up, "Pinned", "Device"][2] < 95
    assert found[up, "Pageable", "Device"][2] < 20
    assert found[down, "Device", "Pageable"][2] < 20


@pytest.mark.parametrize(
    ("source", "busy_us", "told"),
    [("python tracing", 2, True), ("py-spy", 2, False), ("python tracing", 90, False)],
)
def test_recording_every_python_call_slows_the_host(source: str, busy_us: int, told: bool) -> None:
    db = Tiny()
    for call in range(20):
        at = 100_000 * (call + 1)
        db.add(
            "launches",
            {"pid": 1, "tid": 1, "kind": "kernel", "name": "k", "device": 0, "call_id": call,
             "api_start_ns": at, "api_end_ns": at + 5000,
             "start_ns": at + 6000, "end_ns": at + 6000 + 1000 * busy_us},
        )  # fmt: skip
    db.add("host_samples", {"time_ns": 0, "pid": 1, "tid": 1, "source": source})
    ((notes,),) = db.rows("SELECT notes FROM timeline_bottleneck")
    assert any("every Python call" in note for note in notes) == told


@pytest.mark.parametrize(
    ("gpu", "operation", "expected"),
    [
        ("NVIDIA H200", "[CUDA memcpy Device-to-Device]", ("DRAM", 2.4e12)),
        ("NVIDIA H200", "[CUDA memcpy Peer-to-Peer]", ("NVLink", 450e9)),
        ("NVIDIA L4", "[CUDA memcpy Peer-to-Peer]", ("NVLink", None)),
        ("NVIDIA H200", "[CUDA memset]", (None, None)),
        ("A GPU that nobody knows", "[CUDA memcpy Host-to-Device]", (None, None)),
    ],
)
def test_links_of_operations(gpu: str, operation: str, expected: tuple[str, float]) -> None:
    db = Tiny()
    db.con.execute("UPDATE reports SET gpu = ?, sm_count = NULL", [gpu])
    row = {"pid": 1, "device": 0, "start_ns": 0, "end_ns": 10}
    db.add("launches", {**row, "kind": "memcpy", "name": operation})
    db.add("nsys_memory_ops", {**row, "operation": operation, "dur_ns": 10, "bytes": 100})
    assert db.rows("SELECT link, link_bytes_per_s, bytes_per_s FROM memory_op_summary") == [
        (*expected, 1e10)
    ]
