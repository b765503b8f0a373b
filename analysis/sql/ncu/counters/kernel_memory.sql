-- Memory behavior of each launch: traffic at each level, efficiency, and problems such as uncoalesced access,
-- bank conflicts, spills and atomics. NULL means that a value was not collected; 0 means zero.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- kernel_name VARCHAR: function name
-- dram_read_bytes DOUBLE: DRAM reads, bytes
-- dram_write_bytes DOUBLE: DRAM writes, bytes
-- dram_bytes_per_s DOUBLE: DRAM traffic in both directions, byte/s
-- l2_read_bytes DOUBLE: traffic from L2 to L1, bytes
-- l2_write_bytes DOUBLE: traffic from L1 to L2, bytes
-- l1_hit_pct DOUBLE: L1 hit rate, %
-- l2_hit_pct DOUBLE: L2 hit rate, %; above 100 if passes disagree
-- l2_read_hit_pct DOUBLE: L2 hit rate of reads, %
-- sectors_per_load DOUBLE: 32-byte sectors per global load request; 4 is ideal for 4-byte elements, 16 for
--   16-byte ones
-- sectors_per_store DOUBLE: 32-byte sectors per global store request; same ideal values as for loads
-- load_bytes_per_sector DOUBLE: bytes of each 32-byte sector that global loads use; NULL without global loads
-- store_bytes_per_sector DOUBLE: bytes of each 32-byte sector that global stores use; NULL without global
--   stores
-- global_excess_pct DOUBLE: sectors of global accesses beyond the coalesced ideal, % of all their sectors
-- shared_conflict_pct DOUBLE: wavefronts due to shared-memory bank conflicts, % of all shared-memory
--   wavefronts
-- shared_load_conflict_ways DOUBLE: degree of bank conflicts of shared loads: actual / ideal wavefronts; 1
--   means no conflicts
-- shared_excess_pct DOUBLE: shared-memory wavefronts beyond the ideal, counted per instruction, % of all
--   wavefronts
-- spill_requests DOUBLE: number of warp instructions that spill or reload registers
-- spill_pct DOUBLE: share of spills and reloads in the local loads and stores, %; NULL without local accesses
-- local_requests DOUBLE: number of local loads and stores
-- atomic_requests DOUBLE: number of global atomics and reductions
-- atomic_pct DOUBLE: sectors of atomics and reductions, % of all sectors between L1 and L2; % of global
--   requests if sectors were not collected
-- compression_success_pct DOUBLE: sectors that the L2 compression unit compressed successfully, %; only
--   relevant for compressible memory
CREATE VIEW kernel_memory AS
SELECT
    w.report_id,
    w.launch_id,
    l.kernel_name,
    w.dram_read_bytes,
    w.dram_write_bytes,
    coalesce(
        w.dram_bytes_per_s,
        (w.dram_read_bytes + w.dram_write_bytes) / nullif(w.duration_ns / 1e9, 0)
    ) AS dram_bytes_per_s,
    w.l2_to_l1_bytes AS l2_read_bytes,
    w.l1_to_l2_bytes AS l2_write_bytes,
    w.l1_hit_pct,
    w.l2_hit_pct,
    w.l2_read_hit_pct,
    w.global_load_sectors / nullif(w.global_load_requests, 0) AS sectors_per_load,
    w.global_store_sectors / nullif(w.global_store_requests, 0) AS sectors_per_store,
    nullif(w.global_load_bytes_per_sector, 0) AS load_bytes_per_sector,
    nullif(w.global_store_bytes_per_sector, 0) AS store_bytes_per_sector,
    100 * (w.global_sectors - w.global_sectors_ideal) / nullif(w.global_sectors, 0) AS global_excess_pct,
    100 * w.shared_conflicts / nullif(w.shared_wavefronts, 0) AS shared_conflict_pct,
    w.shared_load_wavefronts
        / nullif(w.shared_load_wavefronts - w.shared_load_conflicts, 0) AS shared_load_conflict_ways,
    100 * (w.shared_source_wavefronts - w.shared_source_wavefronts_ideal)
        / nullif(w.shared_source_wavefronts, 0) AS shared_excess_pct,
    w.spill_requests,
    100 * w.spill_requests / nullif(w.local_load_requests + w.local_store_requests, 0) AS spill_pct,
    w.local_load_requests + w.local_store_requests AS local_requests,
    w.global_atomic_requests + w.global_reduction_requests AS atomic_requests,
    100 * coalesce(
        32 * (w.l2_atomic_sectors + w.l2_reduction_sectors) / nullif(w.l2_to_l1_bytes + w.l1_to_l2_bytes, 0),
        (w.global_atomic_requests + w.global_reduction_requests) / nullif(
            w.global_atomic_requests + w.global_reduction_requests
                + w.global_load_requests + w.global_store_requests, 0
        )
    ) AS atomic_pct,
    w.compression_success_pct
FROM kernel_metrics AS w
JOIN ncu_launches AS l USING (report_id, launch_id)
ORDER BY w.report_id, w.launch_id;
