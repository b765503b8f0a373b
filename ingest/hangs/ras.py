"""Reads what NCCL RAS prints: `ncclras -v`, or JSON (`ncclras -f json`, since NCCL 2.28.7).

The forms are those of src/ras/client_support.cc in NCCL.  The text lists only ranks that differ
from most others of their communicator.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from perfpipe.errors import InputError, brief
from perfpipe.ingest.hangs.integers import whole

#: NCCL 2.28.9 writes no comma behind "nvml_dev" of a missing rank.
_NO_COMMA = re.compile(r'("nvml_dev"\s*:\s*-?\d+)(\s*"status")')

_COMMUNICATOR = re.compile(r"#\d+-\d+ \(([0-9a-f]+)\) (\w+)$")
_COUNTED = re.compile(r"Communicator ranks have different (\w+) operation counts$")
_SOME = re.compile(
    r"(\d+) ranks (?:have launched up to operation (\d+)|(have not launched any operations)"
    r"|have status (\w+)|reported (.+))$"
)
_ONE = re.compile(
    r"Rank (\d+)(?: has launched up to operation (\d+)| (has not launched any operations)"
    r"| has status (\w+)| reported (.+?))? -- (.+)$"
)
_WHERE = re.compile(r"GPU (\S+(?: \(NVML \w+\))?) managed by process (\d+) on node (\S+)$")
_PROCESS = re.compile(r"Process (\d+) on node (\S+) managing GPUs? (.+)$")
_MISSING = re.compile(r"The missing ranks?: ([\d, ]+)$")

#: The header of a part about processes, and what is wrong with these.
_PROCESSES = {"INCOMPLETE": "unresponsive", "DEAD": "dead"}

#: State of a communicator whose ranks differ: too many to be listed, and too few to be counted.
UNLISTED = "different counts"

#: Results of NCCL (ncclResult_t) that are not errors: success, and initialization in progress.
_FINE = (0, 7)


@dataclass
class Row:
    """A row of ras_counts."""

    taken_at: str | None = None
    communicator: str | None = None
    size: int | None = None
    operation: str | None = None
    launched: int | None = None
    state: str | None = None
    rank: int | None = None
    ranks: int | None = 1
    host: str | None = None
    pid: int | None = None
    gpu: str | None = None


def read_ras(text: str, named: object) -> list[Row]:
    """Return what RAS printed; raises InputError if it is damaged."""
    try:
        if not text.lstrip().startswith("{"):
            return list(_text_rows(text))
        return list(_json_rows(json.loads(_NO_COMMA.sub(r"\1,\2", text))))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(f"{named}: not complete output of ncclras ({brief(error)})") from error


def _json_rows(printed: Mapping[str, Any]) -> Iterator[Row]:
    taken = str(printed["timestamp"])[:40] if printed.get("timestamp") else None
    for one in printed["communicators"]:
        name = str(one["hash"]).removeprefix("0x")[:40]
        size = whole(one["size"])
        for rank in one["ranks"]:
            about = _placed(rank, Row(taken, name, size))
            for operation, launched in rank["collective_counts"].items():
                yield _with(about, operation=str(operation)[:40], launched=whole(launched))
            if state := _wrong(rank.get("status") or {}):
                yield _with(about, state=state)
        for rank in one.get("missing_ranks") or ():
            status = rank.get("status") or {}
            state = "dead" if status.get("considered_dead") else "missing"
            state = "unresponsive" if state == "missing" and status.get("unresponsive") else state
            yield _with(_placed(rank, Row(taken, name, size)), state=state)


def _wrong(status: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a rank that answers; None if nothing is."""
    for key, what in (("init_state", "initialization"), ("async_error", "asynchronous")):
        if (code := status.get(key)) is not None and whole(code) not in _FINE:
            return f"{what} error {code}"
    return "aborted" if status.get("abort_flag") is True else None


def _placed(rank: Mapping[str, Any], row: Row) -> Row:
    return _with(
        row,
        rank=whole(rank["rank"]),
        host=str(rank["host"])[:100] if rank.get("host") else None,
        pid=whole(rank["pid"]) if rank.get("pid") is not None else None,
        gpu=str(whole(rank["cuda_dev"])) if rank.get("cuda_dev") is not None else None,
    )


def _text_rows(text: str) -> Iterator[Row]:
    """Yield a row per line about ranks; `about` is what the lines above say of it."""
    about = Row()
    lines = [*filter(None, map(str.strip, text.splitlines()))]
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if line in _PROCESSES:
            about = Row(state=_PROCESSES[line])
        elif header := _COMMUNICATOR.match(line):
            about = Row(communicator=header[1], state=_of_header(header[2]))
        elif counted := _COUNTED.match(line):
            about = _with(about, operation=counted[1], state=None)
            if not (_SOME.match(after) or _ONE.match(after)):
                yield _with(about, state=UNLISTED, ranks=None)
        elif line == "Communicator ranks have different status":
            about = _with(about, operation=None, state=None)
        elif some := _SOME.match(line):
            about = _with(about, **_said(some.groups()[1:]))
            yield _with(about, ranks=whole(int(some[1])))
        elif one := _ONE.match(line):
            own = _with(about, **_said(one.groups()[1:5]))
            yield _with(own, rank=whole(int(one[1])), **_where(one[6]))
        elif process := _PROCESS.match(line):
            where = {"pid": whole(int(process[1])), "host": process[2][:100]}
            yield _with(about, gpu=process[3][:40], **where)
        elif missing := _MISSING.match(line):
            for rank in re.findall(r"\d+", missing[1]):
                yield _with(about, rank=whole(int(rank)))


def _of_header(word: str) -> str | None:
    return {"INCOMPLETE": "unresponsive", "MISMATCH": None}.get(word, word.lower())


def _said(groups: tuple[str | None, ...]) -> dict[str, Any]:
    """Return what a line says of its ranks; nothing if it repeats the line above."""
    launched, none, status, error = groups
    if launched is not None or none is not None:
        return {"launched": whole(int(launched or 0)), "state": None}
    return {"state": (status or error or "")[:100]} if status or error else {}


def _where(text: str) -> dict[str, Any]:
    found = _WHERE.match(text)
    if found is None:
        return {}
    return {"gpu": found[1][:40], "pid": whole(int(found[2])), "host": found[3][:100]}


def _with(row: Row, **changes: Any) -> Row:
    return Row(**{**row.__dict__, **changes})
