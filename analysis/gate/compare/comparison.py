"""Compares runs with a baseline: steps, their budget, and which kernels got faster or slower."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from perfpipe.analysis.facts import PROGRAM, WORKLOAD
from perfpipe.analysis.gate.choosing import judge
from perfpipe.analysis.gate.compare.environment import beside, disturbed, mixed
from perfpipe.analysis.gate.compare.testing import (
    Tested,
    Tests,
    families_of,
    means_of,
    with_means,
)
from perfpipe.analysis.gate.judging import (
    ALPHA,
    Change,
    interleaved,
    verdict_of,
)
from perfpipe.analysis.gate.limits import USUAL, Limits
from perfpipe.analysis.gate.sides import (
    CAPTURE,
    ENDPOINTS,
    ENERGIES,
    ITERATION,
    JUDGED,
    KERNEL,
    PROFILED,
    STEP,
    WALL,
    Key,
    Measured,
    Side,
)
from perfpipe.analysis.thresholds import thresholds


@dataclass(frozen=True)
class Compared:
    """A pair: both sides' measurements for a key, and the verdict; None for parts of a budget.

    `total_ns` is the change in time of all launches, in a step if there are any; `change` is None
    where one side lacks the key; `q` is the p-value, adjusted for multiple tests.
    Changes below `limit_pct` do not count.  `bounds` of several configurations all hold at the
    level of the test, as ratio - 1: each end by itself, for all configurations at once.
    """

    key: Key
    before: Measured
    after: Measured
    change: Change | None
    total_ns: float | None
    q: float | None
    verdict: str | None
    note: str | None
    limit_pct: float
    bounds: tuple[float, float] | None = None

    @property
    def is_energy(self) -> bool:
        """Whether it is an energy in J, not a time in ns."""
        return self.key.part in ENERGIES

    @property
    def medians(self) -> tuple[float | None, float | None]:
        """Medians over the runs of both sides, in the unit of the part."""
        return _median(self.before), _median(self.after)

    @property
    def before_ns(self) -> float | None:
        """Median over the baseline's runs."""
        return _median(self.before)

    @property
    def after_ns(self) -> float | None:
        """Median over the compared runs."""
        return _median(self.after)


@dataclass(frozen=True)
class Pairs:
    """All pairs: `steps` are times.

    `in_turns` says whether the runs of the sides took turns, None if unknown.  `timers` are the
    steps of the timers, ns, by profiler, with their origin.  `beside` lists other differences
    between the sides that may be a part of a change.  `unlike` is the reason why the sides cannot
    be compared, None if they can.  `lost` are configurations that the baseline measured and the
    other side did not, with the reason.  `no_energy` are those whose energy is not known on both
    sides, with the reason.  `means` are the pairs of the mean of several configurations, by
    endpoint.
    """

    steps: tuple[Compared, ...]
    kernels: tuple[Compared, ...]
    in_turns: bool | None
    timers: dict[str, tuple[int, str]]
    beside: tuple[str, ...] = ()
    unlike: str | None = None
    lost: Mapping[str, str] = field(default_factory=dict)
    energies: tuple[Compared, ...] = ()
    no_energy: Mapping[str, str] = field(default_factory=dict)
    means: tuple[Compared, ...] = ()

    @property
    def replicated(self) -> bool:
        """Whether anything has more than one run on each side."""
        return any(pair.q is not None for pair in (*self.steps, *self.kernels))

    @property
    def order(self) -> str:
        """The order of the runs, in words, if a change may be drift; else empty."""
        if self.in_turns or not self.replicated:
            return ""
        return "did not alternate" if self.in_turns is False else "are in an unknown order"


