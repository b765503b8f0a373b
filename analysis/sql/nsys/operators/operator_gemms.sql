-- PyTorch matrix products by M, N, K and data type, with their FLOP rate and percentage of the GPU's dense
-- peak. The view covers mm, addmm, bmm, baddbmm and _scaled_mm within the analyzed windows
-- (analysis_windows). The view requires a torch.profiler trace with record_shapes=True.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- rank BIGINT: rank by time; 1 is the longest
-- operator VARCHAR: name of the operator, such as aten::mm
-- batch BIGINT: number of matrix products per call
-- m BIGINT: number of rows in the first matrix
-- n BIGINT: number of columns in the second matrix
-- k BIGINT: number of columns in the first matrix
-- dtype VARCHAR: data type of the multiplication, as in gpu_peaks: the first matrix's type, or tf32 if
--   that type is float and the kernel name indicates tensor cores; NULL for other types
-- calls BIGINT: number of calls
-- time_ns BIGINT: GPU time of the calls, ns
-- share_pct DOUBLE: percentage of the total duration of all GPU operations within the windows
-- mean_ns DOUBLE: mean GPU time per call, ns
-- flop_per_s DOUBLE: 2 x batch x M x N x K / mean_ns, FLOP/s
-- pct_of_peak DOUBLE: flop_per_s as a percentage of the data type's dense peak; NULL if the type or the
--   peak is unknown
-- longest VARCHAR: name of the kernel with the largest total time
CREATE VIEW operator_gemms AS
WITH placed AS (
    SELECT
        *,
        CASE operator
            WHEN 'aten::mm' THEN 0
            WHEN 'aten::bmm' THEN 0
            WHEN 'aten::_scaled_mm' THEN 0
            WHEN 'aten::addmm' THEN 1
            WHEN 'aten::baddbmm' THEN 1
        END AS first
    FROM operator_shapes
),
matrices AS (
    SELECT
        *,
        TRY_CAST(json_extract(shapes, printf('$[%d]', first)) AS BIGINT[]) AS a,
        TRY_CAST(json_extract(shapes, printf('$[%d]', first + 1)) AS BIGINT[]) AS b,
        json_extract_string(types, printf('$[%d]', first)) AS type
    FROM placed
    WHERE first IS NOT NULL
),
products AS (
    SELECT
        *,
        if(len(a) = 3, a[1], 1) AS batch,
        CASE
            WHEN type IN ('c10::BFloat16', 'at::BFloat16') THEN 'bf16'
            WHEN type IN ('c10::Half', 'at::Half') THEN 'fp16'
            WHEN type = 'double' THEN 'fp64'
            WHEN starts_with(type, 'c10::Float8') THEN 'fp8'
            WHEN type IN ('signed char', 'unsigned char') THEN 'int8'
            WHEN type = 'float' THEN if(
                regexp_matches(lower(longest), 'tf32|s1688|tensorop'), 'tf32', 'fp32'
            )
        END AS dtype
    FROM matrices
    WHERE len(a) = len(b) AND len(a) IN (2, 3) AND a[-1] = b[-2]
),
rates AS (
    SELECT *, 2e0 * batch * a[-2] * b[-1] * a[-1] * calls / nullif(time_ns / 1e9, 0) AS flop_per_s
    FROM products
)
SELECT
    r.report_id,
    r.device,
    row_number() OVER (PARTITION BY r.report_id, r.device ORDER BY r.rank) AS rank,
    r.operator,
    r.batch,
    r.a[-2] AS m,
    r.b[-1] AS n,
    r.a[-1] AS k,
    r.dtype,
    r.calls,
    r.time_ns,
    r.share_pct,
    r.mean_ns,
    r.flop_per_s,
    pct_of_peak(r.flop_per_s, p.flop_per_s) AS pct_of_peak,
    r.longest
FROM rates AS r
LEFT JOIN gpu_peaks AS p ON p.report_id = r.report_id AND p.dtype = r.dtype
ORDER BY r.report_id, r.device, rank;
