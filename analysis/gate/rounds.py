"""Sides of a comparison from alternating rounds that are not in a store yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfpipe.analysis.facts import MACHINE, MODEL, facts_of
from perfpipe.analysis.judging import timer_step
from perfpipe.analysis.sides import Key, Measured, Side, clocks_of, own_time
from perfpipe.runrecord import TaskResult


@dataclass(frozen=True)
class Round:
    """The results of an arm in a round, one per configuration; `turn` counts launches."""

    turn: int
    results: tuple[TaskResult, ...]


def side_of_rounds(name: str, rounds: Sequence[Round], labels: Sequence[str]) -> Side:
    """Return the side of an arm: one time per round and configuration, from `own_time`.

    `labels` name the configurations, which may have different names in the two arms.
    """
    measured: dict[Key, Measured] = {}
    for one in rounds:
        for label, result in zip(labels, one.results, strict=True):
            if (timed := own_time(result)) is None:
                continue
            part, time = timed
            own = measured.setdefault(Key("", label, part), Measured())
            own.medians.append(time)
            own.totals.append(time)
            own.launches.append(1)
            sm_mhz, memory_mhz = clocks_of(result.gpu_state)
            own.sm_mhz.append(sm_mhz)
            own.memory_mhz.append(memory_mhz)
    seen = [time * 1e6 for one in rounds for result in one.results for time in result.times_ms]
    step = timer_step(seen)
    # Numbers instead of times: turns may follow one another within a second.
    began = tuple(f"{one.turn:09}" for one in rounds)
    timers = {} if step is None else {"": step}
    known = facts_of([one.results for one in rounds])
    models = frozenset(known.values(MACHINE, MODEL))
    return Side(measured, models, (name,), began, timers, facts=known)
