"""The units of work of a program's processes, from the reports of perfpipe/injected/observe.py.

A unit is a step of an optimizer.  It is a token if the program generates text and does not train,
and else a call of the largest outermost module.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

#: Units, the best first.
UNITS = ("step", "token", "call")


@dataclass(frozen=True)
class Calls:
    """Times at which a process ended units of one kind, or began them if they are calls, ns.

    `between` are the outermost calls of modules since the previous time, `size` is the number of
    parameters.  `count` also has the units whose times were not kept.  `ended` says whether the
    report is of the end of the process, at `written_ns`.
    """

    unit: str
    times_ns: Sequence[int]
    between: Sequence[int]
    size: int
    count: int
    gpu: bool
    pid: int
    ended: bool
    written_ns: int


def reported(folder: Path) -> list[Calls]:
    """Return the units of each process of a launch that does the program's work.

    A process without a readable report is skipped.  Processes that only have worse units than
    others do not count, nor do those that only call smaller modules, to load data, or that last
    shorter, to try something at the start.
    """
    found = [own for path in sorted(folder.glob("report.*.json")) for own in _of_process(path)]
    best = min((UNITS.index(own.unit) for own in found), default=0)
    found = [own for own in found if own.unit == UNITS[best]]
    return _lasting(found if UNITS[best] == "step" else _largest(found))


def _of_process(path: Path) -> Sequence[Calls]:
    """Return the units of a process, at most one kind."""
    try:
        report = json.loads(path.read_bytes())
        steps = _lasting([*_optimizers(report)])
        return _largest(steps or [*_tokens(report)] or [*_modules(report)])[:1]
    except (OSError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError):
        return ()  # the program may overwrite what it likes


def _optimizers(report: Mapping[str, Any]) -> Iterable[Calls]:
    """Yield the steps of each optimizer."""
    stamps = report["steps"]
    steps = [*zip(stamps["time_ns"], stamps["optimizer"], stamps["calls"], strict=True)]
    for index, optimizer in enumerate(report["optimizers"]):
        times, between, calls = [], [], 0
        for time_ns, own, since in steps:
            calls += since
            if own == index:
                times.append(time_ns)
                between.append(calls)
                calls = 0
        yield from _calls(report, "step", times, optimizer, optimizer.get("steps", 0), between)


def _tokens(report: Mapping[str, Any]) -> Iterable[Calls]:
    """Yield the tokens that a model generated."""
    times = report.get("tokens", {}).get("time_ns", ())
    modules: list[Mapping[str, Any]] = report["modules"]
    largest = max(modules, key=lambda own: int(own["parameters"]), default={})
    yield from _calls(report, "token", times, largest)


def _modules(report: Mapping[str, Any]) -> Iterable[Calls]:
    """Yield the calls of each class of outermost modules."""
    for module in report["modules"]:
        yield from _calls(report, "call", module["time_ns"], module, module.get("calls", 0))


def _calls(
    report: Mapping[str, Any],
    unit: str,
    times: Sequence[Any],
    of: Mapping[str, Any],
    count: Any = 0,
    between: Sequence[Any] = (),
) -> Iterator[Calls]:
    """Yield units that have an interval at least; raises ValueError if time ran backwards."""
    stamps = [*map(int, times)]
    if any(after < before for before, after in pairwise(stamps)):
        raise ValueError(unit)
    if len(stamps) > 1:
        yield Calls(
            unit,
            stamps,
            [*map(int, between)],
            int(of.get("parameters", 0)),
            max(len(stamps), int(count)),
            bool(report["gpu"]),
            int(report.get("pid", 0)),
            bool(report.get("ended", False)),
            int(report.get("written_ns", 0)),
        )


def _lasting(calls: Sequence[Calls]) -> list[Calls]:
    """Return those that last the longest, as all ranks and the optimizers of the main loop do."""
    spans = [own.times_ns[-1] - own.times_ns[0] for own in calls]
    return [own for own, span in zip(calls, spans, strict=True) if 2 * span >= max(spans)]


def _largest(calls: Sequence[Calls]) -> list[Calls]:
    """Return those with the most parameters."""
    most = max((own.size for own in calls), default=0)
    return [own for own in calls if own.size == most]
