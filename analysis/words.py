"""The words of verdicts and findings: one table, words.toml, and the files of findings."""

from __future__ import annotations

import tomllib
from functools import cache

from perfpipe.analysis.finding_files import FindingFile
from perfpipe.analysis.views import views
from perfpipe.files import packaged


@cache
def finding_files() -> dict[str, FindingFile]:
    """Return every finding that is a file of its own, by claim.

    Raises ValueError where two have the same claim, or it is that of a category.
    """
    found: dict[str, FindingFile] = {}
    for view in views().values():
        if view.finding:
            claim = view.finding.claim
            if claim in found or claim in _table()["timeline"]:
                raise ValueError(f"{view.path}: the claim {claim} exists already")
            found[claim] = view.finding
    return found


def word(kind: str, name: str, form: str) -> str:
    """Return a form of the entry [kind.name] of words.toml; raises KeyError where there is none."""
    return _table()[kind][name][form]


def question_of(subject: str, claim: str) -> str:
    """Return the query that shows more about a claim of a subject, timeline or kernel."""
    own = finding_files() if subject == "timeline" else {}
    return own[claim].question if claim in own else word(subject, claim, "question")


def assumption(floor: str) -> str:
    """Return what a bound with this floor assumes, after "if".  Raises KeyError for no floor."""
    return _assumptions()[floor]


@cache
def _assumptions() -> dict[str, str]:
    known = {floor: entry["if"] for floor, entry in _table()["assumption"].items()}
    for file in finding_files().values():
        if again := known.keys() & file.assumes.keys():
            raise ValueError(f"{file.view}: the floor {min(again)} exists already")
        known |= file.assumes
    return known


@cache
def _table() -> dict[str, dict[str, dict[str, str]]]:
    table: dict[str, dict[str, dict[str, str]]] = tomllib.loads(
        packaged("perfpipe.analysis", "words.toml")
    )
    return table
