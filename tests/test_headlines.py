"""The page of headlines: queries on raw files, and what the first screen says of the same files."""

from __future__ import annotations

import lzma
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, publish

from perfpipe.analysis.report.build import VIEWS_USED, kinds_of
from perfpipe.analysis.report.nothing import no_verdict
from perfpipe.analysis.report.opening import opening_of
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.report.verdicts import statements_of
from perfpipe.analysis.session import Session
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store

sys.path.insert(0, str(ROOT / "docs"))

from headlines import answer, checks, page

ENTRIES = [(check["query"], entry) for check in checks() for entry in check["file"]]
SHIPPED = [(query, entry) for query, entry in ENTRIES if "file" in entry]
FILES = sorted({entry["file"] for _, entry in SHIPPED})

#: How much of an answer's unit is one of a headline's: times are us, sizes MB.
UNITS = {"": 1, "%": 1, "us": 1, "ms": 1e3, "s": 1e6, "MB": 1, "GB": 1e3}


@pytest.fixture(scope="session")
def raw(shared: Path) -> Callable[[str], Path]:
    """Return a shipped file without its compression."""

    def expand(name: str) -> Path:
        target = shared / name.removesuffix(".xz").replace("/", "-")
        packed = (ROOT / name).read_bytes
        return publish(target, lambda at: at.write_bytes(lzma.decompress(packed())))

    return expand


def test_the_page_is_up_to_date() -> None:
    said = (ROOT / "docs" / "headlines.md").read_text(encoding="utf-8")
    assert said == page(), "python docs/headlines.py writes it"


@pytest.mark.parametrize(
    ("query", "entry"),
    SHIPPED,
    ids=[f"{number}-{entry['file']}" for number, (_, entry) in enumerate(SHIPPED)],
)
def test_a_query_on_the_raw_file_answers_as_the_page_says(
    query: str, entry: dict[str, Any], raw: Callable[[str], Path]
) -> None:
    assert answer(raw(entry["file"]), query, entry.get("values", {})) == entry["answer"]


@pytest.mark.parametrize("name", FILES)
def test_the_first_screen_has_the_headline(
    name: str, raw: Callable[[str], Path], captures: Store
) -> None:
    """Only the verdict of the first screen is made: the rest takes most of the time of a report."""
    reports = [ingest(raw(name), captures).report_id]
    with Session.open(captures, reports, use=VIEWS_USED) as session:
        scope = Scope(session.con, tuple(reports), kinds_of(session.con, reports), None, None, {})
        statements = [*statements_of(scope), no_verdict(scope)]
        opening, _ = opening_of(scope, (), statements[0])
    for _, entry in SHIPPED:
        if entry["file"] == name:
            assert entry["headline"] in opening.verdict.text


@pytest.mark.parametrize(
    "entry",
    [entry for _, entry in ENTRIES],
    ids=[entry.get("file") or f"{entry['repository']} {entry['path']}" for _, entry in ENTRIES],
)
def test_the_answer_agrees_with_the_headline(entry: dict[str, Any]) -> None:
    assert entry["expect"]
    for column, expected in entry["expect"].items():
        got = entry["answer"][column]
        if limit := re.fullmatch(r"([<>]) (\d+)", expected):
            assert got > int(limit[2]) if limit[1] == ">" else got < int(limit[2])
            continue
        stated, tolerance = expected.split(" ± ")
        assert re.search(rf"\b{re.escape(stated)}", entry["headline"])
        number, _, unit = stated.partition(" ")
        assert got / UNITS[unit] == pytest.approx(
            float(number.replace(",", "")), abs=float(tolerance)
        )
