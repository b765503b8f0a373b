"""The normal and Student's distribution, for tests and intervals.

Student's comes from SciPy if it is installed.  An installation for a gate in CI does without SciPy,
which is larger than everything that a gate needs; the functions here then give the same values.
"""

from __future__ import annotations

import math
import sys
from functools import cache
from statistics import NormalDist
from typing import Any

_LEAST = sys.float_info.min

#: From here on the series of digamma and its derivatives are exact to 12 digits.
_LARGE = 15.0

#: Terms of a continued fraction, and steps of a search; both need far fewer.
_MOST = 10_000


def normal(value: float) -> float:
    """Return the probability that a standard normal variable is at most a value."""
    return math.erfc(-value / math.sqrt(2)) / 2


def normal_quantile(share: float) -> float:
    """Return the value that a standard normal variable does not exceed with a probability."""
    return NormalDist().inv_cdf(share)


def student(freedom: float, value: float) -> float:
    """Return the probability that a variable of Student's distribution is at most a value."""
    if special := _special():
        return float(special.stdtr(freedom, value))
    return tail(freedom, -value) if value < 0 else 1 - tail(freedom, value)


def student_quantile(freedom: float, share: float) -> float:
    """Return the value that Student's variable does not exceed with a probability.

    `share` is above 0 and below 1.
    """
    if special := _special():
        return float(special.stdtrit(freedom, share))
    return -tail_quantile(freedom, share) if share < 0.5 else tail_quantile(freedom, 1 - share)


@cache
def _special() -> Any:
    """Return SciPy's special functions, None without SciPy."""
    try:
        from scipy import special
    except ImportError:
        return None
    return special


def tail(freedom: float, value: float) -> float:
    """Return the probability that Student's variable exceeds a value that is not negative.

    It is half of the regularized incomplete beta function (DLMF 8.17) at n / (n + t^2) with the
    parameters n/2 and 1/2.
    """
    if math.isinf(freedom):
        return normal(-value)
    whole = freedom + value**2
    return _beta(freedom / 2, 0.5, freedom / whole, value**2 / whole) / 2


def tail_quantile(freedom: float, share: float) -> float:
    """Return the value that Student's variable exceeds with a probability of at most a half.

    Newton's method within a bracket, which it halves when a step would leave it.
    """
    low, high = 0.0, 1.0
    while tail(freedom, high) > share:
        low, high = high, 2 * high
    found = (low + high) / 2
    for _ in range(_MOST):
        excess = tail(freedom, found) - share
        low, high = (found, high) if excess > 0 else (low, found)
        step = found + excess / _density(freedom, found)
        better = step if low < step < high else (low + high) / 2
        if abs(better - found) <= 4e-16 * found or not low < better < high:
            return better
        found = better
    return found


def _density(freedom: float, value: float) -> float:
    if math.isinf(freedom):
        return math.exp(-(value**2) / 2) / math.sqrt(2 * math.pi)
    log = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    log -= (freedom + 1) / 2 * math.log1p(value**2 / freedom)
    return math.exp(log) / math.sqrt(freedom * math.pi)


def _beta(a: float, b: float, x: float, rest: float) -> float:
    """Return the regularized incomplete beta function; `rest` is 1 - x."""
    if x <= 0 or rest <= 0:
        return float(rest <= 0)
    log = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(log + a * math.log(x) + b * math.log(rest))
    # The fraction converges fast on this side of the mean.
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1 - front * _fraction(b, a, rest) / b


def _fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of DLMF 8.17.22, by Lentz's method."""
    above, below = 1.0, 1 / _apart(1 - (a + b) * x / (a + 1))
    found = below
    for m in range(1, _MOST):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            below = 1 / _apart(1 + term * below)
            above = _apart(1 + term / above)
            found *= above * below
        if abs(above * below - 1) < 1e-16:
            break
    return found


def _apart(value: float) -> float:
    """Return a value that one can divide by."""
    return value if abs(value) > _LEAST else _LEAST


def digamma(value: float) -> float:
    """Return the derivative of the logarithm of the gamma function at a positive value."""
    below, x = 0.0, value
    while x < _LARGE:
        below, x = below + 1 / x, x + 1
    y = 1 / x**2
    # DLMF 5.11.2.
    return (
        math.log(x) - 1 / (2 * x) - y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y / 240))) - below
    )


def trigamma(value: float) -> float:
    """Return the derivative of digamma at a positive value."""
    below, x = 0.0, value
    while x < _LARGE:
        below, x = below + 1 / x**2, x + 1
    y = 1 / x**2
    series = 1 / 6 - y * (1 / 30 - y * (1 / 42 - y / 30))
    return below + 1 / x + y / 2 + series * y / x


def tetragamma(value: float) -> float:
    """Return the derivative of trigamma at a positive value."""
    below, x = 0.0, value
    while x < _LARGE:
        below, x = below + 2 / x**3, x + 1
    y = 1 / x**2
    series = 1 / 2 - y * (1 / 6 - y * (1 / 6 - y * 3 / 10))
    return -below - y - y / x - series * y**2
