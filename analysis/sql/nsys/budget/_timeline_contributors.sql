-- Categories with a large share of each GPU's time, and small copies to the host if the copies are frequent
-- or cause most of the waiting.
CREATE VIEW _timeline_contributors AS
WITH parts AS (
    SELECT report_id, device, confidence, incomplete, unnest(shares) AS item
    FROM timeline_bottleneck
),
large AS (
    SELECT report_id, device, confidence, incomplete, item.category AS bound, item.share_pct AS share_pct
    FROM parts
    WHERE item.share_pct >= contributor_pct(item.category)
),
-- Host-bound idle time in calls that allocate: if little else remains, only allocation_findings reports it.
named AS (
    SELECT
        report_id,
        device,
        sum(time_ns) FILTER (kind = 'CUDA call' AND manages_memory(name)) / sum(time_ns) AS share
    FROM idle_causes
    WHERE cause = 'host'
    GROUP BY report_id, device
),
mostly_allocation AS (
    SELECT l.*
    FROM large AS l
    JOIN allocation_findings AS a USING (report_id, device)
    JOIN named AS n USING (report_id, device)
    WHERE l.bound = 'host'
        AND l.share_pct - least(a.share_pct, n.share * l.share_pct) < contributor_pct(l.bound)
),
-- One or two copies outside of steps are the results of the program, which it cannot read less often.
readbacks AS (
    FROM small_readbacks
    WHERE per_step IS NOT NULL OR copies >= threshold('timeline.readback_copies')
),
mostly_readbacks AS (
    -- Waiting that is mostly caused by small copies is reported as such.
    SELECT l.*
    FROM large AS l
    JOIN readbacks AS r USING (report_id, device)
    WHERE l.bound = 'sync' AND 2 * r.share_pct >= l.share_pct
)
FROM large
ANTI JOIN mostly_readbacks USING (report_id, device, bound)
ANTI JOIN mostly_allocation USING (report_id, device, bound)
UNION ALL
SELECT b.report_id, b.device, b.confidence, b.incomplete, 'readback', r.share_pct
FROM readbacks AS r
JOIN timeline_bottleneck AS b USING (report_id, device)
-- Nobody can read the condition of XLA's loops less often.
ANTI JOIN (FROM _host_loops WHERE kind = 'xla') AS h USING (report_id, device)
LEFT JOIN mostly_readbacks AS m USING (report_id, device)
WHERE r.share_pct >= threshold('timeline.contributor_pct')
    OR (
        r.calls_pct >= threshold('timeline.readback_calls_pct')
        AND list_sum([part.share_pct FOR part IN b.shares IF NOT is_work(part.category)])
            >= threshold('timeline.readback_idle_pct')
    )
    OR m.bound IS NOT NULL;
