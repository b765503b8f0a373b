"""Inputs that are made to take memory, time or disk: readers take no more than their size."""

from __future__ import annotations

import contextlib
import gzip
import json
import lzma
import os
import shutil
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from conftest import Cli

from perfpipe.errors import InputError, StoreError
from perfpipe.ingest import compressed, inputs
from perfpipe.ingest.arrays import STILL_OPEN, groups, present
from perfpipe.ingest.columns import Columns
from perfpipe.ingest.ncu.names import nvtx_path_from_csv, plain_message
from perfpipe.ingest.ncu.wire import varint
from perfpipe.ingest.nsys.ranges import START_END, Ranges, nesting
from perfpipe.ingest.reading import ingest
from perfpipe.ingest.torch import trace_json
from perfpipe.pipelines import ingesting
from perfpipe.pipelines.settings import read as read_settings
from perfpipe.store import Store

Expand = Callable[[str], Path]


# What takes long, or much memory, grows with the square of the input; these would take minutes.


def test_patterns_take_linear_time() -> None:
    assert nvtx_path_from_csv('"a' * 200_000 + "!") is None
    assert plain_message("@url:" * 200_000)
    assert plain_message("@section:a:" * 200_000)
    with pytest.raises(ValueError, match="more than ten bytes"):
        varint(b"\xff" * 1_000_000, 0)


