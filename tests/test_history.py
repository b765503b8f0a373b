"""Histories: where levels change, between what, and which node stands out."""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli, lacking
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from perfpipe.analysis.gate.history.changepoints import FEWEST, penalty_of, segments_of
from perfpipe.analysis.gate.history.order import By, backfilled, order_of
from perfpipe.analysis.gate.history.series import Point, courses_of, points_of, times_of
from perfpipe.ranrecord import Git, Ran
from perfpipe.runrecord import RunRecord, TaskResult
from perfpipe.store import Store

_VALUES = st.lists(st.integers(0, 30).map(lambda value: value / 10), min_size=12, max_size=15)


@pytest.fixture
def without_ruptures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ruptures", None)


def _cost(values: Sequence[float], bounds: Iterable[int], penalty: float) -> float:
    """Return the penalized cost of segments, straight from its definition."""
    squares = [(a - b) ** 2 for a, b in itertools.combinations(values, 2)]
    median = float(np.median(squares)) or 1.0
    total = -penalty
    for start, end in itertools.pairwise((0, *bounds, len(values))):
        kernel = sum(
            1.0 if a == b else math.exp(-min(max((values[a] - values[b]) ** 2 / median, 1e-2), 1e2))
            for a in range(start, end)
            for b in range(start, end)
        )
        total += end - start - kernel / (end - start) + penalty
    return total


def _least(values: Sequence[float], penalty: float) -> float:
    """Return the least cost of all segmentations into parts of at least two points."""
    count = len(values)
    return min(
        _cost(values, bounds, penalty)
        for number in range(4)
        for bounds in itertools.combinations(range(2, count - 1), number)
        if all(b - a >= 2 for a, b in itertools.pairwise((0, *bounds, count)))
    )


def _is_best(values: list[float]) -> None:
    penalty = penalty_of(len(values))
    found = segments_of(values)
    assert found.searched
    assert _cost(values, found.starts, penalty) == pytest.approx(_least(values, penalty), abs=1e-9)


def _needs_ruptures() -> None:
    try:
        import ruptures
    except ImportError:
        lacking("ruptures is not installed")
    assert ruptures.__version__


class TestSegments:
    @settings(max_examples=30)
    @given(_VALUES)
    def test_no_segmentation_is_better_without_ruptures(self, values: list[float]) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "ruptures", None)
            _is_best(values)
            assert "ruptures is not installed" in segments_of(values).method

    @settings(max_examples=30)
    @given(_VALUES)
    def test_no_segmentation_is_better_with_ruptures(self, values: list[float]) -> None:
        _needs_ruptures()
        _is_best(values)
        assert "installed" not in segments_of(values).method

    def test_both_find_the_same_in_longer_histories(self) -> None:
        _needs_ruptures()
        rng = np.random.default_rng(4)
        for _ in range(10):
            levels = np.repeat(rng.normal(0, 0.05, 4), rng.integers(5, 30, 4))
            values = (levels + rng.normal(0, 0.01, len(levels))).tolist()
            found = segments_of(values)
            with pytest.MonkeyPatch.context() as patch:
                patch.setitem(sys.modules, "ruptures", None)
                assert segments_of(values).starts == found.starts

    @pytest.mark.usefixtures("without_ruptures")
    def test_known_answers(self) -> None:
        rng = np.random.default_rng(5)
        step = np.concatenate([rng.normal(0, 0.01, 60), rng.normal(0.05, 0.01, 20)])
        (start,) = segments_of(step.tolist()).starts
        assert abs(start - 60) <= 1
        assert segments_of([1.0] * 30).starts == ()
        few = segments_of([1.0] * (FEWEST - 1))
        assert (few.starts, few.searched) == ((), False)
        assert "fewer than 12 points" in few.method
        many = segments_of([*rng.normal(0, 0.01, 1200), *rng.normal(0.1, 0.01, 60)])
        assert [abs(start - 1200) <= 1 for start in many.starts] == [True]
        assert "the newest 1000 points" in many.method

    @pytest.mark.usefixtures("without_ruptures")
    def test_hardly_any_change_is_found_where_there_is_none(self) -> None:
        rng = np.random.default_rng(6)
        for count in (12, 30, 80):
            false = sum(
                bool(segments_of(rng.normal(0, 1, count).tolist()).starts) for _ in range(150)
            )
            assert false <= 3


