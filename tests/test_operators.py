"""Operators of many kernels: their share of a step, with what lies between two products."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from conftest import Opened, Tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpipe.analysis.knowledge import techniques

Ingested = Callable[[str], str]

AT = "void at::native::"
#: Kernels by what they are.
KERNELS = {
    "product": "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN",
    "pointwise": AT + "vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>>(int)",
    "cross_entropy": AT + "<unnamed>::cunn_SoftMaxForward<(int)4, LogSoftMaxForwardEpilogue>(T1 *)",
    "normalization": AT + "<unnamed>::vectorized_layer_norm_kernel<float, float>(int)",
    "batch_norm": AT + "batch_norm_collect_statistics_channels_last_kernel<float>(T1 *)",
    "fixed_batch_norm": AT + "batch_norm_transform_input_channels_last_kernel<float>(T1 *)",
    "softmax": AT + "<unnamed>::cunn_SoftMaxForward<(int)4, SoftMaxForwardEpilogue>(T1 *)",
    "optimizer": AT + "<unnamed>::multi_tensor_apply_kernel<TensorListMetadata<(int)2>, Lerp>(T1)",
    "fused_optimizer": AT + "<unnamed>::multi_tensor_apply_kernel<List, FusedAdamMathFunctor<float>>(T1)",
    "layout": "void nhwcAddPaddingKernel<float, float, (int)1>(int)",
    "own": "my_kernel(float *)",
}  # fmt: skip
FIRST = ["cross_entropy", "batch_norm", "fixed_batch_norm", "normalization", "softmax", "pointwise"]


def _timeline(kinds: list[str]) -> Tiny:
    """Kernels one after the other, each as long as its position."""
    db = Tiny()
    _add(db, "r", kinds)
    return db


def _add(db: Tiny, report: str, kinds: list[str]) -> None:
    """Add kernels of some kinds, or of other names."""
    at = 0
    for place, kind in enumerate(kinds):
        full = KERNELS.get(kind, kind)
        name = full.removeprefix(AT).removeprefix("void ").removeprefix("<unnamed>::")
        row = {"report_id": report, "device": 0, "stream": 7, "pid": 1, "start_ns": at,
               "end_ns": at + place + 1}  # fmt: skip
        names = {"name": name.partition("<")[0].partition("(")[0], "demangled": full}
        db.add("launches", {"kind": "kernel", **row, **names})
        db.add("nsys_kernels", {**row, **names, "dur_ns": place + 1})
        at += place + 1


@settings(max_examples=4)
@given(
    st.lists(
        st.lists(st.sampled_from([*KERNELS]), min_size=1, max_size=25), min_size=12, max_size=12
    )
)
def test_pointwise_kernels_belong_to_their_chain(timelines: list[list[str]]) -> None:
    """Several timelines at a time: planning the views takes longer than all else."""
    db = Tiny()
    for number, kinds in enumerate(timelines):
        _add(db, f"r{number}", kinds)
    rows = db.rows(
        "SELECT report_id, operator, time_ns, share_pct, own_pct, launches FROM operator_times"
    )
    for number, kinds in enumerate(timelines):
        _check(kinds, [row for report, *row in rows if report == f"r{number}"])


def _check(kinds: list[str], found: list[list[Any]]) -> None:
    """Compare operators with those of the chains between products."""
    expected: dict[str, int] = defaultdict(int)
    giving_away: dict[str, int] = defaultdict(int)
    launches: dict[str, int] = defaultdict(int)
    cuts = [-1, *(at for at, kind in enumerate(kinds) if kind == "product"), len(kinds)]
    for begin, end in pairwise(cuts):
        chain = range(begin + 1, end)
        own = [kind for kind in FIRST if kind in (kinds[at] for at in chain)]
        for at in chain:
            kind = own[0] if kinds[at] in ("pointwise", "fixed_batch_norm") else kinds[at]
            expected[kind] += at + 1
            giving_away[kind] += at + 1 if kinds[at] != "pointwise" else 0
            launches[kind] += 1
    expected.pop("own", None)
    total = sum(range(1, len(kinds) + 1))
    assert {name: time for name, time, *_ in found} == expected
    for name, time, share, own_share, counted in found:
        assert share == pytest.approx(100 * time / total)
        assert own_share == pytest.approx(100 * giving_away[name] / total)
        assert counted == launches[name]


def test_what_is_fused_or_small_is_no_finding() -> None:
    kinds = ["product", "softmax"] * 3 + ["fused_optimizer"] * 9 + ["layout"] * 2 + ["product"] * 30
    db = _timeline(kinds)
    shares = dict(db.rows("SELECT operator, share_pct FROM operator_times"))
    assert shares["fused_optimizer"] > 5 > shares["softmax"]
    assert db.rows("SELECT operator, step_launches FROM operator_findings") == []
    db = _timeline([*["product", "softmax"] * 9, "optimizer", "optimizer"])
    found = db.rows("SELECT operator, technique, rank FROM operator_findings")
    assert found == [("softmax", "fused_attention", 1), ("optimizer", "fused_step", 2)]


def test_single_kernels_without_products_have_nothing_to_fuse() -> None:
    """Two streams that each multiply their part of the data; a sampler without a model."""
    db = Tiny()
    for stream in (7, 8):
        row = {"device": 0, "stream": stream, "pid": 1, "start_ns": stream, "end_ns": stream + 9}
        names = {"name": "vectorized_elementwise_kernel", "demangled": KERNELS["pointwise"]}
        db.add("launches", {"kind": "kernel", **row, **names})
        db.add("nsys_kernels", {**row, **names, "dur_ns": 9})
    assert db.rows("SELECT launches FROM operator_times WHERE operator = 'pointwise'") == [(2,)]
    assert db.rows("SELECT operator FROM operator_findings") == []
    found = "SELECT operator FROM operator_findings"
    assert _timeline(["softmax", "pointwise"] * 9).rows(found) == []
    assert _timeline(["pointwise"] * 9).rows(found) == [("pointwise",)]


@pytest.mark.parametrize(
    ("kernel", "operator"),
    [
        ("split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_warp_per_row_1",
         "fused_optimizer"),
        ("adamw_kernel3", "fused_optimizer"),
        ("sgd_update", "fused_optimizer"),
        (KERNELS["optimizer"], "optimizer"),
    ],
)  # fmt: skip
def test_a_kernel_that_makes_the_whole_update_is_a_fused_optimizer(
    kernel: str, operator: str
) -> None:
    db = _timeline([kernel, kernel])
    assert db.rows("SELECT operator FROM operator_times") == [(operator,)]


def test_conversions_between_layouts_can_go() -> None:
    db = _timeline(["product", "layout", "pointwise"] * 9)
    found = db.rows(
        "SELECT technique, round(share_pct), round(gain_pct), floor FROM operator_findings "
        "ORDER BY rank"
    )
    assert found == [
        ("fused_pointwise", 36, None, None),
        ("no_conversions", 33, 33, "around"),
    ]


@pytest.mark.parametrize(
    ("kernel", "technique"),
    [
        (KERNELS["fixed_batch_norm"], "compiled_batch_norm"),
        ("triton_poi_fused__native_batch_norm_legit_no_training_relu_1", "folded_batch_norm"),
    ],
)
def test_batch_norm_of_inference_is_compiled_and_then_folded(
    kernel: str, technique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folded in eager PyTorch it leaves a kernel that adds the bias, and takes as long."""
    monkeypatch.setitem(KERNELS, "known", kernel)
    db = _timeline(["product", "known"] * 9)
    assert db.rows("SELECT technique FROM operator_findings") == [(technique,)]


