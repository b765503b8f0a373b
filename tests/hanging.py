"""Jobs that hang: a simulator of ranks that writes what PyTorch's flight recorder writes.

A program is a list of calls per rank.  A rank executes its calls in order; a collective ends when all
members of the group have reached it with the same operands, a send and its receive when both ranks
have.  What does not end is what the simulator knows of the hang.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conftest import Cli

from perfpipe.analysis.report.hangs import KIND, VIEWS, statements_of
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.session import Session
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store

#: Time of the first call, and between calls, ns.
BEGAN_NS, STEP_NS = 1_790_000_000_000_000_000, 1_000_000

DEFAULT = "default_pg"


@dataclass(frozen=True)
class Op:
    """A call: a collective of a group, or a send or receive with a `peer` (rank in the job).

    `batch` joins calls into one, as batch_isend_irecv does.
    """

    name: str
    group: str = DEFAULT
    peer: int | None = None
    size: int = 1024
    dtype: str = "Float"
    line: int = 10
    batch: int = 0


@dataclass
class Job:
    """The groups of a job with their ranks, and the calls of each rank."""

    groups: Mapping[str, Sequence[int]]
    programs: list[list[Op]] = field(default_factory=list)
    #: Calls that end neither though all ranks are there: (group, number).
    stuck: tuple[str, int] | None = None
    timed: bool = True
    #: Calls that the buffer keeps.
    buffer: int = 2000

    def run(self) -> list[int]:
        """Return how many calls of each rank end."""
        return _Machine(self).run()


class _Machine:
    """Executes the programs: each rank is at its next call, or at those of its next batch."""

    def __init__(self, job: Job) -> None:
        self.job, self.at = job, [0] * len(job.programs)
        self.keys = [_keys(rank, program) for rank, program in enumerate(job.programs)]

    def run(self) -> list[int]:
        progress = True
        while progress:
            progress = False
            for rank in range(len(self.at)):
                if (end := self._end(rank)) > self.at[rank] and self._ready(rank, end):
                    progress = True
        return self.at

    def _end(self, rank: int) -> int:
        """Return the end of the batch at which a rank is."""
        program, at = self.job.programs[rank], self.at[rank]
        end = at + (at < len(program))
        while end < len(program) and program[at].batch and program[end].batch == program[at].batch:
            end += 1
        return end

    def _ready(self, rank: int, end: int) -> bool:
        """End the calls of a rank if all others are there; returns whether they ended."""
        waiting = {rank}
        todo = [rank]
        while todo:
            one = todo.pop()
            for key in self.keys[one][self.at[one] : self._end(one)]:
                if key[:2] == self.job.stuck:
                    return False
                for other in self._members(key):
                    said = self.keys[other][self.at[other] : self._end(other)]
                    if key not in said:
                        return False
                    if other not in waiting:
                        waiting.add(other)
                        todo.append(other)
        for one in waiting:
            self.at[one] = self._end(one)
        return True

    def _members(self, key: tuple[Any, ...]) -> Sequence[int]:
        return key[3:5] if key[2] == "p2p" else self.job.groups[key[0]]


def _keys(rank: int, program: Sequence[Op]) -> list[tuple[Any, ...]]:
    """Return what calls of ranks have in common that belong together."""
    counts: dict[object, int] = {}
    found: list[tuple[Any, ...]] = []
    for op in program:
        if op.peer is None:
            count = counts[op.group] = counts.get(op.group, 0) + 1
            found.append((op.group, count, op.name, op.size, op.dtype))
        else:
            ends = (rank, op.peer) if op.name == "send" else (op.peer, rank)
            count = counts[op.group, ends] = counts.get((op.group, ends), 0) + 1
            found.append((op.group, count, "p2p", *ends, op.size, op.dtype))
    return found


def dumps_of(job: Job) -> list[dict[str, Any]]:
    """Return the dump of each rank of a job, as PyTorch 2.13 writes it (version 2.10)."""
    return [_dump(job, rank, ended) for rank, ended in enumerate(job.run())]


def _dump(job: Job, rank: int, ended: int) -> dict[str, Any]:
    names = {group: str(number) for number, group in enumerate(job.groups)}
    entries: list[dict[str, Any]] = []
    collective: dict[str, int] = {}
    p2p: dict[str, int] = {}
    program = job.programs[rank]
    for at, op in enumerate(program):
        first = not op.batch or not at or program[at - 1].batch != op.batch
        counts = p2p if op.peer is not None else collective
        counts[op.group] = counts.get(op.group, 0) + first
        last = op.batch and (at + 1 == len(program) or program[at + 1].batch != op.batch)
        state = (
            "completed" if at < ended else "started" if job.timed and at == ended else "scheduled"
        )
        shared = {
            "pg_id": int(names[op.group]),
            "process_group": (names[op.group], op.group),
            "collective_seq_id": collective.get(op.group, 0),
            "p2p_seq_id": p2p.get(op.group, 0),
            "is_p2p": op.peer is not None,
        }
        entries.append(
            _entry(op, rank, job, len(entries), "scheduled" if op.batch else state) | shared
        )
        if last:
            end = Op("coalesced", op.group, line=op.line)
            entries.append(_entry(end, rank, job, len(entries), state) | shared)
    return {
        "version": "2.10",
        "pg_config": {
            names[group]: {"name": names[group], "desc": group, "ranks": str([*ranks])}
            for group, ranks in job.groups.items()
            if rank in ranks
        },
        "comm_lib_version": "2.27.5",
        "pg_status": {},
        "entries": entries[-job.buffer :],
    }


def _entry(op: Op, rank: int, job: Job, record: int, state: str) -> dict[str, Any]:
    at = BEGAN_NS + record * STEP_NS
    name = f"nccl:{op.name}"
    if op.peer is not None:
        ranks = [*job.groups[op.group]]
        arrow = "->" if op.name == "send" else "<-"
        name += f" {ranks.index(rank)}{arrow}{ranks.index(op.peer)}"
    sized = op.name not in ("coalesced", "barrier")
    return {
        "frames": [
            {"name": op.name, "filename": f"{_TORCH}/distributed_c10d.py", "line": 3245},
            {"name": "step", "filename": "/home/ann/job/train.py", "line": op.line},
            {"name": "<module>", "filename": "/home/ann/job/train.py", "line": 99},
        ],
        "record_id": record,
        "thread_name": "python",
        "thread_id": "140",
        "op_id": record,
        "profiling_name": name,
        "time_created_ns": at,
        "input_sizes": [[op.size]] if sized else [],
        "input_dtypes": [op.dtype] if sized else [],
        "output_sizes": [[op.size]] if sized else [],
        "output_dtypes": [op.dtype] if sized else [],
        "state": state,
        "time_discovered_started_ns": at + 1 if job.timed and state != "scheduled" else None,
        "time_discovered_completed_ns": at + 2 if state == "completed" else None,
        "retired": state == "completed",
        "timeout_ms": 600_000,
    }


_TORCH = "/opt/venv/lib/python3.11/site-packages/torch/distributed"


def write(dumps: Mapping[int, object], folder: Path, *, as_json: bool = False) -> Path:
    """Write the dumps of ranks into a folder, as PyTorch names them."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, dump in dumps.items():
        path = folder / f"nccl_trace_rank_{rank}"
        if as_json:
            path.with_suffix(".json").write_text(json.dumps(dump))
        else:
            # The pickler of PyTorch writes protocol 2.
            path.write_bytes(pickle.dumps(dump, protocol=2))
    return folder


