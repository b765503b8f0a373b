-- What limits each GPU: the largest category among compute, communication, migration, transfer, launch
-- overhead, sync, loading, kernel gaps and host, and all categories that take at least 10 % of the window. A
-- busy GPU is not necessarily compute-bound: only ncu (timeline_busy) or sampled GPU metrics show whether its
-- kernels wait for memory.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- bound VARCHAR: category that limits the GPU: compute, communication, migration, transfer, launch_overhead
--   (launch_gap + launch_api + queued), sync, loading, kernel_gap, device_wait, building, no_work or host
-- share_pct DOUBLE: percentage of the window spent in the category `bound`
-- contributors VARCHAR: categories that take at least 10 % of the window, largest first, as text
-- busy_bound VARCHAR: what limits the kernels according to sampled GPU metrics: compute, memory or neither
--   (latency, small kernels); NULL if GPU metrics were not sampled
-- confidence VARCHAR: high; medium if the profiler warns that events might be missing, or if no launching
--   call was recorded for more than 1 % of the operations; low if events were lost, if part of the file could
--   not be read, or if CUDA graphs hide their kernels
-- incomplete BOOLEAN: whether the profiler reports lost or unprocessed events, more than 1 % of the rows in
--   one of the file's tables could not be read, or more than 1 % of the GPU work was recorded incorrectly or
--   not at all
-- explanation VARCHAR: caveats that apply to the verdict, as text; NULL if there are none
-- notes VARCHAR[]: caveats that apply to the verdict, as a list
-- shares STRUCT(category VARCHAR, share_pct DOUBLE)[]: all categories with their percentage of the window,
--   largest first
-- evidence JSON: percentage of the window in each category, as JSON
CREATE VIEW timeline_bottleneck AS
WITH grouped AS (
    SELECT
        report_id,
        device,
        timeline_bound(category) AS bound,
        100.0 * sum(time_ns) / nullif(any_value(window_ns), 0) AS share_pct,
        any_value(note) AS note
    FROM gpu_time_budget
    WHERE category NOT IN ('edge', 'profiler_overhead', 'unattributed')
    GROUP BY ALL
),
sampled AS (
    SELECT
        report_id,
        device,
        greatest(tensor_active_pct, sm_issue_pct) AS compute_pct,
        dram_read_pct + dram_write_pct AS memory_pct,
        printf(
            'sampled during compute: DRAM at %.0f %% of peak, tensor pipes %.0f %%, issue slots %.0f %%',
            dram_read_pct + dram_write_pct,
            tensor_active_pct,
            sm_issue_pct
        ) AS text
    FROM gpu_metrics_sum
    WHERE scope = 'compute' AND sampled_ns > 0
),
ranked AS (
    SELECT
        report_id,
        device,
        first(bound ORDER BY share_pct DESC, bound) FILTER (share_pct IS NOT NULL) AS bound,
        max(share_pct) AS share_pct,
        string_agg(
            printf('%s %.0f %%', replace(bound, '_', ' '), share_pct), ', '
            ORDER BY share_pct DESC, bound
        )
            FILTER (WHERE share_pct >= threshold('timeline.contributor_pct')) AS contributors,
        any_value(note) AS note,
        list({category: bound, share_pct: share_pct} ORDER BY share_pct DESC, bound) AS shares
    FROM grouped
    GROUP BY report_id, device
),
failed AS (
    SELECT DISTINCT report_id
    FROM nsys_diagnostics
    WHERE severity IN ('Warning', 'Error') AND text LIKE '%ProcessEventsError%'
),
produced AS (
    SELECT report_id, sum(regexp_extract(text, '(\d+)', 1)::BIGINT)::BIGINT AS events
    FROM nsys_diagnostics
    WHERE regexp_matches(text, '^Number of CUPTI events produced:\s*\d')
    GROUP BY report_id
),
kept AS (
    SELECT report_id, count(*) AS events
    FROM (
        SELECT report_id FROM nsys_api_calls
        UNION ALL
        SELECT report_id FROM nsys_kernels
        UNION ALL
        SELECT report_id FROM nsys_memory_ops
        UNION ALL
        SELECT report_id FROM nsys_syncs
        UNION ALL
        SELECT report_id FROM nsys_cuda_events
        UNION ALL
        SELECT report_id FROM nsys_graph_launches
    )
    SEMI JOIN failed USING (report_id)
    GROUP BY report_id
),
-- Reports for which nsys failed to process events, with the share of CUDA events that are missing, %; NULL if
-- their number is unknown. The failed events may only be the names of ranges.
unprocessed AS (
    SELECT
        f.report_id,
        100.0 * greatest(p.events - coalesce(k.events, 0), 0) / nullif(p.events, 0) AS missing_pct
    FROM failed AS f
    LEFT JOIN produced AS p USING (report_id)
    LEFT JOIN kept AS k USING (report_id)
),
-- The share of the analyzed operations without a recorded call, %. Nothing launches migrations of unified
-- memory.
uncalled AS (
    SELECT report_id, 100.0 * count(*) FILTER (call_id IS NULL) / count(*) AS uncalled_pct
    FROM _analysed_launches
    WHERE kind = 'kernel' OR correlation_id != 0
    GROUP BY report_id
),
said AS (
    SELECT
        report_id,
        text,
        regexp_matches(text, 'lost|dropped|incomplete|ProcessEventsError', 'i') AS incomplete
    FROM nsys_diagnostics
    WHERE severity IN ('Warning', 'Error')
        AND (
            regexp_matches(text, 'lost|dropped|not all|incomplete|not supported by this build', 'i')
            OR (text LIKE '%ProcessEventsError%' AND report_id IN (
                SELECT report_id
                FROM unprocessed
                WHERE coalesce(missing_pct >= threshold('timeline.unprocessed_pct'), true)
            ))
        )
    UNION ALL
    SELECT
        report_id,
        printf('%.1f %% of the rows in one table of the file are lost or damaged', lost_pct),
        true
    FROM reports
    WHERE lost_pct > threshold('timeline.lost_pct')
    UNION ALL
    SELECT report_id, missed, true
    FROM reports
    WHERE missed_pct > threshold('timeline.lost_pct')
    UNION ALL
    SELECT
        report_id,
        printf('%.1f %% of the GPU operations have no launching API call', uncalled_pct),
        false
    FROM uncalled
    WHERE uncalled_pct > threshold('timeline.lost_pct')
),
-- Messages of the profiler on lost data of each report, and whether they make the trace incomplete.
losses AS (
    SELECT
        report_id,
        list(
            DISTINCT rtrim(trim(split_part(text, ':', 1)), '.')
            ORDER BY rtrim(trim(split_part(text, ':', 1)), '.')
        ) AS texts,
        bool_or(incomplete) AS incomplete
    FROM said
    GROUP BY report_id
),
explained AS (
    SELECT
        r.*,
        m.compute_pct,
        m.memory_pct,
        l.texts,
        coalesce(l.incomplete, false) AS incomplete,
        list_filter([r.note] || coalesce(l.texts, []) || [
            m.text,
            CASE
                WHEN r.bound IN ('launch_overhead', 'host') AND t.report_id IS NOT NULL
                    THEN 'every Python call was recorded (with_stack=True), which slows the host: '
                        || 'without this, the GPU waits less for the host'
            END,
            CASE
                WHEN r.bound = 'compute' AND m.text IS NULL
                    AND r.report_id IN (SELECT report_id FROM reports WHERE kind = 'nsys')
                    THEN 'the GPU is busy with kernels; only ncu or sampled GPU metrics (nsys profile '
                        || '--gpu-metrics-devices=all) show whether the kernels are compute- or memory-bound'
            END
        ], lambda note: note IS NOT NULL) AS notes
    FROM ranked AS r
    LEFT JOIN losses AS l USING (report_id)
    LEFT JOIN sampled AS m USING (report_id, device)
    LEFT JOIN (SELECT DISTINCT report_id FROM host_samples WHERE is_traced(source)) AS t USING (report_id)
)
SELECT
    report_id,
    device,
    bound,
    share_pct,
    contributors,
    CASE
        WHEN memory_pct >= greatest(compute_pct, threshold('sol.latency_pct')) THEN 'memory'
        WHEN compute_pct >= threshold('sol.latency_pct') THEN 'compute'
        WHEN memory_pct < threshold('sol.latency_pct') AND compute_pct IS NOT NULL THEN 'neither'
    END AS busy_bound,
    CASE
        WHEN note IS NOT NULL OR incomplete THEN 'low'
        WHEN texts IS NOT NULL THEN 'medium'
        ELSE 'high'
    END AS confidence,
    incomplete,
    nullif(array_to_string(notes, '; '), '') AS explanation,
    notes,
    shares,
    to_json(shares) AS evidence
FROM explained
ORDER BY report_id, device;
