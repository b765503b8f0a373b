"""What an input is, told from its content, and its identity."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from ingest.compressed import chunks, compression_of, reading
from perfpipe.errors import InputError, StoreError, os_error_sentence

#: How much of a text file is searched for an ncu CSV header: a program may print before it.
_TEXT_SEARCH = 4 << 20

#: How much of JSON is searched for what a trace begins with.
_JSON_SEARCH = 1 << 16

_NCU_CSV = re.compile(rb'^(?:\xef\xbb\xbf)?"ID","Process ID","Process Name",', re.MULTILINE)
_NCU_SOURCE_CSV = re.compile(
    rb'^(?:\xef\xbb\xbf)?"Kernel Name",.*\r?\n(?:"#",)?"Address","Source"', re.MULTILINE
)
_KINETO = re.compile(
    rb'^\s*(\{.*"(traceEvents|deviceProperties|schemaVersion)"|\[\s*\{.*"ph"\s*:)', re.DOTALL
)
_FOREIGN_CSV = re.compile(rb'^"?ID"?[,;\t]"?Process ID"?[,;\t]', re.MULTILINE)

#: Formats and the kind of report that they hold.
KINDS = {
    "ncu-rep": "ncu",
    "ncu-csv": "ncu",
    "ncu-source-csv": "ncu",
    "nsys-rep": "nsys",
    "nsys-sqlite": "nsys",
    "nsys-parquetdir": "nsys",
    "nsys-arrowdir": "nsys",
    "torch-kineto": "torch",
}


@dataclass(frozen=True)
class Input:
    """An input file or directory; `content` is where its plain bytes lie once opened."""

    path: Path
    format: str
    content: Path
    compressed: bool = False
    sha256: str = ""
    size: int = 0

    @property
    def kind(self) -> str:
        """The kind of report: ncu, nsys or torch."""
        return KINDS[self.format]

    @property
    def report_id(self) -> str:
        """The report id: the first 16 hex digits of the content's sha256."""
        return self.sha256[:16]


def identify(path: Path) -> Input:
    """Tell what an input is, without reading all of it.

    Raises InputError for anything that is not a report perfpipe reads.
    """
    if path.is_dir():
        return Input(path, _directory_format(path), path)
    compressed = compression_of(path) is not None
    pieces = chunks(path)
    head = next(pieces, b"")
    if not head:
        raise InputError(f"{path}: the file is empty")
    return Input(path, _file_format(path, head, pieces), path, compressed)


@contextmanager
def opened(found: Input) -> Iterator[Input]:
    """Give the input with its plain content on disk, its checksum and its size."""
    if found.path.is_dir():
        sha256, size = _directory_identity(found.path)
        yield replace(found, sha256=sha256, size=size)
    elif not found.compressed:
        yield replace(found, sha256=file_sha256(found.path), size=found.path.stat().st_size)
    else:
        with tempfile.TemporaryDirectory(prefix="perfpipe-") as directory:
            content = Path(directory) / found.path.stem
            sha256, size = _expand(found.path, content)
            yield replace(found, content=content, sha256=sha256, size=size)


def file_sha256(path: Path) -> str:
    """Return the checksum of a file as it lies there, compressed or not."""
    with reading(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _expand(path: Path, target: Path) -> tuple[str, int]:
    digest = hashlib.sha256()
    size = 0
    try:
        with target.open("wb") as file:
            for piece in chunks(path):
                digest.update(piece)
                size += file.write(piece)
    except OSError as error:
        raise StoreError(
            os_error_sentence(error, f"cannot decompress {path} to TMPDIR,")
        ) from error
    return digest.hexdigest(), size


def _directory_format(path: Path) -> str:
    if (path / "StringIds.parquet").is_file() or (path / "META_DATA_EXPORT.parquet").is_file():
        return "nsys-parquetdir"
    if (path / "StringIds.arrow").is_file() or (path / "META_DATA_EXPORT.arrow").is_file():
        return "nsys-arrowdir"
    raise InputError(f"{path}: a directory, but not an nsys parquetdir or arrowdir export")


def is_export_directory(path: Path) -> bool:
    """Say whether a directory is one report, rather than a folder of reports."""
    try:
        return bool(_directory_format(path))
    except InputError:
        return False


def _directory_identity(path: Path) -> tuple[str, int]:
    """Hash the sorted (name, sha256) list of the files, as the store's ids are defined."""
    files = sorted(p for p in path.iterdir() if p.is_file())
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name}\0{file_sha256(file)}\n".encode())
    return digest.hexdigest(), sum(file.stat().st_size for file in files)


