"""What captures, NVIDIA's rules or arithmetic once refuted in reports."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, Opened, Tiny

Ingested = Callable[[str], str]

MS = 1_000_000


def test_copies_need_what_their_link_needs(opened: Opened) -> None:
    """A step of copies alone: there is nothing to hide them behind, and the link has a peak."""
    with opened("nsys/memcpy.sqlite") as con:
        ((share, gain, floor),) = con.execute(
            "SELECT share_pct, gain_pct, floor FROM timeline_findings "
            "WHERE technique = 'pinned_prefetch'"
        ).fetchall()
        ((window_s,),) = con.execute(
            "SELECT (end_ns - start_ns) / 1e9 FROM analysis_windows"
        ).fetchall()
        copied = con.execute(
            "SELECT operation, sum(m.bytes) FROM nsys_memory_ops AS m, analysis_windows AS w "
            "WHERE m.start_ns >= w.start_ns AND m.start_ns < w.end_ns AND operation LIKE '%memcpy%' "
            "GROUP BY 1"
        ).fetchall()
        ((peak,),) = con.execute(
            "SELECT DISTINCT link_bytes_per_s FROM memory_op_summary WHERE link = 'PCIe'"
        ).fetchall()
        ((compute,),) = con.execute(
            "SELECT 100 * sum(time_ns) / any_value(window_ns) FROM gpu_time_budget "
            "WHERE category = 'compute'"
        ).fetchall()
    longest = max(size for name, size in copied if "Host" in name) / peak / window_s
    assert floor == "link"
    assert gain == pytest.approx(share - (100 * longest - compute), abs=0.5)
    assert gain < share - 10


def _step(at: int, compute: int, collective: int) -> Iterator[dict[str, Any]]:
    """Yield a kernel, then an all-reduce that nothing covers, launched long before."""
    call = {"api_start_ns": at - 9000, "api_end_ns": at - 8000}
    yield {"name": "k", "start_ns": at, "end_ns": at + compute, **call}
    begin = at + compute
    yield {
        "name": "ncclDevKernel_AllReduce",
        "start_ns": begin,
        "end_ns": begin + collective,
        **call,
    }


@pytest.mark.parametrize(("compute", "collective"), [(8 * MS, 2 * MS), (2 * MS, 8 * MS)])
def test_communication_hides_behind_compute_at_most(compute: int, collective: int) -> None:
    db = Tiny()
    db.add("reports", {"report_id": "r", "kind": "nsys"})
    operations = [op for step in range(6) for op in _step(step * 10 * MS, compute, collective)]
    for number, op in enumerate(operations):
        own = {"pid": 1, "tid": 1, "device": 0, "stream": 7, "op_id": number, "kind": "kernel"}
        db.add("launches", {"correlation_id": number, "call_id": number} | own | op)
    found = db.rows(
        "SELECT technique, gain_pct, floor FROM timeline_findings "
        "WHERE technique = 'overlap_communication'"
    )
    expected = 100 * min(compute, collective) / (compute + collective)
    assert found == [("overlap_communication", pytest.approx(expected, abs=2), "hidden")]


def test_static_shapes_save_the_slow_launches_alone() -> None:
    """In each step 1 of 4 launches takes 8 ms, the others 0.5 ms each."""
    db = Tiny()
    db.add("reports", {"report_id": "r", "kind": "nsys"})
    gemm = {"name": "nvjet_hsh_64x8", "demangled": "nvjet_hsh_64x8"}
    db.add("nsys_kernels", {"report_id": "r"} | gemm)
    number, at = 0, 0
    for _ in range(20):
        for name, late in (
            ("nvjet_hsh_64x8", 8 * MS),
            ("a", MS // 2),
            ("b", MS // 2),
            ("c", MS // 2),
        ):
            at += late
            own = {"pid": 1, "tid": 1, "device": 0, "stream": 7, "op_id": number, "kind": "kernel"}
            call = {"api_start_ns": at - 9000, "api_end_ns": at - 4000, "call_id": number}
            times = {"start_ns": at, "end_ns": at + 10_000, "correlation_id": number}
            db.add("launches", {"report_id": "r", "name": name} | own | call | times)
            at += 10_000
            number += 1
    found = dict(db.rows("SELECT technique, gain_pct FROM timeline_findings"))
    assert found["cuda_graphs"] > 99
    assert found["static_shapes"] == pytest.approx(100 * 8 / 9.54, abs=1)


def test_findings_without_a_bound_stand_by_their_share(opened: Opened) -> None:
    for name in ("gpumetrics", "graph_node", "h2d", "ddp_single"):
        with opened(f"nsys/{name}.sqlite") as con:
            places = con.execute(
                "SELECT coalesce(bound_pct, share_pct) FROM findings "
                "WHERE subject = 'timeline' AND claim != 'startup' ORDER BY rank"
            ).fetchall()
        assert len(places) > 1
        assert places == sorted(places, reverse=True), name


def test_types_by_name_where_operations_were_not_counted(opened: Opened) -> None:
    """nvjet's first letter is the type of A: h and t are FP16 and BF16, which FP8 would narrow."""
    with opened("ncu/block.ncu-rep") as con:
        rows = con.execute(
            "SELECT DISTINCT kernel_name, features, (report_id, launch_id) IN "
            "(SELECT (report_id, launch_id) FROM _tensor_uncounted) "
            "FROM kernel_features JOIN ncu_launches USING (report_id, launch_id) "
            "WHERE kernel_name SIMILAR TO '(nvjet|cudnn).*'"
        ).fetchall()
        advice = con.execute(
            "SELECT technique, count(*) FROM kernel_findings WHERE kernel_name LIKE 'nvjet%' "
            "AND technique IN ('fp8', 'narrower_types') GROUP BY 1"
        ).fetchall()
    uncounted = [features for _, features, unknown in rows if unknown]
    assert len(uncounted) > 5
    assert not any("wide" in features for features in uncounted)
    assert [technique for technique, _ in advice] == ["fp8"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN", "half"),
        ("nvjet_sm90_hsh_64x8_64x16_4x1_v_bz_bias_NNT", "half"),
        ("nvjet_sm90_qqtst_128x128_128x6_2x1_v_bz_TNT", "narrow"),
        ("nvjet_sm90_sss_128x64_64x8_1x2_h_bz_NNT", "wide"),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x256x32", "wide"),
        ("sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x128", "narrow"),
        ("cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x128_32x3_nhwc_align8", "half"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7", "half"),
        ("matmul_kernel", None),
    ],
)
def test_types_of_operands_in_names(name: str, kind: str | None) -> None:
    assert Tiny().rows(f"SELECT kernel_operands('{name}')") == [(kind,)]