# Courses


def _points(times: Iterable[float], **more: Sequence[Any]) -> list[Point]:
    found = []
    for at, time in enumerate(times):
        own: dict[str, Any] = {name: values[at] for name, values in more.items()}
        when = f"2026-11-{at // 24 + 1:02}T{at % 24:02}:00:00Z"
        found.append(Point(f"r{at:02}", when, "-", time, "k", **own))
    return found


def _stepped(count: int = 30, at: int = 20, size: float = 0.06) -> list[float]:
    rng = np.random.default_rng(7)
    logs = rng.normal(0, 0.004, count) + size * (np.arange(count) >= at)
    found: list[float] = np.exp(logs).tolist()
    return found


def test_a_change_lies_between_two_commits() -> None:
    commits = [f"c{at // 5}" for at in range(30)]
    (course,) = courses_of(_points(_stepped(), commit=commits), "commit")
    assert [row.name for row in course.rows] == ["c0", "c1", "c2", "c3", "c4", "c5"]
    assert [row.runs for row in course.rows] == [5] * 6
    (step,) = course.steps
    assert (step.row, step.between) == (4, "between commits c3 and c4")
    assert step.change_pct == pytest.approx(6.2, abs=0.5)
    assert step.low_pct is not None
    assert step.high_pct is not None
    assert step.low_pct < step.change_pct < step.high_pct
    assert [row.segment for row in course.rows] == [0, 0, 0, 0, 1, 1]
    assert course.rows[0].level_ms == pytest.approx(step.before_ms)


@given(st.permutations(range(12)), st.sampled_from([*By]))
def test_commits_have_their_place_whenever_they_were_measured(measured: list[int], by: By) -> None:
    """Commit times that say the opposite do not matter if git knows the order."""
    times = {
        By.GIT: [f"2026-11-{20 - at:02}" for at in range(12)],
        By.COMMIT_TIME: [f"2026-11-{1 + at:02}" for at in range(12)],
        By.MEASURED: [""] * 12,
    }[by]
    points = [
        Point(
            f"r{when:02}", f"2026-11-22T10:00:{when:02}Z", "-", 1.0 + at, "k",
            commit=f"c{at:02}", revision=f"{at:040}", committed_at=times[at],
        )
        for when, at in enumerate(measured)
    ]  # fmt: skip
    places = {f"{at:040}": 100 + at for at in range(12)} if by == By.GIT else {f"{1:040}": 5}
    order = order_of(points, places)
    assert order.by == by
    (course,) = courses_of(points, "commit", order)
    expected = measured if by == By.MEASURED else sorted(measured)
    assert [row.name for row in course.rows] == [f"c{at:02}" for at in expected]
    late = sum(any(other > at for other in measured[:when]) for when, at in enumerate(measured))
    assert backfilled(points, order) == (0 if by == By.MEASURED else late)


def test_a_modified_commit_comes_after_it() -> None:
    points = _points([1.0] * 4, commit=["b+", "b", "c", "a"], revision=["b", "b", "c", "a"],
                     dirty=[True, False, False, False], committed_at=["2", "2", "3", "1"])  # fmt: skip
    for places in ({"a": 0, "b": 1, "c": 2}, {}):
        order = order_of(points, places)
        (course,) = courses_of(points, "commit", order)
        assert [row.name for row in course.rows] == ["a", "b", "b+", "c"]
    assert order.said.endswith("because the repository is not here (run the command in it)")
    assert "lacks 2 commits" in order_of(points, {"a": 0}).said
    some = [*points, *_points([1.0])]
    assert order_of(some, {"a": 0, "b": 1, "c": 2}).why == "1 of 5 results have no commit"


