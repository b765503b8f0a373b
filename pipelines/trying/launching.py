"""Launches a program with levers, and returns its time, its results and what was applied."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from perfpipe.analysis.energy import Readings
from perfpipe.analysis.trying import pace, results
from perfpipe.analysis.trying.pace import Pace
from perfpipe.analysis.trying.results import Results
from perfpipe.errors import PerfpipeError
from perfpipe.pipelines.collectors.base import COLLECTOR_VARIABLE, interrupting
from perfpipe.pipelines.collectors.energy import metering
from perfpipe.pipelines.collectors.observing import HELPER, injecting
from perfpipe.pipelines.complaint import exit_sentence
from perfpipe.pipelines.process import Finished, run
from perfpipe.pipelines.protocol import ProgramOutput
from perfpipe.pipelines.tools import explain
from perfpipe.pipelines.trying.levers import CACHE, Lever
from perfpipe.pipelines.trying.preparing import BUILD_S
from perfpipe.pipelines.trying.protecting import Place, Protection, hint
from perfpipe.pipelines.workload import Params
from perfpipe.scratch import scratch

#: Variable with the plan of a launch, and the injected file that carries it out.
_PLAN, _FILE = "PERFPIPE_TRY_PLAN", "trying.py"

#: Folders of compiled code: of torch.compile, and of Triton.
_CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")

#: What to do about a program that takes too long.
_TOO_LONG = " (--steps and --duration end each launch earlier)"

#: The pace of a launch that did not begin.
NO_PACE = Pace(pace.LAUNCH, (), (), (), 0.0, (), False)

#: Nothing was read of GPUs.
NOT_READ = Readings(missing="the launch did not begin")

#: Seed of the random numbers of programs that set none, so that launches can be compared.
SEED = 0

#: How long a program may take to end after an interrupt, s.
_GRACE_S = 10.0

#: Exit codes of `timeout` after it interrupted or killed a program.
_ENDED = (124, -9, 137)


@dataclass(frozen=True)
class Program:
    """A program to try: its command, variables, time limit, and where a launch ends early.

    `command` returns the words for changed parameters of the workload.  `steps` ends a launch after
    that many units, `duration` after a time in s.
    """

    command: Callable[[Params], Sequence[str]]
    directory: Path
    env: Mapping[str, str]
    timeout: float
    steps: int | None = None
    duration: float | None = None


@dataclass(frozen=True)
class Arm:
    """A way to launch the program: plain, or with levers applied in their order."""

    name: str
    levers: tuple[Lever, ...] = ()

    @property
    def tolerance(self) -> float | None:
        """The relative error that its levers allow; None if they allow none."""
        allowed = [lever.tolerance for lever in self.levers if lever.tolerance is not None]
        return max(allowed, default=None)

    @property
    def regroups(self) -> bool:
        """Whether a lever divides the work of a step into other calls."""
        return any(lever.regroups for lever in self.levers)

    @property
    def exact(self) -> bool:
        """Whether its levers promise identical results."""
        return bool(self.levers) and all(lever.expect == "identical" for lever in self.levers)

    @property
    def arguments(self) -> Params:
        """The parameters that its levers change."""
        return {name: value for own in self.levers for name, value in own.arguments.items()}

    @property
    def compiles(self) -> bool:
        """Whether a lever compiles, so that the launch takes longer to start."""
        return any(lever.compiles for lever in self.levers)


#: The program without levers.
PLAIN = Arm("plain")


@dataclass(frozen=True)
class Effect:
    """What a lever did in all processes of a launch.

    `applied` counts what it was applied to; `effective` is None if that is unknown.
    """

    applied: tuple[tuple[str, int], ...] = ()
    refused: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    effective: bool | None = None
    why: str = ""
    counters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def where(self) -> tuple[str, ...]:
        """What it was applied to, in words."""
        return tuple(f"{text} (x {count})" if count > 1 else text for text, count in self.applied)


@dataclass(frozen=True)
class Launched:
    """A launch: how it ended, its pace, its results, and the effect of each lever by name.

    `failure` is crash, out_of_memory, hung or not_started; None if it ended as it should.
    """

    arm: Arm
    seconds: float
    pace: Pace
    results: Results
    failure: str | None = None
    why: str = ""
    effects: Mapping[str, Effect] = field(default_factory=dict)
    memory_bytes: int | None = None
    seen: frozenset[str] = frozenset()
    outside: tuple[str, ...] = ()
    place: str = ""
    notes: tuple[str, ...] = ()
    readings: Readings = NOT_READ

    @property
    def batches_held(self) -> int:
        """The number of batches that its loaders may hold ready."""
        counters = (effect.counters for effect in self.effects.values())
        return max((int(own.get("batches_held", 0)) for own in counters), default=0)


class Launches:
    """Launches arms of a program, one at a time, each in a protected directory."""

    def __init__(
        self, program: Program, protect: Callable[[Lever | None], Protection], logs: Path
    ) -> None:
        self._program, self._protect, self._logs = program, protect, logs
        self._offline = False
        self.count = 0

    def launch(
        self,
        arm: Arm,
        *,
        verify: bool = False,
        timeout: float | None = None,
        build_s: float = BUILD_S,
        handicaps: Sequence[Mapping[str, Any]] = (),
        wrapper: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> Launched:
        """Launch an arm once.

        With `verify`, the levers take the options that show whether results are right.  `build_s`
        is how long the build of a lever may take before its first launch.  `handicaps` are further
        entries of the plan; `wrapper` are words in front of the command.
        """
        program = self._program
        own = next((lever for lever in arm.levers if lever.patch or lever.build), None)
        self.count += 1
        log = self._logs / f"{self.count:03d}-{arm.name.replace('/', '_').replace(':', '-')}"
        said = ProgramOutput()
        with (
            scratch() as folder,
            self._protect(own).launch(offline=self._offline, build_s=build_s) as place,
        ):
            variables = self._variables(arm, folder, verify, handicaps)
            words = [*wrapper, *place.rewritten(program.command(arm.arguments))]
            if program.duration is not None:
                words = [*interrupting("timeout", program.duration, _GRACE_S), *words]
            settings = {**variables, **(env or {})}
            with metering(settings) as meter:
                began_ns = time.perf_counter_ns()
                finished = run(
                    [*place.wrapper, *words],
                    cwd=place.cwd,
                    env=place.variables(settings),
                    timeout=timeout or program.timeout,
                    log=log,
                    on_line=said.feed,
                )
            done = self._read(arm, folder, place, finished, said, began_ns)
            done = replace(done, readings=meter.readings())
        # The first launch may fill caches, such as those of downloaded models.
        self._offline = self._offline or done.failure is None
        return done

    def diagnosing(self, folder: Path) -> dict[str, str]:
        """Return the variables with which a profiler launches the plain program."""
        return self._variables(PLAIN, folder, False, ()) if self._program.steps else {}

    def _variables(
        self, arm: Arm, folder: Path, verify: bool, handicaps: Sequence[Mapping[str, Any]]
    ) -> dict[str, str]:
        program = self._program
        entries = [own.entry() for own in arm.levers if own.injected]
        content = {
            "levers": [*entries, *handicaps],
            "record": True,
            "steps": program.steps,
            "seed": SEED,
        }
        plan = folder / "plan.json"
        plan.write_text(json.dumps({**content, "verify": verify}), encoding="utf-8")
        # Code that earlier programs compiled would hide what compilation takes.
        caches = {name: str(self._logs / name.lower()) for name in _CACHES}
        settings = {name: path for name, path in caches.items() if name not in os.environ}
        settings |= program.env
        for lever in arm.levers:
            cache = str(self._logs / f"cache-{lever.base}")
            settings |= {name: value.replace(CACHE, cache) for name, value in lever.env.items()}
        return {
            "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", str(SEED)),
            **settings,
            COLLECTOR_VARIABLE: "plain",
            **injecting(folder, settings),
            HELPER: _FILE,
            _PLAN: str(plan),
        }

    def _read(
        self,
        arm: Arm,
        folder: Path,
        place: Place,
        finished: Finished,
        said: ProgramOutput,
        began_ns: int,
    ) -> Launched:
        failure, why = self._failure(finished, place.kind)
        if place.failure is not None:
            failure, why = "not_started", place.failure
        written = place.written()
        reports = _reports(folder)
        stopped = any(own.get("stopped_ns") for own in reports)
        early = self._program.duration is not None and finished.returncode in _ENDED
        cut = stopped or early
        # A launch that is ended early does not write the files that the program writes at its end.
        found = results.read(folder, finished.stdout, None if cut else written, finished.returncode)
        # An interrupted program writes all that it has, of fewer steps.
        found = replace(found, complete=found.complete and not early)
        memory = [own.get("memory") or {} for own in reports]
        return Launched(
            arm=arm,
            seconds=finished.seconds,
            pace=pace.read(
                folder, tuple(said.times_ms), finished.seconds, started_ns=began_ns, cut=cut
            ),
            results=found,
            failure=failure,
            why=why,
            effects=_effects(arm, reports),
            memory_bytes=_largest(memory, "reserved_bytes"),
            seen=_seen(folder, reports),
            # Looking takes seconds, and other programs write meanwhile: the first launch is enough.
            outside=place.outside() if self.count == 1 else (),
            place=place.kind,
            notes=tuple(place.notes),
        )

    def _failure(self, finished: Finished, place: str) -> tuple[str | None, str]:
        program = self._program
        if finished.timed_out:
            ends = "" if program.steps or program.duration else _TOO_LONG
            return "hung", f"it took longer than {finished.seconds:.0f} s and was killed{ends}"
        early = program.duration is not None and finished.seconds >= program.duration
        if finished.ok or (early and finished.returncode in _ENDED):
            return None, ""
        text = finished.stdout + finished.stderr
        said = explain(text) or finished.complaint()
        # Its last output is no reason by itself.
        why = said if finished.stderr.strip() else exit_sentence(finished.returncode)
        if said and said != why:
            why += f" (last output: {said})"
        if more := hint(text, place):
            why = f"{why}; {more}"
        memory = "out of memory" in text.lower() or "OutOfMemoryError" in text
        return "out_of_memory" if memory else "crash", why


def _reports(folder: Path) -> list[dict[str, Any]]:
    """Return what the processes of a launch reported about levers."""
    found = []
    for path in sorted(folder.glob("levers.*.json")):
        try:
            report = json.loads(path.read_bytes())
        except (OSError, ValueError):
            continue  # the program may overwrite what it likes
        if isinstance(report, dict):
            found.append(report)
    return found


def _seen(folder: Path, reports: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Return the libraries that the program uses, of those that levers need."""
    found = {"torch"} if reports else set()
    found |= {"jax"} if (folder / "seen.jax").exists() else set()
    return frozenset(found | {str(name) for own in reports for name in own.get("seen", ())})


