"""Declared work of kernels: FLOPs and bytes that counters cannot know.

Each declaration is a small file next to the reports, so that writers never conflict.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from perfpipe.errors import StoreError
from perfpipe.jsonfile import read_json, write_json
from perfpipe.model import SCHEMA_VERSION
from perfpipe.store import Store, storing


@dataclass(frozen=True)
class Work:
    """The work of one launch, for those whose demangled name and NVTX path match.

    `kernel` and `nvtx` are regular expressions (None matches any); `flop` is the number of FLOPs,
    `bytes` what must move at least, `dtype` the type whose peak applies.
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
    """Yield every declaration; raises StoreError for an invalid file."""
    for path in sorted((store.root / "work").glob("*/*.json")):
        record = read_json(path, "work declaration")
        if record.pop("schema_version", None) != SCHEMA_VERSION:
            raise StoreError(f"{path}: this perfpipe reads schema version {SCHEMA_VERSION} only")
        try:
            yield Work(**record)
        except TypeError as error:
            raise StoreError(f"{path}: not a work declaration ({error})") from error
