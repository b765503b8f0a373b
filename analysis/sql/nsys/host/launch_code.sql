-- Code that launched the GPU operations of the analyzed windows, most GPU time first. A launch belongs to the
-- innermost frame of the user in the stack at the launching call. Launches by threads of autograd, which
-- execute no code of the user, belong to the thread that waited for the gradients. Without stacks at the
-- calls, each operation of the thread is divided among the code in the samples that hit calls that launch it,
-- by name. Long calls are hit more often, so a sample counts with the inverse of the call's duration. The
-- sums of a GPU are the recorded totals.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- function VARCHAR: function of the user; if the stack has none, of a library; NULL without a stack
-- file VARCHAR: source file, or module of native code
-- line BIGINT: line that launched; in traces of torch.profiler, first line of the function; NULL if not
--   recorded
-- kind VARCHAR: owner of the code, as in host_frames
-- library_function VARCHAR: function that the line calls, without wrappers and numbers of modules
-- kernels BIGINT: number of kernels
-- time_ns BIGINT: duration of the kernels, copies and memsets, ns
-- share_pct DOUBLE: time_ns as a percentage of the duration of all operations on the GPU
-- exact BOOLEAN: whether the stacks at the launching calls are known; false for estimates; NULL without a
--   stack
-- samples BIGINT: number of samples that an estimate rests on; NULL for other rows
-- reason VARCHAR: reason why there is no stack; NULL if there is one
CREATE VIEW launch_code AS
WITH ops AS (
    SELECT
        g.report_id, g.device, l.pid, l.tid, l.correlation_id, l.api_start_ns, l.api_end_ns,
        coalesce(l.demangled, l.name) AS name, (l.kind = 'kernel')::BIGINT AS kernels,
        l.end_ns - l.start_ns AS ns
    FROM _analysed_launches AS l
    JOIN _gpus AS g USING (track)
),
calls AS MATERIALIZED (
    SELECT
        report_id, device, pid, tid, api_start_ns AS start_ns, any_value(correlation_id) AS correlation_id,
        max(api_end_ns) AS end_ns, min(name) AS name, sum(kernels)::BIGINT AS kernels, sum(ns)::BIGINT AS ns,
        row_number() OVER () AS number
    FROM ops
    GROUP BY report_id, device, pid, tid, api_start_ns
),
samples AS (
    SELECT s.*, c.frame_id, c.called_id, c.is_user
    FROM (
        SELECT *, NULL::BIGINT AS correlation_id FROM _host_cells
        UNION ALL BY NAME
        FROM host_samples WHERE correlation_id IS NOT NULL
    ) AS s
    JOIN _stack_code AS c USING (report_id, stack_id)
),
cells AS (
    FROM samples WHERE start_ns < end_ns
),
backtraces AS (
    SELECT report_id, pid, correlation_id, any_value(stack_id ORDER BY time_ns) AS stack_id
    FROM samples
    WHERE correlation_id IS NOT NULL
    GROUP BY ALL
),
own AS (
    SELECT
        c.number,
        coalesce(
            b.stack_id, CASE WHEN t.end_ns > c.start_ns AND is_traced(t.source) THEN t.stack_id END
        ) AS stack_id,
        coalesce(t.end_ns > c.start_ns AND t.is_user, false) AS in_program
    FROM calls AS c
    LEFT JOIN backtraces AS b
        ON b.report_id = c.report_id AND b.pid = c.pid AND b.correlation_id = c.correlation_id
    ASOF LEFT JOIN cells AS t
        ON t.report_id = c.report_id AND t.pid = c.pid AND t.tid = c.tid AND t.start_ns <= c.start_ns
),
known AS MATERIALIZED (
    SELECT c.*, s.frame_id, s.called_id, coalesce(s.is_user, false) AS is_user, o.in_program
    FROM calls AS c
    JOIN own AS o USING (number)
    LEFT JOIN _stack_code AS s ON s.report_id = c.report_id AND s.stack_id = o.stack_id
),
-- Stacks of threads that wait for gradients.
backward AS (
    FROM cells
    SEMI JOIN (
        FROM host_stacks
        JOIN host_frames AS f USING (report_id, frame_id)
        WHERE is_backward(f.file, f.function)
    ) USING (report_id, stack_id)
    WHERE is_user
),
threads AS (
    SELECT DISTINCT report_id, pid, tid FROM backward
),
waiting AS (
    SELECT
        k.number, b.frame_id, b.called_id, is_traced(b.source) AS exact, b.tid, b.time_ns
    FROM (
        SELECT k.number, k.report_id, k.pid, k.start_ns, t.tid
        FROM known AS k
        JOIN threads AS t ON t.report_id = k.report_id AND t.pid = k.pid AND t.tid != k.tid
        WHERE NOT k.is_user AND NOT k.in_program
    ) AS k
    ASOF JOIN backward AS b
        ON b.report_id = k.report_id AND b.pid = k.pid AND b.tid = k.tid AND b.start_ns <= k.start_ns
    WHERE b.end_ns > k.start_ns
    -- If several threads wait, the launch belongs to the main thread if it is one of them, and otherwise to
    -- none.
    QUALIFY b.tid = k.pid OR count(*) OVER (PARTITION BY k.number) = 1
),
placed AS (
    SELECT
        k.report_id, k.device, k.kernels, k.ns,
        if(k.is_user, k.frame_id, w.frame_id) AS frame_id,
        if(k.is_user, k.called_id, w.called_id) AS called_id,
        k.is_user OR w.exact AS exact,
        CASE WHEN NOT k.is_user AND NOT w.exact THEN (w.tid, w.time_ns) END AS sample
    FROM known AS k
    LEFT JOIN waiting AS w USING (number)
    WHERE k.is_user OR w.number IS NOT NULL
),
rest AS (
    FROM (FROM known WHERE NOT is_user) ANTI JOIN waiting USING (number)
),
-- Samples within launching calls. Stacks that could not be unwound to code of the user say nothing.
hit AS (
    SELECT
        r.report_id, r.device, r.pid, r.tid, r.name, s.frame_id, s.called_id,
        r.kernels / greatest(r.end_ns - r.start_ns, 1) AS kernels,
        r.ns / greatest(r.end_ns - r.start_ns, 1) AS ns
    FROM (
        FROM cells WHERE NOT is_traced(source)
    ) AS s
    ASOF JOIN rest AS r
        ON r.report_id = s.report_id AND r.pid = s.pid AND r.tid = s.tid AND r.start_ns <= s.time_ns
    WHERE s.time_ns < r.end_ns
    QUALIFY s.is_user = bool_or(s.is_user) OVER (PARTITION BY r.report_id, r.device, r.pid, r.tid, r.name)
),
hits AS (
    SELECT
        report_id, device, pid, tid, name, frame_id, called_id, count(*) AS samples,
        ordered_sum(kernels) AS kernels, ordered_sum(ns) AS ns
    FROM hit
    GROUP BY ALL
),
summed AS (
    SELECT
        *,
        sum(kernels) OVER so_far AS kernels_so_far,
        sum(ns) OVER so_far AS ns_so_far,
        sum(samples) OVER so_far AS samples_so_far,
        row_number() OVER so_far AS place
    FROM hits
    WINDOW so_far AS (
        PARTITION BY report_id, device, pid, tid, name ORDER BY frame_id, called_id NULLS FIRST
        ROWS UNBOUNDED PRECEDING
    )
),
shares AS (
    SELECT
        *,
        coalesce(
            kernels_so_far / nullif(max(kernels_so_far) OVER alike, 0),
            samples_so_far / max(samples_so_far) OVER alike
        ) AS kernels_until,
        coalesce(
            ns_so_far / nullif(max(ns_so_far) OVER alike, 0), samples_so_far / max(samples_so_far) OVER alike
        ) AS ns_until,
        place = max(place) OVER alike AS is_last
    FROM summed
    WINDOW alike AS (PARTITION BY report_id, device, pid, tid, name)
),
totals AS (
    SELECT report_id, device, pid, tid, name, sum(kernels)::BIGINT AS kernels, sum(ns)::BIGINT AS ns
    FROM rest
    GROUP BY ALL
),
-- Cumulative sums are rounded, so that the parts add up to the total.
estimated AS (
    SELECT
        t.report_id, t.device, s.frame_id, s.called_id, s.samples,
        if(s.is_last, t.kernels, floor(t.kernels * s.kernels_until))
            - coalesce(floor(t.kernels * lag(s.kernels_until) OVER alike), 0) AS kernels,
        if(s.is_last, t.ns, floor(t.ns * s.ns_until))
            - coalesce(floor(t.ns * lag(s.ns_until) OVER alike), 0) AS ns
    FROM totals AS t
    JOIN shares AS s USING (report_id, device, pid, tid, name)
    WINDOW alike AS (
        PARTITION BY t.report_id, t.device, t.pid, t.tid, t.name ORDER BY s.frame_id, s.called_id NULLS FIRST
    )
),
processes AS (
    SELECT DISTINCT report_id, pid FROM samples
),
missed AS (
    SELECT
        r.*,
        CASE
            WHEN r.frame_id IS NOT NULL THEN NULL
            WHEN r.start_ns IS NULL THEN 'no launching call was recorded'
            WHEN p.pid IS NULL THEN 'no stacks of the process were recorded'
            ELSE 'no stack and no sample at calls that launch these operations'
        END AS reason
    FROM (FROM rest ANTI JOIN hits USING (report_id, device, pid, tid, name)) AS r
    LEFT JOIN processes AS p USING (report_id, pid)
),
parts AS (
    SELECT
        report_id, device, frame_id, called_id, exact, kernels::BIGINT AS kernels, ns::BIGINT AS ns,
        NULL::VARCHAR AS reason, 0 AS samples, sample
    FROM placed
    UNION ALL
    SELECT report_id, device, frame_id, called_id, false, kernels::BIGINT, ns::BIGINT, NULL, samples, NULL
    FROM estimated
    UNION ALL
    SELECT
        report_id, device, frame_id, called_id, if(frame_id IS NULL, NULL, true), kernels, ns, reason, 0, NULL
    FROM missed
),
coded AS (
    SELECT
        p.report_id, p.device, f.function, f.file, f.line, f.kind,
        regexp_replace(c.function, '^(nn\.Module: .*)_[0-9]+$', '\1') AS library_function,
        p.exact, p.reason,
        sum(p.kernels)::BIGINT AS kernels,
        sum(p.ns)::BIGINT AS time_ns,
        CASE
            WHEN NOT any_value(p.exact) THEN (sum(p.samples) + count(DISTINCT p.sample))::BIGINT
        END AS samples
    FROM parts AS p
    LEFT JOIN host_frames AS f ON f.report_id = p.report_id AND f.frame_id = p.frame_id
    LEFT JOIN host_frames AS c ON c.report_id = p.report_id AND c.frame_id = p.called_id
    GROUP BY ALL
)
SELECT
    report_id,
    device,
    function,
    file,
    line,
    kind,
    library_function,
    kernels,
    time_ns,
    100.0 * time_ns / nullif(sum(time_ns) OVER (PARTITION BY report_id, device), 0) AS share_pct,
    exact,
    samples,
    reason
FROM coded
ORDER BY
    report_id, device, time_ns DESC, kernels DESC, function, file, line, library_function, exact DESC, reason;
