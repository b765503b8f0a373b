"""Programs that run while tests look at them, and are ended with the test."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

#: A Python program that spends most of its time in one line of load(), until it is ended.  It says
#: that it runs with a line, and counts its steps in a file beside it.
LOOP = """
import sys, time
from pathlib import Path

def load():
    time.sleep(0.05)

def step():
    sum(range(10_000))

count = 0
print("runs", flush=True)
while True:
    load()
    step()
    count += 1
    Path(sys.argv[1]).write_text(str(count))
"""

#: A C program that computes, with a handler for SIGUSR2 if it is built with -DHANDLER.
NATIVE = """
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
static volatile sig_atomic_t heard;
static void on_signal(int number) { heard = number; }
int main(void) {
#ifdef HANDLER
    signal(SIGUSR2, on_signal);
#else
    (void)on_signal;
#endif
    puts("runs");
    fflush(stdout);
    for (volatile long i = 0;; i++)
        if (i % 1000000 == 0 && heard) { puts("heard"); fflush(stdout); heard = 0; }
}
"""

#: How long a program may take to begin on a busy machine, s.
PATIENCE_S = 60.0

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a program that says that it runs by its first line; it is killed after the test."""
    started = []

    def begin(*words: str | Path, **env: str) -> subprocess.Popen[str]:
        program = subprocess.Popen(
            [str(word) for word in words],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **env},
            cwd=tmp_path,
        )
        started.append(program)
        assert program.stdout is not None
        assert program.stdout.readline() == "runs\n"
        return program

    yield begin
    for program in started:
        program.kill()
        program.communicate()


@pytest.fixture
def loop(start: Start, tmp_path: Path) -> subprocess.Popen[str]:
    """A Python program that runs."""
    path = tmp_path / "train.py"
    path.write_text(LOOP)
    return start(sys.executable, path, tmp_path / "count")


def steps(folder: Path) -> int:
    """Return how many steps a LOOP has made."""
    path = folder / "count"
    return int(path.read_text() or 0) if path.exists() else 0


def goes_on(folder: Path) -> bool:
    """Return whether a LOOP makes further steps."""
    before = steps(folder)
    return until(lambda: steps(folder) > before)


def until(happened: Callable[[], object], patience_s: float = PATIENCE_S) -> bool:
    """Wait until something has happened; return whether it did."""
    late = time.monotonic() + patience_s
    while not happened() and time.monotonic() < late:
        time.sleep(0.05)
    return bool(happened())


def native(folder: Path, *options: str) -> Path:
    """Build the C program."""
    from conftest import lacking

    compiler = shutil.which("cc")
    if compiler is None:
        lacking("there is no C compiler")
    folder.mkdir(exist_ok=True)
    source, program = folder / "spin.c", folder / "spin"
    source.write_text(NATIVE)
    subprocess.run([compiler, "-O1", *options, source, "-o", program], check=True)
    return program


def end(pid: int) -> None:
    """Kill a program that is not a child of the test."""
    os.kill(pid, signal.SIGKILL)
