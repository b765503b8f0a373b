"""A simulated inference engine with continuous batching, which knows what its iterations compute."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from conftest import Tiny

from perfpipe.ingest.reading import ingest
from perfpipe.ingest.serving.loads import Load
from perfpipe.ingest.serving.loads import Request as Served
from perfpipe.ingest.serving.own import write_loads
from perfpipe.store import Store

US, MS = 1_000, 1_000_000

#: Start of the capture, ns since 1970; origin of the clock of the timeline.
ORIGIN = 1_795_176_058_000_000_000
PID, TID = 77, 78


@dataclass
class Request:
    """A request, and what the engine did for it; times in ns on the clock of the timeline."""

    number: int
    planned: int
    sent: int
    prompt: int
    output: int
    done: int = 0
    prefilled_by: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)


@dataclass
class Iteration:
    """An iteration: its requests by number, its tokens, and when it ran.

    The host works on it in its range, from `host_start` to `host_end`; it begins after the end of
    the iteration before it.
    """

    prefills: list[int]
    prefill_tokens: int
    decodes: list[int]
    kv_tokens: int
    host_start: int
    host_end: int
    start: int
    first: int
    gpu_end: int
    end: int
    launches: list[dict[str, Any]]

    @property
    def kind(self) -> str:
        if self.prefills:
            return "mixed" if self.decodes else "prefill"
        return "decode"


def vllm(own: Iteration, number: int) -> str:
    n, d = len(own.prefills), len(own.decodes)
    return f"execute_context_{n}({own.prefill_tokens})_generation_{d}({d})"


def words(own: Iteration, number: int) -> str:
    if own.kind == "prefill":
        return f"iteration {number} prefill batch={len(own.prefills)} tokens={own.prefill_tokens}"
    return f"iteration {number} decode batch={len(own.decodes)}"


def numbered(own: Iteration, number: int) -> str:
    return f"iteration {number}"


@dataclass
class Engine:
    """Serves requests that arrive as a Poisson process.

    With a `chunk` of tokens, an iteration also computes parts of prompts, else prompts have
    iterations of their own.  `late` is the number of iterations after which tokens are sent, `lag`
    the time until they arrive; `think` is the time of the host between iterations.  An engine that
    works `ahead` launches an iteration while the GPU computes the one before it.
    """

    seed: int
    requests: int = 40
    rate: float = 20.0
    batch: int = 8
    chunk: int = 0
    late: int = 0
    lag: int = 300 * US
    think: int = 200 * US
    output: tuple[int, int] = (4, 40)
    prompts: tuple[int, int] = (50, 800)
    graphs: bool = False
    ahead: bool = False
    kernels: int = 6
    served: list[Request] = field(default_factory=list)
    iterations: list[Iteration] = field(default_factory=list)

    def __post_init__(self) -> None:
        random = Random(self.seed)
        now = 5 * MS
        for number in range(self.requests):
            now += round(random.expovariate(self.rate) * 1e9)
            sent = now + random.randint(10, 200) * US
            prompt, output = random.randint(*self.prompts), random.randint(*self.output)
            self.served.append(Request(number, now, sent, prompt, output))
        self._correlation = 100
        self._run(random)

    def _run(self, random: Random) -> None:
        now = MS
        running: list[Request] = []
        waiting = list(self.served)
        while waiting or running:
            ready = [one for one in waiting if one.sent + 100 * US <= now]
            if not ready and not running:
                now = waiting[0].sent + 100 * US
                continue
            free = self.batch - len(running)
            chunks: list[tuple[Request, int]] = []
            left = self.chunk or 1 << 30
            for one in ready[:free]:
                part = min(one.prompt - one.done, left)
                if part > 0:
                    chunks.append((one, part))
                    left -= part
            decodes = running if self.chunk or not chunks else []
            tokens = sum(part for _, part in chunks)
            own = self._launch(now, chunks, tokens, decodes, random)
            for one in decodes:
                one.tokens.append(len(self.iterations))
            for one, part in chunks:
                one.done += part
                one.prefilled_by.append(len(self.iterations))
                if one.done == one.prompt:
                    waiting.remove(one)
                    one.tokens.append(len(self.iterations))
                    running = [*running, one]
            self.iterations.append(own)
            running = [one for one in running if len(one.tokens) < one.output]
            now = own.end + self.think + random.randint(0, 50) * US
            if self.ahead:
                before = self.iterations[-2].end if len(self.iterations) > 1 else 0
                now = max(own.host_end + 20 * US, before + self.think)

    def _launch(
        self, now: int, chunks: list[tuple[Request, int]], tokens: int, decodes: list[Request],
        random: Random,
    ) -> Iteration:  # fmt: skip
        """Return an iteration that launches its kernels one after the other, and reads its tokens."""
        kv = sum(one.prompt + len(one.tokens) for one in decodes)
        busy = 3 * MS + 10 * US * tokens + 20 * US * len(decodes) + kv * 100
        each = busy // self.kernels
        free = self.iterations[-1].end if self.iterations else 0
        at, clock = now + 50 * US, max(now + 60 * US, free)
        rows: list[dict[str, Any]] = []
        names = [f"layer{number % 3}" for number in range(self.kernels)]
        if self.graphs and not chunks:
            names, each = [f"graph {len(decodes)}"], busy
        for name in [*names, "argmax", "[CUDA memcpy Device-to-Host]"]:
            self._correlation += 1
            copy = name.startswith("[")
            length = 2 * US if copy or name == "argmax" else each
            start = max(clock, at + 8 * US) + random.randint(0, 1000)
            kind = "memcpy" if copy else "graph" if name.startswith("graph") else "kernel"
            call = {"memcpy": "cudaMemcpyAsync", "graph": "cudaGraphLaunch"}.get(
                kind, "cudaLaunchKernel"
            )
            clock = start + length
            rows.append({
                "kind": kind, "name": name, "pid": PID, "tid": TID, "device": 0, "stream": 7,
                "correlation_id": self._correlation, "start_ns": start, "end_ns": clock,
                "api_name": call, "api_start_ns": at,
                "api_end_ns": clock if copy and not self.ahead else at + 5 * US,
            })  # fmt: skip
            at += 6 * US
        host_end = (at if self.ahead else clock) + 20 * US
        return Iteration(
            [one.number for one, _ in chunks], tokens, [one.number for one in decodes], kv, now,
            host_end, max(now, free), rows[0]["start_ns"], clock, max(host_end, clock), rows,
        )  # fmt: skip

    def arrivals(self) -> Iterator[tuple[Request, list[int]]]:
        """Yield each request with the arrivals of its tokens."""
        random = Random(self.seed + 1)
        last = len(self.iterations) - 1
        for one in self.served:
            known = 0
            times = []
            for iteration in one.tokens:
                at = self.iterations[min(iteration + self.late, last)].end
                known = max(at + self.lag + random.randint(0, 60) * US, known + 1)
                times.append(known)
            yield one, times

    @property
    def end(self) -> int:
        return self.iterations[-1].end + self.lag + 20 * MS


def plant(
    engine: Engine, name: Callable[[Iteration, int], str] | None, *, tokens: bool = True,
    streamed: bool = True, lengths: bool = True, **load: Any,
) -> Tiny:  # fmt: skip
    """Return a database with the engine's timeline and its requests."""
    db = Tiny()
    db.add("reports", {"report_id": "t", "kind": "nsys", "source_name": "w.sqlite", "directory": "d",
                       "started_ns": ORIGIN, "gpu": "NVIDIA H200"})  # fmt: skip
    db.add("reports", {"report_id": "s", "kind": "serving", "directory": "d"})
    db.add("request_loads", {
        "report_id": "s", "load_id": 0, "phase": "nsys", "rate": engine.rate, "clock": "utc",
        "capture": "w.sqlite", "window_start_ns": ORIGIN, "window_end_ns": ORIGIN + engine.end,
        "arrivals": "poisson", "generator": "perfpipe", "started_ns": ORIGIN,
        "ended_ns": ORIGIN + engine.end, **load,
    })  # fmt: skip
    call = 0
    for number, own in enumerate(engine.iterations):
        if name is not None:
            db.add("nsys_nvtx_ranges", {
                "report_id": "t", "pid": PID, "tid": TID, "name": name(own, number), "style": "PushPop",
                "start_ns": own.host_start, "end_ns": own.host_end, "range_id": number,
                "first_call": call, "calls": len(own.launches),
            })  # fmt: skip
        for row in own.launches:
            db.add("launches", {"report_id": "t", "call_id": call, **row})
            call += 1
    for row in requests_of(engine, streamed=streamed, lengths=lengths):
        times = row.pop("token_ns")
        db.add(
            "requests",
            {"report_id": "s", "load_id": 0, "phase": "nsys", "rate": engine.rate, **row},
        )
        if tokens and streamed:
            db.add("request_tokens", *(
                {"report_id": "s", "request_id": row["request_id"], "position": at, "time_ns": time}
                for at, time in enumerate(times)
            ))  # fmt: skip
    return db


