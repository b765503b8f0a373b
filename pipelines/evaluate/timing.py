"""Times a candidate and its baselines alternately, by the judge's clock, and checks their outputs.

A batch is a number of calls, each with its own inputs.  All processes of a candidate are stopped
while the inputs are written.  The clock runs from the moment when the process continues until its
results can be read here; the time of the same exchange without calls is subtracted.  A launch is a
process: the median of its batches is one sample, because calls of one process are not independent.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from perfpipe.analysis.gate.choosing import judge
from perfpipe.errors import InputError
from perfpipe.pipelines.evaluate.arena import Arena, Slot
from perfpipe.pipelines.evaluate.bounds import Bound
from perfpipe.pipelines.evaluate.checking import (
    POISONS,
    TWINS,
    Checks,
    raise_for,
    raise_for_places,
    raise_for_seen,
    synchronize,
    twin,
)
from perfpipe.pipelines.evaluate.problem import Case, Problem
from perfpipe.pipelines.evaluate.result import Evidence, Found, Score, Status
from perfpipe.pipelines.evaluate.worker import Ended, Worker

#: Fewest and most calls of a batch.
CALLS = (4, 64)

#: Elements of each output that are read before the clock stops, on a GPU.
_PROBED = 16

#: Outputs of a batch that are checked, of a candidate and of a baseline: a random choice that a
#: candidate cannot know.
_CHECKED, _SAMPLED = 8, 2

#: Batches up to this size, bytes, have all outputs checked.
_SMALL = 64 << 20

#: A stream misses work if its events show less than this share of the time, and the difference is
#: at least this long, ms.
_MISSED, _MISSED_MS = 0.6, 0.3

#: Exchanges without calls per batch (the shortest of a launch is subtracted), and the least time
#: of the calls beyond it, as a share of it.
_EXCHANGES, _RESOLVED = 5, 0.5

#: Verdicts of the gate, as a candidate earns them.
_VERDICTS = {"improved": "faster", "regressed": "slower"}


class TooShort(Exception):
    """Calls are no longer than the subtracted overhead."""


@dataclass
class Side:
    """A process while it is timed; the candidate's has no name, baselines have theirs."""

    name: str
    worker: Worker
    checks: Checks
    events: list[float] = field(default_factory=list)


