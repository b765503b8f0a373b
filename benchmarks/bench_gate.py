"""Error rates of the gate, by simulation through its public functions.

For kinds of noise, numbers of runs and orders of them: how often an unchanged program is called
improved or regressed (false alarm), how often a 3 % slowdown is called regressed (power), and how
often an unchanged program is called the same.  Further tables: arms in a random order that are
looked at after each round, with fresh rounds behind a regression, as `perfpipe ab` does; several
configurations; calibrated thresholds; 200 unchanged kernels tested at once, and how many of these
tables have a false alarm.  bench_ab.py measures the same through the command line.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfpipe.analysis.gate.ab import Round, certain, level_after, side_of_rounds
from perfpipe.analysis.gate.calibrate import calibrate
from perfpipe.analysis.gate.compare.comparison import Pairs, pairs_of
from perfpipe.analysis.gate.decision import Action, Verdict, after_fresh, decide
from perfpipe.analysis.gate.judging import ALPHA
from perfpipe.analysis.gate.limits import USUAL, Limits
from perfpipe.analysis.gate.order import orders
from perfpipe.analysis.gate.sides import KERNEL, Key, Measured, Side
from perfpipe.runrecord import TaskResult

Series = npt.NDArray[np.float64]
Noise = Callable[[np.random.Generator, int], Series]

#: Runs a side, and the slowdown whose discovery is counted.
RUNS, SLOWDOWN = (3, 5, 10), 0.03


def normal(scatter: float) -> Noise:
    """Return independent runs."""
    return lambda rng, count: rng.normal(0, scatter, count)


def heavy(rng: np.random.Generator, count: int) -> Series:
    """Return Student's t with three degrees of freedom, scaled to a deviation of 1 %."""
    found: Series = 0.01 * rng.standard_t(3, count) / np.sqrt(3)
    return found


def two_modes(slower: float, share: float, scatter: float) -> Noise:
    """Return runs of which a share is slower, as by where its memory lies."""
    return lambda rng, count: slower * (rng.random(count) < share) + rng.normal(0, scatter, count)


def drift(rng: np.random.Generator, count: int) -> Series:
    """Return runs on a GPU that warms up: 3 % slower from the first to the last."""
    return np.linspace(0, 0.03, count) + rng.normal(0, 0.005, count)


def correlated(rho: float, scatter: float) -> Noise:
    """Return autoregressive noise: a slow run follows a slow one."""

    def series(rng: np.random.Generator, count: int) -> Series:
        found = rng.normal(0, scatter, count)
        for at in range(1, count):
            found[at] = rho * found[at - 1] + np.sqrt(1 - rho**2) * found[at]
        return found

    return series


def outliers(rng: np.random.Generator, count: int) -> Series:
    """Return noise of 0.5 %, with one run in ten that takes 20 to 100 % longer."""
    longer = np.log1p(rng.uniform(0.2, 1, count))
    found: Series = rng.normal(0, 0.005, count) + longer * (rng.random(count) < 0.1)
    return found


def neighbor(rng: np.random.Generator, count: int) -> Series:
    """Return runs of which somebody else's job slows a few in a row by 8 %."""
    found = rng.normal(0, 0.005, count)
    if rng.random() < 0.3:
        start = rng.integers(count)
        found[start : start + 3] += 0.08
    return found


NOISES: dict[str, Noise] = {
    "normal 0.5 %": normal(0.005),
    "normal 1 %": normal(0.01),
    "normal 2 %": normal(0.02),
    "normal 5 %": normal(0.05),
    "heavy tails 1 %": heavy,
    "two modes 3 %, 1/3": two_modes(0.03, 1 / 3, 0.003),
    "two modes 3 %, 1/2": two_modes(0.03, 1 / 2, 0.005),
    "two modes 8 %, 1/2": two_modes(0.08, 1 / 2, 0.003),
    "drift 3 %": drift,
    "AR(1) 0.5, 1 %": correlated(0.5, 0.01),
    "AR(1) 0.8, 1 %": correlated(0.8, 0.01),
    "AR(1) 0.5, 2 %": correlated(0.5, 0.02),
    "AR(1) 0.8, 2 %": correlated(0.8, 0.02),
    "noisy neighbor": neighbor,
    "outliers": outliers,
    "timer of 32 ns, 1.5 us": normal(0.002),
}


class Rates(NamedTuple):
    """Shares of simulations, %: of unchanged programs, but `power`."""

    false: float
    power: float
    same: float


class Looked(NamedTuple):
    """What `perfpipe ab` decides, its advice, and the number of rounds."""

    verdict: str
    action: str
    rounds: int


