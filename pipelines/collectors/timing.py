"""Launches the program without a profiler, for validation and timing."""

from __future__ import annotations

from dataclasses import replace

from perfpipe.runrecord import TaskResult
from pipelines.collectors.base import Context, ProgramFailed, check
from pipelines.collectors.nvml import sampling
from pipelines.protocol import ProgramOutput
from pipelines.workload import CollectNvml


def time_task(context: Context, nvml: CollectNvml | None, result: TaskResult) -> TaskResult:
    """Return the result with times, validation and the GPU's state.

    `times_ms` are the samples of all launches in order, `launches_ms` those of each.  Raises
    ProgramFailed where the program fails or its result is wrong; nothing is profiled then.
    """
    workload = context.workload
    launches: list[ProgramOutput] = []
    seconds = []
    wanted = nvml if context.launcher.here else None
    with sampling(wanted, context.into, workload.env) as samples:
        for index in range(workload.launches):
            said = ProgramOutput()
            log = "plain" if workload.launches == 1 else f"plain-{index}"
            finished = context.launch("plain", log=log, on_line=said.feed)
            seconds.append(finished.seconds)
            launches.append(said)
            _judge(said)
            check(finished, "the program", workload.timeout, kind="crash")
    first = launches[0]
    return replace(
        result,
        times_ms=tuple(ms for said in launches for ms in said.times_ms),
        launches_ms=tuple(tuple(said.times_ms) for said in launches),
        timing_method=first.method,
        seconds=tuple(seconds),
        validation=first.validation,
        kernel=first.kernel,
        software=first.software,
        gpu_state=samples.summary(),
    )


def _judge(said: ProgramOutput) -> None:
    if said.out_of_resources is not None:
        raise ProgramFailed("out_of_resources", f"out of resources: {said.out_of_resources}")
    if said.validation is not None and not said.validation.ok:
        raise ProgramFailed(
            "wrong_result",
            f"wrong result (largest error {_short(said.validation.max_abs_error)}); "
            "not timed, not profiled",
        )


def _short(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"
