"""The knowledge base: techniques by bottleneck class and counter features."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from perfpipe.analysis.words import finding_files
from perfpipe.database import ColumnSpec, create_table
from perfpipe.files import packaged

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


@dataclass(frozen=True)
class Technique:
    """One entry of knowledge*.toml, or of a finding's file.

    `keeps` are floors of kernel_floors or timeline_findings, `rule` is one of NVIDIA's.
    `saves` is the column of kernel_features that says how many bytes it saves, `removes` the cause
    of kernel_bottleneck that it removes; empty for most.  `precision`: it makes results less exact.
    """

    key: str
    technique: str
    detail: str
    check_first: str
    classes: tuple[tuple[str, str, str], ...]
    features: tuple[str, ...]
    difficulty: str
    link: str
    keeps: tuple[str, ...] = ()
    rule: str = ""
    saves: str = ""
    removes: str = ""
    precision: bool = False


#: The knowledge base: on kernels, those of libraries, and the budgets of timelines.
_FILES = ("knowledge.toml", "knowledge_library.toml", "knowledge_timeline.toml")


@cache
def techniques() -> dict[str, Technique]:
    """Return every technique by key, in the order of files; those of findings are last."""
    found: dict[str, Technique] = {}
    for name in _FILES:
        text = packaged("perfpipe.analysis", name)
        found |= {key: _technique(key, entry) for key, entry in tomllib.loads(text).items()}
    for claim, file in finding_files().items():
        for key, entry in file.techniques.items():
            own = {"features": (), **entry}
            of = own.pop("of", "*")
            own["classes"] = [f"{claim}.{each}.*" for each in ([of] if isinstance(of, str) else of)]
            if key in found:
                raise ValueError(f"{file.view}: the technique {key} exists already")
            found[key] = _technique(key, own)
    return found


def _technique(key: str, entry: dict[str, Any]) -> Technique:
    classes = []
    for text in entry.pop("classes"):
        bound, subclass, cause = text.split(".")
        classes.append((bound, subclass, cause))
    features, keeps = tuple(entry.pop("features")), tuple(entry.pop("keeps", ()))
    return Technique(key, classes=tuple(classes), features=features, keeps=keeps, **entry)


_COLUMNS: tuple[ColumnSpec, ...] = (
    ("technique", "VARCHAR", ""),
    ("rank", "INTEGER", ""),
    ("bound", "VARCHAR", ""),
    ("subclass", "VARCHAR", ""),
    ("cause", "VARCHAR", ""),
    ("features", "VARCHAR[]", ""),
    ("keeps", "VARCHAR[]", ""),
    ("rule", "VARCHAR", ""),
    ("difficulty", "VARCHAR", ""),
    ("saves", "VARCHAR", ""),
    ("removes", "VARCHAR", ""),
    ("precision", "BOOLEAN", ""),
)


def make_techniques(con: DuckDBPyConnection) -> None:
    """Create the private table of techniques, one row per class that they apply to."""
    create_table(con, "_techniques", _COLUMNS, list(_rows()))


def _rows() -> Iterator[tuple[Any, ...]]:
    for rank, item in enumerate(techniques().values()):
        for bound, subclass, cause in item.classes:
            match = (item.key, rank, bound, subclass, cause, list(item.features))
            does = (list(item.keeps), item.rule, item.difficulty, item.saves, item.removes)
            yield (*match, *does, item.precision)
