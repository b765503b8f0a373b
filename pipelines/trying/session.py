"""Tries levers on a program, from the diagnosis to the confirmed stack, and stores the trial."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import PurePath

from perfpipe.analysis.gate.order import seeded
from perfpipe.analysis.trying.pace import LAUNCH
from perfpipe.directories import storing
from perfpipe.errors import InputError, StoreError
from perfpipe.pipelines.collectors.base import Say
from perfpipe.pipelines.place import machine
from perfpipe.pipelines.runs import new_id
from perfpipe.pipelines.signals import Ended
from perfpipe.pipelines.trying.bench import Bench, energy_of, sides
from perfpipe.pipelines.trying.choosing import Candidate, candidates
from perfpipe.pipelines.trying.diagnosing import Diagnosis, diagnosis_of
from perfpipe.pipelines.trying.launching import PLAIN, Launched, Launches, Program
from perfpipe.pipelines.trying.lever_rows import left_out
from perfpipe.pipelines.trying.levers import Lever, levers, named
from perfpipe.pipelines.trying.places import Places
from perfpipe.pipelines.trying.subject import Subject
from perfpipe.pipelines.trying.trial import Trying, announced
from perfpipe.pipelines.trying.workload_levers import own_levers
from perfpipe.provenance import provenance, utc_now
from perfpipe.scratch import scratch
from perfpipe.store import Store
from perfpipe.trialrecord import INTERRUPTED, WAITS, LeverTrial, StackTrial, Trial, read_all, write
from perfpipe.units import counted, format_ns


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What the command line asks for; `budget_s` is for everything after the diagnosis."""

    budget_s: float
    names: tuple[str, ...] = ()
    most: int | None = None
    rounds: int | None = None
    steps: int | None = None
    protection: str = "auto"
    seed: int | None = None
    accept: bool = False
    diagnose: bool = True
    fresh: bool = False


def try_levers(
    subject: Subject,
    store: Store,
    wishes: Wishes,
    say: Say,
    detail: Say,
    *,
    partly: Callable[[Trial], None] = lambda trial: None,
) -> Trial:
    """Try levers on a program, and return the trial, which is then in the store.

    If the trial ends early, `partly` receives what was measured.  Raises TaskFailed if the program
    fails without any change, InputError for unknown levers and for programs that cannot be tried.
    """
    began = time.monotonic()
    own = own_levers(subject.workload, subject.path)
    wanted = named(wishes.names, own) if wishes.names else [*levers().values(), *own.values()]
    with launching(subject, store, wishes) as (launches, places):
        bench = Bench(launches, wishes.budget_s, detail)
        trying = Trying(bench, seeded(wishes.seed), wishes.accept, wishes.rounds)
        state = _State(subject, wishes, trying, began)
        try:
            _measure(state, wanted, store, places, say)
        except BaseException as error:
            if trying.levers and bench.plain:
                trying.notes.append(INTERRUPTED)
                with suppress(StoreError):
                    write(store.root, state.trial)
                if isinstance(error, Ended):
                    error.advice = f"; what was measured is trial {state.trial_id}"
                partly(state.trial)
            elif isinstance(error, Ended):
                error.advice = "; no lever was measured yet, so nothing was kept"
            raise
        trial = state.trial
        write(store.root, trial)
        return trial


@contextmanager
def launching(subject: Subject, store: Store, wishes: Wishes) -> Iterator[tuple[Launches, Places]]:
    """Yield what launches a program, and where its launches run.

    Raises InputError for programs that are not launched on this machine.
    """
    workload = subject.workload
    if workload.execution.kind != "local":
        raise InputError("perfpipe try launches programs on this machine only (execution: local)")
    program = Program(
        subject.command, subject.directory, workload.env, workload.timeout, wishes.steps,
        workload.duration,
    )  # fmt: skip
    with storing(store.root):
        store.root.mkdir(parents=True, exist_ok=True)  # launches reach it through an overlay
    with (
        scratch() as folder,
        Places(subject.directory, wishes.protection, store.root, workload.env) as places,
    ):
        yield Launches(program, places.of, folder), places


