"""Pickles are read without executing them, in time and memory proportional to their size."""

from __future__ import annotations

import collections
import copyreg
import math
import pickle
import pickletools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpipe.errors import InputError
from perfpipe.ingest.unpickling import read_plain

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=()))
    | st.binary()
)
_KEYS = st.text() | st.integers(-(2**40), 2**40) | st.none() | st.binary(max_size=4)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(_KEYS, inner, max_size=4)
    ),
    max_leaves=30,
)


class _Thing:
    """A class that a pickle would have to import."""

    def __init__(self, value: int = 0) -> None:
        self.value = value

    def __reduce_ex__(self, protocol: Any) -> Any:
        return object.__reduce_ex__(self, protocol)


class _Persistent(pickle.Pickler):
    def persistent_id(self, obj: object) -> str | None:
        return "storage 0" if isinstance(obj, _Thing) else None


@pytest.fixture(name="read")
def _read(tmp_path: Path) -> Any:
    def read(data: bytes) -> object:
        path = tmp_path / "a.pickle"
        path.write_bytes(data)
        return read_plain(path, path)

    return read


def refusal(read: Any, data: bytes) -> str:
    """Return the sentence that refuses a pickle, without its path."""
    with pytest.raises(InputError) as error:
        read(data)
    sentence = str(error.value)
    assert "\n" not in sentence
    return sentence.partition("a.pickle: ")[2]


@settings(max_examples=300, deadline=None)
@given(value=_VALUES, protocol=st.integers(0, 5), twice=st.booleans())
def test_plain_values(tmp_path_factory: Any, value: Any, protocol: int, twice: bool) -> None:
    value = [value, value] if twice else value
    path = tmp_path_factory.getbasetemp() / "plain.pickle"
    raw: Any = value
    try:
        data = pickle.dumps(raw, protocol)
    except UnicodeEncodeError:
        return
    if b"_codecs" in data or b"__builtin__" in data:
        # Protocols below 3 have no bytes; Python stores a call that makes them.
        return
    path.write_bytes(data)
    assert read_plain(path, path) == value


def test_many_references(read: Any) -> None:
    """Over 255 memoized values take longer references, alone and in rows."""
    frames = [{"filename": f"{number}.py", "line": number} for number in range(600)]
    value = [[frames[(3 * row + number) % 600] for number in range(40)] for row in range(200)]
    for protocol in (2, 4, 5):
        assert read(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "value", [_Thing(3), collections.OrderedDict(a=1), len, complex(1, 2), range(3), _Thing]
)
def test_objects_are_refused_by_name(read: Any, value: Any, protocol: int) -> None:
    sentence = refusal(read, pickle.dumps(value, protocol))
    assert "the pickle needs " in sentence
    named = getattr(value, "__qualname__", type(value).__qualname__)
    assert named in sentence or "copyreg" in sentence or "copy_reg" in sentence


def test_a_program_in_a_pickle_does_not_run(read: Any, tmp_path: Path) -> None:
    made = tmp_path / "made"
    for data in (
        b"cos\nmkdir\n(S'" + str(made).encode() + b"'\ntR.",
        b"(cos\nmkdir\nV" + str(made).encode() + b"\no.",
        b"(V" + str(made).encode() + b"\nios\nmkdir\n.",
        pickle.PROTO + b"\x04\x8c\x02os\x8c\x05mkdir\x93\x8c\x04made\x85R.",
    ):
        assert refusal(read, data).startswith("the pickle needs os.mkdir, ")
        assert not made.exists()


def test_what_is_not_in_the_pickle(read: Any, tmp_path: Path) -> None:
    with (tmp_path / "p").open("wb") as file:
        _Persistent(file, 2).dump([_Thing()])
    assert "an object that is not in it (BINPERSID)" in refusal(read, (tmp_path / "p").read_bytes())
    copyreg.add_extension(__name__, "_Thing", 240)
    try:
        assert "a registered extension (EXT1)" in refusal(read, pickle.dumps(_Thing, 2))
    finally:
        copyreg.remove_extension(__name__, "_Thing", 240)
    assert "NEXT_BUFFER" in refusal(read, b"\x80\x05\x97.")


