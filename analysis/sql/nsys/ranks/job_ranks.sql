-- Ranks of distributed jobs, one row for each process and GPU that communicated. Reports in the same
-- directory form a job if their captures overlap in time. A single report with several processes also
-- forms a job.
--
-- job VARCHAR: job, named by the report_id of one of its reports
-- rank BIGINT: rank
-- rank_source VARCHAR: source of the rank number: MPI_RANKS, an environment variable, or file order
-- report_id VARCHAR: report
-- pid BIGINT: process id
-- device BIGINT: physical GPU number
-- collectives BIGINT: number of communication kernels
-- paired BIGINT: number of communication kernels that were matched with kernels on other ranks
-- clock_offset_ns BIGINT: offset to add to the report's times to get job time, ns
-- clock_shift_ns BIGINT: part of clock_offset_ns that results from aligning the ends of collectives, ns;
--   NULL if there are no collectives to compare
-- clock_residual_ns DOUBLE: median difference between the ranks' end times of matched collectives after the
--   alignment, ns
CREATE VIEW job_ranks AS
SELECT
    r.job,
    r.rank,
    r.rank_source,
    r.report_id,
    r.pid,
    r.device,
    r.collectives,
    (
        SELECT count(*)
        FROM _paired AS p
        WHERE p.report_id = r.report_id AND p.track = r.track AND p.pid = r.pid
    ) AS paired,
    c.offset_ns AS clock_offset_ns,
    c.shift_ns AS clock_shift_ns,
    c.residual_ns AS clock_residual_ns
FROM _job_ranks AS r
JOIN _clocks AS c USING (job, report_id)
ORDER BY r.job, r.rank;
