-- Where the lines of a rank that did not enqueue a collective begin to differ from those of the other ranks:
-- the first collective in the dumps that the rank calls at another line than most ranks. The lines of some
-- programs depend on the rank by design.
--
-- report_id VARCHAR: report with the dumps
-- group_id BIGINT: process group
-- rank BIGINT: rank that did not enqueue a later collective of the group
-- sequence BIGINT: number of the collective within the group
-- site VARCHAR: line at which the rank calls it
-- most_site VARCHAR: line at which most ranks call it
CREATE VIEW hang_drifts AS
WITH idle AS (
    SELECT DISTINCT p.report_id, p.group_id, p.rank
    FROM _hang_places AS p
    ANTI JOIN _hang_heads AS h ON h.report_id = p.report_id AND h.rank = p.rank
    WHERE p.place = 'never' AND p.p2p = 0
),
placed AS (
    SELECT u.report_id, u.group_id, u.rank, u.sequence, s.site
    FROM _hang_units AS u
    JOIN _hang_sites AS s ON s.report_id = u.report_id AND s.stack_id = u.stack_id
    SEMI JOIN idle AS i ON i.report_id = u.report_id AND i.group_id = u.group_id
    WHERE u.p2p = 0
),
most AS (
    SELECT report_id, group_id, sequence, site AS most_site
    FROM placed
    GROUP BY report_id, group_id, sequence, site
    QUALIFY 2 * count(*) > sum(count(*)) OVER (PARTITION BY report_id, group_id, sequence)
)
SELECT p.report_id, p.group_id, p.rank, p.sequence, p.site, m.most_site
FROM placed AS p
JOIN idle AS i ON i.report_id = p.report_id AND i.group_id = p.group_id AND i.rank = p.rank
JOIN most AS m ON m.report_id = p.report_id AND m.group_id = p.group_id AND m.sequence = p.sequence
WHERE p.site != m.most_site
QUALIFY row_number() OVER (PARTITION BY p.report_id, p.group_id, p.rank ORDER BY p.sequence) = 1
ORDER BY p.report_id, p.group_id, p.rank;
