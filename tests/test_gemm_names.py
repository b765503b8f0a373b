"""Tiles and problem sizes of matrix products, out of names, ranges and parameters."""

from __future__ import annotations

import pytest
from conftest import Tiny

from perfpipe.analysis.gemm import Problem, Tile, problem_of_parameters, problem_of_path, tile_of


@pytest.mark.parametrize(
    ("name", "tile"),
    [
        ("nvjet_sm90_hsh_256x128_64x4_1x2_h_bz_coopA_NNT", Tile(256, 128, 64, 1, 2)),
        ("nvjet_sm90_qqtst_144x128_128x6_1x2_h_bz_coopA_algo2_TNN", Tile(144, 128, 128, 1, 2)),
        ("nvjet_tst_128x8_64x12_4x1_v_bz_TNT", Tile(128, 8, 64, 4, 1)),
        ("nvjet_sm120_hss_mma_128x176x64_2_32x88x64_tmaAB_alignCD4_bz_NNNN", Tile(128, 176, 64)),
        (
            "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x256x32_warpgroupsize2x1x1_execute",
            Tile(128, 256, 32),
        ),
        (
            "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma",
            Tile(64, 64, 8),
        ),
        (
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(T1::Params)",
            Tile(256, 128, 8),
        ),
        ("cutlass_80_wmma_tensorop_f16_s161616gemm_f16_16x16_128x2_tn_align8", Tile(16, 16, 128)),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x256_32x4_tn_align8>",
            Tile(64, 256, 32),
        ),
        (
            "cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_void_bf16_128x128x64_2x1x1_0_tnn_"
            "align8_warpspecialized_pingpong_epi_tma",
            Tile(128, 128, 64, 2, 1),
        ),
        (
            "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int>, "
            "cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<9, "
            "cute::tuple<cute::C<2>, cute::C<1>, cute::C<1> >, "
            "cutlass::gemm::KernelTmaWarpSpecializedPingpong>, "
            "cute::tuple<cute::C<128>, cute::C<64>, cute::C<64> >, cutlass::bfloat16_t>>>(T1)",
            Tile(128, 64, 64, 2, 1),
        ),
        (
            "void cutlass::Kernel<cutlass::gemm::kernel::Gemm<cutlass::gemm::threadblock::MmaMultistage<"
            "cutlass::gemm::GemmShape<(int)128, (int)64, (int)32>, X<cutlass::gemm::GemmShape<(int)64, "
            "(int)32, (int)32>>>>>(T1::Params)",
            Tile(128, 64, 32),
        ),
        ("ampere_sgemm_128x64_tn", Tile(128, 64)),
        ("ampere_fp16_s16816gemm_fp16_128x64_sliced1x2_ldg8_f2f_stages_64x5_tn", Tile(128, 64, 64)),
        ("volta_h884gemm_64x128_ldg8_nn", Tile(64, 128)),
        # It does not say whether the tile is that of the pair of blocks.
        ("nvjet_sm100_tst_256x128_64x5_2x2_2cta_h_bz_TNT", None),
        ("matmul_kernel", None),
        ("void mul_mat_q<(ggml_type)2, (int)64, (bool)0>(const char *)", None),
    ],
)
def test_a_name_tells_its_tile(name: str, tile: Tile | None) -> None:
    assert tile_of(name) == tile


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("gemm_fp16_4096", Problem(1, 4096, 4096, 4096)),
        ("step 3/bmm_fp16_b32_m512_n1024_k2048", Problem(32, 512, 1024, 2048)),
        ("matmul M=512, N=256, K=64/inner", Problem(1, 512, 256, 64)),
        ("gemm_512x256x64", Problem(1, 512, 256, 64)),
        ("aten::mm, op_id = 7, sizes = [[512, 64], [64, 256]]", Problem(1, 512, 256, 64)),
        ("aten::addmm, seq = 3, sizes = [[256], [512, 64], [64, 256], [], []]", Problem(1, 512, 256, 64)),
        ("aten::bmm, sizes = [[8, 512, 64], [8, 64, 256]]", Problem(8, 512, 256, 64)),
        ("aten::linear, sizes = [[4, 128, 64], [256, 64], [256]]", Problem(1, 512, 256, 64)),
        # The innermost range that names one counts.
        ("gemm_64/aten::mm, sizes = [[512, 64], [64, 256]]", Problem(1, 512, 256, 64)),
        ("fused_matmul_leaky_relu_128x128x64x8x8x3", None),
        ("unfused_matmul_leaky_relu", None),
        ("step 12/forward", None),
        ("aten::mm, sizes = [[], []]", None),
        ("aten::add, sizes = [[512, 64], [512, 64]]", None),
        ("", None),
        (None, None),
    ],
)  # fmt: skip
def test_a_range_names_its_problem(path: str | None, problem: Problem | None) -> None:
    assert problem_of_path(path) == problem


