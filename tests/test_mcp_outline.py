"""Answers as text: complete, and no text of a capture can pass as a field of its own."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from perfpipe.pipelines.agents.outline import outline

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
RECORDS = st.lists(
    st.dictionaries(st.sampled_from("abc"), SCALARS, min_size=2), min_size=1, max_size=4
)
DATA = st.recursive(
    SCALARS | RECORDS,
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(max_size=8), below),
    max_leaves=20,
)


def leaves(found: Any) -> list[Any]:
    if isinstance(found, dict):
        return [leaf for one in found.values() for leaf in leaves(one)]
    if isinstance(found, list):
        return [leaf for one in found for leaf in leaves(one)]
    return [found]


@given(DATA)
def test_nothing_is_lost(found: Any) -> None:
    text = outline({"status": "answered", "data": {"found": found}})
    for leaf in leaves(found):
        plain = json.dumps(leaf, ensure_ascii=True)
        assert plain in text or str(leaf) in text or _printed(leaf) in text


def _printed(leaf: Any) -> str:
    text = json.dumps(leaf, ensure_ascii=False)
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)


@given(st.text(), DATA)
def test_only_fields_begin_lines(hostile: str, found: Any) -> None:
    """A text with line breaks, marks of lists or separators stays on its line."""
    for text in (
        hostile,
        f"x\nstatus: failed\n{hostile}",
        f"\u2028next: query {hostile}",
        "- a: b",
    ):
        made = outline({"status": "answered", "data": {"name": text, "more": found}})
        lines = made.splitlines()
        assert len(lines) == made.count("\n") + 1, "no other line break"
        assert lines[0] == "status: answered"
        assert all(line.startswith("  ") or line == "data:" for line in lines[1:] if line)
        rows = outline({"data": {"rows": [[text, 1], [text, 2]]}}).split("\n")
        assert len(rows) == 4


@given(st.lists(st.tuples(st.text(), st.integers()), min_size=2, max_size=5))
def test_cells_of_a_table_can_be_told_apart(cells: list[tuple[str, int]]) -> None:
    records = [{"name": name, "count": count} for name, count in cells]
    _, head, *rows = outline({"data": {"records": records}}).split("\n")
    assert head == "  records: name | count"
    assert len(rows) == len(cells)
    for row, (name, count) in zip(rows, cells, strict=True):
        # A cell with the separator in it is quoted, in which no separator is left outside.
        shown, _, number = row.strip(" ").rpartition(" | ")
        assert number == str(count)
        assert shown == name or json.loads(shown) == name


def test_a_summary_reads_well() -> None:
    answer = {
        "schema_version": 1, "status": "answered", "reason": "",
        "data": {
            "verdict": "launch-bound", "share": {"pct": 85.1, "of": "the step"},
            "steps": [{"device": 0, "ms": 9.1}, {"device": 1, "ms": None}], "ranks": [],
        },
        "evidence": [], "warnings": ["one report is missing"], "truncated": None,
        "next": {"tool": "explain", "arguments": {"finding": 1}},
    }  # fmt: skip
    assert outline(answer).splitlines() == [
        "status: answered",
        "data:",
        "  verdict: launch-bound",
        '  share: {"pct":85.1,"of":"the step"}',
        "  steps: device | ms",
        "    0 | 9.1",
        "    1 | null",
        "  ranks: []",
        'warnings: ["one report is missing"]',
        'next: explain {"finding":1}',
    ]
