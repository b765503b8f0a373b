"""Locks on directories: for the files that a process reads, and for the claims of a run.

A reader holds a shared lock on the directory of the store.  Who removes replaced files waits until
no process reads.  A lock leaves no file behind and ends with the process.  On file systems without
such locks, nobody seems to hold one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from perfpipe.errors import StoreError

#: How long a reader waits for a removal, and how often it asks, s.
_PATIENCE_S, _AGAIN_S = 5.0, 0.01


def busy(root: Path) -> StoreError:
    """Return the error of a command whose files other commands change again and again."""
    return StoreError(
        f"{root}: the store is busy: other commands change what this one reads; try again"
    )


@contextlib.contextmanager
def reading(root: Path) -> Iterator[None]:
    """Keep what is in a store for the block; waits for a removal in progress."""
    with _locked(root, fcntl.LOCK_SH, _PATIENCE_S):
        yield


@contextlib.contextmanager
def removing(root: Path) -> Iterator[bool]:
    """Yield whether no process of this machine reads a store; none begins to during the block."""
    with _locked(root, fcntl.LOCK_EX, 0.0) as free:
        yield free


@contextlib.contextmanager
def changing_claims(directory: Path) -> Iterator[bool]:
    """Yield whether no other process of this machine changes a directory's claims meanwhile."""
    with _locked(directory, fcntl.LOCK_EX, _PATIENCE_S) as free:
        yield free


@contextlib.contextmanager
def _locked(root: Path, how: int, patience_s: float) -> Iterator[bool]:
    """Yield whether a lock was got in time; also true where there are no locks."""
    try:
        held = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield True
        return
    try:
        yield _lock(held, how, time.monotonic() + patience_s)
    finally:
        os.close(held)


def _lock(held: int, how: int, until: float) -> bool:
    while True:
        try:
            fcntl.flock(held, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(_AGAIN_S)
        except OSError:
            return True
        else:
            return True
