"""The words of verdicts and findings: one table, words.toml, and the files of findings."""

from __future__ import annotations

import tomllib
from functools import cache

from perfpipe.analysis.finding_files import FindingFile
from perfpipe.analysis.views import views
from perfpipe.files import packaged

#: Share of the time from which a GPU is bound by a cause, %.
_HALF = 50


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


def says(claim: str, share_pct: float | None) -> str:
    """Return what a GPU does that a budget's claim is about; softer if it takes less than half."""
    entry = _table()["timeline"][claim]
    part = share_pct is not None and share_pct < _HALF
    return entry.get("says_part", entry["says"]) if part else entry["says"]


def shown_of(subject: str, claim: str) -> str:
    """Return the entry of `perfpipe show` with more about a claim that has no file of its own."""
    return word(subject, claim, "show")


def shows() -> dict[str, dict[str, str]]:
    """Return the entries of `perfpipe show` in words.toml, by name."""
    return _table()["show"]


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
