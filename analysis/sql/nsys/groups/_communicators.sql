-- Communicators of each job with their ranks in ascending order: as torch states them, else the captured
-- ranks if all were captured: as many as the communicator has, or all ranks of the job. torch cuts lists of
-- more than 30 ranks, but also states start and stride.
-- @materialize
CREATE VIEW _communicators AS
WITH stated AS (
    SELECT
        communicator,
        any_value(description ORDER BY description) AS description,
        any_value(members ORDER BY members) AS members,
        any_value(first_rank ORDER BY first_rank) AS first_rank,
        any_value(stride ORDER BY stride) AS stride,
        max(ranks)::BIGINT AS ranks
    FROM _distributed_calls
    WHERE communicator IS NOT NULL AND members IS NOT NULL
    GROUP BY communicator
),
parsed AS (
    SELECT
        communicator,
        description,
        ranks,
        first_rank,
        stride,
        list_sort(list_transform(regexp_extract_all(members, '\d+'), lambda rank: rank::BIGINT)) AS listed
    FROM stated
),
listed AS (
    SELECT
        communicator,
        description,
        CASE
            WHEN len(listed) = ranks THEN listed
            WHEN stride > 0 AND listed = range(first_rank, first_rank + stride * len(listed), stride)
                THEN range(first_rank, first_rank + stride * ranks, stride)
        END AS members
    FROM parsed
),
worlds AS (
    SELECT r.job, count(DISTINCT r.rank) = max(try_cast(e.value AS BIGINT)) AS complete
    FROM _job_ranks AS r
    JOIN nsys_environment AS e USING (report_id)
    WHERE e.source = 'variable' AND e.name = 'WORLD_SIZE'
    GROUP BY r.job
),
used AS (
    SELECT
        r.job,
        c.communicator,
        list_sort(list(DISTINCT r.rank)) AS captured,
        coalesce(
            max(c.ranks), CASE WHEN bool_or(w.complete) AND c.communicator IS NOT NULL THEN len(captured) END
        ) AS ranks
    FROM _collectives AS c
    JOIN _job_ranks AS r USING (report_id, track, pid)
    LEFT JOIN worlds AS w USING (job)
    GROUP BY r.job, c.communicator
)
SELECT
    u.job,
    u.communicator,
    l.description,
    u.captured,
    u.ranks,
    coalesce(l.members, CASE WHEN len(u.captured) = u.ranks THEN u.captured END) AS members,
    l.communicator IS NOT NULL AS stated
FROM used AS u
LEFT JOIN listed AS l USING (communicator);
