"""Opens .xz, .gz and .zst transparently, detected from their content, within limits.

A file may expand to MAX_RATIO times its size, or to HARMLESS_BYTES, and never fills the disk.
"""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO, Protocol

from perfpipe.errors import InputError, brief, os_error_sentence
from perfpipe.files import open_regular
from perfpipe.units import format_bytes

CHUNK = 1 << 20

#: Bytes given to the .zst decompressor at a time, which returns everything that they expand to:
#: four bytes can become a block of 128 kB.
_ZST_CHUNK = 1 << 10

#: Compression level, 0 to 9: scrubbed reports are shared, so size matters more than time.
XZ_PRESET = 6

#: A file that expands by more than this factor is treated as a decompression bomb; real reports
#: expand by up to 30.
MAX_RATIO = 300

#: Below this size the factor does not matter.
HARMLESS_BYTES = 256 << 20

#: Memory limit of a decompressor; files that perfpipe and nsys users write need less.
_MEMORY = 1 << 28

_MAGIC = {b"\xfd7zXZ\x00": "xz", b"\x1f\x8b": "gz", b"\x28\xb5\x2f\xfd": "zst"}


class _Decompressor(Protocol):
    """A compressed stream: `expand` yields pieces of about CHUNK bytes at any ratio."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def expand(self, data: bytes) -> Iterator[bytes]: ...


class _Xz:
    def __init__(self) -> None:
        self._stream = lzma.LZMADecompressor(memlimit=_MEMORY)

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def expand(self, data: bytes) -> Iterator[bytes]:
        yield self._stream.decompress(data, CHUNK)
        while not self._stream.eof and not self._stream.needs_input:
            yield self._stream.decompress(b"", CHUNK)


class _Gz:
    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def expand(self, data: bytes) -> Iterator[bytes]:
        yield self._stream.decompress(data, CHUNK)
        while self._stream.unconsumed_tail and not self._stream.eof:
            yield self._stream.decompress(self._stream.unconsumed_tail, CHUNK)


class _Damaged(Exception):
    """Data that a decompressor refuses."""


class _Zst:
    def __init__(self) -> None:
        import zstandard

        self._refused = zstandard.ZstdError
        self._stream = zstandard.ZstdDecompressor(max_window_size=_MEMORY).decompressobj()
        self._behind = b""

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data + self._behind

    def expand(self, data: bytes) -> Iterator[bytes]:
        for at in range(0, len(data), _ZST_CHUNK):
            try:
                found = self._stream.decompress(data[at : at + _ZST_CHUNK])
            except self._refused as error:
                raise _Damaged(str(error)) from error
            yield found
            if self._stream.eof:
                self._behind = data[at + _ZST_CHUNK :]
                return


def compression_of(path: Path) -> str | None:
    """Return xz, gz or zst, or None for an uncompressed file."""
    with reading(path) as file:
        # Some files of /proc have no data yet, which is None.
        head = file.read(6) or b""
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)


@contextmanager
def reading(path: Path) -> Iterator[BufferedReader]:
    """Open a regular file for reading; InputError, which names it, if it cannot be opened or read.

    A pipe is refused: it may never end, and cannot be read twice.
    """
    try:
        with open_regular(path) as file:
            yield file
    except OSError as error:
        # An error of reading does not name the file.
        error.filename = error.filename or str(path)
        raise InputError(os_error_sentence(error, "cannot read")) from error


def chunks(path: Path) -> Iterator[bytes]:
    """Yield a file's content, decompressed.

    Raises InputError if the compressed data is damaged or truncated, or if it expands
    beyond MAX_RATIO.
    """
    kind = compression_of(path)
    with reading(path) as file:
        if kind is None:
            while chunk := file.read(CHUNK):
                yield chunk
            return
        try:
            yield from _bounded(_decompressed(file, kind, path), path)
        except (lzma.LZMAError, zlib.error, gzip.BadGzipFile, _Damaged) as error:
            raise InputError(f"{path}: damaged {kind} data ({brief(error)})") from error


def xz(content: bytes) -> bytes:
    """Return content compressed as an .xz file."""
    return lzma.compress(content, preset=XZ_PRESET)


def _decompressed(file: IO[bytes], kind: str, path: Path) -> Iterator[bytes]:
    """Yield decompressed pieces of one or more concatenated streams."""
    decompressor: _Decompressor | None = None
    pending = b""
    while True:
        data = pending or file.read(CHUNK // 4)
        pending = b""
        if not data:
            break
        if decompressor is None or decompressor.eof:
            if decompressor is not None and not data.strip(b"\0"):
                continue  # padding after the last stream
            decompressor = _decompressor(kind)
        yield from decompressor.expand(data)
        if decompressor.eof:
            pending = decompressor.unused_data
    if decompressor is None or not decompressor.eof:
        raise InputError(f"{path}: the {kind} data is truncated")


def _decompressor(kind: str) -> _Decompressor:
    kinds: dict[str, Callable[[], _Decompressor]] = {"xz": _Xz, "gz": _Gz, "zst": _Zst}
    return kinds[kind]()


def _bounded(pieces: Iterator[bytes], path: Path) -> Iterator[bytes]:
    limit = max(HARMLESS_BYTES, MAX_RATIO * path.stat().st_size)
    total = 0
    for piece in pieces:
        total += len(piece)
        if total > limit:
            raise InputError(
                f"{path}: expands to more than {format_bytes(limit)}, over {MAX_RATIO} times its "
                "size; if it is a real report, decompress it yourself"
            )
        yield piece
