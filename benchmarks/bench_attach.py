"""What `perfpipe attach` costs a running program: its step times before, during and after.

    python benchmarks/bench_attach.py pytorch --collector nsys --pairs 8 --window 20
    python benchmarks/bench_attach.py -- python train.py

The program is pytorch, jax or cuda (steps_* beside this file), or a command.  It prints a line
{"perfpipe": "time", "ms": 12.3} after each step, and flushes it.  `perfpipe run --detach` starts
it, and `perfpipe attach` is called again and again.  Medians of step times are compared in pairs:

    after     the window after the command, with the window immediately before it
    during    the time in which the command records, with the window before
    around    the rest of the command, which connects, exports and reads, with the window before
    control   the window before the next command, with the window after this one that it follows

No window belongs to two commands.  Nothing happens between the two windows of the control, so its
ratio shows drift alone.  Intervals are Student's, of the logarithms of the ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

from perfpipe.analysis.search_decision import speedup_of
from perfpipe.errors import PerfpipeError, TaskFailed, ToolMissing
from perfpipe.pipelines.attaching.detaching import running, settle
from perfpipe.pipelines.complaint import complaint
from perfpipe.pipelines.protocol import ProgramOutput
from perfpipe.pipelines.runs import task_folder
from perfpipe.store import Store

HERE = Path(__file__).parent

#: Python modules of the shipped programs.
MODULES = {"pytorch": "torch", "jax": "jax"}

#: How often the output of the program is read, s.
EVERY_S = 0.02

#: How long the program may take to its first step, s.
FIRST_S = 300.0

#: How long the rest of a program that was ended may take, s: nsys closes its session.
ENDING_S = 60.0

#: Least steps that a median is taken of.
LEAST = 3

#: Share of ratios outside of their interval.
ALPHA = 0.05

PARTS = ("after", "during", "around")


@dataclass(frozen=True)
class Step:
    """A step: how long it took, ms, and when its line was read, s since the epoch."""

    ms: float
    at: float


@dataclass(frozen=True)
class Pair:
    """The steps of each part of an attach; `used` names the ways to look that were used."""

    before: Sequence[Step]
    during: Sequence[Step]
    around: Sequence[Step]
    after: Sequence[Step]
    used: Sequence[str] = ()


def median(steps: Sequence[Step]) -> float | None:
    """Return the median time of steps, ms; None if there are too few."""
    return statistics.median(step.ms for step in steps) if len(steps) >= LEAST else None


def log_ratio(steps: Sequence[Step], others: Sequence[Step]) -> float | None:
    """Return the logarithm of the ratio of two medians; None if one of them is unknown."""
    one, other = median(steps), median(others)
    return None if one is None or other is None else math.log(one / other)


class Program:
    """A detached program, whose steps are read from its output."""

    def __init__(self, pid: int, output: Path) -> None:
        self.pid, self._output = pid, output
        self._read, self._rest = 0, b""

    def steps(self) -> list[Step]:
        """Return the steps that were printed since the last call."""
        with self._output.open("rb") as file:
            file.seek(self._read)
            text = self._rest + file.read()
            self._read = file.tell()
        *lines, self._rest = text.split(b"\n")
        found, now = ProgramOutput(), time.time()
        for line in lines:
            found.feed(line.decode(errors="replace"))
        return [Step(ms, now) for ms in found.times_ms]

    def until(self, happened: Callable[[], bool]) -> list[Step]:
        """Return the steps that begin and end until something has happened.

        Raises TaskFailed if the program ends.
        """
        self.steps()
        found: list[Step] = []
        while not happened():
            time.sleep(EVERY_S)
            found += self.steps()
            self.check()
        return found[1:]

    def window(self, seconds: float) -> list[Step]:
        """Return the steps of the next seconds."""
        late = time.monotonic() + seconds
        return self.until(lambda: time.monotonic() >= late)

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8", errors="replace")
            return stat.rpartition(")")[2].split()[0] not in "ZX"
        return False

    def check(self) -> None:
        """Raise TaskFailed if it has ended."""
        if not self.alive:
            files = (self._output, self._output.with_suffix(".err"))
            said = complaint(*(file.read_text(errors="replace") for file in files))
            raise TaskFailed(f"the program has ended: {said or 'no output'}")

    def end(self) -> None:
        """End it."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            late = time.monotonic() + 10
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)
            while self.alive and time.monotonic() < late:
                time.sleep(EVERY_S)