@pytest.mark.parametrize(
    ("names", "told"),
    [
        # bf16 layers with FP32 norms, and a fused AdamW, which is none.
        (["nsys/gpumetrics.sqlite"], {"pointwise": (17, 35), "normalization": (9, 25)}),
        (["nsys/ddp_comm_rank0.sqlite"], {"normalization": (6, 77)}),
    ],
)
def test_operators_of_real_steps(
    opened: Opened, names: list[str], told: dict[str, tuple[int, int]]
) -> None:
    with opened(*names) as con:
        found = con.execute(
            "SELECT operator, share_pct, step_launches FROM operator_findings"
        ).fetchall()
        parts = con.execute(
            "SELECT report_id, device, sum(share_pct) FROM operator_times GROUP BY ALL"
        ).fetchall()
    assert {name: (int(share), launches) for name, share, launches in found} == told
    assert all(share <= 100 for *_, share in parts)


@pytest.mark.parametrize(
    ("kernel", "operators"),
    [
        ("triton_per_fused_add_native_layer_norm_12", []),
        ("triton_red_fused__native_batch_norm_legit_functional_relu_3", []),
        ("triton_poi_fused__native_batch_norm_legit_no_training_relu_1", ["fixed_batch_norm"]),
        ("triton_red_fused__softmax_0", ["softmax"]),
    ],
)
def test_what_a_compiler_has_fused_is_not_to_be_fused(
    kernel: str, operators: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KERNELS, "compiled", kernel)
    db = _timeline(["product", "compiled", "compiled"] * 9)
    assert [name for (name,) in db.rows("SELECT operator FROM operator_findings")] == operators


