"""Trials: what the levers of `perfpipe try` gained in a program, as stored in trials/ID.json."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from perfpipe.database import ColumnSpec
from perfpipe.decoding import decode
from perfpipe.errors import StoreError
from perfpipe.jsonfile import read_versioned, write_json
from perfpipe.model import SCHEMA_VERSION
from perfpipe.paths import is_plain
from perfpipe.secrets import hidden, hide_words

#: Why a lever is not tried: the budget, there is little to do, or it needs a finding.
NO_BUDGET = "the budget does not allow it"
WAITS = "the program waits for requests most of the time"
INTERRUPTED = "the trial was interrupted: nothing was confirmed"
NO_FINDING = "no finding calls for it"
UNUSED = "the program does not use "  # and a library
NO_TIMELINE = "only a finding calls for it, and there is no timeline; --levers tries it"

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


#: Nothing was measured.
NOT_MEASURED = Gained()


@dataclass(frozen=True)
class Used:
    """Energy of a unit, J, and of the plain program over the same units; None if unknown.

    It is that of all GPUs that the program may use, idle power included: the median of launches.
    """

    joules: float | None = None
    plain_joules: float | None = None


#: No energy is known.
UNKNOWN_ENERGY = Used()


@dataclass(frozen=True)
class LeverTrial:
    """What one lever did in a program.

    `verdict` is gain, no gain, slower, inconclusive, not applied, failed, hung, different work or
    not tried, and `why` explains it.  `in_steps` is the gain in the steps alone, without
    validations.  `applied` says what it was applied to.  `bound_pct` is the gain that the finding
    promised at most, in % of `bound_of`; None without a bound.  `results` is identical,
    within_scatter, within_tolerance, differ or unknown.  `start_up_s` is the time that it takes
    once, such as compilation, and `pays_after` the number of units after which it pays.
    `memory_bytes` is the peak of the GPU memory that PyTorch reserved.  `manual` is the change to
    make by hand.  `ms` is the time of one unit.
    """

    name: str
    title: str
    verdict: str
    gained: Gained = NOT_MEASURED
    in_steps: Gained = NOT_MEASURED
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
    ms: float | None = None
    energy: Used = UNKNOWN_ENERGY

    def __post_init__(self) -> None:
        _hide(self, "why", "applied", "results_why", "manual")

    @property
    def exceeds_bound(self) -> bool | None:
        """Whether even the low end of the gain is above the bound; None without one of them."""
        low_pct = (self.gained if self.in_steps.low_pct is None else self.in_steps).low_pct
        if self.bound_pct is None or low_pct is None:
            return None
        return low_pct > self.bound_pct


@dataclass(frozen=True)
class StackTrial:
    """The levers that help together, measured on fresh launches.

    `ms` is the time of a unit with the stack, `plain_ms` without it in the same rounds.
    """

    levers: tuple[str, ...]
    verdict: str
    gained: Gained
    results: str
    results_why: str = ""
    ms: float | None = None
    plain_ms: float | None = None
    memory_bytes: int | None = None
    launches: int = 0
    manual: str = ""
    energy: Used = UNKNOWN_ENERGY

    def __post_init__(self) -> None:
        _hide(self, "results_why", "manual")


@dataclass(frozen=True)
class Trial:
    """One `perfpipe try`: the program, its time, and what was tried.

    `unit` is step, token, call, iteration or launch; `plain_ms` is the time of one.  `aa` compares
    the plain program with itself.  `diagnosis` is the verdict on its timeline; `unsteady` is why
    its launches cannot be compared, empty if they can.  `plain_energy_j` is the energy of a unit
    from `energy_source`, or `energy_missing` says why it is unknown.
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
    diagnosis: str = ""
    unsteady: str = ""
    notes: tuple[str, ...] = ()
    provenance: dict[str, str] = field(default_factory=dict)
    plain_energy_j: float | None = None
    energy_source: str | None = None
    energy_missing: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", hide_words(self.words))
        _hide(self, "program", "notes")

    @property
    def decided(self) -> bool:
        """Whether any lever was measured well enough, or there was nothing to measure."""
        if INTERRUPTED in self.notes:
            return False
        if any(own.verdict in ("gain", "no gain", "slower") for own in self.levers):
            return True
        left = (NO_BUDGET, NO_TIMELINE)
        open_ = any(own.verdict == "inconclusive" or own.why in left for own in self.levers)
        return not open_ and not self.unsteady


