"""The formats that perfpipe reads: one entry each, and a reader module that it names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ingest.builder import ReportBuilder

#: How much of a text file is searched for what tells its format: a program may print before it.
_TEXT_SEARCH = 4 << 20

#: How much of JSON is searched for what a trace begins with.
_JSON_SEARCH = 1 << 16


class Content:
    """What tells the format of a file or directory: its names, or its first bytes, decompressed."""

    def __init__(self, path: Path, pieces: Iterable[bytes] = ()) -> None:
        self.path = path
        self._rest = iter(pieces)
        self.head = next(self._rest, b"")

    @cached_property
    def text(self) -> bytes:
        """What a text file begins with, up to some MB."""
        text = self.head
        for piece in self._rest:
            if len(text) >= _TEXT_SEARCH:
                break
            text += piece
        return text

    def holds(self, pattern: str) -> bool:
        """Say whether the text has a line that begins so; a byte order mark does not matter."""
        return bool(re.search(rb"^(?:\xef\xbb\xbf)?" + pattern.encode(), self.text, re.MULTILINE))

    def begins(self, pattern: str) -> bool:
        """Say whether the text begins so."""
        return bool(re.match(pattern.encode(), self.text[:_JSON_SEARCH], re.DOTALL))

    def lists(self, *names: str) -> bool:
        """Say whether this is a directory with one of these files."""
        return any((self.path / name).is_file() for name in names)


@dataclass(frozen=True)
class Format:
    """A format: what it is called, how it is told from others, and what reads and scrubs it.

    `reader` and `scrubber` are module:function, imported when they are needed; without a reader a
    tool of the vendor turns the file into the format `exported` first.
    """

    name: str
    kind: str
    title: str
    detect: Callable[[Content], bool]
    reader: str = ""
    scrubber: str = ""
    exported: str = ""
    #: Endings of names that a folder is searched for; the first is given to scrubbed files.
    endings: tuple[str, ...] = ()
    #: Whether files that are no reports have such names too.
    ambiguous: bool = False

    def read(self, builder: ReportBuilder) -> None:
        """Read an input of this format; raises InputError when it is not a whole report."""
        _load(self.reader)(builder)

    def scrub(self, source: Path, target: Path, *known: str) -> list[str]:
        """Write a scrubbed copy; `known` are names to remove too; returns what was left out."""
        return _load(self.scrubber)(source, target, *known) or []


def _load(place: str) -> Callable[..., Any]:
    module, _, name = place.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found


#: In the order in which they are tried.
FORMATS = {
    form.name: form
    for form in (
        Format(
            "ncu-rep",
            "ncu",
            ".ncu-rep",
            lambda content: content.head.startswith(b"NVR\0"),
            reader="ingest.ncu.rep:read_ncu_rep",
            scrubber="ingest.ncu.scrub_rep:scrub_ncu_rep",
            endings=(".ncu-rep",),
        ),
        Format(
            "nsys-sqlite",
            "nsys",
            "nsys exports to SQLite",
            lambda content: content.head.startswith(b"SQLite format 3\0"),
            reader="ingest.nsys.reader:read_nsys",
            scrubber="ingest.nsys.scrub_export:scrub_sqlite",
            endings=(".sqlite", ".db"),
        ),
        Format(
            "nsys-parquetdir",
            "nsys",
            "nsys exports to parquetdir",
            lambda content: content.lists("StringIds.parquet", "META_DATA_EXPORT.parquet"),
            reader="ingest.nsys.reader:read_nsys",
        ),
        Format(
            "nsys-arrowdir",
            "nsys",
            "nsys exports to arrowdir",
            lambda content: content.lists("StringIds.arrow", "META_DATA_EXPORT.arrow"),
            reader="ingest.nsys.reader:read_nsys",
        ),
        Format(
            "nsys-rep",
            "nsys",
            ".nsys-rep where nsys is installed",
            lambda content: content.head.startswith(b"NVIDIA Tegra Profiler Report"),
            exported="nsys-sqlite",
            endings=(".nsys-rep",),
        ),
        Format(
            "ncu-csv",
            "ncu",
            "ncu CSV (--page raw or details; live output too)",
            lambda content: content.holds('"ID","Process ID","Process Name",'),
            reader="ingest.ncu.csv_pages:read_csv_pages",
            endings=(".csv", ".txt", ".log"),
            ambiguous=True,
        ),
        Format(
            "ncu-source-csv",
            "ncu",
            "ncu CSV of --page source",
            lambda content: content.holds(r'"Kernel Name",.*\r?\n(?:"#",)?"Address","Source"'),
            reader="ingest.ncu.csv_source:read_source_csv",
            endings=(".csv", ".txt", ".log"),
            ambiguous=True,
        ),
        Format(
            "torch-kineto",
            "torch",
            "traces of torch.profiler (Kineto JSON)",
            lambda content: content.begins(
                r'\s*(\{.*"(traceEvents|deviceProperties|schemaVersion)"|\[\s*\{.*"ph"\s*:)'
            ),
            reader="ingest.torch.kineto:read_kineto",
            scrubber="ingest.torch.scrub_trace:scrub_kineto",
            endings=(".json",),
            ambiguous=True,
        ),
    )
}
