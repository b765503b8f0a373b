-- GPUs that spend most of a step in FP32 computation. Only programs with neural-network operators are
-- included, and only GPUs with tensor cores.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- share_pct DOUBLE: percentage of the step time spent in kernels whose names indicate FP32 or TF32
-- tf32_pct DOUBLE: percentage of the step time spent in kernels whose names indicate TF32
-- step_ns DOUBLE: mean time per step spent in FP32 and TF32 kernels, ns; NULL if there are no steps
-- step_launches BIGINT: mean number of FP32 and TF32 kernel launches per step; NULL if there are no steps
-- longest VARCHAR: kernels with the largest total time, as in precision_times
-- technique VARCHAR: key of the technique in the knowledge base
-- difficulty VARCHAR: difficulty of the technique: low, medium or high
-- gain_pct DOUBLE: upper bound on the gain, % of the step time: half of the time in FP32 and TF32 kernels,
--   plus the other half for matrix products that do not use TF32, because tensor cores would need only a
--   small fraction of the time. The bound never exceeds the time during which the host waits for the GPU
-- floor VARCHAR: time that the upper bound assumes to remain: half_types (the time that the kernels need in
--   a narrower data type) or host (the time that the host needs to issue the step's work)
/* finding
claim = "single_precision"
says = "computes in FP32"
evidence = """\
kernels whose names indicate FP32{% if tf32_pct > 0 %} or TF32{% endif %} take {{ share }}\
{% if tf32_pct > 0 %}, {{ '%.1f' | format(tf32_pct) }} % in TF32{% endif %}\
{% if step_launches %} ({{ step_launches | counted('launch') }} and {{ step_ns | ns }} per step){% endif %}\
; longest kernels: {{ longest }}"""
question = "SELECT type, launches, time_ns, share_pct, kernel_pct, longest FROM precision_times"
confidence = "medium"

[columns]
time_ns = "step_ns"
launches = "step_launches"
causes = "longest"

[assumes]
half_types = "the FP32 kernels moved half the bytes, and matrix products ran in 16 bits on tensor cores"

[techniques.mixed_precision]
technique = "Train and run inference in mixed precision (BF16)"
detail = """\
torch.autocast(\"cuda\", dtype=torch.bfloat16), or the equivalents of JAX and Transformer Engine. \
Activations take half the bytes, so that pointwise kernels, normalization, pooling and conversions move \
half as much, and matrix products run at twice the rate of TF32. To use only TF32, set \
torch.set_float32_matmul_precision(\"high\"); no other change is needed. Weights, optimizer states, losses \
and reductions stay in FP32."""
check_first = """\
Whether training converges as before, which operators stay in FP32 under autocast (batch and layer norm \
take BF16 and compute in FP32), and whether the program needs FP32 accuracy, as simulations and solvers do."""
features = ["bf16"]
difficulty = "low"
link = "https://docs.nvidia.com/deeplearning/performance/mixed-precision-training/index.html"
precision = true

[techniques.half_precision]
technique = "Train and run inference in mixed precision (FP16)"
detail = """\
torch.autocast(\"cuda\", dtype=torch.float16), with torch.amp.GradScaler in training, or the equivalents of \
other frameworks. The tensor cores of this GPU (Volta, Turing) compute in FP16, and neither in BF16 nor in \
TF32. Activations take half the bytes, so that pointwise kernels, normalization, pooling and conversions \
move half as much. Weights, optimizer states, losses and reductions stay in FP32."""
check_first = """\
Whether training converges as before (FP16 overflows above 65,504, and small gradients need loss scaling), \
which operators stay in FP32 under autocast, and whether the program needs FP32 accuracy, as simulations \
and solvers do."""
features = ["fp16"]
difficulty = "low"
link = "https://docs.nvidia.com/deeplearning/performance/mixed-precision-training/index.html"
precision = true
*/
CREATE VIEW precision_findings AS
-- Types that the tensor cores of each GPU compute in; GPUs before Volta have none.
WITH types AS (
    SELECT
        report_id,
        gpu AS device,
        CASE WHEN cc_number(cc) < 70 THEN 'none' WHEN cc_number(cc) < 80 THEN 'fp16' ELSE 'bf16' END AS type
    FROM nsys_gpus
)
SELECT
    p.report_id,
    p.device,
    p.share_pct,
    p.share_pct * p.tf32_ns / p.time_ns AS tf32_pct,
    p.time_ns / p.steps AS step_ns,
    round(p.launches / p.steps)::BIGINT AS step_launches,
    p.longest,
    t.technique,
    t.difficulty,
    least(p.share_pct * (1 + p.product_ns / p.time_ns) / 2, l.most_pct) AS gain_pct,
    if(gain_pct = l.most_pct, 'host', 'half_types') AS floor
FROM precision_times AS p
LEFT JOIN types AS g ON g.report_id = p.report_id AND g.device = p.device
JOIN _techniques AS t
    ON t.bound = 'single_precision'
        AND p.type = 'single'
        AND t.features = [coalesce(g.type, 'bf16')]
ANTI JOIN precision_times AS n
    ON n.report_id = p.report_id AND n.device = p.device
        -- Products without a type in their name may be narrow.
        AND n.kernel_pct * if(n.type = 'narrow', 1, if(n.type = 'other', n.product_ns / n.time_ns, 0))
        >= threshold('precision.narrow_pct')
ANTI JOIN benchmark_loops AS b ON b.report_id = p.report_id AND b.device = p.device
LEFT JOIN _kernel_limits AS l ON l.report_id = p.report_id AND l.device = p.device
SEMI JOIN operator_times AS o ON o.report_id = p.report_id AND o.device = p.device
WHERE p.share_pct >= threshold('precision.share_pct')
ORDER BY p.report_id, p.device;
