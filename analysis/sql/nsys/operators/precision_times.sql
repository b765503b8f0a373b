-- Time of each GPU's kernels by the types that their names state, in the steps that operator_times reads.
-- Names of compilers (XLA, Inductor, Triton) state none.
-- @materialize
--
-- report_id: report
-- device: physical GPU number
-- type: narrow (16 bits or fewer), single (FP32, or TF32 in matrix products), or other (FP64, integers, none
--   stated; optimizers and communication)
-- launches: number of launches in those steps
-- steps: number of those steps; NULL without steps
-- time_ns: sum of their durations, ns
-- share_pct: share of the time of those steps, %
-- kernel_pct: share of their kernel time, %
-- product_ns: of that time, matrix products, convolutions and attention that do not use TF32, ns
-- kernels: number of different kernels
-- longest: short names of the four kernels with most time, each with its share of the steps' time, as text
CREATE VIEW precision_times AS
WITH spans AS (
    SELECT track, sum(end_ns - start_ns) AS time_ns, nullif(count(step), 0) AS steps
    FROM _operator_windows
    GROUP BY track
),
sums AS (
    SELECT
        w.track,
        t.report_id,
        coalesce(l.demangled, l.name) AS demangled,
        count(*) AS launches,
        sum(l.end_ns - l.start_ns) AS time_ns
    FROM launches AS l
    JOIN _tracks AS t
        ON t.report_id = l.report_id
            AND t.pid IS NOT DISTINCT FROM l.pid
            AND t.cuda_device IS NOT DISTINCT FROM l.device
    JOIN _operator_windows AS w ON w.track = t.track AND l.start_ns >= w.start_ns AND l.start_ns < w.end_ns
    WHERE l.kind = 'kernel'
    GROUP BY ALL
),
typed AS (
    SELECT
        s.*,
        n.short_name,
        -- Optimizers keep FP32 states whatever the activations are.
        if(n.category IN ('optimizer', 'communication'), 'other', kernel_precision(s.demangled)) AS type,
        n.category IN ('gemm', 'convolution', 'attention')
            AND NOT regexp_matches(s.demangled, '(?i)tf32|s1688') AS without_tf32
    FROM sums AS s
    JOIN kernel_names AS n USING (report_id, demangled)
),
placed AS (
    SELECT *, row_number() OVER (PARTITION BY track, type ORDER BY time_ns DESC, demangled) AS place
    FROM typed
)
SELECT
    g.report_id,
    g.device,
    t.type,
    sum(t.launches)::BIGINT AS launches,
    any_value(p.steps) AS steps,
    sum(t.time_ns)::BIGINT AS time_ns,
    100.0 * sum(t.time_ns) / nullif(any_value(p.time_ns), 0) AS share_pct,
    100.0 * sum(t.time_ns) / sum(sum(t.time_ns)) OVER (PARTITION BY t.track) AS kernel_pct,
    sum(if(t.without_tf32, t.time_ns, 0))::BIGINT AS product_ns,
    count(*) AS kernels,
    string_agg(
        printf('%s %.1f %%', t.short_name, 100.0 * t.time_ns / nullif(p.time_ns, 0)), ', ' ORDER BY t.place
    ) FILTER (t.place <= 4) AS longest
FROM placed AS t
JOIN _gpus AS g USING (track)
JOIN spans AS p USING (track)
GROUP BY t.track, g.report_id, g.device, t.type
ORDER BY g.report_id, g.device, time_ns DESC, t.type;