def words_of(program: Sequence[str], folder: Path) -> list[str]:
    """Return the command of a program; raises ToolMissing for a shipped one that cannot run."""
    name = program[0]
    if len(program) > 1 or name not in (*MODULES, "cuda"):
        return [*program]
    if name in MODULES:
        if find_spec(MODULES[name]) is None:
            raise ToolMissing(f"{name}: {sys.executable} does not have {MODULES[name]}")
        return [sys.executable, str(HERE / f"steps_{name}.py")]
    if (compiler := shutil.which("nvcc")) is None:
        raise ToolMissing("cuda: nvcc is not on the PATH; it is in the CUDA Toolkit")
    built = folder / "steps_cuda"
    subprocess.run([compiler, "-O2", HERE / "steps_cuda.cu", "-o", built], check=True)
    return [str(built)]


class Command:
    """A command of perfpipe that answers in JSON, and runs beside this process."""

    def __init__(self, store: Store, *words: str, program: Sequence[str] = ()) -> None:
        options = ("--json", "--store", str(store.root))
        whole = [sys.executable, "-m", "perfpipe", *words, *options]
        whole += ["--", *program] if program else []
        # Files take answers of any size while nobody reads them.
        self._name, self._files = words[0], [store.root.with_name(name) for name in ("out", "err")]
        with self._files[0].open("wb") as out, self._files[1].open("wb") as err:
            self._process = subprocess.Popen(whole, stdout=out, stderr=err)

    def ended(self) -> bool:
        """Return whether it has ended."""
        return self._process.poll() is not None

    def answer(self) -> Any:
        """Wait for the answer and return it; raises TaskFailed if the command fails."""
        code = self._process.wait()
        out, err = (file.read_text(errors="replace") for file in self._files)
        if code:
            raise TaskFailed(f"perfpipe {self._name} ended with exit code {code}: {err.strip()}")
        return json.loads(out)


@contextlib.contextmanager
def started(words: Sequence[str], collector: str, store: Store) -> Iterator[tuple[str, Program]]:
    """Start a detached program, and end it after the block; yields its run and the program."""
    said = Command(store, "run", "--detach", "--collector", collector, program=words).answer()
    run_id = said["run"]["run_id"]
    output = store.runs_dir / run_id / "tasks" / task_folder(0, "detach") / "plain.out"
    program = Program(said["pid"], output)
    try:
        yield run_id, program
    finally:
        program.end()
        late = time.monotonic() + ENDING_S
        while any(running(store)) and time.monotonic() < late:
            time.sleep(EVERY_S)
            settle(store)


def warm_up(program: Program, seconds: float) -> None:
    """Wait for the first step, and for some seconds more; raises TaskFailed without a step."""
    late = time.monotonic() + FIRST_S
    while not program.steps():
        program.check()
        if time.monotonic() > late:
            raise TaskFailed('the program prints no line {"perfpipe": "time", "ms": ...} of a step')
        time.sleep(EVERY_S)
    program.window(seconds)


def measured(program: Program, run_id: str, store: Store, window: float, duration: float) -> Pair:
    """Attach to a program, and return its steps before, during and after."""
    before = program.window(window)
    attach = Command(store, "attach", run_id, "--duration", f"{duration:g}")
    steps = program.until(attach.ended)
    after = program.window(window)
    said = attach.answer()
    began, ended = recorded(store, said["run"])
    during = [step for step in steps if began <= step.at - step.ms / 1e3 and step.at <= ended]
    around = [step for step in steps if step.at < began or step.at - step.ms / 1e3 > ended]
    used = [way["name"] for way in said["ways"] if way["used"]]
    return Pair(before, during, around, after, used)


