"""Error rates of the gate, by simulation through its public functions.

For kinds of noise, numbers of runs and orders of them: how often an unchanged program is called
improved or regressed (false alarm), how often a 3 % slowdown is called regressed (power), and how
often neither side of the question is answered.  The last table is of 200 unchanged kernels tested
at once: how many tables have a false alarm.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.comparison import pairs_of
from analysis.gate.decision import decide
from analysis.gate.rounds import Round, side_of_rounds
from analysis.sides import KERNEL, Key, Measured, Side
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


def two_modes(rng: np.random.Generator, count: int) -> Series:
    """Return runs of which every third is 3 % slower, as by where its memory lies."""
    return 0.03 * (rng.random(count) < 1 / 3) + rng.normal(0, 0.003, count)


def drift(rng: np.random.Generator, count: int) -> Series:
    """Return runs on a GPU that warms up: 3 % slower from the first to the last."""
    return np.linspace(0, 0.03, count) + rng.normal(0, 0.005, count)


def correlated(rho: float) -> Noise:
    """Return autoregressive noise of a deviation of 1 %: a slow run follows a slow one."""

    def series(rng: np.random.Generator, count: int) -> Series:
        found = np.empty(count)
        found[0] = rng.normal(0, 0.01)
        for at in range(1, count):
            found[at] = rho * found[at - 1] + rng.normal(0, 0.01 * np.sqrt(1 - rho**2))
        return found

    return series


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
    "two modes 3 % apart": two_modes,
    "drift 3 %": drift,
    "AR(1) 0.5, 1 %": correlated(0.5),
    "AR(1) 0.8, 1 %": correlated(0.8),
    "noisy neighbor": neighbor,
    "timer of 32 ns, 1.5 us": normal(0.002),
}


@dataclass(frozen=True)
class Rates:
    """Shares of simulations, %."""

    false: float
    power: float
    unanswered: float


def rates(noise: Noise, runs: int, in_turns: bool, repeats: int, timer_ns: int) -> Rates:
    """Return how often the gate is right and wrong."""
    rng = np.random.default_rng(runs)
    false = power = unanswered = 0
    for _ in range(repeats):
        for change in (0.0, SLOWDOWN):
            verdict = _verdict(rng, noise, runs, in_turns, change, timer_ns)
            false += change == 0 and verdict in ("improved", "regressed")
            power += change > 0 and verdict == "regressed"
            unanswered += verdict == "inconclusive"
    return Rates(100 * false / repeats, 100 * power / repeats, 50 * unanswered / repeats)


def _verdict(
    rng: np.random.Generator, noise: Noise, runs: int, in_turns: bool, change: float, timer_ns: int
) -> str:
    logs = noise(rng, 2 * runs)
    order = [(slot + slot // 2) % 2 if in_turns else slot // runs for slot in range(2 * runs)]
    rounds: tuple[list[Round], list[Round]] = ([], [])
    for slot, arm in enumerate(order):
        ns = (1500 if timer_ns else 1e7) * np.exp(logs[slot] + np.log1p(change) * arm)
        if timer_ns:
            ns = timer_ns * round(ns / timer_ns)
        times = tuple(float(ns) / 1e6 for _ in range(3))
        rounds[arm].append(Round(slot, (TaskResult(0, "-", {}, times_ms=times),)))
    before, after = (side_of_rounds(str(arm), own, ["-"]) for arm, own in enumerate(rounds))
    if timer_ns:
        before.timers[""] = after.timers[""] = timer_ns
    return str(decide(pairs_of(before, after)).verdict)


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
    print(f"{options.repeats} simulations each; false alarms at no change, power at 3 %, in %")
    print(f"{'noise':24} {'order':9} " + "".join(f"{f'R={r}':>22}" for r in RUNS))
    print(f"{'':34} " + f"{'false  power  unknown':>22}" * len(RUNS))
    for name, noise in NOISES.items():
        timer = 32 if name.startswith("timer") else 0
        for in_turns in (True, False):
            cells = []
            for runs in RUNS:
                own = rates(noise, runs, in_turns, options.repeats, timer)
                cells.append(f"{own.false:7.1f}{own.power:7.1f}{own.unanswered:8.1f}")
            order = "in turns" if in_turns else "A then B"
            print(f"{name:24} {order:9} " + "".join(cells))
    print("\n200 unchanged kernels at once: tables with a false alarm, %")
    for scatter in (0.01, 0.02):
        cells = [f"{tables_with_false_alarms(scatter, r, options.tables):22.1f}" for r in RUNS]
        print(f"{f'scatter {100 * scatter:g} %':34} " + "".join(cells))


if __name__ == "__main__":
    main()
