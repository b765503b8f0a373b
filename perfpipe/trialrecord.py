"""Trials: what the levers of `perfpipe try` gained in a program, as stored in trials/ID.json."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfpipe.decoding import decode
from perfpipe.errors import StoreError
from perfpipe.jsonfile import read_versioned, write_json
from perfpipe.model import SCHEMA_VERSION
from perfpipe.secrets import hide_words

#: Comparisons of results that let a lever be part of a stack.
EQUAL_RESULTS = ("identical", "within_scatter", "within_tolerance")


@dataclass(frozen=True)
class Gained:
    """Time saved in % of the plain program, with its interval; negative if it is slower.

    All are None if nothing was measured.
    """

    gain_pct: float | None = None
    low_pct: float | None = None
    high_pct: float | None = None


@dataclass(frozen=True)
class LeverTrial:
    """What one lever did in a program.

    `verdict` is gain, no gain, slower, inconclusive, not applied, failed, hung, different work or
    left out, and `why` explains it.  `applied` says what it was applied to.  `bound_pct` is the
    gain that the finding promised at most, in % of `bound_of`; None without a bound.  `results` is
    identical, within_scatter, within_tolerance, differ or unknown.  `start_up_s` is the time that
    it takes once, such as compilation, and `pays_after` the number of units after which it pays.
    `memory_bytes` is the peak of PyTorch's GPU memory.  `manual` is the change to make by hand.
    """

    name: str
    title: str
    verdict: str
    gained: Gained = Gained()
    why: str = ""
    technique: str | None = None
    finding: str | None = None
    bound_pct: float | None = None
    bound_of: str | None = None
    applied: tuple[str, ...] = ()
    results: str = "unknown"
    results_why: str = ""
    start_up_s: float | None = None
    pays_after: float | None = None
    memory_bytes: int | None = None
    launches: int = 0
    difficulty: str = ""
    risks: str = ""
    manual: str = ""


@dataclass(frozen=True)
class StackTrial:
    """The levers that help together, measured on fresh launches."""

    levers: tuple[str, ...]
    verdict: str
    gained: Gained
    results: str
    results_why: str = ""
    ms: float | None = None
    memory_bytes: int | None = None
    launches: int = 0
    manual: str = ""


@dataclass(frozen=True)
class Trial:
    """One `perfpipe try`: the program, its time, and what was tried.

    `unit` is step, token, call, iteration or launch; `plain_ms` is the time of one.  `aa` compares
    the plain program with itself.  `commit` is the version of perfpipe.
    """

    trial_id: str
    program: str
    at: str
    unit: str
    plain_ms: float | None
    plain_launches: int
    aa: Gained
    aa_results: str
    levers: tuple[LeverTrial, ...]
    stack: StackTrial | None = None
    gpu: str | None = None
    words: tuple[str, ...] = ()
    run_id: str | None = None
    reports: tuple[str, ...] = ()
    plain_memory_bytes: int | None = None
    launches: int = 0
    seconds: float = 0.0
    budget_s: float | None = None
    protection: str = ""
    notes: tuple[str, ...] = ()
    provenance: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", hide_words(self.words))

    @property
    def decided(self) -> bool:
        """Whether any lever was decided, or there was none to try."""
        tried = [own for own in self.levers if own.launches]
        return not tried or any(own.verdict != "inconclusive" for own in tried)


def directory(root: Path) -> Path:
    """Return the directory of the trials of a store."""
    return root / "trials"


def write(root: Path, trial: Trial) -> Path:
    """Save a trial; returns its file."""
    path = directory(root) / f"{trial.trial_id}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"schema_version": SCHEMA_VERSION, **vars(trial)})
    return path


def read_file(path: Path) -> Trial:
    """Return the trial of a file; raises StoreError if it is damaged."""
    content: dict[str, Any] = read_versioned(path, "trial")
    try:
        found: Trial = decode(Trial, content)
    except ValueError as error:
        raise StoreError(f"{path}: not a complete trial ({error})") from error
    return found


def read_all(root: Path) -> list[Trial]:
    """Return the trials of a store, oldest first; raises StoreError if one is damaged."""
    found = [read_file(path) for path in sorted(directory(root).glob("[!.]*.json"))]
    return sorted(found, key=lambda trial: (trial.at, trial.trial_id))
