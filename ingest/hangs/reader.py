"""Writes the tables of a job that hangs, from the dumps and RAS outputs in a folder, or a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from perfpipe.errors import InputError
from perfpipe.files import printable
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.hangs.dumps import Dump, Group, columns_of, read_dump
from perfpipe.ingest.hangs.ras import Row, read_ras
from perfpipe.ingest.host_stacks import NO_STACK, HostStacks
from perfpipe.ingest.inputs import members_of, opened
from perfpipe.ingest.source import Input
from perfpipe.provenance import utc
from perfpipe.secrets import hidden
from perfpipe.tablewriter import TableWriter

_RAS = "nccl-ras"


def read_hang(builder: ReportBuilder) -> None:
    """Read a dump, an output of RAS, or a folder of them; raises InputError if one is damaged."""
    parts = members_of(builder.source)
    dumps = [part for part in parts if part.format != _RAS]
    if dumps:
        _read_dumps(builder, dumps)
    else:
        builder.lacks("hang_calls", "there is no dump of PyTorch's flight recorder")
    _read_ras(builder, [part for part in parts if part.format == _RAS])


@dataclass
class _Groups:
    """The groups of all dumps.  A name alone is not unique: parts of a split group share it."""

    numbers: dict[Group, int] = field(default_factory=dict)
    callers: dict[int, set[int]] = field(default_factory=dict)

    def number(self, group: Group, rank: int) -> int:
        """Return the number of a group in the tables, and record that this rank uses it."""
        number = self.numbers.setdefault(group, len(self.numbers))
        self.callers.setdefault(number, set()).add(rank)
        return number

    def write(self, builder: ReportBuilder) -> None:
        """Write the groups and their members."""
        members = {n: sorted(group.ranks or self.callers[n]) for group, n in self.numbers.items()}
        columns = {
            "group_id": [*self.numbers.values()],
            "backend": [group.backend for group in self.numbers],
            "name": [group.name for group in self.numbers],
            "description": [_description(group) for group in self.numbers],
            "use": [group.use for group in self.numbers],
            "ranks": [len(ranks) for ranks in members.values()],
            "source": ["config" if group.ranks else "calls" for group in self.numbers],
        }
        builder.write("hang_groups", columns, len(members))
        placed = [(number, rank) for number, ranks in members.items() for rank in ranks]
        columns = {
            name: [row[at] for row in placed] for at, name in enumerate(("group_id", "rank"))
        }
        builder.write("hang_members", columns, len(placed))


def _description(group: Group) -> str | None:
    return group.description if group.description not in ("", "undefined") else None


def _read_dumps(builder: ReportBuilder, parts: Sequence[Input]) -> None:
    groups, stacks = _Groups(), HostStacks()
    rows: dict[int, dict[str, object]] = {}
    newest = 0
    with builder.table("hang_calls") as writer:
        for part, dump in _dumps(parts):
            if dump.rank in rows:
                raise InputError(
                    f"{part.path}: {rows[dump.rank]['file']} is also a dump of rank {dump.rank}; "
                    "keep the dumps of one job in a folder"
                )
            newest = max((newest, *(call.created_ns or 0 for call in dump.calls)))
            rows[dump.rank] = _row(part, dump)
            _write_calls(writer, dump, groups, stacks)
    columns = {name: [row[name] for row in rows.values()] for name in next(iter(rows.values()))}
    builder.write("hang_dumps", columns, len(rows))
    groups.write(builder)
    if stacks.stacks:
        stacks.write_stacks(builder)
    else:
        stacks.lack(
            builder, "the dumps have no stacks: JSON never has, see also TORCH_INCLUDE_STACK_TRACE"
        )
    if newest:
        builder.facts.captured_at = utc(newest // 10**9)


def _dumps(parts: Sequence[Input]) -> Iterator[tuple[Input, Dump]]:
    for part in parts:
        with opened(part) as readable:
            yield part, read_dump(readable.content, part.path)


def _row(part: Input, dump: Dump) -> dict[str, object]:
    return {
        "rank": dump.rank,
        "file": printable(part.path.name),
        "version": dump.version,
        "library": dump.library,
        "calls": len(dump.calls),
        "first_record": min((call.record_id for call in dump.calls), default=None),
        "enqueued": dump.enqueued,
        "starts": int(any(call.started_ns for call in dump.calls)),
        "written_ns": part.path.stat().st_mtime_ns,
    }


def _write_calls(writer: TableWriter, dump: Dump, groups: _Groups, stacks: HostStacks) -> None:
    numbers = {group: groups.number(group, dump.rank) for group in dump.groups}
    calls = sorted(dump.calls, key=lambda call: call.record_id)
    columns = columns_of(calls)
    columns["rank"] = [dump.rank] * len(calls)
    columns["group_id"] = [numbers[call.group] for call in calls]
    found = [stacks.number(call.stack) for call in calls]
    columns["stack_id"] = [None if number == NO_STACK else number for number in found]
    writer.write(columns, len(calls))


def _read_ras(builder: ReportBuilder, parts: Sequence[Input]) -> None:
    rows = [(part, row) for part in parts for row in _rows(part)]
    names = [*Row.__dataclass_fields__]
    columns: dict[str, list[object]] = {
        name: [hidden(getattr(row, name)) for _, row in rows] for name in names
    }
    columns["file"] = [printable(part.path.name) for part, _ in rows]
    columns["row_id"] = [*range(len(rows))]
    builder.write("ras_counts", columns, len(rows))
    if not rows:
        said = (
            "RAS reports no difference between ranks" if parts else "there is no output of ncclras"
        )
        builder.lacks("ras_counts", said)


def _rows(part: Input) -> list[Row]:
    with opened(part) as readable:
        text = readable.content.read_text(encoding="utf-8", errors="replace")
        return read_ras(text, part.path)
