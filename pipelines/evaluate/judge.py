"""Judges candidates: static inspection, checks, timing, and the verdict."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from perfpipe.errors import InputError
from perfpipe.pipelines.evaluate.arena import Arena
from perfpipe.pipelines.evaluate.block import Sizes
from perfpipe.pipelines.evaluate.bounds import bound_of
from perfpipe.pipelines.evaluate.candidates import copied, parameters
from perfpipe.pipelines.evaluate.checking import (
    Checks,
    Say,
    raise_for,
    raise_for_left,
    raise_for_seen,
    silent,
    status_of,
)
from perfpipe.pipelines.evaluate.degenerate import flaws
from perfpipe.pipelines.evaluate.device import device_name, idle_threads, pytorch
from perfpipe.pipelines.evaluate.problem import Case, Problem
from perfpipe.pipelines.evaluate.reach import hidden
from perfpipe.pipelines.evaluate.result import Evidence, Found, Judgement, Score, Status, graded
from perfpipe.pipelines.evaluate.sizes import needed_bytes
from perfpipe.pipelines.evaluate.static import look
from perfpipe.pipelines.evaluate.timing import (
    Side,
    Timing,
    TooShort,
    blamed,
    score,
    timed_launch,
)
from perfpipe.pipelines.evaluate.worker import Ended, ForkServer, Worker
from perfpipe.pipelines.workload import Work


@dataclass(frozen=True)
class Options:
    """How to judge; `seed` decides all inputs and must stay secret from candidates."""

    device: str
    seed: int
    timed: bool = True
    launches: int | None = None
    batches: int | None = None


@dataclass
class _Copy:
    """A candidate's copy, and the process that runs it last."""

    name: str
    home: Path
    digest: str


@dataclass
class _Timed:
    """A case that is timed: ms per call of each side, and event times; or why it is too short."""

    case: Case
    timing: Timing
    samples: dict[str, list[float]]
    events: list[float] = field(default_factory=list)
    short: str = ""


