"""The answer of `perfpipe try` on the terminal."""

from __future__ import annotations

from dataclasses import replace

import pytest
from conftest import DATA

from perfpipe.pipelines.commands.try_ import _show
from perfpipe.trialrecord import NOT_MEASURED, read_all

(LORA,) = (trial for trial in read_all(DATA) if trial.program == "lora")


def test_risks_follow_the_change(capsys: pytest.CaptureFixture[str]) -> None:
    assert LORA.stack is not None
    named = [own for own in LORA.levers if own.name in LORA.stack.levers]
    levers = [replace(own, risks=f"It may {own.name}.") for own in named]
    _show(replace(LORA, levers=tuple(levers)))
    text = capsys.readouterr().out
    for own in levers:
        assert text.index("The change to make:") < text.index(f"Risks of {own.name}: {own.risks}")


def test_texts_of_programs_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    why = "[rank0]: no file [/tmp/x] \x1b[31m"
    own = replace(LORA.levers[0], verdict="failed", why=why, gained=NOT_MEASURED)
    _show(replace(LORA, levers=(own,), stack=None))
    text = " ".join(capsys.readouterr().out.split())
    assert "[rank0]:" in text and "[/tmp/x]" in text and "\x1b" not in text