def test_a_change_within_a_commit_is_not_of_its_code() -> None:
    points = _points(_stepped(), commit=["c"] * 30, node=["a"] * 20 + ["b"] * 10)
    (course,) = courses_of(points, "time")
    (step,) = course.steps
    assert step.between.startswith("within commit c, between runs r19 (")
    assert step.between.endswith("the code is the same; on a before, on b after")


def test_intervals_are_of_the_scatter_about_the_levels() -> None:
    times = _stepped()
    (course,) = courses_of(_points(times), "time")
    logs = np.log(times)
    rest = np.concatenate([logs[:20] - logs[:20].mean(), logs[20:] - logs[20:].mean()])
    margin = stats.t.ppf(0.975, 28) * math.sqrt((rest**2).sum() / 28)
    for row, time in zip(course.rows, times, strict=True):
        assert row.low_ms == pytest.approx(time * math.exp(-margin))
        assert row.high_ms == pytest.approx(time * math.exp(margin))
    (alone,) = courses_of(_points([1.0]), "time")
    assert (alone.rows[0].low_ms, alone.rows[0].high_ms) == (None, None)
    assert not alone.steps


def test_machines_and_configurations_have_their_own() -> None:
    points = _points([1.0, 2.0, 3.0], machine=["a", "b", "a"])
    courses = courses_of(points, "time")
    assert [(course.machine, len(course.rows)) for course in courses] == [("a", 2), ("b", 1)]


# The command


def _run(store: Path, at: int, ms: float, node: str, commit: str, **more: object) -> None:
    began = f"2026-11-{at // 24 + 1:02}T{at % 24:02}:00:00Z"
    git = Git(commit * 40, "main") if commit else None
    ran = Ran(began, began, 1.0, node, ("GPU-1",), machine="H200", git=git)
    task = TaskResult(0, "-", {}, times_ms=(ms,), key="k", ran=ran, **more)  # type: ignore[arg-type]
    Store(store).write_run(RunRecord(f"r{at:02}", "w", "timing", began, "done", (), (task,)))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    where = tmp_path / "store"
    for at, ms in enumerate(_stepped()):
        slow = 1.08 if at % 3 == 0 else 1.0
        _run(where, at, ms, "abc"[at % 3], "01"[at >= 20])
        _run(where, at + 100, ms * slow, "abc"[at % 3], "", variant=("env.A=1",))
    return where


def test_history_along_time_and_commits(store: Path, cli: Cli, tmp_path: Path) -> None:
    assert cli("history", "w", "--by", "commit", "--html", str(tmp_path / "h.html")) == 0, cli.err
    assert "between commits 000000000 and 111111111" in cli.out
    page = (tmp_path / "h.html").read_text()
    assert "<svg" in page
    assert "between commits 000000000 and 111111111" in page
    assert cli("history", "w", "--json") == 0
    (course,) = json.loads(cli.out)["courses"]
    assert len(course["rows"]) == 30, "arms with another environment are left out"
    assert course["steps"][0]["row"] == 20
    assert cli("history", "nothing") == 2
    assert "nothing: no measured runs in" in cli.err
    assert "(workloads: w)" in cli.err


