-- Optimization techniques from the knowledge base for each GPU, largest share first: for every category that
-- takes at least 10 % of the window (launch overhead: 5 %), and for small copies to the host if such copies
-- are frequent. Each technique has an upper bound on its gain. There are no rows for GPUs that were hardly
-- used or only captured while the program starts (cold_start_findings), or for programs that benchmark
-- kernels. For techniques that speed up kernels, see kernel_findings.
-- @materialize
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- rank BIGINT: rank by share; 1 is the largest
-- bound VARCHAR: category of timeline_bottleneck that the technique addresses, or readback (small copies to
--   the host)
-- share_pct DOUBLE: percentage of the window in this category
-- technique VARCHAR: key of the technique in the knowledge base
-- gain_pct DOUBLE: upper bound on the gain: the largest percentage of the window that the technique can save;
--   NULL if no bound can be derived, or if the trace is incomplete
-- floor VARCHAR: time that the upper bound assumes to remain: busy (GPU work and code loading; if host is a
--   contributor, also the host work during long idle intervals, because this work already runs concurrently
--   with the GPU or follows a wait for the GPU), synced (as busy, plus the idle time while the host waits for
--   the GPU), unsynced (as busy, but assuming that all host work runs concurrently with the GPU and nothing
--   waits), others (all other categories), other_launches (everything except slow launches), waiting
--   (everything except waiting for other ranks after the first collective), start (everything except waiting
--   in the first collective), hidden (compute, which can overlap with this category), link (as hidden, plus
--   the copy time at the link's peak bandwidth) or elsewhere (GPU work, code loading, and host work other
--   than readbacks and launches); NULL if there is no bound
-- difficulty VARCHAR: difficulty of the technique: low, medium or high
-- confidence VARCHAR: confidence of the verdict: high, medium or low
-- for_rank BIGINT: rank to which the technique applies, if this GPU waits for another rank; NULL if the
--   technique applies to this GPU
-- slow_pct DOUBLE: percentage of the window during which the GPU is idle because the host repeatedly takes a
--   long time to launch the same kernel; NULL unless `bound` is launch_overhead and these launches cause at
--   least half of the overhead
-- idle_line VARCHAR: description of the lines of the program in which most of the category's idle time
--   occurs; NULL if no stacks were sampled, or if the category is not idle time
-- idle_in VARCHAR: description of where most of the category's idle time occurs; NULL if unknown, or if the
--   category is not idle time
-- largest_gap VARCHAR: description of the category's longest idle interval; NULL if the category is not idle
--   time
CREATE VIEW timeline_findings AS
WITH copied AS (
    SELECT report_id, device, operation, sum(bytes / link_bytes_per_s ORDER BY src_kind, dst_kind) AS s
    FROM memory_op_summary
    WHERE NOT is_migration(operation)
    GROUP BY report_id, device, operation
),
behind AS (
    SELECT g.report_id, g.device, sum(i.host_ns) AS ns
    FROM (FROM _gaps SEMI JOIN _analysed USING (track, window_id)) AS i
    JOIN _gpus AS g USING (track)
    WHERE i.sync_name IS NOT NULL
    GROUP BY g.report_id, g.device
),
whole AS (
    SELECT
        b.report_id,
        b.device,
        -- Overhead of the profiler, and idle time without a known cause, are in none of these shares.
        coalesce(list_sum(list_transform(
            list_filter(b.shares, lambda part: is_work(part.category)), lambda part: part.share_pct
        )), 0) AS work_pct,
        coalesce(list_sum(list_transform(
            list_filter(b.shares, lambda part: NOT is_work(part.category) AND NOT is_kept(part.category)),
            lambda part: part.share_pct
        )), 0) AS rest_pct,
        coalesce(
            list_filter(b.shares, lambda part: part.category = 'compute')[1].share_pct, 0
        ) AS compute_pct,
        coalesce(list_filter(b.shares, lambda part:
            part.category = 'host' AND part.share_pct >= threshold('timeline.contributor_pct')
        )[1].share_pct, 0) AS host_pct,
        least(100.0 * coalesce(any_value(w.ns), 0) / nullif(any_value(v.time_ns), 0), host_pct) AS behind_pct,
        -- Long work of the host that follows no wait for the GPU.
        greatest(
            coalesce(list_filter(b.shares, lambda part: part.category = 'host')[1].share_pct, 0)
                - 100.0 * coalesce(any_value(w.ns), 0) / nullif(any_value(v.time_ns), 0),
            0
        ) AS alone_pct,
        coalesce(list_filter(b.shares, lambda part: part.category = 'sync')[1].share_pct, 0) AS sync_pct,
        work_pct + rest_pct - host_pct AS beside_pct,
        -- Both directions of a link work concurrently.
        100e9 * coalesce(max(c.s), 0) / nullif(any_value(v.time_ns), 0) AS link_pct
    FROM _timeline_bounds AS b
    JOIN analysis_windows AS v USING (report_id, device)
    ANTI JOIN _idle_captures USING (report_id, device)
    ANTI JOIN cold_start_findings USING (report_id, device)
    LEFT JOIN copied AS c USING (report_id, device)
    LEFT JOIN behind AS w USING (report_id, device)
    GROUP BY b.report_id, b.device, b.shares
),
matched AS (
    SELECT c.*, NULL AS for_rank, t.rank AS place, t.technique, t.difficulty,
        -- If events were lost, apparent idle time may not be idle.
        CASE WHEN NOT c.incomplete THEN t.keeps[1] END AS floor
    FROM _timeline_contributors AS c
    JOIN _timeline_features AS f USING (report_id, device)
    JOIN _techniques AS t ON t.bound = c.bound AND list_has_all(f.features, t.features)
    WHERE c.bound != 'compute'
    UNION ALL
    -- Waiting for another rank is first cured on that rank.
    SELECT c.*, r.last_rank, t.rank - 1000, t.technique, t.difficulty,
        CASE WHEN NOT c.incomplete THEN 'waiting' END
    FROM _timeline_contributors AS c
    JOIN _rank_causes AS r USING (report_id, device)
    JOIN _timeline_features AS f ON f.report_id = r.last_report AND f.device = r.last_device
    JOIN _techniques AS t ON t.bound = r.cause AND list_has_all(f.features, t.features)
    WHERE c.bound = 'communication' AND r.cause != 'compute'
),
longest AS (
    SELECT track, timeline_bound(cause) AS bound, arg_max(op_id, (dur_ns, -start_ns)) AS op_id
    FROM _gaps
    SEMI JOIN _analysed USING (track, window_id)
    GROUP BY ALL
),
worded AS (
    SELECT
        t.report_id,
        t.device,
        l.bound,
        concat(
            if(g.dur_ns < 1e6, printf('%.1f us', g.dur_ns / 1e3), printf('%.1f ms', g.dur_ns / 1e6)),
            ' before ',
            coalesce(n.short_name, o.name),
            ' in ' || range_text(o.nvtx_range),
            ', after ' || g.sync_name
        ) AS text
    FROM longest AS l
    JOIN _gaps AS g USING (track, op_id)
    JOIN _gpus AS t USING (track)
    JOIN launches AS o ON o.report_id = t.report_id AND o.op_id = g.op_id
    LEFT JOIN kernel_names AS n
        ON n.report_id = o.report_id AND n.demangled = coalesce(o.demangled, o.name) AND o.kind = 'kernel'
),
-- A function name stands for its only kernel.
functions AS (
    SELECT report_id, name, any_value(short_name) AS short_name
    FROM kernel_names
    GROUP BY report_id, name
    HAVING count(*) = 1
),
named AS (
    SELECT
        report_id,
        device,
        timeline_bound(cause) AS bound,
        kind,
        name,
        sum(count) AS count,
        sum(time_ns) AS time_ns,
        100.0 * sum(time_ns) / sum(sum(time_ns)) OVER (PARTITION BY report_id, device, timeline_bound(cause))
            AS part_pct
    FROM idle_causes
    GROUP BY report_id, device, timeline_bound(cause), kind, name
),
most AS (
    SELECT *
    FROM named
    WHERE kind IS NOT NULL AND part_pct >= threshold('timeline.named_pct')
    QUALIFY row_number() OVER (PARTITION BY report_id, device, bound ORDER BY time_ns DESC, kind, name) = 1
),
-- Location of the idle time of each category of timeline_bottleneck, and its longest interval, in words.
gap_words AS (
    SELECT
        w.report_id,
        w.device,
        w.bound,
        w.text AS largest_gap,
        printf('%.0f %% of this idle time is ', m.part_pct)
        || CASE m.kind
            WHEN 'range' THEN concat('inside `', m.name, '`')
            WHEN 'range of another thread' THEN concat('while another thread is inside `', m.name, '`')
            WHEN 'OS call of another thread' THEN concat('while another thread is in ', m.name)
            WHEN 'ordering call' THEN concat('behind ', m.name)
            WHEN 'next operation' THEN concat('before ', coalesce(f.short_name, m.name))
            ELSE concat('in ', m.name)
        END
        || CASE WHEN m.count > 1 THEN printf(' (%d intervals)', m.count::BIGINT) ELSE '' END AS idle_in
    FROM worded AS w
    LEFT JOIN most AS m USING (report_id, device, bound)
    LEFT JOIN functions AS f ON f.report_id = m.report_id AND f.name = m.name
)
SELECT
    m.report_id,
    m.device,
    row_number() OVER (
        PARTITION BY m.report_id, m.device ORDER BY m.share_pct DESC, m.bound, m.place, m.technique
    ) AS rank,
    m.bound,
    m.share_pct,
    m.technique,
    CASE m.floor
        WHEN 'busy' THEN least(i.rest_pct - i.behind_pct, i.beside_pct)
        WHEN 'synced' THEN least(i.rest_pct - i.behind_pct, i.beside_pct) - i.sync_pct
        -- A host that never waits still has to issue the work.
        WHEN 'unsynced' THEN least(i.rest_pct, i.beside_pct, 100 - 100.0 * k.host_ns / nullif(k.time_ns, 0))
        WHEN 'others' THEN m.share_pct
        WHEN 'elsewhere' THEN least(i.rest_pct - i.alone_pct, r.host_pct)
        WHEN 'other_launches' THEN least(f.slow_pct, i.rest_pct)
        WHEN 'waiting' THEN least(m.share_pct, f.waiting_pct)
        WHEN 'start' THEN least(m.share_pct, f.start_pct)
        WHEN 'hidden' THEN least(m.share_pct, i.compute_pct)
        WHEN 'link' THEN m.share_pct - least(greatest(i.link_pct - i.compute_pct, 0), m.share_pct)
    END AS gain_pct,
    m.floor,
    m.difficulty,
    m.confidence,
    m.for_rank,
    CASE WHEN m.bound = 'launch_overhead' AND list_contains(f.features, 'slow_launches') THEN f.slow_pct END
        AS slow_pct,
    n.words AS idle_line,
    w.idle_in,
    w.largest_gap
FROM matched AS m
JOIN whole AS i ON i.report_id = m.report_id AND i.device = m.device
JOIN _timeline_features AS f ON f.report_id = m.report_id AND f.device = m.device
LEFT JOIN small_readbacks AS r ON r.report_id = m.report_id AND r.device = m.device
LEFT JOIN _kernel_limits AS k ON k.report_id = m.report_id AND k.device = m.device
LEFT JOIN _idle_lines AS n ON n.report_id = m.report_id AND n.device = m.device AND n.bound = m.bound
LEFT JOIN gap_words AS w ON w.report_id = m.report_id AND w.device = m.device AND w.bound = m.bound
ORDER BY m.report_id, m.device, rank;
