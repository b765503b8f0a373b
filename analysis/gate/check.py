"""An exported baseline, a small JSON document: measurements of runs, and their calibration.

A document that was edited by hand is checked like any other input: what a side promises about its
lists and numbers holds for a side from a document too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from perfpipe.analysis.facts import Facts
from perfpipe.analysis.gate.sides import ENDPOINTS, ENERGIES, KERNEL, Key, Measured, Side
from perfpipe.calibrationrecord import Calibration
from perfpipe.decoding import decode
from perfpipe.errors import InputError

#: Version of the document.
VERSION = 1

_KIND = "perfpipe baseline"


@dataclass(frozen=True)
class _Entry:
    """The measurements of a side for a key; as Key and Measured."""

    profiler: str
    label: str
    part: str
    kernel: str
    grid: str
    block: str
    medians: tuple[float, ...]
    totals: tuple[float, ...]
    launches: tuple[int, ...]
    sm_mhz: tuple[float | None, ...]
    memory_mhz: tuple[float | None, ...]

    @property
    def key(self) -> Key:
        """What was measured."""
        return Key(self.profiler, self.label, self.part, self.kernel, self.grid, self.block)

    @property
    def name(self) -> str:
        """What was measured, for a message."""
        return " ".join(word for word in self.key if word)


@dataclass(frozen=True)
class _Facts:
    """The facts about its runs; as Facts."""

    settings: dict[str, dict[str, tuple[str, ...]]]
    conditions: dict[str, tuple[float | None, ...]]
    throttled_by: tuple[str, ...]
    partial: tuple[str, ...]


@dataclass(frozen=True)
class _Document:
    names: tuple[str, ...]
    gpus: tuple[str, ...]
    began: tuple[str | None, ...]
    timers: dict[str, int]
    hidden: tuple[str, ...]
    measured: tuple[_Entry, ...]
    facts: _Facts
    calibration: Calibration | None = None
    no_energy: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Exported:
    """An exported baseline: its side, and the calibration of its workload if there is one."""

    side: Side
    calibration: Calibration | None = None


def document_of(exported: Exported) -> dict[str, Any]:
    """Return an exported baseline as JSON data."""
    side = exported.side
    entries = [{**key._asdict(), **asdict(own)} for key, own in sorted(side.measured.items())]
    return {
        "kind": _KIND,
        "version": VERSION,
        "names": list(side.names),
        "gpus": sorted(side.gpus),
        "began": list(side.began),
        "timers": side.timers,
        "hidden": sorted(side.hidden),
        "facts": asdict(side.facts),
        "no_energy": side.no_energy,
        "measured": entries,
        "calibration": exported.calibration and asdict(exported.calibration),
    }


def exported_from(content: dict[str, Any], place: str) -> Exported:
    """Return the baseline of a document; raises InputError, with its place, if it is not valid."""
    if content.get("kind") != _KIND:
        raise InputError(f"{place}: not an exported baseline (see 'perfpipe gate baseline export')")
    if content.get("version") != VERSION:
        raise InputError(
            f"{place}: version {content.get('version')!r}, but this perfpipe reads {VERSION}"
        )
    try:
        found: _Document = decode(_Document, content)
    except ValueError as error:
        raise InputError(f"{place}: incomplete or invalid baseline ({error})") from error
    if fault := next(_faults(found), None):
        raise InputError(f"{place}: {fault}; export the baseline again")
    side = Side(
        {entry.key: _measured(entry) for entry in found.measured},
        frozenset(found.gpus),
        found.names,
        found.began,
        found.timers,
        frozenset(found.hidden),
        Facts(**vars(found.facts)),
        no_energy=found.no_energy,
    )
    return Exported(side, found.calibration)


def _measured(entry: _Entry) -> Measured:
    return Measured(
        [*entry.medians],
        [*entry.totals],
        [*entry.launches],
        [*entry.sm_mhz],
        [*entry.memory_mhz],
    )


def _faults(found: _Document) -> Iterator[str]:
    """Yield what no export of runs contains, as the begin of a sentence."""
    runs = len(found.names)
    if not runs:
        yield "names has no runs"
    if both := _twice(found.names):
        yield f"names has {both} twice"
    if len(found.began) != runs:
        yield f"began has {len(found.began)} values for {runs} runs"
    for time in found.began:
        if time is not None and not _is_time(time):
            yield f"began: {time!r} is not a time"
    if not _positive(found.timers.values()):
        yield "timers: times must be positive"
    if not any(entry.part in ENDPOINTS for entry in found.measured):
        yield "measured has no times of a program"
    if both := _twice([entry.name for entry in found.measured]):
        yield f"measured has {both} twice"
    for entry in found.measured:
        for fault in _faults_of(entry, runs):
            yield f"{entry.name}: {fault}"
    for name, values in found.facts.conditions.items():
        if len(values) != runs:
            yield f"{name} has {len(values)} values for {runs} runs"
        if not all(value is None or math.isfinite(value) for value in values):
            yield f"{name}: values must be finite"
    if found.calibration is not None:
        yield from _faults_of_calibration(found.calibration)


def _faults_of(entry: _Entry, runs: int) -> Iterator[str]:
    count = len(entry.medians)
    if not 0 < count <= runs:
        yield f"{count} medians for {runs} runs"
    # Parts of a step may take no time.
    if entry.part in (*ENDPOINTS, KERNEL) and not _positive(entry.medians):
        yield "times must be positive"
    if entry.part in ENERGIES and not _positive(entry.medians):
        yield "energies must be positive"
    if len(entry.totals) > count:
        yield f"{len(entry.totals)} totals for {count} medians"
    for name in ("launches", "sm_mhz", "memory_mhz"):
        if len(getattr(entry, name)) != count:
            yield f"{len(getattr(entry, name))} {name} for {count} medians"
    for name in ("medians", "totals", "launches", "sm_mhz", "memory_mhz"):
        if not all(value is None or 0 <= value < math.inf for value in getattr(entry, name)):
            yield f"{name} must be finite and not negative"


def _faults_of_calibration(found: Calibration) -> Iterator[str]:
    if not found.configurations:
        yield "calibration has no configurations"
    if both := _twice([own.label for own in found.configurations]):
        yield f"calibration has {both} twice"
    for own in found.configurations:
        if not _positive((own.proposed.rounds, own.proposed.limit_pct)):
            yield f"calibration of {own.label}: rounds and threshold must be positive"


def _positive(values: Iterable[float]) -> bool:
    return all(0 < value < math.inf for value in values)


def _twice(values: Sequence[str]) -> str | None:
    """Return the first value that occurs twice."""
    return next((value for at, value in enumerate(values) if value in values[:at]), None)


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