def pairs_of(
    before: Side,
    after: Side,
    *,
    alpha: float = ALPHA,
    allow_mixed: bool = False,
    same_work: bool = False,
    limits: Limits = USUAL,
) -> Pairs:
    """Match and judge the measurements of two sides at a level; largest changes in time first.

    Kernels are tested together, and so are the endpoints of several configurations.  The mean of
    these is tested as well, and has half of the level.  Times on different GPU models or driver
    majors are not compared, unless with `allow_mixed`.  With `same_work` configurations of other
    parameters or workloads are not compared either.
    """
    lost = _lost(before, after) if same_work else {}
    before, after = matched(before, after, same_work=same_work)
    no_energy = _no_energy(before, after)
    families = families_of(before, after)
    means = means_of(before, after, families)
    before, after = (with_means(side, families, means) for side in (before, after))
    in_turns = interleaved(before.began, after.began)
    timers = _timers(before, after)
    steps = {
        key: _resolution(key, after, timers)
        for key in sorted(before.measured.keys() & after.measured.keys())
    }
    tested = Tests(before, after, steps, alpha).all(families, means)
    unlike = None if allow_mixed else _unlike(before, after)
    unlike = (_other_workload(before, after) if same_work else None) or unlike
    judge_pair = _Judge(before, after, tested, steps, bool(in_turns), alpha, unlike, limits)
    pairs = [judge_pair(key) for key in before.measured.keys() | after.measured.keys()]
    kernels = [pair for pair in pairs if pair.key.part == KERNEL]
    energies = [pair for pair in pairs if pair.is_energy and pair.key not in means]
    kinds = (*means, *(pair.key for pair in (*kernels, *energies)))
    return Pairs(
        tuple(_by_configuration([pair for pair in pairs if pair.key not in kinds])),
        tuple(sorted(kernels, key=_by_time)),
        in_turns,
        timers,
        beside(before.facts, after.facts),
        unlike,
        lost,
        tuple(sorted(energies, key=lambda p: (p.key.label, ENERGIES.index(p.key.part)))),
        no_energy,
        tuple(pair for pair in pairs if pair.key in means),
    )


def _no_energy(before: Side, after: Side) -> dict[str, str]:
    """Return the configurations whose energy is not known on both sides, with the reason."""
    found = {}
    for label in sorted(before.labels & after.labels):
        known = [{p for p in ENERGIES if side.has("", label, p)} for side in (before, after)]
        if known[0] & known[1]:
            continue
        side, when = (after, "now") if known[0] else (before, "in the baseline")
        why = side.no_energy.get(label) or "it was not measured, or differently on the other side"
        found[label] = f"has no known energy {when}: {why}"
    return found


def _lost(before: Side, after: Side) -> dict[str, str]:
    """Return the configurations that only the baseline measured, and what the other side lacks."""
    found = {}
    for label in sorted(before.labels):
        old, new = (
            {key.part for key in side.measured if key.label == label and key.part in ENDPOINTS}
            for side in (before, after)
        )
        if old and not new and not _stand_for_each_other(before, after):
            found[label] = "was measured in the baseline, but not now"
        elif ITERATION in old and new and ITERATION not in new:
            found[label] = "printed usable times in the baseline, but not now"
        elif ITERATION in old and {ITERATION, WALL} <= new:
            silent = len(after[Key("", label, WALL)].medians)
            of = silent + len(after[Key("", label, ITERATION)].medians)
            found[label] = f"printed no usable times in {silent} of {of} runs"
    return found


def _other_workload(before: Side, after: Side) -> str | None:
    """Return a sentence if two sides are known to have run different workloads."""
    names = [side.facts.values(PROGRAM, WORKLOAD) for side in (before, after)]
    if not names[0] or not names[1] or {*names[0]} == {*names[1]}:
        return None
    return f"workload: {', '.join(names[0])} before, {', '.join(names[1])} after"


def _stand_for_each_other(before: Side, after: Side) -> bool:
    """Return whether either side has an unnamed configuration, such as that of a single report."""
    return len(before.labels) == len(after.labels) == 1 and "" in before.labels | after.labels


def matched(before: Side, after: Side, *, same_work: bool = False) -> tuple[Side, Side]:
    """Return two sides with the same labels: a single configuration on each is the same one.

    With `same_work` only if one of them has no name.
    """
    one = [side.labels for side in (before, after)]
    if len(one[0]) != 1 or len(one[1]) != 1 or one[0] == one[1]:
        return before, after
    if same_work and not _stand_for_each_other(before, after):
        return before, after
    name = " -> ".join(label or "-" for (label,) in one)
    return before.relabelled(name), after.relabelled(name)


