"""Time to find the loops in a sequence of launches that nothing annotates.

    python benchmarks/bench_steps.py
    python benchmarks/bench_steps.py --sizes 100000 300000 1000000

Sequences are like those of a training program: start-up, a first step that is longer, steps of 40
layers, a launch in a hundred that differs, evaluations.  Prints one JSON line per size; exits with
1 where the limit for 300,000 launches or the exponent is exceeded.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time

import numpy as np
import numpy.typing as npt

from perfpipe.ingest.arrays import Codes
from perfpipe.ingest.nsys.issued import Issued
from perfpipe.ingest.nsys.loops import loops_of
from perfpipe.ingest.nsys.steps import steps_of

#: Limit for 300,000 launches, s; how the time may grow with the number of launches.
LIMIT_S, EXPONENT = 1.0, 1.15


def sequence(launches: int, seed: int = 0) -> tuple[Codes, int]:
    """Return codes of about so many launches, and the length of a step."""
    random = np.random.default_rng(seed)
    layer = random.integers(0, 60, 25)
    step = np.concatenate(
        [random.integers(0, 80, 40), np.tile(layer, 40), random.integers(80, 99, 60)]
    )
    evaluation = np.concatenate([random.integers(0, 80, 30), np.tile(layer, 12)])
    parts = [random.integers(100, 400, 500), step, random.integers(400, 450, 70)]
    while sum(len(part) for part in parts) < launches:
        parts += [step] * 20
        parts += [evaluation] * 10 if len(parts) % 3 == 0 else []
    codes = np.concatenate(parts).astype(np.int32)
    noise = random.random(len(codes)) < 0.01
    codes[noise] = random.integers(500, 520, int(noise.sum()))
    return codes, len(step)


def issued(codes: Codes) -> Issued:
    """Return a process that issues the codes, 10 us apart, without copies."""
    host = np.arange(len(codes), dtype=np.int64) * 10_000
    none: npt.NDArray[np.int64] = np.array([], np.int64)
    return Issued(
        pid=1,
        tid=np.ones(len(codes), np.int64),
        symbol=codes,
        host=host,
        ended=host + 5_000,
        idle=np.zeros(len(codes), np.int64),
        busy=np.full(len(codes), 5_000),
        optimizer=(codes >= 80) & (codes < 99),
        trial=np.zeros(len(codes), bool),
        sampling=np.zeros(len(codes), bool),
        graph=np.zeros(len(codes), bool),
        copy_tid=none,
        copy_host=none,
        copy_idle=none,
        result=np.array([], bool),
        given=np.array([], bool),
    )


def main() -> int:
    """Measure, print, compare with the limits."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[30_000, 100_000, 300_000, 1_000_000]
    )
    chosen = parser.parse_args()
    times: dict[int, float] = {}
    exceeded = False
    for size in chosen.sizes:
        codes, period = sequence(size)
        process = issued(codes)
        times[size] = math.inf
        for _ in range(3):
            before = time.process_time()
            found = loops_of(process, steps_of(process))
            times[size] = min(times[size], time.process_time() - before)
        (main_loop,) = (loop for loop in found if loop.role.role == "step")
        right = main_loop.loop.length == period
        exceeded |= not right or (size <= 300_000 and times[size] > LIMIT_S)
        print(
            json.dumps(
                {
                    "launches": len(codes),
                    "cpu_s": round(times[size], 3),
                    "launches_per_s": round(len(codes) / times[size]),
                    "launches_per_step": main_loop.loop.length,
                    "right": right,
                    "steps": len(main_loop),
                    "loops": len(found),
                }
            )
        )
    small, large = min(times), max(times)
    if small < large:
        exponent = math.log(times[large] / times[small]) / math.log(large / small)
        exceeded |= exponent > EXPONENT
        print(json.dumps({"exponent": round(exponent, 2)}))
    return int(exceeded)


if __name__ == "__main__":
    sys.exit(main())
