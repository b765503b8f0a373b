"""Hashes a buffer many times, with adjustable noise and slowdown: try comparisons without a GPU.

Each launch does a random amount of work, as real launches are randomly slower or faster.  A time is
the CPU time of the fastest of several iterations, which other programs on the machine affect least.
If other programs still affect it, use --clock work, which counts hashes instead of time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
import statistics
import sys
import time

#: Bytes of one hash.
BUFFER = bytes(range(256)) * 4

#: Iterations per sample, of which the fastest counts.
TRIES = 20


def main() -> int:
    """Time one launch and return the exit code."""
    made = argparse.ArgumentParser(description="Hashing with adjustable noise and slowdown.")
    made.add_argument("--hashes", type=int, default=1000, help="hashes per iteration (1000)")
    made.add_argument("--slowdown", type=float, default=0.0, help="extra work: 0.03 is 3 %% (0)")
    made.add_argument(
        "--noise", type=float, default=0.005, help="run-to-run variation, 0.01 is 1 %% (0.005)"
    )
    made.add_argument(
        "--modes", type=float, default=0.0, help="slowdown of a random third of launches (0)"
    )
    made.add_argument(
        "--clock", choices=("cpu", "work"), default="cpu", help="CPU time, or 1 us per hash (cpu)"
    )
    made.add_argument("--seed", type=int, help="seed of the noise (default: random)")
    made.add_argument("--warmup", type=int, default=2, help="iterations before timing (2)")
    made.add_argument("--iterations", type=int, default=15, help="timed samples (15)")
    options = made.parse_args()
    chance = random.Random(options.seed)  # noqa: S311
    slower = 1 + options.slowdown + options.modes * (chance.random() < 1 / 3)
    hashes = round(options.hashes * slower * math.exp(chance.gauss(0, options.noise)))
    for _ in range(options.warmup):
        iteration(hashes)
    if options.clock == "work":
        iteration(hashes)
        method, times = "counted work", [hashes / 1e3] * options.iterations
    else:
        method = "CPU time"
        times = [min(timed(hashes) for _ in range(TRIES)) for _ in range(options.iterations)]
    print(json.dumps({"perfpipe": "time", "ms": times, "method": method}))
    print(f"median {statistics.median(times):.4f} ms of {len(times)}, {hashes} hashes")
    return 0


def timed(hashes: int) -> float:
    """Return the CPU time of an iteration, ms."""
    start = time.process_time_ns()
    iteration(hashes)
    return (time.process_time_ns() - start) / 1e6


def iteration(hashes: int) -> str:
    """Hash the buffer this many times, each time with the previous digest."""
    digest = b""
    for _ in range(hashes):
        digest = hashlib.blake2b(BUFFER + digest).digest()
    return digest.hex()


if __name__ == "__main__":
    sys.exit(main())
