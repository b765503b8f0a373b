"""Directories of a store: written under a temporary name, and listed when they are published."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from perfpipe.errors import StoreError, os_error_sentence
from perfpipe.owner import own_name

#: Name prefixes of directories that are being written or removed; the id follows.
WRITING = ".tmp-"
TRASH = ".trash-"


@contextlib.contextmanager
def new_directory(parent: Path, name: str) -> Iterator[Path]:
    """Yield a temporary directory, which is removed unless it was renamed."""
    directory = parent / own_name(f"{WRITING}{name}")
    with storing(directory):
        directory.mkdir(parents=True)
    try:
        with storing(directory):
            yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def storing(path: Path) -> Iterator[None]:
    """Turn an operating-system error while writing the store into one sentence."""
    try:
        yield
    except OSError as error:
        sentence = os_error_sentence(error, f"cannot write the store at {path.parent}:")
        raise StoreError(f"{sentence}; nothing was changed") from error


def published(directory: Path) -> list[str]:
    """Return the names of the directories in one, sorted, without temporary ones."""
    try:
        # Links lead elsewhere.
        found = os.scandir(directory)
        names = [entry.name for entry in found if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(os_error_sentence(error, "cannot read the store")) from error
    return sorted(name for name in names if not name.startswith("."))
