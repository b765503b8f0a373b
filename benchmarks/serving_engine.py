"""`transformers serve` that logs its batches, and has a fault if one is asked for.

    python benchmarks/serving_engine.py LOG FAULT serve MODEL --port 8000 --continuous-batching

Each line of LOG is a batch: when it was launched, ns since 1970, and how many tokens each of its
requests had in it.  FAULT is none, or one that bench_serving.py describes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer
from transformers.cli.transformers import main as serve
from transformers.generation.continuous_batching import continuous_api, scheduler

#: What the faults add to each batch: characters to tokenize, and writes that wait for the disk.
TEXT, WRITES = "def encode(self, text): return " * 600, 4

#: Most requests in a batch with the fault `limit`.
LIMIT = 2


def fault_of(name: str, model: str, beside: Path) -> Callable[[], object]:
    """Return what a fault does in each batch."""
    if name == "tokenizer":
        tokenizer = AutoTokenizer.from_pretrained(model)
        return lambda: tokenizer.encode(TEXT)
    if name == "logging":
        file = beside.with_suffix(".slow").open("w", encoding="utf-8")

        def write() -> None:
            for _ in range(WRITES):
                file.write("a batch was launched\n")
                file.flush()
                os.fsync(file.fileno())

        return write
    return lambda: None


def main() -> None:
    """Serve until the process is ended."""
    log, fault, *words = sys.argv[1:]
    tokens: list[int] = []
    broken = fault_of(fault, words[1], Path(log))
    batches = Path(log).open("a", buffering=1, encoding="utf-8")  # noqa: SIM115
    processor = continuous_api.ContinuousBatchProcessor
    launch = processor._generation_step

    def launched(self: Any, *given: Any) -> Any:
        began = time.time_ns()
        found = launch(self, *given)
        batches.write(json.dumps({"began_ns": began, "tokens": [*tokens]}) + "\n")
        broken()
        return found

    def noted(schedule: Callable[..., Any]) -> Callable[..., Any]:
        def scheduled(self: Any, *given: Any) -> Any:
            if fault == "limit":
                self.max_requests_per_batch = LIMIT
            found = schedule(self, *given)
            tokens[:] = [one.query_length for one in found[0] or ()]
            return found

        return scheduled

    processor._generation_step = launched
    kinds: list[Any] = [kind for kind in vars(scheduler).values() if isinstance(kind, type)]
    for kind in kinds:
        if "schedule_batch" in vars(kind):
            kind.schedule_batch = noted(kind.schedule_batch)
    sys.argv[1:] = words
    serve()


if __name__ == "__main__":
    main()
