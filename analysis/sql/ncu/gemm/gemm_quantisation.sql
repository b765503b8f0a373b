-- SM time that matrix products lose to wave quantization (SMs without a block in a partial last wave) and
-- tile quantization (the part of the output tiles that lies outside the output matrix). See NVIDIA, Matrix
-- Multiplication Background User's Guide. All values except sm_idle_pct, which is measured, assume that all
-- blocks take equally long. Matrix-vector products and split-K reductions are excluded. To provide M, N and
-- K, include them in the name of the NVTX range (gemm_m512_n1024_k2048), or use run parameters named m, n and
-- k.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- kernel_name VARCHAR: function name
-- tile_m BIGINT: number of rows of an output tile, in the kernel's own orientation (a kernel may swap M and
--   N)
-- tile_n BIGINT: number of columns of an output tile, in the kernel's own orientation
-- tile_k BIGINT: extent of a tile along K in each iteration of the main loop
-- tile_source VARCHAR: source of the tile size: name (kernel name), NVTX (NVTX range) or parameters (of the
--   run); NULL if unknown
-- batch BIGINT: number of matrix products in the launch; NULL if unknown (also applies to m, n and k)
-- m BIGINT: problem size M
-- n BIGINT: problem size N
-- k BIGINT: problem size K
-- problem_source VARCHAR: source of m, n and k: NVTX (NVTX range) or parameters (of the run)
-- sm_count BIGINT: number of SMs
-- blocks_per_sm BIGINT: number of blocks that fit on an SM
-- blocks BIGINT: number of blocks in the grid
-- resident_blocks BIGINT: number of blocks that fit on the GPU at once, in whole clusters
-- tiles BIGINT: number of output tiles, over all batch entries; NULL if M or N is unknown, or if the grid
--   does not match the tiles
-- persistent BOOLEAN: whether each block processes several tiles, one after another; NULL if unknown
-- waves DOUBLE: blocks in the grid (or output tiles, if known) / blocks that fit on all SMs at once; NULL if
--   wave_lost_pct is NULL
-- rounds BIGINT: number of waves, with a partial last wave counted as a whole wave: ceil(waves), or more if
--   clusters leave SMs without blocks or blocks without tiles
-- wave_lost_pct DOUBLE: wave quantization: share of SM time lost in a partial last wave, or in blocks without
--   an output tile, %: 1 - waves / rounds, where rounds is ceil(waves) unless clusters are used; NULL if
--   wave_reason is given
-- wave_reason VARCHAR: why wave_lost_pct is NULL; NULL if wave_lost_pct is known
-- sm_idle_pct DOUBLE: measured mean idle time per SM, % of the busiest SM's active time; NULL if not
--   collected
-- padding_pct DOUBLE: tile quantization: share of the output tiles' area that lies outside the output matrix,
--   %: 1 - (M x N) / (area of the tiles of one batch entry); NULL if padding_reason is given
-- padding_reason VARCHAR: why padding_pct is NULL; NULL if padding_pct is known
-- lost_pct DOUBLE: combined loss from wave and tile quantization, %
-- larger_m BIGINT: M of the nearest larger problem without quantization loss (only full tiles and full waves
--   of whole clusters); NULL if tiles is NULL
-- larger_n BIGINT: N of the nearest larger problem without quantization loss
-- smaller_m BIGINT: M of the nearest smaller problem without quantization loss; NULL if no such problem
--   exists
-- smaller_n BIGINT: N of the nearest smaller problem without quantization loss
CREATE VIEW gemm_quantisation AS
WITH reasoned AS (
    SELECT
        *,
        'not collected; use ncu --section LaunchStats --section Occupancy' AS not_collected,
        CASE
            WHEN slots IS NULL OR blocks IS NULL THEN not_collected
            WHEN stream_k THEN 'stream-K: all blocks share the work evenly, regardless of tiles'
            WHEN tiles IS NULL AND fills_the_gpu THEN
                'the grid fills the GPU once: blocks may take an unknown number of tiles (persistent kernel)'
        END AS wave_reason,
        CASE
            WHEN tile_m IS NULL THEN 'the kernel name, its NVTX range and the parameters contain no tile size'
            WHEN m IS NULL
                THEN 'M and N are unknown, because neither an NVTX range nor a parameter contains them'
            WHEN slots IS NULL OR blocks IS NULL THEN not_collected
            WHEN tiles IS NULL
                THEN 'the grid does not match M x N for this tile size, or matches it in several ways'
        END AS padding_reason,
        coalesce(tiles * slices, blocks) AS work,
        ceil(
            coalesce(places * slices, blocks) / nullif(CASE WHEN persistent THEN blocks ELSE resident END, 0)
        )::BIGINT AS all_rounds,
        -- A persistent kernel may leave room on every SM; if so, only its own blocks run concurrently.
        CASE WHEN persistent AND blocks % nullif(sm_count, 0) = 0 THEN blocks ELSE slots END AS at_once
    FROM _gemm_blocks
),
lost AS (
    SELECT
        *,
        CASE WHEN wave_reason IS NULL THEN all_rounds END AS rounds,
        CASE WHEN wave_reason IS NULL THEN work / nullif(at_once, 0) END AS waves,
        CASE WHEN wave_reason IS NULL THEN 1 - work / nullif(all_rounds * at_once, 0) END AS wave_lost,
        CASE
            WHEN padding_reason IS NULL THEN 1 - m * n / nullif(tiles_m * along_m * tiles_n * along_n, 0)
        END AS padding
    FROM reasoned
),
candidates AS (
    SELECT
        *,
        unnest(range(resident)) AS step
    FROM _gemm_blocks
    -- A GPU holds far fewer blocks; more blocks indicate a damaged report.
    WHERE tiles IS NOT NULL AND resident BETWEEN 1 AND 1000000
),
rows_of_tiles AS (
    SELECT
        *,
        (ceil(tiles_m / cluster_along_m)::BIGINT + step) * cluster_along_m AS high_m,
        (m // along_m // cluster_along_m - step) * cluster_along_m AS low_m
    FROM candidates
),
larger AS (
    SELECT
        report_id,
        launch_id,
        high_m AS tiles_along_m,
        lcm(cluster_along_n, resident // gcd(resident, batch * slices * high_m)) AS unit,
        ceil(tiles_n / unit)::BIGINT * unit AS tiles_along_n,
        along_m,
        along_n
    FROM rows_of_tiles
),
smaller AS (
    SELECT
        report_id,
        launch_id,
        low_m AS tiles_along_m,
        lcm(cluster_along_n, resident // gcd(resident, batch * slices * low_m)) AS unit,
        n // along_n // unit * unit AS tiles_along_n,
        along_m,
        along_n
    FROM rows_of_tiles
    WHERE low_m > 0
),
chosen_larger AS (
    SELECT
        report_id,
        launch_id,
        arg_min(
            {m: tiles_along_m * along_m, n: tiles_along_n * along_n},
            (tiles_along_m * tiles_along_n, tiles_along_m)
        ) AS shape
    FROM larger
    GROUP BY report_id, launch_id
),
chosen_smaller AS (
    SELECT
        report_id,
        launch_id,
        arg_max(
            {m: tiles_along_m * along_m, n: tiles_along_n * along_n},
            (tiles_along_m * tiles_along_n, tiles_along_m)
        ) AS shape
    FROM smaller
    WHERE tiles_along_n > 0
    GROUP BY report_id, launch_id
),
-- Nearest M and N, both larger or both smaller, with full tiles in full waves: the smallest larger area and
-- the largest smaller area. For each number of tiles along M, the number of tiles along N must be a multiple
-- of the number that completes a wave.
gemm_shapes AS (
    SELECT
        l.report_id,
        l.launch_id,
        l.shape.m AS larger_m,
        l.shape.n AS larger_n,
        s.shape.m AS smaller_m,
        s.shape.n AS smaller_n
    FROM chosen_larger AS l
    LEFT JOIN chosen_smaller AS s USING (report_id, launch_id)
)
SELECT
    g.report_id,
    g.launch_id,
    g.kernel_name,
    g.tile_m,
    g.tile_n,
    g.tile_k,
    g.tile_source,
    g.batch,
    g.m,
    g.n,
    g.k,
    g.problem_source,
    g.sm_count,
    g.blocks_per_sm,
    g.blocks,
    g.resident AS resident_blocks,
    g.tiles,
    g.persistent,
    g.waves,
    g.rounds,
    100 * g.wave_lost AS wave_lost_pct,
    g.wave_reason,
    100 * (1 - g.sm_active_cycles / nullif(g.sm_active_cycles_max, 0)) AS sm_idle_pct,
    100 * g.padding AS padding_pct,
    g.padding_reason,
    100 * (1 - (1 - g.wave_lost) * (1 - g.padding)) AS lost_pct,
    s.larger_m,
    s.larger_n,
    s.smaller_m,
    s.smaller_n
FROM lost AS g
LEFT JOIN gemm_shapes AS s ON s.report_id = g.report_id AND s.launch_id = g.launch_id AND NOT g.stream_k
ORDER BY g.report_id, g.launch_id;