def ddp(ranks: int, steps: int, fault: Callable[[list[list[Op]]], object] | None = None) -> Job:
    """Return a data-parallel job: a broadcast, then two all-reduces a step; with a fault in it."""
    programs = [
        [Op("broadcast", size=8, line=5)]
        + [
            op
            for _ in range(steps)
            for op in (Op("all_reduce", line=10), Op("all_reduce", size=64, line=12))
        ]
        for _ in range(ranks)
    ]
    if fault is not None:
        fault(programs)
    return Job({DEFAULT: range(ranks)}, programs)


#: Times at which dumps are written: 10 minutes after the first call.
WRITTEN_NS = BEGAN_NS + 600 * 10**9


class Hang:
    """Dumps of a job in a store, and what perfpipe says of them."""

    def __init__(self, folder: Path, job: Job | None = None, **options: Any) -> None:
        self.folder = folder / "dumps"
        if job is not None:
            write({**enumerated(dumps_of(job))}, self.folder, **options)
            self.stamp()
        self.store = Store(folder / "store")

    def stamp(self) -> None:
        for path in self.folder.iterdir():
            os.utime(path, ns=(WRITTEN_NS, WRITTEN_NS))

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        found = ingest(self.folder, self.store).report_id
        with Session.open(self.store, [found]) as session:
            return session.execute(sql).fetchall()

    def said(self) -> str:
        """Return the sentences of the verdict."""
        found = ingest(self.folder, self.store).report_id
        with Session.open(self.store, [found], use=VIEWS) as session:
            facts = statements_of(Scope(session.con, (found,), {KIND: 1}))
            return " ".join(fact.text for fact in facts)

    def verdict(self, cli: Cli) -> str:
        """Return the verdict of the report in Markdown."""
        found = ingest(self.folder, self.store).report_id
        assert cli("report", found, "--store", str(self.store.root), "--md", "-") == 0, cli.err
        return next(line for line in cli.out.splitlines() if line.startswith("**"))


def enumerated(dumps: Sequence[object]) -> dict[int, object]:
    return dict(enumerate(dumps))


WAITS = "SELECT kind, sequence, waiting_ranks, idle_ranks, elsewhere_ranks FROM hang_waits"

#: Output of ncclras: a dead process, and two ranks that launched fewer calls.
RAS = """NCCL version 2.28.9 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          4            1          8        8

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         4         8         8   RUNNING  RAS

Errors
======

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 5

Warnings
========

#0-0 (78db921d1c117b4a) RAS
  Communicator ranks have different AllReduce operation counts
  6 ranks have launched up to operation 64
  2 ranks have launched up to operation 60
  Rank 3 -- GPU 3 managed by process 1650386 on node node1
  Rank 7 -- GPU 3 managed by process 1650999 on node node2

"""
