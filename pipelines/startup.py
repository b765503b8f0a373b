"""Import-time shortcuts of the command line."""

from __future__ import annotations

import atexit
import gc
import sys
from importlib.abc import MetaPathFinder

#: Objects before garbage is collected: commands create many objects, but few reference cycles.
_OBJECTS = 100_000


def collect_rarely() -> None:
    """Collect garbage rarely, and not when the interpreter exits.

    Scanning the objects of imported packages takes a fifth of the import time.
    """
    gc.set_threshold(_OBJECTS)
    # The memory is freed with the process; a scan at exit would only take time.
    atexit.register(gc.freeze)


class _Without(MetaPathFinder):
    """Prevents the import of pandas."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("perfpipe does not import pandas", name=name)


def leave_pandas_out() -> None:
    """Prevent the import of pandas in this process, which does not use data frames.

    If pandas is installed, pyarrow imports it for the first list that it converts, which takes as
    long as reading a small report.
    """
    sys.meta_path.insert(0, _Without())


def dependency(error: ModuleNotFoundError) -> str | None:
    """Return the dependency of perfpipe that is not installed; None for any other module."""
    import re
    from importlib.metadata import PackageNotFoundError, requires

    try:
        stated = requires("perfpipe") or []
    except PackageNotFoundError:
        return None
    own = [line for line in stated if "extra ==" not in line]
    names = {re.split(r"[^\w.-]", line)[0].replace("-", "_") for line in own}
    module = (error.name or "").partition(".")[0]
    return module if module in names else None
