"""Frozen dataclasses from JSON, checked against the types of the fields."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
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


class _Misfit(ValueError):
    """A value that does not fit; `steps`, names and positions, lead to it from the inside out."""

    def __init__(self, why: str, *steps: str | int) -> None:
        super().__init__(why)
        self.steps = [*steps]

    @property
    def place(self) -> str:
        """Where the value is, such as tasks[3].label; empty for the whole."""
        named = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.steps[::-1])
        return "".join(named).removeprefix(".")


def decode(kind: Any, value: Any) -> Any:
    """Return a JSON value as `kind`: a dataclass, tuple, dict, plain type, or a union of them.

    Keys without a field are ignored, and fields without a key get their default.  Raises ValueError
    with the place of a value that does not fit.
    """
    try:
        return _decoder(kind)(value)
    except _Misfit as misfit:
        raise ValueError(f"{misfit.place or 'the value'} {misfit}") from None


@cache
def _decoder(kind: Any) -> Callable[[Any], Any]:
    """Return the function that decodes values of a type.

    It is made once per type: stores have thousands of records.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _union_decoder(arguments)
    if origin is tuple:
        return _tuple_decoder(arguments[0])
    if origin is dict:
        return _dict_decoder(arguments[1])
    if is_dataclass(kind):
        return _class_decoder(kind)

    def plain(value: Any) -> Any:
        return value if _fits(kind, value) else _refuse(value)

    return plain


def _refuse(value: Any) -> Any:
    raise _Misfit(f"is {_named(value)}")


def _inside(step: str | int, decoder: Callable[[Any], Any], value: Any) -> Any:
    try:
        return decoder(value)
    except _Misfit as misfit:
        misfit.steps.append(step)
        raise


def _union_decoder(kinds: tuple[Any, ...]) -> Callable[[Any], Any]:
    plain = [kind for kind in kinds if kind in _PLAIN]
    composed = [kind for kind in kinds if kind not in _PLAIN]
    compose = _decoder(composed[0]) if composed else _refuse

    def union(value: Any) -> Any:
        if any(_fits(kind, value) for kind in plain):
            return value
        return _refuse(value) if value is None else compose(value)

    return union


def _tuple_decoder(kind: Any) -> Callable[[Any], Any]:
    inner = _decoder(kind)

    def items(value: Any) -> Any:
        if not isinstance(value, list):
            return _refuse(value)
        # Thousands of samples are checked together.
        if kind in (float, str) and {*map(type, value)} == {kind}:
            return tuple(value)
        return tuple(_inside(number, inner, item) for number, item in enumerate(value))

    return items


def _dict_decoder(kind: Any) -> Callable[[Any], Any]:
    inner = _decoder(kind)

    def items(value: Any) -> Any:
        if not isinstance(value, dict):
            return _refuse(value)
        return {key: _inside(key, inner, item) for key, item in value.items()}

    return items


def _class_decoder(kind: Any) -> Callable[[Any], Any]:
    if issubclass(kind, Stated):
        return lambda value: kind.of(value) if isinstance(value, dict) else _refuse(value)
    types, own = types_of(kind), fields(kind)
    parts = [(part.name, _decoder(types[part.name])) for part in own]
    optional = {
        part.name
        for part in own
        if part.default is not MISSING or part.default_factory is not MISSING
    }

    def members(value: Any) -> Any:
        if not isinstance(value, dict):
            return _refuse(value)
        for name, _ in parts:
            if name not in value and name not in optional:
                raise _Misfit("is missing", name)
        return kind(
            **{name: _inside(name, inner, value[name]) for name, inner in parts if name in value}
        )

    return members


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


def _named(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