@dataclass(frozen=True)
class Case:
    """What is simulated: runs of two arms, and how they are judged.

    With several `configurations` that have noise of their own, `slower` of them are slower.
    """

    noise: Noise
    runs: int
    in_turns: bool = True
    timer_ns: int = 0
    limits: Limits = USUAL
    configurations: int = 1
    slower: int = 1

    def rates(self, repeats: int) -> Rates:
        """Return how often the gate is right and wrong."""
        rng = np.random.default_rng(self.runs)
        unchanged = [self._decided(rng, 0) for _ in range(repeats)]
        slower = [self._decided(rng, SLOWDOWN) for _ in range(repeats)]
        return _rates(unchanged, slower)

    def rates_of_ab(self, repeats: int) -> tuple[Rates, float, float]:
        """Return the same for `perfpipe ab`, the share of advice to revert, %, and mean rounds."""
        rng = np.random.default_rng(self.runs)
        unchanged = [self._looked_at(rng, 0) for _ in range(repeats)]
        slower = [self._looked_at(rng, SLOWDOWN) for _ in range(repeats)]
        rounds = sum(own.rounds for own in (*unchanged, *slower)) / (2 * repeats)
        revert = 100 * sum(own.action == Action.REVERT for own in slower) / repeats
        verdicts = [[own.verdict for own in both] for both in (unchanged, slower)]
        return _rates(*verdicts), revert, rounds

    def _decided(self, rng: np.random.Generator, change: float) -> str:
        arms = [(slot + slot // 2) % 2 for slot in range(2 * self.runs)]
        return self._decision(self._rounds(rng, change, arms if self.in_turns else sorted(arms)))

    def _looked_at(self, rng: np.random.Generator, change: float) -> Looked:
        seeds = (str(seed) for seed in rng.integers(1 << 30, size=2))
        orders_of_both = (islice(orders(seed), self.runs) for seed in seeds)
        arms = [arm for own in orders_of_both for order in own for arm in order]
        rounds = self._rounds(rng, change, arms)
        done, verdict = self._looks(rounds, 0)
        if verdict != Verdict.REGRESSED:
            action = Action.CONTINUE if verdict in ("improved", "same") else Action.INVESTIGATE
            return Looked(verdict, action, done)
        # The fresh rounds are those after the most that the first ones can be.
        again, of_fresh = self._looks(rounds, self.runs)
        every = [[*own[:done], *own[self.runs : self.runs + again]] for own in rounds]
        confirmed = of_fresh == Verdict.REGRESSED
        found = decide(self._pairs(every, ALPHA), confirmed=confirmed)
        found = after_fresh(found, done, again=confirmed)
        return Looked(str(found.verdict), str(found.action), done + again)

    def _looks(self, rounds: Sequence[Sequence[Round]], start: int) -> tuple[int, str]:
        """Return the number of rounds from `start` on until the verdict is certain, and this."""
        for done in range(1, self.runs + 1):
            level = level_after(done, self.runs)
            if level is not None:
                own = [one[start : start + done] for one in rounds]
                found = decide(self._pairs(own, level))
                if certain(found.endpoints):
                    break
        return done, str(found.verdict)

    def _rounds(
        self, rng: np.random.Generator, change: float, arms: Sequence[int]
    ) -> list[list[Round]]:
        several = [self.noise(rng, len(arms)) for _ in range(self.configurations)]
        rounds: list[list[Round]] = [[], []]
        for slot, arm in enumerate(arms):
            results = []
            for at, logs in enumerate(several):
                slower = change if at < self.slower else 0
                ns = (1500 if self.timer_ns else 1e7) * np.exp(logs[slot]) * (1 + slower * arm)
                if self.timer_ns:
                    ns = self.timer_ns * round(ns / self.timer_ns)
                results.append(TaskResult(at, self._labels[at], {}, times_ms=(float(ns) / 1e6,)))
            rounds[arm].append(Round(slot, tuple(results)))
        return rounds

    @property
    def _labels(self) -> list[str]:
        many = self.configurations > 1
        return [f"n={at}" if many else "-" for at in range(self.configurations)]

    def _decision(self, rounds: Sequence[Sequence[Round]]) -> str:
        return str(decide(self._pairs(rounds, ALPHA)).verdict)

    def _pairs(self, rounds: Sequence[Sequence[Round]], alpha: float) -> Pairs:
        labels = self._labels
        before, after = (side_of_rounds(str(arm), own, labels) for arm, own in enumerate(rounds))
        if self.timer_ns:
            before.timers[""] = after.timers[""] = self.timer_ns
        return pairs_of(before, after, alpha=alpha, limits=self.limits)


def _rates(unchanged: Sequence[str], slower: Sequence[str]) -> Rates:
    false = sum(verdict in ("improved", "regressed") for verdict in unchanged)
    found, same = slower.count("regressed"), unchanged.count("same")
    return Rates(*(100 * count / len(unchanged) for count in (false, found, same)))


def calibrated(scatter: float, launches: int, repeats: int) -> tuple[float, Rates]:
    """Return the mean of the rounds that calibrations propose, and what comes of them.

    Every tenth comparison has a calibration of its own.
    """
    rng = np.random.default_rng(launches)
    rounds, found = [], []
    for _ in range(repeats // 10):
        times = [[float(ms)] for ms in 10 * np.exp(rng.normal(0, scatter, launches))]
        own = calibrate("-", times, rounds=5, change_pct=100 * SLOWDOWN).proposed
        rounds.append(own.rounds)
        limits = Limits({"-": own.limit_pct})
        found.append(Case(normal(scatter), own.rounds, limits=limits).rates(10))
    means = (float(np.mean([getattr(own, name) for own in found])) for name in Rates._fields)
    return float(np.mean(rounds)), Rates(*means)


def tables_with_false_alarms(scatter: float, runs: int, repeats: int) -> float:
    """Return the share of tables of 200 unchanged kernels in which any is called changed, %."""
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(repeats):
        sides = []
        for arm in (0, 1):
            # Of one run, kernels are slow together and on their own.
            common = rng.normal(0, scatter, runs)
            measured = {}
            for number in range(200):
                logs = common + rng.normal(0, scatter, runs)
                times = [float(time) for time in 1e5 * np.exp(logs)]
                key = Key("nsys", "-", KERNEL, f"k{number}")
                some: list[float | None] = [None] * runs
                measured[key] = Measured(times, times, [1] * runs, some, some)
            began = tuple(f"{2 * at + (at + arm) % 2:09}" for at in range(runs))
            sides.append(Side(measured, frozenset({"g"}), (str(arm),), began, {"nsys": 1}))
        pairs = pairs_of(sides[0], sides[1])
        found += any(pair.verdict in ("improved", "regressed") for pair in pairs.kernels)
    return 100 * found / repeats


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=1000, help="simulations of each case")
    parser.add_argument("--tables", type=int, default=100, help="simulated tables of kernels")
    options = parser.parse_args()
    heads = [f"R = {runs}: false, power, same" for runs in RUNS]
    print(f"{options.repeats} simulations of each; %, power for 3 %\n")
    print(_row("noise", "order", *heads))
    print(_row(*["---"] * 5))
    for name, noise in NOISES.items():
        timer = 32 if name.startswith("timer") else 0
        for in_turns in (True, False):
            cases = (Case(noise, runs, in_turns, timer) for runs in RUNS)
            cells = (_told(case.rates(options.repeats)) for case in cases)
            print(_row(name, "alternating" if in_turns else "A then B", *cells), flush=True)
    print("\nAs perfpipe ab: false, power, same, mean of rounds, revert advised\n")
    print(_row("noise", *(f"at most {runs} rounds" for runs in RUNS)))
    print(_row(*["---"] * 4))
    for name in ("normal 1 %", "normal 2 %", "two modes 3 %, 1/3", "AR(1) 0.8, 1 %", "outliers"):
        print(_row(name, *(_of_ab(Case(NOISES[name], runs), options.repeats) for runs in RUNS)))
    print("\nThe same with several configurations, of which one is slower\n")
    print(_row("noise", *(f"{count} configurations" for count in (1, 2, 5, 20))))
    print(_row(*["---"] * 5))
    for name in ("normal 0.5 %", "normal 1 %", "normal 2 %"):
        cases = (Case(NOISES[name], 5, configurations=count) for count in (1, 2, 5, 20))
        print(_row(name, *(_of_ab(case, options.repeats // 4) for case in cases)), flush=True)
    print("\nCalibrated with 20 launches: mean of proposed rounds; false, power, same\n")
    print(_row("noise", "rounds", "with these"))
    print(_row(*["---"] * 3))
    for scatter in (0.005, 0.01, 0.02):
        rounds, rates = calibrated(scatter, 20, options.repeats)
        print(_row(f"normal {100 * scatter:g} %", f"{rounds:.1f}", _told(rates)), flush=True)
    print("\n200 unchanged kernels at once: tables with a false alarm, %\n")
    print(_row("scatter", *(f"R = {runs}" for runs in RUNS)))
    print(_row(*["---"] * 4))
    for scatter in (0.01, 0.02):
        tables = (tables_with_false_alarms(scatter, runs, options.tables) for runs in RUNS)
        print(_row(f"{100 * scatter:g} %", *(f"{share:.1f}" for share in tables)), flush=True)


def _of_ab(case: Case, repeats: int) -> str:
    rates, revert, rounds = case.rates_of_ab(repeats)
    return f"{_told(rates)}, {rounds:.1f}, {revert:.0f}"


def _told(rates: Rates) -> str:
    return f"{rates.false:.1f}, {rates.power:.1f}, {rates.same:.0f}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