def _hide(record: object, *names: str) -> None:
    """Hide the secrets in texts from users or programs."""
    for name in names:
        object.__setattr__(record, name, hidden(getattr(record, name)))


def directory(root: Path) -> Path:
    """Return the directory of the trials of a store."""
    return root / "trials"


def files(root: Path) -> list[Path]:
    """Return the files of all trials."""
    return sorted(directory(root).glob("[!.]*.json"))


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
    if not is_plain(found.trial_id) or found.trial_id != path.stem:
        raise StoreError(f"{path}: the record belongs to a different trial, {found.trial_id}")
    return found


def read_all(root: Path) -> list[Trial]:
    """Return the trials of a store, oldest first; raises StoreError if one is damaged."""
    return in_order(map(read_file, files(root)))


def in_order(trials: Iterable[Trial]) -> list[Trial]:
    """Return trials, oldest first."""
    return sorted(trials, key=lambda trial: (trial.at, trial.trial_id))


class _Row(NamedTuple):
    """What a row of `trials` is about: a lever, or the stack in the same form."""

    trial: Trial
    kind: str
    own: LeverTrial
    plain_ms: float | None


#: Columns of `trials`: name, SQL type, meaning, and how to read the value.
_COLUMNS: tuple[tuple[str, str, str, Callable[[_Row], Any]], ...] = (
    ("trial_id", "VARCHAR", "trial", lambda row: row.trial.trial_id),
    ("program", "VARCHAR", "name of the program or workload", lambda row: row.trial.program),
    (
        "run_id",
        "VARCHAR",
        "run whose findings the trial followed; NULL without a run",
        lambda row: row.trial.run_id,
    ),
    ("gpu", "VARCHAR", "model of the GPU; NULL if unknown", lambda row: row.trial.gpu),
    ("tried_at", "VARCHAR", "end of the trial, UTC", lambda row: row.trial.at),
    (
        "unit",
        "VARCHAR",
        "what was timed: step, token, call, iteration or launch",
        lambda row: row.trial.unit,
    ),
    (
        "plain_ms",
        "DOUBLE",
        "time of one unit of the unchanged program, ms; of a stack, in the same rounds",
        lambda row: row.plain_ms,
    ),
    (
        "lever",
        "VARCHAR",
        "name of the lever; of a stack, the names of its levers",
        lambda row: row.own.name,
    ),
    (
        "kind",
        "VARCHAR",
        "lever, or stack: the levers that help together, measured on fresh launches",
        lambda row: row.kind,
    ),
    (
        "technique",
        "VARCHAR",
        "key of the technique that the lever carries out, as in recommendations; NULL if no "
        "finding recommends it",
        lambda row: row.own.technique,
    ),
    (
        "finding",
        "VARCHAR",
        "finding that recommends the technique: bound or subject, as in recommendations",
        lambda row: row.own.finding,
    ),
    (
        "bound_pct",
        "DOUBLE",
        "upper bound on the gain that the finding stated, % of bound_of; NULL without a bound",
        lambda row: row.own.bound_pct,
    ),
    (
        "gain_pct",
        "DOUBLE",
        "time saved, % of plain_ms; negative if slower; NULL if nothing was measured",
        lambda row: row.own.gained.gain_pct,
    ),
    (
        "ms",
        "DOUBLE",
        "time of one unit with the lever, ms; NULL if it was not recorded",
        lambda row: row.own.ms,
    ),
    ("low_pct", "DOUBLE", "low end of the gain's interval, %", lambda row: row.own.gained.low_pct),
    (
        "high_pct",
        "DOUBLE",
        "high end of the gain's interval, %",
        lambda row: row.own.gained.high_pct,
    ),
    (
        "verdict",
        "VARCHAR",
        "gain, no gain, slower, inconclusive, not applied, failed, hung, different work or not "
        "tried",
        lambda row: row.own.verdict,
    ),
    (
        "results",
        "VARCHAR",
        "results of the program compared with those of the unchanged program: identical, "
        "within_scatter, within_tolerance, differ or unknown",
        lambda row: row.own.results,
    ),
    (
        "start_up_s",
        "DOUBLE",
        "time that the lever takes once, such as compilation, s",
        lambda row: row.own.start_up_s,
    ),
    (
        "memory_bytes",
        "BIGINT",
        "peak of the GPU memory that PyTorch reserved, bytes",
        lambda row: row.own.memory_bytes,
    ),
    (
        "energy_j",
        "DOUBLE",
        "energy of one unit with the lever, J, over all GPUs that the program may use, idle power "
        "included; NULL if unknown",
        lambda row: row.own.energy.joules,
    ),
    (
        "plain_energy_j",
        "DOUBLE",
        "energy of one unit of the unchanged program, over the same units, J; NULL if unknown",
        lambda row: row.own.energy.plain_joules,
    ),
    (
        "energy_source",
        "VARCHAR",
        "source of the energy: NVML energy counter, or power samples with their rate",
        lambda row: row.trial.energy_source,
    ),
    (
        "energy_missing",
        "VARCHAR",
        "why the energy of the unchanged program is unknown",
        lambda row: row.trial.energy_missing,
    ),
    ("launches", "BIGINT", "number of launches with the lever", lambda row: row.own.launches),
    (
        "exceeds_bound",
        "BOOLEAN",
        "whether the low end of the gain, that of the steps alone if known, exceeds bound_pct, "
        "which is a fault of the bound; NULL without a bound or a measurement",
        lambda row: row.own.exceeds_bound,
    ),
    (
        "steps_gain_pct",
        "DOUBLE",
        "time saved in the steps alone, which bounds are about, %; NULL if unknown",
        lambda row: row.own.in_steps.gain_pct,
    ),
    ("steps_low_pct", "DOUBLE", "low end of its interval, %", lambda row: row.own.in_steps.low_pct),
    (
        "steps_high_pct",
        "DOUBLE",
        "high end of its interval, %",
        lambda row: row.own.in_steps.high_pct,
    ),
    ("title", "VARCHAR", "what the lever does", lambda row: row.own.title),
    ("why", "VARCHAR", "reason for the verdict", lambda row: row.own.why),
    ("results_why", "VARCHAR", "what differs in the results", lambda row: row.own.results_why),
    (
        "bound_of",
        "VARCHAR",
        "the whole of which bound_pct is a share",
        lambda row: row.own.bound_of,
    ),
    (
        "applied",
        "VARCHAR[]",
        "what the lever was applied to",
        lambda row: list(row.own.applied),
    ),
    (
        "pays_after",
        "DOUBLE",
        "number of units after which the lever has saved start_up_s; NULL if it never does",
        lambda row: row.own.pays_after,
    ),
    ("manual", "VARCHAR", "the change to make by hand", lambda row: row.own.manual),
    (
        "plain_launches",
        "BIGINT",
        "number of launches of the unchanged program",
        lambda row: row.trial.plain_launches,
    ),
    (
        "plain_memory_bytes",
        "BIGINT",
        "peak of the GPU memory that PyTorch reserved in the unchanged program, bytes",
        lambda row: row.trial.plain_memory_bytes,
    ),
    (
        "aa_gain_pct",
        "DOUBLE",
        "difference between launches of the unchanged program (A/A), %",
        lambda row: row.trial.aa.gain_pct,
    ),
    ("aa_low_pct", "DOUBLE", "low end of its interval, %", lambda row: row.trial.aa.low_pct),
    ("aa_high_pct", "DOUBLE", "high end of its interval, %", lambda row: row.trial.aa.high_pct),
    (
        "aa_results",
        "VARCHAR",
        "results of launches of the unchanged program compared with each other, as in results",
        lambda row: row.trial.aa_results,
    ),
    (
        "command",
        "VARCHAR[]",
        "words of the program's command line",
        lambda row: list(row.trial.words),
    ),
    (
        "reports",
        "VARCHAR[]",
        "ids of the reports whose findings the trial followed",
        lambda row: list(row.trial.reports),
    ),
)

TRIAL_COLUMNS: tuple[ColumnSpec, ...] = tuple(spec[:3] for spec in _COLUMNS)


def trial_rows(trial: Trial) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of `trials`: one for each lever, and one for the stack."""
    about = [_Row(trial, "lever", own, trial.plain_ms) for own in trial.levers]
    if trial.stack is not None:
        plain_ms = trial.stack.plain_ms or trial.plain_ms
        about.append(_Row(trial, "stack", _as_lever(trial.stack), plain_ms))
    for row in about:
        yield tuple(value(row) for *_, value in _COLUMNS)


def _as_lever(stack: StackTrial) -> LeverTrial:
    return LeverTrial(
        name=" + ".join(stack.levers),
        title="the levers that help together",
        verdict=stack.verdict,
        gained=stack.gained,
        results=stack.results,
        results_why=stack.results_why,
        ms=stack.ms,
        memory_bytes=stack.memory_bytes,
        launches=stack.launches,
        manual=stack.manual,
        energy=stack.energy,
    )
