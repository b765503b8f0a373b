"""Simulates the GPUs of a distributed training.

The simulation knows its mesh, which intervals are work, when each rank arrived, and how many
tokens it got, so that tests can compare what perfpipe derives from the traces.  Times are integer
nanoseconds on one clock.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

US = 1_000

#: Kernels by what they compute.
GEMM, ATTENTION = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", "flash_fwd_kernel"
OPTIMIZER = "multi_tensor_apply_kernel"

#: Width of a token, elements of two bytes.
HIDDEN = 1024

Ranks = tuple[int, ...]


@dataclass(frozen=True)
class Work:
    """A kernel that computes."""

    ns: int
    name: str
    backward: bool = False


@dataclass(frozen=True)
class Collective:
    """A collective; elements that a rank puts in and gets out, and rows by peer if it splits them.

    The rank waits for it unless it is `beside` other work.
    """

    ranks: Ranks
    kind: str
    operation: str
    put: int
    got: int
    ns: int
    backward: bool = False
    beside: bool = False
    sent_rows: tuple[int, ...] = ()
    got_rows: tuple[int, ...] = ()


@dataclass(frozen=True)
class Exchange:
    """Messages in one kernel: way, peer, elements.  The rank waits unless it only sends."""

    ranks: Ranks
    kind: str
    messages: tuple[tuple[str, int, int], ...]
    ns: int
    backward: bool = False

    @property
    def blocks(self) -> bool:
        """Whether the rank waits for it."""
        return any(way == "recv" for way, _, _ in self.messages)


@dataclass(frozen=True)
class Wait:
    """Waits for the collectives beside the rank's work."""


Item = Work | Collective | Exchange | Wait
Programs = dict[int, list[list[Item]]]


@dataclass
class Placed:
    """What ran when; `issued` is when the rank came to it."""

    item: Item
    issued: int
    start: int
    end: int


@dataclass
class Job:
    """Items of each rank by step, placed in time."""

    steps: dict[int, list[list[Placed]]]


def simulate(programs: Programs) -> Job:
    """Run the programs of all ranks, by rank and step, until each has ended."""
    state = _Running({rank: list(_flat(steps)) for rank, steps in programs.items()})
    while state.advance():
        pass
    return Job({rank: state.by_step(rank, programs[rank]) for rank in programs})


def _flat(steps: Sequence[Sequence[Item]]) -> Iterator[Item]:
    return itertools.chain.from_iterable(steps)


