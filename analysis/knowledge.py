"""The knowledge base: from a bottleneck class to what can be done about it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


@dataclass(frozen=True)
class Advice:
    """One entry of knowledge.toml."""

    technique: str
    check_first: str
    difficulty: str
    link: str


@cache
def _entries() -> dict[str, Advice]:
    text = resources.files("analysis").joinpath("knowledge.toml").read_text(encoding="utf-8")
    return {key: Advice(**entry) for key, entry in tomllib.loads(text).items()}


def advice_for(bound: str, subclass: str | None) -> Advice | None:
    """Return the most specific advice for a class; None where there is none, such as unknown."""
    return _entries().get(f"{bound}.{subclass}") or _entries().get(bound)


def install_knowledge(con: DuckDBPyConnection) -> None:
    """Create the table of techniques."""
