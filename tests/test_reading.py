"""The page on how to read a report: its picture, its callouts, and the sections that it names."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import pytest
from conftest import ROOT
from selenium import webdriver

from perfpipe.analysis.report.sections import SECTIONS

sys.path.insert(0, str(ROOT / "docs"))

import annotated

TEXT = (ROOT / "docs" / "reading.md").read_text(encoding="utf-8")


def test_each_callout_has_a_paragraph() -> None:
    first = TEXT.partition("\n## ")[0]
    numbers = [int(number) for number in re.findall(r"^(\d+)\. \*\*", first, re.MULTILINE)]
    assert numbers == [*range(1, len(annotated.CALLOUTS) + 1)]
    assert f"](examples/{annotated.PICTURE.name})" in first


def test_the_picture_is_small() -> None:
    assert annotated.PICTURE.stat().st_size < 300_000


def test_the_sections_exist() -> None:
    titles = {section.title for section in SECTIONS}
    named = set(re.findall(r"(?<!\*)\*([A-Z][^*]+)\*(?!\*)", TEXT))
    assert len(named) >= 5 and named <= titles


def test_each_callout_finds_its_element(visit: Callable[[str], webdriver.Chrome]) -> None:
    browser = visit("slow_loader")
    assert 600 < annotated.draw(browser) < 1100
    drawn = browser.execute_script(
        "return [...document.querySelectorAll('.callout')].map((disc) => {"
        " const {x, y, width} = disc.getBoundingClientRect();"
        " return [disc.textContent, x, x + width, y + scrollY]; })"
    )
    assert [text for text, *_ in drawn] == [str(at + 1) for at in range(len(annotated.CALLOUTS))]
    assert all(x >= 0 and right <= 1300 and y >= 0 for _, x, right, y in drawn)
    apart = {(round(x / 20), round(y / 20)) for _, x, _, y in drawn}
    assert len(apart) == len(drawn), "no callout hides another"


def test_an_element_that_is_missing_is_named(
    visit: Callable[[str], webdriver.Chrome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(annotated, "CALLOUTS", (annotated.Callout("#no-such"),))
    with pytest.raises(ValueError, match="no visible #no-such"):
        annotated.draw(visit("slow_loader"))
