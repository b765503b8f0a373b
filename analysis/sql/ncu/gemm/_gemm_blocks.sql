-- Blocks of each matrix product, the number of blocks that fit on the GPU at once, and the output tiles if M
-- and N are known and match the grid. The grid has either one block per tile (in whole clusters), or fewer
-- blocks, which fill the GPU and process several tiles each. A kernel may swap M and N, as cuBLAS does with
-- row-major operands, so both orders are tried. The tiles are known if both orders give the same result, or
-- if only one order fits the grid. A grid that fills the GPU once (fills_the_gpu), with one or more blocks on
-- every SM, may belong to a persistent kernel.
CREATE VIEW _gemm_blocks AS
WITH launches AS (
    SELECT
        g.*,
        l.kernel_name,
        l.grid_x * l.grid_y * l.grid_z AS blocks,
        w.sm_count::BIGINT AS sm_count,
        o.blocks_per_sm,
        w.sm_count::BIGINT * o.blocks_per_sm AS slots,
        CASE
            WHEN w.cluster_size > 1 AND w.cluster_max_active > 0 THEN least(
                (w.cluster_max_active * w.cluster_size)::BIGINT,
                w.sm_count::BIGINT * o.blocks_per_sm
            )
            ELSE w.sm_count::BIGINT * o.blocks_per_sm
        END AS resident,
        w.sm_active_cycles,
        w.sm_active_cycles_max,
        NOT g.one_tile_a_block AND (
            blocks = resident OR (blocks <= resident AND blocks % nullif(w.sm_count::BIGINT, 0) = 0)
        ) AS fills_the_gpu
    FROM _gemm_launches AS g
    JOIN ncu_launches AS l USING (report_id, launch_id)
    JOIN kernel_metrics AS w USING (report_id, launch_id)
    JOIN kernel_occupancy AS o USING (report_id, launch_id)
),
ways AS (
    SELECT
        *,
        unnest([false, true]) AS swapped,
        unnest([tile_m, tile_n]) AS along_m,
        unnest([tile_n, tile_m]) AS along_n,
        unnest([cluster_m, cluster_n]) AS cluster_along_m,
        unnest([cluster_n, cluster_m]) AS cluster_along_n
    FROM launches
    WHERE m IS NOT NULL AND tile_m IS NOT NULL
),
tiled AS (
    SELECT *, ceil(m / along_m)::BIGINT AS tiles_m, ceil(n / along_n)::BIGINT AS tiles_n
    FROM ways
),
covered AS (
    SELECT
        *,
        batch * tiles_m * tiles_n AS tiles,
        -- Clusters are complete, so those at the edge may have blocks without a tile.
        batch * ceil(tiles_m / cluster_along_m)::BIGINT * cluster_along_m
            * ceil(tiles_n / cluster_along_n)::BIGINT * cluster_along_n AS places
    FROM tiled
),
fitting AS (
    SELECT
        *,
        CASE WHEN split_k AND blocks % nullif(places, 0) = 0 THEN blocks // places ELSE 1 END AS slices,
        fills_the_gpu AND places > blocks AS persistent
    FROM covered
    WHERE
        blocks = places
        OR (split_k AND blocks % nullif(places, 0) = 0)
        OR (fills_the_gpu AND places > blocks)
),
known AS (
    SELECT report_id, launch_id
    FROM fitting
    GROUP BY report_id, launch_id
    HAVING count(DISTINCT {tiles: tiles, places: places, area: tiles_m * along_m * tiles_n * along_n}) = 1
)
SELECT
    l.*,
    f.swapped,
    f.along_m,
    f.along_n,
    f.cluster_along_m,
    f.cluster_along_n,
    f.tiles_m,
    f.tiles_n,
    f.tiles,
    f.places,
    f.slices,
    CASE WHEN f.launch_id IS NOT NULL THEN f.persistent END AS persistent
FROM launches AS l
LEFT JOIN (
    SELECT *
    FROM fitting
    SEMI JOIN known USING (report_id, launch_id)
    QUALIFY row_number() OVER (PARTITION BY report_id, launch_id ORDER BY swapped) = 1
) AS f USING (report_id, launch_id);
