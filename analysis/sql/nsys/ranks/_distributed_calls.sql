-- Calls of NCCL and torch.distributed with what their payloads say: NCCL's NVTX ranges if the export has
-- their payloads, or torch.distributed in a torch.profiler trace. Groups of torch have a name and their
-- ranks, which only together are unique. A peer that torch states is a rank of the job, that of NCCL a rank
-- of the communicator. torch also records when it creates a communicator (init) and waits for a call (wait),
-- which are no communication.
-- @materialize
CREATE VIEW _distributed_calls AS
WITH payloads AS (
    SELECT
        report_id,
        range_id,
        max(text) FILTER (field = 'NCCL communicator ID') AS nccl_communicator,
        max(text) FILTER (field = 'Process Group Name') AS torch_group,
        max(text) FILTER (field = 'Process Group Ranks' AND text != '[]') AS members,
        max(text) FILTER (field = 'Process Group Description' AND text NOT IN ('', 'undefined'))
            AS description,
        max(value) FILTER (field IN ('No. of ranks', 'Group size')) AS ranks,
        max(value) FILTER (field = 'Message size [bytes]') AS bytes,
        max(text) FILTER (field = 'Collective name') AS torch_call,
        torch_element_bytes(max(text) FILTER (field = 'dtype')) AS element_bytes,
        max(value) FILTER (field = 'In msg nelems') AS elements_in,
        max(value) FILTER (field = 'Out msg nelems') AS elements_out,
        max(text) FILTER (field = 'Out split size') AS rows_out,
        max(value) FILTER (field = 'Global rank start') AS first_rank,
        max(value) FILTER (field = 'Global rank stride') AS stride,
        max(value) FILTER (field IN ('Dst Rank', 'Src Rank')) AS peer,
        max(value) FILTER (field = 'Peer rank') AS own_peer
    FROM nsys_nvtx_payloads
    GROUP BY report_id, range_id
)
SELECT
    r.report_id,
    r.range_id,
    r.pid,
    r.tid,
    r.start_ns,
    r.name AS call,
    p.nccl_communicator AS communicator,
    p.ranks,
    p.bytes,
    NULL AS launched,
    p.own_peer::BIGINT AS peer,
    false AS stated,
    NULL AS sent_bytes,
    NULL AS received_bytes,
    NULL AS rows_out,
    NULL AS members,
    NULL AS description,
    NULL AS first_rank,
    NULL AS stride
FROM nsys_nvtx_ranges AS r
LEFT JOIN payloads AS p USING (report_id, range_id)
WHERE r.domain = 'NCCL'
UNION ALL
-- As NCCL counts: the bytes that one rank contributes or receives; to one peer if each rank sends to all.
SELECT
    r.report_id,
    r.range_id,
    r.pid,
    r.tid,
    r.start_ns,
    p.torch_call,
    concat_ws(' ', p.torch_group, p.members),
    p.ranks,
    p.element_bytes * CASE
        WHEN p.torch_call LIKE 'all_to_all%' THEN p.elements_in / p.ranks
        ELSE least(p.elements_in, p.elements_out)
    END,
    r.gpu_calls,
    p.peer::BIGINT,
    true,
    (p.element_bytes * p.elements_in)::BIGINT,
    (p.element_bytes * p.elements_out)::BIGINT,
    p.rows_out,
    p.members,
    p.description,
    p.first_rank::BIGINT,
    p.stride::BIGINT
FROM payloads AS p
JOIN nsys_nvtx_ranges AS r USING (report_id, range_id)
WHERE p.torch_call NOT IN ('init', 'wait')
UNION ALL
SELECT
    report_id, range_id, pid, tid, start_ns, name, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL,
    NULL, NULL, NULL, NULL
FROM nsys_nvtx_ranges
WHERE name = 'nccl:coalesced';
