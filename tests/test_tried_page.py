"""docs/tried.md and the summary in README.md, from committed trials."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import DATA, ROOT

from perfpipe.store import Store
from perfpipe.trialrecord import Gained, LeverTrial, Trial, read_all, write

sys.path.insert(0, str(ROOT / "docs"))

from tried import add, by_hand, committed, main, page, summary, with_block

LORA, CIFAR = read_all(DATA)


def test_the_pages_are_up_to_date() -> None:
    trials = committed()
    assert page(trials, by_hand()) == (ROOT / "docs" / "tried.md").read_text(), (
        "python docs/tried.py writes it"
    )
    readme = (ROOT / "README.md").read_text()
    assert with_block(readme, "tried", summary(trials)) == readme


def test_what_is_known_besides_is_about_committed_trials() -> None:
    assert by_hand().keys() == {trial.trial_id for trial in committed()}


def test_committed_trials_reveal_no_places() -> None:
    for path in (ROOT / "docs" / "trials").glob("*.json"):
        assert not re.search(r"(?<![\w/.])/(home|root|tmp|work|Users)/", path.read_text()), path


def test_without_trials_there_is_a_page() -> None:
    text = page([])
    assert "No trial has been added" in text
    assert "## Bounds that a measurement exceeded\n\nNone.\n" in text
    assert len(summary([])) == 1


def test_promised_stands_beside_measured() -> None:
    text = page([LORA, CIFAR])
    assert "## lora, NVIDIA H100 80GB HBM3" in text and "2026-11-20, perfpipe 0.9.0" in text
    assert "149 ms a step, 5 launches; compared with itself: -0.3 % (+0.9 to -1.5 %)" in text
    assert "| 44.1 % of the step | -38.4 % (-36.9 to -39.8 %) | within tolerance |" in text
    assert "| results differ: the losses differ from step 12 on by up to 8 % |" in text
    assert "hung: no output for 600 s \\| stopped" in text
    assert LORA.stack is not None and f"```python\n{LORA.stack.manual}\n```" in text
    assert "| `compile` | 2 | 1 | 24.1 % | 38.4 % |" in text
    assert "fused_optimizer" not in text, "it was not launched"


def test_the_summary_has_three_lines() -> None:
    assert summary([LORA, CIFAR]) == [
        "- 2 trials on NVIDIA H100 80GB HBM3 and NVIDIA H200: 1 of 2 gained at least 20 % with "
        "equal results; the median gain is 26.1 %.",
        "- 7 launched levers: 2 saved time with equal results, and 1 saved time but changed the "
        "results.",
        "- 5 measured bounds: 1 exceeded.",
    ]


def _exceeded(trial: Trial) -> str:
    return page([trial]).partition("exceeded\n\n")[2].partition("\n\n")[0]


def test_exceeded_bounds_are_listed() -> None:
    assert _exceeded(LORA) == "None."
    assert _exceeded(CIFAR) == (
        "- `cifar` on NVIDIA H200, `workers`: at most 68.2 % of the step was promised, -75.0 % "
        "(-73.8 to -76.1 %) was measured (cifar-20261121-081500)."
    )
    steps = replace(CIFAR.levers[0], in_steps=Gained(66.0, 65.0, 67.0))
    assert _exceeded(replace(CIFAR, levers=(steps,))) == "None."
    steps = replace(CIFAR.levers[0], in_steps=Gained(70.0, 69.0, 71.0))
    assert "-70.0 % (-69.0 to -71.0 %) in the steps alone was measured" in _exceeded(
        replace(CIFAR, levers=(steps,))
    )


def test_a_program_without_any_figures_has_a_page() -> None:
    bare = Trial("t", "p|x`y", "2026", "step", None, 0, Gained(), "unknown", ())
    text = page([bare, replace(bare, levers=(LeverTrial("own", "", "failed", launches=1),))])
    assert "Without changes: not measured" in text and "Stack: none" in text
    assert "| `own` |  |  |  |  |  |  | failed |" in text


def test_the_summary_replaces_the_block_alone() -> None:
    begin, end = "<!-- tried: written by docs/build.py -->", "<!-- tried: end -->"
    readme = f"before\n{begin}\n- old\n{end}\nafter\n"
    made = with_block(readme, "tried", summary([LORA]))
    assert made.startswith(f"before\n{begin}\n- 1 trial on ") and made.endswith(f"{end}\nafter\n")
    assert "- old" not in made and with_block(made, "tried", summary([LORA])) == made
    with pytest.raises(ValueError, match="markers"):
        with_block("before\n", "tried", [])


def test_an_added_trial_has_no_paths_names_or_secrets(tmp_path: Path) -> None:
    store, docs = Store(tmp_path / "store"), tmp_path / "docs"
    failed = LeverTrial(
        "own", "", "failed", launches=1, why="/home/ada/env/lib/x.so: not found",
        manual="# see /home/ada/notes.txt\nmodel.compile()", applied=("/scratch/ada/model.pt",),
    )  # fmt: skip
    secret = "hf_abcdefghijklmnopqrstuvwx"
    words = ("python", "/home/ada/train.py", "--token", "tell-nobody", secret)
    write(store.root, replace(LORA, levers=(*LORA.levers, failed), words=words))
    path = add(store.root, "lora", docs)
    assert path == docs / "trials" / f"{LORA.trial_id}.json"
    text = path.read_text()
    for private in ("ada", "/home", "/scratch", "tell-nobody", secret):
        assert private not in text, private
    (found,) = committed(docs)
    assert found.words == ("python", "train.py", "--token", "***", "***")
    assert found.levers[-1].manual == "# see notes.txt\nmodel.compile()"
    assert found.levers[:2] == LORA.levers[:2] and found.stack == LORA.stack
    assert found.gpu == LORA.gpu and found.provenance["perfpipe"] == "0.9.0"


def test_only_one_trial_is_added(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(tmp_path / "store")
    shutil.copytree(DATA / "trials", store.trials_dir)
    for name in ("", "nothing"):
        with pytest.raises(ValueError, match="trial"):
            add(store.root, name, tmp_path / "docs")
    assert main(["add", str(store.root), "nothing"]) == 2
    assert main(["remove"]) == 2
    assert "python docs/tried.py add STORE TRIAL" in capsys.readouterr().err