def test_a_chain_has_no_bound_without_the_bytes_of_its_ends(opened: Opened) -> None:
    """Its middle would go, but at least one kernel stays."""
    with opened("ncu/block.ncu-rep") as con:
        rows = con.execute(
            "SELECT technique, gain_pct, share_pct FROM recommendations WHERE technique = 'fusion'"
        ).fetchall()
        whole = con.execute(
            "SELECT technique FROM recommendations WHERE gain_pct >= share_pct "
            "AND NOT list_contains(floors, 'nothing')"
        ).fetchall()
    assert [gain for _, gain, _ in rows] == [None]
    assert not whole


def test_half_the_bytes_are_still_bytes(opened: Opened) -> None:
    """A narrower type alone leaves half of the traffic that limits a kernel of one's own."""
    with opened("ncu/ops.ncu-rep") as con:
        rows = con.execute(
            """
            SELECT gain_pct, memory_sol_pct
            FROM kernel_findings JOIN kernel_sol USING (report_id, launch_id)
            JOIN kernel_libraries AS l USING (report_id, launch_id)
            WHERE technique IN ('fp8', 'narrower_types') AND bound = 'memory' AND NOT l.closed
            """
        ).fetchall()
        first = con.execute(
            "SELECT technique FROM findings WHERE bound = 'memory' AND kernel_name = 'fused'"
        ).fetchall()
    assert len(rows) >= 2
    assert all(gain <= 100 - sol / 2 + 1e-9 for gain, sol in rows)
    assert first[0] == ("triton_config",), "tiles come before types"


def test_what_is_hard_counts_half(opened: Opened) -> None:
    with opened("ncu/ops.ncu-rep") as con:
        rows = con.execute(
            "SELECT technique, difficulty, coalesce(gain_pct, share_pct), precision "
            "FROM recommendations WHERE NOT secondary ORDER BY rank"
        ).fetchall()
    weights = [
        (not precision, gain * (0.5 if difficulty == "high" else 1))
        for _, difficulty, gain, precision in rows
    ]
    assert weights == sorted(weights, reverse=True)
    gains = {technique: gain for technique, _, gain, _ in rows}
    assert rows[0][0] == "triton_config"
    assert gains["fp8"] > gains["triton_config"]


