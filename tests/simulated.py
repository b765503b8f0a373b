"""Programs of several ranks on GPUs, with the times of all that they do: longest paths, by recursion."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from perfpipe.analysis.critical.events import NONE, Calls, Operations
from perfpipe.analysis.critical.graph import Graph, Limits, graph_of
from perfpipe.ingest.arrays import Ints

LIMITS = Limits(near=20_000, handoff=100_000, full=20_000, full_operations=256)


@dataclass
class Element:
    """An operation or call of a program: it begins when its dependencies have ended.

    A call that waits for `awaited` ends with it, else after `took`.
    """

    category: str
    took: int
    after: list[Element] = field(default_factory=list)
    awaited: Element | None = None
    group: list[Element] | None = None
    rank: int = 0
    stream: int = NONE
    call: Element | None = None
    orders: tuple[int, int, Element] | None = None

    def __hash__(self) -> int:
        return id(self)


@dataclass
class Program:
    """Ranks that work on the host and launch operations on streams, with the times of both.

    `scale` multiplies the durations of categories; starts and ends are longest paths, by recursion.
    """

    calls: list[Element] = field(default_factory=list)
    operations: list[Element] = field(default_factory=list)
    gaps: dict[Element, tuple[Element | None, int]] = field(default_factory=dict)
    last: dict[int, Element] = field(default_factory=dict)
    given: dict[int, list[Element]] = field(default_factory=dict)
    waits: dict[int, list[Element]] = field(default_factory=dict)
    scale: dict[str, int] = field(default_factory=dict)
    known: dict[tuple[Element, str], int] = field(default_factory=dict)

    def call(self, rank: int, gap: int, category: str, took: int) -> Element:
        """Let a rank work for `gap` ns, and then call."""
        made = Element(category, took, rank=rank)
        self.gaps[made] = (self.last.get(rank), gap)
        self.last[rank] = made
        self.calls.append(made)
        return made

    def launch(self, rank: int, stream: int, gap: int, category: str, took: int) -> Element:
        """Launch an operation, which waits for its stream and for what the stream was ordered behind."""
        own = 10 * rank + stream
        call = self.call(rank, gap, "launch_api", 2)
        before = self.given.setdefault(own, [])
        made = Element(category, took, [call, *before[-1:], *self.waits.pop(own, [])], rank=rank)
        made.stream, made.call = own, call
        before.append(made)
        self.operations.append(made)
        return made

    def order(self, rank: int, stream: int, other: int) -> None:
        """Record an event on a stream, and let another stream wait for it."""
        recorded = self.call(rank, 2, "cuda_call", 1)
        waiting = self.call(rank, 2, "cuda_call", 1)
        waiting.orders = (10 * rank + other, 10 * rank + stream, recorded)
        if self.given.get(10 * rank + stream):
            self.waits.setdefault(10 * rank + other, []).append(self.given[10 * rank + stream][-1])

    def wait(self, rank: int, stream: int) -> None:
        """Wait on the host for a stream."""
        made = self.call(rank, 2, "cuda_call", 0)
        made.orders = (NONE, 10 * rank + stream, made)
        given = self.given.get(10 * rank + stream)
        made.awaited = given[-1] if given else None

    def collective(self, ranks: Sequence[int], gap: int, took: int) -> None:
        """Let all ranks launch a collective on stream 2."""
        members = [self.launch(rank, 2, gap, "communication", took) for rank in ranks]
        for member in members:
            member.group = members

    def lasting(self, category: str, took: int) -> int:
        return took * self.scale.get(category, 100) // 100

    def start(self, one: Element) -> int:
        if (one, "start") not in self.known:
            if one in self.gaps:
                before, gap = self.gaps[one]
                # What precedes the first call of a thread is not recorded.
                found = self.end(before) + self.lasting("host", gap) if before else gap
            else:
                found = max(self.end(other) for other in one.after)
            self.known[one, "start"] = found
        return self.known[one, "start"]

    def end(self, one: Element) -> int:
        if (one, "end") not in self.known:
            begun = max(map(self.start, one.group or [one]))
            found = begun + self.lasting(one.category, one.took)
            if one.awaited is not None:
                found = max(found, self.end(one.awaited))
            self.known[one, "end"] = found
        return self.known[one, "end"]

    def scaled(self, **scale: int) -> Program:
        """Return the same program with categories that last some percent of their time."""
        return Program(
            self.calls, self.operations, self.gaps, self.last, self.given, self.waits, scale
        )

    def graph(self) -> Graph:
        """Return the graph of what a profiler would record."""
        calls = sorted(self.calls, key=lambda one: (self.start(one), one.rank))
        ops = sorted(self.operations, key=lambda one: (self.start(one), one.stream))
        at = {one: number for number, one in enumerate(calls)}
        groups = {id(one.group): number for number, one in enumerate(ops) if one.group}
        self.elements = (ops, calls)
        operations: dict[str, Any] = {
            "stream": ints(one.stream for one in ops),
            "gpu": ints(one.rank for one in ops),
            "process": ints(one.rank for one in ops),
            "start": ints(map(self.start, ops)),
            "end": ints(map(self.end, ops)),
            "call": ints(at[one.call] for one in ops if one.call),
            "called": ints(self.start(one.call) for one in ops if one.call),
            "group": ints(groups[id(one.group)] if one.group else NONE for one in ops),
            "slack": np.zeros(len(ops), np.int64),
            "category": [one.category for one in ops],
            "name": ["op"] * len(ops),
        }
        waits = [one.orders or (NONE, NONE, one) for one in calls]
        called: dict[str, Any] = {
            "thread": ints(one.rank for one in calls),
            "process": ints(one.rank for one in calls),
            "start": ints(map(self.start, calls)),
            "end": ints(map(self.end, calls)),
            "blocks": np.array([own[0] == NONE != own[1] for own in waits], bool),
            "loads": np.zeros(len(calls), bool),
            "orders": np.array([own[0] != NONE for own in waits], bool),
            "waiting": ints(own[0] for own in waits),
            "awaits": ints(own[1] for own in waits),
            "recorded": ints(self.start(own[2]) for own in waits),
            "name": ["call"] * len(calls),
        }
        return graph_of(Operations(**operations), Calls(**called), LIMITS)

    def ends(self) -> list[int]:
        """Return the starts and ends of operations and calls, in the order of the graph's points."""
        ops, calls = self.elements
        return [
            *map(self.start, ops),
            *map(self.end, ops),
            *map(self.start, calls),
            *map(self.end, calls),
        ]

    def delays(self, chosen: Element, until: Element) -> bool:
        """Return whether `until` ends later if an element lasts 1 ns longer."""
        chosen.took += 1
        later = self.scaled().end(until)
        chosen.took -= 1
        return later > self.end(until)


def ints(values: Iterable[int]) -> Ints:
    return np.array([*values], np.int64)


@st.composite
def programs(draw: st.DrawFn) -> tuple[Program, int]:
    """Draw a program of up to three ranks, with two streams, events, waits and collectives."""
    ranks = draw(st.integers(1, 3))
    made = Program()
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(("launch", "launch", "order", "wait", "collective")))
        rank = draw(st.integers(0, ranks - 1))
        stream = draw(st.integers(0, 1))
        if kind == "launch":
            category = draw(st.sampled_from(("compute", "transfer")))
            gap, took = 2 * draw(st.integers(1, 20)), 2 * draw(st.integers(1, 60))
            made.launch(rank, stream, gap, category, took)
        elif kind == "order":
            made.order(rank, *draw(st.permutations((stream, 2)))[:2])
        elif kind == "wait":
            made.wait(rank, draw(st.sampled_from((0, 1, 2))))
        elif ranks > 1:
            made.collective(range(ranks), 2, 2 * draw(st.integers(1, 30)))
    for rank in range(ranks):
        made.launch(rank, 0, 2, "compute", 2)
    return made, ranks
