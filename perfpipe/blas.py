"""Loads numpy without additional threads."""

from __future__ import annotations

import os

#: Environment variable for the threads that OpenBLAS starts when numpy loads it.
_THREADS = "OPENBLAS_NUM_THREADS"


def load_numpy() -> None:
    """Import numpy with one thread: more would only spin, since perfpipe multiplies no matrices.

    The environment of programs that this process launches does not change.
    """
    stated = _THREADS in os.environ
    os.environ.setdefault(_THREADS, "1")
    try:
        import numpy  # noqa: F401
    finally:
        if not stated:
            del os.environ[_THREADS]
