-- Function name as nsys prints it: nsys strips four-digit version suffixes and keeps longer suffixes.
CREATE MACRO nsys_api_name(recorded_name) AS regexp_replace(recorded_name, '_v[0-9]{4}$', '');

-- A range as nsys prints it: domain (empty for the default domain), colon, text.
CREATE MACRO nsys_range_name(domain, name) AS concat(domain, ':', name);

-- Such a range in a sentence: without the colon if it is in the default domain.
CREATE MACRO range_text(title) AS regexp_replace(title, '^:', '');

-- Whether ranges of a domain are from a profiler and annotate nothing (PROFILERS in ingest/nsys/ranges.py).
CREATE MACRO is_of_profiler(domain) AS coalesce(domain = 'GIL Trace', false);

-- Name of a range without what varies from one occurrence to the next: counters become *, as in `step *`,
-- and the numbers that PyTorch appends for its operators (seq, op_id) are dropped. A counter is a number,
-- also in hexadecimal, that is not part of a word or that follows a word that counts, as in step12. Other
-- digits stay: h2d, fp16. Two passes, because neighboring numbers share the character between them.
CREATE MACRO range_stem(name) AS _counters(_counters(
    if(contains(name, ', '), regexp_replace(name, ', (stashed )?(seq|op_id) ?= ?[0-9].*$', ''), name)
));
CREATE MACRO _counters(name) AS
    regexp_replace(
        name,
        '(^|[\x00-/:-@\[-`{-\x7f])([A-Za-z]*(?i:step|iter|iteration|epoch|batch|frame|trial|token))?'
        || '(0[xX][0-9a-fA-F]+|[0-9]+)($|[\x00-/:-@\[-`{-\x7f])',
        '\1\2*\4',
        'g'
    );

-- Sample standard deviation of integers; NULL for one value.  The sums are exact, because DuckDB's function
-- adds doubles, so that the last digit depends on the number of threads.  Only sums beyond 128 bits are
-- doubles.
CREATE MACRO exact_stddev(x) AS
    CASE
        WHEN count(x) > 1 THEN sqrt(
            CASE
                WHEN sum(x::HUGEINT * x) < 1e38 / count(x)
                    THEN (count(x) * sum(x::HUGEINT * x) - sum(x) * sum(x))::DOUBLE
                ELSE greatest(0, sum(x::HUGEINT * x)::DOUBLE * count(x) - sum(x)::DOUBLE * sum(x)::DOUBLE)
            END / (count(x)::DOUBLE * (count(x) - 1))
        )
    END;

-- Sample standard deviation as in nsys, 0 for one value.
CREATE MACRO nsys_stddev(x) AS round_tenth(coalesce(exact_stddev(x), 0));

-- Overlap of two intervals, ns; 0 if they are disjoint, NULL if a bound is unknown.
CREATE MACRO overlap_ns(a_start, a_end, b_start, b_end) AS
    CASE
        WHEN a_start + a_end + b_start + b_end IS NOT NULL
            THEN greatest(0, least(a_end, b_end) - greatest(a_start, b_start))
    END;

-- Length of the part of an interval after `until`, the end of all earlier intervals, ns.  The sum of these
-- lengths is the length of the union of the intervals.
CREATE MACRO beyond_ns(start_ns, end_ns, until) AS
    greatest(0, end_ns - greatest(start_ns, coalesce(until, start_ns)));

-- Category of timeline_bottleneck to which a category of gpu_time_budget belongs.
CREATE MACRO timeline_bound(category) AS
    CASE WHEN category IN ('launch_gap', 'launch_api', 'queued') THEN 'launch_overhead' ELSE category END;

-- Whether most of a rank's time in collectives is waiting time, and most of the waiting time is after the
-- first collective (rank_skew): such waiting time is also in the analyzed window, whatever precedes the
-- window.
CREATE MACRO mostly_waits(waiting_pct, start_ns, waiting_ns) AS
    coalesce(waiting_pct >= threshold('timeline.waiting_pct') AND 2 * start_ns < waiting_ns, false);

-- Whether a launch takes about as long as the profiled launches with the same configuration.  A kernel may do
-- different work with the same grid (a persistent kernel always has the same grid), which a profile does not
-- cover.
CREATE MACRO takes_as_long(dur_ns, shortest_ns, longest_ns) AS
    coalesce(
        dur_ns BETWEEN shortest_ns / threshold('plan.alike_times')
            AND longest_ns * threshold('plan.alike_times'),
        false
    );

