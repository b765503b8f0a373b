"""Times the steps of a PyTorch program that prints no times, with files injected into its Pythons.

The folder perfpipe/injected is in front of the program's PYTHONPATH.  Every process of the program
that uses PyTorch writes a report into a temporary directory: when its optimizers stepped, when
transformers generated a token, and when its outermost modules were called.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import perfpipe
from perfpipe.scratch import scratch
from perfpipe.units import counted

if TYPE_CHECKING:
    from perfpipe.analysis.observed import Span
    from perfpipe.analysis.reported import Calls

#: What a program's Pythons run first; nothing else is in this folder.
INJECTED = Path(perfpipe.__file__).with_name("injected")

_PATH, _REPORTS = "PYTHONPATH", "PERFPIPE_INJECT_DIR"

#: Variable with the file that runs in the program's Pythons, unless it is the one that times steps.
HELPER = "PERFPIPE_INJECT_HELPER"

#: Written by every Python that runs the start-up file.
_STARTED = "started"

#: What can be the steps of a program: the names of units, and what they are units of.
_UNITS = {
    "step": ("optimizer step", ""),
    "token": ("generated token", ""),
    "call": ("call", " of the model"),
}

_NOT_APPLIED = (
    "steps were not timed: the program's Python did not run perfpipe's start-up file because of an "
    "option (-I, -E, -S) or an environment without PYTHONPATH"
)


@dataclass(frozen=True)
class Steps:
    """The times of steps, ms, and when they were; if there are none, a note may say why.

    `unit` is step, token or call.
    """

    times_ms: tuple[float, ...] = ()
    note: str | None = None
    spans: tuple[Span, ...] = ()
    unit: str | None = None


class Observer:
    """Collects what the processes of one launch report; `env` are the variables for the launch."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._folder = folder
        self.env = injecting(folder, env)

    @property
    def started(self) -> bool:
        """Whether a Python of the program ran the start-up file."""
        return (self._folder / _STARTED).exists()

    def steps(self, command: Sequence[str]) -> Steps:
        """Return the steps of the slowest rank; the launch must have ended."""
        calls = self._calls()
        if not calls:
            missed = is_python(command) and not self.started
            return Steps(note=_NOT_APPLIED if missed else None)
        from perfpipe.analysis.observed import steady_steps

        steady = [steady_steps(own.times_ns, own.between, gpu=own.gpu) for own in calls]
        timed = [own for own in steady if own.times_ms]
        if not timed:
            return Steps(note=_too_few(calls))
        slowest = max(timed, key=lambda own: statistics.median(own.times_ms))
        return Steps(slowest.times_ms, None, slowest.spans, calls[0].unit)

    def _calls(self) -> Sequence[Calls]:
        """Return what the processes called; programs without reports load no analysis."""
        if next(self._folder.glob("report.*.json"), None) is None:
            return ()
        from perfpipe.analysis.reported import reported

        return reported(self._folder)


def injecting(folder: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that inject files into a program's Pythons, which report to a folder.

    `env` are the variables that the program's environment adds to this one.
    """
    known = env.get(_PATH, os.environ.get(_PATH))
    path = os.pathsep.join([str(INJECTED), *([known] if known else [])])
    return {_PATH: path, _REPORTS: str(folder)}


@contextmanager
def observing(env: Mapping[str, str], wanted: bool) -> Iterator[Observer | None]:
    """Yield what observes a launch with these variables; None if that is not wanted or possible."""
    if not wanted or os.pathsep in str(INJECTED):
        yield None
        return
    with scratch() as folder:
        yield Observer(folder, env)


def is_python(command: Sequence[str]) -> bool:
    """Return whether a command starts a program in Python."""
    names = [PurePath(word).name for word in command]
    return any(name.startswith("python") or name.endswith(".py") for name in names)


def _too_few(calls: Sequence[Calls]) -> str:
    most = max(len(own.times_ns) for own in calls)
    what, of = _UNITS[calls[0].unit]
    return (
        f"steps were not timed: {counted(most, what)}{of} are too few, or long pauses between them "
        "may be the time of the GPU"
    )
