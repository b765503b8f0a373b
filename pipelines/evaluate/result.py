"""The judgement on a candidate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """The status of a candidate; only a correct one has times.

    What is refused is nothing that perfpipe runs or can judge, and no evidence of cheating.
    """

    CORRECT = "correct"
    WRONG = "wrong result"
    CRASH = "crash"
    TIMEOUT = "timeout"
    RESOURCES = "out of resources"
    CHEATING = "cheating"
    REFUSED = "refused"


@dataclass(frozen=True)
class Evidence:
    """Why a candidate has its status: `kind` is a keyword, `text` a sentence, with the location.

    `file` and `line` are in the candidate, `case` is the case that showed it.
    """

    kind: str
    text: str
    file: str | None = None
    line: int | None = None
    case: str | None = None

    def sentence(self) -> str:
        """Return it as text: kind, location, text, and case."""
        where = f"{self.file}:{self.line}: " if self.file and self.line else ""
        case = f" ({self.case})" if self.case else ""
        return f"{self.kind}: {where}{self.text}{case}"


@dataclass(frozen=True)
class Score:
    """Times of one case against one baseline: medians of each launch, ms for a call.

    `speedup` is baseline / candidate with its 95 % interval.  `attainable_pct` is the attainable
    time of the declared work as a share of the time taken, None with `attainable_why`.
    """

    case: str
    against: str
    candidate_ms: tuple[float, ...]
    baseline_ms: tuple[float, ...]
    speedup: float
    low: float | None
    high: float | None
    verdict: str
    calls: int
    cache: str
    attainable_pct: float | None = None
    attainable_why: str | None = None
    event_ms: float | None = None


@dataclass(frozen=True)
class Kernel:
    """A kernel of a profile: perfpipe's class, SOL and SOL headroom, %; None is unknown."""

    kernel_name: str
    bound: str
    subclass: str | None
    confidence: str | None
    launches: int
    time_ns: float | None
    share_pct: float | None
    compute_sol_pct: float | None
    memory_sol_pct: float | None
    headroom_pct: float | None
    technique: str | None


@dataclass(frozen=True)
class Profile:
    """The ncu profile of one call of a candidate; `why` says why it is missing.

    `isolation` lists the restrictions of the candidate during the call.
    """

    case: str
    report: str | None = None
    kernels: tuple[Kernel, ...] = ()
    isolation: Mapping[str, bool] = field(default_factory=dict)
    why: str | None = None


@dataclass(frozen=True)
class Judgement:
    """The judgement on a candidate.

    `digest` is that of its files.  `deterministic` says whether equal inputs gave equal bits;
    `checked` counts calls, errors are absolute, over the largest
    expected value (scaled), and over the element's own (relative).
    `params` are the parameters that it states.  `profile` is that of the best one, if requested.
    `isolation` lists the restrictions that this machine's kernel enforces.
    """

    workload: str
    candidate: str
    status: Status
    reason: str
    digest: str
    device: str
    seed: int
    evidence: tuple[Evidence, ...] = ()
    checked: int = 0
    cases: int = 0
    max_scaled_error: float | None = None
    max_abs_error: float | None = None
    max_relative_error: float | None = None
    deterministic: bool | None = None
    scores: tuple[Score, ...] = ()
    no_scores: str | None = None
    isolation: Mapping[str, bool] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    output: str = ""
    software: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    profile: Profile | None = None

    def __post_init__(self) -> None:
        if self.scores and self.status != Status.CORRECT:
            raise ValueError("only a correct candidate is timed")

    @property
    def ok(self) -> bool:
        """Whether it is correct."""
        return self.status == Status.CORRECT

    def data(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)


#: Kinds of evidence of what perfpipe does not run, or cannot judge: no evidence of cheating.
REFUSALS = frozenset({"network", "files", "processes", "unread code", "degenerate problem"})


def graded(evidence: Sequence[Evidence]) -> Found:
    """Return what pieces of evidence mean together: refused if none of them is of cheating."""
    cheats = [one for one in evidence if one.kind not in REFUSALS]
    if cheats:
        return Found(Status.CHEATING, *cheats, *(one for one in evidence if one not in cheats))
    return Found(Status.REFUSED, *evidence)


class Found(Exception):
    """Raised for a candidate that is not correct, with the evidence."""

    def __init__(self, status: Status, *evidence: Evidence) -> None:
        super().__init__(evidence[0].text)
        self.status, self.evidence = status, evidence
