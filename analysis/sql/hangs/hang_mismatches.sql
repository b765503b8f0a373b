-- First collective of each process group in which ranks call different operations, sizes or data types. Later
-- collectives of the group pair calls that do not belong together. Operations whose sizes may differ between
-- ranks (all_to_all, all_gather_v, reduce_scatter_v) are compared without sizes.
--
-- report_id VARCHAR: report with the dumps
-- group_id BIGINT: process group
-- group_name VARCHAR: what the program calls the group
-- sequence BIGINT: number of the collective within the group
-- ranks BIGINT: number of ranks whose dumps have this collective
-- most BIGINT: number of ranks that make the most frequent call
-- most_ranks VARCHAR: these ranks
-- most_call VARCHAR: their call: operation, number of elements, data type
-- most_site VARCHAR: line of the program that made it, on the first of these ranks; NULL without stacks
-- other_ranks VARCHAR: ranks that make the next most frequent call
-- other_call VARCHAR: their call
-- other_site VARCHAR: line of the program that made it, on the first of these ranks; NULL without stacks
-- further BIGINT: number of ranks that make still other calls
-- shift VARCHAR: skipped if these ranks make the next call of the others, as if they had skipped this one;
--   extra if their next call is this one of the others, as if they had made an additional one; if both hold,
--   the number of their calls decides; NULL if neither does
CREATE VIEW hang_mismatches AS
WITH differing AS (
    SELECT report_id, group_id, sequence
    FROM _hang_units
    WHERE p2p = 0
    GROUP BY report_id, group_id, sequence
    HAVING count(DISTINCT said) > 1
    QUALIFY row_number() OVER (PARTITION BY report_id, group_id ORDER BY sequence) = 1
),
sayings AS (
    SELECT
        u.report_id,
        u.group_id,
        u.sequence,
        u.said,
        list(u.rank ORDER BY u.rank) AS ranks,
        arg_min(u.stack_id, u.rank) AS stack_id,
        row_number() OVER (
            PARTITION BY u.report_id, u.group_id ORDER BY count(*) DESC, min(u.rank)
        ) AS place
    FROM _hang_units AS u
    JOIN differing AS d ON d.report_id = u.report_id AND d.group_id = u.group_id AND d.sequence = u.sequence
    WHERE u.p2p = 0
    GROUP BY u.report_id, u.group_id, u.sequence, u.said
),
following AS (
    SELECT
        s.report_id,
        s.group_id,
        s.place,
        arg_min(u.said, u.rank) FILTER (u.sequence = s.sequence + 1) AS said,
        max(u.sequence) AS last
    FROM sayings AS s
    JOIN _hang_units AS u
        ON u.report_id = s.report_id AND u.group_id = s.group_id AND u.sequence >= s.sequence AND u.p2p = 0
            AND list_contains(s.ranks, u.rank)
    GROUP BY s.report_id, s.group_id, s.place
),
counted AS (
    SELECT report_id, group_id, sum(len(ranks))::BIGINT AS ranks
    FROM sayings
    GROUP BY report_id, group_id
)
SELECT
    m.report_id,
    m.group_id,
    group_label(g.name, g.description) AS group_name,
    m.sequence,
    c.ranks,
    len(m.ranks) AS most,
    rank_ranges(m.ranks) AS most_ranks,
    m.said AS most_call,
    ms.site AS most_site,
    rank_ranges(o.ranks) AS other_ranks,
    o.said AS other_call,
    os.site AS other_site,
    c.ranks - len(m.ranks) - len(o.ranks) AS further,
    CASE
        WHEN o.said = mf.said AND (m.said IS DISTINCT FROM oth.said OR oth.last < mf.last) THEN 'skipped'
        WHEN m.said = oth.said AND (o.said IS DISTINCT FROM mf.said OR oth.last > mf.last) THEN 'extra'
    END AS shift
FROM sayings AS m
JOIN sayings AS o ON o.report_id = m.report_id AND o.group_id = m.group_id AND o.place = 2
JOIN counted AS c ON c.report_id = m.report_id AND c.group_id = m.group_id
JOIN hang_groups AS g ON g.report_id = m.report_id AND g.group_id = m.group_id
LEFT JOIN following AS mf ON mf.report_id = m.report_id AND mf.group_id = m.group_id AND mf.place = 1
LEFT JOIN following AS oth ON oth.report_id = m.report_id AND oth.group_id = m.group_id AND oth.place = 2
LEFT JOIN _hang_sites AS ms ON ms.report_id = m.report_id AND ms.stack_id = m.stack_id
LEFT JOIN _hang_sites AS os ON os.report_id = o.report_id AND os.stack_id = o.stack_id
WHERE m.place = 1
ORDER BY m.report_id, m.group_id;