-- Whether the host limits the gain of faster kernels, unless their launches disappear as well.
CREATE MACRO goes_with_launch(floor) AS coalesce(floor IN ('nothing', 'chain'), false);
CREATE MACRO limited_by_host(gain_pct, most_pct, goes) AS NOT goes AND coalesce(gain_pct > most_pct, false);

-- Whether the GPU is busy in a category of timeline_bottleneck: a kernel runs, or pages migrate, mostly while
-- one runs.
CREATE MACRO is_busy(bound) AS bound IN ('compute', 'communication', 'migration');

-- Whether the GPU works in a category of timeline_bottleneck: it is busy or copies; otherwise it is idle.
CREATE MACRO is_work(bound) AS bound IN ('compute', 'communication', 'migration', 'transfer');

-- Whether idle time stays however the host launches its work: code is loaded or built, requests are awaited.
CREATE MACRO is_kept(bound) AS bound IN ('loading', 'building', 'device_wait', 'no_work');

-- Whether a CUDA call allocates or frees memory of the device; to free it in stream order takes no time.
CREATE MACRO manages_memory(name) AS
    is_allocating(name)
    OR regexp_matches(
        name,
        '^(cu(da)?|hip)(Free(Mipmapped)?(Array)?|MemFree|MemRelease|(Mipmapped)?ArrayDestroy|'
        || '(Malloc|MemAlloc)(FromPool)?Async)(_v\d+)?$'
    );

-- Whether small copies to the host come before launch overhead: several in a step rule out a graph of it.
CREATE MACRO precedes_graphs(bound, per_step) AS
    bound = 'readback' AND coalesce(per_step > threshold('timeline.graph_readbacks'), false);

-- Whether an operation migrates pages of unified memory, by its name in nsys. No call launches a migration.
CREATE MACRO is_migration(operation) AS coalesce(starts_with(operation, '[CUDA memcpy Unified '), false);

-- Weight of a bound on launch overhead beside a finding on long work of the host, %: at least its own share.
CREATE MACRO beside_host(gain_pct, share_pct, host_pct) AS
    greatest(least(gain_pct, share_pct), gain_pct - coalesce(host_pct, 0));

-- Share from which a category of the time budget is a finding, %. Launch overhead has a low-cost cure.
CREATE MACRO contributor_pct(bound) AS
    CASE
        WHEN bound = 'launch_overhead' THEN threshold('timeline.launch_overhead_pct')
        ELSE threshold('timeline.contributor_pct')
    END;

-- Factor from a share of a traced step to the share of a step without the profiler, by category or bound; the
-- factors are those of step_times.
CREATE MACRO plain_scale(bound, work_scale, communication_scale, idle_scale) AS
    coalesce(
        CASE
            WHEN bound = 'communication' THEN communication_scale
            WHEN is_work(bound) THEN work_scale
            WHEN bound = 'profiler_overhead' AND idle_scale != 1 THEN 0
            ELSE idle_scale
        END,
        1
    );

-- Operation in the name of a communication kernel, a call or an annotation of torch; empty if there is none.
CREATE MACRO collective_operation(name) AS
    CASE
        WHEN regexp_matches(name, 'all_?reduce|cross_device_reduce', 'i') THEN 'AllReduce'
        WHEN regexp_matches(name, 'reduce_?scatter', 'i') THEN 'ReduceScatter'
        WHEN regexp_matches(name, 'all_?gather', 'i') THEN 'AllGather'
        WHEN regexp_matches(name, 'all_?to_?all', 'i') THEN 'AllToAll'
        WHEN regexp_matches(name, 'broadcast', 'i') THEN 'Broadcast'
        WHEN regexp_matches(name, 'send_?recv', 'i') THEN 'SendRecv'
        ELSE regexp_extract(name, 'Reduce|Scatter|Gather')
    END;

-- Operation of a call that NCCL implements with send and receive, so that the kernel name does not contain
-- the operation; derived from the function names of NCCL and torch.distributed.
CREATE MACRO collective_of_call(call) AS
    CASE
        WHEN regexp_matches(call, '^(nccl)?:?all_?to_?all', 'i') THEN 'AllToAll'
        WHEN regexp_matches(call, '^(nccl)?:?gather$', 'i') THEN 'Gather'
        WHEN regexp_matches(call, '^(nccl)?:?scatter$', 'i') THEN 'Scatter'
    END;

