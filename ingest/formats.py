"""The formats that perfpipe reads: one entry each, with its reader module."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfpipe.ingest.hangs.detecting import (
    has_parts,
    is_json_dump,
    is_pickled_dump,
    is_ras,
    parts_of,
)

if TYPE_CHECKING:
    from perfpipe.ingest.builder import ReportBuilder

#: How much of a text file is searched for its format: a program may print text before it.
_TEXT_SEARCH = 4 << 20

#: How much of a JSON file is searched for the start of a trace.
_JSON_SEARCH = 1 << 16

#: How much of a file is searched for the start of a memory snapshot.
_SNAPSHOT_SEARCH = 2048

#: Application id (PRAGMA application_id) of exports that only place kernels in modules: the launch
#: has so many ranges that its times mean little.
MODULES_ID = 0x70706D6F

#: What a launcher writes before a line: a rank, a time, colors.
_TAG = r'[^"\r\n]{0,200}'


def is_utf_16(head: bytes) -> bool:
    """Return whether a text begins with the byte-order mark of UTF-16, as PowerShell writes it."""
    return head.startswith((b"\xff\xfe", b"\xfe\xff"))


class Content:
    """The evidence for a format: file names, or the first bytes, decompressed."""

    def __init__(self, path: Path, pieces: Iterable[bytes] = ()) -> None:
        self.path = path
        self._rest = iter(pieces)
        self.head = next(self._rest, b"")

    @cached_property
    def text(self) -> bytes:
        """The beginning of a text file, up to some MB, as UTF-8."""
        text = self.head
        for piece in self._rest:
            if len(text) >= _TEXT_SEARCH:
                break
            text += piece
        return text.decode("utf-16", "replace").encode() if is_utf_16(text) else text

    def holds(self, pattern: str) -> bool:
        """Return whether a line of the text starts with this, ignoring a byte order mark."""
        return bool(re.search(rb"^(?:\xef\xbb\xbf)?" + pattern.encode(), self.text, re.MULTILINE))

    def begins(self, pattern: str) -> bool:
        """Return whether the text starts with this."""
        return bool(re.match(pattern.encode(), self.text[:_JSON_SEARCH], re.DOTALL))

    def is_snapshot(self) -> bool:
        """Return whether this is a pickle or JSON that begins like a snapshot of memory."""
        start = self.head[:_SNAPSHOT_SEARCH]
        if start.startswith(b"\x80"):
            return any(name in start for name in (b"segments", b"device_traces", b"segment_type"))
        return bool(re.match(rb'\s*\{\s*"(?:segments|device_traces)"\s*:\s*\[', start))

    def lists(self, *names: str) -> bool:
        """Return whether this is a directory with one of these files."""
        return any((self.path / name).is_file() for name in names)


@dataclass(frozen=True)
class Format:
    """A format: its name, how it is recognized, and its reader and scrubber.

    `reader` and `scrubber` are module:function, imported when needed; without a reader, a vendor
    tool first converts the file to the format `exported`.
    """

    name: str
    kind: str
    title: str
    detect: Callable[[Content], bool]
    reader: str = ""
    scrubber: str = ""
    exported: str = ""
    #: File name suffixes to search folders for; the first is used for scrubbed files.
    endings: tuple[str, ...] = ()
    #: Whether other files also have such names.
    ambiguous: bool = False
    #: The files of a directory that belong to the report; all if not given.
    parts: Callable[[Path], Iterable[Path]] | None = None

    def read(self, builder: ReportBuilder) -> None:
        """Read an input of this format; raises InputError if it is not a complete report."""
        _load(self.reader)(builder)

    def scrub(self, source: Path, target: Path, *known: str) -> list[str]:
        """Write a scrubbed copy, without `known` names; returns what was removed."""
        return _load(self.scrubber)(source, target, *known) or []


def _load(place: str) -> Callable[..., Any]:
    module, _, name = place.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found


_SERVING = "perfpipe.ingest.serving.reader:read_serving"
_HANG = "perfpipe.ingest.hangs.reader:read_hang"

#: In the order of detection.
FORMATS = {
    form.name: form
    for form in (
        Format(
            "ncu-rep",
            "ncu",
            ".ncu-rep",
            lambda content: content.head.startswith(b"NVR\0"),
            reader="perfpipe.ingest.ncu.rep:read_ncu_rep",
            scrubber="perfpipe.ingest.ncu.scrub_rep:scrub_ncu_rep",
            endings=(".ncu-rep",),
        ),
        Format(
            "nsys-modules",
            "modules",
            "nsys SQLite of perfpipe run --modules",
            lambda content: content.head[68:72] == MODULES_ID.to_bytes(4, "big"),
            reader="perfpipe.ingest.nsys.reader:read_nsys",
            scrubber="perfpipe.ingest.nsys.scrub_export:scrub_sqlite",
            endings=(".sqlite", ".db"),
        ),
        Format(
            "nsys-sqlite",
            "nsys",
            "nsys SQLite",
            lambda content: content.head.startswith(b"SQLite format 3\0"),
            reader="perfpipe.ingest.nsys.reader:read_nsys",
            scrubber="perfpipe.ingest.nsys.scrub_export:scrub_sqlite",
            endings=(".sqlite", ".db"),
        ),
        Format(
            "nsys-parquetdir",
            "nsys",
            "parquetdir",
            lambda content: content.lists("StringIds.parquet", "META_DATA_EXPORT.parquet"),
            reader="perfpipe.ingest.nsys.reader:read_nsys",
        ),
        Format(
            "nsys-arrowdir",
            "nsys",
            "arrowdir exports",
            lambda content: content.lists("StringIds.arrow", "META_DATA_EXPORT.arrow"),
            reader="perfpipe.ingest.nsys.reader:read_nsys",
        ),
        Format(
            "hang",
            "hang",
            "a folder of flight recorder dumps and outputs of ncclras",
            lambda content: has_parts(content.path),
            reader=_HANG,
            parts=parts_of,
        ),
        Format(
            "flight-recorder",
            "hang",
            "a dump of PyTorch's flight recorder",
            lambda content: is_pickled_dump(content.head),
            reader=_HANG,
        ),
        Format(
            "nsys-rep",
            "nsys",
            ".nsys-rep (if nsys is installed)",
            lambda content: content.head.startswith(b"NVIDIA Tegra Profiler Report"),
            exported="nsys-sqlite",
            endings=(".nsys-rep",),
        ),
        Format(
            "ncu-csv",
            "ncu",
            "ncu CSV (--page raw or details, or printed while profiling)",
            lambda content: content.holds(f'{_TAG}"ID","Process ID",'),
            reader="perfpipe.ingest.ncu.csv_pages:read_csv_pages",
            endings=(".csv", ".txt", ".log"),
            ambiguous=True,
        ),
        Format(
            "ncu-source-csv",
            "ncu",
            "ncu CSV (--page source)",
            lambda content: content.holds(
                rf'{_TAG}"Kernel Name",.*\r?\n{_TAG}(?:"#",)?(?:"Address",)?"Source",'
            ),
            reader="perfpipe.ingest.ncu.csv_source:read_source_csv",
            endings=(".csv", ".txt", ".log"),
            ambiguous=True,
        ),
        Format(
            "attached",
            "attached",
            "samples of perfpipe attach (JSON)",
            lambda content: content.begins(r'\s*\{\s*"perfpipe_attached"\s*:'),
            reader="perfpipe.ingest.attached:read_attached",
            endings=(".json",),
            ambiguous=True,
        ),
        Format(
            "requests",
            "serving",
            "requests of a load (JSON lines)",
            lambda content: content.begins(
                r'\s*\{(?:\s*"perfpipe"\s*:\s*"load"|[^{}]*"(?:planned|sent)_ns"\s*:)'
            ),
            reader=_SERVING,
            endings=(".jsonl",),
            ambiguous=True,
        ),
        Format(
            "aiperf",
            "serving",
            "requests of AIPerf (profile_export.jsonl)",
            lambda content: content.begins(
                r'\s*\{\s*"metadata"\s*:\s*\{[^{}]*"request_start_ns"\s*:'
            ),
            reader=_SERVING,
            endings=(".jsonl",),
            ambiguous=True,
        ),
        Format(
            "guidellm",
            "serving",
            "benchmarks of guidellm (benchmarks.json)",
            lambda content: content.begins(
                r'\s*\{\s*"metadata"\s*:\s*\{[^{}]*"guidellm_version"\s*:'
            ),
            reader=_SERVING,
            endings=(".json",),
            ambiguous=True,
        ),
        Format(
            "vllm-bench",
            "serving",
            "results of vllm bench serve (--save-detailed)",
            lambda content: content.begins(
                r'\s*\{\s*"date"\s*:\s*"[^"]*"\s*,\s*"(?:endpoint_type|backend)"\s*:'
            ),
            reader=_SERVING,
            endings=(".json",),
            ambiguous=True,
        ),
        Format(
            "memory-snapshot",
            "memory",
            "memory snapshots of PyTorch (pickle or JSON)",
            lambda content: content.is_snapshot(),
            reader="perfpipe.ingest.allocator.reader:read_snapshot",
            scrubber="perfpipe.ingest.allocator.scrub_snapshot:scrub_snapshot",
            endings=(".pickle", ".pkl", ".json"),
            ambiguous=True,
        ),
        Format(
            "flight-recorder-json",
            "hang",
            "a dump of PyTorch's flight recorder (JSON)",
            lambda content: is_json_dump(content.head),
            reader=_HANG,
            endings=(".json",),
            ambiguous=True,
        ),
        Format(
            "nccl-ras",
            "hang",
            "output of NCCL RAS (ncclras -v, or JSON)",
            lambda content: is_ras(content.head),
            reader=_HANG,
            endings=(".txt", ".log", ".out", ".json"),
            ambiguous=True,
        ),
        Format(
            "torch-kineto",
            "torch",
            "torch.profiler traces (Kineto JSON)",
            lambda content: content.begins(
                r'\s*(\{.*"(traceEvents|deviceProperties|schemaVersion)"|\[\s*\{.*"ph"\s*:)'
            ),
            reader="perfpipe.ingest.torch.kineto:read_kineto",
            scrubber="perfpipe.ingest.torch.scrub_trace:scrub_kineto",
            endings=(".json",),
            ambiguous=True,
        ),
    )
}
