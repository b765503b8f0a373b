"""Launches the program without a profiler, for validation and timing."""

from __future__ import annotations

import signal
from dataclasses import replace

from perfpipe.pipelines.collectors.base import TIMED_OUT, Context, ProgramFailed, check
from perfpipe.pipelines.collectors.nvml import Samples, sampling
from perfpipe.pipelines.protocol import ProgramOutput
from perfpipe.runrecord import TaskResult

#: How long a program may take to end after an interrupt, s.
_GRACE_S = 10.0

#: Exit codes of `timeout` after it interrupted or killed a program.
_ENDED = (TIMED_OUT, -signal.SIGKILL, 128 + signal.SIGKILL)


class Timing:
    """The launches of one task without a profiler; launches of several tasks may alternate."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._launches: list[ProgramOutput] = []
        self._seconds: list[float] = []
        self._samples = Samples()
        self._ended_after_s: float | None = None

    def launch(self) -> None:
        """Launch the program once; raises ProgramFailed if it fails or its result is wrong."""
        context, workload = self._context, self._context.workload
        wanted = workload.collect.nvml if context.launcher.here else None
        said = ProgramOutput()
        log = "plain" if workload.launches == 1 else f"plain-{len(self._launches)}"
        with sampling(wanted, context.into, workload.env, self._samples):
            finished = context.launch("plain", log=log, on_line=said.feed, grace_s=_GRACE_S)
            self._seconds.append(finished.seconds)
            self._launches.append(said)
            _judge(said)
            if context.ended_early(finished) and finished.returncode in _ENDED:
                self._ended_after_s = workload.duration
            else:
                check(finished, "the program", workload.timeout, kind="crash")

    def result(self, result: TaskResult) -> TaskResult:
        """Return a result with times, validation and the GPU's state.

        `times_ms` are the samples of all launches in order, `launches_ms` those of each.
        """
        first = self._launches[0]
        return replace(
            result,
            times_ms=tuple(ms for said in self._launches for ms in said.times_ms),
            launches_ms=tuple(tuple(said.times_ms) for said in self._launches),
            timing_method=first.method,
            seconds=tuple(self._seconds),
            ended_after_s=self._ended_after_s,
            validation=first.validation,
            kernel=first.kernel,
            software=first.software,
            gpu_state=self._samples.summary(),
        )


def _judge(said: ProgramOutput) -> None:
    if said.out_of_resources is not None:
        raise ProgramFailed("out_of_resources", f"out of resources: {said.out_of_resources}")
    if said.validation is not None and not said.validation.ok:
        raise ProgramFailed(
            "wrong_result",
            f"wrong result (largest error {_short(said.validation.max_abs_error)}); "
            "neither timed nor profiled",
        )


def _short(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"
