-- Memory traffic of each launch at each level of the memory hierarchy, as in ncu's memory tables. A level
-- whose metrics were not collected has no row.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- place INTEGER: order of the memory level, from 1 for the level closest to the SMs
-- level VARCHAR: memory level: shared, l1 (global accesses), l2 (traffic between L1 and L2) or dram
-- read_bytes DOUBLE: bytes read from the level; NULL for shared memory, whose traffic is not counted in bytes
-- write_bytes DOUBLE: bytes written to the level; NULL for shared memory
-- bytes_per_s DOUBLE: bandwidth: (bytes read + bytes written) / duration, byte/s
-- hit_pct DOUBLE: cache hit rate, %; NULL for shared memory and DRAM
-- sol_pct DOUBLE: throughput of the level, % of peak (SOL)
-- excess_pct DOUBLE: share of the level's traffic that better access patterns would avoid, %: for l1, sectors
--   in excess of fully coalesced accesses; for shared, wavefronts caused by bank conflicts; NULL for other
--   levels
CREATE VIEW kernel_memory_levels AS
WITH levels AS (
    SELECT
        m.report_id, m.launch_id, s.duration_ns, 1 AS place, 'shared' AS level,
        NULL::DOUBLE AS read_bytes, NULL::DOUBLE AS write_bytes, NULL::DOUBLE AS per_s,
        NULL::DOUBLE AS hit_pct, s.shared_sol_pct AS sol_pct, m.shared_conflict_pct AS excess_pct
    FROM kernel_memory AS m
    JOIN kernel_sol AS s USING (report_id, launch_id)
    UNION ALL
    -- A sector has 32 bytes.
    SELECT
        m.report_id, m.launch_id, s.duration_ns, 2, 'l1', 32 * w.global_load_sectors,
        32 * w.global_store_sectors, NULL, m.l1_hit_pct, s.l1_elapsed_sol_pct, m.global_excess_pct
    FROM kernel_memory AS m
    JOIN kernel_sol AS s USING (report_id, launch_id)
    JOIN kernel_metrics AS w USING (report_id, launch_id)
    UNION ALL
    SELECT
        m.report_id, m.launch_id, s.duration_ns, 3, 'l2', m.l2_read_bytes, m.l2_write_bytes, NULL,
        m.l2_hit_pct, s.l2_sol_pct, NULL
    FROM kernel_memory AS m
    JOIN kernel_sol AS s USING (report_id, launch_id)
    UNION ALL
    SELECT
        m.report_id, m.launch_id, s.duration_ns, 4, 'dram', m.dram_read_bytes, m.dram_write_bytes,
        m.dram_bytes_per_s, NULL, s.dram_sol_pct, NULL
    FROM kernel_memory AS m
    JOIN kernel_sol AS s USING (report_id, launch_id)
)
SELECT
    report_id,
    launch_id,
    place,
    level,
    read_bytes,
    write_bytes,
    coalesce(per_s, (read_bytes + write_bytes) / nullif(duration_ns / 1e9, 0)) AS bytes_per_s,
    hit_pct,
    sol_pct,
    excess_pct
FROM levels
WHERE coalesce(read_bytes, write_bytes, per_s, hit_pct, sol_pct, excess_pct) IS NOT NULL
ORDER BY report_id, launch_id, place;
