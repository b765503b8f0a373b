"""Several configurations: their scatter, their mean, and the verdict on all of them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from conftest import Cli
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import polygamma
from test_gate import FAST, side, times

from perfpipe.analysis.distributions import digamma, tetragamma, trigamma
from perfpipe.analysis.gate.ab import Round, side_of_rounds
from perfpipe.analysis.gate.compare.comparison import pairs_of
from perfpipe.analysis.gate.decision import Decision, Verdict, decide
from perfpipe.analysis.gate.judging import Scatter
from perfpipe.analysis.gate.matrix import _inverse_trigamma, mean_of, moderated
from perfpipe.pipelines.gate.outputs import junit, rows
from perfpipe.runrecord import TaskResult

_ERRORS = st.lists(
    st.builds(Scatter, st.floats(1e-8, 1e-2), st.floats(2, 40)), min_size=3, max_size=20
)


@given(st.floats(1e-3, 1e3))
def test_gamma_functions_are_those_of_scipy(value: float) -> None:
    for order, own in enumerate((digamma, trigamma, tetragamma)):
        assert own(value) == pytest.approx(float(polygamma(order, value)), rel=1e-9, abs=1e-11)


@given(st.floats(1e-3, 1e3))
def test_trigamma_is_inverted(value: float) -> None:
    assert float(polygamma(1, _inverse_trigamma(value))) == pytest.approx(value, rel=1e-6)


@given(_ERRORS)
def test_moderation_moves_errors_towards_a_common_one_and_keeps_their_order(
    errors: list[Scatter],
) -> None:
    found = moderated(errors)
    total = sum(error.freedom for error in errors)
    assert all(error.freedom <= total * (1 + 1e-9) for error in found)
    assert all(new.freedom >= old.freedom for old, new in zip(errors, found, strict=True))
    alike = [(old, new) for old, new in zip(errors, found, strict=True)]
    for old, new in alike:
        for other_old, other_new in alike:
            if old.freedom == other_old.freedom and old.variance < other_old.variance:
                assert new.variance <= other_new.variance * (1 + 1e-9)


def test_errors_that_differ_by_chance_are_pooled_and_others_are_not() -> None:
    rng = np.random.default_rng(0)
    alike = [Scatter(float(rng.chisquare(8)) / 8, 8.0) for _ in range(200)]
    found = moderated(alike)
    assert all(0.85 < error.variance < 1.15 for error in found)
    assert min(error.freedom for error in found) > 50
    apart = [Scatter(error.variance * 10 ** (at % 5), 8.0) for at, error in enumerate(alike)]
    found = moderated(apart)
    assert max(error.freedom for error in found) < 12
    ratios = [new.variance / old.variance for old, new in zip(apart, found, strict=True)]
    assert 0.5 < float(np.median(ratios)) < 2
    assert moderated(alike[:2]) == alike[:2]
    assert moderated([*alike[:5], Scatter(0.0, 8.0)])[5].variance == 0


def test_the_mean_is_that_of_each_run() -> None:
    one = side("A", a=FAST, b=[4 * time for time in FAST])
    (a, b) = (one.measured[key] for key in sorted(one.measured))
    mean = mean_of([a, b])
    assert mean is not None
    assert mean.medians == pytest.approx([2 * time for time in FAST])
    assert mean_of([a, side("A", a=FAST[:4]).measured[sorted(one.measured)[0]]]) is None


def _decided(
    rng: np.random.Generator, scatter: Sequence[float], effects: Sequence[float]
) -> Decision:
    """Return the decision on five rounds of configurations with normal noise."""
    labels = [f"n={at}" for at in range(len(scatter))]
    sides = []
    for arm in (0, 1):
        rounds = []
        for number in range(5):
            logs = rng.normal(0, 1, len(labels)) * scatter + np.log1p(effects) * arm
            results = [
                TaskResult(at, label, {}, times_ms=(float(10 * np.exp(log)),))
                for at, (label, log) in enumerate(zip(labels, logs, strict=True))
            ]
            rounds.append(Round(2 * number + (arm + number) % 2, tuple(results)))
        sides.append(side_of_rounds("ab"[arm], rounds, labels))
    return decide(pairs_of(*sides))


def _verdicts(scatter: Sequence[float], effects: Sequence[float], count: int = 60) -> list[str]:
    rng = np.random.default_rng(1)
    return [str(_decided(rng, scatter, effects).verdict) for _ in range(count)]


def test_unchanged_configurations_are_the_same() -> None:
    assert _verdicts([0.01] * 20, [0.0] * 20).count("same") >= 54


def test_one_slower_configuration_of_many_is_found() -> None:
    assert _verdicts([0.01] * 20, [0.03] + [0.0] * 19).count("regressed") >= 45


def test_a_small_change_of_all_configurations_is_found_in_their_mean() -> None:
    assert _verdicts([0.03] * 20, [0.03] * 20).count("regressed") >= 50


def test_configurations_that_scatter_differently_give_few_false_alarms() -> None:
    scatter = [0.003, 0.003, 0.05, 0.02, 0.01, 0.003, 0.05, 0.03]
    found = _verdicts(scatter, [0.0] * 8, 200)
    assert sum(verdict in ("improved", "regressed") for verdict in found) <= 16


def test_a_configuration_that_scatters_too_much_is_named() -> None:
    rng = np.random.default_rng(2)
    found = _decided(rng, [0.002] * 7 + [0.05], [0.0] * 8)
    assert found.verdict == Verdict.INCONCLUSIVE
    assert "mean of 8 configurations: " in found.reason
    assert ", but n=7 may have changed by " in found.reason
    assert found.further_runs is None or found.further_runs > 5


def test_the_sentence_on_configurations_that_are_the_same_has_a_bound() -> None:
    found = decide(pairs_of(side("A", a=FAST, b=FAST), side("B", a=times(1.002), b=FAST)))
    assert found.verdict == Verdict.SAME
    assert found.reason.startswith("mean of 2 configurations: +0.1 % (")
    bound = float(found.reason.partition("each changed by less than ")[2].removesuffix(" %"))
    assert 0.2 < bound < 1
    assert found.mean is not None
    assert found.mean.change is not None
    assert math.log1p(found.mean.change.ratio) == pytest.approx(math.log(1.002) / 2, rel=1e-6)


def test_a_regression_of_one_configuration_comes_before_gains_of_others() -> None:
    before = side("A", a=FAST, b=FAST, c=FAST)
    found = decide(pairs_of(before, side("B", a=times(0.8), b=times(1.1), c=FAST)))
    assert found.verdict == Verdict.REGRESSED
    assert found.reason.startswith("b: +10.0 % (")
    assert "; 1 of 3 configurations regressed, mean of 3 configurations: -4." in found.reason
    found = decide(pairs_of(before, side("B", a=times(0.8), b=FAST, c=FAST)))
    assert (found.verdict, found.reason[:15]) == (Verdict.IMPROVED, "mean of 3 confi")


def test_outputs_have_the_mean() -> None:
    before = side("A", a=FAST, b=FAST)
    found = decide(pairs_of(before, side("B", a=times(1.1), b=times(1.1))))
    assert [row[0] for row in rows(found)] == ["mean of 2 configurations", "a", "b"]
    assert junit(found).count("<failure") == 3
    assert decide(pairs_of(side("A", a=FAST), side("B", a=FAST))).mean is None


def test_a_matrix_from_the_command_line(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import os, sys\n"
        "n = int(sys.argv[1])\n"
        "ms = 10 * n * (float(os.environ.get('SLOW', '1')) if n == 3 else 1)\n"
        "with open(f'at{n}', 'a+') as file:\n"
        "    file.write('x')\n"
        "    ms *= 1 + 0.001 * (file.tell() % 3)\n"
        'print(\'{"perfpipe": "time", "ms": [%r]}\' % ms)\n'
    )
    path = tmp_path / "w.yaml"
    path.write_text(
        "version: 1\nname: w\ncommand: ['{python}', program.py, '{n}']\nmatrix: {n: [1, 2, 3]}\n"
    )
    assert cli("ab", path, "--b", "env.SLOW=1.05", "--no-confirm", "--json") == 3, cli.err
    found = json.loads(cli.out)
    assert found["reason"].startswith("n=3: +")
    assert found["mean"]["label"] == "mean of 3 configurations"
    assert [row["verdict"] for row in found["endpoints"]] == ["regressed", "same", "same"]
    assert {row["test"] for row in found["endpoints"]} == {"welch"}
