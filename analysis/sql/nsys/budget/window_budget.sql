-- Time budgets of the windows that `perfpipe budget` selects by time or NVTX range. The view is empty in all
-- other commands.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- window_index INTEGER: window number, from 1
-- window_name VARCHAR: name of the NVTX range, 'chosen time' for a window selected by time, or 'whole' for
--   the whole capture
-- window_start_ns BIGINT: start of the window, ns
-- window_end_ns BIGINT: end of the window, ns
-- category VARCHAR: category, as in gpu_time_budget; edge is the time before the first and after the last
--   operation in the window
-- time_ns BIGINT: time, ns; 0 for categories with no time
-- share_pct DOUBLE: percentage of the window
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
