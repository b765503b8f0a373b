"""What an unfinished bisection has measured: a directory of the store, `bisections/<key>`."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfpipe.decoding import decode
from perfpipe.errors import StoreError
from perfpipe.jsonfile import read_versioned, write_json
from perfpipe.model import SCHEMA_VERSION


@dataclass(frozen=True)
class MeasuredRound:
    """A round: what it was for, and the run of each commit or version, that of the probe last."""

    kind: str
    runs: dict[str, str]


@dataclass(frozen=True)
class BisectRecord:
    """The rounds so far, and why commits or versions were skipped.

    `launches` counts all launches, also first ones, which do not count, and failed ones.
    """

    rounds: tuple[MeasuredRound, ...] = ()
    launches: int = 0
    skipped: dict[str, str] = field(default_factory=dict)


def directory_of(root: Path, what: Mapping[str, Any]) -> Path:
    """Return the directory of the bisection with these options."""
    text = json.dumps(what, sort_keys=True, default=str)
    return root / "bisections" / hashlib.sha256(text.encode()).hexdigest()[:16]


def write(directory: Path, record: BisectRecord) -> None:
    """Save a record, replacing an earlier one."""
    write_json(_file(directory), {"schema_version": SCHEMA_VERSION, **vars(record)})


def read(directory: Path) -> BisectRecord:
    """Return the record of a directory, an empty one if there is none; StoreError if damaged."""
    path = _file(directory)
    if not path.exists():
        return BisectRecord()
    try:
        found: BisectRecord = decode(BisectRecord, read_versioned(path, "bisection"))
    except ValueError as error:
        raise StoreError(f"{path}: not a complete bisection ({error})") from error
    return found


def forget(directory: Path) -> None:
    """Remove the record of a directory."""
    _file(directory).unlink(missing_ok=True)


@contextlib.contextmanager
def leaving(directory: Path) -> Iterator[None]:
    """Remove the directory at the end, unless it has a record or another process uses it."""
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            directory.rmdir()


def _file(directory: Path) -> Path:
    return directory / "bisection.json"
