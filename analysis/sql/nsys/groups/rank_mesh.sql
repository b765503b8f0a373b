-- Mesh of each job: the number of ranks in each dimension, from the kinds of its groups (rank_groups). A kind
-- is a dimension if each captured rank is in one of its groups of a size.
--
-- job VARCHAR: job, as in job_ranks
-- ranks BIGINT: number of ranks of the job: WORLD_SIZE, else the number of captured ranks
-- captured BIGINT: number of captured ranks
-- data BIGINT: number of replicas, or of shards of the parameters; 1 if the other dimensions leave no other;
--   NULL if unknown
-- tensor BIGINT: number of ranks that share each layer; NULL if no such group was found
-- pipeline BIGINT: number of stages; NULL if no such group was found
-- context BIGINT: number of ranks that share each sequence; NULL if no such group was found
-- expert BIGINT: number of ranks that share the experts of a layer; these ranks are part of the dimension
--   data or tensor; NULL if no such group was found
-- mesh VARCHAR: the mesh as a sentence
CREATE VIEW rank_mesh AS
WITH worlds AS (
    SELECT
        r.job,
        count(DISTINCT r.rank) AS captured,
        greatest(count(DISTINCT r.rank), coalesce(max(try_cast(e.value AS BIGINT)), 0)) AS ranks
    FROM _job_ranks AS r
    LEFT JOIN nsys_environment AS e
        ON e.report_id = r.report_id AND e.source = 'variable' AND e.name = 'WORLD_SIZE'
    GROUP BY r.job
),
used AS (
    SELECT DISTINCT
        g.job,
        if(g.kind = 'sharded data', 'data', g.kind) AS dimension,
        g.size,
        g.members,
        o.rank
    FROM rank_groups AS g
    JOIN _group_ops AS o USING (job, group_id)
    WHERE g.kind != 'unknown' AND g.size > 1
),
dimensions AS (
    SELECT
        u.job,
        u.dimension,
        u.size,
        min(u.members[2] - u.members[1]) AS stride
    FROM used AS u
    JOIN worlds AS w USING (job)
    GROUP BY u.job, u.dimension, u.size, w.captured
    HAVING count(DISTINCT u.rank) = w.captured
    -- Gradients of experts are summed over fewer ranks than the others.
    QUALIFY row_number() OVER (
        PARTITION BY u.job, u.dimension ORDER BY if(u.dimension = 'data', -u.size, u.size)
    ) = 1
),
sizes AS (
    SELECT
        job,
        max(size) FILTER (dimension = 'data') AS data,
        max(size) FILTER (dimension = 'tensor') AS tensor,
        max(size) FILTER (dimension = 'pipeline') AS pipeline,
        max(size) FILTER (dimension = 'context') AS context,
        max(size) FILTER (dimension = 'expert') AS expert
    FROM dimensions
    GROUP BY job
),
divided AS (
    SELECT
        w.job,
        w.ranks,
        w.captured,
        coalesce(s.tensor, 1) * coalesce(s.pipeline, 1) * coalesce(s.context, 1) AS others,
        -- Gradients are also summed over the ranks that share a sequence.
        CASE
            WHEN s.data * others = w.ranks THEN s.data
            WHEN s.data * others = w.ranks * s.context AND s.data % s.context = 0 THEN s.data // s.context
            WHEN s.data IS NULL AND others = w.ranks AND others > 1 THEN 1
        END AS data,
        s.tensor,
        s.pipeline,
        s.context,
        s.expert
    FROM worlds AS w
    LEFT JOIN sizes AS s USING (job)
),
named AS (
    SELECT
        job,
        string_agg(concat(dimension, ' ', size), ' x ' ORDER BY stride DESC, dimension) AS factors
    FROM (
        SELECT
            d.job,
            d.dimension,
            if(d.dimension = 'data', v.data, d.size) AS size,
            if(d.dimension = 'data' AND v.data < d.size, d.stride * v.context, d.stride) AS stride
        FROM dimensions AS d
        JOIN divided AS v USING (job)
        WHERE d.dimension != 'expert'
    )
    WHERE size > 1
    GROUP BY job
)
SELECT
    v.job,
    v.ranks,
    v.captured,
    v.data,
    v.tensor,
    v.pipeline,
    v.context,
    v.expert,
    concat(
        v.ranks,
        if(v.ranks = 1, ' rank', ' ranks'),
        CASE WHEN v.captured < v.ranks THEN concat(', ', v.captured, ' captured') END,
        ': ',
        coalesce(n.factors, 'the mesh is unknown'),
        CASE WHEN v.expert IS NOT NULL THEN concat('; each layer''s experts are on ', v.expert, ' ranks') END,
        CASE
            WHEN v.data IS NULL AND n.factors IS NOT NULL AND v.ranks > v.others
                THEN concat(
                    '; the other factor of ',
                    printf('%.4g', v.ranks / v.others),
                    ' is unknown, because no group of a known kind has this size'
                )
            WHEN v.data IS NULL THEN ', because the kinds of its groups are unknown (rank_groups)'
        END
    ) AS mesh
FROM divided AS v
LEFT JOIN named AS n USING (job)
ORDER BY v.job;
