-- Whose lines allocated the memory that was in use at the peak of a memory snapshot, by what it is for.
-- @materialize
--
-- report_id VARCHAR: report
-- device BIGINT: index of the GPU in PyTorch
-- category VARCHAR: parameters, gradients, optimizer state, activations, or temporary (released by the pass
--   that allocated it); forward and backward were still in use at the end in the pass that allocated them;
--   earlier was allocated before the first event, without a stack; unknown: no pass says what it is for
-- file VARCHAR: file of the innermost frame of the program itself; NULL if the stack has none
-- line BIGINT: line of this frame
-- function VARCHAR: function of this frame
-- library VARCHAR: library other than PyTorch that this line called
-- library_file VARCHAR: file of the innermost frame of this library
-- library_line BIGINT: line of this frame
-- modules VARCHAR: lines of the forward functions of modules that were running, outermost first
-- operator VARCHAR: operator of ATen that allocated, or node of the backward graph; NULL without frames of
--   C++
-- peak_bytes BIGINT: memory in use at the peak, bytes
-- peak_pct DOUBLE: share of the peak, %
-- peak_blocks BIGINT: number of these allocations
-- end_bytes BIGINT: memory in use at the end, bytes
-- allocations BIGINT: number of all allocations of this line
-- stack VARCHAR: frames of Python of the largest allocation, innermost first
CREATE VIEW snapshot_owners AS
WITH owned AS (
    SELECT
        l.report_id, l.device, l.category, s.file, s.line, s.function, s.library, s.library_file,
        s.library_line, s.modules, s.stack,
        coalesce(s.node, s.operator) AS operator,
        l.bytes,
        coalesce(l.start_event, -1) <= p.peak_event
            AND (l.end_event IS NULL OR l.end_event > p.peak_event) AS at_peak,
        l.end_event IS NULL AS at_end,
        p.peak_bytes AS total,
        l.allocation_id
    FROM _snapshot_lives AS l
    JOIN snapshot_peak AS p ON p.report_id = l.report_id AND p.device = l.device
    LEFT JOIN snapshot_stacks AS s ON s.report_id = l.report_id AND s.stack_id = l.stack_id
)
SELECT
    report_id,
    device,
    category,
    file,
    line,
    function,
    library,
    library_file,
    library_line,
    arg_max(modules, (bytes, -allocation_id)) AS modules,
    operator,
    coalesce(sum(bytes) FILTER (at_peak), 0)::BIGINT AS peak_bytes,
    100 * coalesce(sum(bytes) FILTER (at_peak), 0)::BIGINT / nullif(any_value(total), 0) AS peak_pct,
    count(*) FILTER (at_peak) AS peak_blocks,
    coalesce(sum(bytes) FILTER (at_end), 0)::BIGINT AS end_bytes,
    count(*) AS allocations,
    arg_max(stack, (bytes, -allocation_id)) AS stack
FROM owned
GROUP BY report_id, device, category, file, line, function, library, library_file, library_line, operator
ORDER BY
    report_id, device, peak_bytes DESC, category, file, line, library_file, library_line, operator, function;
