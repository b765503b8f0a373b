-- Copies of a few bytes to the host for which the launching thread waits before its next launch, for
-- example in `.item()`, including copies in CUDA graphs. While the host waits, the GPU runs out of work.
-- Host code that uses the copied value cannot be part of a CUDA graph.
-- @materialize
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- copies BIGINT: number of small copies to the host; a copy in a CUDA graph counts once per graph launch
-- per_step DOUBLE: number of copies per step; NULL without steps
-- calls_pct DOUBLE: number of copies as a percentage of all launching calls
-- max_bytes BIGINT: size of the largest copy, bytes
-- idle_ns BIGINT: GPU idle time in the category sync from each copy to the thread's next launch, ns
-- share_pct DOUBLE: idle_ns as a percentage of the steady steps (analysis_windows)
-- host_pct DOUBLE: percentage of the steady steps that the host spends on readbacks and launches. A readback
--   lasts from the start of the copy call, or from the end of the graph launch, to the thread's next launch.
--   Tracing lengthens launches. Other host work is not included, because it would take just as long without
--   the copies
CREATE VIEW small_readbacks AS
WITH copies AS (
    SELECT
        track, report_id, pid, tid, call_id, api_name, bytes,
        graph_node_id IS NOT NULL AS in_graph,
        if(in_graph, api_end_ns, api_start_ns) AS begin_ns,
        NOT in_graph AND dst_kind = 'Pageable' AS blocks
    FROM _analysed_copies
    WHERE bytes <= threshold('timeline.readback_bytes')
        AND src_kind = 'Device'
        AND dst_kind IN ('Pageable', 'Pinned')
),
following AS (
    -- call_id counts the launching calls of a thread.
    SELECT c.*, n.op_id AS next_op_id, n.api_start_ns AS next_ns
    FROM copies AS c
    LEFT JOIN launches AS n
        ON n.report_id = c.report_id AND n.call_id = c.call_id + 1 AND n.pid = c.pid AND n.tid = c.tid
    QUALIFY row_number() OVER (PARTITION BY c.report_id, c.call_id ORDER BY n.op_id, c.bytes DESC) = 1
),
waited AS (
    SELECT f.*
    FROM following AS f
    ASOF LEFT JOIN _sync_calls AS s
        ON s.report_id = f.report_id AND s.pid = f.pid AND s.tid = f.tid AND s.start_ns >= f.begin_ns
    -- A copy to pageable memory blocks by itself, unless it is part of a graph.
    WHERE f.blocks OR s.start_ns < coalesce(f.next_ns, s.end_ns)
),
sums AS (
    SELECT
        w.track, count(*) AS copies, max(w.bytes) AS max_bytes, coalesce(sum(g.sync_ns), 0) AS idle_ns,
        sum(w.next_ns - w.begin_ns) AS host_ns
    FROM waited AS w
    LEFT JOIN _gaps AS g ON g.track = w.track AND g.op_id = w.next_op_id
    GROUP BY w.track
)
SELECT
    t.report_id,
    t.device,
    s.copies,
    s.copies / nullif(p.steps, 0) AS per_step,
    100.0 * s.copies / nullif(l.calls, 0) AS calls_pct,
    s.max_bytes,
    s.idle_ns::BIGINT AS idle_ns,
    100.0 * s.idle_ns / nullif(p.time_ns, 0) AS share_pct,
    least(100.0 * (s.host_ns + l.api_ns) / nullif(p.time_ns, 0), 100) AS host_pct
FROM sums AS s
JOIN _gpus AS t USING (track)
JOIN analysis_windows AS p
    ON p.report_id = t.report_id AND p.device IS NOT DISTINCT FROM t.device
LEFT JOIN launch_summary AS l ON l.report_id = t.report_id AND l.device = t.device
ORDER BY t.report_id, t.device;
