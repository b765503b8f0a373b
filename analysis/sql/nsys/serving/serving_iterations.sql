-- Iterations of a server's engine in the captured window of a load, by class, on the GPU with most of the
-- work. Iterations come from ranges whose names show them (engines.toml), otherwise from the steps that
-- perfpipe finds and the work between them. The class comes from names; otherwise from the tokens that
-- arrived at the client: an iteration with the first token of a response contains the last part of its
-- prefill, one with later tokens decodes. Without either, an iteration that is one CUDA graph decodes,
-- because engines capture graphs of their decode batches. All numbers are of one GPU.
-- @materialize
--
-- report_id VARCHAR: report of the timeline
-- load_id BIGINT: load
-- rate DOUBLE: arrival rate of the load, requests/s
-- device BIGINT: physical GPU number
-- process_id BIGINT: process of the engine
-- iteration BIGINT: number of the iteration in the window, from 1
-- class VARCHAR: prefill, decode, mixed (both) or unknown
-- evidence VARCHAR: origin of the class: name, requests or graph; NULL if it is unknown
-- why VARCHAR: why the class is unknown; NULL if it is known
-- name VARCHAR: name of the range; NULL if the iteration is work between steps
-- source VARCHAR: origin of the iteration: name, a source of steps as in `steps`, or readback (work that a
--   copy to the host ends)
-- start_ns BIGINT: start: of the range, or of the first launching call; not before the end of the previous
--   iteration, ns
-- end_ns BIGINT: end of the range and of its last GPU operation, ns
-- time_ns BIGINT: end_ns - start_ns, ns
-- between_ns BIGINT: time since the previous iteration with requests in progress, ns
-- empty_ns BIGINT: time since the previous iteration without requests, ns
-- kernels_ns BIGINT: time in which kernels run, ns
-- copies_ns BIGINT: time in which only copies and memsets run, ns
-- gaps_ns BIGINT: time in which the GPU is idle between the first and the last operation, ns
-- host_ns BIGINT: time before the first and after the last operation, ns
-- busy_pct DOUBLE: time in which the GPU is busy, % of time_ns
-- prefills BIGINT: number of requests whose prompt is computed; NULL if unknown
-- prefill_tokens BIGINT: tokens of prompts that are computed; NULL if unknown
-- decodes BIGINT: number of requests that get their next token; NULL if unknown
-- kv_tokens DOUBLE: tokens whose keys and values the decodes read: from the name, or from the lengths of the
--   requests; NULL if unknown
-- moved_bytes DOUBLE: bytes of weights, and of the keys and values for the decodes; as declared; NULL if
--   unknown
-- flop DOUBLE: FLOPs of all tokens, as declared, without attention; NULL if unknown
-- roof VARCHAR: which roof is lower: dram (moved_bytes at the DRAM bandwidth) or tensor (flop at the peak)
-- roof_ns DOUBLE: time at this roof, ns; NULL if unknown
-- roof_pct DOUBLE: roof_ns, % of time_ns
-- roof_missing VARCHAR: why roof_ns is NULL
CREATE VIEW serving_iterations AS
WITH tokens AS (
    SELECT
        t.report_id,
        t.iteration,
        count(*) AS decodes,
        sum(r.input_tokens + t.position)::DOUBLE AS kv_tokens,
        count(r.input_tokens) AS with_length
    FROM _engine_tokens AS t
    JOIN _engine_requests AS r USING (report_id, request_id)
    WHERE t.position > 0
    GROUP BY t.report_id, t.iteration
),
prefills AS (
    SELECT
        report_id,
        prefill AS iteration,
        count(*) AS prefills,
        if(count(input_tokens) = count(*), sum(input_tokens), NULL)::BIGINT AS prefill_tokens
    FROM _engine_requests
    WHERE prefill IS NOT NULL
    GROUP BY report_id, prefill
),
streamed AS (
    SELECT report_id, count_if(position > 0) > 0 AS timed
    FROM _engine_tokens
    GROUP BY report_id
),
bandwidths AS (
    SELECT report_id, any_value(bytes_per_s) AS bytes_per_s
    FROM gpu_peaks
    GROUP BY report_id
),
counted AS (
    SELECT
        i.*,
        c.* EXCLUDE (report_id, requests_report_id, load_id, start_ns, end_ns, track),
        w.kernels_ns,
        w.busy_ns,
        w.span_ns,
        d.between_ns,
        d.empty_ns,
        b.bytes_per_s,
        p.flop_per_s,
        s.report_id IS NOT NULL AS is_streamed,
        CASE
            WHEN i.said.class IS NOT NULL THEN i.said.class
            WHEN f.prefills > 0 AND t.decodes > 0 THEN 'mixed'
            WHEN f.prefills > 0 THEN 'prefill'
            WHEN t.decodes > 0 THEN 'decode'
            WHEN NOT is_streamed AND w.graphs = 1 THEN 'decode'
            ELSE 'unknown'
        END AS class,
        CASE
            WHEN i.said.class IS NOT NULL THEN 'name'
            WHEN f.prefills > 0 OR t.decodes > 0 THEN 'requests'
            WHEN class != 'unknown' THEN 'graph'
        END AS evidence,
        coalesce(
            i.said.decodes,
            CASE WHEN class = 'prefill' THEN 0 WHEN coalesce(s.timed, false) THEN t.decodes END
        ) AS decodes,
        coalesce(
            i.said.prefills,
            CASE WHEN class = 'decode' THEN 0 WHEN i.said.batch >= decodes THEN i.said.batch - decodes END,
            f.prefills
        ) AS prefills,
        coalesce(
            i.said.prefill_tokens,
            CASE
                WHEN class = 'decode' THEN 0
                WHEN coalesce(i.said.prefills, f.prefills) = f.prefills THEN f.prefill_tokens
            END
        ) AS prefill_tokens,
        coalesce(
            i.said.kv_tokens::DOUBLE,
            CASE
                WHEN class = 'prefill' THEN 0
                WHEN t.with_length = t.decodes THEN t.kv_tokens * decodes / t.decodes
            END
        ) AS kv_tokens
    FROM _engine_iterations AS i
    JOIN _served_captures AS c USING (report_id)
    JOIN _engine_work AS w USING (report_id, iteration)
    JOIN _engine_idle AS d USING (report_id, iteration)
    LEFT JOIN tokens AS t USING (report_id, iteration)
    LEFT JOIN prefills AS f USING (report_id, iteration)
    LEFT JOIN streamed AS s USING (report_id)
    LEFT JOIN bandwidths AS b USING (report_id)
    LEFT JOIN gpu_peaks AS p ON p.report_id = i.report_id AND p.dtype = c.dtype
),
rooted AS (
    SELECT
        *,
        weights_bytes + kv_bytes_per_token * kv_tokens AS moved_bytes,
        flops_per_token * (prefill_tokens + decodes) AS flop,
        1e9 * moved_bytes / bytes_per_s AS dram_ns,
        1e9 * flop / flop_per_s AS tensor_ns,
        nullif(
            concat_ws(
                ', ',
                CASE WHEN class = 'unknown' THEN 'the class' END,
                CASE WHEN class != 'prefill' THEN concat_ws(
                    ', ',
                    CASE WHEN weights_bytes IS NULL THEN 'serve.model.weights_gb' END,
                    CASE WHEN kv_bytes_per_token IS NULL THEN 'serve.model.kv_bytes_per_token' END,
                    CASE WHEN kv_tokens IS NULL THEN 'the lengths of the requests' END,
                    CASE WHEN bytes_per_s IS NULL THEN 'the DRAM bandwidth of the GPU' END
                ) END,
                CASE WHEN class != 'decode' THEN concat_ws(
                    ', ',
                    CASE WHEN flops_per_token IS NULL THEN 'serve.model.flops_per_token' END,
                    CASE WHEN prefill_tokens IS NULL THEN 'the number of tokens' END,
                    CASE WHEN dtype IS NULL THEN 'serve.model.dtype'
                        WHEN flop_per_s IS NULL THEN concat('the peak for ', dtype) END
                ) END
            ), ''
        ) AS unknown
    FROM counted
)
SELECT
    report_id,
    load_id,
    rate,
    device,
    pid AS process_id,
    iteration,
    class,
    evidence,
    CASE
        WHEN class != 'unknown' THEN NULL
        WHEN is_streamed THEN 'no token that arrived came from it, and its name shows no class'
        ELSE 'its name shows no class, and responses are not streamed'
    END AS why,
    name,
    source,
    start_ns,
    end_ns,
    end_ns - start_ns AS time_ns,
    between_ns,
    empty_ns,
    kernels_ns,
    busy_ns - kernels_ns AS copies_ns,
    span_ns - busy_ns AS gaps_ns,
    end_ns - start_ns - span_ns AS host_ns,
    100.0 * busy_ns / (end_ns - start_ns) AS busy_pct,
    prefills,
    prefill_tokens,
    decodes,
    kv_tokens,
    moved_bytes,
    flop,
    CASE WHEN unknown IS NOT NULL THEN NULL WHEN coalesce(tensor_ns > dram_ns, dram_ns IS NULL) THEN 'tensor'
        ELSE 'dram' END AS roof,
    CASE WHEN unknown IS NULL THEN greatest(dram_ns, tensor_ns) END AS roof_ns,
    100.0 * roof_ns / (end_ns - start_ns) AS roof_pct,
    CASE WHEN unknown IS NOT NULL THEN concat('unknown: ', unknown) END AS roof_missing
FROM rooted
ORDER BY report_id, iteration;
