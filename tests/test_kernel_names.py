"""Short names of kernels: parsing of demangled names, and what tells two kernels apart."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpipe.analysis.demangled import Term, parse_function
from perfpipe.analysis.session import Session
from perfpipe.analysis.short_names import LONGEST, short_names
from perfpipe.store import Store

DATA = Path(__file__).parent / "data"

AT = "at::native::"
REAL = {
    f"void {AT}vectorized_elementwise_kernel<(int)8, {AT}CUDAFunctor_add<c10::BFloat16>, "
    "std::array<char *, (unsigned long)3>>(int, T2, T3)":
        "vectorized_elementwise_kernel<CUDAFunctor_add<bf16>>",
    f"void {AT}vectorized_elementwise_kernel<(int)4, {AT}FillFunctor<float>, "
    "std::array<char *, (unsigned long)1>>(int, T2, T3)":
        "vectorized_elementwise_kernel<FillFunctor<float>>",
    # A product of bf16 is computed in float.
    f"void {AT}vectorized_elementwise_kernel<(int)8, {AT}AUnaryFunctor<c10::BFloat16, c10::BFloat16, "
    f"c10::BFloat16, {AT}binary_internal::MulFunctor<float>>, std::array<char *, (unsigned long)2>>"
    "(int, T2, T3)":
        "vectorized_elementwise_kernel<AUnary<bf16, Mul<float>>>",
    f"void {AT}elementwise_kernel<(int)128, (int)4, void {AT}gpu_kernel_impl_nocast<"
    f"{AT}direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 3)]::operator ()() "
    "const::[lambda() (instance 12)]::operator ()() const::[lambda(c10::BFloat16) (instance 1)]>"
    "(at::TensorIteratorBase &, const T1 &)::[lambda(int) (instance 1)]>(int, T3)":
        "elementwise_kernel<direct_copy_kernel_cuda<bf16>>",
    f"void {AT}vectorized_elementwise_kernel<(int)4, void {AT}<unnamed>::"
    "pow_tensor_scalar_kernel_impl<float, float>(at::TensorIteratorBase &, T2)::[lambda(float) "
    "(instance 2)], std::array<char *, (unsigned long)2>>(int, T2, T3)":
        "vectorized_elementwise_kernel<pow_tensor_scalar<float>#2>",
    f"void {AT}reduce_kernel<(int)128, (int)4, {AT}ReduceOp<c10::BFloat16, {AT}func_wrapper_t<"
    f"c10::BFloat16, {AT}sum_functor<c10::BFloat16, float, c10::BFloat16>::operator ()"
    "(at::TensorIterator &)::[lambda(float, float) (instance 1)]>, unsigned int, c10::BFloat16, "
    "(int)4, (int)8>>(T3)":
        "reduce_kernel<sum_functor<bf16, float>>",
    f"void {AT}<unnamed>::multi_tensor_apply_kernel<{AT}<unnamed>::FusedOptimizerTensorListMetadata"
    f"<(int)4>, {AT}<unnamed>::FusedAdamMathFunctor<c10::BFloat16, (int)4, ({AT}ADAM_MODE)1, "
    "(bool)0>, const float *, double, double, double, double, double, bool, const float *, "
    "const float *>(T1, T2, T3...)":
        "multi_tensor_apply_kernel<FusedAdamMathFunctor<bf16>>",
    f"void {AT}<unnamed>::vectorized_layer_norm_kernel<c10::BFloat16, float, (bool)0>(int, T2)":
        "vectorized_layer_norm_kernel<bf16, float>",
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(T1::Params)":
        "Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>",
    "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN":
        "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)":
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
    "vadd(float *, int)": "vadd",
}  # fmt: skip


@pytest.mark.parametrize("demangled", REAL)
def test_a_short_name_is_the_function_and_its_functor(demangled: str) -> None:
    assert short_names([[demangled]]) == {demangled: REAL[demangled]}


def test_the_short_names_of_a_report_differ() -> None:
    short = short_names([REAL])
    assert len({*short.values()}) == len(REAL)
    assert short == REAL


def test_detail_comes_where_two_read_the_same() -> None:
    full = (
        "void at::native::vectorized_elementwise_kernel<(int){}, at::native::{}<long, long, bool, "
        "at::native::CompareEqFunctor<long>>, std::array<char *, (unsigned long)3>>(int, T2, T3)"
    )
    two, four, scalar = (
        full.format(*parts)
        for parts in ((2, "BinaryFunctor"), (4, "BinaryFunctor"), (4, "AUnaryFunctor"))
    )
    plain = "vectorized_elementwise_kernel<CompareEqFunctor<long>>"
    assert short_names([[two]]) == {two: plain}
    short = short_names([[two, four, scalar]])
    assert short[two] == "vectorized_elementwise_kernel<2, Binary<CompareEq<long>>>"
    assert short[four] == "vectorized_elementwise_kernel<4, Binary<CompareEq<long>>>"
    assert short[scalar] == "vectorized_elementwise_kernel<4, AUnary<CompareEq<long>>>"


def test_long_plain_names_show_where_they_differ() -> None:
    names = [
        f"cudnn_generated_fort_native_sdpa_sm90_flash_{kind}_wgmma_f16_knob_7_64x128x{size}"
        "_4x1x1_cga1x1x1_kernel0_0"
        for kind in ("fprop", "bprop")
        for size in (64, 128)
    ]
    short = short_names([names])
    assert len({*short.values()}) == len(names)
    for name, text in short.items():
        assert len(text) <= LONGEST
        assert "~" not in text
        assert ("x128_" in text) == ("128x128" in name)


def test_what_cannot_be_shown_is_told_by_a_digest() -> None:
    short = short_names([["void a::fill<float>(int)", "void b::fill<float>(int)"]])
    assert len({*short.values()}) == 2
    assert all(text.startswith("fill<float>~") for text in short.values())


def test_a_kernel_has_one_short_name_however_tools_spell_it() -> None:
    nsys = "void at::native::<unnamed>::fused<(int)4, (bool)1, at::native::AddFunctor<c10::Half>>(int, T2)"
    kineto = (
        "void at::native::(anonymous namespace)::fused<4, true, at::native::AddFunctor<c10::Half> >"
        "(int, at::native::AddFunctor<c10::Half>)"
    )
    other = nsys.replace("(int)4", "(int)2")
    short = short_names([[nsys, other], [kineto]])
    assert short[nsys] == short[kineto] != short[other]
    assert "~" not in short[nsys]


def test_lambdas_of_both_compilers_are_the_same() -> None:
    nsys = "at::copy(at::Iter &)::[lambda() (instance 3)]::operator ()() const::[lambda(float) (instance 2)]"
    gcc = "at::copy(at::Iter&)::{lambda()#3}::operator()() const::{lambda(float)#2}"
    expected = Term("k", (Term("copy", parameters=(Term("float"),), instance=2),))
    assert parse_function(f"void k<{nsys}>(int)") == expected
    assert parse_function(f"void k<{gcc} >(int)") == expected


def test_comparisons_are_not_brackets() -> None:
    term = parse_function("void k<std::enable_if<((T1)>(0)), float>, (int)3>(T2)")
    assert [argument.name for argument in term.arguments] == ["enable_if", "3"]
    term = parse_function("void k<(a<b), float>(T2)")
    assert term.name == "k"
    assert term.arguments[-1].name == "float"


@pytest.mark.parametrize(
    "name",
    ["", "<", ">", "()", "void", "::", "operator()", "a<b", "[lambda", "a<{lambda(", "~", "(int)4"],
)
def test_odd_names_have_a_short_name(name: str) -> None:
    (short,) = short_names([[name]]).values()
    assert short


def test_names_as_kineto_spells_them_are_read() -> None:
    trace = json.loads(gzip.decompress((DATA / "torch/train_step.kineto.json.gz").read_bytes()))
    names = {event["name"] for event in trace["traceEvents"] if event.get("cat") == "kernel"}
    short = short_names([names])
    assert len({*short.values()}) == len(names)
    assert "elementwise_kernel<direct_copy_kernel_cuda<bf16>>" in short.values()


@pytest.mark.parametrize("name", REAL)
def test_names_cut_off_anywhere_are_read(name: str) -> None:
    function = parse_function(name).name
    for length in range(1, len(name), 7):
        (short,) = short_names([[name[:length]]]).values()
        assert _balanced(short)
        if f"{function}<" in name[:length]:
            assert short.startswith(function)


@pytest.mark.parametrize(
    "nested", ["a<" * 5000, "a<" * 5000 + ">" * 5000, "(" * 9999, "a::" * 9999]
)
def test_hostile_names_take_no_time(nested: str) -> None:
    (short,) = short_names([[nested]]).values()
    assert _balanced(short)


idents = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,12}", fullmatch=True)
leaves = st.one_of(
    idents,
    st.sampled_from(
        ["float", "c10::BFloat16", "unsigned int", "const long *", "(int)4", "true", "7u"]
    ),
)

#: What nests, as both compilers spell it.
SHAPES = [
    "{name}<{inside}>",
    "ns::{name}Functor<{inside}, {inside} >",
    "{name}({inside})::[lambda({inside}) (instance 2)]",
    "ns::{name}<{inside}>({inside})::{{lambda({inside})#1}}::operator()() const::{{lambda(int)#2}}",
]
nestings = st.lists(st.tuples(st.sampled_from(SHAPES), idents), max_size=4)


def _nested(inside: str, shapes: list[tuple[str, str]]) -> str:
    for shape, name in shapes:
        inside = shape.format(name=name, inside=inside)
    return inside


templates = st.builds(_nested, leaves, nestings)
kernels = st.builds("void {}<{}, {}>({})".format, idents, templates, leaves, templates)
texts = st.text(alphabet="ab<>()[]{},: *&#'4", max_size=60)


@given(st.lists(st.one_of(kernels, templates, texts), max_size=6, unique=True))
@settings(max_examples=40)
def test_short_names_of_any_names_are_short_balanced_and_differ(names: list[str]) -> None:
    short = short_names([names])
    assert short == short_names([names[::-1]])
    assert len({*short.values()}) == len(names)
    for text in short.values():
        assert 0 < len(text) <= LONGEST
        assert _balanced(text)


@given(idents, st.lists(templates, min_size=1, max_size=3), templates)
@settings(max_examples=40)
def test_template_arguments_are_split_at_the_right_commas(
    name: str, arguments: list[str], parameter: str
) -> None:
    term = parse_function(f"void ns::{name}<{', '.join(arguments)}>({parameter})")
    assert term.name == name
    assert len(term.arguments) == len(arguments)


def test_both_profilers_give_a_kernel_the_same_short_name(
    captures: Store, ingested: Callable[[str], str]
) -> None:
    # One training step, profiled by both.
    reports = [ingested(name) for name in ("nsys/gpumetrics.sqlite", "ncu/block.ncu-rep")]
    with Session.open(captures, reports) as session:
        rows = session.sql("SELECT report_id, demangled, short_name FROM kernel_names").fetchall()
    assert len({(report, short) for report, _, short in rows}) == len(rows)
    of_nsys, of_ncu = ({d: s for r, d, s in rows if r == report} for report in reports)
    both = of_nsys.keys() & of_ncu.keys()
    assert len(both) > 20
    assert all(of_nsys[name] == of_ncu[name] for name in both)


def _balanced(text: str) -> bool:
    opened = []
    for sign in text:
        if sign in "<([{":
            opened.append(sign)
        elif sign in ">)]}" and (not opened or opened.pop() + sign not in ("<>", "()", "[]", "{}")):
            return False
    return not opened


def test_names_of_xmma_say_what_tells_them_apart() -> None:
    stem = "sm90_xmma_wgrad_indexed_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize"
    names = [
        f"{stem}{tile}_warpgroupsize{group}_g1_execute_{way}_kernel__5x_cudnn"
        for tile, group, way in (
            ("128x64x32", "1x1x1", "split_k"),
            ("128x64x32", "1x1x1", "segment_k_on"),
            ("64x64x32", "1x1x1", "split_k"),
            ("64x64x32", "2x1x1", "split_k"),
        )
    ]
    short = short_names([names])
    assert [short[name] for name in names[:2]] == [
        "sm90_xmma_wgrad_tf32_nhwc_128x64x32_split_k",
        "sm90_xmma_wgrad_tf32_nhwc_128x64x32_segment_k_on",
    ]
    assert len({*short.values()}) == 4 and all(len(name) <= LONGEST for name in short.values())
