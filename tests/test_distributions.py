"""Distributions without SciPy give what SciPy gives."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from perfpipe.analysis import distributions as ours

_FREEDOM = st.floats(1, 1e4)
_VALUE = st.floats(-60, 60)
_SHARE = st.floats(1e-9, 1 - 1e-9)


@pytest.fixture(scope="module", autouse=True)
def without_scipy() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "scipy", None)
        ours._special.cache_clear()
        assert ours._special() is None
        yield
    ours._special.cache_clear()


@given(_FREEDOM, _VALUE)
def test_student(freedom: float, value: float) -> None:
    found = ours.student(freedom, value)
    assert found == pytest.approx(float(stdtr(freedom, value)), rel=1e-9, abs=1e-300)


@given(_FREEDOM, _SHARE)
def test_student_quantile(freedom: float, share: float) -> None:
    found = ours.student_quantile(freedom, share)
    assert found == pytest.approx(float(stdtrit(freedom, share)), rel=1e-8, abs=1e-9)


@given(st.floats(-37, 8), _SHARE)
def test_normal(value: float, share: float) -> None:
    assert ours.normal(value) == pytest.approx(float(ndtr(value)), rel=1e-12)
    assert ours.normal_quantile(share) == pytest.approx(float(ndtri(share)), rel=1e-9, abs=1e-12)


def test_ends() -> None:
    assert ours.student(1, 0) == 0.5
    assert ours.student(1, 1) == pytest.approx(0.75)  # Cauchy's
    assert ours.student_quantile(2, 0.5) == pytest.approx(0, abs=1e-15)
    assert ours.student(math.inf, -1.96) == pytest.approx(stats.norm.cdf(-1.96))
    assert ours.student_quantile(math.inf, 0.975) == pytest.approx(stats.norm.ppf(0.975))


def test_scipy_is_used_if_it_is_installed() -> None:
    scipy = SimpleNamespace(special=special)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "scipy", scipy)
        ours._special.cache_clear()
        assert ours._special() is special
        assert ours.student(4, -2.0) == float(stdtr(4, -2.0))
        assert ours.student_quantile(4, 0.9) == float(stdtrit(4, 0.9))
    ours._special.cache_clear()
