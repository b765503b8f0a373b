"""Times a candidate and its baselines alternately, by the judge's clock, and checks their outputs.

A batch is a number of calls, each with its own inputs.  All processes of a candidate are stopped
while the inputs are written.  The clock runs from the moment when the process continues until its
results can be read here; the time of the same exchange without calls is subtracted.  A launch is a
process: the median of its batches is one sample, because calls of one process are not independent.

A call that computes the results of later calls would make a batch faster than its calls are.
Memory cannot hide the later calls: whatever their addresses are, a process sees them in the next
batch.  Therefore the inputs of a call are not there before it: the judge replaces an element of
them by another one, and only the message that starts the batch has the true words, which the
harness writes immediately before each call (on a GPU, in the order of the stream).  The final
inputs are those that were drawn, so no input is invalid.  Results that are computed earlier,
wherever they are kept, belong to other inputs, and an early result cannot be mended without reading
all inputs once more.  All calls are alike, so neither a pause nor a sample of the inputs shows
which ones are late.  In one batch of a launch, at random, the calls come in two parts: the outputs
of the second part must still be untouched after the first.  A batch of one call, which is what
large inputs leave room for, has no later calls.
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
from perfpipe.pipelines.evaluate.arena import Arena, Slot, laid_out
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
from perfpipe.pipelines.evaluate.packets import WORD
from perfpipe.pipelines.evaluate.problem import LARGE, Case, Problem
from perfpipe.pipelines.evaluate.result import Evidence, Found, Score, Status
from perfpipe.pipelines.evaluate.worker import Ended, Worker

#: Most calls of a batch, and calls that it has even beyond its budget.
CALLS, _FEW = 64, 4

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

#: Other elements that are tried in the place of one.
_TRIES = 8

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


@dataclass(frozen=True)
class Draw:
    """How the inputs of a call are drawn; with `twin`, a few elements are changed by that seed."""

    seed: int
    twin: int | None = None


@dataclass(frozen=True)
class Late:
    """What the inputs of a call lack until it begins: words, as pairs of offset and value.

    `element` of `input` has the bytes `instead`.
    """

    words: Sequence[tuple[int, int]] = ()
    input: int | None = None
    element: int = 0
    instead: bytes = b""


def batch_of(one: int, budget: int, room: int) -> int:
    """Return how many calls of `one` bytes a batch has, at least one.

    As many as `budget` bytes hold; a few more if `room` bytes hold these.

    >>> batch_of(1 << 20, 64 << 20, 0), batch_of(1, 64 << 20, 0)
    (64, 64)
    >>> batch_of(1 << 30, 1 << 20, 5 << 30), batch_of(1 << 30, 1 << 20, 2 << 30)
    (4, 2)
    >>> batch_of(12 << 30, 8 << 30, 10 << 30)
    1
    """
    few = min(_FEW, room // max(1, one))
    return max(1, min(CALLS, budget // max(1, one)), few)


def misses(event: float, calls: float, spread: float) -> bool:
    """Return whether events miss much of the time of calls, ms; `spread` is what is uncertain.

    >>> misses(1.3, 2.4 - 1.0, 0.1), misses(0.2, 1.4, 0.1), misses(0.2, 1.4, 1.0)
    (False, True, False)
    """
    return event < _MISSED * calls and calls - event > _MISSED_MS + spread


class Timing:
    """Timing of one case on shared memory that a batch fits into."""

    def __init__(
        self, torch: Any, problem: Problem, arena: Arena, case: Case, budget: int, seed: int
    ) -> None:
        self._torch, self._problem, self._arena, self._case = torch, problem, arena, case
        self._random = random.Random(seed)  # noqa: S311
        made = problem.inputs(case), problem.outputs(case)
        one = laid_out(*made, 0).end
        self.calls = max(1, min(batch_of(one, budget, arena.size), arena.size // one))
        self._slots: list[Slot] = []
        for _ in range(self.calls):
            self._slots.append(laid_out(*made, self._slots[-1].end if self._slots else 0))
        self.bytes = self._slots[-1].end
        self._probes = self._probed()
        self._last: int | None = None

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

    def batch(self, side: Side, *, halved: bool = False) -> float:
        """Return how long a batch takes on new inputs, ms; raises Found for a wrong output.

        With `halved` the calls come in two parts, and what is returned is the time of the second.
        """
        arena, case = self._arena, self._case
        draws = self._draws()
        arena.fill(self._slots, POISONS[0])
        late = []
        for slot, draw in zip(self._slots, draws, strict=True):
            arena.write(slot, self._inputs(draw))
            late.append(self._withheld(slot))
        first = self._random.randrange(1, self.calls) if halved and self.calls > 1 else 0
        if first:
            self._part(side, late[:first], 0)
            if count := sum(arena.written(slot, POISONS[0]) for slot in self._slots[first:]):
                text = f"call {first} of {self.calls} also wrote {count} bytes of later outputs"
                raise Found(Status.CHEATING, Evidence("computed early", text, case=case.label))
        ms, answer, early = self._part(side, late[first:], first)
        small = self.bytes <= _SMALL
        most = self.calls if small else min(self.calls, _SAMPLED if side.name else _CHECKED)
        for number in self._random.sample(range(self.calls), most):
            self._check(side, number, draws[number], late[number])
        if early is not None and not bool((early == arena.gather(self._probes)).all()):
            text = "outputs changed after the process had reported that its work was done"
            raise Found(Status.CHEATING, Evidence("late result", text, case=case.label))
        if not first and (event := answer.get("event_ms")) is not None:
            side.events.append(float(event))
        return ms

    def _part(
        self, side: Side, late: Sequence[Late], first: int
    ) -> tuple[float, dict[str, Any], Any]:
        """Run calls from `first` on, and stop the process; return time, answer and probes."""
        if self.bytes > LARGE:
            self._arena.release()
        synchronize(self._torch, self._arena)
        found = self._clocked(side.worker, [one.words for one in late], first)
        side.worker.stop()
        raise_for(found[1], self._case, self._problem)
        raise_for_seen(side.worker.seen)
        if side.worker.others():
            text = "processes that it started run concurrently with the calls"
            raise Found(Status.CHEATING, Evidence("process", text, case=self._case.label))
        return found

    def _check(self, side: Side, number: int, draw: Draw, late: Late) -> None:
        """Raise Found unless a call left its inputs alone, and computed the right outputs."""
        torch, problem, case, slot = self._torch, self._problem, self._case, self._slots[number]
        inputs = self._inputs(draw)
        raise_for_places(self._arena, slot, inputs, case)
        try:
            side.checks.right(side.worker, case, slot, problem.expected(torch, case, inputs))
        except Found as found:
            if late.input is None or found.status not in (Status.WRONG, Status.CHEATING):
                raise
            value = inputs[late.input].view(-1)
            value[late.element] = torch.frombuffer(bytearray(late.instead), dtype=value.dtype)[0]
            if side.checks.matches(slot, problem.expected(torch, case, inputs)):
                text = f"computed before call {number + 1} began, when its inputs were incomplete"
                raise Found(
                    Status.CHEATING, Evidence("computed early", text, case=case.label)
                ) from found
            raise

    def one_of(self, batches: int) -> int:
        """Return the number of a batch at random, which the candidate cannot know."""
        return self._random.randint(1, batches)

    def finish(self, side: Side, ms: Sequence[float], overheads: Sequence[float]) -> None:
        """Raise Found if functions were replaced, or events miss much of the time, ms."""
        side.worker.go_on()
        raise_for(side.worker.ask("look"), None, self._problem)
        side.worker.stop()
        if not side.events:
            return
        event, calls = statistics.median(side.events), statistics.median(ms)
        calls -= statistics.median(overheads)
        if misses(event, calls, statistics.median(overheads) - min(overheads)):
            text = f"events on the stream of the calls show only {event:.3f} of {calls:.3f} ms"
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
        size = f"a batch is {self.bytes / 2**20:.1f} MiB"
        if self._arena.device == "cpu":
            return f"not controlled: {size}"
        level = self._torch.cuda.get_device_properties(self._arena.device).L2_cache_size
        size += f", L2 {level / 2**20:.0f} MiB"
        if self.bytes <= 2 * level:
            return f"L2 may be warm: {size}"
        if self.calls > 1:
            return f"L2 cold: {size}"
        part = 100 * level / self.bytes
        return f"L2 cold except for the inputs written last, at most {part:.1f} % of a call: {size}"

    def _draws(self) -> list[Draw]:
        """Return what the calls of a batch get.

        One call has the inputs of another one except for a few elements; in a batch of one call,
        the other one is in the batch before, every other time.
        """
        draws = [Draw(self._random.getrandbits(48)) for _ in self._slots]
        if self._problem.twins and self.calls > 1:
            one, other = self._random.sample(range(self.calls), 2)
            draws[other] = Draw(draws[one].seed, draws[other].seed)
        elif self._problem.twins and self._last is not None and self._random.random() < 0.5:
            draws[0] = Draw(self._last, draws[0].seed)
        self._last = draws[0].seed
        return draws

    def _inputs(self, draw: Draw) -> list[Any]:
        drawn = self._problem.drawn(self._torch, self._case, draw.seed, self._arena.device)
        if draw.twin is None:
            return drawn
        return twin(self._torch, drawn, draw.twin, TWINS[draw.twin % 2])

    def _withheld(self, slot: Slot) -> Late:
        """Replace an element of an input by another one, and return what makes it complete.

        Inputs that are all alike, and numbers, stay complete.
        """
        tensors = [number for number, place in enumerate(slot.inputs) if place.bytes]
        self._random.shuffle(tensors)
        for number in tensors:
            place, flat = slot.inputs[number], self._arena.tensor(slot.inputs[number]).view(-1)
            at = self._random.randrange(flat.numel())
            size = flat.element_size()
            words = self._arena.words(offset := place.offset + at * size, size)
            true = flat[at].clone()
            for _ in range(_TRIES):
                flat[at] = flat[self._random.randrange(flat.numel())]
                if not bool(flat[at] == true):
                    break
            else:
                if flat.is_floating_point():
                    flat[at] = true * 0.5 + (1 if bool(true == 3) else 1.5)
                elif len(others := (flat != true).nonzero()):
                    flat[at] = flat[others[self._random.randrange(len(others))]]
            if bool(flat[at] == true):
                continue
            first = offset // WORD * WORD
            pairs = [(first + WORD * n, word) for n, word in enumerate(words)]
            instead = bytes(flat[at : at + 1].view(self._torch.uint8).cpu().tolist())
            return Late(pairs, number, at, instead)
        return Late()

    def _clocked(
        self, worker: Worker, late: Sequence[Sequence[tuple[int, int]]] = (), first: int = 0
    ) -> tuple[float, dict[str, Any], Any]:
        began = time.perf_counter_ns()
        worker.go_on()
        worker.say("go", first=first, late=late)
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
    halved = timing.one_of(batches)
    for number in range(batches + 1):
        for _ in range(_EXCHANGES):
            overheads.append(timing.nothing(empty))
            empty.stop()
        if number == halved and timing.calls > 1:
            timing.batch(sides[0], halved=True)
        order = sides if (number + turn) % 2 == 0 else [*reversed(sides)]
        for side in order:
            with blamed(side.name):
                ms = timing.batch(side)
            if number:  # the first one warms up
                found[side.name].append(ms)
    overhead = min(overheads)
    for side in sides:
        with blamed(side.name):
            timing.finish(side, found[side.name], overheads)
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
