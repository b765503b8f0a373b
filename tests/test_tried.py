"""What reports say of techniques that a trial has tried."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import DATA, Cli, Tiny

from perfpipe.analysis.report.opening.actions import actions_of
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.trying.outcomes import Outcome, exceeded, launched
from perfpipe.store import Store
from perfpipe.trialrecord import Gained, LeverTrial, StackTrial, Trial, read_file, write
from perfpipe.viewmodel import Finding, Source

LORA = read_file(DATA / "trials" / "lora-20261120-103107.json")
CIFAR = read_file(DATA / "trials" / "cifar-20261121-081500.json")

UNMEASURED = Gained()

#: A launch-bound timeline, whose first advice is a CUDA graph.
CAPTURE = "nsys/eager_small.sqlite"


@pytest.fixture
def told(store: Store, stored: Callable[..., list[str]], cli: Cli) -> Callable[..., dict[str, Any]]:
    """Return the JSON of a report on CAPTURE after a trial of its program, with some changes."""
    (report,) = stored(CAPTURE)

    def tell(trial: Trial = LORA, **changes: Any) -> dict[str, Any]:
        write(store.root, replace(trial, **{"run_id": None, "reports": (report,), **changes}))
        assert cli("report", "--json", "-") == 0
        found: dict[str, Any] = json.loads(cli.out)
        return found

    return tell


def _lever(verdict: str, gained: Gained = UNMEASURED, results: str = "unknown", **more: Any) -> Any:
    own = {"technique": "cuda_graphs", "launches": 4, **more}
    return (LeverTrial("compile", "", verdict, gained, results=results, **own),)


def _first(report: dict[str, Any]) -> tuple[str, str]:
    """Return what the first finding and recommendation say of the gain."""
    return report["findings"][0]["tried"], report["recommendations"][0]["gain"]


def test_a_measured_gain_replaces_the_bound(told: Callable[..., dict[str, Any]], cli: Cli) -> None:
    report = told()
    said = "tried: -38.4 % (-36.9 to -39.8 %), results within tolerance"
    assert _first(report) == (said, said)
    assert report["findings"][0]["bound"].startswith("up to 88.9 % of the step, if ")
    stack, first, *_ = report["opening"]["actions"]
    assert stack["what"] == "Apply what helps together: bf16 + compile"
    assert stack["bound"] == "tried: -52.1 % (-50.0 to -54.0 %), results within tolerance"
    assert "149 ms -> 71.2 ms a step" in stack["evidence"]
    assert first["bound"] == said
    assert report["opening"]["tiles"][-1]["name"] == "Measured gain"
    assert report["opening"]["tiles"][-1]["number"] == "52.1 %"
    assert cli(*shlex.split(stack["command"])[1:]) == 0
    assert "model.compile()" in cli.out
    for words in (["report"], ["report", "--md", "-"]):
        assert cli(*words) == 0
        assert said in " ".join(cli.out.split()) and "up to 88.9 %" not in cli.out
    assert cli("report", "--findings") == 0
    assert said in cli.out


@pytest.mark.parametrize(
    ("levers", "said", "bounded"),
    [
        (_lever("no gain", Gained(0.2, -1.1, 1.4), "identical"),
         "tried, nothing gained: -0.2 % (+1.1 to -1.4 %)", False),
        (_lever("slower", Gained(-3.0, -4.0, -2.0), "identical"),
         "tried, nothing gained: +3.0 % (+4.0 to +2.0 %)", False),
        (_lever("gain", Gained(40.0, 39.0, 41.0), "differ", results_why="step 12 differs by 8 %"),
         "tried: -40.0 % (-39.0 to -41.0 %), but the results differ: step 12 differs by 8 %", False),
        (_lever("gain", Gained(40.0, 39.0, 41.0)),
         "tried: -40.0 % (-39.0 to -41.0 %), but the results cannot be compared", False),
        (_lever("inconclusive", Gained(1.0, -5.0, 7.0)),
         "tried, undecided: -1.0 % (+5.0 to -7.0 %)", True),
        (_lever("not applied", why="the program has no model"),
         "tried, not applied: the program has no model", True),
        (_lever("hung", why="no output for 600 s"), "tried, hung: no output for 600 s", True),
        (_lever("not tried", launches=0, why="the budget does not allow it"), "", True),
        (_lever("gain", Gained(40.0, 39.0, 41.0), "identical", technique="more_loading"), "", True),
        ((), "", True),
    ],
)  # fmt: skip
def test_what_did_not_help_is_said(
    levers: tuple[LeverTrial, ...], said: str, bounded: bool, told: Callable[..., dict[str, Any]]
) -> None:
    report = told(levers=levers, stack=None)
    tried, gain = _first(report)
    assert tried == said
    assert gain.startswith(said) and ("up to 88.9 %" in gain) == bounded
    assert not any(action["saved"] for action in report["opening"]["actions"])


def test_a_stack_of_one_lever_gives_its_confirmed_figures(
    told: Callable[..., dict[str, Any]],
) -> None:
    stack = StackTrial(("compile",), "gain", Gained(35.0, 34.0, 36.0), "identical", launches=6)
    report = told(stack=stack)
    assert _first(report)[0] == "tried: -35.0 % (-34.0 to -36.0 %), results identical"
    assert "together" not in report["opening"]["actions"][0]["what"]
    unconfirmed = told(stack=replace(stack, verdict="no gain", gained=Gained(0.1, -1.0, 1.2)))
    assert _first(unconfirmed)[0] == "tried, nothing gained: -0.1 % (+1.0 to -1.2 %)"


def test_a_stack_that_changes_results_is_not_advised(told: Callable[..., dict[str, Any]]) -> None:
    for changes in ({"results": "differ"}, {"results": "unknown"}, {"verdict": "inconclusive"}):
        assert LORA.stack is not None
        report = told(stack=replace(LORA.stack, **changes))  # type: ignore[arg-type]
        assert "together" not in report["opening"]["actions"][0]["what"], changes


def test_trials_of_other_programs_do_not_count(told: Callable[..., dict[str, Any]]) -> None:
    report = told(reports=("0123456789abcdef",))
    assert _first(report)[0] == ""
    assert report["opening"]["tiles"][-1]["name"] == "Potential gain"


def _matched(trial: dict[str, Any], *tasks: dict[str, Any], gpu: str = "NVIDIA H200") -> list[str]:
    """Return the reports that a trial is about: r is of the first task of the run x."""
    db = Tiny()
    db.add("reports", *(
        {"report_id": report, "kind": "nsys", "gpu": gpu, "run_id": "x"}
        for task in tasks for report in task["reports"]
    ))  # fmt: skip
    db.add("run_tasks", *({"run_id": "x", **task} for task in tasks))
    every = {"command": [], "reports": [], "tried_at": "2026", "kind": "lever", "launches": 1,
             "verdict": "gain", "lever": "tf32", "technique": "mixed_precision", "gpu": "NVIDIA H200",
             "results": "identical", "gain_pct": 5.0}  # fmt: skip
    row = {**every, "trial_id": "t", **trial}
    names = ", ".join(row)
    db.con.execute(
        f"INSERT INTO trials ({names}) VALUES ({', '.join('?' * len(row))})", [*row.values()]
    )
    found = db.rows("SELECT report_id FROM tried_techniques ORDER BY ALL")
    return [report for (report,) in found]


@pytest.mark.parametrize(
    ("trial", "tasks", "gpu", "reports"),
    [
        ({"reports": ["a"]}, [{"reports": ["a", "b"]}], "NVIDIA H200", ["a"]),
        ({"run_id": "x"}, [{"reports": ["a", "b"]}], "NVIDIA H200", ["a", "b"]),
        ({"run_id": "y"}, [{"reports": ["a"]}], "NVIDIA H200", []),
        ({"command": ["train"]}, [{"reports": ["a"], "command": ["train"]}], "NVIDIA H200", ["a"]),
        ({"command": ["train"]}, [{"reports": ["a"], "command": ["train"]}], "NVIDIA H100", []),
        ({"command": ["train"]}, [{"reports": ["a"], "command": ["eval"]}], "NVIDIA H200", []),
        ({"command": []}, [{"reports": ["a"], "command": []}], "NVIDIA H200", []),
        ({"run_id": "x", "command": ["f", "n=2"]},
         [{"reports": ["a"], "command": ["f", "n=1"]}, {"reports": ["b"], "command": ["f", "n=2"]}],
         "NVIDIA H200", ["b"]),
        ({"reports": ["a", "b"], "command": ["f", "n=1"]},
         [{"reports": ["a"], "command": ["f", "n=1"]}, {"reports": ["b"], "command": ["f", "n=2"]}],
         "NVIDIA H200", ["a"]),
    ],
)  # fmt: skip
def test_a_trial_belongs_to_reports_of_its_program(
    trial: dict[str, Any], tasks: list[dict[str, Any]], gpu: str, reports: list[str]
) -> None:
    assert _matched(trial, *tasks, gpu=gpu) == reports


def _tried_finding(what: str, tried: str, pct: float | None, helped: bool, most: float) -> Finding:
    return Finding(
        "", "", most, f"up to {most:.1f} % of the step, if x", "high", "", what,
        Source("findings", ()), most_pct=most, tried=tried, tried_pct=pct, helped=helped,
    )  # fmt: skip


def test_measured_gains_come_before_bounds_and_failures_last() -> None:
    findings = [
        _tried_finding("vain", "tried, nothing gained: +0.1 %", -0.1, False, 80.0),
        _tried_finding("bound", "", None, False, 60.0),
        _tried_finding("small", "tried: -2.0 %, results identical", 2.0, True, 0.5),
        _tried_finding("large", "tried: -20.0 %, results identical", 20.0, True, 30.0),
    ]
    scope = Scope(con=None, reports=(), kinds={})  # type: ignore[arg-type]
    found = actions_of(scope, findings)
    assert [action.what for action in found] == ["large", "small", "bound"]
    assert [action.saved for action in found] == ["20.0 %", "2.0 %", ""]
    assert found[2].bound == "up to 60.0 % of the step"


def test_levers_that_help_come_first() -> None:
    names = [own.name for own in launched(LORA)]
    assert names == ["compile", "bf16", "compile:reduce-overhead", "workers", "channels_last"]
    assert [Outcome.of(own).helps for own in launched(LORA)] == [True, True, False, False, False]


def test_exceeded_bounds_are_found() -> None:
    assert [(trial.program, own.name) for trial, own in exceeded([LORA, CIFAR])] == [
        ("cifar", "workers")
    ]


def test_the_page_shows_levers_stack_and_change(
    told: Callable[..., dict[str, Any]], cli: Cli
) -> None:
    (section,) = [own for own in told()["sections"] if own["id"] == "tried"]
    (table,) = section["tables"]
    at = {column["name"]: number for number, column in enumerate(table["columns"])}
    rows = {row[at["lever"]]: row for row in table["rows"]}
    assert [*rows] == [
        "no change (A/A)", "bf16 + compile", "compile", "bf16", "compile:reduce-overhead", "workers",
        "channels_last",
    ]  # fmt: skip

    def cells(lever: str, *names: str) -> list[Any]:
        return [rows[lever][at[name]] for name in names]

    assert cells("no change (A/A)", "gain_pct", "low_pct", "high_pct", "results", "why") == [
        0.3, -0.9, 1.5, "within run-to-run scatter", "149 ms a step; NVIDIA H100 80GB HBM3, 2026-11-20"
    ]  # fmt: skip
    assert cells("compile", "applied", "bound_pct", "start_up_s", "pays_after", "verdict") == [
        "LlamaForCausalLM: compiled in place", 44.1, 41.7, 731.0, "gain"
    ]  # fmt: skip
    assert cells("compile:reduce-overhead", "verdict") == ["results differ"]
    assert cells("channels_last", "gain_pct", "results", "verdict", "why") == [
        None, None, "not applied", "no parameter has four dimensions"
    ]  # fmt: skip
    assert "Not launched: fused_optimizer (the budget does not allow it)." in table["doc"]
    (code,) = section["codes"]
    assert LORA.stack is not None and code["text"] == LORA.stack.manual
    assert cli("report", "--md", "-") == 0
    assert f"\n```\n{LORA.stack.manual}\n```\n" in cli.out
    assert "| bf16 + compile |" in cli.out


def test_the_page_draws_the_gains_and_offers_to_copy(
    told: Callable[..., dict[str, Any]], cli: Cli, tmp_path: Path
) -> None:
    assert LORA.stack is not None
    hostile = "print('</code><script>x</script>')\n```\nif a < b:\n    pass"
    told(stack=replace(LORA.stack, manual=hostile))
    page, text = tmp_path / "report.html", tmp_path / "report.md"
    assert cli("report", "--html", page, "--md", text) == 0
    html = page.read_text()
    assert 'id="tried"' in html and "Time saved by each lever" in html
    assert "<script>x" not in html and "    pass</code></pre>" in html
    assert f"\n````\n{hostile}\n````\n" in text.read_text()


@pytest.mark.parametrize(
    "changes",
    [
        {"reports": ("0123456789abcdef",)},
        {"levers": (), "stack": None},
        {"levers": (LeverTrial("tf32", "", "not tried", why="no time"),), "stack": None},
    ],
)
def test_without_a_trial_the_page_has_no_such_section(
    changes: dict[str, Any], told: Callable[..., dict[str, Any]]
) -> None:
    (section,) = [own for own in told(**changes)["sections"] if own["id"] == "tried"]
    assert section["tables"] == section["codes"] == []
    assert section["missing"].startswith("nothing was tried; ")


@pytest.mark.parametrize("changes", [{"verdict": "no gain"}, {"results": "differ"}, {"manual": ""}])
def test_no_change_is_shown_that_does_not_help(
    changes: dict[str, Any], told: Callable[..., dict[str, Any]]
) -> None:
    assert LORA.stack is not None
    report = told(stack=replace(LORA.stack, **changes))
    assert not any(section["codes"] for section in report["sections"])
