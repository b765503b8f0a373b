"""Recognizes files that are recorded of a job that hangs, and finds them in a folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from perfpipe.errors import InputError
from perfpipe.ingest.compressed import chunks

#: How much of a file is searched.
_SEARCH = 1 << 16

#: What only flight recorder dumps have.  Traces of torch.profiler also have a pg_config, but no
#: version before it; in a dump, a pg_config of many groups may be longer than what is searched.
_OF_DUMPS = re.compile(
    rb'"(?:collective_seq_id|comm_lib_version|pg_status)"\s*:|^\s*\{\s*"version"[\s\S]*"pg_config"\s*:'
)
_OF_PICKLES = re.compile(rb"collective_seq_id|version[\s\S]*pg_config")

_OF_RAS_JSON = re.compile(rb'\s*\{\s*"nccl_version"\s*:[\s\S]*"communicators(?:_count)?"\s*:')
_OF_RAS = re.compile(rb"^Job summary\r?\n=+\r?\n[\s\S]*^Communicators\.\.\.", re.MULTILINE)

#: Formats of dumps.
DUMPS = ("flight-recorder", "flight-recorder-json")

#: The end of the name of a dump; DebugInfoWriter appends the rank to a prefix.
_RANK = re.compile(r"(\d+)(?:\.(?:json|pickle|pkl|bin|xz|gz|zst))*$")

#: Names of files in a folder that may be of a hang: those of dumps end with a rank.
_NAME = re.compile(r"(?:\d|\.(?:json|pickle|pkl|bin|txt|log|out))(?:\.(?:xz|gz|zst))?$")


def is_pickled_dump(head: bytes) -> bool:
    """Return whether this is the beginning of a flight recorder dump as PyTorch writes it."""
    return head.startswith(b"\x80") and bool(_OF_PICKLES.search(head[:_SEARCH]))


def is_json_dump(head: bytes) -> bool:
    """Return whether this is the beginning of a flight recorder dump as JSON."""
    start = head[:_SEARCH]
    return start.lstrip().startswith(b"{") and bool(_OF_DUMPS.search(start))


def is_ras(head: bytes) -> bool:
    """Return whether this is the beginning of what ncclras prints, as text or JSON."""
    start = head[:_SEARCH]
    return bool(_OF_RAS_JSON.match(start) or _OF_RAS.search(start))


def rank_of(name: str) -> int | None:
    """Return the rank of a dump from the name of its file; None if it does not end with one.

    >>> rank_of("nccl_trace_rank_3"), rank_of("rank12.json.gz"), rank_of("notes.txt")
    (3, 12, None)
    """
    found = _RANK.search(name)
    return int(found[1]) if found and len(found[1]) < 10 else None


def parts_of(folder: Path) -> Iterator[Path]:
    """Yield the files of a hang in a folder, in the order of their names."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or not _NAME.search(path.name) or not path.is_file():
            continue
        try:
            head = next(chunks(path), b"")
        except InputError:
            continue
        if is_pickled_dump(head) or is_json_dump(head) or is_ras(head):
            yield path


def has_parts(folder: Path) -> bool:
    """Return whether a folder has files of a hang."""
    return folder.is_dir() and any(True for _ in parts_of(folder))
