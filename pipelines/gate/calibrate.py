"""Launches a workload against itself, and finds the calibration of compared runs."""

from __future__ import annotations

from collections.abc import Sequence

from perfpipe import calibrationrecord
from perfpipe.analysis.gate.calibrate import calibrate
from perfpipe.analysis.gate.judging import timer_step
from perfpipe.analysis.gate.order import seeded
from perfpipe.analysis.gate.timed import comparable
from perfpipe.analysis.thresholds import thresholds
from perfpipe.calibrationrecord import Calibrated, Calibration
from perfpipe.directories import storing
from perfpipe.errors import InputError, TaskFailed
from perfpipe.pipelines.console import Progress
from perfpipe.pipelines.gate.arms import Arm
from perfpipe.pipelines.gate.turns import in_turns, measuring
from perfpipe.pipelines.place import machine
from perfpipe.pipelines.runs import failure_of
from perfpipe.provenance import utc_now
from perfpipe.runrecord import RunRecord, TaskResult
from perfpipe.store import Store


def calibrated(
    arm: Arm, store: Store, rounds: int, progress: Progress, *, usual_rounds: int, change_pct: float
) -> Calibration:
    """Launch a workload as both arms of a comparison, and keep the result.

    `usual_rounds` are those in use now.  Raises InputError if programs do not run on this
    machine, TaskFailed if a launch fails.
    """
    where = machine_of(arm)
    if where is None:
        raise InputError(
            f"{arm.path}: the programs run on another machine; calibrate on that machine"
        )
    with measuring((arm, arm), store, progress) as sides:
        for done in in_turns(sides, rounds, seeded(None)):
            for side in sides:
                if side.failures:
                    raise TaskFailed(failure_of(side.failures[0]))
            progress.step(f"round {done}")
    turns = sorted((one for side in sides for one in side.rounds), key=lambda one: one.turn)
    configurations = tuple(
        _calibrated(own, usual_rounds, change_pct)
        for own in zip(*comparable([one.results for one in turns]), strict=True)
    )
    runs = tuple(run for side in sides for run in side.runs)
    name = arm.workload.name
    found = Calibration(name, where, utc_now(), change_pct, runs, configurations)
    path = calibrationrecord.path_of(store.root, name, where)
    with storing(path):
        calibrationrecord.write(store.root, found)
    return found


def _calibrated(results: Sequence[TaskResult], rounds: int, change_pct: float) -> Calibrated:
    """Calibrate a configuration from its results, in the order of launches."""
    launches = [
        result.times_ms or tuple(1e3 * seconds for seconds in result.seconds) for result in results
    ]
    if min(ms for own in launches for ms in own) <= 0:
        raise TaskFailed(f"{results[0].label}: times of 0 ms cannot be compared")
    step = timer_step(ms * 1e6 for own in launches for ms in own)
    step_ns = thresholds()["compare.timer_ns"] if step is None else step
    return calibrate(
        results[0].label,
        launches,
        rounds=rounds,
        change_pct=change_pct,
        resolution_ms=step_ns / 1e6,
    )


def machine_of(arm: Arm) -> str | None:
    """Return the kind of machine that an arm runs on; None if it is not this one."""
    execution = arm.workload.execution
    return machine(arm.workload.env) if execution.kind == "local" else None


def calibration_for(
    arm: Arm, store: Store, carried: Calibration | None = None
) -> Calibration | None:
    """Return the calibration of an arm's workload on this machine, if there is one.

    The calibration of the store comes before one that an exported baseline carried here.
    """
    where = machine_of(arm)
    return _calibration(store, arm.workload.name, where, carried) if where else None


def calibration_of(
    store: Store, runs: Sequence[RunRecord], carried: Calibration | None = None
) -> Calibration | None:
    """Return the calibration of the workload of some runs on the machine where they all ran.

    The calibration of the store comes before one that an exported baseline carried here.
    """
    names = {run.workload for run in runs}
    machines = {task.ran and task.ran.machine for run in runs for task in run.tasks}
    if len(names) != 1 or len(machines) != 1 or None in machines:
        return None
    return _calibration(store, names.pop(), machines.pop() or "", carried)


def _calibration(
    store: Store, workload: str, machine: str, carried: Calibration | None
) -> Calibration | None:
    if own := calibrationrecord.read(store.root, workload, machine):
        return own
    fits = carried is not None and (carried.workload, carried.machine) == (workload, machine)
    return carried if fits else None
