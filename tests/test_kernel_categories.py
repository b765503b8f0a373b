"""Kernel categories: the rules over names, and the view over real captures."""

from __future__ import annotations

from collections.abc import Callable

import duckdb
import pytest
from conftest import Tiny

from perfpipe.analysis.macros import category_macro, macros
from perfpipe.analysis.session import Session
from perfpipe.analysis.thresholds import thresholds
from perfpipe.ingest.ncu.names import function_name
from perfpipe.optimizers import is_optimizer
from perfpipe.store import Store

AT = "void at::native::"
NAMES = {
    "gemm": [
        "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN",
        "ampere_sgemm_128x64_tn",
        "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x256x32_kernel__5x_cublas",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_tn_align8>(T1::Params)",
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int>>>(T1::Params)",
        "void gemv2T_kernel_val<int, int, __half, __half, __half, float, (int)128>(T13, T6, T6)",
        "void cublasLt::splitKreduce_kernel<(int)32, (int)16, int, float>(T1)",
        "triton_red_fused_mm_1", "triton_red_fused__unsafe_view_mm_mul_silu_t_view_9",
        "triton_red_fused__to_copy_add_mean_mm_mul_rsqrt_t_view_14", "triton_per_fused_addmm_silu_t_3",
        "triton_tem_fused_addmm_relu_3", "triton_mm", "matmul_kernel", "gemm_fusion_dot_12",
        "triton_gemm_dot.5",
        "fused_moe_kernel", "void marlin::Marlin<__half, (int)256>(const int4 *)",
        "void mul_mat_q<(ggml_type)2, (int)64, (bool)0>(const char *)",
        "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x256x32", "Cijk_Ailk_Bljk_HHS_BH_MT128x128x16_SE",
        "Cijk_Ailk_Bljk_BBS_BH_MT256x112x32_MI16x16x16x1_SN_1LDSB0_APM1_AF0EM1_ASGT_LRVW8_BL1_BS1",
        "Custom_Cijk_Alik_Bljk_BBS_BH_Bias_AS_SAV_UserArgs_MT256x256x64", "mfma_moe2_silu_mul_dpp_fp8",
        "mfma_moe1_silu_mul_afp4_wfp4_bf16_t32x128x256_pm1_async_v32", "_gemm_a8w8_blockscale_kernel",
        "_ZN5aiter59fmoe_stage1_bf16_pertokenFp8_blockscale_g1u1_32x128_3tg_pf3E",
        "_ZN5aiter33f4gemm_bf16_per1x32Fp4_tn_256x256E", "hgemm_bf16_128x192x64x3_SPK4_W2x4x1_BLDS1_TN",
        "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_gemm_xdl_cshuffle_v3",
        "void ck_tile::kentry<2, ck_tile::GemmKernel<ck_tile::TilePartitioner<1>>>(T1)",
        "void wvSplitK_hf_sml_<__hip_bfloat16, 64, 4, 16, 8, 2, 1>(int)", "rocblas_gemvn_kernel",
        "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __nv_bfloat16>(T1)",
        "void cutlass::reference::device::kernel::Gemm<cutlass::TensorRef<float, L>, (int)4, (int)4>(G)",
        "ReferenceGemm_kernel(int, int, int, float, const float *, int)",
        # Products that a collective is fused into.
        "gemm_one_shot_all_reduce_kernel", "persistent_gemm_all_reduce", "_all_gather_matmul_kernel",
        "void mscclpp::megamoe::detail::megaMoe<false>()",
        "void cutlass::device_kernel<cutlass::distributed::kernel::DistributedGemmKernelWrapper<T>>(T"
        "1::Params)",
    ],
    "convolution": [
        "void conv2d_c1_k1_nhwc_kernel_specialized<__half, __half, __half, float, float, 5, 1, 8, 3>(float)",
        "sm80_xmma_dgrad_implicit_gemm_indexed_f16f16_f16f32_f32_nhwckrsc_nhwc_execute_kernel__5x_cudnn",
        "void fft2d_r2c_32x32<float, (bool)0>(float2 *)", "void conv2d_grouped_direct_kernel<float>(T1)",
        "void implicit_convolve_sgemm<float, float, (int)1024, (int)5>(T1)",
        "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_kernel",
        "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_kernel_cudnn",
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688dgrad_tf32_64x64_nhwc_align4>(T1::Params)",
        "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(T1)",
        "ampere_scudnn_128x64_relu_interior_nn_v1", "triton_tem_fused_convolution_0",
        "igemm_wrw_gtcx3_nhwc_bf16_bx0_ex1_bt128x64x32_wt32x32x8_ws1x1_wr1x2", "Im2d2Col_v2",
        "miopenSp3AsmConv_v30_3_1_gfx9_fp32_f2x3_stride1",
        "naive_conv_ab_nonpacked_fwd_nchw_half_double_half",
        "_ZN2ck16tensor_operation6device37kernel_batched_gemm_xdlops_bwd_weightINS_47GridwiseGemm_bk0mk1",
        AT + "conv_depthwise2d_forward_kernel<(int)3, float, int>(T1)",
        "void causal_conv1d_fwd_kernel<Causal_conv1d_fwd_kernel_traits<(int)128>>(ConvParamsBase)",
    ],
    "attention": [
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_kernel0_0",
        "void cudnn::fusion::compute_dot_do_o_specialized<(bool)1, (int)64>(const void *)",
        "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<(int)64, (int)128>>(Flash_fwd_params)",
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<int>>>(T1::Params)",
        "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel::Params)",
        "void vllm::paged_attention_v2_kernel<unsigned short, (int)128, (int)16>(float *)",
        "void flashinfer::BatchPrefillWithRaggedKVCacheKernel<KernelTraits>(T1)",
        "triton_tem_fused_flex_attention_1", "_attn_fwd", "kernel_unified_attention_2d",
        "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<64>, 4, 1>(Flash_fwd_params)",
        "void cutlass::device_kernel<flash::FlashAttnFwdCombine<cute::tuple<cute::C<8>>, float>>(T1::Params)",
        "void flash_fwd_mla_combine_kernel<float>(T1)", "aiter::fmha_fwd_hd128_bf16_rtz", "sage_fwd",
        "_ZN5aiter42pa_bf16_pertokenFp8_gqa10_1tg_4w_mtp3_msk1E",
        "_ZN5aiter41mla_dec_stage1_bf16_a16w16_subQ128_mqa128E",
        "_ZN7ck_tile6kentryILi2ENS_38FmhaBatchPrefillWithPagedKVCacheKernelINS_40BlockFmhaBatchPrefill",
    ],
    "normalization": [
        "triton_red_fused__to_copy_add_embedding_mean_mul_pow_rsqrt_10",
        "triton_red_fused_fused_add_rms_norm_2",
        "std::enable_if<(bool)1, void>::type vllm::fused_add_rms_norm_kernel<c10::BFloat16, (int)8>(T1 *)",
        AT + "<unnamed>::RowwiseMomentsCUDAKernel<float, float, (bool)0>(long)",
        AT + "<unnamed>::vectorized_layer_norm_kernel<c10::BFloat16, float, (bool)0>(int, T2)",
        AT + "<unnamed>::GammaBetaBackwardCUDAKernelTemplate<float, float, (unsigned int)32>(long)",
        AT + "batch_norm_collect_statistics_kernel<InvStd, float, float, int>(T2)",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, (int)512, (bool)1>(cudnnTensorStruct)",
        "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, (int)8>(T1 *)",
        "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_2", "triton_per_fused_native_layer_norm_7",
        "void transformer_engine::normalization::ln_fwd_tuned_kernel<int>(T1)",
        "MIOpenBatchNormFwdTrainSpatial", "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi16E",
        "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePassINS_27Rmsnorm2dFwd",
    ],
    "softmax": [
        "void <unnamed>::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, (int)10, (bool)0>(T2 *)",
        AT + "<unnamed>::cunn_SoftMaxForward<(int)4, float, float, float>(T4 *)",
        "triton_red_fused__log_softmax_3", "liger_cross_entropy_kernel",
    ],
    "elementwise": [
        "fused_add_reciprocal_mul_sin_pow_mul_add", "void vllm::cvt_fp16_to_fp4<__nv_bfloat16, (bool)1>(int)",
        "triton_poi_fused__scaled_dot_product_flash_attention_transpose_3", "loop_select_fusion",
        AT + "vectorized_elementwise_kernel<(int)8, at::native::CUDAFunctor_add<c10::BFloat16>>(int)",
        AT + "elementwise_kernel<(int)2, at::native::sin_kernel_cuda(T &)::[lambda() (instance 1)]>(int)",
        "triton_poi_fused_add_mul_silu_4", "loop_add_fusion_3", "loop_multiply_fusion", "wrapped_add",
        "void vllm::rotary_embedding_kernel<c10::BFloat16, (bool)1>(const long *)",
        "void vllm::act_and_mul_kernel<c10::BFloat16, silu_kernel>(T1 *)",
        "void thrust::cuda_cub::core::_kernel_agent<thrust::__parallel_for::ParallelForAgent<F>>(F)",
        AT + "<unnamed>::upsample_bilinear2d_out_frame<float, float>(int)", "vadd(float *)", "add_kernel",
        "SubTensorOpWithScalar1d", "Op2dTensorLite", "MIOpenActiveFwdLite",
        "triton_poi_fused_all_reduce_lift_fresh_0",
        "_ZN7sgl_hip10activation18act_and_mul_kernelI14__hip_bfloat16TnPFT_RKS3_EXadL_Z4siluIS2_ES3_S5_E",
        "void rocprim::ROCPRIM_400400_NS::detail::trampoline_kernel<rocprim::ROCPRIM_400400_NS::detail::"
        "transform_config_selector<unsigned long, true>, rocprim::T>(T1)",
    ],
    "reduction": [
        AT + "reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float, at::native::MeanOps<float>>>(T3)",
        "void block_all_reduce_sum_f16x8_pack_f32_kernel<(int)32>(half *, float *, int)",
        "warpAllReduceSum(float *)", "triton_red_fused_all_reduce_mean_2",
        "void rocprim::ROCPRIM_400200_NS::detail::trampoline_kernel<rocprim::ROCPRIM_400200_NS::detail::"
        "wrapped_scan_config<rocprim::ROCPRIM_400200_NS::default_config, long>, rocprim::T>(T1)",
        "void cutlass::reference::device::kernel::BlockCompareEqual<float>(int *, const T1 *, const T1 *)",
        "triton_red_fused__to_copy__unsafe_view_add_mean_mm_mul_15",
        "triton_red_fused_sum_1", "triton_per_fused_mean_0", "input_reduce_fusion_2", "wrapped_reduce",
        "matmul_backward_bias_kernel9<__nv_bfloat16>(T1 *)",
        "void cub::DeviceReduceSingleTileKernel<Policy, float *, float *, int, cub::Sum, float>(T1)",
        "void cub::DeviceScanKernel<Policy, int *, int *>(T1)", "void dot_kernel<float, (int)128>(T1)",
        AT + "nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(T1 *)",
        AT + "<unnamed>::max_pool_forward_nchw<float, int>(int)",
        AT + "<unnamed>::multi_tensor_apply_kernel<at::native::<unnamed>::TensorListMetadata<(int)1>, "
        "at::native::<unnamed>::LpNormFunctor<float, (at::native::NormType)1, float, (int)1>>(T1)",
    ],
    "optimizer": [
        AT + "<unnamed>::multi_tensor_apply_kernel<M, at::native::FusedAdamMathFunctor<float, (int)4>>(T1)",
        AT + "<unnamed>::multi_tensor_apply_kernel<M, at::native::TernaryOpScalarFunctor<float>>(T1)",
        "void kOptimizer32bit2State<float, (int)1>(T1 *)", "triton_for_fused_0",
    ],
    "gather_scatter": [
        "void shuffleInputRowsKernel<__nv_bfloat16>(const T1 *)", "triton_poi_fused__to_copy_embedding_1",
        AT + "<unnamed>::indexSelectSmallIndex<c10::Half, long, unsigned int, (int)2>(T1)",
        AT + "index_elementwise_kernel<(int)128, (int)4, F>(long, T3)",
        AT + "vectorized_gather_kernel<(int)16, long>(char *)",
        AT + "_scatter_gather_elementwise_kernel<(int)128, (int)8, F>(int, T3)",
        AT + "<unnamed>::embedding_backward_feature_kernel<float, float, long>(const T3 *)",
        AT + "<unnamed>::sum_and_scatter<c10::BFloat16, long>(const T2 *)",
        "void scatter_kernel<float, (ReductionType)0>(const float *)", "void segment_csr_kernel<float>(T1)",
        "void dgl::aten::cuda::SpMMCsrKernel<long, float>(T1)", "loop_gather_fusion", "wrapped_scatter",
        "void moe::dev::routing::routingIndicesOffsetsKernel<moe::dev::routing::KernelParams<float>>(T1)",
        "void cusparse::csrmm_v3_kernel<int>(T1)", "triton_poi_fused_embedding_0",
    ],
    "sort": [
        "topk_gating_softmax_kernel", "compute_arg_sorts",
        "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<P, (bool)0, long, int, int, int>(T1)",
        AT + "mbtopk::computeBlockDigitCounts<float, unsigned int>(T1)",
        AT + "sbtopk::gatherTopK<float, unsigned int, (int)2, (bool)0>(T1)",
        AT + "mbtopk::fill<unsigned int, unsigned int>(T1 *, T1, T2)",
        AT + "bitonicSortKVInPlace<(int)2, (int)-1, (int)16>(T1)",
        "void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::__merge_sort::BlockSortAgent<T>>(T1)",
        "void vllm::moe::topkGatingSoftmax<(int)4, (int)64>(const float *)", "wrapped_sort",
    ],
    "rng": [
        "_gumbel_sample_kernel", "setup_kernel(curandStateXORWOW *, unsigned long)",
        "void rocrand_impl::host::generate_kernel<rocrand_impl::host::XORWOW>(T1)",
        "void cutlass::reference::device::kernel::TensorForEach<cutlass::reference::device::detail::"
        "TensorFillRandomUniformFunc<cutlass::half_t, cutlass::layout::RowMajor>, (int)2, P>(T1)",
        "void cutlass::reference::device::kernel::BlockForEach<float, cutlass::reference::device::detail::"
        "RandomUniformFunc<float>>(T1 *, unsigned long, T2::Params)",
        AT + "<unnamed>::distribution_elementwise_grid_stride_kernel<float, (int)4, F>(long)",
        "void generate_seed_pseudo<rng_config<curandStateXORWOW>>(unsigned long long)",
        AT + "<unnamed>::fused_dropout_kernel_vec<float, float, unsigned int>(T1)",
        AT + "<unnamed>::sampleMultinomialOnce<float, float>(long *)", "loop_threefry2x32_fusion",
    ],
    "copy": [
        "void cudnn::ops::nhwcToNchwKernel<__half, __half, float>(T1)", "reshape_and_cache_kernel_flash",
        "void cutlass::reference::device::kernel::TensorForEach<cutlass::reference::device::detail::"
        "TensorFillLinearFunc<float, cutlass::layout::RowMajor>, (int)2, P>(T1)",
        "InitializeMatrix_kernel(float *, int, int, int)", "__amd_rocclr_fillBufferAligned",
        "batched_transpose_32x32_half", "transpose_NCHW2CNHW_V2_2D_WG_off64",
        AT + "<unnamed>::CatArrayBatchedCopy<float, unsigned int, (int)2>(T1 *)",
        AT + "unrolled_elementwise_kernel<at::direct_copy_kernel_cuda(T &)::[lambda() (instance 3)]>(int)",
        AT + "vectorized_elementwise_kernel<(int)8, at::bfloat16_copy_kernel_cuda(T &)::[lambda(float) "
        "(instance 1)]>(int)",
        AT + "vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>>(int)",
        "void cudnn::ops::nchwToNhwcKernel<float, float, float>(T1)", "triton_poi_fused_clone_2",
        "triton_poi_fused__to_copy_transpose_11", "input_transpose_fusion", "wrapped_concatenate",
        "void vllm::reshape_and_cache_flash_kernel<unsigned short>(T1)",
    ],
    "communication": [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
        "void vllm::cross_device_reduce_1stage<float, (int)2>(T1)", "nvshmemi_transfer_amo",
        "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", "ncclSymkDevKernel_AllGather_LL(T1)",
        "rcclGenericKernel(ncclWork *)", "mscclKernel_Sum_hip_bfloat16_Simple(ncclDevComm *)",
        "void deep_ep::internode_ll::dispatch<(bool)1, (bool)1, (int)6144>(void *, void *, int *)",
        "void deep_ep::internode::notify_dispatch<false, 4>(int const*, int*, int)",
        "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(__nv_bfloat16*)",
        "void primus_turbo::deep_ep::intranode::notify_dispatch<8>(int const*)",
        "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*, int*)",
        "void ep::internode::dispatch<false, 8, false, 20>(int4*, float*, long*)",
        "void hybrid_ep::dispatch_kernel<hybrid_ep::Config>(T1)", "EpDispatchIntraNodeKernel_bf16",
        "void mori::moe::EpCombineIntraNodeKernel<hip_bfloat16>(mori::moe::EpDispatchCombineArgs<hip_"
        "bfloat16>)",
        "void pplx::a2a::dispatch_kernel(int*)", "void uccl::ep::internode_ll::combine<3>(void*)",
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, un"
        "signed long)",
        "void <unnamed>::two_shot_all_reduce_kernel_inplace<c10::BFloat16, (int)16, (int)8>(T1 **, T1 *)",
        "void <unnamed>::multimem_one_shot_reduce_kernel<float, (int)16>(T1 *)",
        "(anonymous namespace)::barrier_kernel(unsigned int**, int, int, int, unsigned long)",
        "c10d::nvshmem_extension::exchangeSplitAndOffset(long*, long*)", "_one_shot_all_reduce_kernel",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<(flashinfer::"
        "trtllm_allreduce_fusion::AllReduceFusionPattern)1, __nv_bfloat16, 8, false, false>(T1)",
        "void flashinfer::trtllm_moe_allreduce_fusion::moefinalize_allreduce_fusion_kernel_oneshot_la"
        "mport<T>(P)",
        "void flashinfer::trtllm_mnnvl_allreduce::rmsNormLamport<__nv_bfloat16, 8>(T1 *)",
        "void tensorrt_llm::kernels::oneShotAllReduceKernel<half, 8, true, false>(AllReduceParams)",
        "void tensorrt_llm::kernels::moe_alltoall::moeA2ADispatchKernel<8, false>(int const*)",
        "void tensorrt_llm::kernels::moe_comm::moeAlltoAllKernel<8>(Params)",
        "void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<4>(int)", "kuserbuffers_pushrecv(int, int, int *)",
        "void transformer_engine::userbuffers::reduce_scatter(int*)",
        "void quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half, CodecQ4<__half,8>, tr"
        "ue>, __half>",
        "void aiter::reduce_scatter_cross_device_store<__hip_bfloat16, 8>(RankData*)",
        "void aiter::allgather_lastdim<__hip_bfloat16, 8>(RankData*)",
        "void mscclpp::allreduce<float>(float*)",
        "_ZN5aiter26cross_device_reduce_1stageI14__hip_bfloat16Li8EEEvPNS_8RankDataE",
        "_ZN7deep_ep9internode8dispatchILb0ELi8EEEvP4int4", "void nvshmem::alltoall_kernel<int>(int*)",
        "void barrier_on_stream_kernel_threadgroup_nvshmem<(int)1>(int)", "rocshmem_reduce_on_stream_kernel",
        "void stream_executor::gpu::(anonymous namespace)::OneShotAllReduceKernelImpl<float>(T1)",
        "dlslime::intranode_alltoall_kernel(int *)",
    ],
    "other": [
        "fused", "my_kernel(float *, int)", "monte_carlo(curandStateXORWOW *, float *)", "",
        "void dispatch<(int)8>(T1 *)", "combine_kernel(float *)", "barrier_kernel(int *)",
        "pointer_chase(const int *, int *, int)",
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def judge() -> Callable[[str], str]:
    con = duckdb.connect()
    made = macros(thresholds())
    con.execute(made["is_communication"].sql)
    con.execute(category_macro().sql)

    def one(demangled: str) -> str:
        query = "SELECT kernel_category(?, ?)"
        ((category,),) = con.execute(query, [function_name(demangled), demangled]).fetchall()
        return str(category)

    return one


@pytest.mark.parametrize(
    ("category", "name"), [(category, name) for category, names in NAMES.items() for name in names]
)
def test_a_name_has_its_category(judge: Callable[[str], str], category: str, name: str) -> None:
    assert judge(name) == category


def test_communication_is_what_the_budget_calls_so(judge: Callable[[str], str]) -> None:
    con = duckdb.connect()
    con.execute(macros(thresholds())["is_communication"].sql)
    for name in (name for names in NAMES.values() for name in names):
        query = "SELECT is_communication(?, ?)"
        ((said,),) = con.execute(query, [function_name(name), name]).fetchall()
        assert said == (judge(name) == "communication"), name


def test_kernel_time_is_divided_among_categories() -> None:
    rows = Tiny()
    kernels = [
        ("nvjet_a", "nvjet_a", 60),
        ("nvjet_b", "nvjet_b", 20),
        (
            "fill",
            "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>>(int)",
            15,
        ),
        ("secret", "secret", 5),
    ]
    for number, (name, demangled, dur) in enumerate(kernels):
        for again in range(2):
            start = 1000 * (2 * number + again)
            rows.add(
                "launches",
                {"kind": "kernel", "device": 0, "pid": 1, "name": name, "demangled": demangled,
                 "start_ns": start, "end_ns": start + dur, "op_id": 2 * number + again},
            )  # fmt: skip
            rows.add("nsys_kernels", {"name": name, "demangled": demangled})
    assert rows.rows(
        "SELECT category, kernels, launches, time_ns, round(share_pct, 3), longest, longest_pct "
        "FROM kernel_categories"
    ) == [
        ("gemm", 2, 4, 160, 80.0, "nvjet_a", 75.0),
        ("copy", 1, 2, 30, 15.0, "vectorized_elementwise_kernel<FillFunctor<float>>", 100.0),
        ("other", 1, 2, 10, 5.0, "secret", 100.0),
    ]


@pytest.mark.parametrize("name", ["compute", "ddp_single", "eager_small", "gpumetrics", "h2d"])
def test_no_kernel_time_of_pytorch_is_left_over(
    captures: Store, ingested: Callable[[str], str], name: str
) -> None:
    report = ingested(f"nsys/{name}.sqlite")
    with Session.open(captures, [report], window="whole") as session:
        found = session.sql(
            "SELECT device, category, time_ns, share_pct FROM kernel_categories"
        ).fetchall()
        total = session.sql("SELECT sum(dur_ns)::BIGINT FROM nsys_kernels").fetchall()
    assert sum(time for _, _, time, _ in found) == total[0][0]
    for device in {row[0] for row in found}:
        shares = {category: share for gpu, category, _, share in found if gpu == device}
        assert sum(shares.values()) == pytest.approx(100)
        assert shares["other"] == 0
        assert shares["gemm"] > 5
        assert ("communication" in shares) == (name == "ddp_single")


def test_steps_and_categories_know_the_same_optimizers() -> None:
    """Ingest looks for them, to see where steps end, by the same patterns."""
    for category, names in NAMES.items():
        for name in names:
            if category not in ("reduction", "copy"):  # some share the launcher of optimizers
                assert is_optimizer(function_name(name)) == (category == "optimizer"), name
    others = ("lambda_kernel", "million_k", "triton_poi_fused_add_0")
    assert not any(map(is_optimizer, others))
    named = ("fused_adafactor", "lion_update", "apex_lamb_stage_1", "optimiser_step", "ADAM_cuda")
    assert all(map(is_optimizer, named))
