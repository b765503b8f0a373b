-- GPUs on which the host decides after each iteration, from values that it reads back, how the work goes on,
-- with the kind of the loop:
--   xla        a while loop of XLA copies its condition, one byte, to the host
--   iterations a loop within the step reads values back, and its number of iterations varies
--   exchange   the step sends a few bytes to the GPU and waits for a few bytes of result, as an optimizer, a
--              solver or a simulation on the host does
-- A CUDA graph cannot contain such decisions. A server reads tokens back as well, but each iteration works
-- on all requests that there are.
-- @materialize
CREATE VIEW _host_loops AS
WITH busy AS (
    SELECT report_id, device, sum(share_pct ORDER BY category) FILTER (is_busy(category)) AS busy_pct,
        sum(share_pct ORDER BY category) FILTER (NOT is_work(category) AND NOT is_kept(category))
            AS idle_pct,
        sum(share_pct ORDER BY category) FILTER (category = 'no_work') AS no_work_pct
    FROM gpu_time_budget
    GROUP BY report_id, device
),
begun AS (
    SELECT g.report_id, g.device, i.pid AS process_id, i.loop, i.start_ns, i.repeats
    FROM launch_steps AS i
    JOIN _tracks AS k
        ON k.report_id = i.report_id AND k.pid = i.pid AND k.cuda_device IS NOT DISTINCT FROM i.device
    JOIN _gpus AS g USING (track)
),
-- Iterations of inner loops that read back, in each steady step that has some.
counted AS (
    SELECT l.report_id, l.device, l.loop, l.share_pct, s.step, sum(b.repeats) AS times
    FROM loops AS l
    JOIN begun AS b USING (report_id, device, process_id, loop)
    ASOF JOIN (FROM steps WHERE step IS NOT NULL) AS s
        ON s.report_id = b.report_id
        AND s.device IS NOT DISTINCT FROM b.device
        AND s.process_id = b.process_id
        AND b.start_ns >= s.start_ns
    WHERE l.role = 'inner'
        AND l.evidence LIKE '%readback%'
        AND l.share_pct >= threshold('timeline.range_coverage_pct')
        AND s.phase = 'steady'
    GROUP BY l.report_id, l.device, l.loop, l.share_pct, s.step
),
-- The first and the last step may be cut.
whole AS (
    FROM counted
    QUALIFY step > min(step) OVER (PARTITION BY report_id, device, loop)
        AND step < max(step) OVER (PARTITION BY report_id, device, loop)
),
-- A loop over a fixed number of items reads back as well; its number varies in hardly any step.
varied AS (
    SELECT
        report_id, device, loop, share_pct, min(times)::BIGINT AS fewest, max(times)::BIGINT AS most
    FROM (SELECT *, quantile_disc(times, 0.5) OVER (PARTITION BY report_id, device, loop) AS usual FROM whole)
    GROUP BY report_id, device, loop, share_pct
    HAVING 100 * count_if(times != usual) >= threshold('timeline.varying_pct') * count(*)
),
varying AS (
    SELECT report_id, device, arg_max({fewest: fewest, most: most}, share_pct) AS inner_loop
    FROM varied
    GROUP BY report_id, device
),
xla AS (
    SELECT report_id, device
    FROM kernel_library_times
    SEMI JOIN (FROM small_readbacks WHERE max_bytes = 1) USING (report_id, device)
    GROUP BY report_id, device
    HAVING 100 * sum(launches) FILTER (library = 'xla')
        >= threshold('timeline.contributor_pct') * sum(launches)
),
-- Training and the choice of tokens exchange a few bytes as well, but need not wait for them.
trains AS (
    SELECT DISTINCT report_id, device
    FROM loops
    WHERE role = 'step' AND regexp_matches(evidence, 'optimizer|sampling')
),
sent AS (
    SELECT t.report_id, t.device, count(*) AS copies, max(c.bytes) AS most_bytes
    FROM _analysed_copies AS c
    JOIN _gpus AS t USING (track)
    WHERE c.operation LIKE '[CUDA memcpy Host-to-Device%'
    GROUP BY t.report_id, t.device
)
SELECT
    w.report_id,
    w.device,
    CASE
        WHEN x.report_id IS NOT NULL THEN 'xla'
        WHEN v.inner_loop IS NOT NULL THEN 'iterations'
        ELSE 'exchange'
    END AS kind,
    v.inner_loop.fewest AS fewest,
    v.inner_loop.most AS most,
    r.copies,
    r.per_step,
    r.max_bytes,
    s.most_bytes AS sent_bytes,
    b.busy_pct,
    b.idle_pct
FROM analysis_windows AS w
JOIN small_readbacks AS r USING (report_id, device)
JOIN busy AS b USING (report_id, device)
LEFT JOIN varying AS v USING (report_id, device)
LEFT JOIN xla AS x USING (report_id, device)
LEFT JOIN sent AS s USING (report_id, device)
WHERE w.kind = 'steady'
    AND r.per_step >= threshold('timeline.each_step')
    AND (
        x.report_id IS NOT NULL
        OR (
            (w.report_id, w.device) NOT IN (SELECT (report_id, device) FROM _serving_gpus)
            AND (
                v.inner_loop IS NOT NULL
                OR (
                    b.busy_pct < threshold('timeline.contributor_pct')
                    AND b.no_work_pct < threshold('timeline.contributor_pct')
                    AND (w.report_id, w.device) NOT IN (SELECT (report_id, device) FROM trains)
                    AND s.copies >= threshold('timeline.each_step') * w.steps
                    AND s.most_bytes < threshold('timeline.input_bytes')
                )
            )
        )
    );
