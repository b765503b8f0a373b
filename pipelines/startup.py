"""Import-time shortcuts of the command line."""

from __future__ import annotations

import atexit
import gc
import sys
from importlib.abc import MetaPathFinder

#: Objects after which garbage is collected: commands make many, and few that refer to each other.
_OBJECTS = 100_000


def collect_rarely() -> None:
    """Let the interpreter look for garbage rarely, and not at its end.

    To look through what packages are made of takes a fifth of the time in which they are imported.
    """
    gc.set_threshold(_OBJECTS)
    # What a process holds when it ends goes with it: to look through that takes time after a page.
    atexit.register(gc.freeze)


class _Without(MetaPathFinder):
    """Finds nothing, and lets nobody else find pandas."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("perfpipe's processes do without pandas", name=name)


def leave_pandas_out() -> None:
    """Let no package import pandas in this process, which shows no data frames.

    pyarrow does so for the first list that it converts, where pandas is installed: that takes as
    long as reading a small report.
    """
    sys.meta_path.insert(0, _Without())
