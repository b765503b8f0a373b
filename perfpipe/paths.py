"""Names and paths in files of a store, which must stay within its directories."""

from __future__ import annotations

import glob
from pathlib import Path

from perfpipe.errors import StoreError

#: Longest file name, bytes, with room for the endings that perfpipe adds.
_LONGEST = 200


def is_plain(name: object) -> bool:
    """Return whether a name is a plain file or directory name.

    >>> [is_plain(name) for name in ("gemm-1", "../x", "/etc", "a/b", "..", ".x", "")]
    [True, False, False, False, False, False, False]
    """
    return (
        isinstance(name, str)
        and name.isprintable()
        and not name.startswith((".", "~"))
        and not {"/", "\\"} & {*name}
        and 0 < len(name.encode("utf-8", "surrogatepass")) <= _LONGEST
    )


def inside(directory: Path, name: str) -> Path:
    """Return a path below a directory; StoreError if it leaves the directory, also by links."""
    path = directory / name
    if not path.resolve().is_relative_to(directory.resolve()):
        raise StoreError(f"{name!r} is outside of {directory}")
    return path


def pattern_of(path: Path | str) -> str:
    """Return a path escaped for DuckDB, which expands brackets, stars and question marks.

    >>> pattern_of("/data/g[1]/x.parquet")
    '/data/g[[]1]/x.parquet'
    """
    return glob.escape(str(path))
