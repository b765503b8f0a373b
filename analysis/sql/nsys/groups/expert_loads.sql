-- Load of each rank's experts, from the all-to-alls within the analyzed window that bring tokens to experts:
-- those in which the received sizes differ more between the ranks than the sent ones. Only groups whose ranks
-- were all captured are included.
-- @materialize
--
-- job VARCHAR: job, as in job_ranks
-- group_id VARCHAR: group, as in rank_groups
-- rank BIGINT: rank
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- calls BIGINT: number of all-to-alls
-- tokens DOUBLE: tokens that the rank receives per call: rows of the split sizes, each of which is assumed to
--   be a token; NULL if the trace does not contain the split sizes
-- bytes DOUBLE: bytes that the rank receives per call
-- load DOUBLE: bytes relative to the mean of the group's ranks
-- imbalance DOUBLE: largest load of the group
-- call_imbalance DOUBLE: largest load within a call, median of the calls
CREATE VIEW expert_loads AS
WITH calls AS (
    SELECT
        p.job,
        p.communicator,
        p.nth,
        p.rank,
        p.report_id,
        p.device,
        p.sent_bytes,
        p.received_bytes,
        CASE
            WHEN contains(p.rows_out, '...') THEN NULL
            ELSE list_sum(list_transform(regexp_extract_all(p.rows_out, '\d+'), lambda n: n::BIGINT))
        END AS tokens
    FROM _paired AS p
    JOIN rank_groups AS g ON g.job = p.job AND g.group_id = p.communicator
    WHERE p.analysed AND p.operation = 'AllToAll' AND g.kind = 'expert' AND g.captured = g.size
),
sides AS (
    SELECT
        job,
        communicator,
        nth,
        max(received_bytes) * count(*) / nullif(sum(received_bytes), 0) AS received,
        max(sent_bytes) * count(*) / nullif(sum(sent_bytes), 0) AS sent
    FROM calls
    GROUP BY job, communicator, nth
),
ratios AS (
    SELECT job, communicator, median(received) AS call_imbalance
    FROM sides
    WHERE received >= sent
    GROUP BY job, communicator
),
sums AS (
    SELECT
        c.job,
        c.communicator,
        c.rank,
        c.report_id,
        c.device,
        count(*) AS calls,
        CASE WHEN count(c.tokens) = count(*) THEN sum(c.tokens) END AS tokens,
        sum(c.received_bytes) AS bytes
    FROM calls AS c
    JOIN sides AS s USING (job, communicator, nth)
    WHERE s.received >= s.sent
    GROUP BY c.job, c.communicator, c.rank, c.report_id, c.device
)
SELECT
    s.job,
    s.communicator AS group_id,
    s.rank,
    s.report_id,
    s.device,
    s.calls,
    s.tokens / s.calls AS tokens,
    s.bytes / s.calls AS bytes,
    s.bytes * count(*) OVER own / nullif(sum(s.bytes) OVER own, 0) AS load,
    max(s.bytes) OVER own * count(*) OVER own / nullif(sum(s.bytes) OVER own, 0) AS imbalance,
    r.call_imbalance
FROM sums AS s
JOIN ratios AS r USING (job, communicator)
WINDOW own AS (PARTITION BY s.job, s.communicator)
ORDER BY s.job, s.communicator, s.rank;
