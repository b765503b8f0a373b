-- Launches that prepare or check the work of a program (analysis/setup.toml), in ncu reports without a
-- timeline: a timeline shows which kernels belong to the steps.
-- @materialize
CREATE VIEW _setup_launches AS
WITH named AS (
    SELECT
        report_id,
        launch_id,
        duration_ns,
        kernel_setup(kernel_name, coalesce(kernel_demangled, kernel_name)) AS kind,
        -- A filling kernel that takes most of the time is the work.
        CASE
            WHEN kind != 'fills' THEN kind
            WHEN coalesce(
                sum(if(kind = 'fills', duration_ns, 0)) OVER report
                    >= threshold('finding.much_pct') / 100 * sum(duration_ns) OVER report,
                true
            ) THEN 'none'
            ELSE 'inputs'
        END AS setup
    FROM ncu_launches
    ANTI JOIN (SELECT DISTINCT ncu_report_id AS report_id FROM _report_pairs) USING (report_id)
    WINDOW report AS (PARTITION BY report_id)
),
placed AS (
    SELECT
        *,
        min(if(setup = 'none', launch_id, NULL)) OVER (PARTITION BY report_id) AS first_work
    FROM named
)
SELECT report_id, launch_id, setup
FROM placed
WHERE setup IN ('states', 'check', 'flush') OR (setup = 'inputs' AND coalesce(launch_id < first_work, true));
