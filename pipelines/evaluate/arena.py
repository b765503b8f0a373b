"""The block of memory that the judge shares with a candidate: inputs, outputs, and guards.

On the CPU it is an anonymous file, on a GPU memory of the judge's that the other process opens.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perfpipe.pipelines.evaluate.block import BYTES
from perfpipe.pipelines.evaluate.chunks import chunks, unequal
from perfpipe.pipelines.evaluate.packets import WORD
from perfpipe.pipelines.evaluate.problem import Made

#: Guard bytes before and after each tensor, and their value.
GUARD, _GUARD_BYTE = 256, 0xA5

#: Elements of a row that are not part of a noncontiguous tensor.
_PADDING = 3


@dataclass(frozen=True)
class Place:
    """The place of a tensor: bytes from the beginning, strides in elements; or a number."""

    made: Made
    offset: int = 0
    stride: tuple[int, ...] = ()
    bytes: int = 0

    def view(self) -> dict[str, Any]:
        """Return it in the form for the candidate's process."""
        if self.made.number is not None:
            return {"value": self.made.number}
        return {
            "dtype": self.made.dtype,
            "shape": self.made.shape,
            "stride": self.stride,
            "offset": self.offset,
        }


@dataclass(frozen=True)
class Slot:
    """The places of one call, between two offsets."""

    start: int
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    end: int

    def views(self) -> dict[str, Any]:
        """Return them in the form for the candidate's process."""
        return {
            "inputs": [place.view() for place in self.inputs],
            "outputs": [place.view() for place in self.outputs],
        }


class Arena:
    """Shared memory of `size` bytes."""

    def __init__(self, torch: Any, device: str, size: int) -> None:
        self._torch, self.device, self.size = torch, device, size
        self.file = os.memfd_create("perfpipe-evaluate")
        self.shared: list[Any] = []
        if device == "cpu":
            os.ftruncate(self.file, size)
            self._mapped = mmap.mmap(self.file, size)
            self._bytes = torch.frombuffer(self._mapped, dtype=torch.uint8)
        else:
            # A process that opens the memory sees all of its segment: it must not have more in it.
            torch.cuda.empty_cache()
            whole = torch.empty(_segment(size), dtype=torch.uint8, device=device)
            self._bytes = whole[:size]
            shared = whole.untyped_storage()._share_cuda_()
            self._counter = shared[4:6]
            self.shared = [part.hex() if isinstance(part, bytes) else part for part in shared]

    def close(self) -> None:
        """Give the memory back."""
        if self.shared:
            # Killed processes do not count as users that are done, and PyTorch waits for one.
            self._torch.UntypedStorage._release_ipc_counter_cuda(*self._counter)
        del self._bytes
        os.close(self.file)

    def release(self) -> None:
        """Give memory of earlier results back to the device, for candidates."""
        if self.device != "cpu":
            self._torch.cuda.empty_cache()

    def tensor(self, place: Place) -> Any:
        """Return a place as a tensor."""
        dtype = getattr(self._torch, place.made.dtype)
        whole = self._bytes.view(dtype)
        offset = place.offset // whole.element_size()
        return whole.as_strided(place.made.shape, place.stride, offset)

    def fill(self, slots: Sequence[Slot], poison: int) -> None:
        """Write the guards of all slots, and `poison` into their outputs."""
        for slot in slots:
            self._bytes[slot.start : slot.end].fill_(_GUARD_BYTE)
            for place in slot.outputs:
                self._poisoned(place).fill_(_byte(place, poison))

    def write(self, slot: Slot, values: Sequence[Any]) -> None:
        """Write inputs to their places."""
        for place, value in zip(slot.inputs, values, strict=True):
            if place.made.number is None:
                self.tensor(place).copy_(value)

    def changed(self, slot: Slot, values: Sequence[Any]) -> list[tuple[int, int]]:
        """Return the numbers of changed inputs, with the count of changed elements."""
        found = []
        for number, (place, value) in enumerate(zip(slot.inputs, values, strict=True)):
            if place.made.number is not None:
                continue
            if count := unequal(self.tensor(place), value):
                found.append((number, count))
        return found

    def outside(self, slot: Slot) -> int:
        """Return how many guard bytes around the tensors of a slot were written."""
        wrong, at = 0, slot.start
        for place in (*slot.inputs, *slot.outputs):
            if place.made.number is None:
                wrong += int((self._bytes[at : place.offset] != _GUARD_BYTE).sum())
                at = place.offset + place.bytes
        return wrong + int((self._bytes[at : slot.end] != _GUARD_BYTE).sum())

    def written(self, slot: Slot, poison: int) -> int:
        """Return how many bytes of a slot's outputs are no longer the `poison` of `fill`."""
        count = 0
        for place in slot.outputs:
            whole, byte = self._poisoned(place), _byte(place, poison)
            for part in chunks(place.bytes):
                now = whole[part]
                if not self._torch.equal(now, self._torch.full_like(now, byte)):
                    count += int((now != byte).sum())
        return count

    def _poisoned(self, place: Place) -> Any:
        """Return the bytes of an output, which is contiguous."""
        return self._bytes[place.offset : place.offset + place.bytes]

    def words(self, offset: int, size: int) -> list[int]:
        """Return the words that cover `size` bytes from `offset`, aligned, as integers."""
        first, last = offset // WORD, -(-(offset + size) // WORD)
        found = bytes(self._bytes[first * WORD : last * WORD].tolist())
        return [*memoryview(found).cast("I")]

    def gather(self, offsets: Any) -> Any:
        """Return single bytes, on the host."""
        return self._bytes[offsets].cpu()

    def on_device(self, numbers: Sequence[int]) -> Any:
        """Return offsets as `gather` takes them."""
        return self._torch.tensor(numbers, dtype=self._torch.int64, device=self.device)


