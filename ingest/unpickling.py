"""Reads pickles of plain values, and executes nothing that a pickle asks for.

A pickle is a program for a small machine.  This machine knows only the opcodes that make numbers,
texts, bytes, lists, tuples and dictionaries; https://docs.python.org/3/library/pickletools.html
documents each of them.
"""

from __future__ import annotations

import pickle
import pickletools
import re
import struct
from collections.abc import Callable, Collection
from itertools import repeat
from pathlib import Path
from typing import Any

from perfpipe.errors import InputError, brief

#: Containers may be inside each other to this depth, so that readers can be recursive.
_DEEPEST = 100

#: Values that references to shared containers stand for, per byte of the pickle.  PyTorch shares
#: frames: a reference of two bytes or more stands for a frame of four values.
_VALUES_PER_BYTE = 32

#: A smaller pickle may stand for this many values.
_VALUES = 100_000

#: Longest integer, bytes: 64 bits and a sign.  It also bounds the time to hash and compare keys.
_LONGEST_INTEGER = 9

#: Longest line with a number in protocol 0, characters.
_LONGEST_LINE = 40

#: Types of dictionary keys: hashing a tuple of shared tuples would take exponential time.
_KEYS = frozenset({str, int, bool, bytes, type(None)})

_CONTAINERS = (list, tuple, dict)

#: References to memoized values in a row.
_GETS = re.compile(rb"(?:j.{4})+", re.DOTALL)
_GET_NUMBERS = struct.Struct("<xI")


class _Refused(Exception):
    """The pickle is damaged, or asks for more than plain values; the words follow its path."""


def read_plain(content: Path, named: Path) -> object:
    """Return the value of a pickle of None, bool, int, float, str, bytes, list, tuple and dict.

    The user calls the file `named`; `content` may be a decompressed copy.

    Time and memory are proportional to the size of the file, also for a reader that visits a shared
    container as often as it is referred to: such visits number at most 32 per byte.  Containers are
    at most 100 deep, and none contains itself.  Raises InputError with one sentence if the file
    needs anything else (a class, a function), is truncated, or cannot be read.
    """
    try:
        data = content.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {named}: {error.strerror or error}") from error
    try:
        value = _Machine(data).run()
        _check_size(value, _VALUES + _VALUES_PER_BYTE * len(data))
    except _Refused as error:
        raise InputError(f"{named}: {error}") from error
    return value


