-- Each kernel launch with the PyTorch module, operator and phase of the training step that launched it, from
-- reports of 'perfpipe run --modules' and from timelines with ranges of modules. The backward pass belongs to
-- the modules of the forward pass. CUDA graphs traced as a whole are one row per launch.
-- Kernels inside regions that torch.compile compiled belong to the module that was compiled, because such
-- regions have no ranges.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- op_id BIGINT: index of the operation in order of start time, from 0; for timelines as in launches
-- pid BIGINT: process id
-- start_ns BIGINT: start time on the GPU, ns
-- dur_ns BIGINT: duration, ns
-- name VARCHAR: full name of the kernel
-- step BIGINT: number of the step in which the kernel was launched, from 1; NULL outside of steps
-- model VARCHAR: class of the outermost module, with a number if several have this class
-- module VARCHAR: path of the module in the model, empty for the model itself; a path of classes if the
--   profiler did not record names; NULL outside of modules
-- class VARCHAR: class of the module
-- operator VARCHAR: innermost PyTorch operator; NULL if none was recorded
-- phase VARCHAR: forward, backward or optimizer; NULL if unknown
-- how VARCHAR: how the kernel was placed: range (the module was being called), sequence (backward pass of an
--   operator in the module, by PyTorch's sequence number), order (accumulates the gradient that the module's
--   backward pass has just computed), outside (its operator belongs to no module, such as the optimizer or a
--   loss function) or unplaced
CREATE VIEW kernel_modules AS
SELECT
    report_id, device, op_id, pid, start_ns, dur_ns, coalesce(demangled, name) AS name, step, model, module,
    class, operator, phase, coalesce(how, 'unplaced') AS how
FROM launch_modules
ORDER BY report_id, device, op_id;
