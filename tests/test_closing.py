"""The end of a run on a terminal, and the commands that it suggests."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Cli, claims
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.analysis.questions import entries, query_of_command, question
from perfpipe.analysis.session import Session
from perfpipe.pipelines import reporting
from perfpipe.store import Store
from perfpipe.templates.closing import MOST, closing_lines
from perfpipe.viewmodel import Action, Budget, Fact, Finding, Opening, Report, Source, Tile

SOURCE = Source("v", ("r",))
TIMING = "version: 1\nname: w\ncommand: [sleep, '0.01']\n"


def _report(text: str, findings: int) -> Report:
    facts = tuple(
        Fact(name, text, SOURCE) for name in ("GPU", "Configurations", "Wall time", "Next")
    )
    found = Finding(
        text, text, 50.0, text, "high", text, text, SOURCE, command="perfpipe query 'x'"
    )
    return Report(
        "title", text, (Fact("", text, SOURCE),), facts, (), (found,) * findings, findings, "none",
        (), (Fact("", text, SOURCE),) * 9, (), (),
    )  # fmt: skip


@given(st.text(max_size=2000), st.integers(0, 20), st.integers(1, 300))
def test_it_fits_a_terminal(text: str, findings: int, width: int) -> None:
    lines = closing_lines(_report(text, findings), ["report.html", "report.md"], "", width)
    assert sum(-(-len(line) // max(width, 40)) for line in lines) <= MOST
    assert all("".join(line).isprintable() for line in lines)
    assert lines[-1] == "Report: report.html, report.md"


def test_long_texts_are_cut_before_findings_are() -> None:
    lines = closing_lines(_report("word " * 400, 9), ["a"], "--store s", 80)
    assert [line for line in lines if line.startswith("   next: ")] == [
        "   next: perfpipe query 'x' --store s"
    ] * 5
    assert sum(line.endswith(" …") for line in lines) >= 8
    assert max(map(len, lines)) <= 80


@given(st.text(max_size=300), st.integers(0, 3), st.integers(1, 200), st.booleans())
def test_the_first_screen_fits_a_terminal(
    text: str, actions: int, width: int, colour: bool
) -> None:
    budget = Budget(text, (("compute", 60.0), ("launch_gap", 39.0), ("host", 1.0)), SOURCE)
    action = Action(text, text, text, "perfpipe query 'x'", "", SOURCE)
    fact = Fact("", text, SOURCE)
    opening = Opening(
        fact,
        fact,
        (Tile(text, text, text, SOURCE),) * 4,
        (action,) * actions,
        budgets=(budget,) * 9,
    )
    report = replace(_report(text, 0), opening=opening)
    lines = closing_lines(report, ["report.html"], "", width, colour=colour)
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    assert sum(-(-len(line) // max(width, 40)) for line in plain) <= MOST
    assert all(line.isprintable() for line in plain)
    assert colour == (lines != plain)
    assert lines[-1] == "Report: report.html"
    assert sum(line.startswith("   next: ") for line in lines) == actions


@pytest.mark.parametrize("name", ["gemm", "ddp_step"])
def test_each_command_shows_something(
    name: str, pages: Callable[..., Path], replayed: Callable[[str], Path], cli: Cli
) -> None:
    """Those of the findings of a real report, pasted into a shell."""
    report = json.loads((pages(name) / "report.json").read_text())
    assert report["findings"]
    kinds = {
        (bool(f["kernel"]), f["command"].partition("FROM")[2][:20]): f for f in report["findings"]
    }
    for command in [finding["command"] for finding in kinds.values()]:
        program, *words = shlex.split(command)
        assert program == "perfpipe"
        assert cli(*words, "--store", replayed(name), "--format", "csv") == 0, cli.err
        assert len(cli.out.splitlines()) > 1, command


def test_everything_to_show_is_a_query(replayed: Callable[[str], Path]) -> None:
    store = Store(replayed("gemm"))
    with Session.open(store, store.report_ids()) as session:
        for entry in entries().values():
            session.run_user_sql(entry.query("it's"))


def test_each_claim_has_something_to_show() -> None:
    for subject in ("timeline", "kernel"):
        for claim in claims(subject):
            command = question(subject, claim, ["r"], None, kernel="it's", bound="host")
            _, _, name, *words = shlex.split(command)
            assert query_of_command(command) == entries()[name].query(words[0])


@given(st.text(st.characters(exclude_characters="\0")))
def test_a_name_cannot_leave_its_query(kernel: str) -> None:
    command = question("kernel", "compute", ["r1", "r2"], "run 1", kernel=kernel, bound="")
    assert shlex.split(command) == ["perfpipe", "show", "throughput", kernel, "-r", "run 1"]
    assert "'" + kernel.replace("'", "''") + "'" in query_of_command(command)


def test_the_numbers_behind_a_finding_are_shown(replayed: Callable[[str], Path], cli: Cli) -> None:
    store = replayed("transformer_step")
    assert cli("show", "launches", "--store", store) == 0
    assert cli.out.split("\n")[0].split() == [
        "device", "kernels", "calls", "api_med_ns", "queue_med_ns", "graphs_save_pct",
    ]  # fmt: skip
    assert "latest run: transformer_step" in cli.err
    shown = cli.out
    assert cli("show", "launches", "--sql") == 0
    assert cli("query", cli.out.strip(), "--store", store) == 0
    assert cli.out == shown
    assert cli("show") == 0
    assert len(cli.out.splitlines()) == len(entries())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["launchs"], "nothing named 'launchs' to show; did you mean 'launches'?"),
        (["idle"], "'perfpipe show idle' needs a cause"),
        (["copies", "x"], "'perfpipe show copies' takes no other word: 'x'"),
    ],
)
def test_a_wrong_name_to_show_is_one_sentence(words: list[str], said: str, cli: Cli) -> None:
    assert cli("show", *words) == 2
    assert cli.err.strip() == f"perfpipe: {said}"


def test_a_report_that_is_there_is_kept(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is asked is where reports go: they are all that of the first run."""
    make, made = reporting.make_report, list[Report]()

    def first(*args: Any, **options: Any) -> Report:
        made[:] = made or [make(*args, **options)]
        return made[0]

    monkeypatch.setattr(reporting, "make_report", first)
    (tmp_path / "w.yaml").write_text(TIMING)
    (tmp_path / "report.md").write_text("mine")
    words = ("run", "w.yaml", "--collector", "timing")
    assert cli(*words, report=True) == 0
    assert cli.out.splitlines()[-1] == "Report: report-2.html, report-2.md"
    assert "report.html and report.md of an earlier run kept" in cli.err
    assert (tmp_path / "report.md").read_text() == "mine"
    assert not (tmp_path / "report.html").exists()
    (tmp_path / "named.html").write_text("old")
    assert cli(*words, "--html", "named.html", report=True) == 0
    assert cli.out.splitlines()[-1] == "Report: named.html, report-3.md"
    assert (tmp_path / "named.html").read_text() != "old", "a file that is named is overwritten"
    assert cli(*words, "--html", "-", "--md", "new.md", report=True) == 0
    assert cli.out.startswith("<!doctype html>")
    assert "Report: " not in cli.out
    assert cli(*words, "--json", "--html", "new.html", report=True) == 0
    assert json.loads(cli.out)["run"]["workload"] == "w"


def test_readme_names_the_form_without_a_file() -> None:
    assert "perfpipe run -- python train.py" in (ROOT / "README.md").read_text()
