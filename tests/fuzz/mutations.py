"""Mutated inputs: a maker for each format, which writes one into a directory."""

from __future__ import annotations

import gzip
import json
import lzma
import pickle
import random
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from copy import deepcopy
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from fuzz import bases
from fuzz.values import BYTES, NUMBERS, TEXTS, damaged, hostile

Maker = Callable[[random.Random, Path], Path]

#: Tables whose rows are worth changing: others are hardly looked at.
_EVENTS = ("CUPTI_", "NVTX_", "GPU_METRICS", "OSRT", "StringIds", "TARGET_INFO_GPU", "CUDA_GRAPH")

_PAGE = 4096


def sqlite(chance: random.Random, folder: Path) -> Path:
    """Write an export with changed pages, or cells, columns and tables."""
    content = bases.sqlite(
        chance.choice(["eager_small", "graph_node", "gpumetrics", "memory_pool"])
    )
    how = chance.random()
    if how < 0.3:
        content = damaged(content, chance)
    elif how < 0.4:
        content = _pages_swapped(content, chance)
    else:
        with closing(sqlite3.connect(":memory:")) as con:
            con.deserialize(content)
            con.isolation_level = None
            for _ in range(chance.choice([1, 1, 2, 5])):
                _edit(con, chance)
            content = con.serialize()
    path = folder / "input.sqlite"
    path.write_bytes(content)
    return path


def _pages_swapped(content: bytes, chance: random.Random) -> bytes:
    pages = [content[at : at + _PAGE] for at in range(0, len(content), _PAGE)]
    one, two = (chance.randrange(1, len(pages)) for _ in range(2))
    pages[one], pages[two] = pages[two], pages[one]
    return b"".join(pages)


