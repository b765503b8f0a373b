"""Small whole inputs of each format, cut from the fixtures: what is mutated."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import sqlite3
import tarfile
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from allocator import MIB, Allocator, Training
from allocator import snapshot as snapshot_of
from hanging import RAS, Op, ddp, dumps_of

DATA = Path(__file__).parent.parent / "data"

#: Rows of a table that are left, and launches of a page.
ROWS, LAUNCHES = 30, 3


def _fixture(name: str) -> bytes:
    return lzma.decompress((DATA / f"{name}.xz").read_bytes())


@cache
def sqlite(name: str) -> bytes:
    """Return an export with few rows, without tables that are empty."""
    with closing(sqlite3.connect(":memory:")) as con:
        con.deserialize(_fixture(f"nsys/{name}.sqlite"))
        con.isolation_level = None
        for (table,) in con.execute("SELECT name FROM sqlite_master WHERE type = 'table'"):
            if table not in ("StringIds", "sqlite_sequence") and "ENUM" not in table:
                con.execute(f'DELETE FROM "{table}" WHERE rowid > {ROWS}')
        names = con.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in names:
            empty = not con.execute(f'SELECT 1 FROM "{table}" LIMIT 1').fetchone()
            if (empty and not table.startswith("CUPTI_ACTIVITY_KIND_MEM")) or "_ETW_" in table:
                con.execute(f'DROP TABLE "{table}"')
        con.execute("VACUUM")
        return con.serialize()


@cache
def parquetdir() -> dict[str, bytes]:
    """Return an export to a directory with few rows, by file name."""
    with tarfile.open(fileobj=io.BytesIO(_fixture("nsys/gpumetrics_parquetdir.tar"))) as archive:
        members = {
            Path(m.name).name: archive.extractfile(m).read()  # type: ignore[union-attr]
            for m in archive.getmembers()
            if m.isfile() and m.name.endswith(".parquet") and "_ETW_" not in m.name
        }
    found = {}
    for name, content in members.items():
        table = pq.read_table(io.BytesIO(content))
        keep = table.num_rows if name.startswith(("StringIds", "ENUM")) else ROWS
        target = io.BytesIO()
        pq.write_table(table.slice(0, keep), target)
        found[name] = target.getvalue()
    return found


@cache
def arrowdir() -> dict[str, bytes]:
    """Return the same export with Arrow files."""
    return {
        str(Path(name).with_suffix(".arrow")): arrow(pq.read_table(io.BytesIO(content)))
        for name, content in parquetdir().items()
    }


def arrow(table: pa.Table) -> bytes:
    """Return a table as the content of an Arrow file."""
    target = io.BytesIO()
    with pa.ipc.new_file(target, table.schema) as writer:
        writer.write_table(table)
    return target.getvalue()


@cache
def csv_lines(page: str) -> tuple[str, ...]:
    """Return the lines of a page of a few launches."""
    lines = _fixture(f"ncu/visible.{page}.csv").decode().splitlines(keepends=True)
    own = [line for line in lines[1:] if line.startswith('"",') or int(line.split('"')[1]) < 3]
    return (lines[0], *own)


@cache
def ncu_rep(name: str) -> bytes:
    """Return a report of few launches."""
    return _fixture(f"ncu/{name}.ncu-rep")


@cache
def kineto(name: str) -> str:
    """Return a trace with few events of each category."""
    packed = (DATA / "torch" / f"{name}.kineto.json.gz").read_bytes()
    document = json.loads(gzip.decompress(packed))
    kept: dict[str, list[object]] = {}
    for event in document["traceEvents"]:
        kept.setdefault(str(event.get("cat")), []).append(event)
    document["traceEvents"] = [event for events in kept.values() for event in events[:ROWS]]
    return json.dumps(document)


RECORDING = """\
version: 1
workload: gemm
gpu: NVIDIA H200
captured_at: '2026-01-01'
tools: {nsys: '2025.3'}
tasks:
- params: {size: 512, dtype: fp16}
  times_ms: [1.5, 1.25, 1.0]
  launches_ms: [[1.5, 1.25], [1.0]]
  timing_method: cuda events
  profiler_s: {nsys: 3.5}
  files: [task-0.sqlite, task-0.csv]
- params: {size: 1024, dtype: fp16}
  status: failed
  failure: program
  error: exit code 1
"""


@cache
def loads() -> tuple[str, ...]:
    """Return the lines of a load with few requests."""
    return tuple(_fixture("serving/loads.jsonl").decode().splitlines(keepends=True)[: ROWS + 1])


@cache
def snapshot() -> dict[str, Any]:
    """Return a memory snapshot of a few steps."""
    program = Training(Allocator())
    program.run([2 * MIB, MIB], [3 * MIB, MIB], steps=3)
    return snapshot_of(program.allocator)


@cache
def hang() -> dict[str, Any]:
    """Return dumps of three ranks, one of which omits a call, and output of NCCL RAS, by file name."""

    def omitted(programs: list[list[Op]]) -> None:
        del programs[1][5]

    dumps = dumps_of(ddp(3, 4, omitted))
    return {**{f"nccl_trace_rank_{rank}": dump for rank, dump in enumerate(dumps)}, "ras.txt": RAS}
