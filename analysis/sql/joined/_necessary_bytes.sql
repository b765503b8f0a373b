-- Bytes that a launch needs, as far as its counters show, and the share of its duration that these bytes take
-- at the roof. Declared bytes come first. Otherwise, the launch needs the bytes of global memory that it
-- requests, if it requests each byte once. This is assumed in three cases:
--   * all bytes that the launch moves fit in L2, so nothing is evicted and DRAM delivers each sector once;
--     the launch needs at most the bytes that DRAM delivers;
--   * the launch requests no more than DRAM delivers, so hardly any byte is requested twice;
--   * copies, elementwise operations and reductions read each input once.
-- In all other cases, such as tiled products, the counters do not show the needed bytes (no row). The roof is
-- DRAM, or L2 for data that fits in L2, because a step may find this data there.
CREATE VIEW _necessary_bytes AS
WITH traffic AS (
    SELECT
        w.report_id,
        w.launch_id,
        l.duration_ns / 1e9 AS seconds,
        w.dram_read_bytes,
        w.dram_write_bytes,
        w.l2_cache_bytes,
        d.bytes AS declared,
        w.dram_peak_bytes_per_cycle * w.dram_clock_hz AS dram_peak,
        32 * w.l2_to_xbar_peak_per_cycle * w.l2_clock_hz AS l2_peak,
        coalesce(
            w.global_load_sectors * w.global_load_bytes_per_sector,
            CASE WHEN w.global_load_sectors = 0 THEN 0 END
        ) AS requested,
        -- Stores reach L2 in whole sectors.
        least(
            w.l1_to_l2_bytes, w.global_store_sectors * nullif(w.global_store_bytes_per_sector, 0)
        ) AS stored,
        NOT list_contains(f.features, 'uncoalesced')
            AND NOT list_contains(f.features, 'atomics')
            AND f.category IN ('elementwise', 'copy', 'reduction') AS streams
    FROM kernel_metrics AS w
    JOIN ncu_launches AS l USING (report_id, launch_id)
    JOIN kernel_features AS f USING (report_id, launch_id)
    LEFT JOIN _declared_work AS d USING (report_id, launch_id)
),
needed AS (
    SELECT
        *,
        coalesce(
            coalesce(declared, dram_read_bytes + greatest(dram_write_bytes, stored)) < l2_cache_bytes, false
        ) AS fits,
        CASE
            WHEN fits OR requested <= (1 + threshold('bytes.once_share')) * dram_read_bytes OR streams
                THEN least(requested, dram_read_bytes)
        END AS loaded
    FROM traffic
)
SELECT
    report_id,
    launch_id,
    coalesce(declared, loaded + stored) AS bytes,
    fits,
    -- What its loads and its stores alone would take.
    100 * loaded / nullif(if(fits, l2_peak, dram_peak), 0) / nullif(seconds, 0) AS loaded_pct,
    100 * stored / nullif(if(fits, l2_peak, dram_peak), 0) / nullif(seconds, 0) AS stored_pct,
    100 * CASE
        -- L2 moves both directions at once.
        WHEN fits AND declared IS NOT NULL THEN declared / 2 / nullif(l2_peak, 0)
        WHEN fits THEN greatest(loaded, stored) / nullif(l2_peak, 0)
        ELSE bytes / nullif(dram_peak, 0)
    END / nullif(seconds, 0) AS pct
FROM needed
WHERE bytes IS NOT NULL;
