-- Link between the captured ranks of each group, and its bandwidth in one direction per GPU, byte/s. Ranks on
-- one host use NVLink if the GPU has it, else PCIe. Hosts are those of the reports; without them, two ranks
-- with the same GPU number are on different hosts, and ranks with different GPU numbers are assumed to be on
-- one.
CREATE VIEW _group_links AS
WITH members AS (
    SELECT DISTINCT o.job, o.group_id, o.rank, o.report_id, o.device, r.host
    FROM _group_ops AS o
    JOIN reports AS r USING (report_id)
),
placed AS (
    SELECT
        m.job,
        m.group_id,
        count(*) AS captured,
        count(DISTINCT m.host) AS hosts,
        count(m.host) = count(*) AS hosted,
        count(DISTINCT m.device) AS devices,
        min(l.nvlink_bytes_per_s) AS nvlink,
        count(l.nvlink_bytes_per_s) = count(*) AS linked,
        min(l.pcie_bytes_per_s) AS pcie
    FROM members AS m
    LEFT JOIN _gpu_links AS l USING (report_id, device)
    GROUP BY m.job, m.group_id
),
judged AS (
    SELECT
        p.*,
        CASE
            WHEN p.captured < 2 OR p.captured < g.size THEN 'unknown'
            WHEN p.hosts > 1 OR (NOT p.hosted AND p.devices < p.captured) THEN 'network'
            WHEN p.linked THEN 'NVLink'
            WHEN p.pcie IS NOT NULL THEN 'PCIe'
            ELSE 'unknown'
        END AS link
    FROM placed AS p
    JOIN rank_groups AS g USING (job, group_id)
)
SELECT
    job,
    group_id,
    link,
    CASE link WHEN 'NVLink' THEN nvlink WHEN 'PCIe' THEN pcie END AS link_bytes_per_s,
    CASE
        WHEN link = 'unknown' AND (captured < 2 OR pcie IS NOT NULL)
            THEN 'not all ranks of the group were captured'
        WHEN link = 'unknown' THEN 'the bandwidths of the GPU are unknown'
        WHEN link = 'network' AND hosts > 1
            THEN 'the ranks are on several hosts; the bandwidth of the network is unknown'
        WHEN link = 'network' THEN
            'ranks with the same GPU number are on several hosts; the bandwidth of the network is unknown'
        WHEN hosted THEN 'the ranks are on one host'
        ELSE 'the ranks have different GPU numbers and are assumed to be on one host'
    END AS link_why
FROM judged;
