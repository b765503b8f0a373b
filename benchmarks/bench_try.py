"""Error rates of `perfpipe try`, by simulation through the functions that decide.

A simulated run is what the command does: plain launches first, rounds of plain and all levers in a
random order, looks after each round that drop levers, the stack of those that gain, each added and
dropped once, and fresh rounds of it.  The first table shows how often a run of twelve levers that
change nothing reports any gain, for kinds of noise between launches; the second one how often a
lever with a real gain is found among eleven that change nothing; the third one what is reported of
two real levers.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt
from bench_gate import correlated, neighbor, normal, two_modes

from perfpipe.analysis.trying import verdict
from perfpipe.analysis.trying.verdict import GAIN, INCONCLUSIVE, Judged, Schedule
from perfpipe.pipelines.trying.trial import CHOOSING, CONFIRMING, FIRST
from perfpipe.units import counted

Series = npt.NDArray[np.float64]
Noise = Callable[[np.random.Generator, int], Series]

#: Levers, and rounds of them.
LEVERS, ROUNDS = 12, (2, 3, 5, 8)

#: Gains and scatters of the table of power.
GAINS = (0.03, 0.05, 0.10, 0.20, 0.30)
SCATTERS = ("log-normal 1 %", "log-normal 2 %", "log-normal 5 %")

#: Numbers of levers of shorter runs.
FEWER = (1, 2, 4)


def heavy(rng: np.random.Generator, count: int) -> Series:
    """Return Student's t with two degrees of freedom, which has no variance."""
    found: Series = 0.01 * rng.standard_t(2, count)
    return found


def slow(by: float) -> Noise:
    """Return launches of which one in ten is slow."""
    return lambda rng, count: by * (rng.random(count) < 0.1) + rng.normal(0, 0.005, count)


def drift(rng: np.random.Generator, count: int) -> Series:
    """Return launches that get slower by 10 % from the first to the last."""
    return np.linspace(0, 0.1, count) + rng.normal(0, 0.005, count)


