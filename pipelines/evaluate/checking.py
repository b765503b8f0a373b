"""Checks that a candidate is correct and does not cheat: over types, sizes, and odd inputs."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from perfpipe.pipelines.evaluate.arena import Arena, Slot, laid_out
from perfpipe.pipelines.evaluate.chunks import CHUNK, unequal
from perfpipe.pipelines.evaluate.expected import Expected
from perfpipe.pipelines.evaluate.problem import LARGE, Case, Problem
from perfpipe.pipelines.evaluate.result import Evidence, Found, Status, graded
from perfpipe.pipelines.evaluate.tolerance import Difference
from perfpipe.pipelines.evaluate.worker import Ended, Worker
from perfpipe.units import counted

#: Receives progress messages.
Say = Callable[[str], None]

#: How long a wrong result may take to become right without a call, s.
_LATE_S = 0.25

#: Earlier results that a wrong one is compared with.
_REMEMBERED = 12

#: The errors of a difference that are reported.
ERRORS = ("max_abs", "max_scaled", "max_relative")

#: How nearly equal inputs differ.
TWINS = ("swapped", "changed")

#: Whether the inputs are late when a call that went wrong with late inputs is repeated.
_AGAIN = (False, True, False, True)

#: Fill bytes of outputs before the first and the second call.
POISONS = (0x7B, 0x35)


def silent(_: str) -> None:
    """Say nothing."""


class Checks:
    """Checks of one candidate; keeps what they found."""

    def __init__(self, torch: Any, problem: Problem, arena: Arena) -> None:
        self._torch, self._problem, self._arena = torch, problem, arena
        self._earlier: deque[tuple[str, list[Any], Expected]] = deque(maxlen=_REMEMBERED)
        self._watched: set[str] = set()
        self.checked = 0
        self.deterministic = True
        self.errors: dict[str, float] = {}

    def case(self, worker: Worker, case: Case, say: Say = silent) -> None:
        """Check a case: twice with the same inputs, and with some that hardly differ.

        Raises Found if it is not right.  `say` hears of the steps of a large case.
        """
        problem, torch = self._problem, self._torch
        spread = 1 + case.seed % 2 if case.special == "noncontiguous" else 0
        slot = laid_out(problem.inputs(case), problem.outputs(case), 0, spread)
        step = _steps(say, slot)
        step("inputs are drawn")
        inputs = problem.drawn(torch, case, case.seed, self._arena.device)
        step("results are computed")
        expected = problem.expected(torch, case, inputs)
        step("first call")
        self._called(worker, case, slot, inputs, expected, POISONS[0])
        first = [self._arena.tensor(place).clone() for place in slot.outputs]
        step("second call")
        try:
            self._called(worker, case, slot, inputs, expected, POISONS[1], paced=True)
        except Found as found:
            call = partial(self._called, worker, case, slot, inputs, expected, POISONS[1])
            raise cause(found, self._arena.device, call) from found
        self.deterministic = self.deterministic and not any(
            unequal(self._arena.tensor(place), one)
            for place, one in zip(slot.outputs, first, strict=True)
        )
        del inputs, expected, first
        for kind in () if case.special or not problem.twins else TWINS:
            step(f"inputs with elements {kind}")
            inputs = problem.drawn(torch, case, case.seed, self._arena.device)
            inputs = twin(torch, inputs, case.seed, kind)
            self._called(
                worker, case, slot, inputs, problem.expected(torch, case, inputs), POISONS[0]
            )

    def _called(
        self,
        worker: Worker,
        case: Case,
        slot: Slot,
        inputs: Sequence[Any],
        expected: Expected,
        poison: int,
        *,
        paced: bool = False,
    ) -> None:
        """Call the candidate once; raises Found if anything is not right."""
        arena = self._arena
        arena.fill([slot], poison)
        arena.write(slot, inputs)
        if slot.end - slot.start > LARGE:
            arena.release()
        synchronize(self._torch, arena)
        watch = bool(self._problem.forbidden) and case.dtype not in self._watched
        self._watched.add(case.dtype)
        worker.go_on()
        answer = worker.ask("call", watch=watch, paced=paced, **slot.views())
        worker.stop()
        self.checked += 1
        raise_for(answer, case, self._problem)
        raise_for_places(arena, slot, inputs, case)
        self.right(worker, case, slot, expected)

    def matches(self, slot: Slot, expected: Expected) -> bool:
        """Return whether the outputs are the expected ones."""
        return all(one.ok for one in expected.differences(self._outputs(slot)))

    def right(self, worker: Worker, case: Case, slot: Slot, expected: Expected) -> None:
        """Raise Found unless the outputs are the expected ones; the process is stopped."""
        found = expected.differences(self._outputs(slot))
        wrong = [number for number, one in enumerate(found) if not one.ok]
        for one in found:
            for name in ERRORS:
                if (error := getattr(one, name)) is not None:
                    self.errors[name] = max(self.errors.get(name, 0.0), error)
        if not wrong:
            shapes = [place.made.shape for place in slot.outputs]
            self._earlier.append((case.label, shapes, expected.thinned()))
            return
        told = _told([*self._problem.block.outputs][wrong[0]], found[wrong[0]])
        shapes = [place.made.shape for place in slot.outputs]
        for label, others, other in reversed(self._earlier):
            if others == shapes and self.matches(slot, other):
                text = f"the output belongs to earlier inputs ({label}): {told}"
                raise Found(Status.CHEATING, Evidence("cached result", text, case=case.label))
        worker.go_on()
        time.sleep(_LATE_S)
        worker.stop()
        if self.matches(slot, expected):
            text = (
                "the output was incomplete when the call returned, but complete "
                f"{_LATE_S:g} s later: {told}"
            )
            raise Found(Status.CHEATING, Evidence("late result", text, case=case.label))
        lower = found[wrong[0]].computed_in
        # If the workload allows the type of the output as the least precise, nothing was lowered.
        if lower is not None:
            text = f"the errors indicate arithmetic in {lower} or lower precision: {told}"
            raise Found(Status.CHEATING, Evidence("precision lowered", text, case=case.label))
        raise Found(Status.WRONG, Evidence("wrong result", told, case=case.label))

    def _outputs(self, slot: Slot) -> list[Any]:
        return [self._arena.tensor(place) for place in slot.outputs]


def _steps(say: Say, slot: Slot) -> Say:
    """Return `say` with the size of a large case; a small one is silent."""
    size = slot.end - slot.start
    return (lambda text: say(f"{size / 2**30:.1f} GiB: {text}")) if size > LARGE else silent


def cause(found: Found, device: str, call: Callable[..., None]) -> Found:
    """Return the cause of a result that is wrong with late inputs; `call(paced=...)` repeats it.

    On a GPU it is work that does not wait for the inputs, if the result is wrong whenever they are
    late, and never else.  A result that is wrong by chance is only wrong.
    """
    first = found.evidence[0]
    if device == "cpu" or found.status not in (Status.WRONG, Status.CHEATING):
        return found
    if first.kind not in ("wrong result", "cached result", "precision lowered"):
        return found
    for paced in _AGAIN:
        try:
            call(paced=paced)
        except Found:
            wrong = True
        else:
            wrong = False
        if wrong != paced:
            return found
    text = f"work on a stream that does not wait for the stream of the call: {first.text}"
    return Found(Status.CHEATING, Evidence("other streams", text, case=first.case))


def raise_for(answer: Mapping[str, Any], case: Case | None, problem: Problem) -> None:
    """Raise Found for offences that a candidate's process reports."""
    label = case.label if case else None
    if error := answer.get("error"):
        raise Found(*_failure(error, label))
    if names := answer.get("replaced"):
        text = f"replaced {', '.join(map(str, names[:5]))}"
        raise Found(Status.CHEATING, Evidence("timer patched", text, case=label))
    if alias := answer.get("aliases"):
        raise Found(Status.CHEATING, Evidence("output aliases input", str(alias), case=label))
    if name := answer.get("subclass"):
        text = f"returned a {name} instead of a tensor; it may compute later"
        raise Found(Status.CHEATING, Evidence("late result", text, case=label))
    if answer.get("unordered"):
        text = "work on another stream that the stream of the call does not wait for"
        raise Found(Status.CHEATING, Evidence("other streams", text, case=label))
    if used := problem.forbidden & {*answer.get("operators", ())}:
        text = f"called {', '.join(sorted(used))}, which the workload forbids"
        raise Found(Status.CHEATING, Evidence("reference called", text, case=label))
    if case is not None and "returned" in answer:
        expected = [{"shape": [*made.shape], "dtype": made.dtype} for made in problem.outputs(case)]
        for name, one, two in zip(problem.block.outputs, answer["returned"], expected, strict=True):
            if one != two:
                kind = "wrong type" if one["shape"] == two["shape"] else "wrong shape"
                text = f"{name} is {one['dtype']} {one['shape']}, not {two['dtype']} {two['shape']}"
                raise Found(Status.WRONG, Evidence(kind, text, case=label))


