"""Writes what torch.profiler would have traced of a simulated training, and opens these traces."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from simulated_ranks import (
    US,
    Collective,
    Exchange,
    Job,
    Placed,
    Ranks,
    Training,
    Wait,
    Work,
    simulate,
)

from perfpipe.analysis.session import Session
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store

#: Names of the groups in Megatron-LM, and of the dimensions of PyTorch's DeviceMesh.
MEGATRON = {
    "tensor": "TENSOR_MODEL_PARALLEL_GROUP",
    "context": "CONTEXT_PARALLEL_GROUP",
    "data": "DATA_PARALLEL_GROUP",
    "pipeline": "PIPELINE_MODEL_PARALLEL_GROUP",
    "expert": "EXPERT_MODEL_PARALLEL_GROUP",
}
DEVICE_MESH = {
    "tensor": "mesh_tp",
    "context": "mesh_cp",
    "data": "mesh_dp",
    "pipeline": "mesh_pp",
    "expert": "mesh_ep",
}

#: torch's names of collectives: call, annotation, kernel.
CALLS = {
    "AllReduce": ("allreduce", "nccl:all_reduce", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"),
    "AllGather": ("_allgather_base", "nccl:_all_gather_base", "ncclDevKernel_AllGather_RING_LL"),
    "ReduceScatter": (
        "_reduce_scatter_base",
        "nccl:_reduce_scatter_base",
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL",
    ),
    "AllToAll": ("all_to_allv", "nccl:all_to_all", "ncclDevKernel_SendRecv"),
}
SEND_RECEIVE = "ncclDevKernel_SendRecv"


def write_traces(
    job: Job, directory: Path, names: dict[str, str] | None = None, ranks: Sequence[int] = ()
) -> list[Path]:
    """Write the traces of some ranks (all, if none are named); return their paths.

    `names` are the descriptions of the process groups by their kind.
    """
    numbers = _group_numbers(job)
    paths = []
    for rank in ranks or sorted(job.steps):
        path = directory / f"rank{rank}.json"
        path.write_text(json.dumps(_Trace(job, rank, numbers, names or {}).made()))
        paths.append(path)
    return paths


def _group_numbers(job: Job) -> dict[tuple[str, Ranks], int]:
    groups = {
        (placed.item.kind, placed.item.ranks)
        for steps in job.steps.values()
        for placed in itertools.chain.from_iterable(steps)
        if isinstance(placed.item, Collective | Exchange)
    }
    return {group: number for number, group in enumerate(sorted(groups), 1)}


class _Trace:
    """The events of a rank: the host issues each item some time before it can run."""

    _AHEAD, _LASTS, _SETUP = 60 * US, 3 * US, 2 * US

    def __init__(
        self, job: Job, rank: int, numbers: dict[tuple[str, Ranks], int], names: dict[str, str]
    ) -> None:
        self._job, self._rank, self._numbers, self._names = job, rank, numbers, names
        self._pid = 1000 + rank
        self._correlation = 0
        self._host = 0
        self._events: list[dict[str, Any]] = []

    def made(self) -> dict[str, Any]:
        """Return the trace."""
        for number, step in enumerate(self._job.steps[self._rank]):
            began = self._host + 1
            for placed in step:
                self._issue(placed)
            self._add("user_annotation", f"ProfilerStep#{number}", began, self._host - began)
        return {
            "schemaVersion": 1,
            "deviceProperties": [
                {"id": n, "name": "NVIDIA H100 80GB HBM3", "numSms": 132,
                 "computeMajor": 9, "computeMinor": 0} for n in range(8)
            ],
            "distributedInfo": {"backend": "nccl", "rank": self._rank,
                                "world_size": len(self._job.steps)},
            "baseTimeNanoseconds": 1_790_000_000 * 10**9,
            "traceEvents": self._events,
        }  # fmt: skip

    def _add(self, category: str, name: str, start: int, ns: int, **more: Any) -> None:
        # Times begin after 0, which would be no time.
        event = {"ph": "X", "cat": category, "name": name, "pid": self._pid, "tid": self._pid}
        times = {"ts": (start + 10**9) / US, "dur": ns / US}
        self._events.append({**event, **times, **more})

    def _issue(self, placed: Placed) -> None:
        item = placed.item
        if isinstance(item, Wait):
            return
        thread = {"tid": self._pid + (7 if item.backward else 0)}
        at = max(self._host + self._SETUP, placed.issued - self._AHEAD)
        if isinstance(item, Work):
            self._launch(at, item.name, placed, 7, thread)
        elif isinstance(item, Collective):
            call, annotation, kernel = CALLS[item.operation]
            rows = {"In split size": list(item.sent_rows), "Out split size": list(item.got_rows)}
            args = self._args(item, call, item.put, item.got)
            args |= {name: str(split) for name, split in rows.items()}
            self._add("cpu_op", "record_param_comms", at, 4 * self._LASTS, args=args, **thread)
            self._add("user_annotation", annotation, at + 1, 3 * self._LASTS, **thread)
            stream = 20 + self._numbers[item.kind, item.ranks]
            self._launch(at + self._LASTS, kernel, placed, stream, thread)
            self._host += 3 * self._LASTS
        else:
            for way, peer, elements in item.messages:
                args = self._args(item, way, elements, elements)
                args["Dst Rank" if way == "send" else "Src Rank"] = peer
                self._add("cpu_op", "record_param_comms", at, self._LASTS, args=args, **thread)
                at += 2 * self._LASTS
            self._add("user_annotation", "nccl:coalesced", at, 4 * self._LASTS, **thread)
            stream = 19 if item.blocks else 18
            self._launch(at + self._LASTS, SEND_RECEIVE, placed, stream, thread)
            self._host += 3 * self._LASTS
            if item.blocks:
                self._wait(item, thread)

    def _wait(self, item: Exchange, thread: dict[str, Any]) -> None:
        """torch records that it waits for a call like a call, with a group of one rank."""
        args = self._args(item, "wait", 0, 0)
        args |= {"dtype": "Byte", "Process Group Ranks": "[]", "Group size": 1}
        args |= {"Global rank start": -1, "Global rank stride": -1}
        at = self._host + self._SETUP
        self._add("cpu_op", "record_param_comms", at, self._LASTS, args=args, **thread)
        self._host = at + self._LASTS

    def _args(self, item: Collective | Exchange, call: str, put: int, got: int) -> dict[str, Any]:
        ranks = item.ranks
        shown = ", ".join(map(str, ranks[:30])) + (", ..." if len(ranks) > 30 else "")
        return {
            "Collective name": call, "dtype": "BFloat16", "In msg nelems": put,
            "Out msg nelems": got, "In split size": "[]", "Out split size": "[]",
            "Process Group Name": str(self._numbers[item.kind, ranks]),
            "Process Group Description": self._names.get(item.kind, "undefined"),
            "Process Group Ranks": f"[{shown}]", "Group size": len(ranks),
            "Global rank start": ranks[0],
            "Global rank stride": ranks[1] - ranks[0] if len(ranks) > 1 else 1,
            "Rank": self._rank,
        }  # fmt: skip

    def _launch(
        self, at: int, name: str, placed: Placed, stream: int, thread: dict[str, Any]
    ) -> None:
        self._correlation += 1
        link = {"correlation": self._correlation}
        self._add("cuda_runtime", "cudaLaunchKernel", at, self._LASTS // 3, args=link, **thread)
        self._host = at + self._LASTS // 3
        place = {"device": self._rank % 8, "context": 1, "stream": stream, **link}
        size = {"grid": [132, 1, 1], "block": [256, 1, 1]}
        gpu = {"pid": self._rank % 8, "tid": stream, "args": {**place, **size}}
        self._add("kernel", name, placed.start, placed.end - placed.start, **gpu)


class Traced:
    """A simulated job and a session over its traces."""

    def __init__(
        self,
        directory: Path,
        training: Training,
        names: dict[str, str] | None = None,
        ranks: tuple[int, ...] = (),
    ) -> None:
        directory.mkdir(exist_ok=True)
        self.training = training
        self.job = simulate(training.programs())
        self.paths = write_traces(self.job, directory, names, ranks)
        store = Store(directory / "store")
        self._open = ExitStack()
        reports = [ingest(path, store).report_id for path in self.paths]
        self._con = self._open.enter_context(Session.open(store, reports))

    def __enter__(self) -> Traced:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        return self._con.execute(sql).fetchall()

    def groups(self) -> dict[tuple[int, ...], tuple[str, str | None]]:
        """Return the kind of each group, and where it comes from."""
        rows = self.rows("SELECT members, kind, kind_source FROM rank_groups")
        return {tuple(members): (kind, source) for members, kind, source in rows}
