"""Runs in the process that ncu profiles: confines itself, loads a candidate, and calls it.

Runs as its own program, with a JSON file as its last argument: the usual request to a candidate's
process, with `calls` and the path of the `inputs`.  Prints its restrictions.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from typing import Any

from perfpipe.pipelines.evaluate.confine import confine
from perfpipe.pipelines.evaluate.fork_server import is_library, loading
from perfpipe.pipelines.evaluate.inside import Inside, settle

#: Warm-up calls before the profiled one, for compilation and tuning.
_WARMUP = 3


class _Alone(Inside):
    """A candidate with its own memory and without a judge: its reports are ignored."""

    def block(self, file: int) -> Any:
        """Return memory for the tensors."""
        asked = self._asked
        return self._torch.zeros(asked["bytes"], dtype=self._torch.uint8, device=asked["device"])

    def say(self, packet: dict[str, Any]) -> None:
        """Say nothing."""

    def filled(self, inputs: list[Any]) -> None:
        """Write the inputs of the call."""
        ((views, _),) = self._calls
        for view, value in zip(views, inputs, strict=True):
            if isinstance(view, self._torch.Tensor):
                view.copy_(value)
        self._synchronize()

    def call(self) -> None:
        """Call the candidate, and wait for its work."""
        for inputs, outputs in self._calls:
            self.quick(inputs, outputs)
        self._synchronize()

    @contextlib.contextmanager
    def profiled(self) -> Any:
        """Let ncu profile the launches in the block."""
        api = self._torch.cuda.cudart() if self._on_gpu else None
        if api is not None:
            api.cudaProfilerStart()
        yield
        if api is not None:
            api.cudaProfilerStop()


def main() -> None:
    """Profile a call."""
    with open(sys.argv[-1], encoding="utf-8") as file:  # noqa: PTH123
        asked = json.load(file)
    sys.path[:] = [path for path in sys.path[1:] if is_library(path)] + asked["libraries"]
    with loading():
        import torch

    line, _ = socket.socketpair()
    settle(asked["directory"])
    made = _Alone(asked, line, -1)
    made.do_prepare(asked)
    made.filled(torch.load(asked["inputs"], weights_only=True))
    os.unlink(asked["inputs"])  # noqa: PTH108
    refused = confine(asked, profiled=True)
    sys.stdout.write(f"{json.dumps({'refused': refused})}\n")
    sys.stdout.flush()
    made.limit()
    made.do_load(asked)
    for _ in range(_WARMUP):
        made.call()
    with made.profiled():
        made.call()
