"""Whatever is done to a file's bytes: it is read or refused in a sentence, the store is whole."""

from __future__ import annotations

import lzma
import random
import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from perfpipe.analysis.session import Session
from perfpipe.errors import InputError, PerfpipeError
from perfpipe.ingest.ncu.wire import counted
from perfpipe.ingest.reading import ingest
from perfpipe.pipelines.ingesting import Failure, ingest_many
from perfpipe.store import Store
from perfpipe.verify import verify

ROUNDS = 40

#: Of inputs that take long to read, or whose readers crash.
FEW_ROUNDS = 15


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
    ("name", "rounds"),
    [
        ("nsys/memcpy.sqlite", FEW_ROUNDS),
        ("nsys/graph_whole.sqlite", FEW_ROUNDS),
        ("ncu/live_stdout.csv", ROUNDS),
        ("ncu/visible.details.csv", ROUNDS),
        ("ncu/visible.source.csv", FEW_ROUNDS),
    ],
)
def test_damaged_bytes(
    name: str, rounds: int, expand: Callable[[str], Path], tmp_path: Path
) -> None:
    content = expand(name).read_bytes()
    chance = random.Random(name)
    store = Store(tmp_path / "store")
    refused = 0
    for _ in range(rounds):
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


@pytest.mark.parametrize("name", ["ncu/pm.ncu-rep", "ncu/range.ncu-rep"])
def test_damaged_reports_of_a_vendors_reader(
    name: str, expand: Callable[[str], Path], tmp_path: Path
) -> None:
    """It may crash, so it does in a process of its own; ours never does."""
    content = expand(name).read_bytes()
    chance = random.Random(name)
    store = Store(tmp_path / "store")
    paths = [tmp_path / f"{index}.ncu-rep" for index in range(FEW_ROUNDS)]
    for path in paths:
        path.write_bytes(_damaged(content, chance))
    paths[0].write_bytes(b"NVR\0" + chance.randbytes(100_000))
    paths[1].write_bytes(b"NVR\0" + bytes(100_000))
    errors = [o.error for o in ingest_many(paths, store, jobs=1) if isinstance(o, Failure)]
    assert len(errors) > FEW_ROUNDS // 2
    for error in errors:
        assert re.fullmatch(r"\S+\.ncu-rep: [^\n]+", str(error))
        assert "damaged ()" not in str(error)
        # What Python exits with after an exception that nobody expected.
        assert "exit code 1)" not in str(error)
    assert store.leftovers() == []
    assert [fault for _, fault in verify(store) if fault] == []


def test_a_block_that_counts_more_than_it_holds(
    expand: Callable[[str], Path], tmp_path: Path, store: Store
) -> None:
    """The count is refused before there is memory for as much."""
    path = tmp_path / "counts.ncu-rep"
    header = counted(1, 2**60) + counted(5, 8)
    block = struct.pack("<I", len(header)) + header + bytes(8)
    path.write_bytes(expand("ncu/pm.ncu-rep").read_bytes() + block)
    with pytest.raises(InputError, match="the report is damaged"):
        ingest(path, store)


def test_damage_in_a_compressed_report_names_the_file(
    expand: Callable[[str], Path], tmp_path: Path, store: Store
) -> None:
    path = tmp_path / "cut.ncu-rep.xz"
    path.write_bytes(lzma.compress(expand("ncu/pm.ncu-rep").read_bytes()[:-9], preset=0))
    with pytest.raises(InputError, match="^" + re.escape(f"{path}: the report is truncated")):
        ingest(path, store)


def test_texts_of_a_report_that_are_no_utf_8(
    expand: Callable[[str], Path], tmp_path: Path, store: Store
) -> None:
    path = tmp_path / "text.ncu-rep"
    content = expand("ncu/pm.ncu-rep").read_bytes()
    name = b"device__attribute_async_engine_count"
    path.write_bytes(content.replace(name, name[:-1] + b"\xe4"))
    report = ingest(path, store).report_id
    with Session.open(store, [report]) as con:
        sql = "SELECT DISTINCT metric FROM ncu_metrics WHERE metric LIKE 'device%engine%'"
        assert con.execute(sql).fetchall() == [(name[:-1].decode() + "\ufffd",)]


def test_a_kernel_name_that_is_no_utf_8(
    expand: Callable[[str], Path], tmp_path: Path, store: Store
) -> None:
    path = tmp_path / "name.ncu-rep"
    path.write_bytes(expand("ncu/pm.ncu-rep").read_bytes().replace(b"copy_k(", b"copy\x80k("))
    report = ingest(path, store).report_id
    with Session.open(store, [report]) as con:
        sql = "SELECT count(*) FROM ncu_launches WHERE kernel_demangled LIKE 'copy\ufffdk(%'"
        assert con.execute(sql).fetchall() == [(1,)]


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
