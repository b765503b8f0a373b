-- The job of each GPU of a report, and its rank; the lowest rank if several processes share the GPU.
CREATE VIEW _gpu_ranks AS
SELECT report_id, device, min(job) AS job, min(rank) AS rank
FROM job_ranks
GROUP BY report_id, device;
