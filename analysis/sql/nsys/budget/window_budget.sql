-- Time budgets of windows that `perfpipe budget` was asked for, by time or by NVTX range; empty in
-- a plain query.
--
-- report_id: report
-- device: GPU number of the machine
-- window_index: counts the windows of a query from 1
-- window_name: name of the range, 'chosen time' or 'whole'
-- window_start_ns: start, ns
-- window_end_ns: end, ns
-- category: as in gpu_time_budget; what lies before the first and after the last operation inside is edge
-- time_ns: time, ns; zeros included
-- share_pct: of the window, %
CREATE VIEW window_budget AS
SELECT
    report_id,
    device,
    -window_id AS window_index,
    name AS window_name,
    window_start_ns,
    window_end_ns,
    category,
    time_ns,
    100.0 * time_ns / nullif(window_end_ns - window_start_ns, 0) AS share_pct
FROM _budgets
WHERE window_id < 0
ORDER BY window_index, time_ns DESC, category;