@dataclass
class _Running:
    """Ranks that run: a collective ends when all have arrived, a message when both have."""

    items: dict[int, list[Item]]
    clock: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    done: dict[int, list[Placed]] = field(default_factory=lambda: defaultdict(list))
    numbers: dict[Any, int] = field(default_factory=lambda: defaultdict(int))
    arrived: dict[Any, dict[int, Placed]] = field(default_factory=lambda: defaultdict(dict))
    stream: dict[Any, Placed] = field(default_factory=dict)
    carries: dict[int, list[Any]] = field(default_factory=dict)
    open: dict[int, list[Placed]] = field(default_factory=lambda: defaultdict(list))
    waits: dict[int, Placed] = field(default_factory=dict)

    def advance(self) -> bool:
        """Let every rank run as far as it can; return whether any could."""
        return any(self._rank(rank) for rank in self.items)

    def _rank(self, rank: int) -> bool:
        before = len(self.done[rank])
        while len(self.done[rank]) < len(self.items[rank]) and self._item(rank):
            pass
        return len(self.done[rank]) > before

    def _item(self, rank: int) -> bool:
        if (waited := self.waits.get(rank)) is not None:
            if waited.end < 0:
                return False
            self.clock[rank] = max(self.clock[rank], waited.end)
            del self.waits[rank]
        item, now = self.items[rank][len(self.done[rank])], self.clock[rank]
        if isinstance(item, Work):
            self.clock[rank] = now + item.ns
            self.done[rank].append(Placed(item, now, now, now + item.ns))
            return True
        if isinstance(item, Wait):
            if any(placed.end < 0 for placed in self.open[rank]):
                return False
            now = max([now, *(placed.end for placed in self.open.pop(rank, []))])
            self.clock[rank] = now
            self.done[rank].append(Placed(item, now, now, now))
            return True
        blocks = item.blocks if isinstance(item, Exchange) else not item.beside
        lane = rank, item.kind, item.ranks, blocks
        if (last := self.stream.get(lane)) is not None and last.end < 0:
            return False
        placed = Placed(item, now, max(now, last.end if last else 0), -1)
        self.stream[lane] = placed
        self.done[rank].append(placed)
        if isinstance(item, Collective):
            self._collective(rank, item, placed)
        else:
            self._exchange(rank, item, placed)
        if blocks:
            self.waits[rank] = placed
        elif isinstance(item, Collective):
            self.open[rank].append(placed)
        return True

    def _next(self, *key: Any) -> Any:
        self.numbers[key] += 1
        return *key, self.numbers[key]

    def _collective(self, rank: int, item: Collective, placed: Placed) -> None:
        own = self._next(rank, item.kind, item.ranks, item.operation)
        there = self.arrived[own[1:]]
        there[rank] = placed
        if len(there) == len(item.ranks):
            end = max(p.start for p in there.values()) + item.ns
            for p in there.values():
                p.end = end
            del self.arrived[own[1:]]

    def _exchange(self, rank: int, item: Exchange, placed: Placed) -> None:
        keys = []
        for way, peer, _ in item.messages:
            pair = (rank, peer) if way == "send" else (peer, rank)
            keys.append(self._next(way, item.ranks, pair)[1:])
            self.arrived[keys[-1]][rank] = placed
        self.carries[id(placed)] = keys
        for key in keys:
            for there in list(self.arrived[key].values()):
                self._settle(there)

    def _settle(self, placed: Placed) -> None:
        """End an exchange if both sides of all its messages have arrived."""
        messages = [self.arrived[key] for key in self.carries[id(placed)]]
        assert isinstance(placed.item, Exchange)
        if all(len(sides) == 2 for sides in messages):
            starts = [side.start for sides in messages for side in sides.values()]
            placed.end = max(starts) + placed.item.ns

    def by_step(self, rank: int, steps: list[list[Item]]) -> list[list[Placed]]:
        placed = iter(self.done[rank])
        if len(self.done[rank]) < sum(map(len, steps)):
            raise RuntimeError(f"rank {rank} waits for ever")
        return [list(itertools.islice(placed, len(items))) for items in steps]


# ------------------------------------------------------------------------------------------------ #
# Programs


