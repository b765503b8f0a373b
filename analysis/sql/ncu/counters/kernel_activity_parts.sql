-- Activity of each hardware unit during a kernel, from PM sampling. The kernel's duration is divided into 20
-- equal parts. The units are the SMs and all units that were sampled in the same pass as the SMs. Launches
-- for which kernel_activity gives a reason have no rows.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- part BIGINT: index of the part of the kernel's duration, from 0
-- unit VARCHAR: hardware unit: sm, issue, tensor, fma, alu, fp64, xu, l1, l2 or dram
-- pct DOUBLE: mean activity during the part: % of the plateau for the SMs, % of peak for other units
-- rank BIGINT: rank of the unit by activity within the part, from 1 for the busiest unit; NULL for the SMs
-- @materialize
CREATE VIEW kernel_activity_parts AS
WITH parts AS (
    SELECT report_id, launch_id, at_ns, sample * threshold('series.parts')::BIGINT // samples AS part, share
    FROM _activity_samples
),
valued AS (
    SELECT p.report_id, p.launch_id, p.part, s.unit, avg(s.value ORDER BY s.at_ns) AS pct
    FROM parts AS p
    JOIN _series_samples AS s USING (report_id, launch_id, at_ns)
    WHERE s.unit != 'sm'
    GROUP BY p.report_id, p.launch_id, p.part, s.unit
)
SELECT
    report_id,
    launch_id,
    part,
    unit,
    pct,
    row_number() OVER (PARTITION BY report_id, launch_id, part ORDER BY pct DESC, unit) AS rank
FROM valued
UNION ALL
SELECT report_id, launch_id, part, 'sm' AS unit, 100 * avg(share ORDER BY at_ns) AS pct, NULL AS rank
FROM parts
GROUP BY report_id, launch_id, part
ORDER BY report_id, launch_id, part, unit;
