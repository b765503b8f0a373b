"""The directory of a search: its records, the files of its candidates, and who works on it."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from perfpipe import searchrecord
from perfpipe.directories import WRITING
from perfpipe.errors import InputError, StoreError, os_error_sentence
from perfpipe.owner import own_name
from perfpipe.searchrecord import Attempt, Confirmation, Search
from perfpipe.store import Store

#: A directory that is no part of a candidate.
_NO_PART = "__pycache__"


class SearchDirectory:
    """A search on disk; every record is replaced as a whole."""

    def __init__(self, path: Path, search: Search) -> None:
        self.path, self.search = path, search

    @classmethod
    def create(cls, store: Store, search: Search, baseline: Path) -> SearchDirectory:
        """Make the directory of a new search; raises StoreError if it cannot be written."""
        path = searchrecord.directory(store.root) / search.search_id
        try:
            path.mkdir(parents=True)
            copy_files(baseline, path / "baseline")
            searchrecord.write(path, search)
        except OSError as error:
            raise StoreError(os_error_sentence(error, "cannot write")) from error
        return cls(path, search)

    @classmethod
    def read(cls, store: Store, search_id: str) -> SearchDirectory:
        """Return the search of a store; raises StoreError if it is damaged."""
        path = searchrecord.directory(store.root) / search_id
        return cls(path, searchrecord.read(path))

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Keep other processes from working on it; the kernel gives it back with the process."""
        with (self.path / "lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"{self.search.search_id}: another process works on this search"
                ) from None
            yield

    @property
    def baseline(self) -> Path:
        """The files of the baseline."""
        return self.path / "baseline"

    def attempts(self) -> list[Attempt]:
        """Return the candidates in order; raises StoreError if one is damaged."""
        return searchrecord.read_attempts(self.path)

    def files(self, name: str) -> Path:
        """Return the directory with the files of a candidate, or of the baseline."""
        if name == searchrecord.BASELINE:
            return self.baseline
        return searchrecord.attempt_directory(self.path, name) / "files"

    def log(self, name: str) -> Path:
        """Return the file with what the agent of a candidate printed."""
        return searchrecord.attempt_directory(self.path, name) / "agent.log"

    def work(self, name: str) -> Path:
        """Return an empty directory in which a candidate is written."""
        path = self.path / "work" / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def save(self, attempt: Attempt) -> None:
        """Save a candidate."""
        searchrecord.write_attempt(self.path, attempt)

    def change(self, **values: object) -> None:
        """Save the search with other values."""
        self.search = replace(self.search, **values)  # type: ignore[arg-type]
        searchrecord.write(self.path, self.search)

    def confirm(self, confirmation: Confirmation) -> None:
        """Save a confirmation: a new one, or the last one with more rounds."""
        others = [one for one in self.search.confirmations if one.look != confirmation.look]
        self.change(confirmations=(*others, confirmation))


def copy_files(source: Path, into: Path, skipped: frozenset[str] = frozenset()) -> None:
    """Copy the files of a candidate, which replace those in `into`, in one step.

    Links, hidden files and the names in `skipped` at the top are no part of it.
    """
    into.parent.mkdir(parents=True, exist_ok=True)
    beside = into.with_name(own_name(WRITING.rstrip("-")))
    shutil.rmtree(into, ignore_errors=True)
    beside.mkdir()
    for path in sorted(source.rglob("*")):
        parts = path.relative_to(source).parts
        hidden = any(part.startswith(".") for part in parts)
        if hidden or _NO_PART in parts or parts[0] in skipped:
            continue
        if path.is_file() and not path.is_symlink():
            at = beside.joinpath(*parts)
            at.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, at)
    beside.rename(into)
