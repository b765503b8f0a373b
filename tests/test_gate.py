"""The gate: decisions, baselines, what other tools read, and exit codes."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from conftest import Cli
from test_junit import check

from perfpipe.analysis.gate.check import Exported, document_of, exported_from
from perfpipe.analysis.gate.compare.comparison import pairs_of
from perfpipe.analysis.gate.compare.differences import Difference
from perfpipe.analysis.gate.compare.explain import Explanation
from perfpipe.analysis.gate.decision import Action, Verdict, decide, headline, primary
from perfpipe.analysis.gate.sides import CAPTURE, ITERATION, KERNEL, STEP, WALL, Key, Measured, Side
from perfpipe.errors import InputError
from perfpipe.pipelines.gate.outputs import MARKER, bencher, comment, junit, openmetrics, table_note
from perfpipe.runrecord import RunRecord, TaskResult
from perfpipe.store import Store

FAST = [1.0e6, 1.001e6, 0.999e6, 1.0005e6, 0.9995e6]


def times(factor: float) -> list[float]:
    return [factor * time for time in FAST]


def side(name: str, **measured: Sequence[float]) -> Side:
    """Return a side with an iteration time for each configuration; runs of two sides take turns."""
    found = {Key("", label, ITERATION): _of(own) for label, own in measured.items()}
    began = tuple(f"2026-11-22T10:0{at}:{'00' if name == 'A' else '30'}Z" for at in range(5))
    return Side(found, frozenset({"H200"}), (name,), began, {"": 1})


def _of(own: Sequence[float]) -> Measured:
    return Measured([*own], [*own], [1] * len(own), [None] * len(own), [None] * len(own))


@pytest.mark.parametrize(
    ("after", "verdict", "action"),
    [
        (times(1.0), Verdict.SAME, Action.CONTINUE),
        (times(0.9), Verdict.IMPROVED, Action.CONTINUE),
        (times(1.1), Verdict.REGRESSED, Action.INVESTIGATE),
        (times(1.1)[:1], Verdict.UNREPLICATED, Action.INVESTIGATE),
        ([1.0e6, 1.03e6, 0.98e6, 1.02e6, 0.99e6], Verdict.INCONCLUSIVE, Action.INVESTIGATE),
    ],
)
def test_verdict_and_action(after: list[float], verdict: Verdict, action: Action) -> None:
    pairs = pairs_of(side("A", a=FAST), side("B", a=after))
    found = decide(pairs)
    assert (found.verdict, found.action) == (verdict, action)
    assert "a: " in found.reason
    confirmed = decide(pairs, confirmed=True)
    assert (confirmed.action == Action.REVERT) == (verdict == Verdict.REGRESSED)
    assert decide(pairs, replayed=True).verdict == Verdict.NOT_COMPARABLE
    assert decide(pairs, failed=["b"]).verdict == Verdict.FAILED
    assert (found.further_runs is not None) == (verdict == Verdict.INCONCLUSIVE)


def test_the_number_of_runs_that_would_probably_decide() -> None:
    pairs = pairs_of(side("A", a=FAST), side("B", a=[1.0e6, 1.03e6, 0.98e6, 1.02e6, 0.99e6]))
    found = decide(pairs)
    runs = 5 + (found.further_runs or 0)
    assert found.reason.endswith(f"; about {runs} runs per side would probably decide")
    in_rounds = decide(pairs, rounds=lambda _: 0.01)
    assert (in_rounds.further_runs or 0) > (found.further_runs or 0), "the level is lower"
    more = 5 + (in_rounds.further_runs or 0)
    assert in_rounds.reason.endswith(f" would probably decide (try --rounds {more})")


@pytest.mark.parametrize(
    ("scatter_pct", "advised"),
    [(3, "measure more before you accept or reject the change"), (60, "make the times steadier")],
)
def test_more_runs_are_not_advised_where_they_may_not_decide(
    scatter_pct: float, advised: str
) -> None:
    after = [1.0e6 * (1 + share * scatter_pct / 100) for share in (0.0, 1.0, -0.7, 0.7, -0.3)]
    found = decide(pairs_of(side("A", a=FAST), side("B", a=after)))
    assert found.verdict == Verdict.INCONCLUSIVE
    assert found.advice.startswith(advised)
    assert ("more runs may not be enough" in found.reason) == (scatter_pct == 60)


def test_what_did_not_alternate_is_judged_by_the_threshold_of_drift() -> None:
    before, after = side("A", a=FAST), side("B", a=times(1.03))
    later = replace(after, began=tuple(f"2026-11-23T10:0{at}:00Z" for at in range(5)))
    for other, order in (
        (later, "did not alternate"),
        (replace(after, began=(None,) * 5), "are in an"),
    ):
        found = decide(pairs_of(before, other))
        assert found.verdict == Verdict.INCONCLUSIVE
        assert found.basis.startswith(
            f"Changes below 5 % are treated as noise (the runs of the two sides {order}"
        )
        assert "perfpipe ab" in headline(found)
        assert "measure more" not in headline(found)
    assert decide(pairs_of(before, after)).basis.startswith("Changes below 1.75 %")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ((ITERATION, FAST), (WALL, FAST), "let both sides print times, or neither"),
        ((STEP, FAST), (CAPTURE, FAST), "mark the steps on both sides, or on neither"),
    ],
)
def test_advice_says_what_would_be_comparable(
    before: tuple[str, list[float]], after: tuple[str, list[float]], said: str
) -> None:
    sides = [replace(side(name), measured={}) for name in "AB"]
    for own, (part, found) in zip(sides, (before, after), strict=True):
        own.measured[Key("" if part in (ITERATION, WALL) else "nsys", "a", part)] = _of(found)
    decision = decide(pairs_of(*sides))
    assert decision.verdict == Verdict.NOT_COMPARABLE
    assert decision.advice == said
    unlike = replace(side("B", a=FAST), gpus=frozenset({"A100"}))
    assert "the same workload, machine model" in decide(pairs_of(side("A", a=FAST), unlike)).advice


def test_the_severest_configuration_stands_for_all() -> None:
    before = side("A", a=FAST, b=FAST, c=FAST)
    after = side("B", a=times(0.9), b=times(1.0), c=times(1.1))
    found = decide(pairs_of(before, after))
    assert found.verdict == Verdict.REGRESSED
    assert [pair.key.label for pair in found.endpoints] == ["c", "a", "b"]
    assert found.reason.startswith("c: +10.0 %")


def test_kernels_decide_nothing() -> None:
    kernel = Key("nsys", "a", KERNEL, "k", "1, 1, 1", "32, 1, 1")
    before, after = side("A", a=FAST), side("B", a=FAST)
    before.measured[kernel], after.measured[kernel] = _of(FAST), _of(times(1.3))
    found = decide(pairs_of(before, after))
    assert (found.verdict, found.action) == (Verdict.SAME, Action.CONTINUE)
    assert [pair.verdict for pair in found.kernels] == ["regressed"]
    text = junit(found)
    check(ElementTree.fromstring(text))
    assert 'failures="0"' in text


def test_the_primary_endpoint() -> None:
    step = Key("nsys", "a", STEP)
    before, after = side("A", a=FAST), side("B", a=FAST)
    before.measured[step], after.measured[step] = _of(FAST), _of(times(1.2))
    assert [pair.key.part for pair in primary(pairs_of(before, after))] == [ITERATION]
    for own in (before, after):
        del own.measured[Key("", "a", ITERATION)]
        own.measured[Key("nsys", "b", CAPTURE)] = _of(FAST)
        own.measured[Key("", "b", WALL)] = _of(FAST)
    # Of each configuration that which says most.
    found = {pair.key.label: pair.key.part for pair in primary(pairs_of(before, after))}
    assert found == {"a": STEP, "b": WALL}
    assert decide(pairs_of(before, Side({}))).verdict == Verdict.NOT_COMPARABLE


def test_an_exported_side_is_the_same(tmp_path: Path) -> None:
    before = Exported(replace(side("A", a=FAST, b=times(2)), names=tuple("abcde")))
    text = json.dumps(document_of(before))
    assert exported_from(json.loads(text), "b.json") == before
    for content, sentence in (
        ({}, "b.json: not an exported baseline"),
        ({**document_of(before), "version": 9}, "version 9, but this perfpipe reads 1"),
        ({**document_of(before), "names": 3}, "incomplete or invalid baseline"),
    ):
        with pytest.raises(InputError, match=sentence):
            exported_from(content, "b.json")


def test_what_other_tools_read() -> None:
    found = decide(pairs_of(side("A", **{'a="x"|y': FAST}), side("B", **{'a="x"|y': times(1.1)})))
    data = json.loads(bencher(found))
    (entry,) = data.values()
    value = entry["latency"]
    assert value["value"] == statistics.median(times(1.1))
    assert value["lower_value"] < statistics.fmean(times(1.1)) < value["upper_value"]
    root = ElementTree.fromstring(junit(found))
    check(root)
    assert root.get("failures") == "1"
    text = openmetrics(found)
    assert text.endswith("# EOF\n")
    assert r'configuration="a=\"x\"|y"' in text
    assert 'perfpipe_verdict{perfpipe_verdict="regressed"} 1' in text
    note = comment(found, Explanation("It `is`.", (Difference("time", "launch_gap", "1", "2"),)))
    assert note.startswith(f'{MARKER}\n**perfpipe: Regressed: a="x"\\|y: +10.0 %')
    assert note.count("\n| ") == 6
    means = (
        "Before and after are medians over the runs; the change is the ratio of the geometric means"
    )
    assert f"\n\n{means}.\n" in note
    (pair,) = found.endpoints
    assert pair.change is not None
    ranked = replace(pair, change=pair.change._replace(outliers=True))
    assert table_note(replace(found, endpoints=(ranked,))).endswith("the median ratio of runs.")
    assert table_note(replace(found, endpoints=(replace(pair, change=None),))) == ""
    assert "**Why it changed:** It \\`is\\`." in note
    assert "| launch\\_gap | time | 1 | 2 |" in note


# The commands


def _run(store: Path, run_id: str, ms: float, minute: int, **more: object) -> str:
    task = TaskResult(0, "-", {}, times_ms=(ms, ms), key="k")
    at = f"2026-11-22T10:{minute:02}:00Z"
    run = RunRecord(run_id, "w", "timing", at, "done", (), (task,))
    Store(store).write_run(replace(run, **more))  # type: ignore[arg-type]
    return run_id


@pytest.fixture
def runs(tmp_path: Path) -> dict[str, list[str]]:
    """Five runs a side, in turns: a, b as fast, c slower."""
    store = tmp_path / "store"
    factors = {"a": 1.0, "b": 1.0, "c": 1.1}
    return {
        name: [
            _run(store, f"{name}{i}", own * factor / 1e6, 3 * i + at) for i, own in enumerate(FAST)
        ]
        for at, (name, factor) in enumerate(factors.items())
    }


def test_check_decides_and_compare_informs(
    runs: dict[str, list[str]], cli: Cli, tmp_path: Path
) -> None:
    assert cli("gate", "baseline", "set", "main", *runs["a"]) == 0, cli.err
    assert cli("check", *runs["b"], "--baseline", "main") == 0, cli.err
    assert cli.out.startswith("Same: iteration: ")
    assert cli("check", *runs["c"], "--baseline", "main", "--junit", "--md", "c.md") == 3
    assert "perfpipe: regressed: iteration: +10.0 %" in cli.err
    assert (tmp_path / "junit.xml").exists()
    assert (tmp_path / "c.md").read_text().startswith(MARKER)
    assert cli("compare", ",".join(runs["a"]), ",".join(runs["c"]), "--json") == 0
    assert json.loads(cli.out)["verdict"] == "regressed"
    assert cli("check", "c0", "--baseline", "a0") == 0
    assert cli.out.startswith("Unreplicated: ")
    assert cli("check", "c0", "--baseline", "a0", "--fail-on", "inconclusive") == 4
    assert (
        cli("check", *runs["c"][:3], "--baseline", "main", "--confirms", "c3", "--confirms", "c4")
        == 3
    )
    assert "Revert: " in cli.out
    assert cli("check", *runs["c"], "--baseline", "main", "--confirms", "c3") == 2
    assert "check only fresh runs" in cli.err


def test_a_baseline_without_its_store(runs: dict[str, list[str]], cli: Cli, tmp_path: Path) -> None:
    assert cli("gate", "baseline", "set", "main", *runs["a"]) == 0
    assert cli("gate", "baseline", "export", "main", "b.json") == 0, cli.err
    assert (tmp_path / "b.json").stat().st_size < 4000
    for path in (tmp_path / "store" / "runs").glob("a*"):
        (path / "run.json").unlink()
    assert cli("check", *runs["c"], "--baseline", "b.json") == 3
    assert cli("check", *runs["c"], "--baseline", "main") == 2
    assert "no run, report or batch 'a0' in the store" in cli.err
    assert cli("gate", "baseline", "ls") == 0
    assert cli.out.startswith("main  ")
    assert cli("gate", "baseline", "rm", "main") == 0
    assert cli("gate", "baseline", "rm", "main") == 2
    assert "main: no such baseline" in cli.err


def test_what_cannot_be_gated(runs: dict[str, list[str]], cli: Cli, tmp_path: Path) -> None:
    store = tmp_path / "store"
    _run(store, "replay", 1.0, 50, collector="replay")
    assert cli("check", "replay", "--baseline", "a0") == 4
    assert cli.out.startswith("Not comparable: a replayed side measures nothing")
    assert cli("check", "replay", "--baseline", "a0", "--allow-not-comparable") == 0
    assert cli("gate", "baseline", "set", "main", "replay") == 2
    assert "replay is a replay, not a measurement" in cli.err
    task = TaskResult(0, "-", {}, status="failed", error="crash", key="k")
    _run(store, "bad", 1.0, 51, tasks=(task,), status="failed")
    assert cli("check", "bad", "--baseline", "a0") == 1
    assert cli.out.startswith("Failed: crash. Investigate: fix the program, then measure again.")
    named = replace(task, label="n=2")
    _run(store, "both", 1.0, 52, tasks=(named, replace(named, label="n=3")), status="failed")
    assert cli("check", "both", "--baseline", "a0") == 1
    assert "perfpipe: n=2: crash (and 1 more)" in cli.err
    assert cli("compare", "a0", "a0") == 2
    assert "is on both sides" in cli.err
    assert cli("gate", "baseline", "set", "a/b", "a0") == 2
    assert cli("check", "--baseline", "none.json") == 2
    assert "none.json: no such file" in cli.err


def test_a_report_with_a_baseline_says_what_check_says(cli: Cli, tmp_path: Path) -> None:
    _run(tmp_path / "store", "old", 10.0, 0)
    _run(tmp_path / "store", "new", 10.5, 1)
    assert cli("check", "new", "--baseline", "old", "--json") == 0, cli.err
    decided = json.loads(cli.out)
    assert decided["verdict"] == "unreplicated"
    assert cli("report", "new", "--baseline", "old", "--md", "-", report=True) == 0, cli.err
    for text in (decided["reason"], decided["basis"], "not calibrated"):
        assert text in cli.out


def test_a_closed_pipe_ends_quietly_and_names_are_whole(tmp_path: Path) -> None:
    """A configuration's name tells it apart at its end, and `| head` is no failed task."""
    program = tmp_path / "program.py"
    program.write_text(
        "import json, sys\n"
        "print(json.dumps({'perfpipe': 'time', 'ms': [float(sys.argv[1])] * 3}))\n"
    )
    path = tmp_path / "w.yaml"
    path.write_text(
        "version: 1\nname: w\ncommand: ['{python}', program.py, '{ms}', '{a_long_name_of_a_type}']\n"
        "matrix: {ms: [10, 20], a_long_name_of_a_type: [float16, float32]}\n"
    )
    words = [sys.executable, "-m", "perfpipe"]
    store = ["--store", str(tmp_path / "store")]
    for _ in range(2):
        subprocess.run(
            [*words, "run", path, "--collector", "timing", "--no-report", *store],
            check=True, capture_output=True, cwd=tmp_path,
        )  # fmt: skip
    runs = sorted(run.run_id for run in Store(tmp_path / "store").runs())
    compared = [*words, "compare", runs[0], runs[1], *store]
    done = subprocess.run(compared, capture_output=True, text=True, check=False)
    for ms in (10, 20):
        for kind in ("float16", "float32"):
            assert f"ms={ms} a_long_name_of_a_type={kind}" in done.stdout, done.stdout
    with subprocess.Popen(compared, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141
