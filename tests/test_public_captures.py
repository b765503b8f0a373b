"""What captures of other people's programs, from public repositories, are told."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from conftest import Cli, Tiny

from perfpipe.analysis.session import Session
from perfpipe.specs import gpu_specs

Opened = Callable[..., AbstractContextManager[Session]]

MS = 1_000_000


@pytest.mark.parametrize(
    ("name", "bound", "subclass", "cause", "technique"),
    [
        # 4.74 waves leave SMs without work for 5 % of the time; the kernel is at 26 % of SOL.
        ("mistic_node.ncu-rep", "latency", "memory", None, "bytes_in_flight"),
        # 2.37 waves: a fifth of the time.
        ("mistic_search.ncu-rep", "latency", "tail", "partial_wave", "tail_removal"),
        # Threads walk blocks of their own: NVIDIA's rule says so, the page has no counters of it.
        ("copy_blocked.csv", "memory", "dram", "uncoalesced", "coalesce"),
    ],
)
def test_kernels(
    opened: Opened, name: str, bound: str, subclass: str, cause: str | None, technique: str
) -> None:
    with opened(f"public/{name}") as con:
        (found,) = con.execute(
            "SELECT bound, subclass, cause, technique, gain_pct FROM kernel_classes"
        ).fetchall()
        ((waves,),) = con.execute("SELECT waves FROM kernel_occupancy").fetchall()
    assert found[:4] == (bound, subclass, cause, technique)
    if technique == "tail_removal":
        assert found[4] == pytest.approx(100 * (1 - waves / 3), abs=0.01)


def test_a_timeline_is_about_its_loop(opened: Opened) -> None:
    with opened("public/power_iteration.sqlite") as con:
        ((kind, steps, source),) = con.execute(
            "SELECT kind, steps, source FROM analysis_windows"
        ).fetchall()
        ((technique, share),) = con.execute(
            "SELECT technique, share_pct FROM findings WHERE rank = 1"
        ).fetchall()
        ((inside,),) = con.execute(
            """
            SELECT sum(k.end_ns - k.start_ns) FILTER (k.start_ns >= w.start_ns AND k.end_ns <= w.end_ns)
                / sum(k.end_ns - k.start_ns)
            FROM nsys_kernels AS k, analysis_windows AS w
            """
        ).fetchall()
    assert (kind, source) == ("steady", "NVTX"), "its ranges count: Step 0 to 10, Step 10 to 20"
    assert steps >= 40
    assert inside > 0.95, "the GPU's work is in the steps"
    assert technique == "host_work", "checkpoints are written between iterations"
    assert 30 < share < 40


def _launches(db: Tiny, first: int, times: list[tuple[int, int]], loop: int, repeats: int) -> None:
    """Add kernels (gap before, duration), and the steps of one kernel that repeats in them."""
    at = first
    steps = []
    for n, (gap, length) in enumerate(times):
        at += gap
        db.add(
            "launches",
            {"pid": 1, "tid": 1, "kind": "kernel", "name": "k", "device": 0, "call_id": first + n,
             "start_ns": at, "end_ns": at + length, "api_start_ns": at - 1, "api_end_ns": at},
        )  # fmt: skip
        steps.append((at, at + length))
        at += length
    work = [length for _, length in times]
    db.add(
        "launch_loops",
        {"pid": 1, "loop": loop, "level": 1, "role": "step", "source": "period", "variable": 0,
         "iterations": repeats, "launches": 1.0, "share": sum(work[:repeats]) / sum(work)},
    )  # fmt: skip
    for n in range(repeats):
        db.add(
            "launch_steps",
            {"pid": 1, "device": 0, "loop": loop, "run": 1, "step": n + 1, "period": 1, "repeats": 1,
             "host_start_ns": steps[n][0] - 1, "host_end_ns": steps[n + 1][0] - 1,
             "start_ns": steps[n][0], "end_ns": steps[n + 1][0], "launches": 1, "match": 1.0},
        )  # fmt: skip


def test_what_repeats_beside_the_work_is_no_loop() -> None:
    """Copies when a program starts, and then kernels that never repeat."""
    db = Tiny()
    _launches(db, 100, [(10, 10)] * 8 + [(10, 40 * MS), (10, 60 * MS)], 1, 8)
    assert db.rows("SELECT kind, steps FROM analysis_windows") == [("whole", None)]
    db = Tiny()
    _launches(db, 100, [(10, MS)] * 8 + [(10, 4 * MS), (10, 6 * MS)], 1, 8)
    assert db.rows("SELECT kind, steps FROM analysis_windows") == [("steady", 8)]


@pytest.mark.parametrize(("slow", "kept"), [(2, True), (40, False)])
def test_slow_steps_that_recur_are_how_a_program_runs(slow: int, kept: bool) -> None:
    """Every other step sleeps; or every fortieth writes a checkpoint."""
    db = Tiny()
    times = [(100 * MS if n % slow == slow - 1 else MS // 10, MS) for n in range(121)]
    _launches(db, 100, times, 1, 120)
    rows = db.rows("SELECT phase, end_ns - start_ns > 50 * 1e6, count(*) FROM steps GROUP BY ALL")
    steady = {long: count for phase, long, count in rows if phase == "steady"}
    assert (steady.get(True, 0) > 50) == kept
    assert steady[False] >= 50


def test_a_gpu_that_was_hardly_used_gets_no_advice() -> None:
    db = Tiny()
    db.add(
        "launches",
        {"pid": 1, "tid": 1, "kind": "memset", "name": "[CUDA memset]", "device": 0, "call_id": 1,
         "start_ns": 50 * MS, "end_ns": 50 * MS + 1500, "api_start_ns": 50 * MS - 1,
         "api_end_ns": 50 * MS},
    )  # fmt: skip
    call = {"pid": 1, "tid": 1, "name": "cudaMalloc", "start_ns": 0, "end_ns": 130 * MS}
    db.add("nsys_api_calls", call)
    assert db.rows("SELECT time_ns, calls_ns FROM _idle_captures") == [(1500, 130 * MS)]
    assert db.rows("FROM timeline_findings") == []


def test_a_file_is_read_before_it_is_reported(
    cli: Cli, tmp_path: Path, expand: Callable[[str], Path]
) -> None:
    file = expand("public/copy_blocked.csv")
    assert cli("report", str(file), "--md", "r.md") == 0, cli.err
    text = (tmp_path / "r.md").read_text()
    assert "is bound by DRAM and runs at 62 % of SOL" in text
    assert "Coalesce and vectorize global memory accesses" in text
    assert cli("report", str(file)) == 0, "it is in the store now"
    assert "copy" in cli.out
    (tmp_path / "garbage").write_text("garbage")
    assert cli("report", "garbage") != 0
    assert "not a report that perfpipe reads" in cli.err
    assert cli("report", "nothing-here") == 2


@pytest.mark.parametrize("name", ["mistic_node.ncu-rep", "mistic_search.ncu-rep"])
def test_what_another_gpu_allows(cli: Cli, expand: Callable[[str], Path], name: str) -> None:
    """No roof of CUDA cores grew by more than that of FP32, and none shrank."""
    assert cli("ingest", str(expand(f"public/{name}"))) == 0, cli.err
    report = cli.out.split()[0]
    assert cli("project", report, "--to", "h100_sxm", "--json") == 0, cli.err
    (whole,) = json.loads(cli.out)["configurations"]
    specs = {spec.key: spec for spec in gpu_specs()}
    grown = specs["h100_sxm"].dense["fp32"] / specs["a100_pcie_40"].dense["fp32"]
    span = whole["span"]
    assert whole["now_ns"] / grown <= span["low"] < span["high"] <= whole["now_ns"]
