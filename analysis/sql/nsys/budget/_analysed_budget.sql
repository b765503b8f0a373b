-- gpu_time_budget in the columns of window_budget.
CREATE VIEW _analysed_budget AS
SELECT
    b.report_id,
    b.device,
    dense_rank() OVER (ORDER BY b.report_id, b.device) AS window_index,
    CASE w.kind
        WHEN 'whole' THEN 'whole'
        WHEN 'steady' THEN concat(w.steps, ' steady steps')
        WHEN 'startup' THEN 'start-up and warm-up'
        ELSE concat('step ', window_choice())
    END AS window_name,
    b.window_start_ns,
    b.window_end_ns,
    b.category,
    b.time_ns,
    b.share_pct
FROM gpu_time_budget AS b
JOIN analysis_windows AS w ON w.report_id = b.report_id AND w.device IS NOT DISTINCT FROM b.device
ORDER BY window_index, b.time_ns DESC, b.category;
