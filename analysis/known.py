"""Statistics of values of which some are unknown."""

from __future__ import annotations

import statistics
from collections.abc import Iterable


def median(values: Iterable[float | None]) -> float | None:
    """Return the median of the known values; None if none is known."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
