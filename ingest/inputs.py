"""Detects the format of an input from its content, and its identity; each is computed once."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from perfpipe.errors import InputError, StoreError, os_error_sentence
from perfpipe.ingest.compressed import chunks, compression_of, reading
from perfpipe.ingest.foreign import what_else
from perfpipe.ingest.formats import FORMATS, Content
from perfpipe.ingest.source import Input, State
from perfpipe.scratch import scratch
from perfpipe.units import format_bytes

#: First bytes of a file that are compared.
_HEAD = 100

#: Disk space that decompressing leaves free, and how often it checks, bytes.
SPARED_BYTES, _CHECKED_BYTES = 256 << 20, 16 << 20


def identify(path: Path) -> Input:
    """Identify an input without reading all of it.

    Raises InputError for anything that is not a report perfpipe reads.
    """
    if path.is_dir():
        content, compressed = Content(path), False
    else:
        content, compressed = Content(path, chunks(path)), compression_of(path) is not None
        if not content.head:
            raise InputError(f"{path}: the file is empty")
    found = _format(content)
    # What belongs to a file, such as a journal of SQLite, is next to the target of a link.
    return Input(path, found, FORMATS[found].kind, path.resolve(), compressed)


def members_of(found: Input) -> list[Input]:
    """Return the files of a report that is a folder of them; else the input itself."""
    return [identify(path) for path in _files(found)] if found.path.is_dir() else [found]


def hashed(found: Input) -> Input:
    """Return the input with its checksums; a compressed file is not expanded."""
    if found.sha256 or found.file_sha256:
        return found
    found = replace(found, state=_state(found))
    if found.path.is_dir():
        sha256, size = _directory_identity(_files(found))
        return replace(found, sha256=sha256, size=size)
    digest = _file_sha256(found.path)
    if found.compressed:
        return replace(found, file_sha256=digest)
    return replace(found, file_sha256=digest, sha256=digest, size=found.path.stat().st_size)


@contextmanager
def opened(found: Input) -> Iterator[Input]:
    """Yield the input with its decompressed content on disk, checksums and size."""
    found = hashed(found)
    if not found.compressed:
        yield found
        return
    with scratch() as directory:
        content = directory / found.path.stem
        sha256, size = _expand(found.path, content)
        yield replace(found, content=content, sha256=sha256, size=size)


def check_unchanged(found: Input) -> None:
    """Raise InputError if the files of a hashed input have changed since."""
    before, after = ({name: own for name, *own in state} for state in (found.state, _state(found)))
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            path = found.path / name if name else found.path
            raise InputError(
                f"{path}: still being written (it changed while it was read); "
                "ingest it when it is complete"
            )


def _state(found: Input) -> State:
    """Return the state of the files of an input; of the target of a link, not the link."""
    if found.path.is_dir():
        return tuple(_file_state(path, path.name) for path in _files(found))
    return (_file_state(found.path, ""),)


def _files(found: Input) -> list[Path]:
    """Return the files of a directory that belong to the report, sorted."""
    parts = FORMATS[found.format].parts
    return sorted(found.path.iterdir() if parts is None else parts(found.path))


def _file_state(path: Path, name: str) -> tuple[str, int, int, int, bytes]:
    if path.is_dir():
        return name, 0, 0, 0, b""
    with reading(path) as file:
        at = os.fstat(file.fileno())
        # SQLite counts changes there; file times may be too coarse.
        return name, at.st_size, at.st_mtime_ns, at.st_ino, file.read(_HEAD)


def _file_sha256(path: Path) -> str:
    with reading(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _expand(path: Path, target: Path) -> tuple[str, int]:
    digest = hashlib.sha256()
    size = checked = 0
    try:
        with target.open("wb") as file:
            for piece in chunks(path):
                digest.update(piece)
                size += file.write(piece)
                if size - checked >= _CHECKED_BYTES:
                    checked = size
                    _check_room(path, target)
    except OSError as error:
        raise StoreError(
            os_error_sentence(error, f"cannot decompress {path} to {target.parent.parent} (TMPDIR)")
        ) from error
    return digest.hexdigest(), size


def _check_room(path: Path, target: Path) -> None:
    """Raise StoreError before a decompressed file fills a shared disk."""
    free = shutil.disk_usage(target.parent).free
    if free < SPARED_BYTES:
        raise StoreError(
            f"{path}: not enough space to decompress it in {target.parent.parent} "
            f"({format_bytes(free)} free); set TMPDIR to a larger disk"
        )


def _directory_identity(files: Iterable[Path]) -> tuple[str, int]:
    """Hash the sorted (name, sha256) list of the files, as the store's ids are defined."""
    files = [file for file in files if not file.is_dir()]
    digest = hashlib.sha256()
    for file in files:
        digest.update(os.fsencode(file.name) + f"\0{_file_sha256(file)}\n".encode())
    return digest.hexdigest(), sum(file.stat().st_size for file in files)


def _format(content: Content) -> str:
    for form in FORMATS.values():
        if form.detect(content):
            return form.name
    path = content.path
    if path.is_dir():
        raise InputError(f"{path}: a directory that is not an nsys parquetdir or arrowdir export")
    raise InputError(f"{path}: {what_else(path, content.text)}")