def laid_out(inputs: Sequence[Made], outputs: Sequence[Made], start: int, spread: int = 0) -> Slot:
    """Return places for a call from `start`.

    With `spread` inputs are not contiguous: 1 leaves gaps between rows and begins off a boundary,
    2 also swaps the order of the two last dimensions.
    """
    places: list[Place] = []
    begin = start
    for made in (*inputs, *outputs):
        is_input = len(places) < len(inputs)
        place = _place(made, start, spread if is_input else 0)
        places.append(place)
        start = _aligned(place.offset + place.bytes + GUARD)
    return Slot(begin, tuple(places[: len(inputs)]), tuple(places[len(inputs) :]), start)


def _byte(place: Place, poison: int) -> int:
    """Return the byte that poisons an output: a boolean has only two."""
    return poison & 1 if place.made.dtype == "bool" else poison


def _segment(size: int) -> int:
    """Return a size that fills a segment of PyTorch's allocator, bytes.

    From 10 MiB on it allocates multiples of 2 MiB, each as a segment of its own.
    """
    return max(20 << 20, -(-size // (2 << 20)) * (2 << 20))


def _aligned(offset: int) -> int:
    return -(-offset // GUARD) * GUARD


def _place(made: Made, start: int, spread: int) -> Place:
    """Return the place of a tensor, after a guard."""
    offset = start + GUARD
    if made.number is not None:
        return Place(made, start - GUARD)
    size = BYTES[made.dtype]
    shape = made.shape
    stride = [0] * len(shape)
    order = [*range(len(shape))]
    if spread == 2 and len(shape) > 1:
        order[-2:] = order[-1], order[-2]
    step = 1
    for number, axis in enumerate(reversed(order)):
        stride[axis] = step
        step *= max(1, shape[axis])
        if spread and number == 0:
            step += _PADDING
    elements = 1 + sum((extent - 1) * by for extent, by in zip(shape, stride, strict=True))
    if 0 in shape:
        elements = 0
    shift = size if spread else 0
    return Place(made, offset + shift, tuple(stride), elements * size)