def test_no_wait_is_explained_by_a_busy_unit(opened: Opened) -> None:
    """That the SMs compute little says nothing about a tail, occupancy or a barrier."""
    with opened(*(f"ncu/{name}.ncu-rep" for name in ("visible", "ops", "block"))) as con:
        rows = con.execute(
            "SELECT DISTINCT rule, title, reason, explanation FROM kernel_rule_comparison"
        ).fetchall()
    told = [row for row in rows if row[2] == "other_unit"]
    assert told
    waits = {"TheoreticalOccupancy", "AchievedOccupancy", "LaunchConfiguration"}
    assert not [row for row in told if row[0] in waits or row[1] == "Barrier Stalls"]
    tails = [
        text
        for _, title, reason, text in rows
        if (title, reason) == ("Tail Effect", "below_threshold")
    ]
    assert tails and all(text.startswith("SMs are idle for ") for text in tails)


def test_a_late_rank_is_late_by_the_step(pages: Callable[..., Path]) -> None:
    """What it spends more in all steps together is no number for a step of 39 ms."""
    text = (pages("ddp_step") / "report.md").read_text()
    assert "ms more per step on launch overhead than the rank of this GPU" in text


def test_steps_of_several_configurations(pages: Callable[..., Path]) -> None:
    """A sweep has a step time for each size on one GPU; shares are of the step of one of them."""
    text = (pages("gemm") / "report.md").read_text()
    assert "A step takes 4.27 us to 13.4 ms." in text
    assert "fastest GPU" not in text
    findings = text.split("## Findings")[1].split("</details>")[0]
    kernels = [line for line in findings.splitlines() if "nvjet" in line and "SOL" in line]
    assert kernels and all("% of the step of size=" in line for line in kernels)
    shares = [float(pct) for pct in re.findall(r"takes ([\d.]+) % of the step of", findings)]
    assert shares and all(30 < share < 102 for share in shares)


def test_advice_without_a_bound_stands_behind_that_with_one(opened: Opened) -> None:
    """77 % of GPT-2's step builds one kernel: what cures it comes before larger batches."""
    with opened("real/gpt2_generate.sqlite") as con:
        rows = con.execute(
            "SELECT technique, gain_pct FROM recommendations ORDER BY rank"
        ).fetchall()
    assert [technique for technique, _ in rows] == ["build_once", "cuda_graphs", "larger_batch"]
    assert rows[0][1] > 75 > 25 > rows[1][1]
    assert rows[2][1] is None


def test_the_first_finding_is_what_takes_most(opened: Opened) -> None:
    """Pointwise kernels take 35 % of a Llama's step, launch overhead 9 %."""
    with opened("real/llama_train.sqlite") as con:
        rows = con.execute(
            "SELECT claim, subclass, share_pct FROM findings ORDER BY rank"
        ).fetchall()
    assert rows[0][:2] == ("operator", "pointwise")
    assert rows[1][0] == "launch_overhead"


def test_a_bound_on_all_idle_time_says_so(texts: Callable[..., Path]) -> None:
    """Launch overhead is 9.0 % of a Llama's step; what else idles is part of the bound."""
    folder = texts("real/llama_train.sqlite", "real/llama_train.ncu-rep")
    text = (folder / "report.md").read_text()
    assert (
        "launch overhead takes 9.0 % of the steady steps, and removable idle time is 14.3 %" in text
    )
    assert "up to 14.3 % of the step, if the GPU waited only for" in text


def test_one_slow_launch_is_told_from_the_others(texts: Callable[..., Path]) -> None:
    """Most of a step of GPT-2 is one interval before an attention of a new length."""
    folder = texts("real/gpt2_generate.sqlite", "real/gpt2_generate.ncu-rep")
    opening = json.loads((folder / "report.json").read_text())["opening"]
    verdict = opening["verdict"]["text"]
    assert verdict.endswith("the GPU is idle while the host builds kernels or CUDA graphs")
    first = opening["actions"][0]
    assert first["what"].startswith("Build each kernel once: keep shapes")
    assert "before `cudnn_" in first["evidence"] or "before cudnn_" in first["evidence"]
    text = (folder / "report.md").read_text()
    assert "data loading" not in text.split("## Findings")[1].split("</details>")[0]


def test_kernels_that_take_little_bound_nothing(texts: Callable[..., Path]) -> None:
    """The GPU runs kernels for 1.3 % of the time; 12 launches before the steps were profiled."""
    folder = texts("real/gpt2_generate.sqlite", "real/gpt2_generate.ncu-rep")
    text = (folder / "report.md").read_text()
    assert "Kernels take only 1.3 % of the step, so their bottlenecks hardly matter" in text
    tiles = json.loads((folder / "report.json").read_text())["opening"]["tiles"]
    assert not [tile for tile in tiles if "SOL" in tile["name"]]


