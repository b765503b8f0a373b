"""Slows one resource of a program at a time, and measures how much of that reaches a unit of work.

Delays of events (batches, calls, launches, collectives) have three levels: 0, d and 2d, where d
takes a tenth of the unit's time in all events of a unit.  The hook of a handicap is also there with
a delay of 0, so its own cost does not count.  Levels are launched in turns.
"""

from __future__ import annotations

import os
import shutil
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

from perfpipe.analysis.thresholds import thresholds
from perfpipe.analysis.trying import causes
from perfpipe.analysis.trying.causes import Cause
from perfpipe.analysis.trying.pace import LAUNCH, Pace, Window, window
from perfpipe.analysis.trying.slopes import slopes_of
from perfpipe.errors import PerfpipeError, TaskFailed
from perfpipe.pipelines.collectors.base import Say
from perfpipe.pipelines.collectors.observing import INJECTED
from perfpipe.pipelines.process import run
from perfpipe.pipelines.trying.launching import PLAIN, Arm, Launches, failed
from perfpipe.scratch import scratch

#: The files of handicaps.
FOLDER = INJECTED / "handicaps"

#: Handicaps whose hooks cost next to nothing: they share the launches without a delay.
LIGHT = ("loader", "loader_main", "model", "collectives")

#: All handicaps, in the order of certainty.
HANDICAPS = (*LIGHT, "cores", "launch", "copies", "sms")

#: Rounds of launches.  Two would give intervals twice as wide.
ROUNDS = 3

#: Variables with the number of threads of a program.
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

#: Variables of NVIDIA's Multi-Process Service: its folder, and the share of SMs of a program, %.
_MPS_FOLDER, _MPS_PERCENT = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"

#: Compilers of C that are looked for.
_COMPILERS = ("cc", "gcc", "clang")

Entry = dict[str, Any]


class Effect(Protocol):
    """What a handicap did in a launch; see `launching.Effect`."""

    @property
    def applied(self) -> Sequence[Any]: ...
    @property
    def refused(self) -> Sequence[str]: ...
    @property
    def failed(self) -> Sequence[str]: ...
    @property
    def counters(self) -> Mapping[str, Any]: ...


class Launched(Protocol):
    """A launch with handicaps; see `launching.Launched`."""

    @property
    def pace(self) -> Pace: ...
    @property
    def failure(self) -> str | None: ...
    @property
    def why(self) -> str: ...
    @property
    def effects(self) -> Mapping[str, Effect]: ...


#: Launches the program: with entries of the plan, variables, and words in front of the command.
Launch = Callable[[Sequence[Entry], Mapping[str, str], Sequence[str]], Launched]


def launch_with(launches: Launches, timeout: float | None = None) -> Launch:
    """Return a function that launches the plain program with handicaps; `timeout` is in s."""

    def launch(
        entries: Sequence[Entry], env: Mapping[str, str], wrapper: Sequence[str]
    ) -> Launched:
        arm = Arm("handicaps") if entries else PLAIN
        try:
            return launches.launch(
                arm, timeout=timeout, handicaps=entries, env=env, wrapper=wrapper
            )
        except TaskFailed as error:
            return failed(arm, error)

    return launch


class Unavailable(Exception):
    """Why a handicap is not available."""


