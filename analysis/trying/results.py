"""Whether launches of a program with a lever computed the same as plain launches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from perfpipe.analysis.thresholds import thresholds
from perfpipe.analysis.trying.launched import (
    GRADIENT,
    LOSS,
    OUTPUT,
    PARAMETER,
    TOKENS,
    UPDATE,
    Results,
    read,
)
from perfpipe.analysis.trying.printed import VALIDATION, Number
from perfpipe.analysis.trying.series import (
    Curve,
    Judged,
    Kind,
    Vector,
    curve_of,
    judged,
    number,
    same,
    scatter_times,
    share,
    strong,
    worst,
)
from perfpipe.analysis.trying.work import other_work, unequal_work
from perfpipe.units import counted

__all__ = ["Compared", "Kind", "Results", "compare", "read"]

#: Thresholds of the rounding of types, by their names in PyTorch.
_ROUNDING = {
    "float64": "results.fp64",
    "float32": "results.fp32",
    "float16": "results.fp16",
    "bfloat16": "results.bf16",
}

#: Why results cannot be compared that are not there, or may be something else.
_NO_RESULTS = "no results were recorded, and nothing printed is known to be a result"
_UNNAMED = "no results were recorded, and printed numbers without a name differ between launches"


@dataclass(frozen=True)
class Compared:
    """Whether results are alike, why in a sentence, and the curve that was compared.

    The curve has steps, with the relative difference and what A/A scatter allows.
    """

    kind: Kind
    why: str
    curve: tuple[tuple[int, float, float], ...] = ()

    def of(self, name: str) -> Compared:
        """Return the same with another name for plain launches, such as `the baseline's runs`."""
        return replace(self, why=self.why.replace("plain launches", name))


def compare(
    plain: Sequence[Results],
    other: Sequence[Results],
    tolerance: float | None = None,
    *,
    exact: bool = False,
    of_steps: bool = False,
) -> Compared:
    """Compare the results of other launches with those of plain launches.

    `tolerance` is the relative error of the first results that a lever may cause; rounding of the
    type of the results is always allowed, except with `exact`, which allows only scatter.  With
    `of_steps`, calls within a step may differ: only what steps add up to is compared.
    """
    if not plain or not other:
        return Compared(Kind.UNKNOWN, "there are no launches to compare")
    if of_steps:
        plain, other = [own.of_steps() for own in plain], [own.of_steps() for own in other]
    comparison = _Comparison(plain, other, tolerance)
    found = [*comparison.ended(), *unequal_work(plain, other)]
    if any(one.kind == Kind.DIFFER for one in found):
        return Compared(Kind.DIFFER, _sentence(worst(found).why))
    numbers = [*comparison.recorded(), *comparison.told()]
    if any(one.unseeded for one in numbers):
        numbers = [one for one in numbers if one.unseeded]
    found += numbers
    found += comparison.written(alike=all(one.kind == Kind.IDENTICAL for one in numbers))
    if not numbers and not any(one.kind in (Kind.DIFFER, Kind.IDENTICAL) for one in found):
        unnamed = all(one.printed.numbers for one in plain)
        found.append(Judged(Kind.UNKNOWN, _UNNAMED if unnamed else _NO_RESULTS))
    kind, why = worst(found).kind, _why(found)
    if exact and kind == Kind.WITHIN_TOLERANCE:
        kind, why = Kind.DIFFER, f"identical results are expected, but {why}"
    return Compared(kind, _sentence(why), comparison.points)


def _why(found: Sequence[Judged]) -> str:
    """Return why the worst kind was found; good results in all their parts."""
    kind = worst(found).kind
    own = [one.why for one in found if one.kind == kind]
    if kind == Kind.IDENTICAL:
        return "; ".join(own[-1:] if len(own) == 1 else [*own[1:2], "all else is equal as well"])
    return "; ".join(own[:2] if kind in (Kind.WITHIN_SCATTER, Kind.WITHIN_TOLERANCE) else own[:1])


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


class _Comparison:
    """Two sides of launches during a comparison."""

    def __init__(
        self, plain: Sequence[Results], other: Sequence[Results], tolerance: float | None
    ) -> None:
        self._plain, self._other = plain, other
        self._limits = thresholds()
        self._rounding = max(
            tolerance or 0.0,
            *(self._limits[name] for name in self._roundings() or {_ROUNDING["float32"]}),
        )
        self.points: tuple[tuple[int, float, float], ...] = ()

    def _roundings(self) -> set[str]:
        """Return the thresholds of the types that the results of plain launches have."""
        return {_ROUNDING[own] for one in self._plain for own in one.types if own in _ROUNDING}

    def ended(self) -> Iterator[Judged]:
        """Yield a difference in exit codes."""
        before, after = ({one.exit_code for one in side} for side in (self._plain, self._other))
        if None not in before | after and not after <= before:
            told = " and ".join(str(code) for code in sorted(after - before, key=str))
            yield Judged(Kind.DIFFER, f"the program exits with code {told}")

    def recorded(self) -> Iterator[Judged]:
        """Yield what is found in each recorded series."""
        names = [
            name for name in self._plain[0].series if all(name in p.series for p in self._plain)
        ]
        order = (LOSS, TOKENS, OUTPUT, GRADIENT, UPDATE, PARAMETER)
        for kind, process in sorted(names, key=lambda own: (own[1], order.index(own[0]))):
            name = f"{kind} of {process}" if process else kind
            sides = [
                [one.series.get((kind, process), {}) for one in side]
                for side in (self._plain, self._other)
            ]
            if lost := self._lost(name, *sides):
                yield lost
            else:
                yield from self._series(kind, process, name, *sides)

    def _lost(
        self,
        name: str,
        plain: Sequence[Mapping[int, Vector]],
        other: Sequence[Mapping[int, Vector]],
    ) -> Judged | None:
        """Return that values are missing: unknown, whatever the others say."""
        common = set.intersection(*({*one} for one in plain))
        whole = all(one.complete for one in (*self._plain, *self._other))
        for one in other:
            if common and not one:
                return Judged(Kind.UNKNOWN, f"{name} was not recorded")
            # Launches that are ended after a time have different numbers of steps.
            wanted = common if whole else {step for step in common if step <= max(one)}
            if missing := wanted - {*one}:
                text = f"{name} was recorded {counted(len(missing), 'time')} less often"
                return Judged(Kind.UNKNOWN, f"{text} than in plain launches")
        return None

    def _series(
        self,
        kind: str,
        process: str,
        name: str,
        plain: Sequence[Mapping[int, Vector]],
        other: Sequence[Mapping[int, Vector]],
    ) -> Iterator[Judged]:
        limits = self._limits
        steps = sorted(set.intersection(*({*one} for one in (*plain, *other))))
        if not steps:
            return
        if kind == TOKENS:
            yield self._generated(name, steps, plain, other)
            return
        first = steps[0]
        trains = any(one.counts.get(process, {}).get("steps") for one in self._plain)
        if kind == OUTPUT:
            # Without training, every call starts from the same weights.
            for at in [first] if trains else steps:
                yield self._first(
                    f"the output of call {at}" if process == "" else f"{name} of call {at}",
                    [one[at] for one in plain],
                    [one[at] for one in other],
                    limits["results.outputs_times"],
                    limits["results.unseeded_output_share"],
                )
            if trains:
                yield from _later(f"later norms of {name}s", steps[1:], plain, other)
            return
        curve = curve_of(
            name, *([{s: v[0] for s, v in one.items()} for one in side] for side in (plain, other))
        )
        before, after = ([one[first] for one in side] for side in (plain, other))
        if kind == LOSS:
            if not self.points:
                self.points = curve.points
            unseeded = min(
                limits["results.unseeded_loss_share"],
                curve.step_change / (max(abs(curve.mean[0]), curve.step_change) or 1.0) or 1.0,
            )
            yield self._first(f"the first {name}", before, after, 1, unseeded, curve.step_change)
            yield judged(curve, self._rounding, growing=True)
        elif kind in (GRADIENT, UPDATE):
            times = limits["results.gradients_times"]
            yield self._first(
                f"the first {name}", before, after, times, limits["results.unseeded_output_share"]
            )
            yield from _vanished(curve)
            yield from _later(f"later {name}s", steps[1:], plain, other)
        else:
            yield self._first(
                f"the first {name}", before, after, 1, limits["results.unseeded_output_share"]
            )
            yield from _frozen(curve)
            yield judged(curve, self._rounding, growing=False)

    def _first(
        self,
        name: str,
        plain: Sequence[Vector],
        other: Sequence[Vector],
        times: float,
        unseeded: float,
        scale: float = 0,
    ) -> Judged:
        return strong(name, plain, other, times * self._rounding, unseeded, scale)

    def _generated(
        self,
        name: str,
        steps: Sequence[int],
        plain: Sequence[Mapping[int, Vector]],
        other: Sequence[Mapping[int, Vector]],
    ) -> Judged:
        """Compare generated tokens, up to the first that differs."""
        for at, step in enumerate(steps):
            if not all(same(plain[0][step], one[step]) for one in plain):
                return Judged(
                    Kind.UNKNOWN,
                    f"{name} differ between plain launches from token {at + 1} on: the program has "
                    "no fixed seed, or rounding decides",
                    unseeded=True,
                )
            if not all(same(plain[0][step], one[step]) for one in other):
                # Rounding decides between tokens that are about as likely, but not at once.
                text = f"{name} differ from token {at + 1} of {len(steps)} on"
                coarse = self._rounding > self._limits["results.fp32"] and at > 0
                return Judged(Kind.WITHIN_TOLERANCE if coarse else Kind.DIFFER, text)
        return Judged(Kind.IDENTICAL, f"all {counted(len(steps), 'token')} are equal")

    def told(self) -> Iterator[Judged]:
        """Yield what is found in the numbers that the program prints."""
        both = [*self._plain, *self._other]
        own = [one.printed.numbers for one in both]
        plain, other = own[: len(self._plain)], own[len(self._plain) :]
        recorded = any(one.series for one in self._plain)
        trains = any(any(c.get("steps") for c in one.counts.values()) for one in self._plain)
        learns = any("loss" in key.name and len({*own}) > 2 for key, own in plain[0].items())
        for key in plain[0]:
            if not all(key in one for one in plain):
                continue
            if not key.result and (recorded or not _stable(key, plain, other)):
                continue
            if not all(key in one for one in other):
                if key.result:
                    yield Judged(Kind.UNKNOWN, f"the program does not print {key.name}")
                continue
            yield from self._printed(
                key,
                [one[key] for one in plain],
                [one[key] for one in other],
                trains=trains,
                learns=learns,
                trusted=recorded,
            )

    def _printed(
        self,
        key: Number,
        plain: Sequence[Vector],
        other: Sequence[Vector],
        *,
        trains: bool,
        learns: bool,
        trusted: bool,
    ) -> Iterator[Judged]:
        """Compare a number in the course of a launch.

        `trains` says that optimizer steps were recorded, `learns` that losses were printed which
        change: then training amplifies rounding, but without a record the first number must agree.
        """
        name = key.name
        if key.line == VALIDATION and {*plain[0]} != {*other[0]}:
            # The program has compared its result with a reference, within its own tolerance.
            text = f"{name} {number(plain[0][-1])} -> {number(other[0][-1])}"
            yield Judged(Kind.WITHIN_TOLERANCE, f"{text}, which the program's own check accepts")
            return
        lengths = {len(one) for one in plain}
        if len(lengths) > 1:
            # As often as time allows: the last one counts.
            plain, other = [one[-1:] for one in plain], [one[-1:] for one in other]
            name = f"last {name}"
        elif bad := [one for one in other if len(one) not in lengths]:
            often = f"{name} printed {counted(len(bad[0]), 'time')}"
            yield other_work(often, str(*lengths), "")
            return
        curve = curve_of(
            name, *([dict(enumerate(one, 1)) for one in side] for side in (plain, other))
        )
        if not self.points and len(curve.steps) > 1:
            self.points = curve.points
        size = max(abs(curve.mean[0]), curve.step_change) or 1.0
        firsts = [one[0] for one in plain]
        scatter = (max(firsts) - min(firsts)) / size
        limit = self._limits["results.unseeded_loss_share"]
        if not trusted and scatter > min(limit, curve.step_change / size or limit):
            yield Judged(
                Kind.UNKNOWN,
                f"{name} differs by {scatter:.1%} between plain launches: the program has no fixed "
                "seed",
                unseeded=True,
            )
        elif trains or learns:
            if not trains and len(curve.steps) > 1:
                yield self._first(
                    f"the first {name}",
                    [one[:1] for one in plain],
                    [one[:1] for one in other],
                    self._limits["results.printed_times"],
                    limit,
                    curve.step_change,
                )
            yield judged(curve, self._rounding, growing=False)
        else:
            unseeded = float("inf") if trusted else limit
            for at, step in enumerate(curve.steps):
                where = f"{name} number {step}" if len(curve.steps) > 1 else name
                yield self._first(
                    where,
                    [one[at : at + 1] for one in plain],
                    [one[at : at + 1] for one in other],
                    1,
                    unseeded,
                    curve.step_change if len(curve.steps) > 1 else 0,
                )

    def written(self, *, alike: bool) -> Iterator[Judged]:
        """Yield differences in texts and files, which are equal in all plain launches.

        Their content counts if all numbers are `alike`: it follows from the numbers.
        """
        texts = [[one.printed.texts for one in side] for side in (self._plain, self._other)]
        yield from _hashes("", *texts, alike=alike)
        if all(one.files is not None for one in (*self._plain, *self._other)):
            files = [[one.files or {} for one in side] for side in (self._plain, self._other)]
            yield from _hashes("file ", *files, alike=alike)


def _stable(
    key: Number, plain: Sequence[Mapping[Number, Vector]], other: Sequence[Mapping[Number, Vector]]
) -> bool:
    """Return whether a number without a telling name is the same in all launches of a side."""
    sides = ([one[key] for one in side if key in one] for side in (plain, other))
    return len(plain) > 1 and all(same(side[0], one) for side in sides for one in side[1:])


def _vanished(curve: Curve) -> Iterator[Judged]:
    """Yield a later gradient that is 0, unless it is 0 in a plain launch as well."""
    for at, step in enumerate(curve.steps):
        if all(one[at] for one in curve.plain) and not all(one[at] for one in curve.other):
            yield Judged(Kind.DIFFER, f"{curve.name} is 0 at step {step}")
            return


def _later(
    name: str,
    steps: Sequence[int],
    plain: Sequence[Mapping[int, Vector]],
    other: Sequence[Mapping[int, Vector]],
) -> Iterator[Judged]:
    """Yield that norms in the course of training differ, which amplifies rounding; they may."""
    if all(same(plain[0][at], one[at]) for at in steps for one in (*plain, *other)):
        return
    limit, inside, most = thresholds()["results.later_times"], True, 0.0
    for at in steps:
        own, new = ([one[at][0] for one in side] for side in (plain, other))
        if not all(map(math.isfinite, own)):
            break
        scatter = scatter_times(len(own)) * (max(own) - min(own))
        far = max(new, key=lambda value: abs(value - own[0]))
        if not max(own) / limit - scatter <= far <= min(own) * limit + scatter:
            yield Judged(Kind.DIFFER, f"{name}: {number(own[0])} -> {number(far)} at {at}")
            return
        inside &= abs(far - own[0]) <= scatter
        most = max(most, abs(far - own[0]) / (abs(own[0]) or 1.0))
    kind = Kind.WITHIN_SCATTER if inside and len(plain) > 1 else Kind.WITHIN_TOLERANCE
    yield Judged(kind, f"{name} differ by up to {share(most)}, as training amplifies rounding")


def _frozen(curve: Curve) -> Iterator[Judged]:
    """Yield that parameters never change, if they do in plain launches."""
    moves = [len({*one}) > 1 for one in curve.plain]
    if all(moves) and any(len({*one}) == 1 for one in curve.other):
        yield Judged(Kind.DIFFER, "the parameters do not change")


def _hashes(
    what: str,
    plain: Sequence[Mapping[str, str]],
    other: Sequence[Mapping[str, str]],
    *,
    alike: bool,
) -> Iterator[Judged]:
    """Yield the contents that differ or are missing; those that vary in plain launches are not."""
    names = sorted(set.intersection(*({*one} for one in plain)))
    equal = 0
    for name in names:
        if missing := [one for one in other if name not in one]:
            kind = Kind.DIFFER if what else Kind.UNKNOWN
            told = "written" if what else "printed"
            yield Judged(kind, f"{what}{name} was not {told} in {counted(len(missing), 'launch')}")
            return
        values = {one[name] for one in plain}
        if len(values) > 1 or len(plain) < 2:
            continue
        after = {one[name] for one in other}
        equal += after == values
        if alike and after != values:
            yield Judged(Kind.DIFFER, f"{what}{name} has another content")
            return
    if equal and alike:
        yield Judged(
            Kind.IDENTICAL, f"{counted(equal, (what or 'text').strip())} equal bit for bit"
        )
