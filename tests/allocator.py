"""A simulation of PyTorch's CUDA caching allocator, which writes real memory snapshots.

The rules are those of c10/cuda/CUDACachingAllocator.cpp: sizes are rounded to 512 bytes; blocks of up
to 1 MiB are parts of segments of 2 MiB, blocks below 10 MiB of segments of 20 MiB, and larger blocks
have segments in steps of 2 MiB.  The best free block is split, and free neighbours are merged.  If
the GPU is full, unused segments are given back first.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KIB, MIB = 1 << 10, 1 << 20

#: Where the stacks of the simulated program lie.
HERE = "/home/ada/train"
_TORCH = "/opt/venv/lib/python3.12/site-packages/torch"

Frame = dict[str, Any]
Frames = list[Frame]


class OutOfMemory(Exception):
    """The simulated GPU is full."""


_FRAMES: dict[tuple[str, str, int], Frame] = {}


def frame(file: str, name: str, line: int = 0) -> Frame:
    """Return a frame; the same frame is the same object, as in PyTorch."""
    return _FRAMES.setdefault((file, name, line), {"filename": file, "line": line, "name": name})


def native(*names: str) -> Frames:
    return [frame("??", name) for name in names]


MAIN = frame(f"{HERE}/train.py", "<module>", 90)
CALLED = [frame(f"{_TORCH}/nn/modules/module.py", name, line)
          for name, line in (("_call_impl", 1750), ("_wrapped_call_impl", 1739))]  # fmt: skip


def forward(line: int, *, module: str = "model.py", op: str = "mm") -> Frames:
    """Return the stack of an operator in the forward of a module."""
    return [
        *native(f"at::_ops::{op}::call(at::Tensor const&)"),
        frame(f"{HERE}/{module}", "forward", line),
        *CALLED,
        MAIN,
    ]


def backward(node: str = "MmBackward0", op: str = "mm") -> Frames:
    """Return the stack of a thread of autograd, which has no frames of Python."""
    return native(
        f"at::_ops::{op}::call(at::Tensor const&)",
        f"torch::autograd::generated::{node}::apply(std::vector<at::Tensor>&&)",
        "torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)",
        "torch::autograd::Engine::thread_init(int)",
    )


def optimizer(line: int = 60) -> Frames:
    """Return the stack of a step of Adam, called on a line of the program."""
    return [
        *native("at::_ops::zeros_like::call(at::Tensor const&)"),
        frame(f"{_TORCH}/optim/adam.py", "_init_group", 180),
        frame(f"{_TORCH}/optim/adam.py", "step", 230),
        frame(f"{_TORCH}/optim/optimizer.py", "wrapper", 493),
        frame(f"{HERE}/train.py", "step", line),
        MAIN,
    ]


def moved(line: int) -> Frames:
    """Return the stack of model.cuda() on a line of the program."""
    names = ("convert", "_apply", "cuda")
    inner = [frame(f"{_TORCH}/nn/modules/module.py", name, 900) for name in names]
    return [*inner, frame(f"{HERE}/train.py", "<module>", line)]


def plain(line: int, function: str = "log") -> Frames:
    """Return the stack of an operator in the program, outside modules."""
    return [*native("at::_ops::clone::call(at::Tensor const&)"),
            frame(f"{HERE}/train.py", function, line), MAIN]  # fmt: skip


@dataclass
class _Block:
    address: int
    size: int
    requested: int = 0
    state: str = "inactive"
    frames: Frames = field(default_factory=list)


@dataclass
class _Segment:
    address: int
    size: int
    small: bool
    blocks: list[_Block]


class Allocator:
    """The allocator of one GPU with `capacity` bytes."""

    def __init__(self, capacity: int = 1 << 40, device: int = 0) -> None:
        self.capacity, self.device = capacity, device
        self.segments: list[_Segment] = []
        self.trace: list[dict[str, Any]] = []
        self.marks: list[dict[str, Any]] = []
        self._next = 0x7F0000000000 + (device << 40)
        self._time_us = 1_700_000_000_000_000

    @property
    def reserved(self) -> int:
        return sum(segment.size for segment in self.segments)

    def allocate(self, size: int, frames: Frames) -> int:
        """Return the address of a new block; raises OutOfMemory."""
        rounded = max(512, -(-size // 512) * 512)
        small = rounded <= MIB
        found = self._free(rounded, small) or self._reserve(rounded, small, frames)
        if found is None:
            self._event("oom", None, size, frames, device_free=self.capacity - self.reserved)
            raise OutOfMemory
        segment, block = found
        left = block.size - rounded
        if left >= 512 if small else left > MIB:
            at = segment.blocks.index(block)
            segment.blocks.insert(at + 1, _Block(block.address + rounded, left))
            block.size = rounded
        block.requested, block.state, block.frames = size, "active_allocated", frames
        self._event("alloc", block.address, size, frames)
        return block.address

    def release(self, address: int, frames: Frames) -> None:
        """Release a block."""
        segment, block = next(
            (segment, block)
            for segment in self.segments
            for block in segment.blocks
            if block.address == address and block.state != "inactive"
        )
        for action in ("free_requested", "free_completed"):
            self._event(action, address, block.requested, frames)
        block.state, block.frames = "inactive", []
        at = segment.blocks.index(block)
        for right in (at + 1, at):
            if 0 < right < len(segment.blocks):
                left, own = segment.blocks[right - 1], segment.blocks[right]
                if left.state == own.state == "inactive":
                    left.size += own.size
                    del segment.blocks[right]

    def mark(self, name: str) -> None:
        """Record a range of record_function that ends here."""
        for stage in ("START", "END"):
            self._time_us += 1
            self.marks.append(
                {"stage": stage, "name": name, "device": self.device, "time_us": self._time_us}
            )

    def _free(self, size: int, small: bool) -> tuple[_Segment, _Block] | None:
        fitting = [
            (block.size, block.address, segment, block)
            for segment in self.segments
            for block in segment.blocks
            if segment.small == small and block.state == "inactive" and block.size >= size
        ]
        return min(fitting, key=lambda found: found[:2])[2:] if fitting else None

    def _reserve(self, size: int, small: bool, frames: Frames) -> tuple[_Segment, _Block] | None:
        wanted = (
            2 * MIB if small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        )
        if self.reserved + wanted > self.capacity:
            for segment in [own for own in self.segments if len(own.blocks) == 1]:
                if segment.blocks[0].state == "inactive":
                    self.segments.remove(segment)
                    self._event("segment_free", segment.address, segment.size, frames)
        if self.reserved + wanted > self.capacity:
            return None
        block = _Block(self._next, wanted)
        self.segments.append(_Segment(self._next, wanted, small, [block]))
        self._next += wanted + 2 * MIB
        self._event("segment_alloc", block.address, wanted, frames)
        return self.segments[-1], block

    def _event(
        self, action: str, address: int | None, size: int, frames: Frames, **more: int
    ) -> None:
        self._time_us += 7
        own = {"action": action} | more | ({} if address is None else {"addr": address})
        own |= {"size": size, "stream": 0, "time_us": self._time_us, "compile_context": "N/A"}
        self.trace.append(own | {"user_metadata": "", "frames": frames})


def snapshot(*allocators: Allocator, events: int | None = None) -> dict[str, Any]:
    """Return the snapshot of some GPUs; the ring of the history has room for `events`."""
    segments = []
    for own in allocators:
        for segment in sorted(own.segments, key=lambda segment: segment.address):
            used = [block for block in segment.blocks if block.state == "active_allocated"]
            segments.append({
                "device": own.device,
                "address": segment.address,
                "total_size": segment.size,
                "allocated_size": sum(block.size for block in used),
                "active_size": sum(block.size for block in used),
                "requested_size": sum(block.requested for block in used),
                "stream": 0,
                "segment_type": "small" if segment.small else "large",
                "segment_pool_id": (0, 0),
                "is_expandable": False,
                "frames": [],
                "blocks": [
                    {"address": block.address, "size": block.size, "requested_size": block.requested,
                     "state": block.state, "frames": block.frames}
                    for block in segment.blocks
                ],
            })  # fmt: skip
    kept = [own.trace if events is None else own.trace[-events:] for own in allocators]
    return {
        "segments": segments,
        "device_traces": kept,
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "expandable_segments": False,
            "roundup_power2_divisions": {"1": 0, "2": 0},
        },
        "external_annotations": [mark for own in allocators for mark in own.marks],
    }  # fmt: skip


def write(path: Path, content: dict[str, Any]) -> Path:
    """Write a snapshot as torch.cuda.memory._dump_snapshot does."""
    path.write_bytes(pickle.dumps(content))
    return path


@dataclass
class Truth:
    """An allocation as the program knows it; `end` is None if it is still in use."""

    category: str
    line: int | None
    size: int
    start: int
    end: int | None = None


class Training:
    """A training program that knows what each of its allocations is for."""

    def __init__(self, allocator: Allocator) -> None:
        self.allocator = allocator
        self.truths: list[Truth] = []
        self._held: dict[int, Truth] = {}

    def new(self, category: str, line: int | None, size: int, frames: Frames) -> int:
        address = self.allocator.allocate(size, frames)
        # The event of the allocation is the last one.
        truth = Truth(category, line, size, len(self.allocator.trace) - 1)
        self.truths.append(truth)
        self._held[address] = truth
        return address

    def drop(self, addresses: Sequence[int], frames: Frames) -> None:
        for address in addresses:
            self._held.pop(address).end = len(self.allocator.trace)
            self.allocator.release(address, frames)

    def run(
        self,
        parameters: Sequence[int],
        activations: Sequence[int],
        *,
        steps: int = 4,
        states: int = 2,
        leak: int = 0,
        temporary: int = 0,
        micro: int = 1,
        annotate: bool = True,
    ) -> None:
        """Train: parameters and activations are sizes by layer; `leak` bytes are kept per step."""
        for size in parameters:
            self.new("parameters", 10, size, moved(10))
        gradients: list[int] = []
        for step in range(steps):
            for _ in range(micro):
                self._micro(parameters, activations, temporary, gradients)
            if leak:
                self.new("unknown", 77, leak, plain(77))
            for size in parameters if step == 0 else ():
                for _ in range(states):
                    self.new("optimizer state", 60, size, optimizer())
            self.drop([self.new("temporary", 60, max(parameters), optimizer())], optimizer())
            if annotate:
                self.allocator.mark("Optimizer.step#Adam.step")
            self.drop(gradients, plain(61, "step"))
            gradients.clear()

    def _micro(
        self,
        parameters: Sequence[int],
        activations: Sequence[int],
        temporary: int,
        gradients: list[int],
    ) -> None:
        held = []
        for layer, size in enumerate(activations):
            held.append(self.new("activations", 30 + layer, size, forward(30 + layer)))
            if temporary:
                self.drop([self.new("temporary", 29, temporary, forward(29))], forward(29))
        first = not gradients
        for at in reversed(range(max(len(parameters), len(held)))):
            if at < len(parameters):
                own = backward()
                made = self.new("gradients" if first else "temporary", None, parameters[at], own)
                if first:
                    gradients.append(made)
                else:
                    self.drop([made], own)
            if at < len(held):
                self.drop([held[at]], backward())
