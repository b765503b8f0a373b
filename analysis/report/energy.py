"""The energy of a run in one sentence, for the facts on the first screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfpipe.analysis.thresholds import thresholds
from perfpipe.energyrecord import Energy
from perfpipe.runrecord import RunRecord, TaskResult
from perfpipe.units import counted, format_joules, format_ns
from perfpipe.viewmodel import Fact, Source


def energy_of(run: RunRecord) -> Iterator[Fact]:
    """Yield the energy of a run's steps and executions; nothing for a run without GPUs."""
    tasks = [task for task in run.tasks if task.done and task.energy and task.energy.gpus]
    found = [task.energy for task in tasks if task.energy]
    if found:
        text = _one(found[0], tasks[0]) if len(found) == 1 else _several(found)
        yield Fact("Energy", text, Source("run_tasks", (run.run_id,)))


def _one(energy: Energy, task: TaskResult) -> str:
    step, launch = energy.step_energy_j, energy.energy_j
    if step is None and launch is None:
        return f"unknown: {energy.missing or energy.steps_missing}"
    parts = []
    if step is not None:
        parts.append(f"{format_joules(step)} per {energy.unit}")
    if launch is not None:
        parts.append(f"{format_joules(launch)} per execution{_average(energy)}")
    text = f"{', '.join(parts)}; {energy.source}, {_gpus(energy)}"
    beside = (task.gpu_state.neighbors if task.gpu_state else None) or 0
    text += f"; includes {counted(beside, 'other process')} on the GPU" if beside else ""
    if launch is None and energy.missing:
        text += f"; per execution unknown: {energy.missing}"
    if step is None and energy.steps_missing:
        text += f"; per step unknown: {energy.steps_missing}"
    return text + _check(energy)


def _average(energy: Energy) -> str:
    """Return the average power of an execution, and its idle power."""
    watts, window_s = energy.mean_power_w, energy.energy_window_s
    if watts is None or window_s is None:
        return ""
    text = f"{watts:,.0f} W on average over {format_ns(1e9 * window_s)}"
    if energy.idle_w is not None:
        idle = f"{energy.idle_w:,.0f} W x {format_ns(1e9 * window_s)} are idle power"
        text += f", of which {idle}"
    return f" ({text})"


def _gpus(energy: Energy) -> str:
    idle = f" ({energy.idle_gpus} idle)" if energy.idle_gpus and energy.gpus > 1 else ""
    return f"{counted(energy.gpus, 'GPU')}{idle}"


def _check(energy: Energy) -> str:
    """Return what power samples give if they differ from the counter."""
    counter, sampled = energy.energy_j, energy.sampled_energy_j
    if counter is None or sampled is None:
        return ""
    if abs(sampled / counter - 1) * 100 < thresholds()["energy.differ_pct"]:
        return ""
    return f"; power samples give {format_joules(sampled)} per execution instead"


def _several(found: Sequence[Energy]) -> str:
    """Return the range of the configurations, as far as they are known."""
    kinds = {
        f"per {next((own.unit for own in found if own.unit), 'step')}": [
            own.step_energy_j for own in found
        ],
        "per execution": [own.energy_j for own in found],
    }
    parts = []
    for what, every in kinds.items():
        known = sorted(joules for joules in every if joules is not None)
        if known:
            ends = dict.fromkeys((format_joules(known[0]), format_joules(known[-1])))
            of = f" ({len(known)} of {len(every)} configurations)" if None in every else ""
            parts.append(f"{' to '.join(ends)} {what}{of}")
    if not parts:
        return f"unknown: {found[0].missing or found[0].steps_missing}"
    sources = ", ".join(dict.fromkeys(own.source for own in found if own.source))
    return f"{', '.join(parts)}; {sources}"
