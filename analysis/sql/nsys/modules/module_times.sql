-- GPU time of each PyTorch module, as a tree: kernels that the module launched itself, and those of the
-- modules in it. The forward and the backward pass are included. Kernels that belong to no module (optimizer,
-- loss functions), and kernels that could not be placed, are rows of their own, so that the rows of depth 0
-- add up to the time of all kernels. Timelines cover the analyzed window, reports of 'perfpipe run --modules'
-- the steps after the second one, or the whole capture if it has fewer than four steps.
-- @materialize
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- part VARCHAR: module, outside (operators outside of modules) or unplaced
-- model VARCHAR: class of the outermost module; NULL unless part is module
-- module VARCHAR: path of the module in the model, empty for the model itself; NULL unless part is module
-- class VARCHAR: class of the module; NULL if the module was never called, such as a list of layers
-- calls BIGINT: number of calls in the whole capture, in all processes; NULL if the module was never called
-- depth BIGINT: number of modules around the module, 0 for models
-- tree_order BIGINT: position of the row in the tree, from 0: models by time, the modules in a module in the
--   order of their first kernels
-- kernels BIGINT: number of kernel launches of the module itself
-- own_gpu_time_ns BIGINT: self time: GPU time of the module's own kernels, ns
-- gpu_time_ns BIGINT: total time: GPU time of the module and of all modules in it, ns
-- forward_ns BIGINT: part of gpu_time_ns in the forward pass, ns
-- backward_ns BIGINT: part of gpu_time_ns in the backward pass, ns
-- optimizer_ns BIGINT: part of gpu_time_ns in the optimizer, ns
-- share_pct DOUBLE: gpu_time_ns as a percentage of the time of all kernels
CREATE VIEW module_times AS
WITH sums AS (
    SELECT
        report_id,
        device,
        CASE
            WHEN module IS NOT NULL THEN 'module'
            WHEN how = 'outside' THEN 'outside'
            ELSE 'unplaced'
        END AS part,
        model,
        module,
        min(op_id) AS first,
        count(*) AS kernels,
        coalesce(sum(dur_ns), 0)::BIGINT AS ns,
        coalesce(sum(dur_ns) FILTER (phase = 'forward'), 0)::BIGINT AS forward_ns,
        coalesce(sum(dur_ns) FILTER (phase = 'backward'), 0)::BIGINT AS backward_ns,
        coalesce(sum(dur_ns) FILTER (phase = 'optimizer'), 0)::BIGINT AS optimizer_ns
    FROM _covered_modules
    GROUP BY ALL
),
parts AS (
    SELECT *, if(module = '', [], string_split(module, '.')) AS names
    FROM sums
    WHERE part = 'module'
),
-- Each module counts for the modules around it.
around AS (
    SELECT *, unnest(range(len(names) + 1)) AS depth
    FROM parts
),
modules AS (
    SELECT
        report_id,
        device,
        model,
        names[:depth] AS names,
        depth,
        min(first) AS first,
        coalesce(sum(kernels) FILTER (depth = len(names)), 0)::BIGINT AS kernels,
        coalesce(sum(ns) FILTER (depth = len(names)), 0)::BIGINT AS own_gpu_time_ns,
        sum(ns)::BIGINT AS gpu_time_ns,
        sum(forward_ns)::BIGINT AS forward_ns,
        sum(backward_ns)::BIGINT AS backward_ns,
        sum(optimizer_ns)::BIGINT AS optimizer_ns
    FROM around
    GROUP BY report_id, device, model, names[:depth], depth
),
-- Sort keys: the time of the model, the first kernels of the modules around each module, and its own.
places AS (
    SELECT
        m.report_id, m.device, m.model, m.names,
        list(if(o.depth = 0, -o.gpu_time_ns, o.first) ORDER BY o.depth) AS place
    FROM (SELECT *, unnest(range(depth + 1)) AS outer_depth FROM modules) AS m
    JOIN modules AS o
        ON o.report_id = m.report_id AND o.device = m.device AND o.model = m.model
            AND o.names = m.names[:m.outer_depth]
    GROUP BY ALL
),
-- A module and its wrapper, such as DistributedDataParallel, have the same path.
called AS (
    SELECT report_id, model, module, string_agg(class, ', ' ORDER BY class) AS class, max(calls) AS calls
    FROM module_calls
    GROUP BY ALL
),
rows AS (
    SELECT
        m.* EXCLUDE (names, first), 'module' AS part, array_to_string(m.names, '.') AS module, p.place,
        c.class, c.calls
    FROM modules AS m
    JOIN places AS p USING (report_id, device, model, names)
    LEFT JOIN called AS c
        ON c.report_id = m.report_id AND c.model = m.model AND c.module = array_to_string(m.names, '.')
    UNION ALL BY NAME
    SELECT
        report_id, device, part, 0 AS depth, kernels, ns AS own_gpu_time_ns, ns AS gpu_time_ns, forward_ns,
        backward_ns, optimizer_ns
    FROM sums
    WHERE part != 'module'
)
SELECT
    report_id,
    device,
    part,
    model,
    module,
    class,
    calls,
    depth,
    row_number() OVER (
        PARTITION BY report_id, device
        ORDER BY array_position(['module', 'outside', 'unplaced'], part), place[1], model, place
    ) - 1 AS tree_order,
    kernels,
    own_gpu_time_ns,
    gpu_time_ns,
    forward_ns,
    backward_ns,
    optimizer_ns,
    100.0 * gpu_time_ns / nullif(
        sum(if(depth = 0, gpu_time_ns, 0)) OVER (PARTITION BY report_id, device), 0
    ) AS share_pct
FROM rows
ORDER BY report_id, device, tree_order;