def test_a_profile_of_something_else_says_nothing_of_the_step(texts: Callable[..., Path]) -> None:
    """The first launches of a Llama, which initialize weights, are no part of its steps."""
    folder = texts("real/llama_train.sqlite", "real/llama_train.ncu-rep")
    tiles = json.loads((folder / "report.json").read_text())["opening"]["tiles"]
    sol = {tile["name"]: (tile["number"], tile["note"]) for tile in tiles}["Mean SOL"]
    assert sol == ("unknown", "0 % of kernel time profiled")


def test_what_was_profiled_of_a_sweep_is_counted(pages: Callable[..., Path]) -> None:
    text = (pages("ncu/visible.ncu-rep") / "report.md").read_text()
    assert "% of the profiled kernel time (15 launches, " in text


def test_a_trace_that_lost_events_is_no_idle_gpu(
    cli: Cli, tmp_path: Path, edited: Callable[..., Path]
) -> None:
    """JAX under nsys: one kernel was left of thousands, and the GPU read as 90 % host-bound."""
    lossy = edited("eager_small", *_failed(produced=10_000_000))
    assert cli("ingest", lossy) == 0
    page = tmp_path / "report.json"
    assert cli("report", "--json", page, "--md", tmp_path / "report.md") == 0
    opening = json.loads(page.read_text())["opening"]
    assert opening["verdict"]["text"].startswith("The trace is incomplete")
    assert not any(action["bound"].startswith("up to") for action in opening["actions"])
    text = (tmp_path / "report.md").read_text()
    assert "The trace is incomplete because the profiler lost events. " in text
    assert "low confidence" in text


def _failed(produced: int) -> tuple[str, ...]:
    """Return what makes nsys say that it failed, and how many events there were."""
    text = "'Number of CUPTI events produced: %d, CUPTI buffers: 50.'"
    return (
        "DELETE FROM DIAGNOSTIC_EVENT WHERE text LIKE 'Number of CUPTI%'",
        "UPDATE DIAGNOSTIC_EVENT SET severity = 2, text = 'Error when processing events: "
        "ErrorInformation (18) ProcessEventsError (4005)' "
        "WHERE rowid = (SELECT min(rowid) FROM DIAGNOSTIC_EVENT)",
        f"UPDATE DIAGNOSTIC_EVENT SET text = {text % produced} "
        "WHERE rowid = (SELECT max(rowid) FROM DIAGNOSTIC_EVENT)",
    )


def test_names_that_nsys_could_not_find_leave_the_trace_whole(
    cli: Cli, tmp_path: Path, edited: Callable[..., Path]
) -> None:
    """It fails to process ranges whose names it does not know; all of CUDA's events are there."""
    assert cli("ingest", edited("eager_small", *_failed(produced=1000))) == 0
    assert cli("report", "--md", tmp_path / "report.md") == 0
    assert "lost events" not in (tmp_path / "report.md").read_text()


def test_balance_saves_the_waiting_alone(opened: Opened) -> None:
    """What a late rank costs the others is their waiting, not all of their communication."""
    with opened(*(f"nsys/ddp_straggler_rank{rank}.sqlite" for rank in (0, 1))) as con:
        rows = con.execute(
            "SELECT gain_pct, share_pct, window_pct FROM timeline_findings "
            "JOIN rank_skew USING (report_id, device) WHERE technique = 'balance_ranks'"
        ).fetchall()
    assert rows
    for gain, share, waiting in rows:
        assert 0 < gain <= min(share, waiting) + 1e-9


def test_bucket_sizes_have_no_bound(opened: Opened) -> None:
    """No size of a bucket makes all communication go."""
    with opened("nsys/ddp_single.sqlite") as con:
        rows = con.execute(
            "SELECT DISTINCT gain_pct, floor FROM timeline_findings WHERE technique = 'bucket_sizes'"
        ).fetchall()
    assert rows == [(None, None)]


def test_a_fused_optimizer_has_advice_of_its_own(opened: Opened) -> None:
    with opened("ncu/block.ncu-rep") as con:
        rows = con.execute(
            "SELECT DISTINCT technique FROM findings WHERE short_name LIKE '%FusedAdam%'"
        ).fetchall()
    assert rows == [("fewer_optimizer_bytes",)]


def test_warpgroups_need_few_warps(opened: Opened) -> None:
    """cuDNN's attention for Hopper runs one block an SM by design: occupancy does not limit it."""
    sql = (
        "SELECT DISTINCT subclass FROM kernel_bottleneck JOIN kernel_metrics USING (report_id, launch_id) "
        "WHERE gmma_pipe_pct > 0 AND bound = 'latency'"
    )
    for name in ("ops", "block"):
        with opened(f"ncu/{name}.ncu-rep") as con:
            limiters = {limiter for (limiter,) in con.execute(sql).fetchall()}
        assert limiters
        assert "occupancy" not in limiters
