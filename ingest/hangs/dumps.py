"""Reads one dump of PyTorch's flight recorder: the last calls of a rank.

The form is that of torch/csrc/distributed/c10d/FlightRecorder.hpp, as a pickle or as JSON, which
has no stacks.  A dump does not say which rank wrote it; the name of its file ends with the rank.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfpipe.errors import InputError, brief
from perfpipe.ingest.frames import Frame, Stack
from perfpipe.ingest.hangs.detecting import rank_of
from perfpipe.ingest.hangs.integers import whole
from perfpipe.ingest.unpickling import read_plain
from perfpipe.secrets import hide

#: A call: library, operation, and ranks within the group of a send or receive.
_CALL = re.compile(r"(?:(\w+):)?(\S+)(?: (\d+)(->|<-)(\d+))?")

_STATES = ("scheduled", "started", "completed")

#: Longest name that is kept, characters.
_LONGEST = 200


@dataclass(frozen=True)
class Group:
    """A process group; `ranks` are empty if the dump does not list them.

    A group that the program destroys and creates again has the same name, and a new `use`.
    """

    backend: str
    name: str
    description: str
    ranks: tuple[int, ...]
    use: int = 0


@dataclass(frozen=True)
class Call:
    """A call of a rank; the fields are those of the table hang_calls."""

    group: Group
    stack: Stack
    record_id: int
    p2p: int
    sequence: int
    operation: str
    source: int | None
    target: int | None
    input_sizes: str | None
    output_sizes: str | None
    input_elements: int | None
    output_elements: int | None
    input_types: str | None
    output_types: str | None
    state: str
    retired: int
    created_ns: int | None
    started_ns: int | None
    completed_ns: int | None
    timeout_ms: int | None
    thread: str | None


@dataclass(frozen=True)
class Dump:
    """What a rank recorded; `groups` are those that the rank belongs to.

    `enqueued` is the largest number of a collective in the state of the groups, if it is known.
    """

    rank: int
    version: str
    library: str | None
    groups: tuple[Group, ...]
    calls: tuple[Call, ...]
    enqueued: int | None


def read_dump(content: Path, named: Path) -> Dump:
    """Return the dump in a file that the user calls `named`.

    Raises InputError with one sentence if it is damaged, or if its name has no rank.
    """
    rank = rank_of(named.name)
    if rank is None:
        raise InputError(
            f"{named}: the name of a flight recorder dump ends with its rank, as in "
            "nccl_trace_rank_3; rename the file"
        )
    try:
        return _dump(_content(content, named), rank)
    except (
        KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError
    ) as error:  # fmt: skip
        missing = f"no {error.args[0]}" if isinstance(error, KeyError) else error
        raise InputError(
            f"{named}: not a complete flight recorder dump ({brief(missing)})"
        ) from error


def _content(content: Path, named: Path) -> Any:
    with content.open("rb") as file:
        pickled = file.read(1) == b"\x80"
    if pickled:
        return read_plain(content, named)
    try:
        return json.loads(content.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{named}: damaged JSON ({brief(error)})") from error


def _dump(content: Mapping[str, Any], rank: int) -> Dump:
    version = _text(content["version"])
    if version.split(".")[0] != "2":
        raise ValueError(f"version {brief(version)}; perfpipe reads version 2")
    known = {_text(name): _ranks(about) for name, about in content["pg_config"].items()}
    named = {
        _text(name): _text(about.get("desc") or "") for name, about in content["pg_config"].items()
    }
    calls = _Calls(known)
    read = tuple(map(calls.read, content.get("entries") or ()))
    # What gloo lists has neither a name nor members.
    called = {group.name for group in calls.groups.values()}
    listed = tuple(
        Group("nccl", hide(name)[:_LONGEST], hide(named[name])[:_LONGEST], ranks)
        for name, ranks in known.items()
        if rank in ranks and name not in called
    )
    library = content.get("comm_lib_version")
    return Dump(
        rank,
        version[:_LONGEST],
        _text(library)[:_LONGEST] if library else None,
        tuple(dict.fromkeys((*calls.groups.values(), *listed))),
        read,
        _enqueued(content.get("pg_status") or {}),
    )


def _enqueued(status: Mapping[str, Any]) -> int | None:
    """Return the number of the last collective that was enqueued; JSON has numbers as texts."""
    found = [
        whole(int(about["last_enqueued_collective"]))
        for about in status.values()
        if "last_enqueued_collective" in about
    ]
    return max(0, *found) if found else None


def _ranks(about: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the members of a group, which PyTorch writes as the text of a list."""
    ranks = about.get("ranks") or "[]"
    found = json.loads(ranks) if isinstance(ranks, str) else ranks
    return tuple(whole(rank) for rank in found)


