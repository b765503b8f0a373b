-- Ranks of the members of each job, from the first source that gives every member a different rank.
-- @materialize
CREATE VIEW _job_ranks AS
WITH members AS (
    SELECT
        report_id,
        track,
        device,
        pid,
        min(start_ns) AS start_ns,
        max(end_ns) AS end_ns,
        count(*) AS collectives
    FROM _collectives
    GROUP BY report_id, track, device, pid
),
-- Processes and GPUs that communicated, with their job.
job_members AS (
    SELECT
        min(m.report_id) OVER (PARTITION BY n.directory, n.capture_group) AS job,
        m.*,
        n.started_ns,
        row_number() OVER (
            PARTITION BY n.directory, n.capture_group
            ORDER BY natural_order(r.source_name), m.report_id, m.device, m.pid
        ) - 1 AS place
    FROM members AS m
    JOIN _job_captures AS n USING (report_id)
    JOIN reports AS r USING (report_id)
),
alone AS (
    SELECT report_id, any_value(pid) AS pid
    FROM job_members
    GROUP BY report_id
    HAVING count(*) = 1
),
candidates AS (
    SELECT m.job, m.report_id, m.track, m.pid, 1 AS preference, 'MPI_RANKS' AS source, min(r.rank) AS rank
    FROM job_members AS m
    JOIN mpi_ranks AS r USING (report_id, pid)
    GROUP BY m.job, m.report_id, m.track, m.pid
    UNION ALL
    -- The environment belongs to the process that nsys started, so it cannot be used for several processes.
    SELECT
        m.job,
        m.report_id,
        m.track,
        m.pid,
        1 + list_position(names.list, e.name),
        e.name,
        try_cast(e.value AS BIGINT)
    FROM job_members AS m
    JOIN alone USING (report_id)
    JOIN nsys_environment AS e USING (report_id)
    CROSS JOIN (
        SELECT ['RANK', 'OMPI_COMM_WORLD_RANK', 'PMIX_RANK', 'PMI_RANK', 'SLURM_PROCID', 'LOCAL_RANK'] AS list
    ) AS names
    WHERE e.source = 'variable' AND list_contains(names.list, e.name)
    UNION ALL
    SELECT job, report_id, track, pid, 100, 'file order', place
    FROM job_members
),
complete AS (
    SELECT c.job, c.preference, any_value(c.source) AS source
    FROM candidates AS c
    JOIN (SELECT job, count(*) AS n FROM job_members GROUP BY job) AS m USING (job)
    GROUP BY c.job, c.preference, m.n
    HAVING count(DISTINCT c.rank) = m.n
)
SELECT m.*, c.rank, c.source AS rank_source
FROM job_members AS m
JOIN (SELECT job, min(preference) AS preference FROM complete GROUP BY job) AS best USING (job)
JOIN candidates AS c
    ON c.job = m.job
        AND c.preference = best.preference
        AND c.report_id = m.report_id
        AND c.track = m.track
        AND c.pid = m.pid;