def _edit(con: sqlite3.Connection, chance: random.Random) -> None:
    names = [row[0] for row in con.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    names.sort()
    events = [name for name in names if name.startswith(_EVENTS)]
    table = chance.choice(events or names)
    columns = [row[1] for row in con.execute(f'PRAGMA table_info("{table}")')]
    column = chance.choice(columns)
    where = chance.choice(["", "WHERE rowid = 3", "WHERE rowid % 3 = 0", "WHERE rowid > 25"])
    numbers = [n for n in NUMBERS if not isinstance(n, int) or abs(n) < 2**63]
    value = chance.choice([*numbers, *TEXTS, *BYTES, None])
    change = {
        "cells": f'UPDATE "{table}" SET "{column}" = ? {where}',
        "shifted": f'UPDATE OR IGNORE "{table}" SET "{column}" = "{column}" + ? {where}',
        "rows": f'DELETE FROM "{table}" {where}',
        "column": f'ALTER TABLE "{table}" DROP COLUMN "{column}"',
        "named": f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "x{column}"',
        "table": f'ALTER TABLE "{table}" RENAME TO "x{table}"',
        "gone": f'DROP TABLE "{table}"',
        "twice": f'INSERT OR IGNORE INTO "{table}" SELECT * FROM "{table}"',
        "loose": table,
    }
    what = chance.choice(["cells"] * 8 + ["shifted"] * 2 + [*change])
    try:
        if what in ("cells", "shifted", "loose"):
            # NOT NULL and types would keep out what another program may write.
            con.execute("PRAGMA writable_schema = ON")
            con.execute(
                "UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL', '') WHERE name = ?",
                (table,),
            )
            con.execute("PRAGMA writable_schema = RESET")
        if what != "loose":
            con.execute(change[what], (value,) if "?" in change[what] else ())
    except (sqlite3.Error, OverflowError):
        # What SQLite does not do is no mutation.
        return


def parquetdir(chance: random.Random, folder: Path) -> Path:
    """Write an export to Parquet files with changed files, columns or types."""
    return _directory(bases.parquetdir(), chance, folder)


def arrowdir(chance: random.Random, folder: Path) -> Path:
    """Write an export to Arrow files with changed files, columns or types."""
    return _directory(bases.arrowdir(), chance, folder)


def _directory(export: Mapping[str, bytes], chance: random.Random, folder: Path) -> Path:
    files = dict(export)
    for _ in range(chance.choice([1, 1, 2])):
        names = sorted(name for name in files if name.startswith(_EVENTS))
        name = chance.choice(names if chance.random() < 0.8 else sorted(files))
        how = chance.random()
        if how < 0.25:
            files[name] = damaged(files[name], chance)
        elif how < 0.3:
            del files[name]
        else:
            files[name] = _table_changed(files[name], chance)
    path = folder / "export"
    path.mkdir()
    for name, content in files.items():
        (path / name).write_bytes(content)
    return path


def _table_changed(content: bytes, chance: random.Random) -> bytes:
    arrow = content.startswith(b"ARROW1")
    try:
        table = pa.ipc.open_file(content).read_all() if arrow else pq.read_table(BytesIO(content))
    except (pa.ArrowException, OSError):
        return content
    at = chance.randrange(len(table.column_names))
    name, rows = table.column_names[at], table.num_rows
    match chance.choice(
        ["typed", "typed", "cell", "cell", "null", "drop", "rename", "slice", "twice"]
    ):
        case "typed":
            value, kind = chance.choice(
                [
                    ("x", pa.string()), (b"\xff", pa.binary()), (1.5, pa.float64()),
                    (True, pa.bool_()), ([1], pa.list_(pa.int64())), (2**64 - 1, pa.uint64()),
                    (-1, pa.int8()), ({"a": 1}, pa.struct([("a", pa.int64())])), (None, pa.null()),
                    (1, pa.timestamp("ns")), (7, pa.int16()), ("k" * 10_000, pa.large_string()),
                ]
            )  # fmt: skip
            table = table.set_column(at, name, pa.array([value] * rows, kind))
        case "cell":
            kind = table.schema.field(name).type
            number = chance.choice([n for n in NUMBERS if isinstance(n, int)])
            value = number if pa.types.is_integer(kind) else chance.choice(TEXTS)
            try:
                values = table[name].to_pylist()
                for row in range(rows):
                    if chance.random() < chance.choice([0.02, 0.2, 1]):
                        values[row] = chance.choice([value, None])
                table = table.set_column(at, name, pa.array(values, kind))
            except (pa.ArrowException, OverflowError, TypeError, ValueError):
                return content
        case "null":
            kind = table.schema.field(name).type
            table = table.set_column(at, name, pa.nulls(rows, kind))
        case "drop":
            table = table.remove_column(at)
        case "rename":
            names = [f"x{n}" if n == name else n for n in table.column_names]
            table = table.rename_columns(names)
        case "slice":
            table = table.slice(chance.randrange(rows + 1))
        case "twice":
            table = pa.concat_tables([table, table])
    if arrow:
        return bases.arrow(table)
    target = BytesIO()
    pq.write_table(table, target)
    return target.getvalue()


def csv_raw(chance: random.Random, folder: Path) -> Path:
    """Write a raw page with changed cells, rows or bytes."""
    return _csv("raw", chance, folder)


def csv_details(chance: random.Random, folder: Path) -> Path:
    """Write a details page with changed cells, rows or bytes."""
    return _csv("details", chance, folder)


def _csv(page: str, chance: random.Random, folder: Path) -> Path:
    lines = list(bases.csv_lines(page))
    for _ in range(chance.choice([1, 1, 3])):
        at = chance.randrange(len(lines)) if lines else 0
        if not lines:
            break
        match chance.choice(["cell", "cell", "cell", "cut", "drop", "twice", "swap", "noise"]):
            case "cell":
                cells = lines[at].split('","')
                text = str(hostile(chance)).replace('"', '""')
                cells[chance.randrange(len(cells))] = text
                lines[at] = '","'.join(cells)
            case "cut":
                lines[at] = lines[at][: chance.randrange(len(lines[at]) + 1)] + "\n"
            case "drop":
                del lines[at]
            case "twice":
                lines.insert(at, lines[at])
            case "swap":
                other = chance.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
            case "noise":
                lines.insert(
                    at, chance.choice(['==PROF== Profiling "k"\n', "text\n", '"x"\n', "\n"])
                )
    content = "".join(lines).encode("utf-8", "replace")
    path = folder / "input.csv"
    path.write_bytes(damaged(content, chance) if chance.random() < 0.3 else content)
    return path


def ncu_rep(chance: random.Random, folder: Path) -> Path:
    """Write a report with changed bytes, mostly among the headers."""
    content = bases.ncu_rep(chance.choice(["pm", "range"]))
    if chance.random() < 0.5:
        # Headers of blocks, names and the first results.
        size = min(len(content), chance.choice([64, 1024, 16_384]))
        content = damaged(content[:size], chance) + content[size:]
    else:
        content = damaged(content, chance)
    path = folder / "input.ncu-rep"
    path.write_bytes(content)
    return path


def kineto(chance: random.Random, folder: Path) -> Path:
    """Write a trace with changed values or bytes."""
    text = bases.kineto(chance.choice(["train_step", "memory"]))
    path = folder / "input.json"
    if chance.random() < 0.3:
        path.write_bytes(damaged(text.encode(), chance))
        return path
    document = json.loads(text)
    for _ in range(chance.choice([1, 1, 3, 20])):
        _node_changed(document, chance)
    surrogate = chance.random() < 0.05
    text = json.dumps(document)
    path.write_text(text.replace("aten::", "\\ud800::") if surrogate else text, encoding="utf-8")
    return path


def _node_changed(document: Any, chance: random.Random) -> None:
    """Change a value somewhere in a document of JSON or YAML."""
    node = document
    while isinstance(node, (dict, list)) and node:
        keys = list(node) if isinstance(node, dict) else range(len(node))
        key = chance.choice(keys)
        below = node[key]
        if not isinstance(below, (dict, list)) or not below or chance.random() < 0.15:
            if chance.random() < 0.2:
                del node[key]
            else:
                node[key] = hostile(chance)
            return
        node = below


def recording(chance: random.Random, folder: Path) -> Path:
    """Write a recording with changed values, file names or bytes."""
    import yaml

    path = folder / "recording"
    path.mkdir()
    for name in ("task-0.sqlite", "task-0.csv"):
        (path / name).write_bytes(b"x")
    text = bases.RECORDING
    if chance.random() < 0.3:
        content = damaged(text.encode(), chance)
    else:
        document = yaml.safe_load(text)
        for _ in range(chance.choice([1, 2, 5])):
            _node_changed(document, chance)
        if chance.random() < 0.3 and isinstance(document.get("tasks"), list):
            document["tasks"].append({"params": {}, "files": [chance.choice(TEXTS)]})
        content = yaml.safe_dump(document, allow_unicode=False).encode()
    (path / "recording.yaml").write_bytes(content)
    return path


def serving(chance: random.Random, folder: Path) -> Path:
    """Write requests of a load generator with changed values, lines or bytes."""
    lines = list(bases.loads())
    for _ in range(chance.choice([1, 1, 3, 10])):
        at = chance.randrange(len(lines))
        document = json.loads(lines[at])
        match chance.choice(["value", "value", "value", "drop", "twice", "cut"]):
            case "value":
                _node_changed(document, chance)
                lines[at] = json.dumps(document) + "\n"
            case "drop" if len(lines) > 1:
                del lines[at]
            case "twice":
                lines.insert(at, lines[at])
            case "cut" if at == len(lines) - 1:
                lines[at] = lines[at][: chance.randrange(len(lines[at]))]
                break
    content = "".join(lines).encode()
    path = folder / "input.jsonl"
    path.write_bytes(damaged(content, chance) if chance.random() < 0.3 else content)
    return path


#: How a report of nsys begins.
REPORT = b"NVIDIA Tegra Profiler Report\n"


def nsys_rep(chance: random.Random, folder: Path) -> Path:
    """Write a report for which `running.exported` stands for `nsys export`."""
    content = REPORT + sqlite(chance, folder).read_bytes()
    (folder / "input.sqlite").unlink()
    path = folder / "input.nsys-rep"
    path.write_bytes(damaged(content, chance) if chance.random() < 0.3 else content)
    return path


def snapshot(chance: random.Random, folder: Path) -> Path:
    """Write a memory snapshot of PyTorch with changed values or bytes."""
    path = folder / chance.choice(["input.pickle", "input.pickle", "input.json"])
    path.write_bytes(_document(bases.snapshot(), chance, as_json=path.suffix == ".json"))
    return path


def hang(chance: random.Random, folder: Path) -> Path:
    """Write dumps of a job that hangs, of which one has changed values or bytes, or is missing."""
    path = folder / "dumps"
    path.mkdir()
    files = bases.hang()
    changed = chance.choice(sorted(files))
    for name, content in files.items():
        if isinstance(content, str):
            data = content.encode()
            data = damaged(data, chance) if name == changed else data
        elif name == changed:
            data = _document(content, chance, as_json=chance.random() < 0.2)
        else:
            data = pickle.dumps(content, protocol=2)
        if name != changed or chance.random() < 0.95:
            (path / name).write_bytes(data)
    return path


def _document(whole: Any, chance: random.Random, *, as_json: bool) -> bytes:
    """Return a document with changed values, or damaged bytes."""
    damage = chance.random() < 0.4
    document = whole if damage else deepcopy(whole)
    for _ in range(0 if damage else chance.choice([1, 1, 3, 20])):
        _node_changed(document, chance)
    protocol = chance.choice([2, 4, 5])
    content = json.dumps(document).encode() if as_json else pickle.dumps(document, protocol)
    return damaged(content, chance) if damage else content


_PACK: tuple[tuple[str, Callable[[bytes], bytes]], ...] = (
    ("xz", lambda content: lzma.compress(content, preset=0)),
    ("gz", lambda content: gzip.compress(content, 1, mtime=0)),
    ("zst", lambda content: zstandard.ZstdCompressor(1).compress(content)),
)


def packed(chance: random.Random, folder: Path) -> Path:
    """Write a compressed input; it, or what is in it, is damaged, or followed by something."""
    inner = chance.choice([sqlite, csv_raw, kineto, serving, snapshot])(chance, folder)
    kind, pack = chance.choice(_PACK)
    content = pack(inner.read_bytes())
    match chance.choice(["damage", "damage", "whole", "twice", "behind", "zeros"]):
        case "damage":
            content = damaged(content, chance)
        case "twice":
            content = pack(content)
        case "behind":
            content += chance.choice([*BYTES, pack(bytes(100))])
        case "zeros":
            content = pack(bytes(chance.choice([100, 10_000_000])))
    path = folder / f"{inner.name}.{kind}"
    path.write_bytes(content)
    inner.unlink()
    return path


MAKERS: dict[str, Maker] = {
    "sqlite": sqlite,
    "parquetdir": parquetdir,
    "arrowdir": arrowdir,
    "csv-raw": csv_raw,
    "csv-details": csv_details,
    "ncu-rep": ncu_rep,
    "kineto": kineto,
    "serving": serving,
    "nsys-rep": nsys_rep,
    "recording": recording,
    "snapshot": snapshot,
    "hang": hang,
    "packed": packed,
}
