"""The outcomes of levers in words, and what several trials show about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from perfpipe.analysis.known import median
from perfpipe.trialrecord import EQUAL_RESULTS, Gained, LeverTrial, StackTrial, Trial, Used
from perfpipe.units import counted, format_joules

#: What the comparison of results says, in words.
RESULTS = {
    "identical": "identical",
    "within_scatter": "within run-to-run scatter",
    "within_tolerance": "within tolerance",
    "differ": "differ",
    "unknown": "unknown",
}


def interval(gained: Gained) -> str:
    """Return an interval as text; empty if there is none."""
    if gained.low_pct is None or gained.high_pct is None:
        return ""
    return f"{gained.low_pct:.1f} to {gained.high_pct:.1f} %"


def saved(gained: Gained) -> str:
    """Return a gain as a change of time; empty if it was not measured.

    >>> saved(Gained(52.1, 50.0, 54.0))
    '-52.1 % (-50.0 to -54.0 %)'
    """
    if gained.gain_pct is None:
        return ""
    text = f"{0.0 - round(gained.gain_pct, 1):+.1f} %"
    if gained.low_pct is not None and gained.high_pct is not None:
        text += f" ({-gained.low_pct:+.1f} to {-gained.high_pct:+.1f} %)"
    return text


def start_up(own: LeverTrial, unit: str) -> str:
    """Return the time that a lever takes once, and when a gain has paid for it.

    Empty below half a second.
    """
    if own.start_up_s is None or own.start_up_s < 0.5:
        return ""
    pays = ""
    if own.verdict == "gain" and own.pays_after is not None:
        pays = f", pays after {counted(round(own.pays_after), unit)}"
    return f"{own.start_up_s:.1f} s{pays}"


def energy(used: Used) -> str:
    """Return an energy with its change; empty if it is unknown.

    >>> energy(Used(1.5, 2.0))
    '1.5 J (-25.0 %)'
    """
    if used.joules is None:
        return ""
    if not used.plain_joules:
        return format_joules(used.joules)
    change = 100 * (used.joules / used.plain_joules - 1)
    return f"{format_joules(used.joules)} ({change:+.1f} %)"


@dataclass(frozen=True)
class Outcome:
    """What a lever or a stack did, as in the table `trials`."""

    verdict: str
    gained: Gained
    results: str
    why: str = ""
    results_why: str = ""

    @classmethod
    def of(cls, own: LeverTrial | StackTrial) -> Outcome:
        """Return the outcome of a record."""
        why = own.why if isinstance(own, LeverTrial) else ""
        return cls(own.verdict, own.gained, own.results, why, own.results_why)

    @property
    def helps(self) -> bool:
        """Whether it saves time and leaves the results equal."""
        return self.verdict == "gain" and self.results in EQUAL_RESULTS

    @property
    def label(self) -> str:
        """The verdict, unless a gain has other results."""
        if self.verdict != "gain" or self.helps:
            return self.verdict
        return "results differ" if self.results == "differ" else "results unknown"

    @property
    def measured(self) -> bool:
        """Whether a measurement replaces the bound."""
        return self.verdict in ("gain", "no gain", "slower")

    def sentence(self) -> str:
        """Return the outcome in words."""
        change = saved(self.gained)
        if self.verdict == "gain":
            return f"tried: {change}, {self.said_of_results()}"
        if self.verdict in ("no gain", "slower"):
            return f"tried, nothing gained: {change}"
        if self.verdict == "inconclusive":
            return f"tried, undecided: {change}" if change else "tried, undecided"
        return f"tried, {self.verdict}: {self.why}" if self.why else f"tried, {self.verdict}"

    def said_of_results(self) -> str:
        """Return whether the results are equal, as the end of a sentence on a gain."""
        if self.results in EQUAL_RESULTS:
            return f"results {RESULTS[self.results]}"
        differ = self.results == "differ"
        said = "the results differ" if differ else "the results cannot be compared"
        return f"but {said}: {self.results_why}" if self.results_why else f"but {said}"


def launched(trial: Trial) -> Iterator[LeverTrial]:
    """Yield the levers that were launched, those that help first."""
    found = [own for own in trial.levers if own.launches]
    yield from sorted(
        found, key=lambda own: (not Outcome.of(own).helps, -(own.gained.gain_pct or -1e9))
    )


def exceeded(trials: Iterable[Trial]) -> list[tuple[Trial, LeverTrial]]:
    """Return the levers whose gain exceeds the bound even at the low end of its interval."""
    return [(trial, own) for trial in trials for own in trial.levers if own.exceeds_bound]


@dataclass(frozen=True)
class LeverGains:
    """What a lever did in several trials: medians of bounds and gains in %, None if unknown."""

    name: str
    programs: int
    helped: int
    bound_pct: float | None
    gain_pct: float | None


def median_gains(trials: Sequence[Trial]) -> list[LeverGains]:
    """Return what each lever promised and gained where it was launched, most helpful first."""
    by_name: dict[str, list[LeverTrial]] = {}
    for trial in trials:
        for own in launched(trial):
            by_name.setdefault(own.name, []).append(own)
    made = [
        LeverGains(
            name,
            len(every),
            sum(Outcome.of(own).helps for own in every),
            median(own.bound_pct for own in every),
            median(own.gained.gain_pct for own in every),
        )
        for name, every in by_name.items()
    ]
    return sorted(made, key=lambda own: (-own.helped, -(own.gain_pct or 0.0), own.name))
