"""Parts of a search: digests, texts for agents, parameters of `tune`, histories, the tuner."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Cli
from hypothesis import given, settings
from hypothesis import strategies as st
from searches import BASE, problem

from perfpipe.analysis.search_page import search_report
from perfpipe.analysis.search_summary import Found, headline, read_candidates, sentences
from perfpipe.errors import InputError
from perfpipe.pipelines.searching.normalising import digest_of, modules_used
from perfpipe.pipelines.searching.proposing import Parameters
from perfpipe.pipelines.searching.texts import feedback, feedback_text, history_text
from perfpipe.pipelines.workload import load_workload
from perfpipe.searchrecord import (
    INCUMBENT,
    Attempt,
    Confirmation,
    Kernel,
    Round,
    Search,
    Settings,
    Times,
)
from perfpipe.templates.renderers import render_html, render_markdown

TUNER = ROOT / "workloads" / "searches" / "tuner.py"


def _digest(folder: Path, **files: str) -> str:
    at = folder / str(len(list(folder.iterdir())))
    at.mkdir()
    for name, text in files.items():
        (at / name.replace("_", ".")).write_text(text)
    return digest_of(at)


def test_comments_and_whitespace_make_no_other_candidate(tmp_path: Path) -> None:
    python = _digest(tmp_path, kernel_py=BASE)
    assert _digest(tmp_path, kernel_py=f"# new\n\n{BASE}  # end\n") == python
    assert _digest(tmp_path, kernel_py=BASE.replace("    ", "  ")) == python
    assert _digest(tmp_path, kernel_py=BASE.replace("= 6", "= 5")) != python
    assert _digest(tmp_path, kernel_py=BASE, more_py="") != python
    cuda = _digest(tmp_path, kernel_cu='int a; // one\nchar *s = "// two";\n')
    assert _digest(tmp_path, kernel_cu='/* 1\n2 */ int  a;\n\n\tchar *s = "// two";') == cuda
    assert _digest(tmp_path, kernel_cu='int a;\nchar *s = "// 2";\n') != cuda
    assert _digest(tmp_path, kernel_cu='int a; s = R"(// 1)";') != _digest(
        tmp_path, kernel_cu='int a; s = R"(// 2)";'
    )
    broken = _digest(tmp_path, kernel_py="def (")
    assert _digest(tmp_path, kernel_py="def ( # x") != broken, "it cannot be read as Python"
    params = _digest(tmp_path, params_json='{"a": 1, "b": 2}')
    assert _digest(tmp_path, params_json='{"b":2,\n"a":1}') == params


@given(number=st.integers(), text=st.text(st.characters(codec="ascii", exclude_characters="\r\n")))
@settings(max_examples=30)
def test_any_comment_is_ignored_and_any_constant_is_not(
    tmp_path_factory: pytest.TempPathFactory, number: int, text: str
) -> None:
    folder = tmp_path_factory.mktemp("d")
    text = text.replace("\0", "").replace("\f", "")
    plain = _digest(folder, kernel_py=f"x = {number}\n")
    assert _digest(folder, kernel_py=f"# {text}\nx = ({number})  # {text}\n") == plain
    assert _digest(folder, kernel_py=f"x = {number + 1}\n") != plain


def test_modules_that_a_candidate_uses(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(
        "from __future__ import annotations\nimport torch.nn as nn\nfrom triton import jit\n"
        "import helper\nfrom . import x\n"
    )
    (tmp_path / "helper.py").write_text("import numpy\n")
    assert modules_used(tmp_path) == ("numpy", "torch", "triton")


def _attempt(name: str, gain: float | None, status: str = "correct", **more: Any) -> Attempt:
    """Return a candidate whose three launches are faster by a factor."""
    generation = int(name[1])
    times: tuple[Times, ...] = ()
    if gain is not None:
        own = tuple(w / gain for w in (0.99, 1.0, 1.01))
        times = (Times("c", "base", own, (1.0, 1.0, 1.0)),)
        if generation > 1:
            times = (*times, Times("c", INCUMBENT, own, (0.9, 0.9, 0.9)))
    return Attempt(name, generation, status, variant=int(name[3]), times=times, **more)


KERNEL = Kernel("softmax_kernel", "memory dram", 5e4, 20.0, 91.0, 9.0, "triton_config")
ATTEMPTS = (
    _attempt("g1v1", 1.1, params={"warps": 4}, uses=("torch",), parents=("baseline",)),
    _attempt("g1v2", 1.5, params={"warps": 8}, uses=("triton",), profile=(KERNEL,)),
    _attempt("g1v3", None, "wrong result", reason="y[0, 1] is 2", evidence=("wrong result: y",)),
    _attempt("g2v1", 1.6, params={"warps": 8}, uses=("triton",), parents=("g1v2",),
             attainable_pct={"c": 61.0}),
    _attempt("g2v2", 1.4, params={"warps": 8}, uses=("triton",), parents=("g1v2",)),
    _attempt("g2v3", None, "duplicate", reason="it equals g1v1", same_as="g1v1"),
    _attempt("g2v4", None, "correct", no_times="too short"),
)  # fmt: skip
SEARCH = Search(
    "w-1", "w", "/w.yaml", "cpu", "CPU", "base", "2026-11-27T10:00:00Z", "d", 1, Settings(2, 4),
    state="done",
)  # fmt: skip


def test_feedback_says_what_is_known_of_the_parent() -> None:
    found = Found(ATTEMPTS, "base", SEARCH)
    about = {"timed": [{"case": "c", "attainable_ms": 0.5}]}
    data = feedback(found, "g2v1", about)
    assert json.loads(json.dumps(data))["best"] == "g2v1"
    assert [one["name"] for one in data["tried"]] == [own.name for own in ATTEMPTS]
    text = feedback_text(data)
    assert (
        "1.600 x (1.5" in text and "as fast as base" in text and f"as fast as {INCUMBENT}" in text
    )
    assert "- c: 500 us; it reaches 61 %" in text
    profiled = feedback_text(feedback(found, "g1v2", about))
    assert "softmax_kernel, 50 us: memory dram; compute SOL 20 %, memory SOL 91 %" in profiled
    assert "; try: " in profiled
    wrong = feedback_text(feedback(found, "g1v3", about))
    assert "wrong result: y[0, 1] is 2" in wrong and "1.6" not in wrong
    first = feedback_text(feedback(Found((), "base", SEARCH), "baseline", about))
    assert "base, which every candidate is compared with" in first


def test_the_history_ranks_groups_and_names_what_is_common() -> None:
    text = history_text(Found(ATTEMPTS, "base", SEARCH))
    ranked = [line.split()[1] for line in text.splitlines() if " x (" in line]
    assert ranked == ["g2v1", "g1v2", "g2v2", "g1v1"]
    assert "All 3 best candidates have: " in text and "warps=8" in text
    assert "## wrong result (1)" in text and "## duplicate (1)" in text and "too short" in text
    assert "first generation" in history_text(Found((), "base", SEARCH))


def _confirmed(**gains: tuple[float, ...]) -> Found:
    rounds = (Round("g2v1", 1, gains),)
    made = Confirmation(0, tuple(gains), rounds)
    return Found(ATTEMPTS, "base", Search(**{**vars(SEARCH), "confirmations": (made,)}))


def test_only_a_confirmation_proves_a_gain() -> None:
    unconfirmed = Found(ATTEMPTS, "base")
    assert headline(unconfirmed).startswith("No proven gain: nothing was confirmed")
    noise = tuple(0.5 * (-1) ** n for n in range(12))
    assert headline(_confirmed(g2v1=noise)).startswith("No proven gain: g2v1 (warps=8) is 1.000 x")
    sure = _confirmed(g2v1=(math.log(1.5),) * 12, g1v2=(math.log(1.4),) * 12)
    assert headline(sure) == (
        "Proven gain: g2v1 (warps=8) is 1.500 x (1.500 to 1.500) as fast as base, 99 % interval "
        "over 2 finalists, 12 fresh launches."
    )
    assert any("All 3 best candidates have" in text for text in sentences(sure))
    slow = _confirmed(g2v1=(math.log(0.5),) * 12, g1v2=(math.log(0.4),) * 12)
    assert headline(slow).startswith(
        "No proven gain: each finalist is slower than base; g2v1 (warps=8) is 0.500 x"
    )


def test_the_page_has_lineage_speedups_and_the_change() -> None:
    found = _confirmed(g2v1=(0.4,) * 12, g1v2=(0.3,) * 12)
    assert found.search is not None
    report = search_report(found, found.search, "--- baseline/kernel.py\n+x = 1 <b>")
    markdown, page = render_markdown(report), render_html(report)
    for text in ("Proven gain", "g2v1", "it equals g1v1", "+x = 1"):
        assert text in markdown and text in page
    assert "+x = 1 &lt;b&gt;" in page, "foreign text is escaped"
    assert "candidate-3" in page, "each candidate is a mark of the figure"
    unfinished = search_report(
        Found((), "base", SEARCH), Search(**{**vars(SEARCH), "state": "running"}), ""
    )
    assert "perfpipe search --resume w-1" in render_markdown(unfinished)


TUNE = """
tune:
  parameters: {tile: [16, 32, 64, 128], warps: [1, 2, 4, 8]}
  population: 5
  seed: 3
