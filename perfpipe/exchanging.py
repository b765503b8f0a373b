"""Exchanges two directories in one step, so that a name never leads nowhere."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

#: Of linux/fcntl.h and linux/fs.h.
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2

#: Attempts where other writers put theirs there meanwhile.
_ATTEMPTS = 5


def exchange(one: Path, other: Path) -> bool:
    """Exchange two existing directories; False, and no change, where the system cannot do so."""
    call = _renameat2()
    names = os.fsencode(one), os.fsencode(other)
    return call is not None and not call(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE)


def put(directory: Path, final: Path, trash_of: Callable[[Path], Path]) -> None:
    """Move a directory to its place, where there may be an earlier one; other writers may, too.

    Readers find one of them.  The earlier one remains at `directory`, or is removed.
    """
    for attempts in range(_ATTEMPTS, 0, -1):
        if exchange(directory, final):
            return
        with contextlib.suppress(FileNotFoundError):
            trash = trash_of(final)
            final.rename(trash)
            shutil.rmtree(trash, ignore_errors=True)
        try:
            directory.rename(final)
        except OSError:
            if attempts == 1 or not final.is_dir():
                raise
        else:
            return


@cache
def _renameat2() -> Any:
    """Return renameat2(2) of the C library; None if it has none."""
    return getattr(ctypes.CDLL(None), "renameat2", None)
