"""Declared work of kernels: FLOPs and bytes that counters cannot know.

Each declaration is a small file next to the reports, so that writers never conflict.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from perfpipe.decoding import decode
from perfpipe.directories import storing
from perfpipe.errors import StoreError
from perfpipe.jsonfile import read_versioned, write_json
from perfpipe.model import SCHEMA_VERSION
from perfpipe.store import Store


@dataclass(frozen=True)
class Work:
    """The work of one launch, for launches whose demangled name and NVTX path match.

    `kernel` and `nvtx` are regular expressions (None matches any); `flop` is the number of FLOPs,
    `bytes` the minimum bytes moved, `dtype` the data type that determines the peak.
    """

    report_id: str
    kernel: str | None
    nvtx: str | None
    flop: float | None
    bytes: float | None
    dtype: str | None


def add_work(store: Store, work: Work) -> None:
    """Store a declaration; repeating it changes nothing."""
    text = json.dumps([work.report_id, work.kernel, work.nvtx])
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    directory = store.root / "work" / work.report_id
    with storing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        write_json(directory / f"{name}.json", {"schema_version": SCHEMA_VERSION, **asdict(work)})


def stated_work(store: Store) -> Iterator[Work]:
    """Yield every declaration; damaged ones are skipped with a warning."""
    for path in work_files(store.root):
        try:
            yield read_work(path)
        except StoreError as error:
            store.warn(f"a work declaration is skipped: {error}")


def work_files(root: Path) -> list[Path]:
    """Return the files of all declarations."""
    return sorted((root / "work").glob("*/*.json"))


def read_work(path: Path) -> Work:
    """Return a declaration; raises StoreError for a damaged file, or one with another version."""
    try:
        found: Work = decode(Work, read_versioned(path, "work declaration"))
    except ValueError as error:
        raise StoreError(f"{path}: not a complete work declaration ({error})") from error
    return found
