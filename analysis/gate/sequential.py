"""When rounds may stop before all are done: group-sequential tests with a spending function.

Looking at the results after each round and stopping at the first p below 5 % would find a false
change far more often than in 5 % of cases.  So each look may only spend a part of the
5 %: the increments of the spending function of O'Brien and Fleming (Lan and DeMets, Biometrika 70,
1983), little at first and most at the last look.  The increments add up to 5 %, so the false alarms
of all looks add up to at most 5 %, whatever their dependence (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from perfpipe.analysis.comparison import Compared

#: Rate of false alarms of all looks together.
ALPHA = 0.05

#: Rounds before the first look: fewer do not show the scatter.
FIRST_LOOK = 3


def spent(look: int, looks: int) -> float:
    """Return the level that look number `look` of `looks` may test at; the first is 1.

    >>> [round(spent(k, 3), 4) for k in (1, 2, 3)]
    [0.0007, 0.0157, 0.0336]
    """
    return _spending(look / looks) - (_spending((look - 1) / looks) if look > 1 else 0)


def _spending(share: float) -> float:
    """Return the share that may be spent at a share of the information."""
    from scipy.special import ndtr, ndtri

    return float(2 * (1 - ndtr(ndtri(1 - ALPHA / 2) / math.sqrt(share))))


def level_after(rounds: int, most: int, *, early: bool = True) -> float | None:
    """Return the level to test at after some rounds; None before the first look.

    Without `early` the only look is after the last round, and spends all.
    """
    first = min(FIRST_LOOK, most) if early else most
    if rounds < first:
        return None
    return spent(rounds - first + 1, most - first + 1)


def certain(endpoints: Iterable[Compared]) -> bool:
    """Return whether each endpoint is decided, so that further rounds are not needed."""
    verdicts = [pair.verdict for pair in endpoints]
    return bool(verdicts) and all(
        verdict in ("improved", "regressed", "same") for verdict in verdicts
    )
