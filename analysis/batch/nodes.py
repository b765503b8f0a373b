"""Detects nodes or GPUs that are slower than the others, from times of the same work.

The model is log(time) = work + place + scatter, fitted by least squares, so it does not matter
which work a place got.  The sample is the task: launches of one process are not independent.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from perfpipe.analysis.gate.judging import false_discovery
from perfpipe.analysis.thresholds import thresholds
from perfpipe.units import counted

if TYPE_CHECKING:
    import numpy as np

_ALPHA = 0.05


class Timed(NamedTuple):
    """The time of a task, ms, on a place: a node or a GPU.  Equal `work` takes equally long."""

    work: str
    place: str
    time_ms: float


@dataclass(frozen=True)
class Place:
    """A place with the ratio of its times to those of the median place, and the 95 % interval.

    `tasks` counts those whose work also ran on other places.  `verdict` is slower or faster; empty
    if it is not an outlier.  `q` is Benjamini and Hochberg's, over the places.
    """

    name: str
    tasks: int
    ratio: float
    low: float
    high: float
    q: float
    verdict: str = ""


@dataclass(frozen=True)
class Compared:
    """The places by name; empty, with the `reason`, if they cannot be compared."""

    places: tuple[Place, ...]
    reason: str = ""


def compare_places(rows: Iterable[Timed], what: str = "node") -> Compared:
    """Compare places by the times of the same work.

    A place is an outlier if its q is below 5 %, it differs by more than the threshold, and both
    still hold without its most extreme task: one slow task does not make a slow node.
    """
    every = [row for row in rows if row.time_ms > 0]
    if len({row.place for row in every}) < 2:
        return Compared((), f"all times are from one {what}" if every else "no task was timed")
    shared = _shared(every)
    if not shared:
        return Compared((), f"no configuration was timed on more than one {what}")
    model = Model(shared)
    if model.freedom < 1:
        reason = (
            f"too few tasks on more than one {what} to estimate the run-to-run variation: run more"
        )
        return Compared((), reason)
    effects = [model.effect(place) for place in range(len(model.names))]
    q_values = false_discovery([effect.p for effect in effects])
    limit = math.log1p(thresholds()["batch.node_pct"] / 100)
    places = []
    for place, (effect, q) in enumerate(zip(effects, q_values, strict=True)):
        # With two places the slower one is named: they share one test.
        named = effect.change > 0 or model.others(place) > 1
        verdict = ""
        if named and q < _ALPHA and abs(effect.change) > limit and _stays(model, place, limit):
            verdict = "slower" if effect.change > 0 else "faster"
        ratio, low, high = (math.exp(effect.change + end * effect.margin) for end in (0, -1, 1))
        places.append(Place(model.names[place], model.tasks[place], ratio, low, high, q, verdict))
    return Compared(tuple(places))


def odd_places(compared: Compared, what: str = "task") -> Iterator[str]:
    """Yield a sentence on each outlier; `what` names the timed items."""
    for place in compared.places:
        if place.verdict:
            yield stands_out(place, what)


def stands_out(place: Place, what: str = "task") -> str:
    """Return the difference of an outlier as text."""
    size, *ends = (100 * abs(end - 1) for end in (place.ratio, place.low, place.high))
    low, high = sorted(ends)
    return (
        f"{place.name} is {size:.1f} % {place.verdict} than the others for the same work "
        f"(95 % CI {low:.1f} to {high:.1f} %, {counted(place.tasks, what)})"
    )


def _stays(model: Model, place: int, limit: float) -> bool:
    left = model.without_most(place)
    change = model.effect(place).change
    return left is not None and left.p < _ALPHA and math.copysign(1, change) * left.change > limit


def _shared(rows: Sequence[Timed]) -> list[Timed]:
    """Return the times of work that ran on more than one place."""
    places: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        places[row.work].add(row.place)
    return [row for row in rows if len(places[row.work]) > 1]


class Effect(NamedTuple):
    """The difference of a place as a logarithm: half of the 95 % interval, two-sided p-value."""

    change: float
    margin: float
    p: float


class Model:
    """The least-squares fit of log(time) = work + place; places that share work are comparable."""

    def __init__(self, rows: Sequence[Timed]) -> None:
        import numpy as np

        self.names = sorted({row.place for row in rows})
        at = {name: number for number, name in enumerate(self.names)}
        works = {work: number for number, work in enumerate(sorted({row.work for row in rows}))}
        # In a fixed order: sums of doubles must not depend on the order of the rows.
        rows = sorted(rows)
        self._place = np.array([at[row.place] for row in rows])
        self._work = np.array([works[row.work] for row in rows])
        logs = np.log([row.time_ms for row in rows])
        # Number of tasks per work and place, and per work.
        self._counts = np.zeros((len(works), len(at)))
        np.add.at(self._counts, (self._work, self._place), 1)
        self._of_work = self._counts.sum(axis=1)
        within = logs - (np.bincount(self._work, logs) / self._of_work)[self._work]
        # The normal equations without the works, and their inverse within comparable places.
        shares = self._counts / self._of_work[:, None]
        self._inverse = np.linalg.pinv(
            np.diag(self._counts.sum(axis=0)) - self._counts.T @ shares, hermitian=True
        )
        self._effects = self._inverse @ np.bincount(self._place, within, len(at))
        fitted = self._effects[self._place] - (shares @ self._effects)[self._work]
        self._rest = within - fitted
        self._comparable = _components(self._counts)
        lost = len(works) + len(at) - len(set(self._comparable))
        self.freedom = len(rows) - lost
        self.tasks = [int(count) for count in self._counts.sum(axis=0)]

    def effect(self, place: int) -> Effect:
        """Return the difference of a place from the median; of two places, from the other.

        The interval is that of the difference to the mean of the others, which is not narrower.
        """
        import numpy as np

        others = self._others(place)
        among = others if len(others) == 1 else [place, *others]
        change = float(self._effects[place] - np.median(self._effects[among]))
        contrast = self._contrast(place)
        variance = float(contrast @ self._inverse @ contrast)
        return _judged(change, self._squares() / self.freedom * variance, self.freedom)

    def without_most(self, place: int) -> Effect | None:
        """Return the difference of a place without its most extreme task; None if it has no others.

        The effect of a removed row on a least-squares fit has a closed form.
        """
        import numpy as np

        change = self.effect(place).change
        own = np.flatnonzero(self._place == place)
        most = own[np.argmax(self._rest[own] * math.copysign(1, change))]
        row = -self._counts[self._work[most]] / self._of_work[self._work[most]]
        row[place] += 1
        pulled = self._inverse @ row
        left = 1 - 1 / self._of_work[self._work[most]] - float(row @ pulled)
        if left < 1e-9 or self.freedom < 2:
            return None
        contrast, rest = self._contrast(place), float(self._rest[most])
        pull = float(contrast @ pulled)
        variance = float(contrast @ self._inverse @ contrast) + pull**2 / left
        squares = self._squares() - rest**2 / left
        # The residual of an exact fit is rounding.
        squares = squares if squares > 1e-12 * self._squares() else 0.0
        freedom = self.freedom - 1
        return _judged(change - pull * rest / left, squares / freedom * variance, freedom)

    def others(self, place: int) -> int:
        """Return the number of places that a place is compared with."""
        return len(self._others(place))

    def _others(self, place: int) -> list[int]:
        group = self._comparable[place]
        return [at for at, of in enumerate(self._comparable) if of == group and at != place]

    def _contrast(self, place: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return the weights of a place's difference to the mean of the others."""
        import numpy as np

        others = self._others(place)
        weights = np.zeros(len(self.names))
        weights[place] = 1
        weights[others] = -1 / len(others)
        return weights

    def _squares(self) -> float:
        return float(self._rest @ self._rest)


def _judged(change: float, variance: float, freedom: int) -> Effect:
    from scipy.special import stdtr, stdtrit

    # Rounding of the logarithms must not decide.
    if abs(change) < 1e-9:
        change = 0.0
    if variance < 1e-24:
        return Effect(change, 0.0, float(change == 0))
    error = math.sqrt(variance)
    margin = float(stdtrit(freedom, 1 - _ALPHA / 2)) * error
    return Effect(change, margin, 2 * float(stdtr(freedom, -abs(change) / error)))


def _components(counts: np.ndarray[Any, np.dtype[np.float64]]) -> list[int]:
    """Return a group number for each place; shared work connects places."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    works, places = counts.shape
    linked = csr_array(counts)
    rows, columns = linked.nonzero()
    both = csr_array(([1] * len(rows), (rows, columns + works)), shape=(works + places,) * 2)
    _, found = connected_components(both, directed=False)
    return [int(number) for number in found[works:]]
