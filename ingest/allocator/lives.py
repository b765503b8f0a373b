"""Which allocation of a snapshot each event and each block belongs to."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

from perfpipe.ingest.allocator.content import Block, Event
from perfpipe.ingest.allocator.stacks import NO_STACK

#: No event: before the first one for the start, still in use for the end.
NONE = -1

ALLOC, FREED, COMPLETED = "alloc", "free_requested", "free_completed"

#: State of a block that a tensor uses.
ALLOCATED = "active_allocated"


@dataclass
class Allocations:
    """Allocations as columns; an index is the number of an allocation."""

    device: array[int] = field(default_factory=lambda: array("q"))
    address: array[int] = field(default_factory=lambda: array("q"))
    bytes: array[int] = field(default_factory=lambda: array("q"))
    stream: array[int] = field(default_factory=lambda: array("q"))
    stack: array[int] = field(default_factory=lambda: array("q"))
    start: array[int] = field(default_factory=lambda: array("q"))
    end: array[int] = field(default_factory=lambda: array("q"))
    completed: array[int] = field(default_factory=lambda: array("q"))

    def add(self, device: int, of: Event | Block, size: int, stack: int, start: int) -> int:
        """Add an allocation that is in use; returns its number."""
        self.device.append(device)
        self.address.append(of.address or 0)
        self.bytes.append(size)
        self.stream.append((of.stream or 0) if isinstance(of, Event) else 0)
        self.stack.append(stack)
        self.start.append(start)
        self.end.append(NONE)
        self.completed.append(NONE)
        return len(self.end) - 1


class Lives:
    """Follows the addresses of one device from event to event.

    Releases of unknown addresses, and blocks without an event, are of memory that was allocated
    before the first event; the history of the allocator is a ring that drops the oldest events.
    """

    def __init__(self, device: int, all_: Allocations) -> None:
        self._device, self._all = device, all_
        self._used: dict[int, int] = {}
        self._released: dict[int, int] = {}
        self._freed: set[int] = set()
        #: Allocations at an address that was in use, and those whose release is not recorded.
        self.overlapping = self.unreleased = 0
        #: Blocks that were allocated after the last event.
        self.later = 0

    def event(self, event: Event, number: int, stack: int) -> int:
        """Return the allocation that an event belongs to, NONE for other events."""
        address = event.address
        if address is None:
            return NONE
        if event.action == ALLOC:
            return self._allocated(event, number, stack, address)
        if event.action == FREED:
            return self._requested(event, number, address)
        return self._completed(number, address) if event.action == COMPLETED else NONE

    def _allocated(self, event: Event, number: int, stack: int, address: int) -> int:
        if (former := self._used.get(address)) is not None:
            self.overlapping += 1
            self._all.end[former] = number
        own = self._all.add(self._device, event, event.bytes, stack, number)
        self._used[address] = own
        self._freed.discard(address)
        return own

    def _requested(self, event: Event, number: int, address: int) -> int:
        own = self._used.pop(address, None)
        if own is None:
            own = self._all.add(self._device, event, event.bytes, NO_STACK, NONE)
        self._all.end[own] = number
        self._released[address] = own
        self._freed.add(address)
        return own

    def _completed(self, number: int, address: int) -> int:
        own = self._released.pop(address, None)
        if own is None:
            own = self._used.pop(address, None)
            if own is None:
                return NONE
            # Only the completion was recorded.
            self._all.end[own] = number
            self._freed.add(address)
        self._all.completed[own] = number
        return own

    def blocks(self, blocks: Iterable[tuple[Block, int]]) -> None:
        """Compare what is in use with the blocks in use at the time of the snapshot.

        Each block comes with its stack.  A block whose address was released in the last event that
        concerned it was allocated after the last event.
        """
        there = set()
        for block, stack in blocks:
            if block.state != ALLOCATED:
                continue
            there.add(block.address)
            if block.address in self._used:
                continue
            if block.address in self._freed:
                self.later += 1
            else:
                self._all.add(self._device, block, block.requested, stack, NONE)
        self.unreleased = len(self._used.keys() - there)
