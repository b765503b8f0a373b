"""Frozen dataclasses from JSON, checked against the types of the fields."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Self, Union, get_args, get_origin, get_type_hints

#: Types that JSON stores unchanged.
_PLAIN = (bool, int, float, str, NoneType)


@dataclass(frozen=True, kw_only=True)
class Stated:
    """Facts that a program reports; `more` keeps values without a matching field and type."""

    more: dict[str, bool | int | float | str] = field(default_factory=dict)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """Return plain values by name; accepts everything that a program reports."""
        nested = content.get("more")
        stated = {**content, **(nested if isinstance(nested, dict) else {})}
        stated.pop("more", None)
        own: Any = cls
        kinds = {name: get_args(kind) or (kind,) for name, kind in types_of(own).items()}
        known = {
            name: value
            for name, value in stated.items()
            if any(_fits(kind, value) for kind in kinds.get(name, ()))
        }
        more = {
            name: value
            for name, value in stated.items()
            if name not in known
            and value is not None
            and any(_fits(kind, value) for kind in _PLAIN)
        }
        return cls(**known, more=more)


@cache
def types_of(kind: Any) -> dict[str, Any]:
    """Return the types of a dataclass's fields."""
    return get_type_hints(kind)


def decode(kind: Any, value: Any, where: str = "") -> Any:
    """Return a JSON value as `kind`: a dataclass, tuple, dict, plain type, or a union of them.

    Keys without a field are ignored, and fields without a key get their default.  Raises ValueError
    with the place of a value that does not fit.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _decode_union(arguments, value, where)
    if origin is tuple and isinstance(value, list):
        # Thousands of samples are checked together.
        if arguments[0] in (float, str) and {*map(type, value)} == {arguments[0]}:
            return tuple(value)
        return tuple(decode(arguments[0], v, f"{where}[{n}]") for n, v in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return {k: decode(arguments[1], v, _inside(where, k)) for k, v in value.items()}
    if is_dataclass(kind) and isinstance(value, dict):
        return _decode_class(kind, value, where)
    if _fits(kind, value):
        return value
    raise ValueError(f"{where or 'the value'} is {_named(value)}")


def _decode_union(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    if any(_fits(kind, value) for kind in kinds):
        return value
    composed = [kind for kind in kinds if kind not in _PLAIN]
    if composed and value is not None:
        return decode(composed[0], value, where)
    raise ValueError(f"{where or 'the value'} is {_named(value)}")


def _decode_class(kind: Any, value: dict[str, Any], where: str) -> Any:
    if issubclass(kind, Stated):
        return kind.of(value)
    found = {}
    for item in fields(kind):
        place = _inside(where, item.name)
        if item.name in value:
            found[item.name] = decode(types_of(kind)[item.name], value[item.name], place)
        elif item.default is MISSING and item.default_factory is MISSING:
            raise ValueError(f"{place} is missing")
    return kind(**found)


def _fits(kind: Any, value: Any) -> bool:
    """Return whether a value has a plain type; an integer is also a double, a boolean is neither.

    Numbers have 64 bits, as in the store.
    """
    if isinstance(value, bool):
        return kind is bool
    if isinstance(value, int) and kind is float:
        return abs(value) <= sys.float_info.max
    if isinstance(value, int) and kind is int:
        return -(2**63) <= value < 2**63
    return kind in _PLAIN and isinstance(value, kind)


def _inside(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _named(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