class Timing:
    """Timing of one case on shared memory that a batch fits into."""

    def __init__(
        self, torch: Any, problem: Problem, arena: Arena, case: Case, budget: int, seed: int
    ) -> None:
        self._torch, self._problem, self._arena, self._case = torch, problem, arena, case
        self._random = random.Random(seed)  # noqa: S311
        made = problem.inputs(case), problem.outputs(case)
        size = arena.slot(*made, 0).end
        self.calls = max(CALLS[0], min(CALLS[1], min(budget, arena.size) // max(1, size)))
        self._slots: list[Slot] = []
        for _ in range(self.calls):
            self._slots.append(arena.slot(*made, self._slots[-1].end if self._slots else 0))
        self.bytes = self._slots[-1].end
        self._probes = self._probed()

    def prepare(self, side: Side) -> None:
        """Let a process make the tensors of a batch."""
        side.worker.go_on()
        answer = side.worker.ask("prepare", calls=[slot.views() for slot in self._slots])
        raise_for(answer, None, self._problem)
        raise_for_seen(side.worker.seen)
        side.worker.stop()

    def nothing(self, worker: Worker) -> float:
        """Return the time of an exchange without calls, ms."""
        synchronize(self._torch, self._arena)
        return self._clocked(worker)[0]

    def batch(self, side: Side) -> float:
        """Return how long a batch takes on new inputs, ms; raises Found for a wrong output."""
        torch, problem, arena, case = self._torch, self._problem, self._arena, self._case
        seeds = [self._random.getrandbits(48) for _ in self._slots]
        # One call has the inputs of another one except for a few elements.
        one, other = self._random.sample(range(self.calls), 2)
        arena.fill(self._slots, POISONS[0])
        for number, slot in enumerate(self._slots):
            arena.write(slot, self._inputs(number, seeds, one, other))
        synchronize(torch, arena)
        ms, answer, early = self._clocked(side.worker)
        side.worker.stop()
        raise_for(answer, case, problem)
        raise_for_seen(side.worker.seen)
        if side.worker.others():
            text = "processes that it started run concurrently with the calls"
            raise Found(Status.CHEATING, Evidence("process", text, case=case.label))
        small = self.bytes <= _SMALL
        most = self.calls if small else min(self.calls, _SAMPLED if side.name else _CHECKED)
        for number in self._random.sample(range(self.calls), most):
            slot, inputs = self._slots[number], self._inputs(number, seeds, one, other)
            raise_for_places(arena, slot, inputs, case)
            side.checks.right(side.worker, case, slot, problem.exact(torch, case, inputs))
        if early is not None and not bool((early == arena.gather(self._probes)).all()):
            text = "outputs changed after the process had reported that its work was done"
            raise Found(Status.CHEATING, Evidence("late result", text, case=case.label))
        if (event := answer.get("event_ms")) is not None:
            side.events.append(float(event))
        return ms

    def finish(self, side: Side, ms: Sequence[float]) -> None:
        """Raise Found if functions were replaced, or events miss much of the time."""
        side.worker.go_on()
        raise_for(side.worker.ask("look"), None, self._problem)
        side.worker.stop()
        if not side.events:
            return
        event, whole = statistics.median(side.events), statistics.median(ms)
        if event < _MISSED * whole and whole - event > _MISSED_MS:
            text = f"events on the stream of the calls show only {event:.3f} of {whole:.3f} ms"
            raise Found(Status.CHEATING, Evidence("other streams", text, case=self._case.label))

    def resolved(self, ms: float, overhead: float) -> float:
        """Return the time of a call, ms; raises TooShort if the exchange hides it."""
        if ms - overhead < _RESOLVED * overhead:
            raise TooShort(
                f"{self._case.label}: too short to time: {self.calls} calls take {ms:.3g} ms, the "
                f"overhead without calls is {overhead:.3g} ms; use larger sizes"
            )
        return (ms - overhead) / self.calls

    def cache(self) -> str:
        """Return the state of the caches when a call begins."""
        if self._arena.device == "cpu":
            return f"not controlled: a batch is {self.bytes / 2**20:.1f} MiB"
        level = self._torch.cuda.get_device_properties(self._arena.device).L2_cache_size
        cold = "cold" if self.bytes > 2 * level else "may be warm"
        sizes = f"a batch is {self.bytes / 2**20:.0f} MiB, L2 {level / 2**20:.0f} MiB"
        return f"L2 {cold}: {sizes}"

    def _inputs(self, number: int, seeds: Sequence[int], one: int, other: int) -> list[Any]:
        if number == other:
            drawn = self._problem.drawn(self._torch, self._case, seeds[one], self._arena.device)
            return twin(self._torch, drawn, seeds[other], TWINS[seeds[other] % 2])
        return self._problem.drawn(self._torch, self._case, seeds[number], self._arena.device)

    def _clocked(self, worker: Worker) -> tuple[float, dict[str, Any], Any]:
        began = time.perf_counter_ns()
        worker.go_on()
        worker.say("go")
        answer = worker.hear()
        early = None if self._arena.device == "cpu" else self._arena.gather(self._probes)
        return (time.perf_counter_ns() - began) / 1e6, answer, early

    def _probed(self) -> Any:
        """Return offsets of random bytes of the outputs."""
        if self._arena.device == "cpu":
            return None
        return self._arena.on_device(
            [
                place.offset + self._random.randrange(place.bytes)
                for slot in self._slots
                for place in slot.outputs
                if place.bytes
                for _ in range(_PROBED)
            ]
        )


@contextmanager
def blamed(baseline: str) -> Iterator[None]:
    """Turn a failure of a baseline into an error for the caller; a candidate has no name."""
    try:
        yield
    except (Found, Ended) as error:
        if not baseline:
            raise
        raise InputError(f"the baseline {baseline} cannot be measured: {error}") from error


def timed_launch(
    timing: Timing, sides: Sequence[Side], empty: Worker, batches: int, turn: int
) -> dict[str, float]:
    """Return ms per call of each side, in processes that are stopped; sides alternate."""
    for side in sides:
        with blamed(side.name):
            timing.prepare(side)
    overheads: list[float] = []
    found: dict[str, list[float]] = {side.name: [] for side in sides}
    for number in range(batches + 1):
        for _ in range(_EXCHANGES):
            overheads.append(timing.nothing(empty))
            empty.stop()
        order = sides if (number + turn) % 2 == 0 else [*reversed(sides)]
        for side in order:
            with blamed(side.name):
                ms = timing.batch(side)
            if number:  # the first one warms up
                found[side.name].append(ms)
    overhead = min(overheads)
    for side in sides:
        with blamed(side.name):
            timing.finish(side, found[side.name])
    return {name: timing.resolved(statistics.median(ms), overhead) for name, ms in found.items()}


def score(
    timing: Timing,
    case: Case,
    against: str,
    samples: Mapping[str, Sequence[float]],
    bound: Bound,
    event_ms: float | None,
) -> Score:
    """Return the score against a baseline, by the statistics of the gate."""
    own, other = samples[""], samples[against]
    change, verdict = judge(other, own, interleaved=True)
    low, high = change.low, change.high
    if change.low is not None and not len(own) > 1:
        low = high = None
    median = statistics.median(own)
    return Score(
        case.label,
        against,
        tuple(own),
        tuple(other),
        1 / (1 + change.ratio),
        None if high is None else 1 / (1 + high),
        # A few launches allow hardly any conclusion.
        None if low is None or low <= -1 else 1 / (1 + low),
        _VERDICTS.get(verdict, verdict),
        timing.calls,
        timing.cache(),
        None if bound.ms is None else 100 * bound.ms / median,
        bound.why,
        event_ms,
    )
