-- Whether a compiler generated the step of a GPU: generated kernels compared with those that PyTorch launches
-- directly.
CREATE VIEW _compiled_steps AS
WITH counted AS (
    SELECT
        report_id,
        device,
        sum(launches) FILTER (is_generated(library)) AS generated,
        sum(launches) FILTER (library = 'torch_native') AS eager
    FROM kernel_library_times
    GROUP BY report_id, device
)
SELECT report_id, device, coalesce(generated >= coalesce(eager, 0), false) AS is_compiled
FROM counted;
