"""Times the steps of a PyTorch program that prints no times, with files injected into its Pythons.

The folder perfpipe/injected is in front of the program's PYTHONPATH.  Every process of the program
that uses PyTorch writes a report into a temporary directory: when its optimizers stepped, when
transformers generated a token, and when its outermost modules were called.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import perfpipe
from perfpipe.scratch import scratch
from perfpipe.units import counted

#: What a program's Pythons run first; nothing else is in this folder.
INJECTED = Path(perfpipe.__file__).with_name("injected")

_PATH, _REPORTS = "PYTHONPATH", "PERFPIPE_INJECT_DIR"

#: Variable with the file that runs in the program's Pythons, unless it is the one that times steps.
HELPER = "PERFPIPE_INJECT_HELPER"

#: Written by every Python that runs the start-up file.
_STARTED = "started"

#: What can be the steps of a program: the first of these that a process did.
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
    """The times of steps, ms; if there are none, a note may say why."""

    times_ms: tuple[float, ...] = ()
    note: str | None = None


@dataclass(frozen=True)
class _Calls:
    """Times at which a process did the same, ns: steps of one optimizer, calls of one class.

    `between` are the outermost calls of modules since the previous time, `size` is the number of
    parameters, and `unit` is one of _UNITS.
    """

    times_ns: Sequence[int]
    between: Sequence[int]
    size: int
    unit: str
    gpu: bool

    @property
    def steps(self) -> tuple[float, ...]:
        """The times of its steady steps, ms."""
        from perfpipe.analysis.observed import step_times

        return step_times(self.times_ns, self.between, gpu=self.gpu)


class Observer:
    """Collects what the processes of one launch report; `env` are the variables for the launch."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._folder = folder
        known = env.get(_PATH, os.environ.get(_PATH))
        path = os.pathsep.join([str(INJECTED), *([known] if known else [])])
        self.env = {_PATH: path, _REPORTS: str(folder)}

    @property
    def started(self) -> bool:
        """Whether a Python of the program ran the start-up file."""
        return (self._folder / _STARTED).exists()

    def steps(self, command: Sequence[str]) -> Steps:
        """Return the steps of the slowest rank; the launch must have ended.

        The steps of programs that do not train are the tokens that they generate, else the calls of
        their largest module.
        """
        calls = [*self._calls()]
        if not calls:
            missed = is_python(command) and not self.started
            return Steps(note=_NOT_APPLIED if missed else None)
        # Processes that call small modules only, to load data, do not count.
        unit = next(unit for unit in _UNITS if any(own.unit == unit for own in calls))
        calls = [own for own in calls if own.unit == unit]
        calls = calls if unit == "step" else _largest(calls)
        timed = filter(None, (own.steps for own in calls))
        slowest = max(timed, key=statistics.median, default=())
        return Steps(slowest, None if slowest else _too_few(calls))

    def _calls(self) -> Iterator[_Calls]:
        """Yield the calls of each process that are its steps."""
        for path in sorted(self._folder.glob("report.*.json")):
            try:
                report = json.loads(path.read_bytes())
                steps = _lasting([*_optimizers(report)]) or [*_tokens(report)]
                found = _largest(steps or [*_modules(report)])
            except (OSError, ValueError, LookupError, TypeError):
                continue  # the program may overwrite what it likes
            yield from found[:1]


@contextmanager
def observing(env: Mapping[str, str], wanted: bool) -> Iterator[Observer | None]:
    """Yield what observes a launch with these variables; None if that is not wanted or possible."""
    if not wanted or os.pathsep in str(INJECTED):
        yield None
        return
    with scratch() as folder:
        yield Observer(folder, env)


def _optimizers(report: Mapping[str, Any]) -> Iterable[_Calls]:
    """Yield the steps of each optimizer."""
    stamps = report["steps"]
    steps = [*zip(stamps["time_ns"], stamps["optimizer"], stamps["calls"], strict=True)]
    for index, optimizer in enumerate(report["optimizers"]):
        times, between, calls = [], [], 0
        for time_ns, own, since in steps:
            calls += since
            if own == index:
                times.append(int(time_ns))
                between.append(calls)
                calls = 0
        if len(times) > 1:
            yield _Calls(times, between, int(optimizer["parameters"]), "step", bool(report["gpu"]))


def _tokens(report: Mapping[str, Any]) -> Iterable[_Calls]:
    """Yield the tokens that transformers generated."""
    times = [*map(int, report.get("tokens", {}).get("time_ns", ()))]
    if len(times) > 1:
        size = max(int(module["parameters"]) for module in report["modules"])
        yield _Calls(times, (), size, "token", bool(report["gpu"]))


def _modules(report: Mapping[str, Any]) -> Iterable[_Calls]:
    """Yield the calls of each class of outermost modules."""
    for module in report["modules"]:
        times = [*map(int, module["time_ns"])]
        if len(times) > 1:
            yield _Calls(times, (), int(module["parameters"]), "call", bool(report["gpu"]))


def _lasting(calls: Sequence[_Calls]) -> list[_Calls]:
    """Return those that last the longest, as all optimizers of the longest loop do."""
    spans = [own.times_ns[-1] - own.times_ns[0] for own in calls]
    return [own for own, span in zip(calls, spans, strict=True) if 2 * span >= max(spans)]


def _largest(calls: Sequence[_Calls]) -> list[_Calls]:
    """Return those with the most parameters."""
    most = max((own.size for own in calls), default=0)
    return [own for own in calls if own.size == most]


def is_python(command: Sequence[str]) -> bool:
    """Return whether a command starts a program in Python."""
    names = [PurePath(word).name for word in command]
    return any(name.startswith("python") or name.endswith(".py") for name in names)


def _too_few(calls: Sequence[_Calls]) -> str:
    most = max(len(own.times_ns) for own in calls)
    what, of = _UNITS[calls[0].unit]
    return (
        f"steps were not timed: {counted(most, what)}{of} are too few, or long pauses between them "
        "may be the time of the GPU"
    )
