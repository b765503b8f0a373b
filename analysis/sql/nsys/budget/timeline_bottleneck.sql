-- What bounds each GPU's time: the largest of compute, communication, transfer, launch overhead,
-- sync, loading, kernel gaps and host, with every contributor of 10 % or more.  Busy does not mean
-- compute-bound: only ncu (timeline_busy) or sampled GPU metrics show whether the kernels wait for memory.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- bound VARCHAR: compute, communication, transfer, launch_overhead (launch_gap + launch_api + queued), sync,
--   loading, kernel_gap or host
-- share_pct DOUBLE: its share of the window, %
-- contributors VARCHAR: categories with 10 % or more, largest first, as text
-- busy_bound VARCHAR: what bounds the kernels by sampled GPU metrics: compute, memory or neither (latency,
--   small kernels); NULL if none were sampled
-- confidence VARCHAR: high; medium if the profiler says that events might be missing; low if it says that
--   some were lost, if part of the file could not be read, or if kernels are hidden in CUDA graphs
-- incomplete BOOLEAN: whether the profiler says that it lost events, or failed to process them, or more
--   than 1 % of the rows of a table in the file could not be read
-- explanation VARCHAR: caveats of the verdict; NULL if none
-- notes VARCHAR[]: the parts of the explanation
-- shares STRUCT(category VARCHAR, share_pct DOUBLE)[]: category and share of the window (%) of each, largest
--   first
-- evidence JSON: shares as JSON
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
                WHEN r.bound = 'compute' AND m.text IS NULL
                    THEN 'busy with kernels: whether they are bound by compute or memory only ncu or sampled '
                        || 'GPU metrics tell (nsys profile --gpu-metrics-devices=all)'
            END
        ], lambda note: note IS NOT NULL) AS notes
    FROM ranked AS r
    LEFT JOIN _losses AS l USING (report_id)
    LEFT JOIN sampled AS m USING (report_id, device)
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