def recorded(store: Store, run: Any) -> tuple[float, float]:
    """Return when an attach began and ended to record, s since the epoch."""
    (file,) = (name for name in run["tasks"][0]["files"] if name.endswith("attached.json"))
    content = json.loads((store.runs_dir / file).read_text())
    began = content["began_ns"] / 1e9
    return began, began + content["seconds"]


def controls(pairs: Sequence[Pair]) -> list[float | None]:
    """Return the logarithms of the ratios of windows that nothing happens between."""
    return [log_ratio(after.before, before.after) for before, after in pairwise(pairs)]


def row(*cells: str) -> str:
    """Return a row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def head() -> str:
    """Return the head of the table."""
    cells = ["pair", "steps before", "before, ms", *(f"{part}/before" for part in PARTS)]
    return f"{row(*cells)}\n{row(*['---'] * len(cells))}"


def told(number: int, pair: Pair) -> str:
    """Return the row of a pair."""
    ms = median(pair.before)
    found = [log_ratio(getattr(pair, part), pair.before) for part in PARTS]
    ratios = ["-" if one is None else f"{math.exp(one):.4f}" for one in found]
    return row(str(number), str(len(pair.before)), "-" if ms is None else f"{ms:.4g}", *ratios)


def summary(pairs: Sequence[Pair]) -> str:
    """Return the ratios of all pairs, with their intervals, and the ways that were used."""
    found = {
        f"{part}/before": [log_ratio(getattr(pair, part), pair.before) for pair in pairs]
        for part in PARTS
    }
    found["control"] = controls(pairs)
    lines = [row("ratio", "pairs", "mean", "95 % interval"), row(*["---"] * 4)]
    for name, logs in found.items():
        known = [log for log in logs if log is not None]
        ratio = speedup_of(known, ALPHA)
        mean = "-" if ratio is None else f"{ratio.ratio:.4f}"
        between = "-"
        if ratio is not None and ratio.low is not None and ratio.high is not None:
            between = f"{ratio.low:.4f} to {ratio.high:.4f}"
        lines.append(row(name, str(len(known)), mean, between))
    used = Counter(name for pair in pairs for name in pair.used)
    ways = ", ".join(f"{name} ({count} of {len(pairs)})" for name, count in used.items())
    lines += ["", f"Ways to look: {ways or 'none'}"]
    if any(None in logs for logs in found.values()):
        lines += ["", f"-: fewer than {LEAST} steps; give a larger --window or --duration"]
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program", nargs="+", help="pytorch, jax, cuda, or a command")
    parser.add_argument("--collector", choices=("nsys", "torch", "timing"), default="nsys")
    parser.add_argument("--pairs", type=int, default=8, help="how often to attach")
    parser.add_argument("--window", type=float, default=20.0, help="seconds before and after")
    parser.add_argument("--duration", type=float, default=10.0, help="seconds that are recorded")
    parser.add_argument("--warm-up", type=float, default=20.0, help="seconds after the first step")
    options = parser.parse_args(words)
    pairs: list[Pair] = []
    try:
        with tempfile.TemporaryDirectory(prefix="bench-attach-") as folder:
            store = Store(Path(folder) / "store")
            program_words = words_of(options.program, Path(folder))
            with started(program_words, options.collector, store) as (run_id, program):
                warm_up(program, options.warm_up)
                print(head(), flush=True)
                for number in range(options.pairs):
                    pairs.append(measured(program, run_id, store, options.window, options.duration))
                    print(told(number + 1, pairs[-1]), flush=True)
    except PerfpipeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"\n{summary(pairs)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
