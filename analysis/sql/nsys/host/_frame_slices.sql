-- Intervals in which consecutive samples of a thread have a frame with the same frames around it.
CREATE VIEW _frame_slices AS
WITH ways AS MATERIALIZED (
    SELECT
        report_id, stack_id, frame_id,
        row_number() OVER outer_first - 1 AS depth,
        string_agg(frame_id::VARCHAR, ' ') OVER outer_first AS way
    FROM host_stacks
    WINDOW outer_first AS (PARTITION BY report_id, stack_id ORDER BY depth DESC)
),
numbered AS (
    SELECT *, dense_rank() OVER (ORDER BY report_id, way) AS node
    FROM ways
),
begun AS (
    SELECT
        c.report_id, c.pid, c.tid, c.start_ns, c.end_ns, n.depth, n.node, n.frame_id,
        coalesce(lag(n.node) OVER of_depth != n.node OR lag(c.end_ns) OVER of_depth != c.start_ns, true)
            AS begins
    FROM _host_cells AS c
    JOIN numbered AS n USING (report_id, stack_id)
    WINDOW of_depth AS (PARTITION BY c.report_id, c.pid, c.tid, n.depth ORDER BY c.start_ns)
),
islands AS (
    SELECT
        *,
        count_if(begins) OVER (PARTITION BY report_id, pid, tid, depth ORDER BY start_ns) AS island
    FROM begun
),
slices AS (
    SELECT
        report_id, pid, tid, depth, any_value(frame_id) AS frame_id, min(start_ns) AS start_ns,
        max(end_ns) - min(start_ns) AS dur_ns
    FROM islands
    GROUP BY report_id, pid, tid, depth, island
)
SELECT
    s.report_id, s.pid, s.tid, s.depth, s.start_ns, s.dur_ns, f.function AS name,
    f.file || coalesce(':' || f.line, '') AS place
FROM slices AS s
JOIN host_frames AS f USING (report_id, frame_id);
