-- Operators that consist of many kernels and take a notable share of a step, with an optimization
-- technique for each operator as a whole. Operators that are already optimized (such as a fused optimizer)
-- and kernels that a benchmark times are excluded.
-- @materialize
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- rank BIGINT: rank by share; 1 is the largest
-- operator VARCHAR: operator, as in operator_times
-- share_pct DOUBLE: percentage of the step time
-- weight_pct DOUBLE: value by which findings without an upper bound are ranked, %: share_pct, capped at the
--   time that faster kernels can save. The cap is lower if the GPU waits for input, because faster kernels
--   would only lengthen this wait
-- step_ns DOUBLE: mean time per step spent in the operator's kernels, ns; NULL if there are no steps
-- step_launches BIGINT: mean number of kernel launches per step; NULL if there are no steps
-- kernels BIGINT: number of distinct kernels
-- longest VARCHAR: kernels with the largest total time, as in operator_times
-- names VARCHAR[]: full names of the operator's kernels
-- technique VARCHAR: key of the technique in the knowledge base
-- difficulty VARCHAR: difficulty of the technique: low, medium or high
-- gain_pct DOUBLE: upper bound on the gain, % of the step time; NULL if no bound can be derived
-- floor VARCHAR: time that the upper bound assumes to remain: around (the kernels adjacent to the operator's
--   own kernels)
/* finding
claim = "operator"
says = "spends time on {{ words[operator] }}"
evidence = """\
these kernels take {{ share }}{% if step_launches %} ({{ step_launches | counted('launch') }} and \
{{ step_ns | ns }} per step){% endif %}; longest kernels: {{ longest }}"""
question = "SELECT device, operator, launches, time_ns, share_pct, longest FROM operator_times"
each = "operator"

[columns]
time_ns = "step_ns"
launches = "step_launches"
causes = "longest"

[words]
cross_entropy = "cross-entropy (from the logits to their gradient)"
batch_norm = "batch norm and its neighboring kernels between convolutions"
fixed_batch_norm = "inference batch norm and its neighboring kernels between convolutions"
normalization = "normalization and the pointwise kernels around it"
softmax = "softmax between two matrix products"
pointwise = "pointwise kernels outside matrix products"
layout = "conversions between memory layouts"
optimizer = "an optimizer that launches a kernel for each operation"

[assumes]
around = "the operator's own kernels took no time"

[techniques.fused_cross_entropy]
technique = "Fuse the output projection (logits) with the cross-entropy loss"
detail = """\
Separate passes cast the logits of a large vocabulary, normalize them, read them for the loss and write \
their gradients. A fused kernel needs one or two passes: torch.compile over the model's head and loss, \
Liger's FusedLinearCrossEntropy (which computes the logits in chunks and never stores them), or a chunked \
loss. At the very least, do not cast all logits to FP32."""
check_first = """\
The size of the vocabulary, which operation casts the logits (.float()), and whether other code needs the \
logits. Compare the loss before and after the change."""
of = "cross_entropy"
difficulty = "low"
link = "https://docs.nvidia.com/deeplearning/performance/dl-performance-memory-limited/index.html"

[techniques.fused_batch_norm]
technique = "Fuse batch norm with activation and addition"
detail = """\
Statistics, normalization, ReLU and the residual addition are separate passes over the activations. \
torch.compile fuses pointwise operations with the normalization. In channels_last, cuDNN has kernels for BN \
+ ReLU + addition (Apex's BatchNorm2d_NHWC)."""
check_first = """\
The model and its input are channels_last throughout, the data type in which batch norm computes \
(statistics stay in FP32), and whether batch norm is trained at all: if it is frozen, fold it."""
of = "batch_norm"
difficulty = "medium"
link = "https://docs.nvidia.com/deeplearning/performance/dl-performance-memory-limited/index.html"

[techniques.compiled_batch_norm]
technique = "Compile inference: batch norm, activation and addition in one pass"
detail = """\
In inference, batch norm is a fixed scale and shift of each channel. torch.compile combines it with \
activation and addition in one pass. With freezing (TORCHINDUCTOR_FREEZING=1), or in TensorRT, the weights \
of the preceding convolution absorb the scale. Folding alone (torch.nn.utils.fusion.fuse_conv_bn_eval) \
gains little in eager PyTorch: a kernel that adds the bias takes its place."""
check_first = """\
The model stays in eval mode, nothing else reads the output of the convolution, and the results are \
accurate enough: they differ by rounding."""
of = "fixed_batch_norm"
features = ["eager"]
difficulty = "low"
link = "https://docs.nvidia.com/deeplearning/performance/dl-performance-memory-limited/index.html"

[techniques.folded_batch_norm]
technique = "Fold batch norm into the convolution"
detail = """\
In inference, batch norm is a fixed scale and shift of each channel, which the weights and the bias of the \
preceding convolution can absorb: torch.compile with freezing (TORCHINDUCTOR_FREEZING=1), TensorRT. \
Activation and addition remain as one pass."""
check_first = """\
The model stays in eval mode, nothing else reads the output of the convolution, and the results are \
accurate enough: they differ by rounding."""
of = "fixed_batch_norm"
features = ["compiled"]
difficulty = "low"
link = "https://docs.nvidia.com/deeplearning/performance/dl-performance-convolutional/index.html"

[techniques.fused_normalization]
technique = "Fuse normalization with its neighboring kernels"
detail = """\
Residual addition, casts, normalization and scaling are separate passes over the activations. With \
torch.compile, or fused layer-norm and RMS-norm kernels (Liger, Transformer Engine, Apex), they take one \
pass forward and one backward."""
check_first = """\
Which casts autocast adds around the normalization, and the hidden size: fused kernels keep a row in \
registers."""
of = "normalization"
difficulty = "medium"
link = "https://docs.nvidia.com/deeplearning/performance/dl-performance-memory-limited/index.html"

[techniques.fused_attention]
technique = "Replace the softmax between two matrix products with fused attention"
detail = """\
Attention scores are written, scaled, masked, normalized and read again between two matrix products. \
scaled_dot_product_attention, FlashAttention or cuDNN's attention keep the scores on the SM."""
check_first = """\
This softmax belongs to attention, and which mask, bias or dropout disables the fused kernels \
(torch.nn.attention.sdpa_kernel reports the reason)."""
of = "softmax"
difficulty = "low"
link = "https://docs.nvidia.com/deeplearning/performance/dl-performance-memory-limited/index.html"

[techniques.fused_pointwise]
technique = "Fuse pointwise kernels: compile the model, or combine each chain into one kernel"
detail = """\
Elementwise operations, casts, copies and reductions outside matrix products each read and write all of \
their data. torch.compile, or a fused kernel of the operator (rotary embedding, SwiGLU, RMS norm, dropout \
with addition), runs a chain of operations in one pass. Copies that make tensors contiguous, and casts \
between types, are often unnecessary."""
check_first = """\
Which operators launch these kernels (nvtx_kern_sum; emit_nvtx or the profiler's shapes), and graph breaks \
(TORCH_LOGS=graph_breaks)."""
of = "pointwise"
difficulty = "low"
link = "https://docs.nvidia.com/deeplearning/performance/dl-performance-memory-limited/index.html"

[techniques.no_conversions]
technique = "Keep tensors in the layout that convolutions use"
detail = """\
Tensor cores need NHWC with channels in multiples of 8 (FP16, BF16) or 4 (TF32). Tensors in NCHW are \
converted before a convolution and back after it, and other channel counts are padded. Keep model and input \
in channels_last (memory_format=torch.channels_last), pad the channels of the first layer, and enable cuDNN \
autotuning (torch.backends.cudnn.benchmark). In JAX: dimension numbers in NHWC, channels in the same \
multiples, and a type that tensor cores support."""
check_first = """\
Which convolutions are converted (the kernels next to nchwToNhwc, nhwcAddPadding, convertTensor), and \
whether any operator between them falls back to NCHW."""
of = "layout"
keeps = ["around"]
difficulty = "low"
link = """\
https://docs.nvidia.com/deeplearning/performance/dl-performance-convolutional/index.html#tensor-layout"""

[techniques.fused_step]
technique = "Use a fused optimizer: one kernel for the whole update"
detail = """\
Each operation of the update is launched separately for all parameters (foreach), or even for each \
parameter. AdamW(fused=True), Apex, Transformer Engine, or torch.compile over optimizer.step() read and \
write each state once."""
check_first = """\
Which implementation runs (foreach launches a multi_tensor_apply kernel for each operation), whether the \
fused implementation supports the parameters' types and devices, and the cost of gradient clipping."""
of = "optimizer"
difficulty = "low"
link = "https://docs.nvidia.com/deeplearning/performance/dl-performance-memory-limited/index.html"
*/
CREATE VIEW operator_findings AS
-- What can be fused: softmax with the products on both sides, and chains of several kernels.
WITH chains AS (
    SELECT track, operator, stream, chain, count(*) AS launches
    FROM _operator_launches
    GROUP BY track, operator, stream, chain
),
chained AS (
    SELECT
        g.report_id,
        g.device,
        c.operator,
        max(c.launches) AS longest_chain,
        bool_or(bool_or(c.operator = 'product')) OVER (PARTITION BY g.report_id, g.device) AS has_products
    FROM chains AS c
    JOIN _gpus AS g USING (track)
    GROUP BY g.report_id, g.device, c.operator
),
-- GPUs that often wait for input data, with the share of the window, %.
waits_for_input AS (
    SELECT c.report_id, c.device, c.share_pct
    FROM _timeline_contributors AS c
    JOIN _timeline_features AS f USING (report_id, device)
    WHERE c.bound = 'host' AND list_contains(f.features, 'input_data')
)
SELECT
    o.report_id,
    o.device,
    row_number() OVER (
        PARTITION BY o.report_id, o.device ORDER BY o.share_pct DESC, o.operator, t.rank
    ) AS rank,
    o.operator,
    o.share_pct,
    least(o.share_pct, l.most_pct, i.share_pct) AS weight_pct,
    o.time_ns / o.steps AS step_ns,
    round(o.launches / o.steps)::BIGINT AS step_launches,
    o.kernels,
    o.longest,
    o.names,
    t.technique,
    t.difficulty,
    CASE t.keeps[1] WHEN 'around' THEN o.own_pct END AS gain_pct,
    CASE WHEN gain_pct IS NOT NULL THEN t.keeps[1] END AS floor
FROM operator_times AS o
JOIN chained AS c USING (report_id, device, operator)
LEFT JOIN _compiled_steps AS e ON e.report_id = o.report_id AND e.device = o.device
JOIN _techniques AS t
    ON t.bound = 'operator' AND t.subclass = o.operator
        AND list_has_all([if(e.is_compiled, 'compiled', 'eager')], t.features)
LEFT JOIN _kernel_limits AS l ON l.report_id = o.report_id AND l.device = o.device
LEFT JOIN waits_for_input AS i ON i.report_id = o.report_id AND i.device = o.device
ANTI JOIN benchmark_loops AS b ON b.report_id = o.report_id AND b.device = o.device
WHERE o.share_pct >= threshold('operator.share_pct')
    AND o.launches > coalesce(o.steps, 1)
    AND (c.has_products OR o.operator != 'softmax')
    AND (c.has_products OR c.longest_chain > 1)
    -- One of these kernels is the whole operator already.
    AND (o.kernels > 1 OR o.operator NOT IN ('normalization', 'batch_norm', 'cross_entropy'))
ORDER BY o.report_id, o.device, rank;