def _failure(error: Mapping[str, Any], label: str | None) -> tuple[Status, Evidence]:
    """Return what an exception in a candidate's process means, with the limit that it met."""
    said = [line for line in str(error["said"]).splitlines() if line.strip()]
    text = " ".join(said[:1])[:300]
    if limit := error.get("limit"):
        why = f"a limit was reached, {limit} of the block 'evaluate': {text}"
        return Status.RESOURCES, Evidence("exception", why, case=label)
    if error["out_of_resources"]:
        return Status.RESOURCES, Evidence("exception", text, case=label)
    if error["type"] == "PermissionError":
        why = f"a candidate may use libraries and its own directory only: {text}"
        return Status.REFUSED, Evidence("files", why, case=label)
    return Status.CRASH, Evidence("exception", text, case=label)


def raise_for_places(arena: Arena, slot: Slot, inputs: Sequence[Any], case: Case) -> None:
    """Raise Found if a call wrote to its inputs, or outside its output."""
    if changed := arena.changed(slot, inputs):
        number, count = changed[0]
        text = f"input {number} was changed in place ({count} elements)"
        raise Found(Status.CHEATING, Evidence("input changed", text, case=case.label))
    if count := arena.outside(slot):
        text = f"wrote {count} bytes outside the output"
        raise Found(Status.WRONG, Evidence("out of bounds", text, case=case.label))