def _effects(arm: Arm, reports: Sequence[Mapping[str, Any]]) -> dict[str, Effect]:
    """Return the effect of each lever of an arm, and of each handicap, over all processes."""
    names = [
        str(entry.get("name"))
        for report in reports
        for entry in report.get("levers", ())
        if isinstance(entry, dict)
    ]
    reported = {name: _reported(name, reports) for name in names}
    return {**reported, **{lever.name: _effect(lever, reports) for lever in arm.levers}}


def _effect(lever: Lever, reports: Sequence[Mapping[str, Any]]) -> Effect:
    if not lever.injected:
        settings = tuple((f"{name}={value}", 1) for name, value in lever.env.items())
        other = [
            *([f"patch {lever.patch.name}"] if lever.patch else []),
            *([f"build {shlex.quote(lever.build)}"] if lever.build else []),
            *(f"{name}={value}" for name, value in lever.arguments.items()),
        ]
        applied = (*settings, *((text, 1) for text in other))
        return Effect(applied, () if applied else ("the environment has it already",))
    return _reported(lever.name, reports)


def _reported(name: str, reports: Sequence[Mapping[str, Any]]) -> Effect:
    """Return what all processes report about a file of the plan."""
    own = [
        entry
        for report in reports
        for entry in report.get("levers", ())
        if isinstance(entry, dict) and entry.get("name") == name
    ]
    if not own:
        return Effect(why="the program's Python did not run perfpipe's start-up file")
    counts: dict[str, int] = {}
    for entry in own:
        for one in entry.get("applied", ()):
            counts[one["where"]] = max(counts.get(one["where"], 0), int(one["count"]))
    effective = [entry.get("effective") for entry in own if entry.get("applied")]
    return Effect(
        applied=tuple(counts.items()),
        refused=tuple(dict.fromkeys(text for entry in own for text in entry.get("refused", ()))),
        failed=tuple(dict.fromkeys(text for entry in own for text in entry.get("failed", ()))),
        effective=False if False in effective else True if True in effective else None,
        why="; ".join(dict.fromkeys(entry["why"] for entry in own if entry.get("why"))),
        counters=next((entry["counters"] for entry in own if entry.get("counters")), {}),
    )


def _largest(found: Sequence[Mapping[str, Any]], name: str) -> int | None:
    known = [int(own[name]) for own in found if own.get(name) is not None]
    return max(known, default=None)


def failed(arm: Arm, error: PerfpipeError) -> Launched:
    """Return a launch that could not begin, such as one whose patch cannot be applied."""
    return Launched(arm, 0.0, NO_PACE, Results(), "not_started", str(error))