def test_a_header_of_a_block_that_is_all_ones(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "ones.ncu-rep"
    path.write_bytes(b"NVR\0" + struct.pack("<I", 0) + struct.pack("<I", 1 << 20) + b"\xff" * 2**20)
    with pytest.raises(InputError, match="more than ten bytes"):
        ingest(path, store)


PACK: dict[str, Callable[[bytes], bytes]] = {
    "xz": lambda content: lzma.compress(content, preset=0),
    "gz": gzip.compress,
    "zst": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("kind", PACK)
def test_archives_expand_piece_by_piece(kind: str, tmp_path: Path) -> None:
    """However small the archive, no piece takes much memory."""
    path = tmp_path / "zeros"
    path.write_bytes(PACK[kind](bytes(64 << 20)))
    pieces = [len(piece) for piece in compressed.chunks(path)]
    assert sum(pieces) == 64 << 20
    assert max(pieces) <= 32 << 20


def test_an_archive_does_not_fill_the_disk(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "large.sqlite.gz"
    path.write_bytes(gzip.compress(b"SQLite format 3\0" + bytes(64 << 20), 1))
    free = shutil.disk_usage(tmp_path)._replace(free=inputs.SPARED_BYTES - 1)
    monkeypatch.setattr("perfpipe.ingest.inputs.shutil.disk_usage", lambda _: free)
    with pytest.raises(StoreError, match="not enough space to decompress"):
        ingest(path, store)
    assert store.leftovers() == []


def test_a_small_table_of_any_number_of_rows(expand: Expand, tmp_path: Path, store: Store) -> None:
    """Parquet states equal rows in a few bytes."""
    directory = tmp_path / "export"
    shutil.copytree(expand("nsys/gpumetrics_parquetdir"), directory, copy_function=shutil.copyfile)
    file = directory / "ThreadNames.parquet"
    names = pq.read_schema(file).names
    equal = pa.array(np.broadcast_to(np.int64(7), 3_000_000))
    pq.write_table(pa.table(dict.fromkeys(names, equal)), file)
    assert file.stat().st_size < 50_000
    with pytest.raises(InputError, match=r"ThreadNames.parquet is damaged .*3,000,000 rows in"):
        ingest(directory, store)


def test_ranges_nested_deeply_or_all_over_one_another() -> None:
    """They take milliseconds; a step for each level, or a look at each pair, took a minute."""
    count = 100_000
    start = np.arange(count)
    nested = np.ones(count, bool)
    depth, parent = nesting(start, 2 * count - start, np.zeros(count, np.int32), nested, Columns())
    assert (depth == start).all()
    assert (parent == start - 1).all()
    one, none = np.zeros(count, np.int32), np.full(count, -1, np.int32)
    for end in (start + count, np.full(count, STILL_OPEN)):
        ranges = Ranges(
            start=start, end=end, style=np.full(count, START_END, np.int8), thread=one,
            threads=[(1, 1)], name=one, names=["r"], domain=one, domains=[None],
            end_thread=none, category=none, categories=[],
        )  # fmt: skip
        # The earlier one ends first, unless none ends.
        alone = end[0] != end[1]
        assert (ranges.level == (0 if alone else start)).all()


def test_groups_of_any_codes() -> None:
    """A code as large as can be takes no memory of its own."""
    codes = np.array([2**40, 3, 2**40, 7])
    assert [(code, rows.tolist()) for code, rows in groups(codes)] == [
        (3, [1]), (7, [3]), (2**40, [0, 2]),
    ]  # fmt: skip
    assert len(present(codes)) == 3


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as own:
        own.bind(path.name)


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


ODD = pytest.mark.parametrize("make", [_fifo, _socket, _device])


@ODD
@pytest.mark.parametrize("table", ["ThreadNames", "StringIds", "OTHER"])
def test_tables_that_are_no_files(
    make: Callable[[Path], None], table: str, expand: Expand, tmp_path: Path, store: Store
) -> None:
    """They would have no end."""
    directory = tmp_path / "export"
    shutil.copytree(expand("nsys/gpumetrics_parquetdir"), directory, copy_function=shutil.copyfile)
    path = directory / f"{table}.parquet"
    path.unlink(missing_ok=True)
    with contextlib.chdir(directory):
        make(path)
    with pytest.raises(InputError, match=rf"(cannot read .*{table}|not an nsys parquetdir)"):
        ingest(directory, store)
    assert store.leftovers() == []


@ODD
def test_inputs_that_are_no_files(make: Callable[[Path], None], cli: Cli, tmp_path: Path) -> None:
    make(tmp_path / "capture.sqlite")
    assert cli("ingest", tmp_path / "capture.sqlite") == 2
    assert "capture.sqlite: " in cli.err


@ODD
def test_workloads_and_settings_that_are_no_files(
    make: Callable[[Path], None], cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make(Path("own.yaml"))
    assert cli("run", "own.yaml") == 2
    assert "cannot read" in cli.err
    make(Path("own.toml"))
    with pytest.raises(InputError, match="cannot read"):
        read_settings(Path("own.toml"))


def test_a_file_without_data_yet_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = SimpleNamespace(read=lambda _: None)
    monkeypatch.setattr(
        "perfpipe.ingest.compressed.reading", lambda _: contextlib.nullcontext(nothing)
    )
    assert compressed.compression_of(Path("kmsg")) is None
    assert list(compressed.chunks(Path("kmsg"))) == []


@ODD
@pytest.mark.parametrize("name", ["manifest.json", "launches.parquet"])
def test_reports_with_files_that_are_none(
    make: Callable[[Path], None],
    name: str,
    stored: Callable[..., list[str]],
    store: Store,
    cli: Cli,
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole, odd = stored("nsys/memcpy.sqlite", "nsys/h2d.sqlite")
    path = store.reports_dir / odd / name
    path.unlink()
    with contextlib.chdir(path.parent):
        make(path)
    assert cli("query", "SELECT report_id FROM reports", "--format", "csv") == 0, cli.err
    assert cli.out == f"report_id\n{whole}\n"
    assert f"report {odd} is skipped: " in caplog.text
    assert "not a regular file" in caplog.text or "No such device" in caplog.text
    assert cli("store", "verify") == 2


def test_a_value_of_a_trace_has_a_length(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_json, "_LONGEST", 4 << 20)
    path, long = tmp_path / "long.json", "x" * (20 << 20)
    event = {"ph": "X", "cat": "kernel", "name": long, "pid": 0, "tid": 7, "ts": 1}
    for member in ({}, {"user": long}, {long: 1}):
        path.write_text(json.dumps({"schemaVersion": 1, **member, "traceEvents": [event]}))
        with pytest.raises(InputError, match="a value has more than 4,194,304 characters"):
            ingest(path, store)


def test_a_reader_has_a_share_of_the_memory(
    expand: Expand, cli: Cli, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a reader takes in any case counts here too.
    monkeypatch.setattr(ingesting, "OWN_BYTES", 0)
    capture = expand("nsys/memcpy.sqlite")
    assert cli("ingest", capture, "--memory", "10MB") == 1
    assert (
        "reading takes too much memory; nothing was stored (raise --memory or PERFPIPE_MEMORY)"
        in cli.err
    )
    assert store.report_ids() == []
    assert store.leftovers() == []
    assert cli("ingest", capture, "--memory", "2GB") == 0