@pytest.mark.parametrize("known", [*By])
def test_a_backfill_is_in_its_place(
    known: By, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits 0, 4, 8, ... were measured first, those between them later; 14 is the slow one."""
    where = tmp_path / "repository"
    git = ["git", "-C", str(where), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "-q", str(where)], check=True)
    commits: list[str] = []
    for at in range(20):
        date = f"2026-10-{at + 1:02}T00:00:00Z"
        env = {**os.environ, "GIT_COMMITTER_DATE": date}
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", f"{at}"], env=env, check=True)
        done = subprocess.run(
            [*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
        )
        commits.append(done.stdout.strip())
    rng = np.random.default_rng(3)
    turns = [*range(0, 20, 4), *(at for at in range(20) if at % 4)]
    for turn, at in enumerate(turns):
        ms = (1.06 if at >= 14 else 1.0) * float(np.exp(rng.normal(0, 0.002)))
        began = f"2026-11-{turn + 1:02}T00:00:00Z"
        time = None if known == By.MEASURED else f"2026-10-{at + 1:02}T00:00:00Z"
        ran = Ran(began, began, 1.0, "n", machine="m", git=Git(commits[at], committed_at=time))
        task = TaskResult(0, "-", {}, times_ms=(ms,), key="k", ran=ran)
        run = RunRecord(f"r{turn:02}", "w", "timing", began, "done", (), (task,))
        Store(tmp_path / "store").write_run(run)
    if known == By.GIT:
        monkeypatch.chdir(where)
    words = ["history", "w", "--store", str(tmp_path / "store")]
    assert cli(*words, "--by", "commit", "--json", "--html", str(tmp_path / "h.html")) == 0, cli.err
    found = json.loads(cli.out)
    assert found["order"] == known
    (course,) = found["courses"]
    names = [commit[:9] for commit in commits]
    expected = [names[at] for at in turns] if known == By.MEASURED else names
    assert [row["name"] for row in course["rows"]] == expected
    page = (tmp_path / "h.html").read_text()
    assert {
        By.GIT: "Commits are in git&#39;s order",
        By.COMMIT_TIME: "Commits are in the order of their commit times, because the repository",
        By.MEASURED: "Commits are in the order in which they were first measured, because",
    }[known] in page
    if known != By.MEASURED:
        (step,) = course["steps"]
        assert step["between"] == f"between commits {names[13]} and {names[14]}"
        assert cli(*words) == 0
        assert "which is not that of their commits: later runs measured 12 older" in " ".join(
            cli.out.split()
        )


def test_a_slow_node_is_named(cli: Cli, tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    for at in range(24):
        node = "abcd"[at % 4]
        slow = 1.07 if node == "c" else 1.0
        _run(tmp_path / "store", at, slow * float(np.exp(rng.normal(0, 0.005))), node, "0")
    assert cli("history", "w", "--by", "node", "--json") == 0, cli.err
    places = json.loads(cli.out)["places"]
    assert [place["name"] for place in places if place["verdict"]] == ["c"]
    assert cli("history", "w", "--by", "gpu", "--html", str(tmp_path / "h.html")) == 0
    assert "c GPU-1 is " in cli.out
    assert "slower than the others for the same work" in cli.out
    assert "<svg" in (tmp_path / "h.html").read_text()


def test_the_same_work_is_that_of_one_commit() -> None:
    """A node that only ran the slower commit is not slower."""
    rng = np.random.default_rng(9)
    runs = []
    for at in range(20):
        late = at >= 10
        ms = (1.2 if late else 1.0) * float(np.exp(rng.normal(0, 0.004)))
        began = f"2026-11-01T{at:02}:00:00Z"
        ran = Ran(began, began, 1.0, "ab"[late], git=Git(("b" if late else "a") * 40))
        runs.append(RunRecord(f"r{at}", "w", "timing", began, "done", (),
                              (TaskResult(0, "-", {}, times_ms=(ms,), key="k", ran=ran),)))  # fmt: skip
    assert len({row.work for row in times_of(points_of(runs), "node")}) == 2


def test_what_was_not_measured_is_left_out() -> None:
    task = TaskResult(0, "-", {}, times_ms=(1.0,))
    at = "2026-11-22T10:00:00Z"
    replay = RunRecord("a", "w", "replay", at, "done", (), (task,))
    bad = RunRecord(
        "b", "w", "timing", at, "failed", (), (TaskResult(0, "-", {}, status="failed"),)
    )
    wall = RunRecord("c", "w", "timing", at, "done", (), (TaskResult(0, "-", {}, seconds=(2.0,)),))
    assert [(point.run_id, point.time_ms) for point in points_of([wall, bad, replay])] == [
        ("c", 2000.0)
    ]