def requests_of(
    engine: Engine, *, streamed: bool = True, lengths: bool = True
) -> Iterator[dict[str, Any]]:
    """Yield the requests as their client saw them, ns since 1970."""
    for one, times in engine.arrivals():
        yield {
            "request_id": one.number, "planned_ns": ORIGIN + one.planned, "sent_ns": ORIGIN + one.sent,
            "first_token_ns": ORIGIN + times[0] if streamed else None,
            "last_token_ns": ORIGIN + times[-1] if streamed else None,
            "end_ns": ORIGIN + times[-1] + 50 * US, "input_tokens": one.prompt if lengths else None,
            "output_tokens": len(times), "token_ns": [ORIGIN + time for time in times],
        }  # fmt: skip


_CLEARED = (
    "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT", "NVTX_EVENTS", "CUBLAS_EVENTS", "CUDNN_EVENTS", "OSRT_API",
    "PROFILER_OVERHEAD", "CUDA_GPU_MEMORY_USAGE_EVENTS", "CUDA_GPU_MEMORY_POOL_EVENTS", "SCHED_EVENTS",
    "SAMPLING_CALLCHAINS", "COMPOSITE_EVENTS", "CUDA_CALLCHAINS", "OSRT_CALLCHAINS",
)  # fmt: skip


