"""The reference of tables and views: each has one place, and the index leads there."""

from __future__ import annotations

import re
import sys

import pytest
from conftest import ROOT

from perfpipe.pipelines.commands.schema import relations

sys.path.insert(0, str(ROOT / "docs"))

from topics import Topic, placed, topics

SCHEMA = ROOT / "docs" / "schema"


def test_each_relation_is_on_the_page_that_the_index_names() -> None:
    index = (ROOT / "docs" / "schema.md").read_text(encoding="utf-8")
    rows = re.findall(r'^\| <a id="(\w+)"></a>\[`\w+`\]\(schema/([\w-]+)\.md#(\w+)\)', index, re.M)
    assert sorted(name for name, _, _ in rows) == sorted(own.name for own in relations())
    for name, page, anchor in rows:
        assert name == anchor
        assert f"\n## {name}\n" in (SCHEMA / f"{page}.md").read_text(encoding="utf-8")


def test_there_are_no_pages_of_other_topics() -> None:
    assert {page.stem for page in SCHEMA.iterdir()} == {topic.key for topic in topics()}


def test_a_name_comes_before_its_folder() -> None:
    pages = [Topic("ncu", "", "", ("ncu",)), Topic("one", "", "", ("kernel_sol",))]
    known = [own for own in relations() if own.name in ("kernel_sol", "kernel_stalls")]
    found = placed(known, pages)
    assert {key: [own.name for own in every] for key, every in found.items()} == {
        "ncu": ["kernel_stalls"],
        "one": ["kernel_sol"],
    }


@pytest.mark.parametrize(
    ("sources", "why"),
    [
        ((("nsys",), ("tables_ncu",)), "no topic for view kernel_sol"),
        ((("ncu",), ("ncu",)), "a source occurs twice"),
        ((("ncu", "nsys/cows"), ()), "nothing comes from nsys/cows"),
    ],
)
def test_a_relation_without_a_place_is_an_error(
    sources: tuple[tuple[str, ...], ...], why: str
) -> None:
    pages = [Topic(str(number), "", "", own) for number, own in enumerate(sources)]
    with pytest.raises(ValueError, match=why):
        placed([own for own in relations() if own.name == "kernel_sol"], pages)