class _Calls:
    """Reads calls.  Frames, stacks and groups that calls share are made once."""

    def __init__(self, ranks: Mapping[str, tuple[int, ...]]) -> None:
        self.groups: dict[tuple[str, str, str, int], Group] = {}
        self._ranks = ranks
        self._ids: dict[tuple[str, str, str], dict[int, int]] = {}
        self._frames: dict[tuple[str, str, int], Frame] = {}

    def group(self, backend: str, name: str, description: str, pg_id: int) -> Group:
        """Return a group; `pg_id` differs between groups of one name in a process."""
        ids = self._ids.setdefault((backend, name, description), {})
        key = backend, name, description, ids.setdefault(pg_id, len(ids))
        if key not in self.groups:
            named = hide(backend)[:_LONGEST], hide(name)[:_LONGEST], hide(description)[:_LONGEST]
            self.groups[key] = Group(*named, self._ranks.get(name, ()), key[3])
        return self.groups[key]

    def read(self, entry: Mapping[str, Any]) -> Call:
        """Return a call; raises KeyError, TypeError or ValueError if it is damaged."""
        found = _CALL.fullmatch(_text(entry["profiling_name"])[:_LONGEST])
        if found is None:
            raise ValueError(f"profiling_name {brief(entry['profiling_name'])}")
        backend, operation, own, arrow, other = found.groups()
        name, description = map(_text, entry["process_group"])
        group = self.group(backend or "unknown", name, description, whole(entry.get("pg_id", 0)))
        # torchcomms counts sends and receives with collectives.
        counted_apart = entry.get("is_p2p", arrow is not None) is True
        p2p = counted_apart or arrow is not None
        ends = [_member(group, text) for text in (own, other)] if arrow else [None, None]
        source, target = ends if arrow == "->" else ends[::-1]
        state = _text(entry["state"])
        if state not in _STATES:
            raise ValueError(f"state {brief(state)}")
        inputs, outputs = entry.get("input_sizes"), entry.get("output_sizes")
        return Call(
            group=group,
            stack=tuple(map(self._frame, entry.get("frames") or ())),
            record_id=whole(entry["record_id"]),
            p2p=int(p2p),
            sequence=whole(entry["p2p_seq_id" if counted_apart else "collective_seq_id"]),
            operation=operation,
            source=source,
            target=target,
            input_sizes=_shown(inputs),
            output_sizes=_shown(outputs),
            input_elements=_elements(inputs),
            output_elements=_elements(outputs),
            input_types=_shown(entry.get("input_dtypes")),
            output_types=_shown(entry.get("output_dtypes")),
            state=state,
            retired=int(entry.get("retired") is True),
            created_ns=_time(entry.get("time_created_ns")),
            started_ns=_time(entry.get("time_discovered_started_ns")),
            completed_ns=_time(entry.get("time_discovered_completed_ns")),
            timeout_ms=_time(entry.get("timeout_ms")),
            thread=_thread(entry.get("thread_name")),
        )

    def _frame(self, frame: Mapping[str, Any]) -> Frame:
        key = _text(frame["name"]), _text(frame["filename"]), whole(frame["line"])
        if key not in self._frames:
            name, file, line = key
            self._frames[key] = Frame(name, file or None, line if line > 0 else None)
        return self._frames[key]


def _member(group: Group, text: str) -> int:
    """Return the rank in the job of a rank within a group, if the members are known."""
    rank = whole(int(text))
    return group.ranks[rank] if group.ranks else rank


def _elements(shapes: object) -> int | None:
    """Return the number of elements of all tensors; None if no shape was recorded."""
    if not shapes:
        return None
    total = sum(math.prod(map(whole, shape)) for shape in _sequence(shapes))
    return whole(total)


def _shown(values: object) -> str | None:
    """Return shapes or types as a text such as 4x4, 16."""
    if not values:
        return None
    return ", ".join(
        value[:_LONGEST]
        if isinstance(value, str)
        else "x".join(str(whole(size)) for size in _sequence(value)) or "scalar"
        for value in _sequence(values)
    )


def _sequence(value: object) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{brief(value)} is not a list")
    return value


def _time(value: object) -> int | None:
    """Return a time; JSON has 0 for an unknown one."""
    return whole(value) or None if value is not None else None


def _thread(value: object) -> str | None:
    return hide(_text(value))[:_LONGEST] if value else None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{brief(value)} is not a text")
    return value


def columns_of(calls: Iterable[Call]) -> dict[str, list[Any]]:
    """Return calls as columns of hang_calls, without group and stack."""
    names = [name for name in Call.__dataclass_fields__ if name not in ("group", "stack")]
    found: dict[str, list[Any]] = {name: [] for name in names}
    for call in calls:
        for name, column in found.items():
            column.append(getattr(call, name))
    return found
