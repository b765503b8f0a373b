-- GPUs on which pages of unified memory migrate during a notable part of the analyzed window: on demand,
-- while kernels run that may wait for the pages, or while no kernel runs. Kernels that access pages on demand
-- also count if the migrations are short, because the time that a kernel waits for a page fault is only known
-- if nsys records page faults.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- kind VARCHAR: evicted (at least half of the bytes that migrate to the host are evicted), prefetched (at
--   least half of all bytes migrate because the program prefetches them, and the GPU does not idle while the
--   host reads pages on demand), round_trip (at least half of the bytes that migrate to the GPU were there
--   before) or on_demand
-- migrations BIGINT: number of migrations
-- bytes BIGINT: number of bytes that migrate
-- to_gpu_bytes BIGINT: number of bytes that migrate to the GPU
-- to_host_bytes BIGINT: number of bytes that migrate to the host
-- prefetched_bytes BIGINT: number of bytes that migrate because the program prefetches them
-- evicted_bytes BIGINT: number of bytes that the driver evicts from the GPU's memory
-- repeated_bytes BIGINT: number of bytes that migrate to the GPU although they migrated there before in the
--   window; NULL if addresses are not recorded
-- kernels BIGINT: number of kernel launches that may wait for pages: while the kernel runs, a migration on
--   demand or the handling of page faults begins
-- kernel_ns BIGINT: sum of the durations of these launches, ns
-- kernel_pct DOUBLE: percentage of the window in which at least one of these kernels runs
-- longest VARCHAR: function name of the kernel that takes the largest part of kernel_ns
-- extra_ns BIGINT: time that these launches take in addition to the median launch of the same kernel and
--   grid without migrations, ns; NULL if there is no such launch for one of the kernels
-- gpu_faults BIGINT: number of page faults of the GPU; NULL if none was recorded
-- cpu_faults BIGINT: number of page faults of the CPU; NULL if none was recorded
-- faulting VARCHAR: function that causes the most page faults of the CPU; NULL if unknown
-- idle_pct DOUBLE: idle time of the GPU that ends with a migration, % of the window: the host works until
--   it accesses the pages
-- share_pct DOUBLE: percentage of the window in the category migration of gpu_time_budget
-- weight_pct DOUBLE: value by which the finding is ranked without an upper bound, %: half-way between
--   share_pct and the share that also contains all of the time of the kernels
-- gain_pct DOUBLE: upper bound on the gain, %, if the host takes as long as now (its own page faults are
--   part of idle_pct); NULL if the time that kernels wait for pages is unknown
-- floor VARCHAR: time that the upper bound assumes to remain: measured (all time without migrations, and
--   kernels as long as the launches without migrations) or served (all time in which pages neither migrate
--   nor page faults are handled)
/* finding
claim = "unified_memory"
says = "migrates pages of unified memory {{ words[kind] }}"
evidence = """\
{{ migrations | counted('migration') }} of {{ bytes | bytes }}{% if not to_host_bytes %} to the GPU{% \
elif not to_gpu_bytes %} to the host{% else %} ({{ to_gpu_bytes | bytes }} to the GPU, {{ to_host_bytes \
| bytes }} to the host){% endif %}{% if kernels %}, with {{ kernels | counted('kernel launch') }} of {{ \
kernel_ns | ns }} that may wait for pages ({{ longest }}){% endif %}; pages migrate during {{ share }}{% \
if extra_ns is not none %}; these launches take {{ extra_ns | ns }} longer than launches of the same \
kernels without migrations{% endif %}{% if repeated_bytes %}; {{ repeated_bytes | bytes }} migrate to \
the GPU more than once{% endif %}{% if evicted_bytes %}; {{ evicted_bytes | bytes }} are evicted from \
the GPU's memory{% endif %}{% if prefetched_bytes %}; {{ prefetched_bytes | bytes }} are prefetched by \
the program{% endif %}{% if gpu_faults %}; the GPU has {{ gpu_faults | counted('page fault') }}{% elif \
kernels %}; how long the kernels wait is unknown without page faults (nsys profile \
--cuda-um-gpu-page-faults=true){% endif %}{% if cpu_faults %}; the CPU has {{ cpu_faults | counted('page \
fault') }}{% if faulting %}, most of them in {{ faulting }}{% endif %}{% endif %}{% if idle_pct >= 1 %}; \
before migrations, the GPU is idle for {{ '%.0f' | format(idle_pct) }} % of the time, while the host \
works{% endif %}"""
question = """\
SELECT kind, migrations, bytes, to_gpu_bytes, to_host_bytes, repeated_bytes, kernels, kernel_ns, \
gpu_faults FROM migration_findings"""
each = "kind"

[columns]
time_ns = "kernel_ns"
launches = "kernels"

[words]
on_demand = "on demand, page by page"
round_trip = "back and forth between host and GPU"
prefetched = "ahead of their use"
evicted = "because its memory is full"

[assumes]
measured = "kernels took as long as without migrations, other migrations no time, and the host as long as now"
served = "kernels did not wait for pages, other migrations took no time, and the host took as long as now"

[techniques.keep_pages]
technique = "Keep unified memory on one side: host and GPU should not take turns on the same pages"
detail = """\
Pages that both the host and the GPU access in every step migrate twice per step. Move the host's part \
of the step to the GPU, or give the host its own copy of the few values that it needs (pinned memory, \
cudaMemcpyAsync). If the host has to access all of the data, prefetch the data in both directions with \
cudaMemPrefetchAsync. For data that both only read, cudaMemAdviseSetReadMostly gives each side a copy. \
cudaMemAdviseSetPreferredLocation with cudaMemAdviseSetAccessedBy lets the other side access pages \
remotely."""
check_first = """\
Which host code accesses the data between kernels (cpu_page_faults: function, recorded with \
--cuda-um-cpu-page-faults=true), and how much of the data it needs."""
of = "round_trip"
difficulty = "medium"
link = "https://docs.nvidia.com/cuda/cuda-programming-guide/04-special-topics/unified-memory.html"

[techniques.prefetch_pages]
technique = "Prefetch unified memory with cudaMemPrefetchAsync before kernels, or the host, use it"
detail = """\
A page that a kernel accesses on the wrong side costs a page fault, which the driver handles while the \
threads wait. cudaMemPrefetchAsync moves whole arrays at the bandwidth of the link: to the GPU in the \
kernel's stream before the launch, and back to the host (cudaCpuDeviceId) before the host reads results."""
check_first = """\
Which arrays the kernels access, and where their pages are (migrations by address in memory_ops). \
Prefetching data that does not fit in the GPU's memory evicts other data."""
of = ["on_demand", "round_trip"]
difficulty = "low"
link = "https://docs.nvidia.com/cuda/cuda-programming-guide/04-special-topics/unified-memory.html"

[techniques.initialize_on_gpu]
technique = "Initialize the data on the GPU, or place it there: cudaMalloc and explicit copies"
detail = """\
Pages that the host writes first are in host memory. A kernel that initializes the data creates the \
pages in the GPU's memory, without a migration. For data that has to come from the host, cudaMalloc with \
cudaMemcpyAsync from pinned memory moves it once, at the bandwidth of the link, and can overlap with \
kernels. cudaMemAdviseSetPreferredLocation keeps pages on the GPU."""
check_first = "Whether the host has to write or read the data at all, except for input and results."
of = "on_demand"
difficulty = "medium"
link = "https://docs.nvidia.com/cuda/cuda-programming-guide/04-special-topics/unified-memory.html"

[techniques.overlap_prefetches]
technique = "Prefetch on a second stream while kernels run, or leave the data on the GPU"
detail = """\
The program prefetches pages, but no kernel runs meanwhile. Prefetch the next part of the data on \
another stream while a kernel processes the current part (events order the two), and prefetch only data \
that the other side changed."""
check_first = "Whether all of the prefetched data is used, and whether the same bytes move in every step."
of = "prefetched"
difficulty = "medium"
link = "https://docs.nvidia.com/cuda/cuda-programming-guide/04-special-topics/unified-memory.html"

[techniques.fit_in_memory]
technique = "Keep the working set within the GPU's memory"
detail = """\
The driver evicts pages to make room for others, and each evicted page has to come back. Process the \
data in parts that fit, free or shrink buffers, use narrower types, or leave rarely used data on the \
host (cudaMemAdviseSetPreferredLocation with cudaCpuDeviceId and cudaMemAdviseSetAccessedBy), where \
kernels access it over the link without migration."""
check_first = """\
The size of the data compared with the GPU's memory, and whether other processes use the GPU's memory."""
of = "evicted"
difficulty = "high"
link = "https://docs.nvidia.com/cuda/cuda-programming-guide/04-special-topics/unified-memory.html"
*/
CREATE VIEW migration_findings AS
WITH spans AS (
    SELECT DISTINCT track, start_ns, end_ns
    FROM _analysed_spans
),
moved AS (
    SELECT
        m.*,
        m.bytes - beyond_ns(m.address, m.address + m.bytes, max(m.address + m.bytes) OVER lower) AS again
    FROM _migrations AS m
    JOIN spans AS w ON w.track = m.track AND m.start_ns >= w.start_ns AND m.start_ns < w.end_ns
    WINDOW lower AS (
        PARTITION BY m.track, m.pid, m.to_gpu
        ORDER BY m.address, m.bytes
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
),
moves AS (
    SELECT
        track,
        count(*) AS migrations,
        sum(bytes)::BIGINT AS bytes,
        coalesce(sum(bytes) FILTER (to_gpu), 0)::BIGINT AS to_gpu_bytes,
        coalesce(sum(bytes) FILTER (NOT to_gpu), 0)::BIGINT AS to_host_bytes,
        coalesce(sum(bytes) FILTER (cause = 'User prefetch'), 0)::BIGINT AS prefetched_bytes,
        coalesce(sum(bytes) FILTER (cause = 'Eviction'), 0)::BIGINT AS evicted_bytes,
        coalesce(sum(bytes) FILTER (
            NOT to_gpu AND coalesce(cause NOT IN ('User prefetch', 'Eviction'), true)
        ), 0)::BIGINT AS read_bytes,
        CASE WHEN count(address) = count(*) THEN coalesce(sum(again) FILTER (to_gpu), 0)::BIGINT END
            AS repeated_bytes
    FROM moved
    GROUP BY track
),
kernels AS (
    SELECT t.track, t.pid, k.name, k.start_ns, k.end_ns, k.dur_ns,
        (k.demangled, k.grid_x, k.grid_y, k.grid_z, k.block_x, k.block_y, k.block_z) AS key
    FROM nsys_kernels AS k
    JOIN _tracks AS t
        ON t.report_id = k.report_id
            AND t.pid IS NOT DISTINCT FROM k.pid
            AND t.cuda_device IS NOT DISTINCT FROM k.device
    JOIN spans AS w ON w.track = t.track AND k.start_ns >= w.start_ns AND k.start_ns < w.end_ns
    WHERE t.track IN (SELECT track FROM _page_waits)
),
launched AS (
    -- A kernel waits for what it accesses, so for nothing that began before the kernel.
    SELECT k.*, coalesce(w.start_ns >= k.start_ns, false) AS waits
    FROM kernels AS k
    ASOF LEFT JOIN (SELECT DISTINCT track, pid, start_ns FROM _page_waits) AS w
        ON w.track = k.track AND w.pid IS NOT DISTINCT FROM k.pid AND w.start_ns < k.end_ns
),
alike AS (
    SELECT
        track,
        any_value(name) AS name,
        count(*) AS kernels,
        sum(dur_ns) AS kernel_ns,
        sum(dur_ns) - count(*) * any_value(usual_ns) AS extra_ns
    FROM (
        SELECT *, median(dur_ns) FILTER (NOT waits) OVER (PARTITION BY track, key) AS usual_ns
        FROM launched
    )
    WHERE waits
    GROUP BY track, key
),
-- Kernels may run at the same time.
waiting AS (
    SELECT track, sum(ns) AS union_ns
    FROM (
        SELECT track, beyond_ns(start_ns, end_ns, max(end_ns) OVER earlier) AS ns
        FROM launched
        WHERE waits
        WINDOW earlier AS (
            PARTITION BY track ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        )
    )
    GROUP BY track
),
delayed AS (
    SELECT
        track,
        sum(kernels)::BIGINT AS kernels,
        sum(kernel_ns)::BIGINT AS kernel_ns,
        arg_max(name, (kernel_ns, name)) AS longest,
        CASE WHEN count(extra_ns) = count(*) THEN sum(greatest(extra_ns, 0))::BIGINT END AS extra_ns
    FROM alike
    GROUP BY track
),
gpu_faults AS (
    SELECT t.track, sum(f.faults)::BIGINT AS faults
    FROM nsys_gpu_page_faults AS f
    JOIN _tracks AS t
        ON t.report_id = f.report_id
            AND t.pid IS NOT DISTINCT FROM f.pid
            AND t.cuda_device IS NOT DISTINCT FROM f.device
    JOIN spans AS w ON w.track = t.track AND f.start_ns >= w.start_ns AND f.start_ns < w.end_ns
    GROUP BY t.track
),
touched AS (
    SELECT w.track, f.function, count(*) AS faults
    FROM nsys_cpu_page_faults AS f
    JOIN _analysed_spans AS w
        ON w.report_id = f.report_id
            AND w.pid IS NOT DISTINCT FROM f.pid
            AND f.timestamp_ns >= w.start_ns
            AND f.timestamp_ns < w.end_ns
    GROUP BY w.track, f.function
),
cpu_faults AS (
    SELECT track, sum(faults)::BIGINT AS faults, arg_max(function, (faults, function)) AS function
    FROM touched
    GROUP BY track
),
times AS (
    SELECT track, sum(compute_ns + communication_ns) AS inside_ns, sum(alone_ns) AS alone_ns
    FROM (FROM _migration_times WHERE NOT own)
    SEMI JOIN _analysed USING (track, window_id)
    GROUP BY track
),
idle AS (
    SELECT track, sum(dur_ns) AS ns
    FROM (FROM _gaps WHERE migrates)
    SEMI JOIN _analysed USING (track, window_id)
    GROUP BY track
)
SELECT
    g.report_id,
    g.device,
    CASE
        WHEN 2 * m.evicted_bytes >= m.to_host_bytes AND m.evicted_bytes > 0 THEN 'evicted'
        WHEN 2 * m.prefetched_bytes >= m.bytes
            AND NOT coalesce(
                100 * i.ns >= threshold('timeline.contributor_pct') * v.time_ns
                    AND 2 * m.read_bytes > m.to_host_bytes,
                false
            )
            THEN 'prefetched'
        WHEN 2 * m.repeated_bytes >= m.to_gpu_bytes AND m.repeated_bytes > 0 THEN 'round_trip'
        ELSE 'on_demand'
    END AS kind,
    m.migrations,
    m.bytes,
    m.to_gpu_bytes,
    m.to_host_bytes,
    m.prefetched_bytes,
    m.evicted_bytes,
    m.repeated_bytes,
    coalesce(d.kernels, 0) AS kernels,
    coalesce(d.kernel_ns, 0) AS kernel_ns,
    least(100.0 * coalesce(u.union_ns, 0) / v.time_ns, 100) AS kernel_pct,
    d.longest,
    d.extra_ns,
    f.faults AS gpu_faults,
    c.faults AS cpu_faults,
    c.function AS faulting,
    100.0 * coalesce(i.ns, 0) / v.time_ns AS idle_pct,
    100.0 * (t.inside_ns + t.alone_ns) / v.time_ns AS share_pct,
    (share_pct + greatest(share_pct, 100.0 * t.alone_ns / v.time_ns + kernel_pct)) / 2 AS weight_pct,
    100.0 * (
        t.alone_ns + CASE
            WHEN d.kernels IS NULL THEN 0
            WHEN d.extra_ns IS NOT NULL THEN d.extra_ns
            WHEN f.faults > 0 THEN t.inside_ns
        END
    ) / v.time_ns AS gain_pct,
    if(d.extra_ns IS NULL, 'served', 'measured') AS floor
FROM moves AS m
JOIN _gpus AS g USING (track)
JOIN analysis_windows AS v ON v.report_id = g.report_id AND v.device IS NOT DISTINCT FROM g.device
JOIN times AS t USING (track)
LEFT JOIN delayed AS d USING (track)
LEFT JOIN waiting AS u USING (track)
LEFT JOIN gpu_faults AS f USING (track)
LEFT JOIN cpu_faults AS c USING (track)
LEFT JOIN idle AS i USING (track)
WHERE v.time_ns > 0
    AND (
        greatest(share_pct, idle_pct) >= threshold('timeline.contributor_pct')
        OR (
            kernel_pct >= threshold('timeline.contributor_pct')
            AND share_pct >= threshold('timeline.migrating_pct')
        )
    )
ORDER BY g.report_id, g.device;
