"""Libraries told apart by names: real ones, those of other reports, and names that only look alike."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from conftest import ROOT, Opened, Tiny

from perfpipe.analysis.macros import closed_macro, library_macro
from perfpipe.ingest.ncu.names import function_name

Ingested = Callable[[str], str]

AT = "void at::native::"

#: Names from other programs' reports.
NAMES = {
    "cublas": [
        "nvjet_tst_128x256_64x6_2x1_2cta_v_bz_TNT",
        "nvjet_sm120_hss_mma_128x176x64_2_32x88x64_tmaAB_alignCD4_bz_NNNN",
        "ampere_sgemm_128x64_tn", "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_nn",
        "volta_h884gemm_64x128_ldg8_nn", "sm89_xmma_gemm_e4m3f32_e4m3f32_f32_tn_n_tilesize64x64x64_cublas",
        "cutlass_80_wmma_tensorop_f16_s161616gemm_f16_16x16_128x2_tn_align8",
        "cutlass3x_sm100_simt_sgemm_f32_f32_f32_f32_f32_128x64x16_1x1x1_3_tnn_align1_bias_f32_relu",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x256_32x4_tn_align8>(T1)",
        "std::enable_if<(bool)1, void>::type internal::gemvx::kernel<int, int, __nv_bfloat16>(T13)",
        "void gemmSN_TN_kernel<float, (int)128, (int)16, (int)2>(T1)",
        "void gemmk1_kernel<int, float, (int)256, (int)5>(cublasGemmk1Params<float>)",
        "void dot_kernel<float, (int)128, (int)0, cublasDotParams<cublasGemvTensor<const float>>>(T4)",
        "void splitKreduce_kernel<(int)32, (int)16, int, float>(T1)",
        "void axpy_kernel_val<float, float>(cublasAxpyParamsVal<T1, T1, T2>)",
        "void scal_kernel_val<float, float>(cublasScalParamsVal<T1, T2>)",
        "void copy_kernel<float>(cublasCopyParams<T1>)",
    ],
    "cudnn": [
        "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_kernel_cudnn",
        "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_kernel__5x_cudnn",
        "ampere_scudnn_128x64_relu_interior_nn_v1",
        "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_64x64_32x10>(T1)",
        "void cutlass::Kernel<cutlass_80_tensorop_s1688dgrad_tf32_64x64_nhwc_align4>(T1::Params)",
        "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(T1)",
        "void implicit_convolve_sgemm<float, float, (int)1024, (int)5>(T1)",
        "void fft2d_r2c_32x32<float>(T1)",
        "void cudnn::ops::nchwToNhwcKernel<float, float, float>(T1)",
    ],
    "nccl": [
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm *)", "ncclSymkDevKernel_AllGather_STMC",
        "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)",
    ],
    "nvshmem": ["nvshmemi_transfer_amo"],
    "flash_attention": [
        "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<(int)64, (int)128>>(Flash_fwd_params)",
        "void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Traits>(flash::Flash_bwd_params)",
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<int>>>(T1::Params)",
        "kernel_cutlass_kernel_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100_object_at__tensor_0",
    ],
    "flashinfer": [
        "void flashinfer::BatchPrefillWithRaggedKVCacheKernel<KernelTraits>(T1)",
        "kernel_cutlass_kernel_flashinfernormkernelsfused_add_rmsnormFusedAddRMSNormKernel_object_at__",
    ],
    "transformer_engine": ["void transformer_engine::normalization::ln_fwd_tuned_kernel<int>(T1)"],
    "vllm": [
        "void vllm::act_and_mul_kernel<c10::BFloat16, silu_kernel>(T1 *)",
        "std::enable_if<(bool)1, void>::type vllm::fused_add_rms_norm_kernel<c10::BFloat16, (int)8>(T1 *)",
    ],
    "cusparse": ["void cusparse::csrmm_v3_kernel<int>(T1)"],
    "cufft": ["void vector_fft<(unsigned int)256, EPT<(unsigned int)8>, (unsigned int)32>(T4)"],
    "torch_native": [
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>(float*)",
        "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel::Params)",
        "void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<cutlass::X>>(T1::Params)",
        AT + "vectorized_elementwise_kernel<4, my::Functor<float>>(int)",
    ],
    "thrust_cub": [
        "void cub::CUB_200400_900_NS::DeviceReduceSingleTileKernel<Policy, float *, cub::Sum>(T1)",
        "void thrust::cuda_cub::core::_kernel_agent<thrust::__parallel_for::ParallelForAgent<F>>(F)",
    ],
    "inductor": [
        "triton_poi_fused_add_mul_silu_4", "triton_red_fused__to_copy_mean_mul_pow_rsqrt_2",
        "triton_tem_fused_addmm_relu_3", "triton_for_fused_0", "triton_per_fused_native_layer_norm_7",
    ],
    "xla": [
        "loop_add_fusion_3", "input_reduce_fusion", "fusion_12", "gemm_fusion_dot_general_744",
        "triton_gemm_dot.5", "triton_softmax_fusion_2", "wrapped_transpose", "input_transpose_fusion.1",
    ],
    "cutlass": [
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int>>>(T1::Params)",
        "void cutlass::Kernel<cutlass::gemm::kernel::Gemm<cutlass::gemm::threadblock::X>>(T1::Params)",
        "void cutlass::device_kernel<cutlass3x_sm90_tensorop_gemm_f16_f16_f32_128x128x64>(T1::Params)",
        "kernel_cutlass_kernel_mymoduleMyGemm_object_at__tensorptrbf16_0", "cutlass_cd923be8",
    ],
    "triton": ["matmul_kernel_0d1d2d3d4d5d6d7c8d9c10d11c", "add_kernel_0d1d2d3de"],
    # What others could have written, or take from a library.
    "own": [
        "my_gemm(float *, int)", "sgemm_128x64(const float *, float *)", "void gemm::kernel<float>(T1 *)",
        "nccl_wait(int *)", "void app::scan<cub::BlockScan<int, (int)128>>(int *)", "cublas_like(float *)",
        "void app::reduce<at::native::Functor>(T1)", "void my::flash<float>(T1 *)",
        "softmax_warp_forward(float *)",
        "void conv2d<cudnn::Params>(T1)", "fusion(float *)", "loop_fusion_kernel", "wrapped_kernel",
        "triton_mm",
        "void splat::at::kernel<float>(T1)", "adv_0d", "my_fusion", "void cutlassish::Kernel<int>(T1)",
        "flash_fwd_kernel(float *)", "gemv(float *)", "kernel_01", "matmul_kernel", "", "fused",
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def judge() -> Callable[[str], str]:
    con = duckdb.connect()
    con.execute(library_macro().sql)

    def one(demangled: str) -> str:
        ((library,),) = con.execute(
            "SELECT kernel_library(?, ?)", [function_name(demangled), demangled]
        ).fetchall()
        return str(library)

    return one


@pytest.mark.parametrize(
    ("library", "name"), [(library, name) for library, names in NAMES.items() for name in names]
)
def test_a_name_has_its_library(judge: Callable[[str], str], library: str, name: str) -> None:
    assert judge(name) == library


def test_every_name_of_the_captures_has_its_library(
    judge: Callable[[str], str], expand: Callable[[str], Path]
) -> None:
    """The names of all kernels in real timelines and ncu reports, with what they are, by hand."""
    rows = [
        line.split("\t") for line in expand("kernel_libraries.tsv").read_text().splitlines() if line
    ]
    assert len(rows) == 244
    assert len({library for library, _ in rows}) == 6
    wrong = [(library, judge(name), name) for library, name in rows if judge(name) != library]
    assert wrong == []


def test_every_library_has_a_rule_and_is_open_or_closed() -> None:
    rules = tomllib.loads((ROOT / "analysis" / "libraries.toml").read_text())
    libraries = {*rules["libraries"]}
    assert {rule["library"] for rule in rules["rule"]} == libraries - {"own"}
    assert {*rules["closed"]} == libraries - {"own", "cutlass", "triton"}
    assert NAMES.keys() | {"tensorrt_llm"} == libraries
    con = duckdb.connect()
    con.execute(closed_macro().sql)
    for library in libraries:
        ((closed,),) = con.execute("SELECT is_closed(?)", [library]).fetchall()
        assert closed == (library in rules["closed"])


def test_triton_kernels_are_told_by_their_source(opened: Opened) -> None:
    """Names such as `fused` and `vadd` are their authors' choice."""
    with opened("ncu/ops.ncu-rep") as con:
        found = con.execute(
            "SELECT DISTINCT kernel_name, library, closed, told_by FROM kernel_libraries "
            "WHERE library NOT IN ('torch_native', 'thrust_cub') ORDER BY ALL"
        ).fetchall()
    assert found == [
        ("Kernel2", "cublas", True, "name"),
        (
            "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_"
            "cga1x1x1_kernel0_0",
            "cudnn",
            True,
            "name",
        ),
        ("fused", "triton", False, "source"),
        ("nvjet_sm90_hsh_256x128_64x4_1x2_h_bz_coopA_NNT", "cublas", True, "name"),
        (
            "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x256x32_warpgroupsize2x1x1_execute_"
            "segment_k_off_kernel__5x_cublas",
            "cublas",
            True,
            "name",
        ),
        ("vadd", "triton", False, "source"),
    ]


