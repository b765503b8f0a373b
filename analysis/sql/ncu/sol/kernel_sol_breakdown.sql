-- Constituents of compute SOL and memory SOL, if the report names them (an .ncu-rep file does, a CSV file
-- does not). Each SOL is the largest of its constituents. If ncu collected the main constituents instead of
-- the SOLs, the view lists the main constituents.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- side VARCHAR: SOL to which the constituent belongs: compute or memory
-- rank BIGINT: rank of the constituent by throughput, from 1 for the constituent that sets the SOL
-- metric VARCHAR: metric name of the constituent
-- part VARCHAR: hardware unit that the constituent measures: a pipe or issue for compute; dram, l2, l1 or
--   interconnect for memory
-- pct DOUBLE: throughput of the constituent, % of peak
CREATE VIEW kernel_sol_breakdown AS
WITH named AS (
    SELECT
        report_id,
        launch_id,
        CASE metric
            WHEN 'breakdown:sm__throughput.avg.pct_of_peak_sustained_elapsed' THEN 'compute'
            ELSE 'memory'
        END AS side,
        unnest(string_split(text, ',')) AS metric
    FROM ncu_metrics
    WHERE metric IN (
        'breakdown:sm__throughput.avg.pct_of_peak_sustained_elapsed',
        'breakdown:gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed'
    )
),
valued AS (
    SELECT n.report_id, n.launch_id, n.side, n.metric, m.value AS pct
    FROM named AS n
    JOIN ncu_metrics AS m USING (report_id, launch_id, metric)
    -- Only these of a report's thousands of metrics can occur.
    WHERE ends_with(m.metric, '.avg.pct_of_peak_sustained_elapsed') AND m.value IS NOT NULL
    UNION ALL
    SELECT report_id, launch_id, side, metric, pct FROM _sol_of_units
)
SELECT
    report_id,
    launch_id,
    side,
    row_number() OVER (PARTITION BY report_id, launch_id, side ORDER BY pct DESC, metric) AS rank,
    metric,
    CASE
        WHEN side = 'memory' THEN CASE
            WHEN regexp_matches(metric, '^(dram|fbpa?)__') THEN 'dram'
            WHEN regexp_matches(metric, '^(lts|ltc|lrc)__') THEN 'l2'
            WHEN starts_with(metric, 'l1tex__') THEN 'l1'
            ELSE 'interconnect'
        END
        WHEN regexp_matches(metric, '^sm__(inst_executed|inst_issued|issue_active)\.') THEN 'issue'
        ELSE regexp_replace(
            regexp_extract(metric, '^\w+?__(?:inst_executed_)?(?:pipe_)?(\w+)\.', 1),
            '_cycles_active$',
            ''
        )
    END AS part,
    pct
FROM valued
ORDER BY report_id, launch_id, side, rank;