def _file_format(path: Path, head: bytes, rest: Iterator[bytes]) -> str:
    if head.startswith(b"NVR\0"):
        return "ncu-rep"
    if head.startswith(b"SQLite format 3\0"):
        return "nsys-sqlite"
    if head.startswith(b"PAR1") or head.startswith(b"ARROW1"):
        raise InputError(f"{path}: one table of an export; name the whole directory instead")
    if head.startswith(b"NVIDIA Tegra Profiler Report"):
        return "nsys-rep"
    if path.name.removesuffix(".xz").endswith(".qdstrm"):
        raise InputError(
            f"{path}: raw nsys data that was never imported; run 'QdstrmImporter -i {path.name}' "
            "(a missing libdw.so.1 is the usual reason that nsys did not)"
        )
    text = head
    for piece in rest:
        if len(text) >= _TEXT_SEARCH:
            break
        text += piece
    if _NCU_CSV.search(text):
        return "ncu-csv"
    if _NCU_SOURCE_CSV.search(text):
        return "ncu-source-csv"
    if _KINETO.match(text[:_JSON_SEARCH]):
        return "torch-kineto"
    if _FOREIGN_CSV.search(text):
        raise InputError(
            f"{path}: an ncu CSV that another program saved again, with other separators "
            "or quotes; export it with 'ncu --import REPORT --csv --page raw'"
        )
    raise InputError(f"{path}: not a report that perfpipe reads ({_looks_like(text)})")


def _looks_like(text: bytes) -> str:
    if text.lstrip()[:1] in (b"{", b"["):
        return "JSON"
    if b"==PROF==" in text or b"==ERROR==" in text:
        return "output of ncu without a CSV table: add --csv --page raw"
    if b"\0" in text[:4096]:
        return "unknown binary data"
    return "text without an ncu CSV header"


def expand_paths(paths: list[str]) -> list[Path]:
    """Return the inputs that arguments name: files, export directories, globs and folders.

    A folder gives the reports in it and below it; other files there are passed over.  Raises
    InputError when a name or a pattern matches nothing.
    """
    found = list(chain.from_iterable(_expand_one(Path(text)) for text in paths))
    return list(dict.fromkeys(found))


_REPORT_NAME = re.compile(
    r"\.(ncu-rep|nsys-rep|sqlite|db|csv|txt|log|json)(\.(xz|gz|zst))?$", re.IGNORECASE
)


def _expand_one(path: Path) -> list[Path]:
    if path.is_dir():
        if is_export_directory(path):
            return [path]
        return _reports_below(path)
    if path.exists():
        return [path]
    if any(char in path.name for char in "*?["):
        matches = sorted(path.parent.glob(path.name))
        if matches:
            return [report for match in matches for report in _expand_one(match)]
    raise InputError(f"{path}: no such file or directory")


def _reports_below(folder: Path) -> list[Path]:
    reports = []
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            reports += [entry] if is_export_directory(entry) else _reports_below(entry)
        elif _REPORT_NAME.search(entry.name) and _is_report(entry):
            reports.append(entry)
    return reports


def _is_report(path: Path) -> bool:
    """Pass over tables of text that only look like reports (nsys stats output, say)."""
    if not re.search(r"\.(csv|txt|log|json)\b", path.name, re.IGNORECASE):
        return True
    try:
        identify(path)
    except InputError:
        return False
    return True
