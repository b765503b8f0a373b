"""Large tensors part by part: temporary tensors stay small next to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

#: Elements that are compared at a time.
CHUNK = 1 << 20


def chunks(count: int, size: int = CHUNK) -> Iterator[slice]:
    """Return ranges of at most `size` elements that cover `count` elements, in order.

    >>> [*chunks(5, 2)]
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    for start in range(0, count, size):
        yield slice(start, min(count, start + size))


def unequal(one: Any, other: Any) -> int:
    """Return how many elements of two tensors differ; NaN is like NaN."""
    one, other = one.reshape(-1), other.reshape(-1)
    pairs = ((one[part], other[part]) for part in chunks(one.numel()))
    # NaN is not equal to itself.
    return sum(int(((a != b) & ((a == a) | (b == b))).sum()) for a, b in pairs if not a.equal(b))
