"""Whatever is done to a file's bytes: it is read or refused in a sentence, the store is whole."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from ingest.reading import ingest
from perfpipe.errors import PerfpipeError
from perfpipe.store import Store
from perfpipe.verify import verify

ROUNDS = 40


def _damaged(content: bytes, chance: random.Random) -> bytes:
    data = bytearray(content)
    at = chance.randrange(len(data))
    match chance.choice(["flip", "zero", "cut", "repeat", "swap", "insert"]):
        case "flip":
            for _ in range(chance.choice([1, 5, 50, 500])):
                data[chance.randrange(len(data))] = chance.randrange(256)
        case "zero":
            data[at : at + 4096] = bytes(chance.choice([16, 4096]))
        case "cut":
            del data[at:]
        case "repeat":
            data[at:at] = data[at : at + chance.choice([10, 1000, 100_000])]
        case "swap":
            other = chance.randrange(len(data))
            data[at : at + 512], data[other : other + 512] = (
                data[other : other + 512],
                data[at : at + 512],
            )
        case "insert":
            data[at:at] = chance.choice([b'"', b"\n", b",", b"\0", b"\xff\xfe", "é".encode()])
    return bytes(data)


@pytest.mark.parametrize(
    "name",
    [
        "nsys/memcpy.sqlite",
        "nsys/graph_whole.sqlite",
        "ncu/live_stdout.csv",
        "ncu/visible.details.csv",
        "ncu/visible.source.csv",
    ],
)
def test_damaged_bytes(name: str, expand: Callable[[str], Path], tmp_path: Path) -> None:
    content = expand(name).read_bytes()
    chance = random.Random(name)
    store = Store(tmp_path / "store")
    refused = 0
    for _ in range(ROUNDS):
        path = tmp_path / "input"
        path.write_bytes(_damaged(content, chance))
        try:
            ingest(path, store)
        except PerfpipeError as error:
            refused += 1
            assert str(error)
    assert refused
    assert store.leftovers() == []
    assert [fault for _, fault in verify(store) if fault] == []


@pytest.mark.parametrize("name", ["nsys/graph_whole.sqlite", "nsys/memcpy.sqlite"])
def test_damaged_text(name: str, expand: Callable[[str], Path], tmp_path: Path) -> None:
    """Bytes that are no UTF-8 within names and values."""
    content = expand(name).read_bytes()
    store = Store(tmp_path / "store")
    for word in (b"EXPORT_SCHEMA_VERSION", b"NVIDIA H200", b"CREATE TABLE", b"StringIds"):
        path = tmp_path / "input"
        path.write_bytes(content.replace(word, word[:-2] + b"\xe4\x92"))
        try:
            ingest(path, store)
        except PerfpipeError as error:
            assert str(error)
    assert [fault for _, fault in verify(store) if fault] == []
