"""Searches of `perfpipe search`, as stored in searches/ID: settings, candidates, confirmations.

    search.json                       settings, state and confirmations
    candidates/<name>/candidate.json  one candidate with its verdict and times
    candidates/<name>/files/          its files; agent.log is what the agent printed

Times are only compared within a launch: baseline and candidate alternate there.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfpipe.decoding import decode
from perfpipe.errors import StoreError
from perfpipe.jsonfile import read_versioned, write_json
from perfpipe.model import SCHEMA_VERSION
from perfpipe.paths import is_plain
from perfpipe.runrecord import Scalar
from perfpipe.secrets import hidden, hide_words

#: Status of a candidate that is not judged yet, that equals an earlier one, that equals its parent
#: although the agent succeeded, and of an agent that failed and changed nothing.
PROPOSED, DUPLICATE, UNCHANGED, FAILED = "proposed", "duplicate", "unchanged", "agent failed"

#: `kind` of a line of a history that is a candidate with paired times.
CANDIDATE = "candidate"

#: Status of a candidate that the judge found right.
CORRECT = "correct"

#: Name of the incumbent among the baselines of a candidate.
INCUMBENT = "best so far"

#: Name of the baseline as a parent or an equal candidate.
BASELINE = "baseline"


@dataclass(frozen=True)
class Times:
    """Times of a case, ms for a call: pairs of the launches that ran candidate and baseline."""

    case: str
    against: str
    candidate_ms: tuple[float, ...]
    baseline_ms: tuple[float, ...]


@dataclass(frozen=True)
class AgentRun:
    """What became of the agent's command: `exit_code` is None if it was ended at its time limit."""

    exit_code: int | None
    seconds: float
    said: str = ""

    def __post_init__(self) -> None:
        _hide(self, "said")


@dataclass(frozen=True)
class Kernel:
    """A profiled kernel: class, SOL and SOL headroom, %, and the recommended technique."""

    name: str
    bound: str
    time_ns: float | None
    compute_sol_pct: float | None
    memory_sol_pct: float | None
    headroom_pct: float | None
    technique: str | None


@dataclass(frozen=True)
class Attempt:
    """A candidate: where it comes from, its verdict, and its times beside the baselines.

    `digest` ignores comments and whitespace; `same_as` names the earlier candidate that has it.
    `uses` are the modules that it imports, `attainable_pct` is by case, `evidence` are sentences.
    """

    name: str
    generation: int
    status: str
    reason: str = ""
    variant: int = 0
    parents: tuple[str, ...] = ()
    digest: str = ""
    proposer: str = ""
    same_as: str | None = None
    times: tuple[Times, ...] = ()
    no_times: str | None = None
    evidence: tuple[str, ...] = ()
    params: dict[str, Scalar] = field(default_factory=dict)
    uses: tuple[str, ...] = ()
    attainable_pct: dict[str, float] = field(default_factory=dict)
    device: str = ""
    seed: int = 0
    seconds: float = 0.0
    output: str = ""
    warnings: tuple[str, ...] = ()
    agent: AgentRun | None = None
    report: str | None = None
    profile: tuple[Kernel, ...] = ()
    profile_missing: str | None = None

    def __post_init__(self) -> None:
        _hide(self, "reason", "evidence", "output", "params", "no_times")

    @property
    def correct(self) -> bool:
        """Whether the judge found it right."""
        return self.status == CORRECT

    @property
    def stated(self) -> str:
        """The parameters that it states, as text."""
        return " ".join(f"{name}={value}" for name, value in self.params.items())

    @property
    def label(self) -> str:
        """Its name, with its parameters if it states any."""
        return f"{self.name} ({self.stated})" if self.params else self.name


@dataclass(frozen=True)
class Round:
    """Fresh launches of the finalists beside the baseline; `judged` was the candidate.

    `gains` has the logarithm of the speedup of each finalist for each launch, over all cases.
    """

    judged: str
    seed: int
    gains: dict[str, tuple[float, ...]]
    failed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Confirmation:
    """All rounds for some finalists; `look` is 0 for the first confirmation of a search."""

    look: int
    finalists: tuple[str, ...]
    rounds: tuple[Round, ...] = ()

    @property
    def failed(self) -> dict[str, str]:
        """Finalists that were not right in a round, and why."""
        return {name: why for one in self.rounds for name, why in one.failed.items()}

    def gains(self) -> dict[str, tuple[float, ...]]:
        """Return the logarithms of speedups by finalist, without those that failed."""
        return {
            name: tuple(gain for one in self.rounds for gain in one.gains.get(name, ()))
            for name in self.finalists
            if name not in self.failed
        }


