"""Comparisons with a baseline: the statistics against a plain computation, and what a report says."""

from __future__ import annotations

import json
import math
import shutil
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Cli
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from analysis.comparison import Key, Measured, Side, compare, judge

_TIMES = st.lists(st.floats(100, 200), min_size=2, max_size=8)


@given(_TIMES, _TIMES)
def test_the_interval_is_welchs(before: list[float], after: list[float]) -> None:
    a, b = [math.log(x) for x in before], [math.log(x) for x in after]
    if statistics.stdev(a) < 1e-6 or statistics.stdev(b) < 1e-6:
        return  # scipy loses precision there
    oracle = stats.ttest_ind(b, a, equal_var=False).confidence_interval(0.95)
    found = judge(before, after)
    assert found.low is not None and found.high is not None
    difference = statistics.fmean(b) - statistics.fmean(a)
    assert math.log1p(found.ratio) == pytest.approx(difference, abs=1e-9)
    assert math.log1p(found.low) == pytest.approx(oracle.low, rel=1e-6, abs=1e-8)
    assert math.log1p(found.high) == pytest.approx(oracle.high, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ([100, 100.2, 99.8], [110, 110.3, 109.9], "regressed"),
        ([100, 100.2, 99.8], [90, 90.3, 89.9], "improved"),
        ([100, 100.2, 99.8], [100.1, 100.3, 99.9], "same"),
        ([100, 100.2, 99.8], [101, 101.2, 100.8], "same"),  # beyond zero, within the threshold
        ([100, 110, 90], [104, 115, 93], "inconclusive"),
        ([100], [200], "unreplicated"),
        ([100, 101, 102], [200], "unreplicated"),
        ([100, 100, 100], [100, 100, 100], "same"),
        ([100, 100, 100], [110, 110, 110], "regressed"),
    ],
)
def test_verdicts(before: list[float], after: list[float], verdict: str) -> None:
    assert judge(before, after).verdict == verdict


@given(_TIMES, _TIMES)
def test_the_other_way_round_is_the_inverse(before: list[float], after: list[float]) -> None:
    there, back = judge(before, after), judge(after, before)
    assert (1 + there.ratio) * (1 + back.ratio) == pytest.approx(1)
    opposite = {"regressed": "improved", "improved": "regressed"}
    assert back.verdict == opposite.get(there.verdict, there.verdict)


def _side(**times: list[float]) -> Side:
    measured = {
        Key("", name, "", "", ""): Measured(values, [1] * len(values), [1980.0] * len(values))
        for name, values in times.items()
    }
    return Side(measured, frozenset({"H200"}), ())


def _verdicts(before: Side, after: Side, gpu: str) -> dict[str, str]:
    found = compare(before, replace(after, gpus=frozenset({gpu})))
    (table,) = found.tables
    at = {column.name: index for index, column in enumerate(table.columns)}
    return {str(row[at["label"]]): str(row[at["verdict"]]) for row in table.rows}


def test_what_has_no_pair_or_another_gpu() -> None:
    before = _side(a=[1.0, 1.0], b=[1.0, 1.0])
    after = _side(b=[1.0, 1.0], c=[1.0, 1.0])
    assert _verdicts(before, after, "H200") == {"a": "gone", "b": "same", "c": "new"}
    assert _verdicts(before, after, "A100")["b"] == "not comparable"


def test_a_clock_that_explains_the_change() -> None:
    before, after = _side(a=[1.0, 1.001, 0.999]), _side(a=[1.25, 1.251, 1.249])
    assert _verdicts(before, after, "H200") == {"a": "regressed"}
    after[Key("", "a", "", "", "")].sm_mhz[:] = [1584.0] * 3  # a quarter slower
    assert _verdicts(before, after, "H200") == {"a": "not comparable"}
    after[Key("", "a", "", "", "")].sm_mhz[:] = [1900.0] * 3  # explains a part only
    assert _verdicts(before, after, "H200") == {"a": "regressed"}
    same = _side(a=[1.0, 1.001, 0.999])
    same[Key("", "a", "", "", "")].sm_mhz[:] = [1200.0] * 3
    assert _verdicts(before, same, "H200") == {"a": "same"}


def _slower(store: Path, run: str, factor: float, name: str) -> None:
    """Make a run like another, with times that are longer."""
    folder = store / "runs" / name
    shutil.copytree(store / "runs" / run, folder)
    for path in folder.rglob("*.json"):
        document = json.loads(path.read_text())
        if "run_id" in document:
            document["run_id"] = name
            document["reports"] = []
            for task in document["tasks"]:
                task["times_ms"] = [time * factor for time in task["times_ms"]]
                task["reports"] = []
            path.write_text(json.dumps(document))


def test_a_report_against_a_baseline(
    cli: Cli, replayed: Callable[[str], Path], tmp_path: Path
) -> None:
    store = shutil.copytree(replayed("vector_add"), tmp_path / "store")
    (run,) = [path.name for path in (store / "runs").iterdir()]
    for number, factor in enumerate((1.0, 1.001, 0.999, 1.1, 1.101, 1.099)):
        _slower(store, run, factor, f"{'before' if number < 3 else 'after'}-{number}")
    words = [f"--baseline=before-{n}" for n in range(3)]
    assert cli("report", "after-3", "after-4", "after-5", *words, "--json") == 0
    document = json.loads(cli.out)
    assert "of 6 configurations: 6 regressed" in document["statements"][0]["text"]
    facts = {fact["name"]: fact["text"] for fact in document["summary"]}
    assert facts["Baseline"] == "before-0, before-1, before-2"
    section = next(s for s in document["sections"] if s["id"] == "regression")
    (table,) = section["tables"]
    names = [column["name"] for column in table["columns"]]
    rows = [dict(zip(names, row, strict=True)) for row in table["rows"]]
    assert len(rows) == 6
    for row in rows:
        assert row["change_pct"] == pytest.approx(10, abs=0.1)
        assert row["low_pct"] < row["change_pct"] < row["high_pct"]
        assert (row["runs"], row["verdict"]) == ("3 and 3", "regressed")
    assert cli("report", "after-3", "--baseline", "before-0", "--md", "-") == 0
    assert "one run per side proves nothing" in cli.out
    assert cli("report", run, "--baseline", run) == 2
    assert "is on both sides of the comparison" in cli.err


def test_reports_are_compared_by_kernel(cli: Cli, stored: Callable[..., list[str]]) -> None:
    before, after = stored("nsys/eager_small.sqlite", "nsys/compute.sqlite")
    assert cli("report", after, "--baseline", before, "--json") == 0
    section = next(s for s in json.loads(cli.out)["sections"] if s["id"] == "regression")
    (table,) = section["tables"]
    names = [column["name"] for column in table["columns"]]
    found = {row[names.index("verdict")] for row in table["rows"]}
    assert {"new", "gone"} <= found <= {"new", "gone", "unreplicated"}
    assert {row[0] for row in table["rows"]} == {"nsys kernel"}
