-- Captures with communication, grouped into jobs: captures in one directory that overlap in time form one
-- job. Clocks of machines may differ by more than the captures last. Captures of different ranks therefore
-- also form one job if their collectives end at the same times after the clocks are aligned.
-- @materialize
CREATE VIEW _job_captures AS
WITH captures AS (
    SELECT
        report_id,
        r.directory,
        r.started_ns,
        r.started_ns + min(c.start_ns) AS start_ns,
        r.started_ns + max(c.end_ns) AS end_ns
    FROM _collectives AS c
    JOIN reports AS r USING (report_id)
    GROUP BY report_id, r.directory, r.started_ns
),
joined AS (
    SELECT
        *,
        coalesce(
            start_ns - threshold('timeline.clock_slack_ns') <= max(end_ns) OVER (
                PARTITION BY directory
                ORDER BY start_ns, report_id
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ),
            false
        ) AS joins
    FROM captures
),
islands AS (
    SELECT
        *,
        count(if(NOT joins, 1, NULL)) OVER (PARTITION BY directory ORDER BY start_ns, report_id) AS island
    FROM joined
),
stated AS (
    SELECT i.directory, i.island, report_id, e.name, e.value
    FROM islands AS i
    JOIN nsys_environment AS e USING (report_id)
    WHERE e.source = 'variable'
        AND e.name IN ('RANK', 'OMPI_COMM_WORLD_RANK', 'PMIX_RANK', 'PMI_RANK', 'SLURM_PROCID')
),
-- Pairs of islands without a rank in common.
others AS (
    SELECT a.directory, a.island, b.island AS earlier
    FROM stated AS a
    JOIN stated AS b ON b.directory = a.directory AND b.name = a.name AND b.island < a.island
    GROUP BY a.directory, a.island, b.island
    HAVING NOT bool_or(a.value = b.value)
),
ends AS (
    SELECT
        report_id,
        directory,
        island,
        c.communicator,
        c.operation,
        c.end_ns,
        row_number() OVER own AS nth,
        count(*) OVER (PARTITION BY report_id, c.communicator, c.operation) AS times
    FROM islands
    JOIN _collectives AS c USING (report_id)
    WHERE (directory, island) IN (
        SELECT (directory, island) FROM others UNION ALL SELECT (directory, earlier) FROM others
    )
    WINDOW own AS (PARTITION BY report_id, c.communicator, c.operation ORDER BY c.start_ns, c.op_id)
),
alike AS (
    SELECT o.directory, o.island, o.earlier
    FROM others AS o
    JOIN ends AS a ON a.directory = o.directory AND a.island = o.island
    JOIN ends AS b ON b.directory = o.directory
        AND b.island = o.earlier
        AND b.communicator IS NOT DISTINCT FROM a.communicator
        AND b.operation = a.operation
        AND b.nth = a.nth
        AND b.times = a.times
    GROUP BY o.directory, o.island, o.earlier, a.report_id, b.report_id
    HAVING count(*) >= threshold('timeline.aligned_collectives')
        AND mad(a.end_ns - b.end_ns) <= threshold('timeline.aligned_ns')
)
SELECT report_id, directory, started_ns, least(island, min(a.earlier)) AS capture_group
FROM islands
LEFT JOIN alike AS a USING (directory, island)
GROUP BY report_id, directory, started_ns, island;
