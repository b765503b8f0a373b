"""Launches the program without a profiler: it checks its result and says its times."""

from __future__ import annotations

from typing import Any

from pipelines.collectors.base import Context, ProgramFailed, check
from pipelines.collectors.nvml import sampling
from pipelines.protocol import Said
from pipelines.workload import CollectNvml


def time_task(context: Context, nvml: CollectNvml | None) -> dict[str, Any]:
    """Return times, validation and the GPU's state of a task, by the keys of a result.

    `times_ms` are the samples of all launches in order, `launches_ms` those of each.  Raises
    ProgramFailed where the program fails or its result is wrong; nothing is profiled then.
    """
    workload = context.workload
    launches: list[Said] = []
    seconds = []
    with sampling(nvml if context.launcher.here else None, context.into) as state:
        for index in range(workload.launches):
            said = Said()
            log = "plain" if workload.launches == 1 else f"plain-{index}"
            finished = context.launch("plain", log=log, on_line=said.hear)
            seconds.append(finished.seconds)
            launches.append(said)
            _judge(said)
            check(finished, "the program", workload.timeout, kind="crash")
    first = launches[0]
    return {
        "times_ms": [ms for said in launches for ms in said.times_ms],
        "launches_ms": [said.times_ms for said in launches],
        "timing_method": first.method,
        "seconds": seconds,
        "validation": first.validation,
        "kernel": first.kernel,
        "software": first.software,
        "gpu_state": state.summary(),
    }


def _judge(said: Said) -> None:
    if said.out_of_resources is not None:
        raise ProgramFailed("out_of_resources", f"out of resources: {said.out_of_resources}")
    if said.validation is not None and not said.validation.get("ok"):
        raise ProgramFailed(
            "wrong_result",
            f"wrong result (largest error {_short(said.validation.get('max_abs_error'))}); "
            "not timed, not profiled",
        )


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, (int, float)) else "unknown"
