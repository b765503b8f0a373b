"""Keeps kernels that JAX compiles under nsys for ncu, so that both see the same kernels.

XLA times several kernels for each operation and takes the fastest.  Under ncu that takes minutes,
and other kernels win.  JAX's own disk cache keeps compiled code with the chosen kernels; variables
that other programs do not read enable it.
"""

from __future__ import annotations

import os
import shlex
import shutil

from perfpipe.pipelines.collectors.base import Context

#: Directory of the cache, next to the reports of a task.
_NAME = "jax-cache"

#: If the user sets one of these, the cache is left alone.
_CHOSEN = ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE")


def environment(context: Context) -> dict[str, str]:
    """Return the variables that enable JAX's compilation cache for all kernels."""
    given = {**os.environ, **context.workload.env}
    if any(name in given for name in _CHOSEN):
        return {}
    mine = {
        _CHOSEN[0]: context.launcher.output(context.into / _NAME),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    return {name: value for name, value in mine.items() if name not in given}


def is_kept(context: Context) -> bool:
    """Return whether the program has cached compiled code."""
    directory = context.launcher.output(context.into / _NAME)
    return context.launcher.run(["sh", "-c", f'[ -n "$(ls -A {shlex.quote(directory)})" ]']).ok


def forget(context: Context) -> None:
    """Remove the cache; on another machine it is removed with the launcher."""
    shutil.rmtree(context.into / _NAME, ignore_errors=True)
