"""The graph of a step: points in time, and edges from each point to those that wait for it.

The points are the starts and ends of operations and calls, and the moment in which the last rank
has begun a collective.  A point waits for all points with an edge to it; the latest of them bound
it.  An edge lasts at least `least` ns, also if what it waits for comes earlier: that is what a
replay of the graph with shorter parts uses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfpipe.analysis.critical.events import NONE, Calls, Flags, Operations
from perfpipe.analysis.critical.reached import last_open, running_max
from perfpipe.ingest.arrays import Ints

#: Kinds of edges.  An operation and what is within a call have the category of their owner.
OPERATION, CALL, HOST, QUEUED, GAP, SYNC, ARRIVED = range(7)

#: Kinds whose edges last as long as they did, whatever comes before.
_LASTING = (OPERATION, CALL, HOST)

#: Ranks of points with equal times: what ends comes before what begins.
_ENDED, _RETURNED, _CALLED, _BEGUN, _MET = range(5)

_BITS = 44


@dataclass(frozen=True)
class Limits:
    """Times in ns that decide what waits for what; see [critical] in thresholds.toml."""

    near: int
    handoff: int
    full: int
    full_operations: int


@dataclass(frozen=True)
class Graph:
    """Points with their times, and edges sorted by the place of their target in `order`.

    `first[place]` is the first edge to the point at a place.  `bound` is the edge that each point
    waited for last, or NONE.  `owner` of an edge is an operation, or a call plus the number of
    operations; NONE for time between calls and in waiting for others.  `met` is when the last rank
    has begun the collective of an operation, NONE if there is none.
    """

    operations: Operations
    calls: Calls
    time: Ints
    order: Ints
    source: Ints
    target: Ints
    kind: Ints
    owner: Ints
    thread: Ints
    least: Ints
    first: Ints
    bound: Ints
    met: Ints


@dataclass
class _Edges:
    """Edges as they are found; `priority` is the time that decides which one bound its target."""

    source: list[Ints]
    target: list[Ints]
    kind: list[Ints]
    owner: list[Ints]
    thread: list[Ints]
    least: list[Ints]
    early: list[Ints]

    def add(
        self,
        source: Ints,
        target: Ints,
        kind: int,
        owner: Ints | None = None,
        *,
        thread: Ints | None = None,
        least: Ints | None = None,
        early: Ints | None = None,
    ) -> None:
        """Add edges; `least` is NONE where it follows from the kind."""
        missing = np.full(len(source), NONE)
        for to, values in (
            (self.source, source),
            (self.target, target),
            (self.kind, np.full(len(source), kind)),
            (self.owner, missing if owner is None else owner),
            (self.thread, missing if thread is None else thread),
            (self.least, missing if least is None else least),
            (self.early, np.zeros(len(source), np.int64) if early is None else early),
        ):
            to.append(np.asarray(values, np.int64))


def graph_of(operations: Operations, calls: Calls, limits: Limits) -> Graph:
    """Return the graph of some operations and calls; the effort grows as a sort of them."""
    return _Builder(operations, calls, limits).graph()


class _Builder:
    def __init__(self, operations: Operations, calls: Calls, limits: Limits) -> None:
        self.ops, self.calls, self.limits = operations, calls, limits
        self.n, self.m = len(operations), len(calls)
        joined = operations.group != NONE
        known, number = np.unique(operations.group[joined], return_inverse=True)
        self.groups = len(known)
        self.group = np.full(self.n, NONE)
        self.group[joined] = number
        met = np.full(self.groups, np.iinfo(np.int64).min)
        np.maximum.at(met, number, operations.start[joined])
        self.time = np.concatenate(
            [operations.start, operations.end, calls.start, calls.end, met]
        ).astype(np.int64)
        self.order = self._order()
        self.place = np.empty_like(self.order)
        self.place[self.order] = np.arange(len(self.order))
        # Pages migrate on no stream, although profilers give one: nothing there waits for them.
        self.migrates = operations.call == NONE
        self.migrates &= np.array([own == "migration" for own in operations.category], bool)
        self.stream = np.where(self.migrates, NONE, operations.stream)
        self.by_stream = np.argsort(self.stream, kind="stable")
        # What no call launched was there when it began.
        self.issued = np.where(operations.called == NONE, operations.start, operations.called)
        self.origin = int(self.time.min()) if len(self.time) else 0
        self.edges = _Edges([], [], [], [], [], [], [])
        self.launching = np.zeros(self.m, bool)
        self.launching[operations.call[operations.call != NONE]] = True

    def _order(self) -> Ints:
        ops, calls = self.ops, self.calls
        rank = np.concatenate([
            np.full(self.n, _BEGUN),
            np.where(ops.end > ops.start, _ENDED, _BEGUN),
            np.full(self.m, _CALLED),
            np.where(calls.end > calls.start, _RETURNED, _CALLED),
            np.full(self.groups, _MET),
        ])  # fmt: skip
        # Both points of an element without duration keep their order.
        element = np.concatenate([np.arange(self.n)] * 2 + [np.arange(self.m)] * 2)
        element = np.concatenate([2 * element, np.zeros(self.groups, np.int64)])
        element[self.n : 2 * self.n] += 1
        element[2 * self.n + self.m : 2 * (self.n + self.m)] += 1
        return np.lexsort([element, rank, self.time])

    def begin(self, operation: Ints) -> Ints:
        """Return the points at which operations start."""
        return operation

    def finish(self, operation: Ints) -> Ints:
        """Return the points at which operations end."""
        return operation + self.n

    def enter(self, call: Ints) -> Ints:
        """Return the points at which calls start."""
        return call + 2 * self.n

    def leave(self, call: Ints) -> Ints:
        """Return the points at which calls end."""
        return call + 2 * self.n + self.m

    def graph(self) -> Graph:
        self._run()
        self._streams()
        self._launches()
        self._migrations()
        self._stream_waits()
        self._other_streams()
        self._threads()
        self._host_waits()
        self._full_queues()
        self._handoffs()
        return self._finished()

    def _run(self) -> None:
        """Add the time that operations last; a collective ends after the last rank has begun it."""
        ops = self.ops
        every = np.arange(self.n)
        # A rank whose collective ended before another one began, by its clock, did not wait for it.
        met = ops.end + 1
        member = np.flatnonzero(self.group != NONE)
        met[member] = self.time[2 * (self.n + self.m) + self.group[member]]
        joins = met <= ops.end
        self.met = np.where(joins, met, NONE)
        alone = np.where(joins, np.minimum(ops.end - met, ops.end - ops.start), NONE)
        self.edges.add(self.begin(every), self.finish(every), OPERATION, every, least=alone)
        own = np.flatnonzero(joins)
        point = 2 * (self.n + self.m) + self.group[own]
        self.edges.add(self.begin(own), point, ARRIVED, least=np.zeros(len(own), np.int64))
        self.edges.add(
            point, self.finish(own), OPERATION, own, least=ops.end[own] - met[own],
            early=ops.slack[own],
        )  # fmt: skip

    def _streams(self) -> None:
        """Order the operations of a stream; one that overlaps the next one lets it begin."""
        ops = self.ops
        before, after = self.by_stream[:-1], self.by_stream[1:]
        same = (self.stream[before] == self.stream[after]) & (self.stream[after] != NONE)
        before, after = before[same], after[same]
        apart = ops.end[before] <= ops.start[after]
        self.edges.add(self.finish(before[apart]), self.begin(after[apart]), GAP)
        beside = ~apart
        self.edges.add(
            self.begin(before[beside]), self.begin(after[beside]), OPERATION, before[beside]
        )

    def _launches(self) -> None:
        """Let the first operation of a call begin during the call, or after its return."""
        ops, calls = self.ops, self.calls
        launched = np.flatnonzero(ops.call != NONE)
        _, first = np.unique(ops.call[launched], return_index=True)
        self.firsts = launched[first]
        call = ops.call[self.firsts]
        returned = calls.end[call] <= ops.start[self.firsts]
        self.edges.add(self.leave(call[returned]), self.begin(self.firsts[returned]), QUEUED)
        during = ~returned & (calls.start[call] <= ops.start[self.firsts])
        self.edges.add(
            self.enter(call[during]), self.begin(self.firsts[during]), CALL, call[during] + self.n
        )

    def _migrations(self) -> None:
        """Let pages migrate for the work that runs meanwhile, else for the host.

        Nothing launches a migration.  The host works after its last call, or migration, or is in a
        call.
        """
        ops, calls = self.ops, self.calls
        for gpu in np.unique(ops.gpu[self.migrates]).tolist():
            own = np.flatnonzero((ops.gpu == gpu) & self.migrates)
            work = np.flatnonzero((ops.gpu == gpu) & ~self.migrates)
            at = np.searchsorted(ops.start[work], ops.start[own], side="right") - 1
            running = last_open(ops.end[work], at, ops.start[own])
            during = running != NONE
            cause = work[running[during]]
            self.edges.add(self.begin(cause), self.begin(own[during]), OPERATION, cause)
            own = own[~during]
            after = np.flatnonzero(ops.end[own[:-1]] <= ops.start[own[1:]]) + 1
            self.edges.add(self.finish(own[after - 1]), self.begin(own[after]), HOST)
            called = np.flatnonzero(np.isin(calls.process, ops.process[own]))
            at = np.searchsorted(calls.start[called], ops.start[own], side="right") - 1
            inside = last_open(calls.end[called], at, ops.start[own])
            within = inside != NONE
            call = called[inside[within]]
            self.edges.add(self.enter(call), self.begin(own[within]), CALL, call + self.n)
            by_end = called[np.argsort(calls.end[called], kind="stable")]
            at = np.searchsorted(calls.end[by_end], ops.start[own], side="right") - 1
            begun = (at >= 0) & ~within
            call = by_end[at[begun]]
            self.edges.add(
                self.leave(call), self.begin(own[begun]), HOST, thread=calls.thread[call]
            )

    def _given(self, stream: Ints, when: Ints) -> Ints:
        """Return the last operation that each stream had been given at a time, or NONE."""
        by_stream = self.by_stream
        streams = self.stream[by_stream]
        origin = self.origin
        key = (streams << _BITS) + np.maximum(self.issued[by_stream] - origin, 0)
        key = np.maximum.accumulate(key)
        wanted = (stream << _BITS) + np.maximum(when - origin, 0)
        at = np.searchsorted(key, wanted, side="left") - 1
        found = (at >= 0) & (stream >= 0)
        found[found] = streams[at[found]] == stream[found]
        return np.where(found, by_stream[np.maximum(at, 0)] if self.n else NONE, NONE)

    def _stream_waits(self) -> None:
        """Let the next operation of a stream wait for what a call ordered it behind."""
        calls = self.calls
        waits = np.flatnonzero(calls.orders & (calls.waiting >= 0) & (calls.awaits >= 0))
        awaited = self._given(calls.awaits[waits], calls.recorded[waits])
        last = self._given(calls.waiting[waits], calls.start[waits])
        following = self._next_of_stream(calls.waiting[waits], last)
        fits = (awaited != NONE) & (following != NONE)
        awaited, following = awaited[fits], following[fits]
        fits = self.ops.end[awaited] <= self.ops.start[following]
        self.edges.add(self.finish(awaited[fits]), self.begin(following[fits]), GAP)

    def _next_of_stream(self, stream: Ints, last: Ints) -> Ints:
        """Return the operation of each stream after its operation `last`; NONE is the first."""
        by_stream = self.by_stream
        streams = self.stream[by_stream]
        place = np.empty(self.n, np.int64)
        place[by_stream] = np.arange(self.n)
        at = np.where(last == NONE, np.searchsorted(streams, stream), NONE)
        at[last != NONE] = place[last[last != NONE]] + 1
        found = at < self.n
        found[found] = streams[at[found]] == stream[found]
        return np.where(found, by_stream[np.minimum(at, self.n - 1)] if self.n else NONE, NONE)

    def _other_streams(self) -> None:
        """Infer that what began right after another stream of its GPU ended waited for it.

        Only where no known release is as late, as in traces without events, and within graphs.
        """
        ops = self.ops
        release = self._latest_release()
        by_end = np.lexsort([ops.end, ops.gpu])
        origin = self.origin
        key = (ops.gpu[by_end] << _BITS) + ops.end[by_end] - origin
        at = np.searchsorted(key, (ops.gpu << _BITS) + ops.start - origin, side="right") - 1
        before = by_end[np.maximum(at, 0)] if self.n else at
        fits = (at >= 0) & (before != np.arange(self.n))
        fits &= (ops.gpu[before] == ops.gpu) & (self.stream[before] != self.stream)
        fits &= ops.end[before] > release
        fits &= ops.start - ops.end[before] <= self.limits.near
        fits &= (ops.start - release > self.limits.near) | ~self._is_first()
        after = np.flatnonzero(fits)
        self.edges.add(self.finish(before[after]), self.begin(after), GAP)

    def _latest_release(self) -> Ints:
        """Return the time of the latest known release of each operation."""
        latest = np.full(2 * (self.n + self.m) + self.groups, np.iinfo(np.int64).min)
        for source, target in zip(self.edges.source, self.edges.target, strict=True):
            np.maximum.at(latest, target, self.time[source])
        return latest[: self.n]

    def _is_first(self) -> Flags:
        first = np.zeros(self.n, bool)
        first[self.firsts] = True
        return np.asarray(first | (self.ops.call == NONE))

    def _threads(self) -> None:
        """Order the points of a thread; time between them belongs to the innermost open call."""
        calls = self.calls
        points = np.concatenate([self.enter(np.arange(self.m)), self.leave(np.arange(self.m))])
        thread = np.concatenate([calls.thread, calls.thread])
        sorted_ = np.lexsort([self.place[points], thread])
        points, thread = points[sorted_], thread[sorted_]
        same = thread[:-1] == thread[1:]
        inner = self._innermost(points, thread)[:-1][same]
        source, target, thread = points[:-1][same], points[1:][same], thread[:-1][same]
        within = inner != NONE
        self.edges.add(
            source[within], target[within], CALL, inner[within] + self.n, thread=thread[within]
        )
        self.edges.add(source[~within], target[~within], HOST, thread=thread[~within])

    def _innermost(self, points: Ints, thread: Ints) -> Ints:
        """Return the innermost call that is open after each point of a thread, or NONE."""
        inner = np.full(len(points), NONE)
        first_end = 2 * self.n + self.m
        open_: list[int] = []
        current = None
        calls = (points - 2 * self.n).tolist()
        for at, (call, own) in enumerate(zip(calls, thread.tolist(), strict=True)):
            if own != current:
                open_, current = [], own
            if call < first_end - 2 * self.n:
                open_.append(call)
            elif call - self.m in open_:
                open_.remove(call - self.m)
            inner[at] = open_[-1] if open_ else NONE
        return inner

    def _host_waits(self) -> None:
        """Let a call that blocks return after the work for which it waits.

        A copy of pageable memory blocks until it is done, or until its last part has begun.
        """
        calls, ops = self.calls, self.ops
        blocking = np.flatnonzero(calls.blocks)
        known = calls.awaits[blocking] != NONE
        given = self._given(calls.awaits[blocking], calls.recorded[blocking])
        awaited = np.where(known, given, self._ended_last(blocking))
        copies = self.firsts[[ops.category[at] == "transfer" for at in self.firsts.tolist()]]
        copies = copies[~calls.blocks[ops.call[copies]]]
        call = np.concatenate([blocking, ops.call[copies]])
        work = np.concatenate([awaited, copies])
        call, work = call[work != NONE], work[work != NONE]
        done = ops.end[work] <= calls.end[call]
        self._returns(self.finish(work[done]), call[done])
        call = ops.call[copies]
        begun = (ops.start[copies] > calls.start[call]) & (ops.start[copies] < calls.end[call])
        begun &= ops.end[copies] > calls.end[call]
        self.edges.add(self.begin(copies[begun]), self.leave(call[begun]), OPERATION, copies[begun])

    def _ended_last(self, call: Ints) -> Ints:
        """Return the operation of the process that ended last before each call returned."""
        ops, calls = self.ops, self.calls
        by_end = np.lexsort([ops.end, ops.process])
        origin = self.origin
        key = (ops.process[by_end] << _BITS) + ops.end[by_end] - origin
        at = np.searchsorted(
            key, (calls.process[call] << _BITS) + calls.end[call] - origin, side="right"
        )
        found = at > 0
        found[found] = ops.process[by_end[at[found] - 1]] == calls.process[call[found]]
        return np.where(found, by_end[np.maximum(at - 1, 0)] if self.n else NONE, NONE)

    def _returns(self, source: Ints, call: Ints) -> None:
        self.edges.add(source, self.leave(call), SYNC)

    def _full_queues(self) -> None:
        """Let a long launch behind hundreds of others wait for the GPU to take one of them."""
        calls, ops = self.calls, self.ops
        long = np.flatnonzero(self.launching & (calls.end - calls.start >= self.limits.full))
        if not len(long):
            return
        issued = self.issued
        source, blocked = [], []
        for process in np.unique(calls.process[long]).tolist():
            own = np.flatnonzero(ops.process == process)
            start = ops.start[own]
            mine = long[calls.process[long] == process]
            given = np.searchsorted(np.sort(issued[own]), calls.start[mine])
            pending = given - np.searchsorted(start, calls.start[mine])
            last = np.searchsorted(start, calls.end[mine], side="right") - 1
            fits = (pending >= self.limits.full_operations) & (last >= 0)
            fits[fits] = start[last[fits]] > calls.start[mine[fits]]
            source.append(own[last[fits]])
            blocked.append(mine[fits])
        self._returns(self.begin(np.concatenate(source)), np.concatenate(blocked))

    def _handoffs(self) -> None:
        """Infer that a thread that was quiet continues what another one did that became quiet.

        So do the threads of autograd and the one that waits for them.
        """
        calls, quiet = self.calls, self.limits.handoff
        busy = np.unique(calls.thread[self.launching])
        chosen = np.flatnonzero(np.isin(calls.thread, busy))
        by_thread = chosen[np.lexsort([calls.start[chosen], calls.thread[chosen]])]
        starts = np.ones(len(by_thread), bool)
        starts[1:] = calls.thread[by_thread[1:]] != calls.thread[by_thread[:-1]]
        until = running_max(calls.end[by_thread], starts)
        low, high = np.iinfo(np.int64).min // 2, np.iinfo(np.int64).max // 2
        reached = np.full(self.m, low)
        reached[by_thread[1:]] = np.where(starts[1:], low, until[:-1])
        goes_on = np.full(self.m, high)
        goes_on[by_thread[:-1]] = np.where(starts[1:], high, calls.start[by_thread[1:]])
        wakes = by_thread[calls.start[by_thread] - reached[by_thread] > quiet]
        rests = by_thread[goes_on[by_thread] - calls.end[by_thread] > quiet]
        for process in np.unique(calls.process[wakes]).tolist():
            mine, other = (own[calls.process[own] == process] for own in (wakes, rests))
            other = other[np.argsort(calls.end[other], kind="stable")]
            at = np.searchsorted(calls.end[other], calls.start[mine], side="right") - 1
            fits = at >= 0
            mine, other = mine[fits], other[at[fits]]
            fits = (calls.end[other] > reached[mine]) & (goes_on[other] > calls.start[mine])
            fits &= calls.thread[other] != calls.thread[mine]
            self.edges.add(
                self.leave(other[fits]), self.enter(mine[fits]), HOST,
                thread=calls.thread[mine[fits]],
            )  # fmt: skip

    def _finished(self) -> Graph:
        made = self.edges
        source, target, kind, owner, thread, least, early = (
            np.concatenate(own) for own in vars(made).values()
        )
        place = self.place
        keep = place[source] < place[target]
        priority = self.time[source] - early
        by_target = np.lexsort([place[source], priority, place[target]])
        by_target = by_target[keep[by_target]]
        source, target, kind, owner, thread, least = (
            own[by_target] for own in (source, target, kind, owner, thread, least)
        )
        points = len(self.time)
        first = np.searchsorted(place[target], np.arange(points + 1))
        bound = np.full(points, NONE)
        has = first[1:] > first[:-1]
        bound[self.order[has]] = first[1:][has] - 1
        took = self.time[target] - self.time[source]
        binding = np.zeros(len(source), bool)
        binding[bound[bound != NONE]] = True
        least = np.where(least != NONE, least, self._least(took, kind, binding, target, owner))
        return Graph(
            self.ops, self.calls, self.time, self.order, source, target, kind, owner, thread,
            least, first, bound, self.met,
        )  # fmt: skip

    def _least(self, took: Ints, kind: Ints, binding: Flags, target: Ints, owner: Ints) -> Ints:
        """Return how long edges take if they are not what is waited for: as those usually do."""
        least = took.copy()
        for own in (QUEUED, GAP, SYNC):
            bound = took[binding & (kind == own)]
            usual = int(np.median(bound)) if len(bound) else 0
            loose = ~binding & (kind == own)
            least[loose] = np.minimum(took[loose], usual)
        # The host does nothing while it waits for the GPU or another thread.
        bound_by = np.full(len(self.time), NONE)
        bound_by[target[binding]] = kind[binding]
        waited = np.isin(bound_by[target], (SYNC, HOST, OPERATION))
        least[np.isin(kind, (CALL, HOST)) & ~binding & waited] = 0
        # A call that lets its operation begin before it returns.
        early = (kind == CALL) & ~binding & (target < self.n)
        usual = took[binding & (kind == CALL) & (target < self.n)]
        least[early] = np.minimum(took[early], int(np.median(usual)) if len(usual) else 0)
        return least