-- Bytes per tensor element, by the name of c10::ScalarType.
CREATE MACRO torch_element_bytes(dtype) AS
    CASE
        WHEN dtype IN ('Byte', 'Char', 'Bool') OR dtype LIKE 'Float8%' THEN 1
        WHEN dtype IN ('Short', 'UInt16', 'Half', 'BFloat16') THEN 2
        WHEN dtype IN ('Int', 'UInt32', 'Float', 'ComplexHalf') THEN 4
        WHEN dtype IN ('Long', 'UInt64', 'Double', 'ComplexFloat') THEN 8
        WHEN dtype = 'ComplexDouble' THEN 16
    END;

-- Bytes for the bus bandwidth, with which nccl-tests makes operations and numbers of ranks comparable: the
-- traffic of each link.  `bytes` is the message size of one rank's call.
-- https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
CREATE MACRO collective_bus_bytes(operation, bytes, ranks) AS
    CASE operation
        WHEN 'AllReduce' THEN bytes * 2 * (ranks - 1) / nullif(ranks, 0)
        WHEN 'AllGather' THEN bytes * (ranks - 1)
        WHEN 'ReduceScatter' THEN bytes * (ranks - 1)
        WHEN 'AllToAll' THEN bytes * (ranks - 1)
        WHEN 'Gather' THEN bytes * (ranks - 1)
        WHEN 'Scatter' THEN bytes * (ranks - 1)
        WHEN 'Broadcast' THEN bytes
        WHEN 'Reduce' THEN bytes
        WHEN 'SendRecv' THEN bytes
    END;

-- Sort key for natural order: rank2 before rank10.
CREATE MACRO natural_order(name) AS array_to_string(
    list_transform(
        regexp_extract_all(name, '[0-9]+|[^0-9]+'),
        lambda part: CASE WHEN regexp_matches(part, '^[0-9]') THEN lpad(part, 20, '0') ELSE part END
    ), ''
);

-- The four kernels that take the most time, ordered by place, each with its share of the total time, as text.
-- A kernel whose share would be printed as 0.0 % is only listed if none takes longer.
CREATE MACRO longest_kernels(short_name, time_ns, whole_ns, place) AS
    string_agg(printf('%s %.1f %%', short_name, 100.0 * time_ns / nullif(whole_ns, 0)), ', ' ORDER BY place)
        FILTER (place = 1 OR (place <= 4 AND 100.0 * time_ns >= 0.05 * whole_ns));

CREATE MACRO uses_tf32(kernel) AS regexp_matches(kernel, '(?i)tf32|s1688');

-- Floating-point type in a kernel name: narrow (16 bits or fewer), single, or other.  For types that only the
-- names of matrix products contain, see kernel_operands.
CREATE MACRO kernel_precision(kernel) AS
    CASE
        WHEN regexp_matches(
            kernel,
            '(?i)\bhalf\b|__half|bfloat|float16|(^|[^a-z])(bf|fp?)16|e4m3|e5m2|fp8|(^|_)h(gemm|884|1688)'
        ) THEN 'narrow'
        WHEN regexp_matches(kernel, '(?i)\bdouble\b') THEN 'other'
        WHEN uses_tf32(kernel) OR regexp_matches(kernel, '(?i)\bfloat\b|f32f32|sgemm|_ffma|scudnn')
            THEN 'single'
        ELSE 'other'
    END;

-- Whether stacks of a source in host_samples are exact, and their intervals as well.
CREATE MACRO is_traced(source) AS source = 'python tracing';

-- Kind of worker processes for whose results a frame of Python waits: loader (of PyTorch), executor (of
-- concurrent.futures) or pool (of multiprocessing); NULL if it does not wait.
CREATE MACRO awaits(file, function) AS CASE
    WHEN regexp_matches(file, 'torch/utils/data/dataloader\.py$')
        AND function IN ('_get_data', '_try_get_data') THEN 'loader'
    WHEN regexp_matches(file, '(^|/)concurrent/futures/_base\.py$')
        AND function IN ('result', 'as_completed') THEN 'executor'
    WHEN regexp_matches(file, '(^|/)multiprocessing/(pool|queues|connection)\.py$')
        AND function IN ('get', 'next', 'wait', 'recv', '_recv', 'poll', '_poll') THEN 'pool'
END;

