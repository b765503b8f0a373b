-- Ranks and processes with which NCCL RAS reports a problem: unresponsive, dead, missing, aborted, an error,
-- or a status that differs from that of other ranks. In the last query of a report; RAS only counts most
-- ranks.
--
-- report_id VARCHAR: report with the output of ncclras
-- communicator VARCHAR: hash of the communicator; NULL for a process
-- operation VARCHAR: collective that the state is about; NULL for others
-- state VARCHAR: what RAS reports
-- rank BIGINT: rank within the communicator; NULL for a process, or if RAS only counts the ranks
-- ranks BIGINT: number of ranks
-- pid BIGINT: process id
-- place VARCHAR: process, machine and GPU
CREATE VIEW ras_states AS
WITH latest AS (
    SELECT report_id, file
    FROM ras_counts
    GROUP BY report_id, file
    QUALIFY row_number() OVER (PARTITION BY report_id ORDER BY max(taken_at) DESC NULLS LAST, file DESC) = 1
)
SELECT
    r.report_id,
    r.communicator,
    r.operation,
    r.state,
    r.rank,
    r.ranks,
    r.pid,
    CASE WHEN r.pid IS NOT NULL THEN concat('process ', r.pid, ' on ', r.host, ', GPU ', r.gpu) END AS place
FROM ras_counts AS r
SEMI JOIN latest AS l ON l.report_id = r.report_id AND l.file = r.file
WHERE r.state IS NOT NULL
ORDER BY r.report_id, r.communicator NULLS FIRST, r.row_id;
