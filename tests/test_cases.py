"""The page of case studies, and its table in README.md: figures of committed trials."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import DATA, ROOT

from perfpipe.trialrecord import read_all

sys.path.insert(0, str(ROOT / "docs"))

from cases import Case, cases, page, table
from tried import by_hand, committed, with_block

LORA, CIFAR = read_all(DATA)


def test_the_page_and_the_table_are_up_to_date() -> None:
    found = cases(committed())
    said = (ROOT / "docs" / "case-studies.md").read_text(encoding="utf-8")
    assert said == page(found, by_hand()), "python docs/tried.py writes it"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert with_block(readme, "cases", table(found, "docs/case-studies.md")) == readme


def test_there_are_five_cases_and_one_without_a_gain() -> None:
    found = cases(committed())
    assert len(found) == 5
    assert [case.trial.stack is None for case in found].count(True) == 1


def test_a_case_says_what_was_promised_and_measured() -> None:
    assert LORA.stack is not None
    case = Case(LORA, "A case", "Learn.")
    rows = [*table([case], "there.md")]
    assert rows[2].startswith("| [A case](there.md#a-case) | ")
    assert f"| at most {case.lever.bound_pct:.1f} %{case.named} | {case.measured} |" in rows[2]
    text = page([case], {LORA.trial_id: {"program": "a LoRA", "by_hand": "-50 %"}})
    assert "**Program.** A LoRA, on NVIDIA H100 80GB HBM3: `" in text
    assert f"```python\n{LORA.stack.manual}\n```" in text
    assert f"**Measured.** {case.measured}, " in text
    assert f"{LORA.launches} launches and {LORA.seconds:.0f} s." in text
    assert "**By hand.** -50 %.\n\n**Lesson.** Learn.\n" in text


def test_a_case_without_a_gain_has_no_change() -> None:
    text = page([Case(replace(LORA, stack=None), "t", "l")], {LORA.trial_id: {"program": "p"}})
    assert "**Change.** None: no lever helped." in text and "**By hand.**" not in text
    assert all(f"`{own.name}`" in text for own in LORA.levers if own.launches)


def test_a_case_of_an_unknown_trial_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "trials").mkdir()
    (tmp_path / "trials" / "cases.toml").write_text('[unknown]\ntitle = "t"\nlesson = "l"\n')
    with pytest.raises(KeyError, match="unknown"):
        cases([CIFAR], tmp_path)
