"""Data of nested tuples, lists and dictionaries: as a list of parts, and back.

A tree says what stands where: ("tuple" or "list", trees), ("dict", trees by key), ("input", n),
("output", n), or ("none", None).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any


def parts_of(found: Any) -> list[Any]:
    """Return the parts of data, in order; None is none.

    >>> parts_of((1, [2, None], {"a": 3}))
    [1, 2, 3]
    """
    if isinstance(found, dict):
        found = [*found.values()]
    if isinstance(found, (tuple, list)):
        return [part for one in found for part in parts_of(one)]
    return [] if found is None else [found]


def data_of(tree: Any, inputs: Any, outputs: Any) -> Any:
    """Return data with inputs and outputs in the places of a tree.

    >>> data_of(("tuple", [("input", 1), ("dict", {"a": ("output", 0)})]), [1, 2], [3])
    (2, {'a': 3})
    """
    kind, part = tree
    if kind == "dict":
        return {name: data_of(one, inputs, outputs) for name, one in part.items()}
    if kind in ("tuple", "list"):
        found = [data_of(one, inputs, outputs) for one in part]
        return tuple(found) if kind == "tuple" else found
    return {"input": inputs, "output": outputs}[kind][part] if kind != "none" else None


def tree_of(found: Any, places: Sequence[tuple[str, int]]) -> Any:
    """Return the tree of data, with the places of its parts in order.

    >>> tree_of((1, {"a": 2}), [("input", 0), ("output", 0)])
    ('tuple', [('input', 0), ('dict', {'a': ('output', 0)})])
    """
    return _tree(found, iter(places))


def _tree(found: Any, places: Iterator[tuple[str, int]]) -> Any:
    if found is None:
        return ("none", None)
    if isinstance(found, dict):
        return ("dict", {name: _tree(one, places) for name, one in found.items()})
    if isinstance(found, (tuple, list)):
        kind = "tuple" if isinstance(found, tuple) else "list"
        return (kind, [_tree(one, places) for one in found])
    return next(places)


_RUN = """\
def run(*given):
    inputs, outputs = given[:INPUTS], given[INPUTS:]
    found = parts_of(custom_kernel(data_of(TREE, inputs, outputs)))
    if len(found) != RESULTS:
        raise ValueError(f"custom_kernel returned {len(found)} results instead of {RESULTS}")
    for one, output in zip(found, outputs):
        if one.shape != output.shape:
            raise ValueError(f"custom_kernel returned {[*one.shape]}, not {[*output.shape]}")
        if one is not output and one.data_ptr() != output.data_ptr():
            output.copy_(one)
"""


def wrapper(tree: Any, inputs: int, results: int) -> str:
    """Return a module that calls custom_kernel of submission.py with inputs and outputs."""
    head = '"""Calls custom_kernel with the data of the task."""\n\nfrom typing import Any\n\n'
    head += "from submission import custom_kernel\n\n"
    head += f"TREE = {tree!r}\nINPUTS, RESULTS = {inputs}, {results}\n"
    return "\n\n".join([head, inspect.getsource(parts_of), inspect.getsource(data_of), _RUN])