@dataclass(frozen=True)
class Settings:
    """How to search.  `agent` are the words of its command, empty if there is none."""

    generations: int
    variants: int
    budget_s: float | None = None
    launches: int | None = None
    batches: int | None = None
    confirm: int = 12
    agent: tuple[str, ...] = ()
    agent_timeout_s: float = 600.0
    parallel: int = 1
    by_hand: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "agent", hide_words(self.agent))


@dataclass(frozen=True)
class Search:
    """A search: its problem, settings, state, and what was confirmed.

    `problem` is a digest of the problem; `spent_s` is the time used so far; `baselines` has the
    speedup of each other baseline over the first, by which `baseline` was chosen; `workloads` is
    the file with those of a FlashInfer-Trace definition.
    """

    search_id: str
    workload: str
    path: str
    device: str
    device_name: str
    baseline: str
    created_at: str
    problem: str
    seed: int
    settings: Settings
    baselines: dict[str, float] = field(default_factory=dict)
    state: str = "running"
    spent_s: float = 0.0
    stopped: str = ""
    workloads: str | None = None
    confirmations: tuple[Confirmation, ...] = ()
    provenance: dict[str, str] = field(default_factory=dict)


def baseline_medians(measured: Iterable[Times]) -> dict[tuple[str, str], float]:
    """Return the latest median time of each baseline and case, ms.

    >>> baseline_medians([Times("float32 m=1", "library", (), (3.0, 1.0, 2.0))])
    {('library', 'float32 m=1'): 2.0}
    """
    return {(one.against, one.case): statistics.median(one.baseline_ms) for one in measured}


def _hide(record: object, *names: str) -> None:
    for name in names:
        object.__setattr__(record, name, hidden(getattr(record, name)))


def directory(root: Path) -> Path:
    """Return the directory of the searches of a store."""
    return root / "searches"


def identifiers(root: Path) -> list[str]:
    """Return the ids of all searches, sorted."""
    return sorted(path.parent.name for path in directory(root).glob("[!.]*/search.json"))


def write(folder: Path, search: Search) -> None:
    """Save a search in its directory, replacing an earlier state."""
    write_json(folder / "search.json", {"schema_version": SCHEMA_VERSION, **vars(search)})


def read(folder: Path) -> Search:
    """Return the search of a directory; raises StoreError if it is damaged."""
    path = folder / "search.json"
    found: Search = _decoded(Search, path, "search")
    if not is_plain(found.search_id) or found.search_id != folder.name:
        raise StoreError(f"{path}: the record belongs to a different search, {found.search_id}")
    return found


def write_attempt(folder: Path, attempt: Attempt) -> None:
    """Save a candidate of a search."""
    path = attempt_directory(folder, attempt.name) / "candidate.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"schema_version": SCHEMA_VERSION, **vars(attempt)})


def read_attempts(folder: Path) -> list[Attempt]:
    """Return the candidates of a search in order; raises StoreError if one is damaged."""
    paths = (folder / "candidates").glob("[!.]*/candidate.json")
    return in_order(_decoded(Attempt, path, "candidate") for path in paths)


def attempt_directory(folder: Path, name: str) -> Path:
    """Return the directory of a candidate."""
    return folder / "candidates" / name


def in_order(attempts: Iterable[Attempt]) -> list[Attempt]:
    """Return candidates by generation and variant."""
    return sorted(attempts, key=lambda one: (one.generation, one.variant, one.name))


def age(search: Search) -> tuple[str, str]:
    """Return what orders searches, the oldest first."""
    return search.created_at, search.search_id


def in_time(searches: Iterable[Search]) -> list[Search]:
    """Return searches, oldest first."""
    return sorted(searches, key=age)


def attempt_of(content: Mapping[str, Any]) -> Attempt:
    """Return a candidate from JSON; raises ValueError."""
    found: Attempt = decode(Attempt, dict(content))
    return found


def _decoded(kind: Any, path: Path, what: str) -> Any:
    try:
        return decode(kind, read_versioned(path, what))
    except ValueError as error:
        raise StoreError(f"{path}: not a complete {what} ({error})") from error