def plant_in_export(
    engine: Engine,
    path: Path,
    name: Callable[[Iteration, int], str] | None,
) -> None:
    """Replace the events of an export of nsys by those of an engine."""
    with sqlite3.connect(path) as con:
        for table in _CLEARED:
            con.execute(f"DELETE FROM {table}")
        con.execute("UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = ?", (ORIGIN,))
        ids: dict[str, int] = {}
        (top,) = con.execute("SELECT max(id) FROM StringIds").fetchone()

        def text(value: str) -> int:
            if value not in ids:
                ids[value] = top + 1 + len(ids)
                con.execute("INSERT INTO StringIds (id, value) VALUES (?, ?)", (ids[value], value))
            return ids[value]

        process = (1 << 56) | (PID << 24)
        thread = process | TID
        for number, own in enumerate(engine.iterations):
            if name is not None:
                _insert(con, "NVTX_EVENTS", start=own.host_start, end=own.host_end, eventType=59,
                        text=name(own, number), globalTid=thread, domainId=0)  # fmt: skip
            for row in own.launches:
                _insert(con, "CUPTI_ACTIVITY_KIND_RUNTIME", start=row["api_start_ns"],
                        end=row["api_end_ns"], eventClass=0, globalTid=thread,
                        correlationId=row["correlation_id"], nameId=text(row["api_name"]),
                        returnValue=0)  # fmt: skip
                _insert_work(con, row, process, text)
    con.close()


def _insert(con: sqlite3.Connection, table: str, **values: Any) -> None:
    places = ", ".join("?" * len(values))
    con.execute(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({places})", [*values.values()])


def _insert_work(
    con: sqlite3.Connection, row: dict[str, Any], process: int, text: Callable[[str], int]
) -> None:
    own = {
        "start": row["start_ns"], "end": row["end_ns"], "correlationId": row["correlation_id"],
        "globalPid": process, "deviceId": 0, "contextId": 1, "streamId": 7,
    }  # fmt: skip
    if row["kind"] == "memcpy":
        _insert(con, "CUPTI_ACTIVITY_KIND_MEMCPY", **own, bytes=8, copyKind=2, srcKind=2, dstKind=0,
                copyCount=1)  # fmt: skip
    elif row["kind"] == "graph":
        graph = int(row["name"].split()[1])
        _insert(con, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", **own, graphId=graph, graphExecId=graph)
    else:
        name = text(row["name"])
        zero = (
            "staticSharedMemory",
            "dynamicSharedMemory",
            "localMemoryPerThread",
            "localMemoryTotal",
            "gridId",
        )
        _insert(con, "CUPTI_ACTIVITY_KIND_KERNEL", **own, demangledName=name, shortName=name,
                registersPerThread=32, gridX=64, gridY=1, gridZ=1, blockX=128, blockY=1, blockZ=1,
                **dict.fromkeys(zero, 0))  # fmt: skip


def stored(
    engine: Engine, export: Path, name: Callable[[Iteration, int], str] | None,
    model: Mapping[str, float], dtype: str | None = None,
) -> Store:  # fmt: skip
    """Return a new store beside an export of nsys, with an engine's events in it and its requests."""
    plant_in_export(engine, export, name)
    requests = [
        Served(**{key: value for key, value in row.items() if key != "request_id"})
        for row in requests_of(engine)
    ]
    load = Load(
        requests, phase="nsys", rate=engine.rate, arrivals="poisson", generator="perfpipe",
        window_start_ns=ORIGIN, window_end_ns=ORIGIN + engine.end, capture=export.name,
        model=dict(model), dtype=dtype,
    )  # fmt: skip
    file = export.with_name("requests.jsonl")
    write_loads(file, [load])
    store = Store(export.with_name("store"))
    for path in (export, file):
        ingest(path, store)
    return store
