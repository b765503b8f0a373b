-- GPUs that idle because the host decides after each iteration how the work goes on: it reads values back,
-- compares them, and launches the next iteration.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- size VARCHAR: small if the GPU is busy for less than 5 % of the steady steps, so that a CPU may be as fast;
--   else large
-- kind VARCHAR: kind of the loop: xla (a while loop of XLA), iterations (a loop within the step whose number
--   of iterations varies, such as an adaptive solver or an optimizer) or exchange (each step sends a few
--   bytes to the GPU and waits for the result, as optimizers and simulations on the host do)
-- idle_ns BIGINT: idle time of the GPU in the steady steps, without module loading and waits that the loop
--   does not cause, ns
-- share_pct DOUBLE: idle_ns as a percentage of the steady steps
-- busy_pct DOUBLE: percentage of the steady steps during which the GPU is busy
-- copies BIGINT: number of small copies to the host for which the host waits
-- per_step DOUBLE: number of these copies per step
-- max_bytes BIGINT: size of the largest of these copies, bytes
-- sent_bytes BIGINT: size of the largest copy to the GPU in the steps, bytes; NULL if there is none
-- fewest BIGINT: smallest number of inner iterations per outer iteration; NULL unless `kind` is iterations
-- most BIGINT: largest number of inner iterations per outer iteration; NULL unless `kind` is iterations
/* finding
claim = "host_loop"
says = "waits for a loop on the host, which reads values back to decide how to go on"
evidence = """\
{% if kind == 'xla' %}XLA's while loop copies its condition to the host in each iteration: \
{% elif kind == 'exchange' %}each step sends up to {{ sent_bytes }} B to the GPU and waits for the result: \
{% elif fewest < most %}an inner loop runs {{ fewest }} to {{ most }} times: \
{% else %}the number of inner iterations varies: {% endif %}\
the host waits for {{ copies | counted('copy') }} of up to {{ max_bytes }} B \
({{ '%.1f' | format(per_step) }} per step); the GPU is idle for {{ share }} and busy for \
{{ '%.0f' | format(busy_pct) }} %"""
category = "sync"
question = "SELECT kind, copies, per_step, max_bytes, fewest, most, busy_pct FROM loop_findings"
each = "size"

[columns]
time_ns = "idle_ns"
launches = "copies"

[words]
small = "a loop on the host that hardly uses the GPU"
large = "a loop on the host"

[techniques.on_the_cpu]
technique = "Try the CPU for this small problem"
detail = """\
Kernels take only a few per cent of a step. The rest is launching, copying and waiting, which a CPU does \
not need. Run the same program on the CPU (device = "cpu", JAX_PLATFORMS=cpu) and compare the times. The GPU \
pays off only if each iteration has more work."""
check_first = """\
The time of the program on the CPU with one thread and with several (many threads can be far slower on a \
small problem), and whether problems in production are as small as this one."""
of = "small"
difficulty = "low"
link = "https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/index.html"

[techniques.vectorized_problems]
technique = "Advance many problems in each iteration: batch chains, restarts, samples or environments"
detail = """\
An iteration costs about the same for one small problem and for hundreds. Run the chains of a sampler, the \
restarts of an optimizer, the trajectories of a solver or the environments of a simulation as one batch \
(numpyro: chain_method="vectorized"; jax.vmap; torch.func.vmap; BoTorch: more restarts in one batch)."""
check_first = """\
How many independent problems there are, and whether a batch needs many more iterations than its members \
(a batch ends with its slowest member)."""
difficulty = "medium"
link = "https://docs.nvidia.com/deeplearning/performance/dl-performance-gpu-background/index.html"

[techniques.fixed_iterations]
technique = "Fix the number of iterations, or check the condition only every few iterations"
detail = """\
Each readback makes the host wait for the GPU, and a loop with unknown length cannot be a CUDA graph. Use a \
solver with fixed steps (torchdiffeq: method="rk4" with step_size), jax.lax.fori_loop or scan with a static \
length, a check of convergence every few iterations, or a conditional node of a CUDA graph that decides on \
the GPU. A library that owns the loop may have an option for it; otherwise no change is known that keeps the \
results the same."""
check_first = """\
Whether accuracy allows a fixed number of iterations, and which library owns the loop (Python stacks: py-spy \
dump)."""
difficulty = "medium"
link = "https://docs.nvidia.com/cuda/cuda-programming-guide/04-special-topics/cuda-graphs.html"
*/
CREATE VIEW loop_findings AS
SELECT
    h.report_id,
    h.device,
    if(h.busy_pct < threshold('timeline.small_problem_pct'), 'small', 'large') AS size,
    h.kind,
    (h.idle_pct / 100 * w.time_ns)::BIGINT AS idle_ns,
    h.idle_pct AS share_pct,
    h.busy_pct,
    h.copies,
    h.per_step,
    h.max_bytes,
    h.sent_bytes,
    h.fewest,
    h.most
FROM _host_loops AS h
JOIN analysis_windows AS w USING (report_id, device)
WHERE h.idle_pct >= threshold('timeline.contributor_pct')
ORDER BY h.report_id, h.device;
