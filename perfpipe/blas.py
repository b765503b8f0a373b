"""Loads numpy without threads of its own."""

from __future__ import annotations

import os

#: How many threads OpenBLAS starts when numpy loads it, unless somebody says otherwise.
_THREADS = "OPENBLAS_NUM_THREADS"


def load_numpy() -> None:
    """Import numpy with one thread: others would spin for a while, and no matrix is multiplied.

    Programs that this process launches find the environment as it was.
    """
    stated = _THREADS in os.environ
    os.environ.setdefault(_THREADS, "1")
    try:
        import numpy  # noqa: F401
    finally:
        if not stated:
            del os.environ[_THREADS]
