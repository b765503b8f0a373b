"""Whose code a Python file is, by its path: regular expressions for `re` and for DuckDB.

Each matches a path with forward slashes, from its beginning to the part that names the module.
"""

from __future__ import annotations

import re

#: Folders of installed packages, and of the standard library.
_INSTALLED = r"(?:site|dist)-packages/|[^/]+\.(?:egg|whl)/"
_LIBRARY = r"lib(?:64)?/(?:python|pypy)\d\.\d+t?/|python\d\d+\.zip/"

#: Packages that are installed: in .../site-packages/, eggs and wheels.
PACKAGES = rf"^(?:.*/)?(?:{_INSTALLED})"

#: The standard library: .../lib/python3.11/, .../python311.zip/, and C:/.../Lib/ on Windows.
STANDARD = rf"^(?:(?:.*/)?(?:{_LIBRARY})|[A-Za-z]:/(?:.*/)?Lib/)"

#: A cell of a notebook, which ipykernel writes to a file.
CELL = r"^(?:.*/)?ipykernel_\d+/(\d+)\.py$"

#: The part of a path that says whose code it is, but not where or by whom it was installed.
_OWNER = re.compile(
    rf".*/((?:{_INSTALLED}|{_LIBRARY}|\.triton/cache/|ipykernel_\d+/).*)"
    r"|.*/(torchinductor_)[^/]*(/.*)"
)


def without_folders(path: str) -> str:
    """Return the part of an absolute path that says whose code it is, otherwise the base name.

    >>> without_folders("/home/ada/v/lib/python3.12/site-packages/torch/nn/init.py")
    'site-packages/torch/nn/init.py'
    """
    if found := _OWNER.fullmatch(path):
        return "".join(part for part in found.groups() if part)
    return path.rpartition("/")[2]
