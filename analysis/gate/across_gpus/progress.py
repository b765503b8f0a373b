"""The same work on two GPU models: measured speedup, possible speedup, and what limits it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perfpipe.analysis.gate.project.scaling import Ratios, Scaled, Span, Use, scale
from perfpipe.analysis.gate.project.totals import HOST_PARTS
from perfpipe.specs import GpuSpec

#: FLOPs of the same work differ by no more than this share.
SAME_FLOP = 0.1

#: Differences that are reported: points of occupancy, share of the clock.
_OCCUPANCY_POINTS, _CLOCK_SHARE = 5.0, 0.02

#: A measured ratio below this share of the possible one falls short of it.
_SHORT = 0.98

#: First compute capability with wgmma and TMA.
_HOPPER = (9, 0)


@dataclass(frozen=True)
class Profiled:
    """A kernel of a configuration that ncu profiled: launches of one name, size and NVTX range.

    `time_ns` is their median; other values are of the longest launch, None if not collected.
    `uses_tma` and `uses_wgmma` are None if the report does not show them.
    """

    label: str
    nvtx: str
    key: str
    name: str
    grid: str
    block: str
    launches: int
    time_ns: float
    use: Use
    category: str = ""
    library: str = ""
    closed: bool = False
    flop: float | None = None
    occupancy_pct: float | None = None
    limiters: tuple[str, ...] = ()
    waves: float | None = None
    sm_clock_hz: float | None = None
    l2_bytes_per_s: float | None = None
    features: tuple[str, ...] = ()
    uses_tma: bool | None = None


@dataclass(frozen=True)
class Pair:
    """The same work on both GPUs; `how` says how it was matched."""

    before: Profiled
    after: Profiled
    how: str

    @property
    def ratio(self) -> float:
        """How many times as fast it is on the second GPU."""
        return self.before.time_ns / self.after.time_ns


#: How kernels are matched, most certain first: the name of the match, and what must be equal.
_LEVELS: tuple[tuple[str, Callable[[Profiled], tuple[Any, ...]]], ...] = (
    ("same kernel", lambda k: (k.nvtx, k.key, k.grid, k.block)),
    ("same kernel, another grid or block", lambda k: (k.nvtx, k.key)),
    ("different kernel, same range", lambda k: (k.nvtx, k.category) if k.nvtx else (None, id(k))),
    ("same kernel", lambda k: (k.key, k.grid, k.block)),
    ("same kernel, another grid or block", lambda k: (k.key,)),
    ("different kernel, same kind", lambda k: (k.category,) if k.category else (None, id(k))),
    ("different kernel, the only one", lambda _: ()),
)


def matched(
    before: Sequence[Profiled], after: Sequence[Profiled]
) -> tuple[list[Pair], list[Profiled], list[Profiled]]:
    """Match kernels by their work, each side in launch order; also return the unmatched ones.

    Several alike are matched in order, if both sides have equally many.  Kernels whose FLOPs are
    known to differ do different work.
    """
    pairs: list[Pair] = []
    rest = [list(before), list(after)]
    for how, same in _LEVELS:
        groups: dict[tuple[Any, ...], tuple[list[Profiled], list[Profiled]]] = {}
        for at, side in enumerate(rest):
            for kernel in side:
                found = groups.setdefault((kernel.label, *same(kernel)), ([], []))
                found[at].append(kernel)
        for old, new in groups.values():
            if len(old) != len(new):
                continue
            for one, other in zip(old, new, strict=True):
                if _same_work(one, other):
                    pairs.append(Pair(one, other, how))
                    rest[0].remove(one)
                    rest[1].remove(other)
    return pairs, rest[0], rest[1]


def _same_work(one: Profiled, other: Profiled) -> bool:
    if not one.flop or not other.flop:
        return True
    return abs(one.flop - other.flop) <= SAME_FLOP * max(one.flop, other.flop)


@dataclass(frozen=True)
class Reached:
    """The measured speedup of a pair next to the one that the roofs allow.

    `possible` is the speedup if it used the second GPU as well as the first, `roofs` the speedup
    at 100 % of the second GPU's roofs; both are None if unknown, with the `reason`.  `got_pct` is
    the measured ratio as a share of the largest possible one, and `held_by` lists the limits.
    """

    pair: Pair
    scaled: Scaled
    possible: Span | None
    roofs: float | None
    got_pct: float | None
    held_by: tuple[str, ...]
    reason: str | None

    @property
    def lost_ns(self) -> float:
        """Time of a launch that the second GPU could save; 0 if unknown."""
        if self.scaled.kept is None:
            return 0.0
        return max(self.pair.after.time_ns - self.pair.before.time_ns * self.scaled.kept.low, 0.0)


def reach(pair: Pair, gpus: tuple[GpuSpec, GpuSpec], to: Ratios) -> Reached:
    """Judge a pair by the roofs of both GPUs."""
    scaled = scale(pair.before.use, _with_l2(pair, to))
    kept = scaled.kept
    possible = None if kept is None or kept.low <= 0 else Span(1 / kept.high, 1 / kept.low)
    return Reached(
        pair,
        scaled,
        possible,
        None if not scaled.least else 1 / scaled.least,
        None if possible is None else 100 * pair.ratio / possible.high,
        tuple(_holding_back(pair, gpus)),
        scaled.reason,
    )


def _with_l2(pair: Pair, to: Ratios) -> Ratios:
    """Return the ratios with the measured one of L2: vendors publish no L2 bandwidth."""
    rates = (pair.before.l2_bytes_per_s, pair.after.l2_bytes_per_s)
    if not rates[0] or not rates[1]:
        return to
    factor = rates[0] / rates[1]
    return replace(to, roofs={**to.roofs, "l2": Span(factor, factor)})


def class_of(use: Use) -> str:
    """Return a class in words: memory (dram)."""
    if use.bound is None:
        return "not profiled"
    limiter = f" ({use.subclass.replace('_', ' ')})" if use.subclass else ""
    return f"{use.bound}{limiter}"


def _holding_back(pair: Pair, gpus: tuple[GpuSpec, GpuSpec]) -> Iterator[str]:
    """Yield limits on the second GPU that the first did not have, and its unused features."""
    old, new = pair.before, pair.after
    if (old.use.bound, old.use.subclass) != (new.use.bound, new.use.subclass):
        yield f"bound by {class_of(new.use)} on B, by {class_of(old.use)} on A"
    if (
        new.occupancy_pct is not None
        and old.occupancy_pct is not None
        and new.occupancy_pct < old.occupancy_pct - _OCCUPANCY_POINTS
    ):
        by = " and ".join(limit.replace("_", " ") for limit in new.limiters)
        yield (
            f"occupancy {new.occupancy_pct:.0f} %, limited by {by} (A: {old.occupancy_pct:.0f} %)"
        )
    if new.waves is not None and new.waves < 1 and (old.waves is None or old.waves > new.waves):
        was = "" if old.waves is None else f" (A: {old.waves:.2f} waves)"
        yield f"the grid fills {100 * new.waves:.0f} % of the GPU{was}"
    clocks = [kernel.sm_clock_hz and kernel.sm_clock_hz / 1e6 for kernel in (old, new)]
    yield from low_clock(clocks[0], clocks[1], gpus)
    for feature, text in _NEW.items():
        if feature in new.features and feature not in old.features:
            yield text
    yield from _unused(pair, gpus)


def low_clock(
    before: float | None, after: float | None, gpus: tuple[GpuSpec, GpuSpec]
) -> Iterator[str]:
    """Yield a sentence if the second GPU ran further below its maximum clock; clocks in MHz."""
    first, most = (spec.clock_mhz for spec in gpus)
    if not after or not most:
        return
    share = after / most
    was = before / first if before and first else None
    if share >= 1 - _CLOCK_SHARE or (was is not None and share >= was - _CLOCK_SHARE):
        return
    told = "" if was is None else f" (A: {100 * was:.0f} % of the maximum)"
    yield f"SM clock {after:.0f} of {most:.0f} MHz{told}"


#: Findings that explain a loss if they occur on the second GPU only.
_NEW = {
    "uncoalesced": "uncoalesced accesses",
    "spills": "register spills",
    "conflicts": "bank conflicts in shared memory",
    "tail": "a partial wave",
}


def _unused(pair: Pair, gpus: tuple[GpuSpec, GpuSpec]) -> Iterator[str]:
    """Yield features of the second GPU that the kernel does not use."""
    new = pair.after
    before, after = ({*spec.dense} for spec in gpus)
    cc = tuple(int(part) for part in gpus[1].cc.split("."))
    if "mma_sync" in new.features:
        yield "no wgmma: warp-level mma does not reach the tensor peak"
    if cc >= _HOPPER and new.uses_tma is False and "product" in new.features:
        yield "no TMA"
    if "half" in new.features and "fp8" in after - before:
        yield f"no FP8, which {gpus[0].name} lacks"


def is_short(ratio: float | None, possible: Span | None) -> bool:
    """Return whether the measured ratio is below the lowest possible one, beyond scatter."""
    return ratio is not None and possible is not None and ratio < _SHORT * possible.low


def ratio_of(before: float | None, after: float | None) -> float | None:
    """Return how many times as fast the second is; None if either is unknown."""
    return None if not before or not after else before / after


@dataclass(frozen=True)
class Work:
    """A configuration on both GPUs: its time, the possible speedup, and what limits it."""

    label: str
    part: str
    before_ns: float | None
    after_ns: float | None
    possible: Span | None
    got_pct: float | None
    held_by: tuple[str, ...]
    reason: str | None = None

    @property
    def ratio(self) -> float | None:
        """How many times as fast it is on the second GPU."""
        return ratio_of(self.before_ns, self.after_ns)


def host_share(before: Mapping[str, float], after: Mapping[str, float]) -> Iterable[str]:
    """Yield a sentence if the host and launch parts of a step did not shrink with the rest."""
    old, new = (sum(parts.get(name, 0.0) for name in HOST_PARTS) for parts in (before, after))
    whole = (sum(before.values()), sum(after.values()))
    if min(whole) <= 0 or new / whole[1] <= old / whole[0] + 0.02:
        return
    yield (
        f"host and launches leave the GPU idle for {new / 1e6:.3g} of {whole[1] / 1e6:.3g} ms "
        f"(A: {old / 1e6:.3g} of {whole[0] / 1e6:.3g})"
    )
