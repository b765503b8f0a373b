-- Library that each profiled kernel comes from, and whether the user can change the kernel's code.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- kernel_name VARCHAR: function name
-- library VARCHAR: cublas, cudnn, cusparse, cufft, nccl, nvshmem, flash_attention, flashinfer,
--   transformer_engine, tensorrt_llm, vllm, torch_native, thrust_cub, xla, inductor, triton, cutlass (built
--   by the user) or own (no rule in analysis/libraries.toml matches)
-- closed BOOLEAN: whether the user cannot change the code of the kernel, but only its inputs (shapes, types,
--   layouts) or the algorithm
-- told_by VARCHAR: how the library was recognized: name (kernel name), or source (a Triton kernel whose
--   instructions come from a Python file); NULL for own
CREATE VIEW kernel_libraries AS
WITH judged AS (
    SELECT kernel_name, kernel_demangled, kernel_library(kernel_name, kernel_demangled) AS library
    FROM (SELECT DISTINCT kernel_name, kernel_demangled FROM ncu_launches)
),
-- Triton kernels have names without parameters, like those of other compilers, but Python sources. One launch
-- with its source identifies all launches with the same name in the report.
python AS (
    SELECT DISTINCT l.report_id, l.kernel_demangled
    FROM ncu_source AS s
    JOIN ncu_launches AS l USING (report_id, launch_id)
    WHERE ends_with(s.file, '.py') AND regexp_matches(l.kernel_demangled, '^\w+$')
),
named AS (
    SELECT
        l.report_id,
        l.launch_id,
        l.kernel_name,
        CASE
            WHEN j.library = 'own' AND p.kernel_demangled IS NOT NULL THEN 'triton'
            ELSE j.library
        END AS library,
        CASE
            WHEN j.library != 'own' THEN 'name'
            WHEN p.kernel_demangled IS NOT NULL THEN 'source'
        END AS told_by
    FROM ncu_launches AS l
    JOIN judged AS j
        ON j.kernel_name IS NOT DISTINCT FROM l.kernel_name
        AND j.kernel_demangled IS NOT DISTINCT FROM l.kernel_demangled
    LEFT JOIN python AS p
        ON p.report_id = l.report_id AND p.kernel_demangled = l.kernel_demangled
)
SELECT
    report_id,
    launch_id,
    kernel_name,
    library,
    is_closed(library) AS closed,
    told_by
FROM named
ORDER BY report_id, launch_id;