"""


def test_parameters_come_from_the_search_over_tune(tmp_path: Path) -> None:
    path = problem(tmp_path / "p", TUNE)
    proposer = Parameters(load_workload(path), path, 3)
    assert proposer.count(Found((), "base"), 1, 3) == 3
    first = [dict(one) for one in proposer._next]
    assert len({tuple(one.values()) for one in first}) == 3
    # The second is the fastest, so that the next generation is near it.
    tried = tuple(
        _attempt(f"g1v{n}", gain, params=dict(params))
        for n, (gain, params) in enumerate(zip((0.5, 4.0, 0.6), first, strict=True), 1)
    )
    again = Parameters(load_workload(path), path, 3)
    assert again.count(Found(tried, "base"), 2, 3) == 3
    for one in again._next:
        assert one not in first
    same = Parameters(load_workload(path), path, 3)
    same.count(Found(tried, "base"), 2, 3)
    assert same._next == again._next, "a search that goes on proposes the same"


@pytest.mark.usefixtures("needs_torch")
def test_a_history_of_judgements_is_ranked_by_pairs(cli: Cli, tmp_path: Path) -> None:
    workload = problem(tmp_path / "p")
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    (wrong / "kernel.py").write_text("def run(x, y):\n    y.zero_()\n")
    words: list[str | Path] = ["evaluate", workload, "--device", "cpu", "--history", "h.jsonl"]
    code = cli(*words, "--candidate", tmp_path / "p" / "base", "--candidate", wrong,
               "--generation", "2", "--parent", "older")  # fmt: skip
    assert code == 1, cli.err
    own, lost = (json.loads(line) for line in Path("h.jsonl").read_text().splitlines())
    assert "launches_ms" not in own and own["parents"] == ["older"] and own["generation"] == 2
    assert len(own["times"][0]["candidate_ms"]) == len(own["times"][0]["baseline_ms"]) == 2
    assert lost["status"] == "wrong result" and "times" not in lost
    assert cli("report", "--tuning", "h.jsonl") == 0
    assert "No proven gain: nothing was confirmed on fresh launches" in cli.out
    assert "1 correct, 1 wrong result" in cli.out
    assert cli("report", "--tuning", "h.jsonl", "--json") == 0
    told = json.loads(cli.out)
    assert told["baseline"] == "base" and not told["proven"]
    with Path("h.jsonl").open("a") as file:
        file.write('{"tile": 1, "time_ms": 2}\n')
    assert cli("report", "--tuning", "h.jsonl") == 2
    assert "h.jsonl:3: not a candidate of perfpipe evaluate" in cli.err


def test_a_damaged_candidate_in_a_history(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    path.write_text('{"kind": "candidate", "name": "a", "status": "correct"}\n')
    with pytest.raises(InputError, match=r"h\.jsonl:1: not a candidate"):
        read_candidates(path)


def _tuned(folder: Path, generation: int, variant: int, tried: list[dict[str, Any]]) -> Any:
    """Run the tuner as an agent, and return its parameters."""
    folder.mkdir(exist_ok=True)
    (folder / "feedback.json").write_text(json.dumps({"tried": tried}))
    numbers = {"PERFPIPE_GENERATION": str(generation), "PERFPIPE_VARIANT": str(variant)}
    subprocess.run([sys.executable, TUNER], cwd=folder, env={**os.environ, **numbers}, check=True)
    assert "softmax_kernel" in (folder / "kernel.py").read_text()
    return json.loads((folder / "params.json").read_text())


def test_the_tuner_follows_the_feedback(tmp_path: Path) -> None:
    starts = [_tuned(tmp_path / "a", 1, variant, []) for variant in (1, 2, 3)]
    assert len({tuple(one.values()) for one in starts}) == 3

    def entry(params: dict[str, int], low: float | None) -> dict[str, Any]:
        return {"params": params, "speedup": {"low": low}}

    lows = (0.5, 1.2, 2.0)
    tried = [entry(params, low) for params, low in zip(starts, lows, strict=True)]
    next_ = [_tuned(tmp_path / "a", 2, variant, tried) for variant in (1, 2, 3)]
    assert all(one not in starts and one["fused"] == 1 for one in next_)
    # One step from the best.
    for one in next_:
        assert sum(one[name] != starts[2][name] for name in one) == 1
    # With feedback that prefers the first, its neighbor that is fused comes first.
    turned = [entry(params, low) for params, low in zip(starts[:1], (1.0,), strict=True)]
    assert _tuned(tmp_path / "a", 2, 1, turned) == {**starts[0], "fused": 1}
