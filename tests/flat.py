"""One process that ingests and queries again and again: neither memory nor open files may grow.

python tests/flat.py --seconds 240 --seed 1
"""

from __future__ import annotations

import argparse
import contextlib
import io
import lzma
import os
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from perfpipe.pipelines.cli import run_cli
from perfpipe.store import STORE_VARIABLE

DATA = Path(__file__).resolve().parent / "data"
CAPTURES = ("nsys/memcpy.sqlite", "nsys/h2d.sqlite", "ncu/block.raw.csv", "ncu/ops.details.csv")

#: Queries of all kinds; one that fails must not keep anything either.
QUERIES = (
    "SELECT * FROM kernels LIMIT 5",
    "SELECT name, count(*) FROM nsys_api_calls GROUP BY 1 ORDER BY 2 DESC",
    "FROM findings",
    "SELECT no_such_column FROM kernels",
)

#: Rounds before anything is compared: imports, caches and pools fill in these.
WARM = 8

#: Memory by which the last rounds may exceed the first, MiB, for the fragments of an allocator.
SLACK_MIB = 24.0


class Used(NamedTuple):
    """What this process holds: resident memory, MiB, and the number of open files."""

    memory: float
    files: int


def used() -> Used:
    """Return what this process holds now."""
    status = Path("/proc/self/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return Used(int(found[1]) / 1024, len([*Path("/proc/self/fd").iterdir()]))


def growth(rounds: Sequence[Used]) -> list[str]:
    """Return what grew from the first third of the rounds to the last."""
    third = max(1, len(rounds) // 3)
    first, last = rounds[:third], rounds[-third:]
    before, after = (statistics.median(one.memory for one in some) for some in (first, last))
    found = []
    if after - before > SLACK_MIB:
        found.append(f"memory grew from {before:.0f} to {after:.0f} MiB")
    files = [max(one.files for one in some) for some in (first, last)]
    if files[1] > files[0]:
        found.append(f"open files grew from {files[0]} to {files[1]}")
    return found


def _called(words: Sequence[str]) -> int:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return run_cli(list(words))


def _round(captures: Sequence[Path], chance: random.Random) -> None:
    capture = chance.choice(captures)
    if code := _called(["ingest", "--force", str(capture)]):
        raise RuntimeError(f"ingest {capture.name}: exit {code}")
    for sql in chance.sample(QUERIES, 2):
        _called(["query", sql])
    _called(["ls"])


def main(words: Sequence[str] | None = None) -> int:
    """Run rounds for some time, and print the figures; 1 if anything grew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(words)
    chance = random.Random(given.seed)
    rounds: list[Used] = []
    with tempfile.TemporaryDirectory(prefix="flat-") as folder:
        os.environ[STORE_VARIABLE] = str(Path(folder) / "store")
        captures = []
        for name in CAPTURES:
            path = Path(folder) / Path(name).name
            path.write_bytes(lzma.decompress((DATA / f"{name}.xz").read_bytes()))
            captures.append(path)
        until = time.monotonic() + given.seconds
        while time.monotonic() < until or len(rounds) < WARM + 3:
            _round(captures, chance)
            rounds.append(used())
            if len(rounds) % 20 == 0:
                sys.stdout.write(f"{len(rounds)} rounds: {used()}\n")
    found = growth(rounds[WARM:])
    first, last = rounds[WARM], rounds[-1]
    sys.stdout.write(
        f"{len(rounds)} rounds: {first.memory:.0f} to {last.memory:.0f} MiB, "
        f"{first.files} to {last.files} open files\n"
    )
    for fault in found:
        sys.stdout.write(f"WRONG {fault}\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
