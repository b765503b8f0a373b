"""Table columns defined by the fields of a class, so that each is declared once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from types import NoneType
from typing import Any, TypeVar, get_args

from perfpipe.decoding import types_of

_Getter = TypeVar("_Getter", bound=Callable[..., Any])


def column(sql_type: str, doc: str, name: str | None = None) -> dict[str, Any]:
    """Return the metadata of a column field; `name` if it differs from the field name."""
    return {"column": (name, sql_type, doc)}


def derived(sql_type: str, doc: str) -> Callable[[_Getter], _Getter]:
    """Mark the getter of a property as a column."""

    def mark(getter: _Getter) -> _Getter:
        getter.column = (None, sql_type, doc)  # type: ignore[attr-defined]
        return getter

    return mark


@dataclass(frozen=True)
class Column:
    """A column: its name, SQL type and meaning, and how to read it from its owner."""

    name: str
    type: str
    doc: str
    value: Callable[[Any], Any]

    @property
    def spec(self) -> tuple[str, str, str]:
        """Name, SQL type and meaning."""
        return self.name, self.type, self.doc

    def cell(self, owner: Any) -> Any:
        """Return the value for its SQL type: a mapping as JSON, doubles as doubles."""
        value = self.value(owner)
        if isinstance(value, dict):
            return json.dumps(value)
        if isinstance(value, tuple):
            return [float(item) if self.type == "DOUBLE[]" else utf8(item) for item in value]
        return float(value) if self.type == "DOUBLE" and value is not None else utf8(value)


def utf8(value: Any) -> Any:
    """Return a value; bytes that are not UTF-8, as in arguments and paths, become escapes."""
    if not isinstance(value, str):
        return value
    return value.encode("utf-8", errors="backslashreplace").decode()


def columns_of(kind: Any) -> Iterator[Column]:
    """Yield the columns of a class: its fields, those of optional classes in them, and getters."""
    for item in fields(kind):
        if "column" in item.metadata:
            yield _column(item.name, *item.metadata["column"])
        alternatives = get_args(types_of(kind)[item.name])
        if NoneType in alternatives:
            for nested in filter(is_dataclass, alternatives):
                yield from (_within(item.name, inner) for inner in columns_of(nested))
    for name, member in vars(kind).items():
        if spec := getattr(getattr(member, "fget", None), "column", None):
            yield _column(name, *spec)


def _column(attribute: str, name: str | None, sql_type: str, doc: str) -> Column:
    return Column(name or attribute, sql_type, doc, lambda owner: getattr(owner, attribute))


def _within(attribute: str, inner: Column) -> Column:
    def value(owner: Any) -> Any:
        found = getattr(owner, attribute)
        return None if found is None else inner.value(found)

    return replace(inner, value=value)
