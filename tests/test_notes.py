"""Notes on the verdicts of several timelines."""

from __future__ import annotations

import pytest
from conftest import Tiny

from perfpipe.analysis.report import facts
from perfpipe.analysis.report.scope import Scope


def test_notes_that_differ_in_numbers_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = "includes {} CUDA graph launches with hidden kernels"
    notes = [hidden.format(number) for number in ("159", "1,439", "852")]
    rows = [(note,) for note in (*notes, "steps overlap")]
    monkeypatch.setattr(facts, "rows_of", lambda _, sql: rows if "notes" in sql else [])
    (fact,) = facts.notes_of(Scope(Tiny().con, ("a", "b"), {"nsys": 2}), [])
    assert fact.text == f"I{notes[0][1:]} (and 2 similar); steps overlap"
