-- Idle intervals with two causes: that of the time before the launching call, and that of the
-- largest part.
CREATE VIEW _gaps AS
WITH split AS (
    SELECT
        *,
        end_ns - start_ns AS dur_ns,
        CASE
            WHEN queued_ns IS NULL THEN end_ns - start_ns - profiler_overhead_ns
            ELSE 0
        END AS unattributed_ns,
        CASE
            WHEN queued_ns IS NULL THEN NULL
            WHEN sync_name IS NOT NULL THEN 'sync'
            WHEN end_ns - start_ns <= threshold('timeline.launch_gap_ns') THEN 'launch_gap'
            ELSE 'host'
        END AS before_cause
    FROM _gap_parts
)
SELECT
    *,
    CASE greatest(before_ns, launch_api_ns, queued_ns, profiler_overhead_ns, unattributed_ns)
        WHEN unattributed_ns THEN 'unattributed'
        WHEN before_ns THEN before_cause
        WHEN launch_api_ns THEN 'launch_api'
        WHEN queued_ns THEN 'queued'
        ELSE 'profiler_overhead'
    END AS cause
FROM split;
