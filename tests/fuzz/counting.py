"""Counts the rows of an input without perfpipe's readers, and what of them is in the store."""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import zstandard

from perfpipe.manifest import Manifest

#: Tables of the store, by the tables of an export that they are made from.
_TABLES = {
    "nsys_kernels": ("CUPTI_ACTIVITY_KIND_KERNEL",),
    "nsys_memory_ops": ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"),
    "nsys_api_calls": ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUBLAS_EVENTS", "CUDNN_EVENTS"),
    "nsys_syncs": ("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",),
    "nsys_osrt": ("OSRT_API",),
    "nsys_gpu_metrics": ("GPU_METRICS",),
    "nsys_memory_usage": ("CUDA_GPU_MEMORY_USAGE_EVENTS",),
}

_LEFT_OUT = re.compile(r"([\d,]+) of [\d,]+ rows of (\w+|\[memory\] events) .*they were skipped$")
_MARKS_AND_RANGES = {34, 59, 60, 70, 71}
_NO_RANGES = {32, 33, 39, 64, 72, 73, 74, 75, 76, 97, 98, 99}
Differences = list[str]


def differences(path: Path, manifest: Manifest) -> Differences:
    """Return where the rows of a report, with those that it says it left out, do not add up."""
    check = _CHECKS.get(manifest.format)
    return check(path, manifest) if check else []


def _stored(manifest: Manifest, table: str) -> int:
    return manifest.tables[table].rows if table in manifest.tables else 0


def _left_out(manifest: Manifest, *sources: str) -> int:
    found = (_LEFT_OUT.match(text) for text in manifest.warnings)
    return sum(int(m[1].replace(",", "")) for m in found if m and m[2] in sources)


def _compared(what: str, there: int, stored: int, left_out: int) -> Differences:
    if there == stored + left_out:
        return []
    return [f"{what}: {there} in the input, {stored} stored, {left_out} said to be left out"]


def _content(path: Path) -> bytes:
    content = path.read_bytes()
    if content.startswith(b"\xfd7zXZ"):
        return lzma.decompress(content.rstrip(b"\0"))
    if content.startswith(b"\x1f\x8b"):
        return gzip.decompress(content)
    if content.startswith(b"\x28\xb5\x2f\xfd"):
        reader = zstandard.ZstdDecompressor().stream_reader(content, read_across_frames=True)
        return reader.read()
    return content


def _exported(count: Callable[[str], int], events: list[Any], manifest: Manifest) -> Differences:
    found = []
    for table, sources in _TABLES.items():
        there = sum(map(count, sources))
        left_out = _left_out(manifest, *sources)
        found += _compared(table, there, _stored(manifest, table), left_out)
    there = sum(kind not in _NO_RANGES for kind in events)
    left_out = _left_out(manifest, "NVTX_EVENTS")
    stored = _stored(manifest, "nsys_nvtx_ranges")
    return found + _compared("nsys_nvtx_ranges", there, stored, left_out)


def _sqlite(path: Path, manifest: Manifest) -> Differences:
    with closing(sqlite3.connect(":memory:")) as con:
        con.deserialize(_content(path))
        con.text_factory = bytes
        names = {name.decode() for (name,) in con.execute("SELECT name FROM sqlite_master")}

        def count(table: str) -> int:
            if table not in names:
                return 0
            (rows,) = con.execute(f'SELECT count(*) FROM "{table}" NOT INDEXED').fetchone()
            return int(rows)

        events = (
            [row[0] for row in con.execute("SELECT eventType FROM NVTX_EVENTS")]
            if "NVTX_EVENTS" in names
            else []
        )
        return _exported(count, events, manifest)


def _directory(path: Path, manifest: Manifest) -> Differences:
    def count(table: str) -> int:
        file = path / f"{table}.parquet"
        return pq.read_metadata(file).num_rows if file.exists() else 0

    file = path / "NVTX_EVENTS.parquet"
    columns = ["eventType"]
    events = pq.read_table(file, columns=columns)[0].to_pylist() if file.exists() else []
    return _exported(count, events, manifest)


def _csv(path: Path, manifest: Manifest) -> Differences:
    text = _content(path).decode("utf-8-sig", "replace")
    # What a program prints may stand before the header, also without a line break.
    text = text[max(text.find('"ID",'), 0) :]
    launches, last, header = 0, None, None
    for row in csv.reader(io.StringIO(text, newline="")):
        if row and row[0] == "ID":
            header, last = row, None
        elif header and 2 * len(row) > len(header) and row[0]:
            key = (row[1], row[0])
            launches += "Metric Name" not in header or key != last
            last = key
    return _compared("ncu_launches", launches, _stored(manifest, "ncu_launches"), 0)


def _kineto(path: Path, manifest: Manifest) -> Differences:
    content = _content(path)
    tables = ("nsys_kernels", "nsys_memory_ops", "nsys_api_calls", "nsys_nvtx_ranges")
    stored = sum(_stored(manifest, table) for table in tables)
    try:
        document = json.loads(content)
    except ValueError:
        # Events that are not JSON are repaired: there are at most as many as members `ph`.
        most = content.count(b'"ph"')
        return [f"traceEvents: at most {most} in the input, {stored} stored"] * (stored > most)
    every = document["traceEvents"] if isinstance(document, dict) else document
    events = [event for event in every if isinstance(event, dict)]
    whole = [event for event in events if event.get("ph") == "X"]
    read = {"kernel", "cuda_runtime", "cuda_driver", "gpu_memcpy", "gpu_memset"}
    read |= {"user_annotation", "cpu_op"}
    there = (
        len(every)
        - len(events)
        + sum(
            not isinstance(event.get("cat", ""), str) or event.get("cat") in read for event in whole
        )
    )
    found = _compared("traceEvents", there, stored, _left_out(manifest, "traceEvents"))
    there = sum(e.get("ph") == "i" and e.get("name") == "[memory]" for e in events)
    left_out = _left_out(manifest, "[memory] events")
    return found + _compared("torch_memory", there, _stored(manifest, "torch_memory"), left_out)


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _ncu_rep(path: Path, manifest: Manifest) -> Differences:
    """Count the results that the headers of blocks state: fields 2, 7, 8 and 9."""
    content = path.read_bytes()
    at = 4
    at += 4 + int.from_bytes(content[at : at + 4], "little")
    results = 0
    while at < len(content):
        end = at + 4 + int.from_bytes(content[at : at + 4], "little")
        at += 4
        first: dict[int, int] = {}
        while at < end:
            key, at = _varint(content, at)
            match key & 7:
                case 0:
                    value, at = _varint(content, at)
                    first.setdefault(key >> 3, value)
                case 2:
                    size, at = _varint(content, at)
                    at += size
                case kind:
                    at += {1: 8, 5: 4}[kind]
        results += sum(first.get(field, 0) for field in (2, 7, 8, 9))
        at = end + first.get(5, 0)
    return _compared("ncu_launches", results, _stored(manifest, "ncu_launches"), 0)


_CHECKS: dict[str, Callable[[Path, Manifest], Differences]] = {
    "nsys-sqlite": _sqlite,
    "nsys-parquetdir": _directory,
    "ncu-csv": _csv,
    "torch-kineto": _kineto,
    "ncu-rep": _ncu_rep,
}
