-- Techniques for each GPU's time, for operators, precision, and processes that are started between steps.
CREATE VIEW _timeline_advice AS
SELECT report_id, device, technique, bound, difficulty, share_pct, gain_pct, floor, rank
FROM timeline_findings
UNION ALL BY NAME
SELECT
    report_id, device, technique, operator AS bound, difficulty, share_pct, weight_pct, gain_pct, floor,
    rank
FROM operator_findings
UNION ALL BY NAME
SELECT
    report_id, device, technique, 'single_precision' AS bound, difficulty, share_pct, gain_pct, floor,
    1 AS rank, true AS precision
FROM precision_findings
UNION ALL BY NAME
SELECT
    report_id, device, technique, 'process_starts' AS bound, difficulty, share_pct, 1 AS rank,
    'between' AS part
FROM starting_findings;
