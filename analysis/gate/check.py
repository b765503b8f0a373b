"""One side of a comparison as a small JSON document: measurements of runs, without profiles."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from perfpipe.analysis.facts import Facts
from perfpipe.analysis.gate.compare.comparison import ENDPOINTS
from perfpipe.analysis.gate.sides import ENERGIES, Key, Measured, Side
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
    kernel: str = ""
    grid: str = ""
    block: str = ""
    medians: tuple[float, ...] = ()
    totals: tuple[float, ...] = ()
    launches: tuple[int, ...] = ()
    sm_mhz: tuple[float | None, ...] = ()
    memory_mhz: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class _Facts:
    """The facts about its runs; as Facts."""

    settings: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    conditions: dict[str, tuple[float | None, ...]] = field(default_factory=dict)
    throttled_by: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Document:
    names: tuple[str, ...]
    gpus: tuple[str, ...] = ()
    began: tuple[str | None, ...] = ()
    timers: dict[str, int] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()
    measured: tuple[_Entry, ...] = ()
    facts: _Facts = field(default_factory=_Facts)
    no_energy: dict[str, str] = field(default_factory=dict)


def document_of(side: Side) -> dict[str, Any]:
    """Return a side as JSON data."""
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
    }


def side_from(content: dict[str, Any], place: str) -> Side:
    """Return the side of a document; raises InputError, with its place, if it is not valid."""
    if content.get("kind") != _KIND:
        raise InputError(f"{place}: not an exported baseline (see 'perfpipe baseline export')")
    if content.get("version") != VERSION:
        raise InputError(
            f"{place}: version {content.get('version')!r}, but this perfpipe reads {VERSION}"
        )
    try:
        found: _Document = decode(_Document, content)
    except ValueError as error:
        raise InputError(f"{place}: incomplete or invalid baseline ({error})") from error
    for entry in found.measured:
        what = "times" if entry.part in ENDPOINTS else "energies" if entry.part in ENERGIES else ""
        if what and not all(0 < value < math.inf for value in entry.medians):
            raise InputError(f"{place}: {entry.label} {entry.part}: {what} must be positive")
    side = Side(
        {},
        frozenset(found.gpus),
        found.names,
        found.began,
        found.timers,
        frozenset(found.hidden),
        Facts(**vars(found.facts)),
        no_energy=found.no_energy,
    )
    return replace(side, measured=dict(_measured(entry) for entry in found.measured))


def _measured(entry: _Entry) -> tuple[Key, Measured]:
    key = Key(entry.profiler, entry.label, entry.part, entry.kernel, entry.grid, entry.block)
    return key, Measured(
        [*entry.medians],
        [*entry.totals],
        [*entry.launches],
        [*entry.sm_mhz],
        [*entry.memory_mhz],
    )