def test_cuda_kernels_are_ones_own(opened: Opened) -> None:
    with opened("ncu/visible.ncu-rep") as con:
        found = con.execute("SELECT library, closed, told_by FROM kernel_libraries").fetchall()
    assert found == [("own", False, None)] * 15


@pytest.mark.parametrize("name", ["ops", "block"])
def test_csv_pages_tell_the_same(opened: Opened, name: str) -> None:
    """They shorten names, and have no source."""
    sql = (
        "SELECT launch_id, CASE told_by WHEN 'source' THEN 'own' ELSE library END "
        "FROM kernel_libraries ORDER BY launch_id"
    )
    answers = []
    for form in ("ncu-rep", "raw.csv", "details.csv"):
        with opened(f"ncu/{name}.{form}") as con:
            answers.append(con.execute(sql).fetchall())
    assert answers[0] == answers[1] == answers[2]


def test_source_tells_only_bare_names() -> None:
    """Numba's kernels are of Python source too; their names have parameters."""
    names = [
        "fused",
        "fused",
        "cudapy::run[abi:v1](Array<float>)",
        "plain",
        "triton_poi_fused_add_0",
    ]
    db = Tiny(
        [
            {"launch_id": number, "kernel_name": name.split("[")[0], "kernel_demangled": name}
            for number, name in enumerate(names)
        ]
    )
    for launch, file in ((0, "/app/run.py"), (2, "/app/run.py"), (3, "run.cu"), (4, "/tmp/c1.py")):
        db.add("ncu_source", {"launch_id": launch, "pc": 0, "file": file})
    assert db.rows("SELECT library, told_by FROM kernel_libraries ORDER BY launch_id") == [
        ("triton", "source"),
        ("triton", "source"),
        ("own", None),
        ("own", None),
        ("inductor", "name"),
    ]


