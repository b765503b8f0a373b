"""Operators in the names of kernels that torch.compile generated."""

from __future__ import annotations

import tomllib

import pytest
from conftest import Tiny
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.analysis.inductor import fused_operators
from perfpipe.files import packaged

KNOWN = tomllib.loads(packaged("perfpipe.analysis", "inductor.toml"))["operators"].split()

NAMES = {
    "triton_poi_fused_add_mul_3": "add mul",
    "triton_red_fused__log_softmax__to_copy_nll_loss_forward_5":
        "_log_softmax _to_copy nll_loss_forward",
    "triton_per_fused_add_native_layer_norm_native_layer_norm_backward_sum_12":
        "add native_layer_norm native_layer_norm_backward sum",
    "triton_per_fused__softmax_backward_data_mul_20": "_softmax_backward_data mul",
    "triton_poi_fused__unsafe_index_add_mul_sub_4": "_unsafe_index add mul sub",
    "triton_red_fused__native_batch_norm_legit_functional_convolution_relu_11":
        "_native_batch_norm_legit_functional convolution relu",
    "triton_tem_fused_addmm_relu_9": "addmm relu",
    "triton_poi_fused_max_pool2d_with_indices_2": "max_pool2d_with_indices",
    "triton_per_fused__to_copy_add_mean_mul_pow_rsqrt_0": "_to_copy add mean mul pow rsqrt",
    "triton_red_fused_convert_element_type_div_exp_prepare_softmax_online_sub_0":
        "convert_element_type div exp prepare_softmax_online sub",
    "triton_per_fused__to_copy_add_native_dropout_native_layer_norm_16":
        "_to_copy add native_dropout native_layer_norm",
    # index and select are operators as well as index_select.
    "triton_poi_fused_add_index_select_3": "add index_select",
    # Not in alphabetical order.
    "triton_poi_fused_sigmoid_mul_7": "sigmoid mul",
    # An operator that is not known stays part of the text.
    "triton_poi_fused_add_myops_mul_3": "add_myops_mul",
    "triton_poi_fused_add_mul": "add mul",
    "triton_poi_fused_0": "",
    "triton_for_fused_4": "",
    "triton__0d1d2d": "",
    "triton_poi_fused_": "",
    "my_triton_poi_fused_add_mul_3": "",
    "ampere_sgemm_128x64_nn": "",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names(name: str) -> None:
    assert " ".join(fused_operators(name)) == NAMES[name]


@given(
    st.lists(st.sampled_from(KNOWN), min_size=1, max_size=8, unique=True),
    st.sampled_from(["poi", "red", "per", "tem", "mix"]),
    st.integers(0, 999),
)
def test_no_operator_is_divided(operators: list[str], kind: str, number: int) -> None:
    """Each text that is found is one operator or several neighbors, and nothing is lost."""
    operators.sort()
    found = fused_operators(f"triton_{kind}_fused_{'_'.join(operators)}_{number}")
    assert "_".join(found) == "_".join(operators)
    borders = {len("_".join(operators[: n + 1])) for n in range(len(operators))}
    assert {len("_".join(found[: n + 1])) for n in range(len(found))} <= borders


def test_kernel_names_have_the_operators() -> None:
    db = Tiny()
    for at, name in enumerate(("triton_poi_fused_add_mul_3", "k")):
        db.add("nsys_kernels", {"name": name, "demangled": name, "start_ns": at, "end_ns": at + 1})
    assert db.rows("SELECT short_name, operators FROM kernel_names ORDER BY ALL") == [
        ("k", None),
        ("triton_poi_fused_add_mul_3", "add, mul"),
    ]
