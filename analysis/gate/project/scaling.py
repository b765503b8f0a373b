"""Scales a kernel's time from one GPU to another: each part with the roof that bounds it.

A kernel's time is the time of its work at its nearest roof, plus a remainder that no roof explains.
On another GPU the first part scales with the roofs.  The remainder scales between the smallest and
the largest factor that may decide it.  So the result is an interval.  It holds only if the kernel
uses the other GPU as well as it uses this one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from perfpipe.errors import InputError
from perfpipe.specs import GpuSpec

#: Roofs by the class of a kernel, (bound, subclass); a tensor roof is that of its operands' type.
_OF_CLASS = {
    ("memory", "dram"): "dram",
    ("memory", "l2"): "l2",
    ("memory", "l1"): "sm",
    ("memory", "shared"): "sm",
    ("compute", "fma"): "fp32",
    ("compute", "fp64"): "fp64",
    ("compute", "fp16"): "packed_fp16",
    ("compute", "alu"): "sm",
    ("compute", "xu"): "sm",
    ("compute", "lsu"): "sm",
    ("compute", "issue"): "sm",
    ("compute", "divergence"): "sm",
}

#: Roofs that are not types of gpu_peaks, in words.
_WORDS = {
    "dram": "DRAM bandwidth",
    "l2": "L2 bandwidth",
    "sm": "SMs x clock",
    "clock": "SM clock",
    "tensor": "tensor (type not counted)",
    "latency": "latency",
    "packed_fp16": "FP16 on CUDA cores",
}
#: Types that run on CUDA cores.
_CUDA_CORES = ("fp32", "fp64")

#: A tensor roof of a type that was not counted, but is not FP64.
NARROW = "narrow tensor"

#: Most blocks that fit on an SM.
MOST_BLOCKS = 32

#: Roofs that take a smaller share of a kernel's time than this, %, do not decide anything.
LEAST_PCT = 1.0


@dataclass(frozen=True)
class Span:
    """An interval: of times, or of factors on a time."""

    low: float
    high: float

    def __mul__(self, factor: float) -> Span:
        return Span(self.low * factor, self.high * factor)

    def __add__(self, other: Span) -> Span:
        return Span(self.low + other.low, self.high + other.high)


def hull(spans: Iterable[Span]) -> Span:
    """Return the smallest interval that holds some others."""
    known = list(spans)
    return Span(min(span.low for span in known), max(span.high for span in known))


@dataclass(frozen=True)
class Ratios:
    """The factor on a time at each roof: a roof twice as high halves the time.

    `missing` are roofs without a factor, with the reason.  `clock` is that of the SMs, and `sms`
    the SMs of both GPUs.
    """

    roofs: Mapping[str, Span]
    clock: float
    sms: tuple[int, int]
    missing: Mapping[str, str]

    def every(self, blocks: int | None = None) -> Span:
        """Return the range of factors that any kernel of so many blocks may have."""
        return hull([*self.roofs.values(), self.latency(), self.latency(blocks)])

    def latency(self, blocks: int | None = None, per_sm: int | None = None) -> Span:
        """Return factors that may decide time without a roof: nothing, the clock, or clock and SMs.

        If every block has its own SM on both GPUs, more SMs do not help.
        """
        spans = [Span(1, 1), Span(self.clock, self.clock)]
        if blocks is None or blocks > min(self.sms):
            spans.append(self.roofs["sm"])
        if blocks is not None:
            spans.append(self.waves(blocks, per_sm))
        return hull(spans)

    def waves(self, blocks: int, per_sm: int | None) -> Span:
        """Return how the number of waves changes; a wave keeps its time or scales with the clock.

        On both GPUs `per_sm` blocks fit on an SM; if that is unknown, any number may.
        """
        before, after = self.sms
        factors = [
            math.ceil(blocks / (after * fit)) / math.ceil(blocks / (before * fit))
            for fit in ([per_sm] if per_sm else range(1, MOST_BLOCKS + 1))
        ]
        return hull(Span(f * c, f * c) for f in factors for c in (1.0, self.clock))


def ratios(before: GpuSpec, after: GpuSpec) -> Ratios:
    """Return how roofs change, from the vendor peaks of two GPUs.

    Raises InputError if a vendor gives no clock or no bandwidth.
    """
    clock = figure(before, "clock") / figure(after, "clock")
    dram = figure(before, "bandwidth") / figure(after, "bandwidth")
    exact = {"dram": dram, "sm": before.sms * clock / after.sms}
    missing = {}
    for dtype in dict.fromkeys([*before.dense, *before.missing]):
        if before.key == after.key:
            exact[dtype] = 1.0
            continue
        if dtype in before.dense and dtype in after.dense:
            exact[dtype] = before.dense[dtype] / after.dense[dtype]
            continue
        lacks = before if dtype not in before.dense else after
        why = lacks.missing.get(dtype, "it has no such units")
        missing[dtype] = f"no vendor peak for {name_of(dtype)} on {lacks.name} ({why})"
    roofs = {roof: Span(value, value) for roof, value in exact.items()}
    tensor = [span for roof, span in roofs.items() if _is_tensor(roof)]
    narrow = [span for roof, span in roofs.items() if _is_tensor(roof) and roof != "fp64_tensor"]
    if tensor:
        roofs["tensor"] = hull(tensor)
    if narrow:
        roofs[NARROW] = hull(narrow)
    # Vendors publish no figures for these.
    roofs["l2"] = hull([roofs["dram"], roofs["sm"]])
    roofs["packed_fp16"] = hull(roofs[roof] for roof in ("sm", "fp32", "fp16") if roof in roofs)
    return Ratios(roofs, clock, (before.sms, after.sms), missing)


def figure(spec: GpuSpec, what: str) -> float:
    """Return the clock or the bandwidth of a GPU; raises InputError if it is unknown."""
    value = spec.clock_mhz if what == "clock" else spec.bandwidth_gbs
    if value is None:
        raise InputError(f"{spec.name}: its {what} is not known ({spec.missing[what]})")
    return value


def name_of(roof: str) -> str:
    """Return a roof in words.

    >>> [name_of(roof) for roof in ("dram", "bf16", "fp64_tensor")]
    ['DRAM bandwidth', 'BF16 tensor', 'FP64 tensor']
    """
    if roof in _WORDS:
        return _WORDS[roof]
    name = roof.removesuffix("_tensor").upper()
    return f"{name} tensor" if _is_tensor(roof) else name


@dataclass(frozen=True)
class Use:
    """How a kernel uses its GPU: its class, and the share of its time at each roof, %.

    `roofs` is empty for a kernel that ncu did not profile.  `blocks` is the size of its grid, of
    which `per_sm` fit on an SM at once.
    """

    bound: str | None
    subclass: str | None
    roofs: Mapping[str, float]
    blocks: int | None = None
    per_sm: int | None = None

    @property
    def profiled(self) -> bool:
        """Whether ncu profiled it, with the metrics behind the class."""
        return self.bound is not None and self.bound != "unknown" and bool(self.roofs)

    @property
    def roof(self) -> str | None:
        """The roof of its class; None for latency and launch."""
        if self.bound in (None, "latency", "launch", "unknown"):
            return None
        if (known := _OF_CLASS.get((self.bound or "", self.subclass or ""))) is not None:
            return known
        near = sorted(self.roofs, key=lambda roof: (-self.roofs[roof], roof))
        if self.subclass == "tensor":
            near = [roof for roof in near if _is_tensor(roof)] or near
        elif self.bound in ("memory", "compute"):
            memory = ("dram", "l2")
            near = [roof for roof in near if (roof in memory) == (self.bound == "memory")] or near
        return near[0] if near else None


def _is_tensor(roof: str) -> bool:
    return roof not in ("dram", "l2", "sm", "packed_fp16", *_CUDA_CORES)


@dataclass(frozen=True)
class Scaled:
    """The factor on a time on the other GPU.

    `kept` holds if the kernel uses both GPUs equally well; `least` is the same work at 100 % of the
    other GPU's roofs, None if it was not profiled.  All are None, with a reason, if the other GPU
    has no figure for a roof that the kernel needs.
    """

    kept: Span | None
    least: float | None
    by: str
    reason: str | None = None


def scale(use: Use, to: Ratios) -> Scaled:
    """Return the factor on a kernel's time on another GPU."""
    if not use.profiled:
        why = "not profiled by ncu: any roof may bound it"
        return Scaled(to.every(use.blocks), None, "unknown", why)
    touched = {roof: pct / 100 for roof, pct in use.roofs.items() if pct >= LEAST_PCT}
    lacking = [roof for roof in touched if roof not in to.roofs]
    by = use.roof or "latency"
    if lacking:
        roof = max(lacking, key=lambda lack: (touched[lack], lack))
        return Scaled(None, None, by, to.missing.get(roof, f"no figures for {name_of(roof)}"))
    roofs = {roof: _factor(roof, use, to) for roof in touched}
    nearest = max(touched.values(), default=0.0)
    low = max((roofs[roof].low * share for roof, share in touched.items()), default=0.0)
    high = max((roofs[roof].high * share for roof, share in touched.items()), default=0.0)
    rest = to.latency(use.blocks, use.per_sm)
    if use.roof is not None:
        rest = hull([rest, *roofs.values()])
    kept = Span(low, high) + rest * (1 - nearest)
    if use.roof is None and use.blocks is not None:
        # Whole waves are added or removed, with all the work of a launch in them.
        waves = to.waves(use.blocks, use.per_sm)
        kept = hull([kept, Span(max(low, waves.low), max(high, waves.high))])
    return Scaled(kept, low, by)


def _factor(roof: str, use: Use, to: Ratios) -> Span:
    """Return the factor on time at a roof."""
    # A kernel without FP64 instructions has no FP64 tensor operations, either.
    if roof == "tensor" and use.roofs.get("fp64") == 0 and NARROW in to.roofs:
        return to.roofs[NARROW]
    return to.roofs[roof]