def test_kernel_time_is_divided_among_libraries() -> None:
    rows = Tiny([{"launch_id": 0, "kernel_name": "fused", "kernel_demangled": "fused"}])
    rows.add("ncu_source", {"launch_id": 0, "pc": 0, "file": "/app/run.py"})
    fill = AT + "vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>>(int)"
    kernels = [
        ("nvjet_a", "nvjet_a", 60),
        ("nvjet_b", "nvjet_b", 20),
        ("fill", fill, 10),
        ("fused", "fused", 6),
        ("secret", "secret(int)", 4),
    ]
    for number, (name, demangled, dur) in enumerate(kernels):
        start = 1000 * number
        rows.add(
            "launches",
            {"kind": "kernel", "device": 0, "pid": 1, "name": name, "demangled": demangled,
             "start_ns": start, "end_ns": start + dur, "op_id": number},
        )  # fmt: skip
        rows.add("nsys_kernels", {"name": name, "demangled": demangled})
    assert rows.rows(
        "SELECT library, closed, kernels, launches, time_ns, share_pct, longest, longest_pct "
        "FROM kernel_library_times"
    ) == [
        ("cublas", True, 2, 2, 80, 80.0, "nvjet_a", 75.0),
        ("torch_native", True, 1, 1, 10, 10.0, "vectorized_elementwise_kernel<FillFunctor<float>>", 100),
        ("triton", False, 1, 1, 6, 6.0, "fused", 100.0),
        ("own", False, 1, 1, 4, 4.0, "secret", 100.0),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["ddp_single", "eager_small"])
def test_no_kernel_of_pytorch_is_ones_own(opened: Opened, name: str) -> None:
    with opened(f"nsys/{name}.sqlite", window="whole") as session:
        found = session.sql(
            "SELECT device, library, time_ns, share_pct FROM kernel_library_times"
        ).fetchall()
        total = session.sql("SELECT sum(dur_ns)::BIGINT FROM nsys_kernels").fetchall()
    assert sum(time for _, _, time, _ in found) == total[0][0]
    for device in {row[0] for row in found}:
        shares = {library: share for gpu, library, _, share in found if gpu == device}
        assert sum(shares.values()) == pytest.approx(100)
        assert {"cublas", "cudnn", "torch_native"} <= shares.keys()
        assert "own" not in shares
        assert ("nccl" in shares) == (name == "ddp_single")
