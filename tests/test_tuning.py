"""Searches: what they propose, what a run of one keeps, and the story that its history tells."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import Cli
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.analysis.history import History, Trial, read_history
from perfpipe.analysis.search_gain import gains
from perfpipe.analysis.search_story import (
    best_of,
    convergence,
    generations,
    pareto,
    shared_by_best,
    story,
    traits,
)
from perfpipe.errors import InputError
from perfpipe.pipelines.search import Search
from perfpipe.pipelines.workload import Workload, load_workload
from perfpipe.runrecord import TaskResult
from perfpipe.store import Store

PROGRAM = """
import json, sys
x, y = int(sys.argv[1]), int(sys.argv[2])
def say(what, **more): print(json.dumps({"perfpipe": what, **more}), flush=True)
if x * y > 60:
    say("out_of_resources", reason="too large")
    sys.exit(4)
say("kernel", registers=8 * x, spills=max(0, x - 6), shared_bytes=64 * y)
say("validation", ok=y != 3, max_abs_error=1.0)
if y != 3:
    say("time", ms=[(x - 5) ** 2 + (y - 6) ** 2 + 1.0])
"""

WORKLOAD = """
version: 1
name: t
command: ["{python}", -IS, program.py, "{x}", "{y}"]
tune:
  parameters: {x: [1, 2, 3, 4, 5, 6, 7, 8], y: [1, 2, 3, 4, 5, 6, 7, 8, 9]}
  default: {x: 1, y: 1}
  generations: 5
  population: 10
