"""Tries to break perfpipe for some time: `make soak SECONDS=2400 SEED=1`.

Each part is a program of its own, which gets a share of the time and the seed.  A part prints what
is wrong, and how to do the same again; inputs that something is wrong with are kept.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Part:
    """A program, and its share of the time."""

    name: str
    share: float
    words: tuple[str, ...]
    keeps: bool = False


#: Mutated inputs of all formats, killed commands, callers at once, and one process that lives long.
PARTS = (
    Part("fuzz", 0.45, ("-m", "fuzz"), keeps=True),
    Part("kills", 0.3, ("kills.py", "--count", "40")),
    Part("callers", 0.15, ("callers.py",)),
    Part("flat", 0.1, ("flat.py",)),
)


def _run(part: Part, seconds: float, seed: int, keep: Path) -> tuple[int, list[str]]:
    """Run a part, show what it prints, and return its exit code and its last lines."""
    words = [*part.words, "--seconds", f"{seconds:.0f}", "--seed", str(seed)]
    words += ["--keep", str(keep)] if part.keeps else []
    _say(f"{part.name}: {' '.join(words)} (in tests/)")
    path = os.pathsep.join(
        filter(None, (str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH")))
    )
    said = []
    with subprocess.Popen(
        [sys.executable, *words],
        cwd=TESTS,
        env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        for line in process.stdout:
            sys.stdout.write(f"  {line}")
            sys.stdout.flush()
            said.append(line.rstrip())
    return process.returncode, said


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(words: Sequence[str] | None = None) -> int:
    """Run all parts, print a summary; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path("build/soak"))
    parser.add_argument("parts", nargs="*", default=[part.name for part in PARTS])
    given = parser.parse_args(words)
    chosen = [part for part in PARTS if part.name in given.parts]
    shares = sum(part.share for part in chosen)
    ends = {}
    for part in chosen:
        began = time.monotonic()
        seconds = given.seconds * part.share / shares
        code, said = _run(part, seconds, given.seed, given.keep.resolve())
        ends[part.name] = code, said[-12:], time.monotonic() - began
    _say(f"seed {given.seed}:")
    for name, (code, said, took) in ends.items():
        _say(f"{name}: {'WRONG' if code else 'nothing wrong'} in {took:.0f} s")
        for line in said:
            _say(f"    {line}")
    return int(any(code for code, *_ in ends.values()))


if __name__ == "__main__":
    sys.exit(main())