class _Machine:
    """A stack, the stacks below its marks, and the memo of values that are referred to again."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> object:
        """Execute the opcodes up to STOP, and return the value on the stack."""
        data, steps = self.data, _STEPS
        try:
            while (code := data[self.at]) != pickle.STOP[0]:
                self.at += 1
                steps[code](self)
            if self.below or len(self.stack) != 1:
                raise _Refused("damaged pickle (its end leaves more or less than one value)")
        except IndexError as error:
            if self.at >= len(data):
                raise _Refused("truncated pickle") from error
            raise self._damaged(error) from error
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise self._damaged(error) from error
        return self.stack[0]

    def _damaged(self, error: Exception) -> _Refused:
        return _Refused(f"damaged pickle at byte {self.at:,} ({brief(error)})")

    def take(self, size: int) -> bytes:
        """Return the next bytes, which belong to an opcode."""
        start, self.at = self.at, self.at + size
        if self.at > len(self.data):
            raise _Refused("truncated pickle")
        return self.data[start : self.at]

    def number(self, size: int) -> int:
        """Return the next bytes as a number without a sign."""
        return int.from_bytes(self.take(size), "little")

    def line(self) -> bytes:
        """Return the rest of a line."""
        end = self.data.find(b"\n", self.at)
        if end < 0:
            raise _Refused("truncated pickle")
        start, self.at = self.at, end + 1
        return self.data[start:end]

    def short_line(self) -> str:
        """Return a line with a number."""
        line = self.line()
        if len(line) > _LONGEST_LINE:
            raise _Refused(f"a number of {len(line):,} characters is in the pickle")
        return line.decode("ascii")

    def since_mark(self) -> list[Any]:
        """Return the values above the last mark, and remove the mark."""
        values, self.stack = self.stack, self.below.pop()
        return values


def _integer(machine: _Machine, size: int) -> int:
    if size > _LONGEST_INTEGER:
        raise _Refused(f"an integer of {size:,} bytes is in the pickle")
    return int.from_bytes(machine.take(size), "little", signed=True)


def _int(text: str) -> int:
    """Return the value of INT, which also stands for false (00) and true (01)."""
    return text == "01" if text in {"00", "01"} else _decimal(text)


def _decimal(text: str) -> int:
    value = int(text)
    if value.bit_length() > 8 * _LONGEST_INTEGER:
        raise _Refused(f"the integer {text} is in the pickle")
    return value


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")


def _mark(machine: _Machine) -> None:
    machine.below.append(machine.stack)
    machine.stack = []


def _memoize(machine: _Machine) -> None:
    machine.memo[len(machine.memo)] = machine.stack[-1]


def _put(number: Callable[[_Machine], int]) -> Callable[[_Machine], None]:
    def step(machine: _Machine) -> None:
        machine.memo[number(machine)] = machine.stack[-1]

    return step


def _get(machine: _Machine) -> None:
    # Over half of the opcodes of a PyTorch snapshot are this one.
    machine.stack.append(machine.memo[machine.data[machine.at]])
    machine.at += 1


def _small(machine: _Machine) -> None:
    machine.stack.append(machine.data[machine.at])
    machine.at += 1


def _long_gets(machine: _Machine) -> None:
    """Push memoized values for all references in a row: lists of frames consist of them."""
    row = _GETS.match(machine.data, machine.at - 1)
    if row is None:
        raise _Refused("truncated pickle")
    machine.at = row.end()
    memo = machine.memo
    machine.stack += [memo[number] for (number,) in _GET_NUMBERS.iter_unpack(row[0])]


def _append(machine: _Machine) -> None:
    value = machine.stack.pop()
    _extend(machine, [value])


def _appends(machine: _Machine) -> None:
    values = machine.since_mark()
    _extend(machine, values)


def _extend(machine: _Machine, values: list[Any]) -> None:
    top = machine.stack[-1]
    if type(top) is not list:
        raise TypeError(f"an item is added to {type(top).__name__}")
    top += values


def _set_item(machine: _Machine) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    _update(machine, [key, value])


def _set_items(machine: _Machine) -> None:
    values = machine.since_mark()
    _update(machine, values)


def _update(machine: _Machine, values: list[Any]) -> None:
    top = machine.stack[-1]
    if type(top) is not dict:
        raise TypeError(f"a key is added to {type(top).__name__}")
    keys = values[::2]
    if not _KEYS.issuperset(map(type, keys)):
        kind = next(type(key).__name__ for key in keys if type(key) not in _KEYS)
        raise _Refused(f"a dictionary in the pickle has a key of type {kind}")
    top.update(zip(keys, values[1::2], strict=True))


def _list(machine: _Machine) -> None:
    values = machine.since_mark()
    machine.stack.append(values)


def _dict(machine: _Machine) -> None:
    values = machine.since_mark()
    machine.stack.append({})
    _update(machine, values)


def _marked_tuple(machine: _Machine) -> None:
    values = machine.since_mark()
    machine.stack.append(tuple(values))


def _tuple(size: int) -> Callable[[_Machine], None]:
    def step(machine: _Machine) -> None:
        values = tuple(machine.stack[-size:])
        if len(values) < size:
            raise IndexError("no value on the stack")
        machine.stack[-size:] = [values]

    return step


def _push(value: Callable[[_Machine], object]) -> Callable[[_Machine], None]:
    def step(machine: _Machine) -> None:
        machine.stack.append(value(machine))

    return step


def _protocol(machine: _Machine) -> None:
    version = machine.number(1)
    if version > pickle.HIGHEST_PROTOCOL:
        raise _Refused(f"pickle protocol {version}; perfpipe reads up to {pickle.HIGHEST_PROTOCOL}")


_NAMED = {opcode.code.encode("latin-1")[0]: opcode for opcode in pickletools.opcodes}


def _refuse(code: int) -> Callable[[_Machine], None]:
    """Return the step of an opcode that no plain value needs."""

    def step(machine: _Machine) -> None:
        if code not in _NAMED:
            raise _Refused(f"not a pickle (byte {machine.at - 1:,} is 0x{code:02x})")
        named = _named(machine, code)
        raise _Refused(
            f"the pickle needs {named}, and perfpipe reads only numbers, texts, lists and "
            "dictionaries from a pickle"
        )

    return step


def _named(machine: _Machine, code: int) -> str:
    """Return what an opcode asks for: a name in a module if it has one."""
    opcode = bytes([code])
    if opcode in {pickle.GLOBAL, pickle.INST}:
        return brief(b".".join((machine.line(), machine.line())).decode("utf-8", "replace"))
    if opcode == pickle.STACK_GLOBAL and len(machine.stack) > 1:
        return brief(".".join(map(str, machine.stack[-2:])))
    if opcode in {pickle.PERSID, pickle.BINPERSID}:
        return f"an object that is not in it ({_NAMED[code].name})"
    if opcode in {pickle.EXT1, pickle.EXT2, pickle.EXT4}:
        return f"a registered extension ({_NAMED[code].name})"
    return f"the operation {_NAMED[code].name}"


_PLAIN: dict[bytes, Callable[[_Machine], object]] = {
    pickle.PROTO: _protocol,
    pickle.FRAME: lambda machine: machine.take(8),
    pickle.MARK: _mark,
    pickle.POP: lambda machine: machine.stack.pop(),
    pickle.POP_MARK: _Machine.since_mark,
    pickle.NONE: _push(lambda _: None),
    pickle.NEWTRUE: _push(lambda _: True),
    pickle.NEWFALSE: _push(lambda _: False),
    pickle.INT: _push(lambda machine: _int(machine.short_line())),
    pickle.LONG: _push(lambda machine: _decimal(machine.short_line().removesuffix("L"))),
    pickle.BININT: _push(lambda machine: _integer(machine, 4)),
    pickle.BININT1: _small,
    pickle.BININT2: _push(lambda machine: machine.number(2)),
    pickle.LONG1: _push(lambda machine: _integer(machine, machine.number(1))),
    pickle.LONG4: _push(lambda machine: _integer(machine, machine.number(4))),
    pickle.FLOAT: _push(lambda machine: float(machine.short_line())),
    pickle.BINFLOAT: _push(lambda machine: struct.unpack(">d", machine.take(8))[0]),
    pickle.UNICODE: _push(lambda machine: machine.line().decode("raw-unicode-escape")),
    pickle.SHORT_BINUNICODE: _push(lambda machine: _text(machine.take(machine.number(1)))),
    pickle.BINUNICODE: _push(lambda machine: _text(machine.take(machine.number(4)))),
    pickle.BINUNICODE8: _push(lambda machine: _text(machine.take(machine.number(8)))),
    pickle.SHORT_BINBYTES: _push(lambda machine: machine.take(machine.number(1))),
    pickle.BINBYTES: _push(lambda machine: machine.take(machine.number(4))),
    pickle.BINBYTES8: _push(lambda machine: machine.take(machine.number(8))),
    pickle.EMPTY_LIST: _push(lambda _: []),
    pickle.EMPTY_TUPLE: _push(lambda _: ()),
    pickle.EMPTY_DICT: _push(lambda _: {}),
    pickle.LIST: _list,
    pickle.TUPLE: _marked_tuple,
    pickle.TUPLE1: _tuple(1),
    pickle.TUPLE2: _tuple(2),
    pickle.TUPLE3: _tuple(3),
    pickle.DICT: _dict,
    pickle.APPEND: _append,
    pickle.APPENDS: _appends,
    pickle.SETITEM: _set_item,
    pickle.SETITEMS: _set_items,
    pickle.MEMOIZE: _memoize,
    pickle.PUT: _put(lambda machine: _decimal(machine.short_line())),
    pickle.BINPUT: _put(lambda machine: machine.number(1)),
    pickle.LONG_BINPUT: _put(lambda machine: machine.number(4)),
    pickle.GET: _push(lambda machine: machine.memo[_decimal(machine.short_line())]),
    pickle.BINGET: _get,
    pickle.LONG_BINGET: _long_gets,
}

_STEPS = [_PLAIN.get(bytes([code])) or _refuse(code) for code in range(256)]


def _check_size(value: object, most: int) -> None:
    """Raise _Refused for values that contain themselves, are too deep, or stand for over `most`.

    Each container is visited once, after its content; its size counts shared content each time.
    """
    sizes: dict[int, int] = {}
    path: list[Any] = [value] if isinstance(value, _CONTAINERS) else []
    above: set[int] = set()
    while path:
        top = path[-1]
        if id(top) in sizes:
            path.pop()
            continue
        items: Collection[Any] = top.values() if isinstance(top, dict) else top
        inside = {
            id(item): item for item in items if type(item) in _CONTAINERS and id(item) not in sizes
        }
        if not inside:
            path.pop()
            above.discard(id(top))
            sizes[id(top)] = 1 + sum(map(sizes.get, map(id, items), repeat(1)))
            if sizes[id(top)] > most:
                raise _Refused("references in the pickle stand for too many values")
            continue
        above.add(id(top))
        if len(above) > _DEEPEST:
            raise _Refused(f"values in the pickle are over {_DEEPEST} deep in each other")
        if not above.isdisjoint(inside):
            raise _Refused("a value in the pickle contains itself")
        path.extend(inside.values())