@dataclass(frozen=True)
class Level:
    """What a launch is slowed by."""

    name: str
    entries: tuple[Entry, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    wrapper: tuple[str, ...] = ()


def launches(names: Sequence[str] = HANDICAPS, rounds: int = ROUNDS) -> int:
    """Return how many launches handicaps take at most."""
    light = len([name for name in names if name in LIGHT])
    others = len(names) - light
    return (1 + rounds * (1 + 2 * light) if light else 0) + others * (1 + 3 * rounds)


def _always(launches: int) -> bool:
    """Return that all launches fit."""
    return True


def sensitivity(
    launch: Launch,
    names: Sequence[str] = HANDICAPS,
    *,
    rounds: int = ROUNDS,
    say: Say,
    fits: Callable[[int], bool] = _always,
) -> dict[str, Cause]:
    """Return what each handicap shows, in the order of their names here.

    `fits` says whether the budget allows so many launches; a handicap that it does not allow is not
    available.  A program that fails without a delay has no slopes.
    """
    own = _Sensitivity(launch, rounds, say, fits)
    found: dict[str, Cause] = {}
    if light := [name for name in names if name in LIGHT]:
        found |= own.delays(light, {})
    measures: dict[str, Callable[[], Cause]] = {
        "cores": own.cores, "launch": own.launch_delays, "copies": own.copies, "sms": own.sms,
    }  # fmt: skip
    for name in names:
        if name in measures:
            try:
                found[name] = measures[name]()
            except Unavailable as why:
                found[name] = Cause(name, unavailable=str(why))
    return {name: found[name] for name in names}


class _Sensitivity:
    """Launches a program with handicaps."""

    def __init__(self, launch: Launch, rounds: int, say: Say, fits: Callable[[int], bool]) -> None:
        self._launch, self._rounds, self._say, self._fits = launch, rounds, say, fits

    def delays(self, names: Sequence[str], options: Entry) -> dict[str, Cause]:
        """Return what delays of events show; the handicaps share the launches without a delay."""

        def level(slow: str = "", us: float = 0) -> Level:
            text = f"{slow} + {us:.0f} us" if us else f"no delay ({', '.join(usable)})"
            entries = [_entry(name, us=us * (name == slow), **options) for name in usable]
            return Level(text, tuple(entries))

        found: dict[str, Cause] = {}
        usable = [*names]
        pilot = self._once(level())
        if pilot.failure is not None:
            why = f"the program fails with the hook: {pilot.why}"
            return {name: Cause(name, unavailable=why) for name in names}
        seen = window([pilot.pace])
        unit_ms = seen.ms(pilot.pace)
        amounts: dict[str, float] = {}
        for name in names:
            try:
                events = _events(pilot, name, seen)
            except Unavailable as why:
                found[name] = Cause(name, unavailable=str(why))
                continue
            if not unit_ms:
                found[name] = Cause(name, unavailable="the time of a unit is unknown")
                continue
            if not self._fits(self._rounds * (3 + 2 * len(amounts))):
                found[name] = Cause(name, unavailable=_budget(self._rounds * 2))
                continue
            share_ms = thresholds()["sensitivity.delay_share"] * unit_ms
            amounts[name] = round(1e3 * share_ms / events, 3)
        usable = [*amounts]
        if usable:
            slow = [level(name, times * us) for name, us in amounts.items() for times in (1, 2)]
            done = self._in_turns([level(), *slow])
            for place, (name, us) in enumerate(amounts.items()):
                own = [(one[0], one[1 + 2 * place], one[2 + 2 * place]) for one in done]
                found[name] = self._judged_delay(name, us, own)
        return found

    def _judged_delay(self, name: str, us: float, done: Sequence[Sequence[Launched]]) -> Cause:
        """Return what delays of 0, d and 2d of each event show."""
        cause = Cause(name, amount=f"{us:,.0f} us per {causes.event(name)}", amount_us=us)
        try:
            done = self._complete(done)
            first = _events(done[0][0], name, window([done[0][0].pace]))
            counters = _counters(done[0][0], name)
            at_least = ceil(int(counters.get("batches_held", 0)) / first)
            seen = self._window(done, at_least)
            events = fmean(_events(one[0], name, seen) for one in done)
            cause = replace(
                cause, events_per_unit=events, parallel=int(counters.get("parallel", 1))
            )
            return self._judged(cause, done, seen, [0.0, events * us / 1e3, events * us / 500])
        except Unavailable as why:
            return replace(cause, unavailable=str(why))

    def launch_delays(self) -> Cause:
        """Return what delays of launches show."""
        self._check(1 + 3 * self._rounds)
        with scratch() as folder:
            return self.delays(["launch"], {"library": str(_compiled(folder))})["launch"]

    def copies(self) -> Cause:
        """Return what copies to the GPU beside those of the program show."""
        self._check(1 + 3 * self._rounds)
        share = thresholds()["sensitivity.delay_share"]
        levels = [
            Level(f"copies for {100 * times * share:.0f} % of the time",
                  (_entry("copies", share=times * share),))
            for times in (0, 1, 2)
        ]  # fmt: skip
        pilot = self._once(levels[1])
        _events(pilot, "copies", window([pilot.pace]))  # whether there are any
        done = self._complete(self._in_turns(levels))
        seen = self._window(done, 0)
        us = min(float(_counters(own, "copies")["us"]) for one in done for own in one)
        events = [
            0.0,
            *(fmean(_events(one[place], "copies", seen) for one in done) for place in (1, 2)),
        ]
        if not 0 < events[1] < events[2]:
            raise Unavailable("the link is busy: more copies were not made in the same time")
        cause = Cause(
            "copies",
            amount=f"{100 * share:.0f} % of the link's time",
            amount_us=us,
            events_per_unit=events[1],
        )
        return self._judged(cause, done, seen, [count * us / 1e3 for count in events])

    def cores(self) -> Cause:
        """Return what fewer host cores show; threads of PyTorch stay as many as they were."""
        allowed = cores_by_package()
        counts = _fewer(len(allowed))
        if shutil.which("taskset") is None:
            raise Unavailable("taskset is not installed")
        if len(counts) < 2:
            raise Unavailable("the program may use one core only")
        self._check(1 + len(counts) * self._rounds)
        threads = _counter(self._once(Level("all cores", (_entry("fewer"),))), "threads", "cores")
        env = {name: str(threads) for name in _THREADS}
        levels = [
            Level(
                f"{count} of {len(allowed)} cores",
                (_entry("fewer", threads=threads),),
                env,
                ("taskset", "-c", ",".join(map(str, sorted(allowed[:count])))),
            )
            for count in counts
        ]
        done = self._complete(self._in_turns(levels))
        for one in done:
            for count, own in zip(counts, one, strict=True):
                if _counter(own, "cores", "cores") != count:
                    raise Unavailable("the program chooses its host cores itself")
        return self._judged_fewer(Cause("cores", amount=_amount(counts, "cores")), done, counts)

    def sms(self) -> Cause:
        """Return what fewer SMs show, below NVIDIA's Multi-Process Service."""
        if not mps_runs():
            raise Unavailable("no daemon of NVIDIA's Multi-Process Service (MPS) is running")
        self._check(3 * self._rounds)
        levels = [
            Level(f"{100 // times} % of the SMs", (_entry("fewer"),),
                  {_MPS_PERCENT: str(100 // times)})
            for times in (1, 2, 3)
        ]  # fmt: skip
        done = self._complete(self._in_turns(levels))
        counts = [_counter(own, "sms", "sms") for own in done[0]]
        if not counts[0] > counts[1] > counts[2]:
            raise Unavailable(f"MPS did not limit the SMs ({_amount(counts, 'SMs')})")
        return self._judged_fewer(Cause("sms", amount=_amount(counts, "SMs")), done, counts)

    def _judged_fewer(
        self, cause: Cause, done: Sequence[Sequence[Launched]], counts: Sequence[int]
    ) -> Cause:
        """Return what fewer of a resource show: 1 if the time grows as the number falls."""
        seen = self._window(done, 0)
        whole = fmean(_ms(seen, one[0]) for one in done)
        return self._judged(cause, done, seen, [whole * (counts[0] / own - 1) for own in counts])

    def _judged(
        self,
        cause: Cause,
        done: Sequence[Sequence[Launched]],
        seen: Window,
        delays_ms: Sequence[float],
    ) -> Cause:
        times = [[_ms(seen, own) for own in one] for one in done]
        return replace(
            cause,
            unit=seen.unit,
            unit_ms=fmean(one[0] for one in times),
            delays_ms=tuple(delays_ms),
            slopes=slopes_of(times, delays_ms),
            launches=sum(map(len, done)),
            note=seen.note,
        )

    def _check(self, launches: int) -> None:
        """Raise Unavailable if the budget does not allow so many launches."""
        if not self._fits(launches):
            raise Unavailable(_budget(launches))

    def _window(self, done: Sequence[Sequence[Launched]], at_least: int) -> Window:
        seen = window([own.pace for one in done for own in one], at_least=at_least)
        if seen.different_work:
            raise Unavailable(seen.different_work)
        return seen

    def _complete(self, done: Sequence[Sequence[Launched]]) -> list[Sequence[Launched]]:
        """Return the rounds in which no launch failed."""
        complete = [one for one in done if all(own.failure is None for own in one)]
        if len(complete) < 2:
            whys = [own.why for one in done for own in one if own.failure is not None]
            raise Unavailable(f"the program fails with the handicap: {whys[0]}")
        return complete

    def _in_turns(self, levels: Sequence[Level]) -> list[list[Launched]]:
        """Launch levels in rounds, every other one in reverse; return them in their order."""
        rounds = []
        for number in range(self._rounds):
            backward = number % 2 == 1
            turn = [self._once(level) for level in (levels[::-1] if backward else levels)]
            rounds.append(turn[::-1] if backward else turn)
        return rounds

    def _once(self, level: Level) -> Launched:
        self._say(level.name)
        return self._launch(level.entries, level.env, level.wrapper)


def cores_by_package() -> list[int]:
    """Return the logical CPUs that this process may use; the threads of a core are neighbors."""
    allowed = os.sched_getaffinity(0)

    def core(cpu: int) -> tuple[int, int]:
        path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        try:
            first = path.read_text(encoding="utf-8").replace("-", ",").split(",")[0]
            return int(first), cpu
        except (OSError, ValueError):
            return cpu, cpu

    return sorted(allowed, key=core)


def mps_runs() -> bool:
    """Return whether a daemon of NVIDIA's Multi-Process Service takes the programs of this user.

    Without one, programs ignore the share of SMs that they are given.
    """
    folder = Path(os.environ.get(_MPS_FOLDER) or "/tmp/nvidia-mps")  # noqa: S108
    try:
        daemon = int((folder / "nvidia-cuda-mps-control.pid").read_text(encoding="ascii"))
        return (Path("/proc") / str(daemon)).exists() and (folder / "control").exists()
    except (OSError, ValueError):
        return False


def _budget(launches: int) -> str:
    return f"the budget does not allow its {launches} launches"


def _entry(name: str, **options: Any) -> Entry:
    return {"name": name, "file": str(FOLDER / f"{name}.py"), "options": options}


def _fewer(count: int) -> list[int]:
    """Return a number, and a half and a third of it, without repetitions."""
    return [*dict.fromkeys(max(1, round(count / times)) for times in (1, 2, 3))]


def _amount(counts: Sequence[int], what: str) -> str:
    return f"{what}: {counts[0]} -> {', '.join(map(str, counts[1:]))}"


def _ms(seen: Window, launched: Launched) -> float:
    ms = seen.ms(launched.pace)
    if ms is None:
        raise Unavailable("the time of a unit is unknown")
    return ms


def _counters(launched: Launched, name: str) -> Mapping[str, Any]:
    """Return what a handicap reported."""
    if launched.failure is not None:
        raise Unavailable(f"the program fails with the handicap: {launched.why}")
    effect = launched.effects.get(name)
    if effect is None:
        raise Unavailable(
            "the program's Python did not run perfpipe's start-up file, or imported no PyTorch"
        )
    if effect.failed:
        raise Unavailable(effect.failed[0])
    return effect.counters


def _counter(launched: Launched, name: str, handicap: str) -> int:
    """Return a number that the program's PyTorch reported."""
    counters = _counters(launched, "fewer")
    if name not in counters:
        raise Unavailable(causes.none(handicap))
    return int(counters[name])


def _events(launched: Launched, name: str, seen: Window) -> float:
    """Return the number of events per unit in the window; raises Unavailable without events."""
    counters = _counters(launched, name)
    if not counters.get("events"):
        refused = launched.effects[name].refused
        raise Unavailable(refused[0] if refused else causes.none(name))
    pace = launched.pace
    if seen.unit == LAUNCH:
        return float(counters["events"])
    if len(pace.times_ns) <= seen.last:  # the program printed times, which are not known here
        return float(counters["events"]) / max(1, pace.count)
    times, counts = counters["time_ns"], counters["counts"]
    first, last = (_count(pace.times_ns[place], times, counts) for place in (seen.first, seen.last))
    if last <= first:
        raise Unavailable(causes.none(name))
    return (last - first) / (seen.last - seen.first)


def _count(time_ns: int, times_ns: Sequence[int], counts: Sequence[int]) -> int:
    """Return the number of events until a time, of the counts that are known."""
    place = bisect_right(times_ns, time_ns)
    return counts[place - 1] if place else 0


def _compiled(folder: Path) -> Path:
    """Return the compiled callback of launches."""
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        raise Unavailable(f"no compiler of C is installed ({', '.join(_COMPILERS)})")
    library = folder / "launch.so"
    words: list[str | Path] = [
        compiler,
        "-O2",
        "-shared",
        "-fPIC",
        "-o",
        library,
        FOLDER / "launch.c",
    ]
    try:
        done = run(words, timeout=60)
    except PerfpipeError as error:
        raise Unavailable(str(error)) from error
    if not done.ok:
        raise Unavailable(f"launch.c cannot be compiled: {done.complaint()}")
    return library
