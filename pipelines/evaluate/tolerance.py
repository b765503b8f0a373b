"""How much a result may differ from the exact one, by type and number of summed terms.

An element is rounded once to the type of the output (half a unit in the last place), and the sum
before it in the type of accumulation: the error of n terms grows like sqrt(n) (N. Higham, T. Mary,
"A new approach to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41, 2019).  Both
have a margin, so that another order of the same operations passes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from perfpipe.pipelines.evaluate.block import FLOATS, Tolerance
from perfpipe.pipelines.evaluate.chunks import CHUNK, chunks

#: Spacing of numbers at 1, and the smallest positive number, by type; tf32 only rounds inputs.
EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "tf32": 2.0**-10, "float16": 2.0**-10,
           "bfloat16": 2.0**-7}  # fmt: skip
_SMALLEST = {"float64": 2.0**-1074, "float32": 2.0**-149, "float16": 2.0**-24,
             "bfloat16": 2.0**-133}  # fmt: skip

#: Tolerated units in the last place of the output, and standard errors of a sum.
_ROUNDING, _SUMMING = 4.0, 8.0

#: Share of elements that rounding makes too large.
_EITHER_WAY = (0.25, 0.75)

#: Larger errors are not rounding: RMS of the error over that of the exact values.
_MOST_SPREAD = 0.05

#: Types of possible arithmetic, more precise ones first.
_LADDER = ("float32", "tf32", "float16", "bfloat16")


@dataclass(frozen=True)
class Allowed:
    """Allowed error: `relative` to the element, and `scaled` by the largest of the output."""

    relative: float
    scaled: float
    absolute: float


def allowed(
    dtype: str,
    reduction: float,
    accumulate: str = "float32",
    stated: Mapping[str, Tolerance] | None = None,
) -> Allowed:
    """Return the allowed error of a result by type; `stated` tolerances replace it."""
    if stated and dtype in stated:
        return Allowed(stated[dtype].rtol, 0.0, stated[dtype].atol)
    if dtype not in FLOATS:
        return Allowed(0.0, 0.0, 0.0)
    summed = min(EPSILON[accumulate], EPSILON[dtype])
    return Allowed(
        _ROUNDING * EPSILON[dtype] / 2,
        _SUMMING * summed * math.sqrt(max(reduction, 1.0)),
        2 * _SMALLEST[dtype],
    )


@dataclass(frozen=True)
class Difference:
    """How a result differs: `wrong` elements of `of`, and the largest errors.

    Errors are absolute, over the largest expected value, and over the element's own.

    `at` is the worst element, `found` and `exact` its values; `computed_in` the less precise type
    whose errors these look like.  `reason` is what the problem's own check says.
    """

    wrong: int
    of: int
    max_abs: float | None
    max_scaled: float | None
    max_relative: float | None = None
    at: tuple[int, ...] | None = None
    found: float | None = None
    exact: float | None = None
    computed_in: str | None = None
    reason: str | None = None

    @property
    def ok(self) -> bool:
        """Whether every element is within what is allowed."""
        return not self.wrong


def difference(torch: Any, found: Any, exact: Any, may: Allowed, reduction: float) -> Difference:
    """Compare a result with the exact one, in float64; integers must be equal.

    NaN is required where NaN is expected; values beyond the range of the type may be infinite.
    Large results are compared part by part.
    """
    if not exact.numel():
        return Difference(0, 0, None, None)
    dtype = str(found.dtype).removeprefix("torch.")
    shape, found, exact = [*exact.shape], found.reshape(-1), exact.reshape(-1)
    parts = [*chunks(exact.numel())]
    if dtype in FLOATS:
        largest = torch.finfo(found.dtype).max
        scale = max(_scale(torch, exact[part].double(), largest) for part in parts)
        told = (
            _compared(torch, found[part].double(), exact[part].double(), may, scale, largest)
            for part in parts
        )
    else:
        scale = 1.0
        told = (_unequal(torch, found[part], exact[part]) for part in parts)
    made = Difference(0, exact.numel(), 0.0, None, 0.0)
    worst = -1.0
    for part, one in zip(parts, told, strict=True):
        made = replace(
            made,
            wrong=made.wrong + one.count,
            max_abs=max(made.max_abs or 0.0, one.most),
            max_relative=max(made.max_relative or 0.0, one.own),
        )
        if one.count and one.rank > worst:
            worst, at = one.rank, part.start + one.at
            made = replace(
                made, at=tuple(_place(at, shape)), found=float(found[at]), exact=float(exact[at])
            )
    made = replace(made, max_scaled=(made.max_abs or 0.0) / scale if scale else None)
    if not made.wrong or dtype not in FLOATS:
        return made
    step = -(-exact.numel() // CHUNK)
    some, right = found[::step].double(), exact[::step].double()
    usual = right.isfinite() & (right.abs() < largest)
    if bool(usual.any()):
        lower = _computed_in(torch, some[usual], right[usual], scale, dtype, reduction)
        made = replace(made, computed_in=lower)
    return made


def _scale(torch: Any, exact: Any, largest: float) -> float:
    """Return the largest exact value that the type can have."""
    most = float(exact.abs().max())
    if most < largest:
        return most
    usual = exact.isfinite() & (exact.abs() < largest)
    return float(torch.where(usual, exact.abs(), 0.0).max())


@dataclass(frozen=True)
class _Part:
    """How a part differs: wrong elements, largest errors, and the worst element with its rank."""

    count: int
    most: float
    own: float
    at: int = 0
    rank: float = -1.0


def _compared(
    torch: Any, found: Any, exact: Any, may: Allowed, scale: float, largest: float
) -> _Part:
    """Compare numbers; NaN and numbers beyond the range take more steps."""
    error, size = (found - exact).abs_(), exact.abs()
    limit = (size * may.relative).add_(may.scaled * scale + may.absolute)
    within = error <= limit
    if bool(within.all()) and float(size.max()) < largest:
        own = float(torch.where(size > 0, error / size, 0.0).max())
        return _Part(0, float(error.max()), own)
    usual = exact.isfinite() & (size < largest)
    near = largest * (1 - may.relative - may.scaled)
    # Beyond the range, saturation is also right.
    beyond = (found.sign() == exact.sign()) & (found.abs() >= near) & (size >= near)
    right = torch.where(usual, within, (found == exact) | beyond)
    right |= (exact.isnan() & found.isnan()) | (beyond & ~exact.isnan())
    error = torch.where(right & ~usual, torch.zeros_like(error), error)
    return _told(torch, ~right, error, size)


def _unequal(torch: Any, found: Any, exact: Any) -> _Part:
    error = (found.double() - exact.double()).abs()
    return _told(torch, found != exact.to(found.dtype), error, exact.double().abs())


def _told(torch: Any, wrong: Any, error: Any, size: Any) -> _Part:
    finite = torch.where(error.isfinite(), error, torch.zeros_like(error))
    own = float(torch.where(size > 0, finite / size, 0.0).nan_to_num().max())
    found = _Part(int(wrong.sum()), float(finite.max()), own)
    if not found.count:
        return found
    # NaN and infinite errors are the worst.
    rank = torch.where(error.isfinite(), error, torch.full_like(error, math.inf))
    rank = torch.where(wrong, rank, torch.full_like(rank, -1.0))
    at = int(rank.argmax())
    return replace(found, at=at, rank=float(rank[at]))


def _place(at: int, shape: list[int]) -> list[int]:
    place = []
    for extent in reversed(shape):
        at, rest = divmod(at, extent)
        place.append(rest)
    return place[::-1]


def _computed_in(
    torch: Any, found: Any, exact: Any, scale: float, dtype: str, reduction: float
) -> str | None:
    """Return the less precise type whose rounding errors a result has; None if it is just wrong.

    Then most elements are off by more than their own type explains, and none by more than the
    other type explains.  Errors have both signs: missing or extra terms would shift them.
    """
    signed = found - exact
    error = signed.abs()
    if not bool(error.isfinite().all()) or not scale:
        return None
    own = EPSILON[dtype]
    typical = float((error / (exact.abs() + scale * own)).median())
    upward = float((signed > 0).double().mean())
    if typical < own or not _EITHER_WAY[0] < upward < _EITHER_WAY[1]:
        return None
    spread = float((error**2).mean().sqrt()) / float((exact**2).mean().sqrt() or 1.0)
    for name in _LADDER:
        epsilon = EPSILON[name]
        # A type as coarse as the output's explains errors only as the accumulation type.
        if epsilon < own:
            continue
        grown = epsilon * math.sqrt(max(reduction, 1.0))
        limit = _ROUNDING * epsilon * exact.abs() + _SUMMING * grown * scale
        if spread <= min(2 * grown, _MOST_SPREAD) and bool((error <= limit).all()):
            return name
    return None
