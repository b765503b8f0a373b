-- Whether a compiler made the step of a GPU: what Inductor and XLA generate, against what PyTorch launches by itself.
CREATE VIEW _compiled_steps AS
SELECT
    report_id,
    device,
    sum(if(library IN ('inductor', 'xla'), launches, 0)) AS generated,
    generated > 0 AND generated >= sum(if(library = 'torch_native', launches, 0)) AS is_compiled
FROM kernel_library_times
GROUP BY report_id, device;