@dataclass(frozen=True)
class Training:
    """A training step on a mesh: ranks are numbered by tensor, context, data, pipeline.

    `scale` is how long a rank's kernels take in a step, as a multiple; `tokens` is what an expert
    rank gets from each rank of its group in a step.
    """

    tensor: int = 1
    context: int = 1
    data: int = 1
    pipeline: int = 1
    expert: int = 1
    microbatches: int = 4
    layers: int = 1
    steps: int = 4
    schedule: str = "1F1B"
    shards: bool = False
    sequence: bool = False
    ring: bool = False
    fused: bool = False
    forward_ns: int = 200 * US
    backward_ns: int = 400 * US
    scale: Callable[[int, int], float] = lambda rank, step: 1.0
    tokens: Callable[[int, int, int], int] = lambda source, target, step: 64

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.tensor * self.context * self.data * self.pipeline

    def groups(self, kind: str) -> list[Ranks]:
        """Return the groups of a kind."""
        sizes = {"tensor": self.tensor, "context": self.context, "data": self.data,
                 "pipeline": self.pipeline}  # fmt: skip
        if kind == "expert":
            # Consecutive ranks of the data dimension hold different experts.
            return [
                group[at : at + self.expert]
                for group in self.groups("data")
                for at in range(0, len(group), self.expert)
            ]
        stride = 1
        for name, size in sizes.items():
            if name == kind:
                break
            stride *= size
        size = sizes[kind]
        starts = [r for r in range(self.ranks) if r // stride % size == 0]
        return [tuple(start + stride * n for n in range(size)) for start in starts]

    def group(self, kind: str, rank: int) -> Ranks:
        """Return the group of a rank."""
        return next(group for group in self.groups(kind) if rank in group)

    def programs(self) -> Programs:
        """Return what each rank does in each step."""
        return {
            rank: [list(self._step(rank, step)) for step in range(self.steps)]
            for rank in range(self.ranks)
        }

    def _step(self, rank: int, step: int) -> Iterator[Item]:
        stages = self.group("pipeline", rank)
        stage = stages.index(rank)
        for part in order(self.schedule, stage, self.pipeline, self.microbatches):
            towards = 1 if part == "F" else -1
            before, after = stage - towards, stage + towards
            size = HIDDEN * 512
            back = part == "B"
            if 0 <= before < self.pipeline:
                message = (("recv", stages[before], size),)
                yield Exchange(stages, "pipeline", message, 20 * US)
            yield from self._passes(rank, step, back)
            if 0 <= after < self.pipeline:
                message = (("send", stages[after], size),)
                yield Exchange(stages, "pipeline", message, 20 * US)
        yield from self._gradients(rank)
        yield Work(100 * US, OPTIMIZER)

    def _passes(self, rank: int, step: int, back: bool) -> Iterator[Item]:
        ns = (self.backward_ns if back else self.forward_ns) * self.scale(rank, step)
        part = round(ns / 4)
        for _ in range(self.layers):
            yield from self._gathered(rank, back, first=True)
            yield Work(part, GEMM, back)
            yield from self._attended(rank, back)
            yield Work(part, ATTENTION, back)
            yield from self._routed(rank, step, back)
            yield Work(part, GEMM, back)
            if self.expert > 1:
                yield from self._routed(rank, step, back, home=True)
            yield Work(part, GEMM, back)
            yield from self._gathered(rank, back, first=False)

    def _gathered(self, rank: int, back: bool, *, first: bool) -> Iterator[Item]:
        """Activations of a layer within its tensor group."""
        group, size = self.group("tensor", rank), HIDDEN * 512
        if len(group) == 1:
            return
        if self.sequence:
            kind = "AllGather" if first else "ReduceScatter"
            some = size // len(group)
            put, got = (some, size) if first else (size, some)
            yield Collective(group, "tensor", kind, put, got, 30 * US, back)
        elif not first:
            yield Collective(group, "tensor", "AllReduce", size, size, 30 * US, back)

    def _attended(self, rank: int, back: bool) -> Iterator[Item]:
        """Keys and values of the whole sequence within the context group."""
        group, size = self.group("context", rank), HIDDEN * 256
        if len(group) == 1:
            return
        if not self.ring:
            operation = "ReduceScatter" if back else "AllGather"
            put, got = (size * len(group), size) if back else (size, size * len(group))
            yield Collective(group, "context", operation, put, got, 25 * US, back)
            return
        at = group.index(rank)
        after, before = group[(at + 1) % len(group)], group[at - 1]
        for _ in range(len(group) - 1):
            yield Work(10 * US, ATTENTION, back)
            messages = (("send", after, size), ("recv", before, size))
            yield Exchange(group, "context", messages, 15 * US, back)

    def _routed(self, rank: int, step: int, back: bool, *, home: bool = False) -> Iterator[Item]:
        """Tokens to the experts, and home."""
        if self.expert == 1:
            return
        group = self.group("expert", rank)
        away = tuple(self.tokens(rank, peer, step) for peer in group)
        come = tuple(self.tokens(peer, rank, step) for peer in group)
        sent, got = (come, away) if home != back else (away, come)
        yield Collective(
            group, "expert", "AllToAll", HIDDEN * sum(sent), HIDDEN * sum(got), 40 * US, back,
            sent_rows=sent, got_rows=got,
        )  # fmt: skip

    def _gradients(self, rank: int) -> Iterator[Item]:
        group = self.group("data", rank)
        if len(group) == 1:
            return
        for size in (1 << 21, 3 << 20, 1 << 19):
            if self.shards:
                some = size // len(group)
                yield Collective(group, "data", "ReduceScatter", size, some, 80 * US, True)
                yield Collective(group, "data", "AllGather", some, size, 80 * US)
            else:
                yield Collective(group, "data", "AllReduce", size, size, 80 * US, True)


def order(schedule: str, stage: int, stages: int, microbatches: int) -> str:
    """Return the forward (F) and backward (B) passes of a stage in their order.

    >>> order("1F1B", 0, 2, 3), order("1F1B", 1, 2, 3), order("GPipe", 0, 2, 3)
    ('FFBFBB', 'FBFBFB', 'FFFBBB')
    """
    if schedule == "GPipe":
        return "F" * microbatches + "B" * microbatches
    warm = min(stages - 1 - stage, microbatches)
    return "F" * warm + "FB" * (microbatches - warm) + "B" * warm