def _unlike(before: Side, after: Side) -> str | None:
    """Return why times of two sides cannot be compared, None if they can."""
    if before.gpus != after.gpus:
        return f"{_list(before.gpus)} before, {_list(after.gpus)} after"
    return mixed(before.facts, after.facts)


def _timers(before: Side, after: Side) -> dict[str, tuple[int, str]]:
    """Return the coarser step of the two sides' timers, by profiler, with its origin."""
    assumed = round(thresholds()["compare.timer_ns"])
    found = {}
    for profiler in {key.profiler for side in (before, after) for key in side.measured}:
        seen = [side.timers[profiler] for side in (before, after) if profiler in side.timers]
        found[profiler] = (max(seen), "from the durations") if seen else (assumed, "assumed")
    return found


def _resolution(key: Key, after: Side, timers: dict[str, tuple[int, str]]) -> float:
    """Return how far two readings of the same time can lie apart, ns; 0 for energies."""
    if key.part in ENERGIES:
        return 0
    step = timers[key.profiler][0]
    # Each launch in a sum is rounded on its own.
    return step * statistics.median(after[key].launches) if key.part == PROFILED else step


#: The part that the other side may have instead, and the note for that.
_OTHER = {
    STEP: (CAPTURE, "steps were found on one side only"),
    CAPTURE: (STEP, "steps were found on one side only"),
    ITERATION: (WALL, "the program printed times on one side only"),
    WALL: (ITERATION, "the program printed times on one side only"),
}


class _Judge(NamedTuple):
    """Judges pairs of two sides."""

    before: Side
    after: Side
    tested: dict[Key, Tested]
    steps: dict[Key, float]
    in_turns: bool
    alpha: float
    unlike: str | None
    limits: Limits

    def __call__(self, key: Key) -> Compared:
        old, new = self.before[key], self.after[key]
        change, q, bounds = self.tested.get(key, (None, None, None))
        verdict, note = self._verdict(key, old, new, change, q)
        total, limit = self._total(key, old, new), self.limits[key]
        return Compared(key, old, new, change, total, q, verdict, note, limit, bounds)

    def _verdict(
        self, key: Key, old: Measured, new: Measured, change: Change | None, q: float | None
    ) -> tuple[str | None, str | None]:
        if key.part not in JUDGED:
            return None, None
        if not old.medians or not new.medians or change is None:
            return self._one_sided(key, "gone" if old.medians else "new")
        if self.unlike:
            return "not comparable", self.unlike
        if key.part in (CAPTURE, PROFILED) and (other := self._other_work(key)):
            return "not comparable", other
        limit = self.limits[key]
        verdict = self._judged(change, q, limit, self.in_turns)
        if verdict in ("improved", "regressed") and (clocks := _clocks(old, new, verdict)):
            return "not comparable", clocks
        # The conditions are those of launches without ncu.
        if key.profiler != "ncu" and (
            note := disturbed(self.before.facts, self.after.facts, verdict)
        ):
            return "inconclusive", note
        if verdict == "inconclusive" and (why := self._withheld(change, q, limit)):
            return verdict, why
        share_pct = 100 * self.steps[key] / statistics.median(old.medians)
        if verdict == "inconclusive" and share_pct > limit:
            step = f"{self.steps[key]:g} ns"
            return verdict, f"the timer's step of {step} is {share_pct:.2g} % of the time"
        return verdict, None

    def _judged(self, change: Change, q: float | None, limit: float, in_turns: bool) -> str:
        return verdict_of(change, q, interleaved=in_turns, alpha=self.alpha, limit_pct=limit)

    def _withheld(self, change: Change, q: float | None, limit: float) -> str | None:
        """Return why a change does not count that would count with other runs."""
        unimodal = change._replace(modes=False)
        if self._judged(unimodal, q, limit, True) == "inconclusive":
            return None
        if change.modes:
            return "both sides have fast and slow runs: two modes explain the times better"
        return (
            f"below {thresholds()['compare.drift_pct']:g} %, which may be drift: "
            "the runs of the two sides did not alternate"
        )

    def _one_sided(self, key: Key, verdict: str) -> tuple[str, str | None]:
        """Return the verdict on a key that one side lacks, with the reason if it is known."""
        other = _OTHER.get(key.part)
        if other and any(side.has(key.profiler, key.label, other[0]) for side in self._sides):
            return "not comparable", other[1]
        lacks = self.after if verdict == "gone" else self.before
        if key.part in ENERGIES:
            return "not comparable", lacks.no_energy.get(key.label, "known on one side only")
        if key.part == KERNEL and key.profiler != "ncu" and key.label in lacks.hidden:
            return "not comparable", (
                "CUDA graphs on the other side were traced as a whole, which hides their kernels "
                "(trace with --cuda-graph-trace=node)"
            )
        return verdict, None

    @property
    def _sides(self) -> tuple[Side, Side]:
        return self.before, self.after

    def _other_work(self, key: Key) -> str | None:
        """Return a note if the sums of the two sides are not over the same kernels."""
        profilers = [key.profiler, key.label]
        if self.before.kernels(*profilers) == self.after.kernels(*profilers):
            return None
        return "not the same work: the kernels or their launch counts differ"

    def _total(self, key: Key, old: Measured, new: Measured) -> float | None:
        """Return the change in time of all launches: in a step, else of as many as there are now.

        A time on one side only counts in full if the other side has steps too.
        """
        totals = [
            statistics.median(own.totals)
            if own.totals
            else 0
            if not own.medians and side.has(key.profiler, key.label, STEP)
            else None
            for own, side in zip((old, new), self._sides, strict=True)
        ]
        if totals[0] is not None and totals[1] is not None:
            return totals[1] - totals[0]
        before_ns, after_ns = _median(old), _median(new)
        if before_ns is None or after_ns is None:
            return None
        return (after_ns - before_ns) * statistics.median(new.launches)