class _State:
    """A trial in progress, and what is known besides its measurements."""

    def __init__(self, subject: Subject, wishes: Wishes, trying: Trying, began: float) -> None:
        self._subject, self._wishes, self._trying = subject, wishes, trying
        self._began = began
        self.trial_id = new_id(subject.workload.name, utc_now())
        self.first: Launched | None = None
        self.diagnosed = Diagnosis()
        self.found: Sequence[Candidate] = ()
        self.stack: StackTrial | None = None

    @property
    def rows(self) -> list[LeverTrial]:
        """The levers that were launched, the one that gained most first."""
        return sorted(self._trying.levers, key=lambda own: -(own.gained.gain_pct or -1e9))

    @property
    def trial(self) -> Trial:
        """What is known so far."""
        trying, bench, run = self._trying, self._trying.bench, self.diagnosed.run
        subject, first = self._subject, self.first
        energy = energy_of(bench.plain, sides(bench.plain, bench.plain).window)
        return Trial(
            trial_id=self.trial_id,
            program=subject.workload.name,
            at=utc_now(),
            unit=bench.plain[0].pace.unit if bench.plain else LAUNCH,
            plain_ms=trying.plain_ms,
            plain_launches=len(bench.plain),
            aa=trying.aa(),
            aa_results=trying.aa_results().kind,
            levers=(*self.rows, *(left_out(one) for one in self.found if one.left_out)),
            stack=self.stack,
            gpu=machine(subject.workload.env),
            words=subject.words or subject.task.command,
            run_id=run.run_id if run else None,
            reports=run.reports if run else (),
            plain_memory_bytes=bench.plain[-1].memory_bytes if bench.plain else None,
            launches=bench.launches.count,
            seconds=round(time.monotonic() - self._began, 1),
            budget_s=self._wishes.budget_s,
            protection=first.place if first else "",
            diagnosis=self.diagnosed.verdict,
            unsteady=trying.unsteady,
            notes=(*trying.notes, *(first.notes if first else ()), *_outside(first)),
            provenance=provenance(),
            plain_energy_j=energy.joules,
            energy_source=energy.source,
            energy_missing=energy.missing,
        )


def _measure(
    state: _State, wanted: Sequence[Lever], store: Store, places: Places, say: Say
) -> None:
    """Measure the plain program, levers and their best stack."""
    subject, wishes, trying = state._subject, state._wishes, state._trying
    bench = trying.bench
    say("launching the program without changes, to see that it runs")
    with _patience(subject, wishes, say):
        first = state.first = bench.launch(PLAIN, counts=False)
    say(f"  {format_ns(1e9 * first.seconds)}, in {_PLACES[first.place]}")
    if first.pace.cut and first.pace.unit == LAUNCH:
        trying.notes.append(
            f"the program was ended after {format_ns(1e9 * first.seconds)}, before its first step, "
            "token or call of a model: use a longer --duration"
        )
    if wishes.diagnose:
        state.diagnosed = diagnosis_of(
            subject, store, bench.launches, places, say, fresh=wishes.fresh
        )
    bench.began = time.monotonic()
    known = read_all(store.root)
    advice = state.diagnosed.advice
    timeline = state.diagnosed.run is not None
    found = candidates(
        wanted, advice, first.seen, known, asked=bool(wishes.names), timeline=timeline
    )
    if state.diagnosed.waits and not wishes.names:
        state.found = [replace(own, left_out=own.left_out or WAITS) for own in found]
        return
    say("comparing the program with itself")
    trying.measure_plain(first)
    state.found = found = trying.choose(found, wishes.most)
    chosen: list[Candidate] = []
    while new := [one for one in found if one.left_out is None and one not in chosen]:
        rounds = trying.planned_rounds(new)
        say(announced(bench, new, rounds))
        for one in new:
            bound = one.advice and one.advice.bound_pct
            promised = f" (at most {bound:.1f} %)" if bound else ""
            say(f"  {one.lever.name}: {one.lever.title}{promised}")
        trying.measure_levers(new, rounds)
        chosen += new
        state.found = found = trying.choose_again(found, wishes.most)
    helpful = trying.helpful(chosen)
    best = trying.best_stack(helpful)
    if best is not None:
        rows = {row.name: row for row in state.rows}
        state.stack = trying.confirm_best(best, helpful, rows, say)


#: Least time after which a program takes long, s.
_PATIENCE_S = 60.0


@contextmanager
def _patience(subject: Subject, wishes: Wishes, say: Say) -> Iterator[None]:
    """Say once how to end a program that takes longer than all launches may take."""
    if wishes.steps or subject.workload.duration is not None:
        yield
        return
    after_s = max(_PATIENCE_S, wishes.budget_s)
    text = (
        f"the program has not ended after {format_ns(1e9 * after_s)}; if it takes long, stop with "
        "Ctrl-C, and end launches early with --steps or --duration"
    )
    timer = threading.Timer(after_s, say, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


#: Directories of caches, which programs fill anywhere below the home directory.
_CACHES = {".cache", ".nv", ".triton", "__pycache__"}

#: Where launches run, in words.
_PLACES = {
    "overlay": "an overlay of the working directory",
    "copy": "a copy of the working directory",
    "in-place": "the working directory itself",
}


def _outside(launched: Launched | None) -> tuple[str, ...]:
    """Return a note on files elsewhere that changed during a launch."""
    every = launched.outside if launched else ()
    files = [path for path in every if not _CACHES & {*PurePath(path).parts}]
    # Other programs write temporary files meanwhile.
    files.sort(key=lambda path: path.startswith(tempfile.gettempdir()))
    caches = f"{counted(len(every) - len(files), 'file')} in caches"
    if not files:
        return (f"during the first launch, {caches} changed",) if every else ()
    first = ", ".join(files[:5]) + (f" and {len(files) - 5} more" if len(files) > 5 else "")
    more = f", and {caches}" if len(files) < len(every) else ""
    return (
        "files outside the directory that this program or another one changed during the first "
        f"launch: {first}{more}",
    )
