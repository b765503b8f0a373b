"""Whose code a Python file is, by its path: regular expressions for `re` and for DuckDB.

Each matches a path with forward slashes, from its beginning to the part that names the module.
"""

from __future__ import annotations

#: Packages that are installed: in .../site-packages/, eggs and wheels.
PACKAGES = r"^(?:.*/)?(?:(?:site|dist)-packages/|[^/]+\.(?:egg|whl)/)"

#: The standard library: .../lib/python3.11/, .../python311.zip/, and C:/.../Lib/ on Windows.
STANDARD = (
    r"^(?:(?:.*/)?(?:lib(?:64)?/(?:python|pypy)\d\.\d+t?/|python\d\d+\.zip/)"
    r"|[A-Za-z]:/(?:.*/)?Lib/)"
)

#: A cell of a notebook, which ipykernel writes to a file.
CELL = r"^(?:.*/)?ipykernel_\d+/(\d+)\.py$"