def period(length: int) -> Noise:
    """Return launches of which every second half of a period is slower by 5 %."""

    def series(rng: np.random.Generator, count: int) -> Series:
        place = (np.arange(count) + rng.integers(length)) % length
        return 0.05 * (place < length // 2) + rng.normal(0, 0.002, count)

    return series


def first_slow(rng: np.random.Generator, count: int) -> Series:
    """Return launches of which the first is slower by 30 %."""
    found = rng.normal(0, 0.01, count)
    found[0] += 0.3
    return found


NOISES: dict[str, Noise] = {
    "log-normal 1 %": normal(0.01),
    "log-normal 2 %": normal(0.02),
    "log-normal 5 %": normal(0.05),
    "heavy tails": heavy,
    "one in ten is 30 % slower": slow(0.3),
    "one in ten is 5 % slower": slow(0.05),
    "drift 10 %": drift,
    "period of 2 launches, 5 %": period(2),
    "period of 4 launches, 5 %": period(4),
    "period of 13 launches, 5 %": period(13),
    "two modes 8 %, 1/2": two_modes(0.08, 1 / 2, 0.003),
    "two modes 8 %, 1/3": two_modes(0.08, 1 / 3, 0.003),
    "the first launch is 30 % slower": first_slow,
    "AR(1) 0.8, 2 %": correlated(0.8, 0.02),
    "noisy neighbor": neighbor,
}


@dataclass
class Tried:
    """What a run reports: of each lever, and of the stack; `true_pct` is what the stack saves."""

    levers: dict[str, Judged]
    stack: list[str] = field(default_factory=list)
    confirmed: Judged | None = None
    true_pct: float = 0.0
    launches: int = 0

    @property
    def gain(self) -> bool:
        """Whether a gain of the stack is reported."""
        return self.confirmed is not None and self.confirmed.verdict == GAIN


@dataclass
class Run:
    """A run of some levers with their true gains; those in `unlike` scatter four times as much.

    `noise` is one of NOISES.
    """

    noise: str
    rounds: int
    gains: Sequence[float] = (0.0,) * LEVERS
    first: int = FIRST
    unlike: Sequence[str] = ()

    def tried(self, seed: int) -> Tried:
        """Return what it reports."""
        self._machine = self._launches(seed)
        self._seed, self._count = seed, 0
        first = [self._time(()) for _ in range(self.first)]
        limit = verdict.least_gain_pct(first)
        levers = self._levers(first, limit)
        found = Tried(levers)
        stack: list[str] = []
        for name in verdict.by_gain(levers):
            more = [*stack, name]
            if stack:
                without, with_it = self._turns(CHOOSING, stack, more)
                more = more if verdict.adds(without, with_it, limit) else stack
            stack = more
        if len(stack) > 2:
            shorter = {name: [own for own in stack if own != name] for name in stack[:-1]}
            whole, *parts = self._turns(CHOOSING, stack, *shorter.values())
            least = verdict.drop_once(whole, dict(zip(shorter, parts, strict=True)), limit)
            stack = [own for own in stack if own != least]
        if stack:
            plain, fresh = self._turns(CONFIRMING, (), stack)
            scatter = verdict.scatter_of(first, [plain, fresh])
            found.confirmed = verdict.confirmed(plain, fresh, limit_pct=limit, scatter=scatter)
        found.stack, found.true_pct = stack, 100 * (1 - math.exp(self._log(stack)))
        found.launches = self._count
        return found

    def _levers(self, first: Sequence[float], limit: float) -> dict[str, Judged]:
        """Return what is found of each lever."""
        names = [str(number) for number in range(len(self.gains))]
        times: dict[str, list[float]] = {name: [] for name in ("plain", *names)}
        known = {name: Judged(0, None, None, None, INCONCLUSIVE) for name in names}
        schedule = Schedule(len(names), self.rounds)
        for done in range(1, self.rounds + 1):
            open_ = [name for name in names if known[name].verdict == INCONCLUSIVE]
            for arm in verdict.order(done, ["plain", *open_] if open_ else [], self._seed):
                times[arm].append(self._time(() if arm == "plain" else (arm,)))
            found = sum(own.verdict == GAIN for own in known.values())
            level = schedule.level(done, found)
            if level is None:
                continue
            scatter = verdict.scatter_of(first, times.values())
            for name in open_:
                known[name] = verdict.judged(
                    times["plain"], times[name], alpha=level, limit_pct=limit, scatter=scatter
                )
        return known

    def _turns(self, rounds: int, *arms: Sequence[str]) -> list[list[float]]:
        """Return the times of some stacks in fresh rounds."""
        times: list[list[float]] = [[] for _ in arms]
        for done in range(rounds):
            for arm in verdict.order(self._count + done, [*map(str, range(len(arms)))], self._seed):
                times[int(arm)].append(self._time(arms[int(arm)]))
        return times

    def _time(self, levers: Sequence[str]) -> float:
        """Return the time of the next launch."""
        self._count += 1
        scatter = 4 if set(levers) & {*self.unlike} else 1
        return 10 * math.exp(scatter * next(self._machine) + self._log(levers))

    def _log(self, levers: Sequence[str]) -> float:
        return math.fsum(math.log1p(-self.gains[int(name)]) for name in levers)

    def _launches(self, seed: int) -> Iterator[float]:
        count = self.first + self.rounds * (len(self.gains) + 1)
        rng, noise = np.random.default_rng(seed), NOISES[self.noise]
        return itertools.chain.from_iterable(noise(rng, count) for _ in itertools.count())


def false_gains(run: Run, repeats: int) -> int:
    """Return how many runs report a gain of a lever or stack that has none."""
    found = 0
    for seed in range(repeats):
        tried = run.tried(seed)
        levers = (own.verdict == GAIN for own in tried.levers.values())
        wrong = any(gain and not true for gain, true in zip(levers, run.gains, strict=True))
        found += bool(wrong or (tried.gain and tried.true_pct <= 0))
    return found


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=200, help="simulated runs of each case")
    repeats = parser.parse_args().repeats
    with ProcessPoolExecutor() as pool:
        print(f"{repeats} runs of {LEVERS} levers that change nothing: runs with a gain, %\n")
        _head("noise between launches", *(f"{rounds} rounds" for rounds in ROUNDS))
        cases = [[Run(noise, rounds) for rounds in ROUNDS] for noise in NOISES]
        cases.append([Run("log-normal 1 %", rounds, unlike=("3",)) for rounds in ROUNDS])
        for name, runs in zip((*NOISES, "log-normal 1 %, one lever 4 %"), cases, strict=True):
            rates = pool.map(partial(false_pct, repeats=repeats), runs)
            _row(name, *(f"{rate:.1f}" for rate in rates))
        print("\nFewer levers that change nothing; the worst of these numbers of rounds, %\n")
        _head("noise between launches", *(counted(number, "lever") for number in FEWER))
        for name in NOISES:
            few = [Run(name, rounds, (0.0,) * levers) for levers in FEWER for rounds in ROUNDS]
            every = [*pool.map(partial(false_pct, repeats=repeats), few)]
            size = len(ROUNDS)
            _row(name, *(f"{max(every[at : at + size]):.1f}" for at in range(0, len(few), size)))
        print(f"\nOne lever that gains among {LEVERS}: runs that find it, %\n")
        _head("scatter", "rounds", *(f"gain {100 * gain:.0f} %" for gain in GAINS))
        for scatter, rounds in itertools.product(SCATTERS, ROUNDS):
            none = (0.0,) * (LEVERS - 1)
            one = [Run(scatter, rounds, (gain, *none)) for gain in GAINS]
            shares = pool.map(partial(found_pct, repeats=repeats // 4), one)
            _row(scatter, str(rounds), *(f"{share:.0f}" for share in shares))
        print("\nTwo levers that save 20 and 5 % among ten that change nothing\n")
        _head("scatter", "rounds", *STACKED)
        two = [
            Run(scatter, rounds, (0.2, 0.05, *(0.0,) * (LEVERS - 2)))
            for scatter, rounds in itertools.product(SCATTERS, ROUNDS)
        ]
        found = pool.map(partial(stacked, repeats=repeats // 4), two)
        for run, values in zip(two, found, strict=True):
            _row(run.noise, str(run.rounds), *(f"{round(value, 1) + 0.0:.1f}" for value in values))


#: What is reported of two levers that gain.
STACKED = (
    "both in the stack, %",
    "other levers in it, %",
    "mean error of the first estimates, points",
    "mean error of the stack, points",
    "interval contains what it saves, %",
    "launches",
)


def stacked(run: Run, repeats: int) -> list[float]:
    """Return what is reported of two levers that gain, as STACKED names it."""
    gaining = {str(number) for number, gain in enumerate(run.gains) if gain}
    runs = [run.tried(seed) for seed in range(repeats)]
    known = [(own.confirmed, own.true_pct) for own in runs if own.confirmed]
    right = [float((j.low_pct or 0) <= true <= (j.high_pct or 0)) for j, true in known]
    # What the chosen levers were said to save, each by the launches that chose it.
    chosen = [
        own.levers[name].gain_pct - 100 * run.gains[int(name)] for own in runs for name in own.stack
    ]
    return [
        100 * float(np.mean([gaining <= {*own.stack} for own in runs])),
        100 * float(np.mean([bool({*own.stack} - gaining) for own in runs])),
        float(np.mean(chosen or [math.nan])),
        float(np.mean([j.gain_pct - true for j, true in known] or [math.nan])),
        100 * float(np.mean(right or [math.nan])),
        float(np.mean([own.launches for own in runs])),
    ]


def found_pct(run: Run, repeats: int) -> float:
    """Return the share of runs that find the first lever to gain, %."""
    found = [run.tried(seed).levers["0"].verdict == GAIN for seed in range(repeats)]
    return 100 * float(np.mean(found))


def false_pct(run: Run, repeats: int) -> float:
    """Return the share of runs that report a gain of a lever or stack that has none, %."""
    return 100 * false_gains(run, repeats) / repeats


def _head(*cells: str) -> None:
    _row(*cells)
    _row(*["---"] * len(cells))


def _row(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
