"""The classifier on captures: labelled kernels, and a verdict with evidence for each launch."""

from __future__ import annotations

import json

import pytest
from conftest import Opened

BOUNDS = {"compute", "memory", "latency", "launch", "balanced", "unknown"}
SUBCLASSES: dict[str, set[str | None]] = {
    "compute": {"tensor", "fma", "fp64", "fp16", "alu", "xu", "lsu", "issue", "divergence", None},
    "memory": {"dram", "l2", "l1", "shared", None},
    "latency": {
        "dependency",
        "memory",
        "barrier",
        "small_grid",
        "tail",
        "occupancy",
        "idle_lanes",
        "dram_unknown",
        None,
    },
    "launch": {"small_grid", "short"},
    "balanced": {None},
    "unknown": {None},
}

#: Label of the kernel built to be limited by one thing -> (bound, subclass, cause).
LABELS = {
    "memory.dram": ("memory", "dram", None),
    "compute.fma": ("compute", "fma", None),
    "compute.fp64": ("compute", "fp64", None),
    "latency.dependency": ("latency", "dependency", "small_grid"),
    "latency.memory": ("latency", "memory", "small_grid"),
    "memory.uncoalesced": ("memory", "dram", "uncoalesced"),
    "memory.shared_bank_conflict": ("memory", "shared", "bank_conflict"),
    "memory.l2": ("memory", "l2", None),
    "launch.tiny": ("launch", "small_grid", None),
    # All threads add to two addresses: the counters show warps that wait for the memory queue.
    "memory.atomics": ("latency", "memory", "atomics"),
    "compute.xu": ("compute", "xu", None),
    "memory.local_spill": ("memory", "dram", "local_spill"),
    "compute.divergence": ("compute", "divergence", None),
    "compute.alu": ("compute", "alu", None),
    "latency.partial_wave": ("latency", "tail", "partial_wave"),
}

#: Operator of ncu/ops by NVTX range -> its family, and where that is telling.
OPERATORS = {
    "gemm_fp16_4096": ("compute", "tensor"),
    "gemm_fp32_2048": ("compute", "fma"),
    "gemm_tf32_4096": ("compute", "tensor"),
    "bmm_fp16_b32_m512_n1024_k2048": ("compute", "tensor"),
    "fused_matmul_leaky_relu_128x128x64x8x8x3": ("compute", "tensor"),
    "fused_matmul_leaky_relu_128x256x64x8x8x3": ("compute", "tensor"),
    "fused_matmul_leaky_relu_256x128x64x8x16x3": ("compute", "tensor"),
    # Tiles too small to feed the tensor cores.
    "fused_matmul_leaky_relu_64x64x32x8x4x2": ("memory", "l2"),
    "fused_matmul_leaky_relu_32x32x32x8x4x2": ("memory", "shared"),
    "vadd_4096": ("launch", "small_grid"),
    "vadd_1048576": ("latency", "memory"),
    "vadd_134217728": ("memory", "dram"),
    "softmax": ("compute", "issue"),
    "layernorm": ("compute", "issue"),
    "gather": ("memory", "dram"),
    "sdpa": ("latency", "barrier"),
    "sum": ("memory", "dram"),
    "fp8_like_cast": ("compute", "alu"),
}


def test_labelled_kernels_read_as_they_were_built(opened: Opened) -> None:
    with opened("ncu/visible.ncu-rep") as con:
        rows = con.execute(
            "SELECT nvtx_path, bound, subclass, cause, agrees_with_ncu, confidence, explanation "
            "FROM kernel_bottleneck JOIN ncu_launches USING (report_id, launch_id)"
        ).fetchall()
    assert {label: found for label, *found, _, _, _ in rows} == {
        label: list(expected) for label, expected in LABELS.items()
    }
    for label, _, _, _, agrees, confidence, explanation in rows:
        assert agrees, label
        assert confidence == "high" or explanation, label


def test_operators_read_as_their_family(opened: Opened) -> None:
    with opened("ncu/ops.ncu-rep") as con:
        rows = con.execute(
            "SELECT nvtx_path, bound, subclass, agrees_with_ncu, confidence, explanation "
            "FROM kernel_bottleneck JOIN ncu_launches USING (report_id, launch_id)"
        ).fetchall()
    found = {path: (bound, subclass) for path, bound, subclass, *_ in rows}
    assert {path: found[path] for path in OPERATORS} == OPERATORS
    disagree = [row for row in rows if not row[3]]
    assert [row[:3] for row in disagree] == [("unfused_matmul_leaky_relu", "memory", "l2")]
    assert "l2 alone runs at 81.0 %" in disagree[0][5]
    for path, *_, confidence, explanation in rows:
        assert confidence == "high" or explanation, path


@pytest.mark.parametrize("name", ["visible", "ops", "block"])
@pytest.mark.parametrize("form", ["ncu-rep", "raw.csv"])
def test_every_launch_has_a_verdict_with_evidence(opened: Opened, name: str, form: str) -> None:
    with opened(f"ncu/{name}.{form}") as con:
        launches = con.execute("SELECT count(*) FROM ncu_launches").fetchone()
        rows = con.execute("SELECT * FROM kernel_bottleneck").fetchall()
        names = [column[0] for column in con.con.description]
    assert launches == (len(rows),)
    for row in (dict(zip(names, values, strict=True)) for values in rows):
        assert row["bound"] in BOUNDS - {"unknown"}
        assert row["subclass"] in SUBCLASSES[row["bound"]]
        assert row["confidence"] in ("high", "medium", "low")
        assert row["confidence"] == "high" or row["explanation"]
        evidence = json.loads(row["evidence"])
        assert len(evidence) >= 2
        assert all({"metric", "value", "threshold", "unit"} == set(item) for item in evidence)
        if form == "ncu-rep":
            assert row["verdict"] == row["ncu_verdict"]


def test_csv_and_report_give_the_same_bound(opened: Opened) -> None:
    """CSV names no constituents, so that the level may be told less finely; never the bound."""
    answers = []
    for form in ("ncu-rep", "raw.csv"):
        with opened(f"ncu/visible.{form}") as con:
            sql = "SELECT launch_id, bound, subclass, cause FROM kernel_bottleneck ORDER BY ALL"
            answers.append(con.execute(sql).fetchall())
    assert answers[0] == answers[1]
