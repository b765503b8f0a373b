"""Calibrations: how much the times of a workload scatter on a kind of machine."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from perfpipe.decoding import decode
from perfpipe.errors import StoreError
from perfpipe.jsonfile import read_versioned, write_json
from perfpipe.model import SCHEMA_VERSION


@dataclass(frozen=True)
class Modes:
    """Two modes of launch times: their medians, and the share of launches in the slow mode."""

    fast_ms: float
    slow_ms: float
    slow_pct: float


@dataclass(frozen=True)
class Setting:
    """Rounds and threshold of a comparison, and its power for this workload, %.

    `false_pct` is the false-alarm rate for an unchanged program, `found_pct` how often the change
    to detect is detected, and `detectable_pct` the smallest change that 95 % of comparisons detect
    if launches scatter normally.
    """

    rounds: int
    limit_pct: float
    false_pct: float
    found_pct: float
    detectable_pct: float


@dataclass(frozen=True)
class Calibrated:
    """A configuration compared with itself; the time of a launch is the median of its samples.

    `between_pct` is the standard deviation between launches with its 95 % interval, `within_pct`
    the one within a launch (None if a launch has one time), `drift_pct` the change from the first
    to the last launch with its interval, `autocorrelation` the correlation of successive launches
    without the drift (None if all launches are equal).
    """

    label: str
    launches: int
    median_ms: float
    between_pct: float
    between_low_pct: float
    between_high_pct: float
    within_pct: float | None
    drift_pct: float
    drift_low_pct: float
    drift_high_pct: float
    autocorrelation: float | None
    correlated: bool
    modes: Modes | None
    now: Setting
    proposed: Setting

    @property
    def drifts(self) -> bool:
        """Whether the drift is significant."""
        return self.drift_low_pct > 0 or self.drift_high_pct < 0


@dataclass(frozen=True)
class Calibration:
    """A workload compared with itself on a kind of machine: configurations and runs.

    `change_pct` is the change to detect.
    """

    workload: str
    machine: str
    at: str
    change_pct: float
    runs: tuple[str, ...]
    configurations: tuple[Calibrated, ...]

    @property
    def rounds(self) -> int:
        """The number of rounds that is enough for every configuration."""
        return max(own.proposed.rounds for own in self.configurations)

    @property
    def limits(self) -> dict[str, float]:
        """The threshold of each configuration, %."""
        return {own.label: own.proposed.limit_pct for own in self.configurations}


def path_of(root: Path, workload: str, machine: str) -> Path:
    """Return the file of the calibration of a workload on a kind of machine."""
    digest = hashlib.sha256(machine.encode()).hexdigest()[:8]
    return root / "calibrations" / f"{workload}-{digest}.json"


def write(root: Path, calibration: Calibration) -> Path:
    """Save a calibration, replacing an earlier one; returns its file."""
    path = path_of(root, calibration.workload, calibration.machine)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"schema_version": SCHEMA_VERSION, **vars(calibration)})
    return path


def read(root: Path, workload: str, machine: str) -> Calibration | None:
    """Return a calibration, None if there is none; raises StoreError if it is damaged."""
    path = path_of(root, workload, machine)
    return read_file(path) if path.exists() else None


def files(root: Path) -> list[Path]:
    """Return the files of all calibrations."""
    return sorted((root / "calibrations").glob("[!.]*.json"))


def read_file(path: Path) -> Calibration:
    """Return the calibration of a file; raises StoreError if it is damaged."""
    try:
        found: Calibration = decode(Calibration, read_versioned(path, "calibration"))
    except ValueError as error:
        raise StoreError(f"{path}: not a complete calibration ({error})") from error
    return found
