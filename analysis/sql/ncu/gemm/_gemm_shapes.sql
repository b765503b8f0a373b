-- The nearest M and N, both larger or both smaller, whose tiles fill the resident blocks a whole number of
-- times and are full: least or most area.  For every number of tiles along M, the tiles along N must be a
-- multiple of what is missing to a whole number of rounds.
CREATE VIEW _gemm_shapes AS
WITH candidates AS (
    SELECT
        *,
        unnest(range(resident)) AS step
    FROM _gemm_blocks
    -- A GPU holds far fewer blocks: more are those of a damaged report.
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
)
SELECT
    l.report_id,
    l.launch_id,
    l.shape.m AS larger_m,
    l.shape.n AS larger_n,
    s.shape.m AS smaller_m,
    s.shape.n AS smaller_n
FROM chosen_larger AS l
LEFT JOIN chosen_smaller AS s USING (report_id, launch_id);
