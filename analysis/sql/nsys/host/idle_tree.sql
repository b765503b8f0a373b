-- Idle time of each GPU in the analyzed windows as a tree of the stacks that the host had meanwhile: the
-- outermost functions are at the top, and functions are below their caller. Code of the user is listed by
-- line, other code by function. Code below 0.1 % of the idle time is one row for each caller. Idle time
-- without a stack is at the top as well, so the rows there add up to the idle time of the GPU.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- depth BIGINT: number of callers, from 0
-- frame VARCHAR: name of the function, or ... for all other code of the caller; for idle time without a
--   stack, the reason as in idle_stacks
-- file VARCHAR: source file; NULL if the row is not a function
-- line BIGINT: line; NULL if several lines of a function that is not the user's were executed
-- kind VARCHAR: owner of the code, as in host_frames; NULL if the row is not a function
-- via VARCHAR: worker process if a worker executes the code, for which its caller waits; else NULL
-- time_ns BIGINT: idle time with this code in the stack, ns
-- self_ns BIGINT: idle time in which this was the innermost code, ns
-- share_pct DOUBLE: time_ns as a percentage of the idle time
-- samples BIGINT: samples that time_ns rests on
-- tree_order VARCHAR: sort key that lists the tree from top to bottom, most time first
CREATE VIEW idle_tree AS
WITH RECURSIVE wholes AS (
    SELECT report_id, device, sum(ns) AS ns
    FROM _idle_whole
    GROUP BY ALL
),
coded AS (
    SELECT
        *,
        row_number() OVER (PARTITION BY number ORDER BY depth DESC) AS place,
        dense_rank() OVER (ORDER BY via, kind, function, file, if(kind = 'user', line, NULL)) AS code
    FROM _idle_frames
),
-- The way to a frame from outside. Many frames are alike, so ways are short texts.
ways AS (
    SELECT
        *,
        string_agg(code::VARCHAR, ' ') OVER (PARTITION BY number ORDER BY place) AS way,
        max(place) OVER (PARTITION BY number) = place AS is_leaf
    FROM coded
),
summed AS (
    SELECT
        k.report_id, k.device, f.way, f.place - 1 AS depth,
        regexp_replace(f.way, ' ?[0-9]+$', '') AS above,
        any_value(f.function) AS frame, any_value(f.file) AS file,
        if(min(f.line) = max(f.line), any_value(f.line), NULL) AS line,
        any_value(f.kind) AS kind, any_value(f.via) AS via,
        sum(k.ns)::BIGINT AS ns, coalesce(sum(k.ns) FILTER (f.is_leaf), 0)::BIGINT AS self_ns,
        sum(k.samples)::BIGINT AS samples
    FROM ways AS f
    JOIN _idle_whole AS k USING (number)
    GROUP BY k.report_id, k.device, f.way, f.place
    UNION ALL
    SELECT
        report_id, device, reason, 0, '', reason, NULL, NULL, NULL, NULL,
        sum(ns)::BIGINT, sum(ns)::BIGINT, sum(samples)::BIGINT
    FROM _idle_whole
    WHERE stack_id IS NULL
    GROUP BY report_id, device, reason
),
judged AS (
    SELECT
        s.*, 100.0 * s.ns / w.ns AS share_pct,
        share_pct >= threshold('timeline.idle_frame_pct') OR s.kind IS NULL AS is_shown
    FROM summed AS s
    JOIN wholes AS w ON w.report_id = s.report_id AND w.device IS NOT DISTINCT FROM s.device
),
nodes AS (
    SELECT * EXCLUDE (is_shown)
    FROM judged
    WHERE is_shown
    UNION ALL BY NAME
    SELECT
        j.report_id, j.device, any_value(j.above || ' ...') AS way, j.depth, j.above, '...' AS frame,
        sum(j.ns)::BIGINT AS ns, sum(j.ns)::BIGINT AS self_ns, sum(j.samples)::BIGINT AS samples,
        sum(j.share_pct) AS share_pct
    FROM judged AS j
    LEFT JOIN judged AS p
        ON p.report_id = j.report_id AND p.device IS NOT DISTINCT FROM j.device AND p.way = j.above
    WHERE NOT j.is_shown AND coalesce(p.is_shown, j.depth = 0)
    GROUP BY j.report_id, j.device, j.depth, j.above
),
ranked AS MATERIALIZED (
    SELECT
        *,
        printf('%05d', row_number() OVER (
            PARTITION BY report_id, device, above
            ORDER BY kind IS NULL, frame = '...' DESC, ns DESC, way
        )) AS number
    FROM nodes
),
tree AS (
    SELECT report_id, device, way, number AS tree_order
    FROM ranked
    WHERE depth = 0
    UNION ALL
    SELECT r.report_id, r.device, r.way, concat(t.tree_order, '.', r.number)
    FROM tree AS t
    JOIN ranked AS r
        ON r.report_id = t.report_id AND r.device IS NOT DISTINCT FROM t.device AND r.above = t.way
    WHERE r.depth > 0
)
SELECT
    r.report_id,
    r.device,
    r.depth,
    r.frame,
    r.file,
    r.line,
    r.kind,
    r.via,
    r.ns AS time_ns,
    r.self_ns,
    r.share_pct,
    r.samples,
    t.tree_order
FROM tree AS t
JOIN ranked AS r ON r.report_id = t.report_id AND r.device IS NOT DISTINCT FROM t.device AND r.way = t.way
ORDER BY r.report_id, r.device, t.tree_order;
