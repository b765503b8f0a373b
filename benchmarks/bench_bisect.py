"""Error rates of bisections, by simulation through the search's public functions.

For kinds of histories and noise: how often the answer is the commit that changed the time, another
commit, or none, and how many probes and launches that takes.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfpipe.analysis.gate.bisect import Answer, History, Outcome, Round, next_step

Series = npt.NDArray[np.float64]
Noise = Callable[[np.random.Generator], float]

#: Commits after GOOD.
COMMITS = 64


class Planted(NamedTuple):
    """A history: the logarithm of the time of each place, the places at which it changes."""

    levels: Series
    steps: tuple[int, ...]


def stepped(*sizes: float, commits: int = COMMITS) -> Callable[[np.random.Generator], Planted]:
    """Return histories with steps at random places."""

    def make(rng: np.random.Generator) -> Planted:
        places = np.sort(rng.choice(np.arange(1, commits + 1), len(sizes), replace=False))
        levels = np.zeros(commits + 1)
        for place, size in zip(places, sizes, strict=True):
            levels[place:] += np.log1p(size)
        return Planted(levels, tuple(int(place) for place in places))

    return make


def gradual(rng: np.random.Generator) -> Planted:
    """Return a history in which each commit is slower, together 3 %."""
    return Planted(np.linspace(0, np.log1p(0.03), COMMITS + 1), ())


def normal(scatter: float) -> Noise:
    """Return independent launches."""
    return lambda rng: float(rng.normal(0, scatter))


def heavy(rng: np.random.Generator) -> float:
    """Return Student's t with three degrees of freedom, scaled to a deviation of 1 %."""
    return float(0.01 * rng.standard_t(3) / np.sqrt(3))


def odd(rng: np.random.Generator) -> float:
    """Return launches of which one in twenty is 20 % slower."""
    return float(rng.normal(0, 0.01) + 0.2 * (rng.random() < 0.05))


_USUAL = normal(0.01)


@dataclass(frozen=True)
class Case:
    """A kind of history: name, how it is made, its noise, drift per launch, untestable places."""

    name: str
    make: Callable[[np.random.Generator], Planted]
    noise: Noise = _USUAL
    drift: float = 0
    skipped: Sequence[int] = ()


CASES = (
    Case("one step of 3 %", stepped(0.03)),
    Case("no change", stepped()),
    Case("one step of -3 %", stepped(-0.03)),
    Case("one step of 3 %, noise 0.3 %", stepped(0.03), normal(0.003)),
    Case("one step of 3 %, noise 2 %", stepped(0.03), normal(0.02)),
    Case("one step of 3 %, heavy tails 1 %", stepped(0.03), heavy),
    Case("one step of 3 %, one launch in 20 is 20 % slower", stepped(0.03), odd),
    Case("one step of 3 %, drift 0.5 % per launch", stepped(0.03), drift=0.005),
    Case("one step of 3 %, commits 20 to 39 do not build", stepped(0.03), skipped=range(20, 40)),
    Case("one step of 3 % in 1024 commits", stepped(0.03, commits=1024)),
    Case("two steps of 2.5 %", stepped(0.025, 0.025)),
    Case("two steps of 4 % and 2 %", stepped(0.04, 0.02)),
    Case("two steps of 1.5 %", stepped(0.015, 0.015)),
    Case("+5 %, then -2.5 %", stepped(0.05, -0.025)),
    Case("3 % in equal parts over all commits", gradual),
)


class Simulated(NamedTuple):
    """The answer of a bisection, and the numbers of its probes and launches."""

    answer: Answer
    probes: int
    launches: int


def simulate(planted: Planted, case: Case, rng: np.random.Generator) -> Simulated:
    """Search a history with simulated launches."""
    history = History(len(planted.levels) - 1)
    launches, level = 0, 0.0
    while not isinstance(step := next_step(history), Answer):
        missing = [place for place in step.places if place in case.skipped]
        if missing:
            history = history.without(missing[0])
            continue
        times = {}
        for place in rng.permutation(step.places):
            level += rng.normal(0, case.drift) if case.drift else 0
            times[int(place)] = 1e7 * np.exp(planted.levels[place] + level + case.noise(rng))
        launches += len(times)
        done = Round(step.kind, {place: times[place] for place in step.places})
        history = replace(history, rounds=(*history.rounds, done))
    return Simulated(step, len(history.probes), launches)


def outcome_of(found: Answer, steps: Sequence[int]) -> str:
    """Return the outcome; the place of FOUND and RANGE can be right or wrong."""
    if found.outcome not in (Outcome.FOUND, Outcome.RANGE):
        return str(found.outcome)
    right = any(found.before < step <= found.after for step in steps)
    return f"{found.outcome}, {'right' if right else 'wrong'}"


def wilson(count: int, of: int, z: float = 1.96) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson, J. Am. Stat. Assoc. 22, 1927), %."""
    share = count / of
    centre = share + z * z / (2 * of)
    margin = z * np.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    scale = 100 / (1 + z * z / of)
    return scale * (centre - margin), scale * (centre + margin)


def main() -> None:
    """Print a table of all cases."""
    made = argparse.ArgumentParser(description="Error rates of bisections.")
    made.add_argument("--repeats", type=int, default=200, help="histories of each kind (200)")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--only", default="", help="beginning of the name of a case")
    options = made.parse_args()
    print("| history | outcomes, % (95 % interval) | probes: mean, most, > 12 | launches |")
    print("| --- | --- | --- | --- |")
    for number, case in enumerate(CASES):
        if not case.name.startswith(options.only):
            continue
        counts: Counter[str] = Counter()
        runs = []
        for repeat in range(options.repeats):
            rng = np.random.default_rng([options.seed, number, repeat])
            planted = case.make(rng)
            runs.append(simulate(planted, case, rng))
            counts[outcome_of(runs[-1].answer, planted.steps)] += 1
        told = []
        for name, count in counts.most_common():
            low, high = wilson(count, options.repeats)
            share = 100 * count / options.repeats
            told.append(f"{name} {share:.1f} ({low:.1f} to {high:.1f})")
        probes = np.array([run.probes for run in runs])
        launches = np.mean([run.launches for run in runs])
        print(
            f"| {case.name} | {'; '.join(told)} | {probes.mean():.1f}, {probes.max()}, "
            f"{100 * np.mean(probes > 12):.1f} % | {launches:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
