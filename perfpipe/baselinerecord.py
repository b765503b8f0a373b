"""Named baselines of a store: each name refers to runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from perfpipe.decoding import decode
from perfpipe.errors import InputError, StoreError
from perfpipe.jsonfile import read_versioned, write_json
from perfpipe.model import SCHEMA_VERSION

#: Names that cannot be confused with an id, a path or an option.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class Baseline:
    """A name, its runs, and when it was set (UTC)."""

    name: str
    runs: tuple[str, ...]
    set_at: str


def path_of(root: Path, name: str) -> Path:
    """Return the file of a baseline; raises InputError for an invalid name."""
    if not _NAME.fullmatch(name):
        raise InputError(f"{name!r}: a baseline name has only letters, digits, '_', '.' and '-'")
    return root / "baselines" / f"{name}.json"


def write(root: Path, baseline: Baseline) -> None:
    """Save a baseline, replacing an earlier one of the same name."""
    path = path_of(root, baseline.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"schema_version": SCHEMA_VERSION, **vars(baseline)})


def read(root: Path, name: str) -> Baseline | None:
    """Return a baseline, None if there is none; raises StoreError if it is damaged."""
    path = path_of(root, name) if _NAME.fullmatch(name) else None
    if path is None or not path.exists():
        return None
    try:
        found: Baseline = decode(Baseline, read_versioned(path, "baseline"))
    except ValueError as error:
        raise StoreError(f"{path}: not a complete baseline ({error})") from error
    return found


def names(root: Path) -> list[str]:
    """Return the names of the baselines, sorted."""
    return sorted(path.stem for path in (root / "baselines").glob("[!.]*.json"))