def test_parameters_are_a_problem_if_the_work_is_its_product() -> None:
    assert problem_of_parameters({"size": 64}, 2 * 64**3) == Problem(1, 64, 64, 64)
    assert problem_of_parameters({"size": 64, "k": 8}, 2 * 64**2 * 8) == Problem(1, 64, 64, 8)
    assert problem_of_parameters({"m": 3, "n": 4, "k": 5, "batch": 2}, 240) == Problem(2, 3, 4, 5)
    assert problem_of_parameters({"size": 64}, 64**2) is None
    assert problem_of_parameters({"size": 64}, None) is None
    assert problem_of_parameters({"m": 3, "n": 4}, 24) is None


def test_triton_kernels_are_told_by_range_and_parameters() -> None:
    rows = [
        {"launch_id": number, "kernel_name": name, "kernel_demangled": name, "nvtx_path": path,
         "grid_x": 64, "grid_y": 1, "grid_z": 1, "block_x": threads, "block_y": 1, "block_z": 1}
        for number, (name, path, threads) in enumerate(
            [
                ("fused", "matmul_leaky_relu_128x64x32x8x4x2", 128),
                ("fused", "matmul_leaky_relu_128x64x32x8x4x2", 256),  # not of 4 warps
                ("mm", "BLOCK_M=64 BLOCK_N=32 BLOCK_K=16", 128),
                ("matmul_kernel", "iteration 0", 128),
                ("fused", "softmax_128x64x32x8x4x2", 128),
            ]
        )
    ]  # fmt: skip
    db = Tiny(rows, {number: {} for number in range(len(rows))})
    for number in range(len(rows)):
        db.add("ncu_source", {"launch_id": number, "pc": 0, "file": "run.py"})
    db.con.execute("UPDATE reports SET run_id = 'run'")
    params = '{"size": 1024, "BLOCK_M": 128, "block_n": "256", "block_k": 64}'
    task = {"run_id": "run", "task_index": 0, "params": params, "flops": 2.0 * 1024**3}
    db.add("run_tasks", task | {"reports": ["r"]})
    assert db.rows(
        "SELECT launch_id, tile_m, tile_n, tile_k, tile_source, m, problem_source "
        "FROM gemm_quantisation"
    ) == [
        (0, 128, 64, 32, "NVTX", 1024, "parameters"),
        (1, 128, 256, 64, "parameters", 1024, "parameters"),
        (2, 64, 32, 16, "NVTX", 1024, "parameters"),
        (3, 128, 256, 64, "parameters", 1024, "parameters"),
    ]


def test_what_is_no_tiled_product_is_left_out() -> None:
    names = [
        "void gemv2T_kernel_val<int, int, __half>(T1)",
        "void cublasLt::splitKreduce_kernel<(int)32, (int)16, int, float>(T1)",
        "vadd",
    ]
    db = Tiny(
        [{"launch_id": i, "kernel_demangled": n, "kernel_name": n} for i, n in enumerate(names)]
    )
    assert db.rows("SELECT kernel_name FROM gemm_quantisation") == []
