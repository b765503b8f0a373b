"""Launches the program without a profiler, for validation and timing."""

from __future__ import annotations

import signal
from dataclasses import replace

from perfpipe.energyrecord import Energy, together
from perfpipe.pipelines.collectors.base import TIMED_OUT, Context, ProgramFailed, check
from perfpipe.pipelines.collectors.energy import Meter, metering
from perfpipe.pipelines.collectors.nvml import Samples, sampling
from perfpipe.pipelines.collectors.observing import Steps, observing
from perfpipe.pipelines.protocol import ProgramOutput
from perfpipe.runrecord import INVALID_TIME, OBSERVED, TaskResult

#: How long a program may take to end after an interrupt, s.
_GRACE_S = 10.0

#: Exit codes of `timeout` after it interrupted or killed a program.
_ENDED = (TIMED_OUT, -signal.SIGKILL, 128 + signal.SIGKILL)


class Timing:
    """The launches of one task without a profiler; launches of several tasks may alternate."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._launches: list[ProgramOutput] = []
        self._observed: list[Steps] = []
        self._seconds: list[float] = []
        self._samples = Samples()
        self._energy: list[Energy] = []
        self._ended_after_s: float | None = None

    def launch(self) -> None:
        """Launch the program once; raises ProgramFailed if it fails or its result is wrong."""
        context, workload = self._context, self._context.workload
        wanted = workload.collect.nvml if context.launcher.here else None
        said = ProgramOutput()
        log = "plain" if workload.launches == 1 else f"plain-{len(self._launches)}"
        observe = workload.collect.observe and context.launcher.here
        with observing(workload.env, observe) as observer:
            with (
                sampling(wanted, context.into, workload.env, self._samples),
                metering(workload.env, wanted is not None) as meter,
            ):
                env = observer.env if observer else None
                finished = context.launch(
                    "plain", log=log, env=env, on_line=said.feed, grace_s=_GRACE_S
                )
            self._seconds.append(finished.seconds)
            self._launches.append(said)
            _judge(said)
            if context.ended_early(finished) and finished.returncode in _ENDED:
                self._ended_after_s = workload.duration
            else:
                check(finished, "the program", workload.timeout, kind="crash")
            if said.invalid_times:
                raise ProgramFailed(
                    INVALID_TIME,
                    f"the program printed the time {said.invalid_times[0]}; a time is a number of "
                    "ms above 0",
                )
            steps = observer.steps(context.task.command) if observer else Steps()
            self._observed.append(steps)
        self._energy.append(_energy(meter, steps, self._ended_after_s))

    def result(self, result: TaskResult) -> TaskResult:
        """Return a result with times, validation, energy and the GPU's state.

        `times_ms` are the samples of all launches in order, `launches_ms` those of each: the times
        that the program printed, or else those of its steps that perfpipe observed.
        """
        first = self._launches[0]
        launches = [tuple(said.times_ms) for said in self._launches]
        method, notes = first.method, result.notes
        if not any(launches):
            launches = [steps.times_ms for steps in self._observed]
            method = OBSERVED if any(launches) else method
            notes += tuple({steps.note: None for steps in self._observed if steps.note})
        return replace(
            result,
            times_ms=tuple(ms for times in launches for ms in times),
            launches_ms=tuple(launches),
            timing_method=method,
            notes=notes,
            seconds=tuple(self._seconds),
            ended_after_s=self._ended_after_s,
            validation=first.validation,
            kernel=first.kernel,
            software=first.software,
            gpu_state=self._samples.summary(),
            energy=together(self._energy),
        )


def _energy(meter: Meter, steps: Steps, ended_after_s: float | None) -> Energy:
    """Return the energy of a launch; programs that see no GPU load no analysis."""
    if not meter.reads:
        return meter.unread()
    from perfpipe.analysis.energy import NO_STEPS, measured

    cut = None
    if ended_after_s is not None:
        cut = f"the program was stopped after {ended_after_s:g} s"
    no_steps = steps.note or NO_STEPS
    return measured(meter.readings(), steps.spans, steps.unit, cut=cut, no_steps=no_steps)


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
