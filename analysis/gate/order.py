"""The order in which rounds launch two arms: random, but never in step with a short period.

In a fixed order, noise with the period of the order slows one arm in each round, as a change does.
At random, three rounds still have the same order or alternate in half of all cases, and noise that
repeats after two or four launches then slows one arm in all three.  So three rounds always have two
orders, and do not alternate.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

#: Orders of three rounds; 1 launches the second arm first.
_MIXED = ((0, 0, 1), (0, 1, 1), (1, 0, 0), (1, 1, 0))


def orders(seed: str) -> Iterator[tuple[int, int]]:
    """Yield the order of two arms in each round, without end; the same for the same seed."""
    drawn = random.Random(seed)  # noqa: S311
    while True:
        for first in drawn.choice(_MIXED):
            yield first, 1 - first


def seeded(seed: int | None) -> int:
    """Return the seed of an order: the given one, else a new one."""
    return random.SystemRandom().randrange(1 << 31) if seed is None else seed
