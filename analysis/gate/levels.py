"""Levels of several programs from rounds that launched some of them each.

A round has its own level (clocks, temperature, neighbors), so only differences within a round
count: the intra-block analysis of incomplete blocks (Cochran and Cox, Experimental Designs, 1957,
chapter 9).
Single odd times get less weight (Huber, Robust Statistics, 1981, chapter 7).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

#: Residuals above this number of deviations get less weight.
_HUBER = 2.5

#: Deviation of a normal distribution, by its median absolute deviation.
_MAD = 1.4826

#: Iterations of the weights, after which they hardly change.
_ITERATIONS = 8

#: Least deviation of a logarithm of times, so that exact times can be compared: 0.01 %.
_LEAST = 1e-4


@dataclass(frozen=True)
class Levels:
    """Mean logarithms of times by place, relative to the first, with their covariance.

    `freedom` are the degrees of freedom of the scatter, at least 1.
    """

    at: Mapping[int, int]
    means: Array
    covariance: Array
    freedom: float

    def apart(self, one: int, other: int) -> tuple[float, float]:
        """Return how much greater the level of `other` is, and the variance of that."""
        i, j = self.at[one], self.at[other]
        own = self.covariance
        return float(self.means[j] - self.means[i]), float(own[i, i] + own[j, j] - 2 * own[i, j])


def levels_of(rounds: Sequence[Mapping[int, float]]) -> Levels:
    """Return the levels of the places of rounds, each a time by place; rounds must be connected."""
    places = dict.fromkeys(place for one in rounds for place in one)
    at = {place: index for index, place in enumerate(places)}
    pairs = [(r, at[place], time) for r, one in enumerate(rounds) for place, time in one.items()]
    block = np.array([r for r, _, _ in pairs], dtype=np.int64)
    place = np.array([p for _, p, _ in pairs], dtype=np.int64)
    value: Array = np.log([time for _, _, time in pairs])
    weights: Array = np.ones(len(value))
    freedom = max(1, len(value) - len(rounds) - len(at) + 1)
    for _ in range(_ITERATIONS):
        means, inverse = _solved(block, place, value, weights, len(rounds), len(at))
        rest = value - means[place]
        rest -= _by(block, weights * rest, len(rounds))[block] / _by(block, weights)[block]
        variance = max(float(weights @ rest**2) / freedom, _LEAST**2)
        # The residuals have fewer degrees of freedom than values.
        own = _MAD * float(np.median(np.abs(rest))) * np.sqrt(len(value) / freedom)
        size = np.abs(rest) / max(own, _LEAST)
        weights = np.minimum(1, _HUBER / np.maximum(size, _HUBER))
        if np.all(weights == 1):
            break
    return Levels(at, means, variance * inverse, freedom)


def _solved(
    block: npt.NDArray[np.int64],
    place: npt.NDArray[np.int64],
    value: Array,
    weights: Array,
    blocks: int,
    places: int,
) -> tuple[Array, Array]:
    """Return the means, the first of which is 0, and the inverse of the normal equations."""
    design = np.zeros((blocks, places))
    design[block, place] = weights
    totals = design.sum(axis=1)
    normal = np.diag(design.sum(axis=0)) - design.T @ (design / totals[:, None])
    right = _by(place, weights * value, places) - design.T @ (
        _by(block, weights * value, blocks) / totals
    )
    inverse = np.zeros((places, places))
    inverse[1:, 1:] = np.linalg.inv(normal[1:, 1:])
    return inverse @ right, inverse


def _by(index: npt.NDArray[np.int64], values: Array, size: int = 0) -> Array:
    return np.bincount(index, weights=values, minlength=size).astype(np.float64)
