-- Launches that prepare or check the work of a program (analysis/setup.toml), in ncu reports without a
-- timeline: a timeline shows which kernels belong to the steps.
-- @materialize
CREATE VIEW _setup_launches AS
WITH named AS (
    SELECT
        report_id,
        launch_id,
        kernel_setup(kernel_name, coalesce(kernel_demangled, kernel_name)) AS setup
    FROM ncu_launches
    ANTI JOIN (SELECT DISTINCT ncu_report_id AS report_id FROM _report_pairs) USING (report_id)
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
