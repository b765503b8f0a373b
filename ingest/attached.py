"""Reads what `perfpipe attach` sampled of a running program: stacks, processes and GPUs.

The file is one JSON object:

    {"perfpipe_attached": 1, "command": "python train.py", "pid": 4711, "host": "node7",
     "began_ns": 1790000000000000000, "seconds": 10.02,
     "stacks": [[["load", "main.py", 38], ...], ...],
     "samples": [[start_ns, end_ns, pid, tid, number of the stack], ...],
     "processes": [[time_ns, ...], ...], "gpus": [[time_ns, ...], ...]}

Frames are innermost first.  Times are ns since `began_ns`, which is a time of CLOCK_REALTIME.
Rows of processes and GPUs have the columns of `process_samples` and `gpu_samples` in their order.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from perfpipe.errors import InputError, brief
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.frames import Frame
from perfpipe.ingest.host_stacks import HostStacks, Samples
from perfpipe.model import tables
from perfpipe.provenance import utc

#: Marks the files, with the version of their form.
MARK, VERSION = "perfpipe_attached", 1

#: Source of their stacks, in host_samples.
SOURCE = "py-spy"

#: Tables whose rows are those of a member of the file.
_TABLES = {"processes": "process_samples", "gpus": "gpu_samples"}

#: JSON types of the types of columns; true is no number.
_TYPES: dict[str, tuple[type, ...]] = {"int64": (int,), "double": (int, float), "string": (str,)}

#: Columns that are always known.
_KNOWN = ("time_ns", "pid", "device")

_LARGEST = 1 << 63

#: Times, ns, whose differences can be stored.
_MOST = 1 << 62


def read_attached(builder: ReportBuilder) -> None:
    """Read a file of `perfpipe attach`; raises InputError if it is damaged."""
    content = _content(builder)
    try:
        stacks, numbers = _stacks(content["stacks"])
        stacks.samples.append(_samples(content["samples"], numbers))
        rows = {name: _columns(name, content[member]) for member, name in _TABLES.items()}
        began_ns = _whole(content["began_ns"])
        command, host = _text(content["command"]), _text(content["host"])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError(
            f"{builder.source.path}: not a complete file of perfpipe attach ({brief(repr(error))})"
        ) from error
    missing = content.get("missing")
    why = missing if isinstance(missing, dict) else {}
    stacks.write(builder, str(why.get("stacks") or "no stack was sampled"))
    for member, name in _TABLES.items():
        builder.write(name, rows[name], len(rows[name]["time_ns"]))
        if not rows[name]["time_ns"]:
            builder.lacks(name, str(why.get(member) or "nothing was sampled"))
    builder.facts = replace(
        builder.facts,
        command=command,
        host=host,
        captured_at=utc(began_ns / 1e9),
        started_ns=began_ns,
    )


def _content(builder: ReportBuilder) -> dict[str, Any]:
    path = builder.source.path
    try:
        content = json.loads(builder.source.content.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: damaged JSON ({brief(error)})") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: not a JSON object")
    if content.get(MARK) != VERSION:
        raise InputError(
            f"{path}: form {content.get(MARK)!r}, but this perfpipe reads {VERSION}; use the "
            "perfpipe version that wrote it"
        )
    return content


def _stacks(rows: Sequence[Sequence[Any]]) -> tuple[HostStacks, list[int]]:
    """Return the stacks, and the number of each in the tables."""
    stacks = HostStacks()
    numbers = []
    for row in rows:
        frames = []
        for function, file, line in row:
            known = None if line is None else _whole(line)
            frames.append(Frame(_text(function), None if file is None else _text(file), known))
        numbers.append(stacks.number(tuple(frames)))
    return stacks, numbers


def _samples(rows: Sequence[Sequence[Any]], numbers: Sequence[int]) -> Samples:
    samples, total = Samples(SOURCE), 0
    for row in rows:
        start, end, pid, tid, stack = map(_whole, row)
        if not 0 <= stack < len(numbers) or end < start:
            raise ValueError(f"sample {row}")
        total += end - start
        if total >= _LARGEST or not -_MOST < start <= end < _MOST:
            raise ValueError(f"sample {row} is too long")
        samples.trace(start, end, pid, tid, numbers[stack])
    return samples


def _columns(name: str, rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    """Return the columns of a table; raises ValueError for a value of another type."""
    spec = tables()[name].columns[1:]
    found: dict[str, list[Any]] = {column.name: [] for column in spec}
    for row in rows:
        for column, value in zip(spec, row, strict=True):
            fits = isinstance(value, _TYPES[column.type]) and not isinstance(value, bool)
            fits = fits and (not isinstance(value, int) or abs(value) < _LARGEST)
            if not fits and (value is not None or column.name in _KNOWN):
                raise ValueError(f"{column.name} {value!r}")
            found[column.name].append(value)
    return found


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= _LARGEST:
        raise ValueError(f"{value!r} is not a whole number")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text")
    return value
