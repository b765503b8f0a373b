"""Writes a function of a notebook as a module: its source, and that of what it names.

Cells have no file that a launch could import, and running all cells again would repeat what they
do.  So the module has only what the function needs: imports, functions and classes of the notebook,
and constants that can be written down.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from perfpipe.errors import InputError

#: A value whose text is the way to it, such as torch.float16.
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


def source_of(function: Any) -> str:
    """Return the source of a module that defines a function of a notebook.

    Raises InputError if the source is unknown, or the function names a value that exists only in
    the memory of the notebook.
    """
    module = _Module(function.__globals__, function.__name__)
    module.define(function.__name__, function)
    return "\n\n".join(module.parts) + "\n"


class _Module:
    """Statements of a module, each after those that it needs."""

    def __init__(self, namespace: Mapping[str, Any], wanted: str) -> None:
        self._namespace, self._wanted = namespace, wanted
        self._seen: set[str] = set()
        self.parts: list[str] = []

    def define(self, name: str, value: Any) -> None:
        """Add a function or class with its decorators, as a cell defines it."""
        self._seen.add(name)
        text = self._source(value)
        tree = ast.parse(text)
        for used in _names(tree):
            self._add(used)
        own = next(node.name for node in tree.body if hasattr(node, "name"))
        self.parts.append(text if own == name else f"{text}\n{name} = {own}")

    def _source(self, value: Any) -> str:
        name = str(value.__name__)
        if inspect.isclass(value):
            text = _class_in(self._namespace.get("_ih", ()), name)
        else:
            try:
                text = textwrap.dedent(inspect.getsource(value)).strip()
            except (OSError, TypeError):
                text = None
        if text is None:
            raise InputError(
                f"{self._wanted}: the source of {name} is unknown; define it in a file or in a "
                "cell of a notebook"
            )
        return text

    def _add(self, dotted: str) -> None:
        """Add what a name, or a name with attributes, refers to."""
        name = dotted.partition(".")[0]
        if name not in self._namespace:
            return  # a builtin, a local name, or an error when it is used
        value = self._namespace[name]
        if isinstance(value, ModuleType):
            self._import(name, value, dotted)
        elif name not in self._seen:
            self._seen.add(name)
            self._add_value(name, value)

    def _import(self, name: str, module: ModuleType, dotted: str) -> None:
        # The longest part that is a module may have an import of its own: xml.dom.minidom.
        rest = dotted.partition(".")[2].split(".") if "." in dotted else []
        ways = [".".join([module.__name__, *rest[:end]]) for end in range(len(rest), -1, -1)]
        whole = next(way for way in ways if way in sys.modules or way == module.__name__)
        lines = [f"import {module.__name__} as {name}", f"import {whole}"]
        for line in lines if whole != module.__name__ else lines[:1]:
            if line not in self.parts:
                self.parts.append(line)

    def _add_value(self, name: str, value: Any) -> None:
        inner = getattr(value, "fn", value)  # a kernel of Triton holds its function
        if getattr(inner, "__module__", None) == "__main__" and (
            inspect.isfunction(inspect.unwrap(inner)) or inspect.isclass(inner)
        ):
            self.define(name, inspect.unwrap(inner))
            return
        line = _imported(name, value) or _literal(name, value)
        if line is None:
            kind = type(value).__name__
            raise InputError(
                f"{self._wanted} uses {name}, an object of type {kind} in the memory of the "
                f"notebook, which a launch does not have: create it inside {self._wanted}, or pass "
                "it as a parameter"
            )
        self.parts.append(line)


def _class_in(cells: Sequence[str], name: str) -> str | None:
    """Return the source of a class from the last cell that defines it.

    Python looks for the source of a class in the file of its module, which a notebook has not.
    """
    for cell in reversed(cells):
        try:
            tree = ast.parse(cell)
        except SyntaxError:
            continue
        for node in reversed(tree.body):
            if isinstance(node, ast.ClassDef) and node.name == name:
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                return "\n".join(cell.splitlines()[first - 1 : node.end_lineno])
    return None


def _names(tree: ast.AST) -> Iterator[str]:
    """Yield the names in a piece of code, with the attributes that follow them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            if _DOTTED.fullmatch(text):
                yield text
        elif isinstance(node, ast.Name):
            yield node.id


def _imported(name: str, value: Any) -> str | None:
    """Return the import of a value that a module defines, if it is found there."""
    module, own = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    ways: list[tuple[Any, ...]] = [(module, own)]
    if _DOTTED.fullmatch(text := repr(value)):
        ways.append(tuple(text.rsplit(".", 1)))
    for module, own in ways:
        found = isinstance(own, str) and getattr(sys.modules.get(str(module)), own, None)
        if found is value and module != "__main__":
            return f"from {module} import {own} as {name}"
    return None


def _literal(name: str, value: Any) -> str | None:
    text = repr(value)
    try:
        return f"{name} = {text}" if ast.literal_eval(text) == value else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
