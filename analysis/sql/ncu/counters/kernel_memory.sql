-- Memory behavior of each launch: traffic at each level, access efficiency, and problems such as uncoalesced
-- accesses, bank conflicts, spills and atomics. A value is NULL if it was not collected; 0 is a measured
-- zero.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- kernel_name VARCHAR: function name
-- dram_read_bytes DOUBLE: bytes read from DRAM
-- dram_write_bytes DOUBLE: bytes written to DRAM
-- dram_bytes_per_s DOUBLE: DRAM bandwidth, reads and writes together, byte/s
-- l2_read_bytes DOUBLE: traffic from L2 to L1, bytes
-- l2_write_bytes DOUBLE: traffic from L1 to L2, bytes
-- l1_hit_pct DOUBLE: L1 hit rate, %
-- l2_hit_pct DOUBLE: L2 hit rate, %; can exceed 100 if the passes disagree
-- l2_read_hit_pct DOUBLE: L2 hit rate of reads, %
-- sectors_per_load DOUBLE: 32-byte sectors per global load request; the ideal is 4 for 4-byte elements and 16
--   for 16-byte elements (a full warp)
-- sectors_per_store DOUBLE: 32-byte sectors per global store request; the ideal is the same as for loads
-- load_bytes_per_sector DOUBLE: mean number of bytes that global loads use per 32-byte sector; NULL without
--   global loads
-- store_bytes_per_sector DOUBLE: mean number of bytes that global stores use per 32-byte sector; NULL without
--   global stores
-- global_excess_pct DOUBLE: sectors that global accesses request in excess of fully coalesced accesses, % of
--   all sectors requested by global accesses
-- shared_conflict_pct DOUBLE: shared-memory wavefronts caused by bank conflicts, % of all shared-memory
--   wavefronts
-- shared_load_conflict_ways DOUBLE: mean degree of bank conflicts in shared-memory loads (n-way): actual /
--   ideal wavefronts; 1 means no conflicts
-- shared_excess_pct DOUBLE: shared-memory wavefronts in excess of conflict-free accesses, counted per
--   instruction, % of all shared-memory wavefronts
-- spill_requests DOUBLE: number of warp instructions that spill or reload registers
-- spill_pct DOUBLE: share of local-memory load and store requests that are register spills or reloads, %;
--   NULL without local-memory accesses
-- local_requests DOUBLE: number of local-memory load and store requests
-- local_pct DOUBLE: share of local memory in the sectors of global and local loads and stores, %; if sectors
--   were not collected, in their requests or instructions
-- atomic_requests DOUBLE: number of global atomic and reduction requests
-- atomic_pct DOUBLE: sectors of atomics and reductions, % of all sectors transferred between L1 and L2; if
--   sectors were not collected, requests of atomics and reductions, % of all global requests
-- compression_success_pct DOUBLE: share of the sectors sent to the L2 compression unit that were compressed
--   successfully, %; relevant only for compressible memory
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
    100 * coalesce(
        share_of_pairs(
            w.local_load_sectors, w.local_load_sectors + w.global_load_sectors,
            w.local_store_sectors, w.local_store_sectors + w.global_store_sectors
        ),
        (w.local_load_sectors + w.local_store_sectors) / nullif(w.l1_sectors, 0),
        w.local_sectors / nullif(w.local_sectors + coalesce(w.global_sectors, w.global_transactions), 0),
        share_of_pairs(
            w.local_load_requests, w.local_load_requests + w.global_load_requests,
            w.local_store_requests, w.local_store_requests + w.global_store_requests
        ),
        share_of_pairs(
            w.local_load_requests, w.local_load_requests + w.global_load_inst,
            w.local_store_requests, w.local_store_requests + w.global_store_inst
        )
    ) AS local_pct,
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
