"""Starts guards: see guard.py."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_GUARD = Path(__file__).with_name("guard.py")


@contextlib.contextmanager
def guarded(undo: Sequence[str], env: Mapping[str, str] | None = None) -> Iterator[None]:
    """Let `undo` be run if this process is killed while the block runs.

    If the block is left in any other way, the caller undoes by itself.
    """
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", str(_GUARD), *undo],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **(env or {})},
        start_new_session=True,
    )
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            guard.communicate(b"done")
        guard.wait()
