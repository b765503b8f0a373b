"""Work that a person states of kernels: operations and bytes that the counters cannot know.

A statement lies beside the reports, one small file each, so that writers never meet.
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

    `kernel` and `nvtx` are regular expressions (None matches any); `flop` counts operations,
    `bytes` what must move at least, `dtype` names the type whose peak counts.
    """

    report_id: str
    kernel: str | None
    nvtx: str | None
    flop: float | None
    bytes: float | None
    dtype: str | None


def add_work(store: Store, work: Work) -> None:
    """Keep a statement; the same one again changes nothing."""
    text = json.dumps([work.report_id, work.kernel, work.nvtx])
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    directory = store.root / "work" / work.report_id
    with storing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        write_json(directory / f"{name}.json", {"schema_version": SCHEMA_VERSION, **asdict(work)})


def stated_work(store: Store) -> Iterator[Work]:
    """Yield every statement; StoreError for a file that is none."""
    for path in sorted((store.root / "work").glob("*/*.json")):
        record = read_json(path, "statement of work")
        if record.pop("schema_version", None) != SCHEMA_VERSION:
            raise StoreError(f"{path}: this perfpipe reads schema version {SCHEMA_VERSION} only")
        try:
            yield Work(**record)
        except TypeError as error:
            raise StoreError(f"{path}: not a statement of work ({error})") from error