-- Kind of the worker process that a frame of Python belongs to, as in awaits; NULL if it says nothing.
CREATE MACRO works_for(file, function) AS CASE
    WHEN regexp_matches(file, 'torch/utils/data/_utils/worker\.py$') THEN 'loader'
    WHEN regexp_matches(file, '(^|/)concurrent/futures/process\.py$') THEN 'executor'
    WHEN regexp_matches(file, '(^|/)multiprocessing/process\.py$') AND function = '_bootstrap' THEN 'pool'
END;

-- Whether a frame of a worker process is in a call that waits for the next task.
CREATE MACRO is_idle_worker(file, function) AS coalesce(
    regexp_matches(file, '(^|/)multiprocessing/(queues|connection|synchronize)\.py$')
    OR (regexp_matches(file, '(^|/)(threading|selectors)\.py$') AND function IN ('wait', 'select')),
    false
);

-- Whether a frame of Python belongs to the machinery that starts processes and hands tasks to them.
CREATE MACRO is_plumbing(file) AS coalesce(
    regexp_matches(
        file,
        'torch/utils/data/|torch/distributed/(run|launcher|elastic)|accelerate/commands|/bin/[^/]+$'
            '|(^|/)(multiprocessing|concurrent/futures)/|(^|/)(threading|runpy)\.py$|^<frozen runpy>'
    ),
    false
);

-- Whether a function of Python only calls another one, by its name.
CREATE MACRO is_wrapper(function) AS function IN (
    '<lambda>', '_wrapped_call_impl', '_call_impl', 'wrapper', 'wrapped', 'inner', 'decorate_context', '_fn',
    '_use_grad', '__torch_function__', '__torch_dispatch__', 'reraise_with_filtered_traceback',
    'cache_miss', '_python_pjit_helper', '_run_python_pjit', '_pjit_call_impl', '_pjit_call_impl_python',
    'call_impl_cache_miss'
);

-- Whether PyTorch calls a function of the user for each operator that touches the user's class of tensors.
CREATE MACRO is_hook(function) AS function IN ('__torch_function__', '__torch_dispatch__');

-- Whether a compiler works in a range, or tries kernels there.
CREATE MACRO is_compilation(name) AS (is_compiling(name) AND NOT is_compiled(name)) OR is_tuning(name);

-- Module of XLA in the name of a range.
CREATE MACRO xla_module(name) AS regexp_extract(name, 'module=([^,#]+)', 1);

-- Whether code on the host causes idle time, by its category in gpu_time_budget.
CREATE MACRO is_host_cause(cause) AS
    cause IN ('host', 'launch_gap', 'launch_api', 'sync', 'loading', 'building', 'no_work');

-- Lower and upper end of the 95 % confidence interval of a share that a number of samples gave (Wilson), %.
CREATE MACRO share_interval(share, samples) AS CASE WHEN samples > 0 THEN list_transform(
    [-1.959964, 1.959964],
    lambda z: greatest(0, least(100, 100 * (share + 1.920729 / samples
        + z * sqrt(share * (1 - share) / samples + 0.9603647 / samples ** 2)) / (1 + 3.841459 / samples)))
) END;

-- Whether a frame of Python waits for threads of PyTorch that compute gradients.
CREATE MACRO is_backward(file, function) AS coalesce(
    contains(function, 'run_backward')
    OR (
        regexp_matches(file, '(^|/)torch/(autograd/__init__|_tensor)\.py$')
        AND function IN ('backward', 'grad')
    ),
    false
);

-- Ranks of a group in ascending order as text: 0-7, or 0, 8, ..., 56 for more than four.
CREATE MACRO ranks_text(ranks) AS CASE
    WHEN len(ranks) > 2 AND ranks = range(ranks[1], ranks[1] + len(ranks))
        THEN concat(ranks[1], '-', ranks[-1])
    WHEN len(ranks) > 4 AND ranks = range(ranks[1], ranks[-1] + 1, ranks[2] - ranks[1])
        THEN concat(ranks[1], ', ', ranks[2], ', ..., ', ranks[-1])
    ELSE array_to_string(ranks, ', ')
END;

-- Bytes as text, such as 4.2 kB.
CREATE MACRO bytes_text(bytes) AS CASE
    WHEN bytes < 1e3 THEN printf('%.0f B', bytes::DOUBLE)
    WHEN bytes < 1e6 THEN printf('%.3g kB', bytes / 1e3)
    WHEN bytes < 1e9 THEN printf('%.3g MB', bytes / 1e6)
    ELSE printf('%.3g GB', bytes / 1e9)
END;
