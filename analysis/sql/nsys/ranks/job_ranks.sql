-- Ranks of distributed jobs: each process and GPU that communicated.  Reports of one directory
-- whose captures overlap in time are one job; one report of several processes is one as well.
--
-- job: report_id of one of its reports
-- rank: rank
-- rank_source: MPI_RANKS, an environment variable, or file order: what told the ranks
-- report_id: report
-- pid: process
-- device: GPU number of the machine
-- collectives: communicating kernels
-- paired: of these, collectives that were found on other ranks as well
-- clock_offset_ns: added to times of the report gives times of the job, ns
-- clock_shift_ns: part of it by which ends of collectives corrected the start times, ns; NULL where
--   there are none to compare
-- clock_residual_ns: median distance of the ends of collectives after that, ns
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