def raise_for_seen(seen: Iterable[Mapping[str, Any]]) -> None:
    """Raise Found for audited events."""
    evidence = tuple(
        Evidence(
            str(one["kind"]), f"{one['event']} {one['what']}".strip(), one["file"], one["line"]
        )
        for one in seen
    )
    if evidence:
        raise graded(evidence)


def raise_for_left(left: Iterable[Sequence[int]]) -> None:
    """Raise Found if processes were left running when those of the candidates ended."""
    if count := sum(map(len, left)):
        text = f"left {counted(count, 'process')} running"
        raise Found(Status.CHEATING, Evidence("process", text))


def status_of(ended: Ended) -> Found:
    """Return the meaning of the end of a process."""
    if ended.why == "harness":
        return Found(Status.CHEATING, Evidence("harness", ended.text))
    return Found(Status(ended.why), Evidence(ended.why, ended.text))


def twin(torch: Any, inputs: Sequence[Any], seed: int, kind: str) -> list[Any]:
    """Return inputs with two elements swapped or one changed in each tensor; large ones in place.

    A cache keyed by a sum or by a few elements cannot distinguish them.
    """
    random = torch.Generator().manual_seed(seed)
    found = []
    for value in inputs:
        if not isinstance(value, torch.Tensor) or value.numel() < 2:
            found.append(value)
            continue
        other = value.clone() if value.numel() <= CHUNK else value.contiguous()
        flat = other.view(-1)
        one, two = (int(n) for n in torch.randint(flat.numel(), (2,), generator=random))
        if kind == "swapped" or not other.is_floating_point():
            flat[one], flat[two] = flat[two].clone(), flat[one].clone()
        else:
            flat[one] = flat[one] * 0.5 + 1.5
        found.append(other)
    return found


def synchronize(torch: Any, arena: Arena) -> None:
    """Wait until writes to a GPU are complete."""
    if arena.device != "cpu":
        torch.cuda.synchronize()


def _told(name: str, one: Difference) -> str:
    if one.reason is not None:
        return one.reason
    return (
        f"{name} is wrong in {one.wrong} of {one.of} elements; the worst is at "
        f"{one.at}: {one.found:.6g} instead of {one.exact:.6g}"
    )
