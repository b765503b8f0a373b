-- Communicators in which NCCL RAS reports ranks that have launched fewer collectives than others, in the last
-- query of a report. Such a difference is normal while a job runs, unless later queries repeat it.
--
-- report_id VARCHAR: report with the output of ncclras
-- communicator VARCHAR: hash of the communicator
-- operation VARCHAR: collective, such as AllReduce; collective for all (before NCCL 2.26)
-- most BIGINT: largest number of calls that a rank has launched
-- most_ranks BIGINT: number of ranks that have launched so many
-- least BIGINT: smallest number of calls that a rank has launched
-- behind BIGINT: number of ranks that have launched fewer than most
-- behind_ranks VARCHAR: these ranks, within the communicator; NULL if RAS only counts them
-- behind_where VARCHAR: process, machine and GPU of the first of them; NULL if RAS only counts them
-- queries BIGINT: number of queries in the report that show this communicator and operation
-- progress VARCHAR: none if all of these queries show the same numbers, some if they differ; NULL for one
--   query
CREATE VIEW ras_differences AS
WITH counts AS (
    SELECT
        report_id,
        file,
        any_value(taken_at) AS taken_at,
        communicator,
        operation,
        launched,
        greatest(coalesce(sum(ranks) FILTER (rank IS NULL), 0), count(rank))::BIGINT AS ranks,
        coalesce(list(rank ORDER BY rank) FILTER (rank IS NOT NULL), []) AS known,
        arg_min(concat('process ', pid, ' on ', host, ', GPU ', gpu), rank) FILTER (pid IS NOT NULL) AS place
    FROM ras_counts
    WHERE launched IS NOT NULL
    GROUP BY report_id, file, communicator, operation, launched
),
queries AS (
    SELECT
        report_id,
        file,
        communicator,
        operation,
        max(launched) AS most,
        arg_max(ranks, launched) AS most_ranks,
        min(launched) AS least,
        sum(ranks)::BIGINT AS ranks,
        list_sort(flatten(list(known ORDER BY launched))) AS known,
        max(taken_at) AS taken_at
    FROM counts
    GROUP BY report_id, file, communicator, operation
),
compared AS (
    SELECT
        *,
        count(*) OVER same AS queries,
        min(most) OVER same = max(most) OVER same AND min(least) OVER same = max(least) OVER same AS stuck
    FROM queries
    WINDOW same AS (PARTITION BY report_id, communicator, operation)
),
latest AS (
    FROM compared
    QUALIFY row_number() OVER (
        PARTITION BY report_id, communicator, operation ORDER BY taken_at DESC NULLS LAST, file DESC
    ) = 1
),
behind AS (
    SELECT
        l.report_id,
        l.communicator,
        l.operation,
        list_sort(flatten(list(c.known ORDER BY c.launched))) AS known,
        arg_min(c.place, c.launched) AS place
    FROM latest AS l
    JOIN counts AS c
        ON c.report_id = l.report_id AND c.file = l.file AND c.operation = l.operation
            AND c.communicator IS NOT DISTINCT FROM l.communicator AND c.launched < l.most
    GROUP BY l.report_id, l.communicator, l.operation
)
SELECT
    l.report_id,
    l.communicator,
    l.operation,
    l.most,
    l.most_ranks,
    l.least,
    l.ranks - l.most_ranks AS behind,
    nullif(rank_ranges(b.known), '') AS behind_ranks,
    b.place AS behind_where,
    l.queries,
    CASE WHEN l.queries > 1 THEN CASE WHEN l.stuck THEN 'none' ELSE 'some' END END AS progress
FROM latest AS l
JOIN behind AS b
    ON b.report_id = l.report_id AND b.operation = l.operation
        AND b.communicator IS NOT DISTINCT FROM l.communicator
WHERE l.least < l.most
ORDER BY l.report_id, l.communicator, l.operation;
