"""GPU operations and CUDA calls of a step as columns, for the graph of what waits for what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfpipe.ingest.arrays import Ints

Flags = npt.NDArray[np.bool_]

#: No call, no stream, no collective.
NONE = -1


@dataclass(frozen=True)
class Operations:
    """GPU operations, in order of start; times are ns on the clock of the job.

    `stream`, `gpu`, `process` are numbers.  `call` is the index of the launching call, and `called`
    its time, also of a call that was not read; NONE if no call was recorded.  `group` is the
    number of the collective that ends on no rank before the last one has begun it, or NONE.
    `slack` is the error of the clock of the operation's rank.
    """

    stream: Ints
    gpu: Ints
    process: Ints
    start: Ints
    end: Ints
    call: Ints
    called: Ints
    group: Ints
    slack: Ints
    category: Sequence[str]
    name: Sequence[str]

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class Calls:
    """CUDA calls, in order of start.

    `blocks` waits on the host for `awaits`: the work that this stream had been given at `recorded`;
    NONE is all work of the process.  `orders` lets the stream `waiting` wait for the same.
    """

    thread: Ints
    process: Ints
    start: Ints
    end: Ints
    blocks: Flags
    loads: Flags
    orders: Flags
    waiting: Ints
    awaits: Ints
    recorded: Ints
    name: Sequence[str]

    def __len__(self) -> int:
        return len(self.start)