"""

#: Launches are what a search takes long for.
SMALL = WORKLOAD.replace("generations: 5", "generations: 3").replace(
    "population: 10", "population: 6"
)


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    path = tmp_path / "t.yaml"
    path.write_text(WORKLOAD)
    return path


def test_a_search_finds_its_way_and_keeps_failures(
    workload: Path, cli: Cli, tmp_path: Path
) -> None:
    assert cli("run", workload, "--collector", "timing", report=True) == 0, cli.err
    (run,) = Store(tmp_path / "store").runs()
    assert run.status == "done"
    tasks = run.tasks
    assert len(tasks) == 50
    assert [task.generation for task in tasks] == sorted([0, 1, 2, 3, 4] * 10)
    assert len({task.label for task in tasks}) == 50, "nothing is tried twice"
    assert tasks[0].params == {"x": 1, "y": 1}, "the default comes first"
    assert {t.failure for t in tasks} == {None, "wrong_result", "out_of_resources"}
    best = min(t.times_ms[0] for t in tasks if t.times_ms)
    assert best <= 2.0
    assert cli("report", "--tuning") == 0
    assert "faster than the default (42 ms)" in cli.out
    assert "Rejected: " in cli.out
    assert cli("report", "--tuning", run.run_id, "--json") == 0
    document = json.loads(cli.out)
    assert len(document["trials"]) == 50
    assert document["best"]["time_ms"] == best
    report = (tmp_path / "report.md").read_text()
    for title in ("generations", "the best configurations", "what the best configurations have in common",
                  "trade-off between time and registers", "rejected configurations"):  # fmt: skip
        assert f"### Tuning: {title}" in report
    assert "The fastest of 50 configurations in 5 generations" in report
    html = (tmp_path / "report.html").read_text()
    assert "<title>x=" in html, "each mark of the figure says what it is"
    assert (
        cli("query", "SELECT max(generation), sum(spills) FROM run_tasks", "--format", "csv") == 0
    )
    assert cli.out.splitlines()[1].startswith("4,")


def test_a_search_is_resumed(workload: Path, cli: Cli, tmp_path: Path) -> None:
    workload.write_text(SMALL)
    assert cli("run", workload, "--collector", "timing") == 0
    (before,) = Store(tmp_path / "store").runs()
    removed = sorted((tmp_path / "store" / "runs").glob("*/tasks/*/result.json"))[::3]
    done = [json.loads(path.read_text())["status"] for path in removed].count("done")
    for path in removed:
        path.unlink()
    assert cli("run", workload, "--collector", "timing", "--resume") == 0
    (after,) = Store(tmp_path / "store").runs()
    assert [t.params for t in after.tasks] == [t.params for t in before.tasks]
    assert cli.err.count(": measured") == done


def test_the_best_and_the_default_are_profiled(
    workload: Path, profilers: Path, cli: Cli, tmp_path: Path
) -> None:
    workload.write_text(SMALL + "collect: {ncu: {}}\n")
    assert cli("run", workload, "--collector", "all", "--set", "repeats=1") == 0, cli.err
    (run,) = Store(tmp_path / "store").runs()
    profiled = [task for task in run.tasks if task.reports]
    fastest = min((t for t in run.tasks if t.times_ms), key=lambda t: t.times_ms)
    assert {t.index for t in profiled} == {0, fastest.index}


def test_listed_candidates(workload: Path, cli: Cli, tmp_path: Path) -> None:
    workload.write_text(WORKLOAD.replace("generations: 5", "candidates: list.jsonl"))
    lines = [{"x": 1, "y": 2, "generation": 0}, {"params": {"x": 5, "y": 6}, "generation": 1}]
    (tmp_path / "list.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    assert cli("run", workload, "--collector", "timing") == 0, cli.err
    (run,) = Store(tmp_path / "store").runs()
    assert [(t.generation, t.params) for t in run.tasks] == [
        (0, {"x": 1, "y": 2}),
        (1, {"x": 5, "y": 6}),
    ]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "list.jsonl:1: not a JSON object"),
        ("[1]", "list.jsonl:1: not a JSON object"),
        ('{"x": 1}', "list.jsonl:1: y missing"),
        ('{"x": 1, "y": 2, "z": 3}', "list.jsonl:1: no parameter 'z' in tune"),
        ('{"x": 1, "y": [2]}', "list.jsonl:1: y must be a number or a string"),
        ('{"x": 1, "y": 2, "generation": "a"}', "list.jsonl:1: expected parameters"),
        ("", "no candidates"),
    ],
)
def test_faulty_candidates(
    line: str, sentence: str, workload: Path, cli: Cli, tmp_path: Path
) -> None:
    workload.write_text(WORKLOAD.replace("generations: 5", "candidates: list.jsonl"))
    (tmp_path / "list.jsonl").write_text(line + "\n")
    assert cli("run", workload, "--collector", "timing") == 2
    assert sentence in cli.err


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ("sizes: [1, 2]\n", "tune needs a single configuration, but sizes and matrix give 2"),
        ("matrix: {x: [1]}\n", "x: set in both matrix and tune"),
    ],
)
def test_a_search_needs_one_configuration(
    more: str, sentence: str, workload: Path, cli: Cli
) -> None:
    workload.write_text(WORKLOAD + more)
    assert cli("run", workload, "--collector", "timing") == 2
    assert sentence in cli.err


def test_a_default_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(WORKLOAD.replace("default: {x: 1, y: 1}", "default: {x: 1}"))
    with pytest.raises(InputError, match="default must give a value for every parameter"):
        load_workload(path)


SPACES = st.dictionaries(
    st.sampled_from("abc"), st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True),
    min_size=1,
)  # fmt: skip


@given(SPACES, st.integers(1, 9), st.integers(0, 3), st.data())
def test_proposals_are_new_and_within_the_space(
    space: dict[str, list[int]], population: int, seed: int, data: st.DataObject
) -> None:
    tune = {"parameters": space, "population": population, "seed": seed, "generations": 4}
    workload = Workload.model_validate({"version": 1, "name": "t", "command": ["a"], "tune": tune})
    results: list[TaskResult] = []
    total = 1
    for values in space.values():
        total *= len(values)
    for generation in range(4):
        search = Search(workload, Path("t.yaml"))
        proposed = search.next_generation(results)
        assert proposed == Search(workload, Path("t.yaml")).next_generation(results)
        assert len(proposed) == min(population, total - len(results))
        for params in proposed:
            assert all(params[name] in values for name, values in space.items())
            assert params not in [result.params for result in results]
            times = tuple(data.draw(st.lists(st.floats(0.1, 9), max_size=2)))
            status = "done" if times else "failed"
            results.append(TaskResult(len(results), "", params, status, generation=generation,
                                      times_ms=times))  # fmt: skip


TRIALS = st.lists(
    st.builds(
        Trial,
        index=st.integers(0, 99),
        generation=st.integers(0, 4),
        params=st.fixed_dictionaries({"a": st.integers(0, 2), "b": st.integers(0, 2)}),
        time_ms=st.none() | st.integers(1, 6).map(float),
        failure=st.just("wrong_result"),
        registers=st.none() | st.integers(1, 6),
        spills=st.none() | st.integers(0, 2),
    ).map(lambda t: t if t.time_ms is None else Trial(**{**vars(t), "failure": None})),
    max_size=25,
)


@given(TRIALS)
def test_the_front_is_what_nothing_beats(trials: list[Trial]) -> None:
    known = [t for t in trials if t.time_ms is not None and t.registers is not None]

    def beaten(t: Trial) -> bool:
        return any(
            (o.time_ms, o.registers) != (t.time_ms, t.registers)
            and (o.time_ms or 0) <= (t.time_ms or 0)
            and (o.registers or 0) <= (t.registers or 0)
            for o in known
        )

    expected = sorted({(t.time_ms, t.registers) for t in known if not beaten(t)}, key=str)
    assert sorted(((t.time_ms, t.registers) for t in pareto(trials)), key=str) == expected


@given(TRIALS)
def test_rounds_and_shares_against_counting(trials: list[Trial]) -> None:
    history = History(tuple(trials), trials[0] if trials else None)
    rounds = generations(history)
    assert sum(r.tried for r in rounds) == len(trials)
    best = None
    for r in rounds:
        times = [t.time_ms for t in trials if t.generation == r.number and t.time_ms]
        assert r.worked == len(times)
        assert r.best_ms == min(times, default=None)
        gain = 100 * (best / min(times) - 1) if times and best else None
        assert r.gain_pct == (None if gain is None else max(0.0, gain))
        best = min([t for t in (best, r.best_ms) if t is not None], default=None)
        assert r.best_so_far_ms == best
    point = convergence(rounds)
    if point is not None:
        assert all((r.gain_pct or 0) < 1 for r in rounds if r.number > point)
    chosen = best_of(history)
    for trait in traits(history):
        assert trait.best == sum(str(t.params[trait.parameter]) == trait.value for t in chosen)
        assert trait.all == sum(
            str(t.params[trait.parameter]) == trait.value for t in trials if t.time_ms
        )
    assert all(t.best == len(chosen) for t in shared_by_best(history))
    if trials:
        assert story(history)


def test_a_history_made_elsewhere(cli: Cli, tmp_path: Path) -> None:
    lines: list[dict[str, object]] = [
        {"tile": 64, "warps": 4, "time_ms": 2.0, "generation": 0, "registers": 90, "default": True},
        {"tile": 128, "warps": 4, "time_ms": 1.0, "generation": 0, "registers": 128},
        {"tile": 256, "warps": 4, "status": "failed", "failure": "timeout", "generation": 1},
        {"params": {"tile": 128, "warps": 8}, "times_ms": [0.8, 0.9, 1.5], "generation": 1,
         "registers": 168, "spills": 4},
    ]  # fmt: skip
    path = tmp_path / "trials.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    assert cli("report", "--tuning", path) == 0
    assert "The fastest of 4 configurations in 2 generations takes 0.9 ms" in cli.out
    assert "122.2 % faster than the default (2 ms), unreplicated: 1 and 1 launches" in cli.out
    assert "Rejected: 1 timeout." in cli.out
    assert cli("report", "--tuning", path, "--json") == 0
    document = json.loads(cli.out)
    assert [t["registers"] for t in document["pareto"]] == [168, 128, 90]
    assert document["generations"][1]["gain_pct"] == pytest.approx(100 / 9)
    assert document["gain_verdict"] == "unreplicated"


def _searched(path: Path, *launches: list[list[float]]) -> History:
    """Return the history of some trials, the default first, from the samples of their launches."""
    lines = [{"tile": at, "launches_ms": own} for at, own in enumerate(launches)]
    path.write_text("\n".join(map(json.dumps, lines)))
    return read_history(path)


def test_a_gain_of_one_launch_is_unreplicated(tmp_path: Path) -> None:
    found = _searched(tmp_path / "t.jsonl", [[0.2062, 0.2041, 0.2083]], [[0.2, 0.1977, 0.2035]])
    assert gains(found)[1].verdict == "unreplicated"
    said = story(found)[1]
    assert said.startswith("It is 3.1 % faster than the default (0.2062 ms), unreplicated: 1 and 1")
    assert "samples spread by 2.0 and 2.9 %" in said


@pytest.mark.parametrize(
    ("factor", "verdict"), [(0.8, "improved"), (0.97, "inconclusive"), (1.0, "same")]
)
def test_a_gain_is_judged_by_launches(factor: float, verdict: str, tmp_path: Path) -> None:
    default = [[2.0, 2.01], [2.002, 2.004], [1.998, 2.001]]
    best = [[factor * sample - 1e-4 for sample in own] for own in default]
    found = _searched(tmp_path / "t.jsonl", default, best)
    assert found.trials[0].launches == pytest.approx([2.005, 2.003, 1.9995])
    assert gains(found)[1].verdict == verdict
    assert f"), {verdict}: 95 % interval " in story(found)[1]


def test_the_fastest_of_many_that_are_alike_gains_nothing(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    for _ in range(20):
        trials = np.exp(0.04 * random.normal(size=(24, 3, 1))).tolist()
        found = _searched(tmp_path / "t.jsonl", *trials)
        assert found.best is not None
        pct = found.gain_over_default_pct() or 0
        assert found.best is found.default or pct > 0
        judged = gains(found).get(found.best.index)
        assert judged is None or judged.verdict == "inconclusive", "chosen for its luck"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "contains no trials"),
        ("{}\n", ":1: not a trial (no parameters)"),
        ('{"a": 1}\nnot json\n', ":2: not a trial"),
        ('{"a": 1, "time_ms": "x"}\n', ":1: not a trial"),
        ('{"a": 1, "generation": "x"}\n', ":1: not a trial (generation is not an integer)"),
    ],
)
def test_a_faulty_history(text: str, sentence: str, cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    path.write_text(text)
    assert cli("report", "--tuning", path) == 2
    assert sentence in cli.err


def test_a_run_that_was_no_search(cli: Cli, replayed: Callable[[str], Path]) -> None:
    assert cli("report", "--tuning", "--store", replayed("gemm")) == 2
    assert "is not an autotuning run" in cli.err
    assert cli("report", "--tuning", "nothing.jsonl") == 2


def test_the_shipped_search_tells_its_story(
    cli: Cli, replayed: Callable[[str], Path], pages: Callable[..., Path]
) -> None:
    store = replayed("fused_matmul_tuning")
    (run,) = Store(store).runs()
    counts = [sum(t.generation == g for t in run.tasks) for g in range(3)]
    assert counts == [8, 8, 8]
    assert any(t.failure in ("wrong_result", "out_of_resources") for t in run.tasks)
    text = (pages("fused_matmul_tuning") / "report.md").read_text()
    assert "The fastest of 24 configurations in 3 generations" in text
    assert "best configurations have" in text
    assert "unreplicated: 1 and 1 launches" in text
    assert cli("report", "--tuning", "--store", store) == 0


def test_reading_a_history_needs_text(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not UTF-8"):
        read_history(tmp_path / "a")
    with pytest.raises(InputError, match="cannot read"):
        read_history(tmp_path / "b")