def test_an_operator_speaks_for_its_kernels(opened: Opened) -> None:
    """Of a library's kernels in an operator's finding there is none of their own, nor advice."""
    with opened("nsys/gpumetrics.sqlite", "ncu/block.ncu-rep") as con:
        findings = con.execute(
            "SELECT claim, subclass, kernel_name, share_of, time_ns, launches, causes, bound_pct "
            "FROM findings ORDER BY rank"
        ).fetchall()
        advice = con.execute(
            "SELECT technique, bound, share_pct, gain_pct FROM recommendations"
        ).fetchall()
    operators = [row for row in findings if row[0] == "operator"]
    assert [row[1] for row in operators] == ["pointwise", "normalization"]
    for *_, share_of, time, launches, causes, bound in operators:
        assert (share_of, bound) == ("step", None)
        assert time > 0 < launches
        assert " %, " in causes
    kernels = " ".join(row[2] for row in findings if row[2])
    assert "elementwise" not in kernels and "layer_norm" not in kernels
    assert "nvjet" in kernels and "multi_tensor_apply" in kernels
    tried = {row[0]: row for row in advice}
    assert tried["fused_pointwise"][1] == "pointwise"
    assert not {"fused_operator", "fusion"} & tried.keys()
    assert len(tried) == len(advice), "each technique once"
    assert tried["fp8"][3] is not None, "operands are BF16 by the names of the products"
    assert all(
        "Transformer Engine" in techniques()[key].detail for key in ("fp8", "narrower_types")
    )


TF32 = "sm90_xmma_gemm_f32f32_tf32f32_f32_nt_n_tilesize128x128x32_execute_kernel__5x_cublas"
SGEMM = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x128x8_ffma_kernel__5x_cublas"
HALF = AT + "vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<c10::BFloat16>>(int)"


@pytest.mark.parametrize(
    ("kinds", "gain_pct", "tf32_pct"),
    [
        # Of lengths 1 to 4, the last three state FP32.
        (["loop_select_fusion", TF32, "layout", "pointwise"], 45.0, 20.0),
        # The product takes far less than half in BF16: 5 of 10 are halved, 4 go.
        (["loop_select_fusion", "layout", "pointwise", SGEMM], 65.0, 0.0),
    ],
)
def test_a_program_in_fp32_is_told_of_mixed_precision(
    kinds: list[str], gain_pct: float, tf32_pct: float
) -> None:
    db = _timeline(kinds)
    assert db.rows(
        "SELECT round(share_pct), round(tf32_pct), round(gain_pct), floor, technique "
        "FROM precision_findings"
    ) == [(90, tf32_pct, gain_pct, "half_types", "mixed_precision")]
    found = db.rows("SELECT round(bound_pct) FROM findings WHERE claim = 'single_precision'")
    assert found == [(gain_pct,)]
    last = db.rows("SELECT technique, precision FROM recommendations ORDER BY rank DESC LIMIT 1")
    assert last == [("mixed_precision", True)]


@pytest.mark.parametrize(
    ("cc", "expected"),
    [
        ("6.1", []),
        ("7.0", [("half_precision", 65.0)]),
        ("7.5", [("half_precision", 65.0)]),
        ("8.0", [("mixed_precision", 65.0)]),
        (None, [("mixed_precision", 65.0)]),
        ("9x.0", [("mixed_precision", 65.0)]),
    ],
)
def test_the_type_is_one_that_the_tensor_cores_compute_in(
    cc: str | None, expected: list[tuple[str, float]]
) -> None:
    db = _timeline(["loop_select_fusion", "layout", "pointwise", SGEMM])
    db.add("nsys_gpus", {"gpu": 0, "device": 0, "cc": cc})
    assert db.rows("SELECT technique, round(gain_pct) FROM precision_findings") == expected


@pytest.mark.parametrize(
    "kinds",
    [
        [TF32, "layout", HALF, "pointwise"],  # it does so already
        ["product", TF32, "layout", "pointwise"],  # what the product computes in is not known
        [TF32, "own", "own"],  # nothing of a network
    ],
)
def test_other_programs_are_not(kinds: list[str]) -> None:
    assert _timeline(kinds).rows("FROM precision_findings") == []
