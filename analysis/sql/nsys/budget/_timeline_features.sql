-- Features that techniques for a GPU's time require besides its category, and the shares of the window, %, in
-- which the GPU is idle because of slow launches, and in which its rank waits in the first and in later
-- collectives.
-- @materialize
CREATE VIEW _timeline_features AS
WITH slow AS (
    SELECT t.report_id, t.device, sum(g.own_ns) AS ns
    FROM _slow_launches AS s
    JOIN (FROM _gaps SEMI JOIN _analysed USING (track, window_id)) AS g USING (track, op_id)
    JOIN _gpus AS t USING (track)
    GROUP BY t.report_id, t.device
),
-- GPUs of which most of the time for building goes to CUDA graphs.
graphs AS (
    SELECT t.report_id, t.device
    FROM (FROM _gaps SEMI JOIN _analysed USING (track, window_id)) AS g
    JOIN _gpus AS t USING (track)
    LEFT JOIN _built AS b USING (track, op_id)
    GROUP BY t.report_id, t.device
    HAVING 2 * sum(g.building_ns) FILTER (b.graphs) > sum(g.building_ns)
),
-- GPUs for which the same code is built again and again.
again AS (
    SELECT t.report_id, t.device
    FROM _reloaded
    JOIN _gpus AS t USING (track)
    UNION
    SELECT report_id, device
    FROM _recompilations
),
copied AS (
    SELECT
        report_id,
        device,
        sum(bytes) FILTER (operation LIKE '%Host-to-Device%') AS there,
        sum(bytes) FILTER (operation LIKE '%Device-to-Host%') AS back,
        -- Categories that take half of the time.
        CASE
            WHEN 2 * sum(total_ns) FILTER (operation LIKE '%memset%') >= sum(total_ns) THEN 'clears'
            WHEN 2 * sum(total_ns) FILTER (operation LIKE '%Device-to-Device%') >= sum(total_ns)
                THEN 'device_copies'
            WHEN 2 * sum(total_ns) FILTER (
                link = 'PCIe' AND bytes < count * threshold('timeline.input_bytes')
            ) >= sum(total_ns) THEN 'small_copies'
            ELSE 'host_copies'
        END AS kind,
        2 * sum(total_ns) FILTER ('Pinned' IN (src_kind, dst_kind)) >= sum(total_ns) AS is_pinned
    FROM memory_op_summary
    WHERE NOT is_migration(operation)
    GROUP BY report_id, device
),
shares AS (
    SELECT
        report_id,
        device,
        any_value(share_pct) FILTER (category = 'communication') AS communication_pct,
        any_value(share_pct) FILTER (category = 'transfer') AS transfer_pct,
        any_value(share_pct) FILTER (category = 'compute') AS compute_pct
    FROM gpu_time_budget
    GROUP BY report_id, device
),
ranks AS (
    FROM rank_skew
    QUALIFY row_number() OVER (PARTITION BY report_id, device ORDER BY job, rank) = 1
),
-- Programs that launch their own kernels, and none of a framework that could compile the step.
own AS (
    SELECT report_id, device
    FROM kernel_library_times
    SEMI JOIN (FROM reports WHERE kind = 'nsys') USING (report_id)
    GROUP BY report_id, device
    HAVING bool_or(is_built_in(library))
        AND NOT bool_or(
            library IN ('torch_native', 'triton', 'vllm', 'tensorrt_llm') OR is_generated(library)
        )
),
-- Waiting for other stages in messages is no transfer either.
bubbles AS (
    SELECT
        report_id,
        device,
        sum((receive_ns - coalesce(transfer_ns, 0)) / bubble_ns * step_pct ORDER BY group_id, stage)
            AS bubble_pct
    FROM pipeline_stages
    WHERE bubble_ns > 0
    GROUP BY report_id, device
),
-- Whether most of the time in which the host launches nothing is spent on input data or on starting
-- processes.
host_input AS (
    -- Copies that are large enough for data.
    WITH data_copies AS (
        SELECT l.report_id, l.device, l.op_id, l.end_ns,
            m.operation LIKE '[CUDA memcpy Host-to-Device%' AS incoming
        FROM nsys_memory_ops AS m
        JOIN launches AS l
            ON l.report_id = m.report_id
                AND l.pid = m.pid
                AND l.correlation_id = m.correlation_id
                AND l.start_ns = m.start_ns
                AND l.device = m.device
        WHERE (incoming OR m.operation LIKE '[CUDA memcpy Device-to-Host%')
            AND m.bytes >= threshold('timeline.input_bytes')
    ),
    -- Idle intervals after a copy of data to the host: the host may process the data, and the next copy may
    -- depend on it.
    answers AS (
        SELECT DISTINCT g.track, g.op_id
        FROM _gaps AS g
        JOIN _gpus AS t USING (track)
        JOIN (FROM data_copies WHERE NOT incoming) AS r
            ON r.report_id = t.report_id AND r.device = t.device AND r.end_ns = g.start_ns
    ),
    host AS (
        -- Input data: ranges and OS calls with such names, or only repeated copies of that size, for which
        -- the host may wait for another thread.
        SELECT
            c.track,
            sum(c.dur_ns) AS ns,
            sum(c.dur_ns) FILTER (
                is_input(n.range_name) OR is_reading(CASE WHEN 2 * n.os_ns >= n.dur_ns THEN n.os_name END)
                OR (n.other_kind = 'range' AND is_input(n.other_name))
                OR (n.other_kind = 'os' AND is_reading(n.other_name))
            ) AS input_ns,
            -- The name that torch.profiler gives to the iterator of a loader with workers.
            coalesce(bool_or(contains(n.range_name, '_MultiProcessingDataLoaderIter')), false) AS parallel,
            sum(c.dur_ns) FILTER (s.op_id IS NOT NULL) AS starting_ns,
            sum(c.dur_ns) FILTER (i.op_id IS NOT NULL) AS copied_ns,
            count(i.op_id) AS copies
        FROM _gap_causes AS c
        JOIN _gap_names AS n USING (track, op_id)
        JOIN _gpus AS t USING (track)
        LEFT JOIN _starting_gaps AS s USING (track, op_id)
        LEFT JOIN answers AS a USING (track, op_id)
        LEFT JOIN data_copies AS i
            ON i.report_id = t.report_id AND i.op_id = c.op_id AND i.incoming AND a.op_id IS NULL
                AND (c.kind = 'next operation' OR (c.kind = 'OS call' AND is_waiting(c.name)))
        WHERE c.cause = 'host'
        GROUP BY c.track
    )
    SELECT t.report_id, t.device,
        coalesce(2 * starting_ns >= ns, false) AS starts,
        parallel OR t.report_id IN (SELECT report_id FROM _parents) AS has_workers,
        2 * input_ns >= ns
        OR (copies >= threshold('timeline.recurring_gaps') AND 2 * copied_ns >= ns) AS is_data
    FROM host
    JOIN _gpus AS t USING (track)
)
SELECT
    b.report_id,
    b.device,
    list_filter([
        -- CUDA graphs do not help work that already runs in graphs, and cannot contain decisions of the host.
        CASE
            WHEN h.kind IS NULL AND s.graphs_save_pct >= threshold('timeline.launch_overhead_pct')
                THEN 'graphs_save'
        END,
        CASE
            WHEN 2 * s.graph_kernels >= s.kernels THEN 'graphs'
            WHEN e.is_compiled THEN 'compiled'
            ELSE 'eager'
        END,
        if(n.report_id IS NULL, 'framework', 'native'),
        CASE
            WHEN d.report_id IS NOT NULL THEN 'builds_graphs'
            WHEN a.report_id IS NOT NULL THEN 'builds_again'
            ELSE 'builds_once'
        END,
        CASE WHEN 2 * w.ns >= s.launch_overhead_ns THEN 'slow_launches' END,
        -- Nothing can prefetch the requests of a server.
        CASE
            WHEN i.starts THEN 'starts_processes'
            WHEN i.is_data AND q.report_id IS NULL THEN 'input_data'
        END,
        if(q.report_id IS NULL, 'no_requests', 'requests'),
        CASE
            WHEN q.report_id IS NOT NULL THEN NULL
            WHEN b.report_id IN (SELECT report_id FROM _training_reports) THEN 'training'
            ELSE 'no_training'
        END,
        if(i.has_workers, 'has_workers', 'no_workers'),
        if(v.steps IS NULL, 'no_steps', 'steps'),
        CASE
            WHEN v.steps IS NOT NULL
                AND m.kind = 'host_copies'
                AND (
                    o.transfer_pct > o.compute_pct
                    OR least(m.there, coalesce(m.back, 0))
                        >= threshold('timeline.round_trip_share') * greatest(m.there, coalesce(m.back, 0))
                )
                THEN 'recurring_copies'
        END,
        m.kind,
        if(m.is_pinned, 'pinned', 'pageable'),
        CASE
            WHEN c.cause = 'compute' OR (c.last_rank IS NOT NULL AND c.cause IS NULL) THEN 'ranks_wait'
        END,
        CASE
            WHEN 2 * k.start_ns >= k.waiting_ns
                AND k.window_pct * k.start_ns / nullif(k.waiting_ns, 0)
                    >= threshold('timeline.contributor_pct')
                THEN 'start_skew'
        END,
        -- Time without waiting in collectives whose other ranks were captured.
        CASE
            WHEN mostly_waits(k.waiting_pct, k.start_ns, k.waiting_ns)
                AND o.communication_pct * (1 - k.waiting_pct / 100) < threshold('timeline.contributor_pct')
                THEN NULL
            WHEN (k.window_pct IS NULL AND l.bubble_pct IS NULL)
                OR o.communication_pct - coalesce(k.window_pct, 0) - coalesce(l.bubble_pct, 0)
                    >= threshold('timeline.contributor_pct')
                THEN 'transfers'
        END
    ], lambda feature: feature IS NOT NULL) AS features,
    100.0 * w.ns / nullif(v.time_ns, 0) AS slow_pct,
    k.window_pct * k.start_ns / nullif(k.waiting_ns, 0) AS start_pct,
    k.window_pct * (1 - k.start_ns / nullif(k.waiting_ns, 0)) AS waiting_pct
FROM timeline_bottleneck AS b
JOIN analysis_windows AS v USING (report_id, device)
LEFT JOIN launch_summary AS s USING (report_id, device)
LEFT JOIN slow AS w USING (report_id, device)
LEFT JOIN host_input AS i USING (report_id, device)
LEFT JOIN _compiled_steps AS e USING (report_id, device)
LEFT JOIN own AS n USING (report_id, device)
LEFT JOIN graphs AS d USING (report_id, device)
LEFT JOIN again AS a USING (report_id, device)
LEFT JOIN copied AS m USING (report_id, device)
LEFT JOIN ranks AS k USING (report_id, device)
LEFT JOIN bubbles AS l USING (report_id, device)
LEFT JOIN _rank_causes AS c ON c.job = k.job AND c.rank = k.rank
LEFT JOIN shares AS o USING (report_id, device)
LEFT JOIN _host_loops AS h USING (report_id, device)
LEFT JOIN _serving_gpus AS q USING (report_id, device);
