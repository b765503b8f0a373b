from __future__ import annotations

import gzip
import lzma
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import zstandard

from perfpipe.errors import InputError
from perfpipe.ingest import compressed
from perfpipe.ingest.compressed import chunks, compression_of

PACK: dict[str, Callable[[bytes], bytes]] = {
    "xz": partial(lzma.compress, preset=0),
    "gz": gzip.compress,
    "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}
CONTENT = random.Random(1).randbytes(800_000)


@pytest.mark.parametrize("kind", PACK)
def test_content_tells_the_compression(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "no-suffix"
    path.write_bytes(PACK[kind](CONTENT))
    assert compression_of(path) == kind
    assert b"".join(chunks(path)) == CONTENT


@pytest.mark.parametrize("kind", PACK)
def test_concatenated_streams_are_one_content(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "twice"
    path.write_bytes(PACK[kind](CONTENT) + PACK[kind](b"end"))
    assert b"".join(chunks(path)) == CONTENT + b"end"


@pytest.mark.parametrize("kind", PACK)
@pytest.mark.parametrize("kept", [0.1, 0.5, 0.99])
def test_truncated_data_is_refused(kind: str, kept: float, tmp_path: Path) -> None:
    packed = PACK[kind](CONTENT)
    path = tmp_path / "cut"
    path.write_bytes(packed[: int(len(packed) * kept)])
    with pytest.raises(InputError, match=r"truncated|damaged"):
        list(chunks(path))


@pytest.mark.parametrize("kind", PACK)
def test_damaged_data_is_refused(kind: str, tmp_path: Path) -> None:
    packed = bytearray(PACK[kind](CONTENT))
    packed[len(packed) // 2 : len(packed) // 2 + 64] = bytes(64)
    path = tmp_path / "damaged"
    path.write_bytes(packed)
    with pytest.raises(InputError, match=r"damaged|truncated"):
        list(chunks(path))


@pytest.mark.parametrize("kind", PACK)
def test_a_bomb_is_refused_before_it_fills_the_disk(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressed, "HARMLESS_BYTES", 1 << 20)
    path = tmp_path / "bomb"
    path.write_bytes(PACK[kind](bytes(64 << 20)))
    total = 0
    with pytest.raises(InputError, match="expands to more than"):
        for piece in chunks(path):
            total += len(piece)
    assert total < 64 << 20
