-- FLOPs of each launch, summed over all precisions; NULL with a reason if some FLOPs were not counted.
CREATE VIEW _launch_flops AS
WITH counted AS (
    SELECT
        report_id,
        launch_id,
        ordered_sum(flop) AS flop,
        bool_or(starts_with(precision, 'tensor')) AS tensor,
        max(reason) FILTER (WHERE flop IS NULL) AS reason
    FROM kernel_flops
    GROUP BY report_id, launch_id
),
pipes AS (
    SELECT report_id, launch_id
    FROM kernel_pipes
    WHERE pipe = 'tensor'
),
judged AS (
    SELECT
        l.report_id,
        l.launch_id,
        c.flop,
        CASE
            WHEN c.flop IS NULL AND c.reason IS NULL
                THEN 'not collected; use ncu --section SpeedOfLight_RooflineChart'
            WHEN c.reason IS NOT NULL THEN c.reason
            -- If nothing was counted, the kernel may have no FLOPs, or all of them on tensor cores.
            WHEN c.flop = 0 AND NOT c.tensor AND p.report_id IS NULL THEN tensor_not_collected()
        END AS reason
    FROM ncu_launches AS l
    LEFT JOIN counted AS c USING (report_id, launch_id)
    LEFT JOIN pipes AS p USING (report_id, launch_id)
)
SELECT report_id, launch_id, CASE WHEN reason IS NULL THEN flop END AS flop, reason
FROM judged;