def _clocks(before: Measured, after: Measured, verdict: str) -> str | None:
    """Return a note if clocks explain a change: they differ, and cycles did not change as much."""
    for name, clocks in (
        ("SM", (before.sm_mhz, after.sm_mhz)),
        ("memory", (before.memory_mhz, after.memory_mhz)),
    ):
        known = [[clock for clock in side if clock] for side in clocks]
        if [len(side) for side in known] != [len(before.medians), len(after.medians)]:
            continue
        old, new = (statistics.median(side) for side in known)
        if abs(new / old - 1) * 100 <= thresholds()["compare.clock_pct"]:
            continue
        cycles = [
            [time * clock for time, clock in zip(side.medians, own, strict=True)]
            for side, own in zip((before, after), known, strict=True)
        ]
        change, found = judge(cycles[0], cycles[1])
        if found != verdict:
            return (
                f"the clock, not the code: {name} clock {old:,.0f} MHz before, {new:,.0f} MHz "
                f"after; time x clock changed by {100 * change.ratio:+.1f} %"
            )
    return None


def _by_time(pair: Compared) -> tuple[bool, float, Key]:
    """Sort by absolute change in time, not by percent; pairs without a change come last."""
    return pair.total_ns is None, -abs(pair.total_ns or 0), pair.key


def _by_configuration(pairs: list[Compared]) -> Iterator[Compared]:
    """Yield endpoints and budgets by configuration, each step followed by its parts."""
    groups: dict[str, list[Compared]] = {}
    for pair in pairs:
        groups.setdefault(pair.key.label, []).append(pair)

    def size(label: str) -> tuple[float, str]:
        own = [abs(p.total_ns or 0) for p in groups[label] if p.key.part in ENDPOINTS]
        return -max(own, default=0), label

    def place(pair: Compared) -> tuple[int, str, bool, tuple[bool, float, Key]]:
        part = pair.key.part
        own = {ITERATION: 0, WALL: 0, PROFILED: 2}.get(part, 1)
        return own, pair.key.profiler, part not in ENDPOINTS, _by_time(pair)

    for label in sorted(groups, key=size):
        for pair in sorted(groups[label], key=place):
            if pair.key.part in ENDPOINTS or pair.before_ns or pair.after_ns:
                yield pair


def _median(own: Measured) -> float | None:
    return statistics.median(own.medians) if own.medians else None


def _list(names: frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "an unknown GPU"
