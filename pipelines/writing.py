"""Writes files that a user named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perfpipe.errors import StoreError, os_error_sentence
from perfpipe.files import replacing
from perfpipe.scratch import sweep_beside


@contextmanager
def written(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; the file is there once it is whole.

    Makes its directory, and removes what killed processes left there; StoreError on failure.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep_beside(path)
        with replacing(path) as temporary:
            yield temporary
    except OSError as error:
        raise StoreError(os_error_sentence(error, "cannot write")) from error


def write_text(path: Path, text: str) -> None:
    """Write a file atomically; raises StoreError on failure."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically; raises StoreError on failure."""
    with written(path) as temporary:
        temporary.write_bytes(content)