def test_every_other_opcode_is_refused(read: Any) -> None:
    """What is not plain is refused before its arguments are used."""
    refused = {
        "GLOBAL", "STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "REDUCE", "BUILD", "PERSID",
        "BINPERSID", "EXT1", "EXT2", "EXT4", "NEXT_BUFFER", "READONLY_BUFFER", "BYTEARRAY8",
        "EMPTY_SET", "ADDITEMS", "FROZENSET", "STRING", "BINSTRING", "SHORT_BINSTRING", "DUP",
    }  # fmt: skip
    found = set()
    for opcode in pickletools.opcodes:
        sentence = refusal(read, opcode.code.encode("latin-1") + b"\n\n" + bytes(20))
        if sentence.startswith("the pickle needs"):
            found.add(opcode.name)
    assert found == refused


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_every_truncation(read: Any, protocol: int) -> None:
    value = {"segments": [{"a": 1.5, "b": [None, True, 2**40]}] * 2, "text": "é" * 3}
    data = pickle.dumps(value, protocol)
    for end in range(len(data)):
        assert refusal(read, data[:end]) == "truncated pickle"


@settings(max_examples=500, deadline=None)
@given(data=st.data())
def test_damage(tmp_path_factory: Any, data: st.DataObject) -> None:
    """A changed pickle is read or refused, in one sentence."""
    value = {"a": [1, 2.5, "x" * 300], "b": ({"c": None}, [True, 300, 70000]), 3: b"y"}
    raw = bytearray(pickle.dumps([value, value], data.draw(st.integers(0, 5))))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.pickle"
    path.write_bytes(raw)
    try:
        read_plain(path, path)
    except InputError as error:
        assert "\n" not in str(error)


def nested(levels: int, pair: bytes) -> bytes:
    """Return a pickle whose value refers to each level of itself twice."""
    value = b"]q\x00"
    for level in range(1, levels):
        value += b"0" + pair.replace(b"?", bytes([level - 1])) + b"q" + bytes([level])
    return b"\x80\x02" + value + b"."


@pytest.mark.parametrize("pair", [b"(h?h?t", b"h?h?\x86", b"(h?h?l", b"(Va\nh?Vb\nh?d"])
def test_values_that_double(read: Any, pair: bytes) -> None:
    assert read(nested(8, pair))
    assert "stand for too many values" in refusal(read, nested(60, pair))


def test_keys_that_take_exponential_time(read: Any) -> None:
    tuples = nested(60, b"h?h?\x86")[2:-1]
    sentence = refusal(read, b"\x80\x02}" + tuples + b"K\x01s.")
    assert sentence == "a dictionary in the pickle has a key of type tuple"


def test_sizes_that_are_claimed(read: Any) -> None:
    """A claimed size allocates nothing."""
    for data in (
        b"B\xff\xff\xff\xff",
        b"\x8e" + b"\xff" * 8,
        b"\x8d" + b"\xff" * 8,
        b"X\xff\xff\xff\xff",
    ):
        assert refusal(read, b"\x80\x05" + data + b".") == "truncated pickle"
    assert read(b"\x80\x05Nr\xff\xff\xff\xff.") is None
    assert "an integer of 4,294,967,295 bytes" in refusal(read, b"\x80\x05\x8b\xff\xff\xff\xff.")
    assert "a number of 10,000 characters" in refusal(read, b"I" + b"9" * 10_000 + b"\n.")
    assert "a number of 10,000 characters" in refusal(read, b"g" + b"9" * 10_000 + b"\n.")


def test_depth_and_cycles(read: Any) -> None:
    deep: list[Any] = []
    for _ in range(99):
        deep = [deep]
    assert read(pickle.dumps(deep)) == deep
    assert "over 100 deep" in refusal(read, pickle.dumps([[deep]]))
    assert "over 100 deep" in refusal(read, b"]" * 100_000 + b"a" * 99_999 + b".")
    cycle: list[Any] = []
    cycle.append({"a": (cycle,)})
    assert refusal(read, pickle.dumps(cycle)) == "a value in the pickle contains itself"
    own: dict[str, Any] = {}
    own["a"] = own
    assert refusal(read, pickle.dumps(own)) == "a value in the pickle contains itself"


def test_a_machine_that_ends_with_other_than_one_value(read: Any) -> None:
    for data in (b".", b"NN.", b"(N."):
        assert refusal(read, data).startswith("damaged pickle")
    assert refusal(read, b"") == "truncated pickle"
    assert refusal(read, b"%PDF-1.4").startswith("not a pickle (byte 0 is 0x25)")
    assert "pickle protocol 9" in refusal(read, b"\x80\x09N.")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read given\.xz: No such file"):
        read_plain(tmp_path / "none", Path("given.xz"))


def test_numbers_of_protocol_0(read: Any) -> None:
    assert read(b"(lp0\nI00\naI01\naI7\naL8L\naF1.5\naV\\u00e9\na.") == [
        False,
        True,
        7,
        8,
        1.5,
        "é",
    ]
    assert math.isnan(read(pickle.dumps(math.nan)))
