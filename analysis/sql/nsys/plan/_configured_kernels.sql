-- Kernel executions with a number for each combination that ncu distinguishes: name, grid, block and shared
-- memory. Numbers sort and join faster than names.
CREATE VIEW _configured_kernels AS
SELECT
    *,
    hash(
        coalesce(mangled, name), demangled, grid_x, grid_y, grid_z, block_x, block_y, block_z,
        static_smem + dynamic_smem
    ) AS config
FROM nsys_kernels;