class Judge:
    """Judges candidates of one problem; processes and memory are shared among them."""

    def __init__(
        self,
        torch: Any,
        problem: Problem,
        work: Work,
        options: Options,
        fork_server: Callable[[], ForkServer],
    ) -> None:
        self._torch, self.problem, self._work = torch, problem, work
        self._options, self._fork_server = options, fork_server
        limits = problem.block.limits
        self._budget = (limits.host_mb if options.device == "cpu" else limits.device_mb) << 20
        needed = needed_bytes(torch, problem, options.device, self._budget, timed=options.timed)
        self.arena = Arena(torch, options.device, needed)

    @classmethod
    @contextmanager
    def opened(cls, problem: Problem, work: Work, options: Options) -> Iterator[Judge]:
        """Make a judge, and end its processes; raises ToolMissing without PyTorch.

        The fork server loads slowly.  It starts with the first candidate that runs: inspecting the
        source of a cheat does not need it.
        """
        torch = pytorch()
        with ExitStack() as started:
            started.enter_context(idle_threads(torch))

            @cache
            def fork_server() -> ForkServer:
                return started.enter_context(ForkServer.opened(torch, options.device))

            made = cls(torch, problem, work, options, fork_server)
            try:
                yield made
            finally:
                made.arena.close()

    def of(self, problem: Problem) -> Judge:
        """Return a judge of another problem that is not larger, with the same processes."""
        made = copy(self)
        made.problem = problem
        return made

    def again(self, seed: int, launches: int | None = None) -> Judge:
        """Return a judge with other inputs and number of launches, with the same processes."""
        made = copy(self)
        made._options = replace(self._options, seed=seed, launches=launches)
        return made

    def judge(self, candidate: Path, baselines: Mapping[str, Path], say: Say = silent) -> Judgement:
        """Return the judgement on the candidate in a directory."""
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="perfpipe-evaluate-") as folder:
            home = Path(folder)
            own = _Copy(candidate.name, home / "candidate", copied(candidate, home / "candidate"))
            others = [
                _Copy(name, home / f"baseline-{number}", copied(path, home / f"baseline-{number}"))
                for number, (name, path) in enumerate(baselines.items())
            ]
            made = self._judged(own, others, say)
        return replace(made, seconds=time.monotonic() - began)

    def _judged(self, own: _Copy, others: Sequence[_Copy], say: Say) -> Judgement:
        problem, options = self.problem, self._options
        made = Judgement(
            problem.name, own.name, Status.CORRECT, "", own.digest,
            device_name(self._torch, options.device), options.seed, software=self._software(),
        )  # fmt: skip
        try:
            made = replace(made, params=parameters(own.home))
        except InputError as error:
            return _with(made, Found(Status.CRASH, Evidence("parameters", str(error))))
        found_there = look(own.home / "files", problem.path.stem)
        if offences := [one for one in found_there if not _is_given(problem, own, one)]:
            return _with(made, graded(offences))
        say(f"{problem.name}: answers that compute nothing")
        flawed = flaws(self._torch, problem, options.device, timed=options.timed)
        made = replace(made, warnings=flawed.warnings)
        if flawed.refusal is not None:
            return _with(
                made, Found(Status.REFUSED, Evidence("degenerate problem", flawed.refusal))
            )
        checks = Checks(self._torch, problem, self.arena)
        cases = problem.cases(options.seed, timed=options.timed)
        worker = None
        found: Found | None = None
        try:
            worker = self._worker(own)
            made = replace(made, isolation=worker.refused)
            self._load(worker)
            for number, case in enumerate(cases):
                label = f"{own.name}: {number + 1} of {len(cases)}: {case.label}"
                say(label)
                checks.case(worker, case, partial(_step, say, label))
                raise_for_seen(worker.seen)
        except Found as status:
            found = status
        except Ended as ended:
            found = status_of(ended)
        finally:
            made = replace(made, output=self._ended(worker))
        if found is None and worker is not None:
            try:
                raise_for_left([worker.left])
            except Found as status:
                found = status
        made = replace(
            made,
            checked=checks.checked,
            cases=len(cases),
            max_abs_error=checks.errors.get("max_abs"),
            max_scaled_error=checks.errors.get("max_scaled"),
            max_relative_error=checks.errors.get("max_relative"),
            deterministic=checks.deterministic if checks.checked else None,
            warnings=(*made.warnings, *_warnings(made.isolation)),
        )
        if found is not None:
            return _with(made, self._with_crash(found, worker))
        return self._scored(made, own, others, say)

    def _scored(self, made: Judgement, own: _Copy, others: Sequence[_Copy], say: Say) -> Judgement:
        block = self.problem.block
        made = replace(made, reason=f"{made.checked} calls in {made.cases} cases are correct")
        if why := self._untimed(others):
            return replace(made, no_scores=why)
        timed = [self._to_time(number, sizes, others) for number, sizes in enumerate(block.timing)]
        launches = self._options.launches or block.launches
        try:
            for turn in range(launches):
                self._launch(turn, launches, timed, own, others, say)
        except Found as found:
            return _with(made, found)
        except Ended as ended:
            return _with(made, status_of(ended))
        scores = [score for one in timed if not one.short for score in self._scores(one, others)]
        short = "; ".join(one.short for one in timed if one.short)
        return replace(made, scores=tuple(scores), no_scores=short or None)

    def _untimed(self, others: Sequence[_Copy]) -> str | None:
        if not self._options.timed:
            return "not requested"
        if not self.problem.block.timing:
            return "the workload does not define sizes to time"
        return None if others else "there is no baseline to compare with"

    def _to_time(self, number: int, sizes: Sizes, others: Sequence[_Copy]) -> _Timed:
        case = Case(
            self.problem.block.dtypes[0], sizes, "", self._options.seed + 7919 * (number + 1)
        )
        timing = Timing(self._torch, self.problem, self.arena, case, self._budget, case.seed)
        return _Timed(case, timing, {"": [], **{other.name: [] for other in others}})

    def _launch(
        self, turn: int, launches: int, timed: Sequence[_Timed], own: _Copy,
        others: Sequence[_Copy], say: Say,
    ) -> None:  # fmt: skip
        """Add a sample of each case, from processes that time one case after the other."""
        left = [one for one in timed if not one.short]
        if not left:
            return
        with ExitStack() as stack:
            empty = self._entered(stack, own, bare=True)
            workers = {"": self._entered(stack, own)}
            for other in others:
                with blamed(other.name):
                    workers[other.name] = self._entered(stack, other)
            for one in left:
                say(f"{own.name}: {one.case.label}: launch {turn + 1} of {launches}")
                sides = [Side(name, worker, self._checks()) for name, worker in workers.items()]
                batches = self._options.batches or self.problem.block.batches
                try:
                    found = timed_launch(one.timing, sides, empty, batches, turn)
                except TooShort as reason:
                    one.short = str(reason)
                    continue
                for name, ms in found.items():
                    one.samples[name].append(ms)
                one.events += sides[0].events
        raise_for_left([empty.left, *(worker.left for worker in workers.values())])

    def _scores(self, one: _Timed, others: Sequence[_Copy]) -> Iterator[Score]:
        bound = bound_of(self._torch, self._options.device, self._work, one.case)
        events = sorted(one.events)
        event = events[len(events) // 2] / one.timing.calls if events else None
        for other in others:
            yield score(one.timing, one.case, other.name, one.samples, bound, event)

    def _checks(self) -> Checks:
        return Checks(self._torch, self.problem, self.arena)

    def _entered(self, stack: ExitStack, own: _Copy, *, bare: bool = False) -> Worker:
        """Return a process that is stopped, and ended with the stack."""
        worker = self._worker(own)
        stack.callback(worker.end)
        if bare:
            worker.stop()
        else:
            self._load(worker)
        return worker

    def _worker(self, own: _Copy) -> Worker:
        block, problem = self.problem.block, self.problem
        candidate = {
            "module": block.module, "entry": block.entry, "style": block.style,
            "init": problem.init, "seed": problem.init_seed, "hidden": hidden(problem.path),
        }  # fmt: skip
        return Worker(self._fork_server(), self.arena, block.limits, own.home, candidate)

    def _load(self, worker: Worker) -> None:
        raise_for(worker.ask("load"), None, self.problem)
        raise_for_seen(worker.seen)
        worker.stop()

    def _ended(self, worker: Worker | None) -> str:
        if worker is None:
            return ""
        self._code = worker.end()
        return worker.output()

    def _with_crash(self, found: Found, worker: Worker | None) -> Found:
        """Add to a crash how the process ended."""
        if found.status != Status.CRASH or found.evidence[0].kind != "crash" or worker is None:
            return found
        how = f"exit code {self._code}" if self._code >= 0 else f"signal {-self._code}"
        return Found(Status.CRASH, Evidence("crash", f"the candidate's process ended with {how}"))

    def _software(self) -> dict[str, str]:
        found = {"torch": str(self._torch.__version__)}
        with contextlib.suppress(PackageNotFoundError):
            found["triton"] = version("triton")
        return found


def _is_given(problem: Problem, own: _Copy, found: Evidence) -> bool:
    """Return whether evidence is in a file that the problem gave to the candidate, unchanged."""
    given = problem.given.get(found.file or "")
    return given is not None and (own.home / "files" / str(found.file)).read_text() == given


def _step(say: Say, label: str, step: str) -> None:
    """Say what a case is at."""
    say(f"{label}: {step}")


def _with(made: Judgement, found: Found) -> Judgement:
    reason = found.evidence[0].text
    return replace(
        made, status=found.status, reason=reason, evidence=found.evidence, scores=(),
        no_scores="only a correct candidate is timed",
    )  # fmt: skip


def _warnings(refused: Mapping[str, bool]) -> tuple[str, ...]:
    """Return a warning on restrictions that this machine's kernel does not enforce."""
    open_ = [name for name, so in refused.items() if not so]
    if not open_:
        return ()
    return (f"this kernel cannot confine {', '.join(open_)}: some cheats may go undetected",)
