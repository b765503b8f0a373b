"""The format of every answer: data, evidence, gaps, and the next call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from perfpipe.errors import PerfpipeError
from perfpipe.pipelines.agents.cutting import Cut, first, truncated
from perfpipe.pipelines.agents.wording import plain

#: Version of the format.
VERSION = 2

#: Characters of an answer.
LIMIT = 20_000

#: Most pieces of evidence and warnings in an answer.
_EVIDENCE, _WARNINGS = 20, 10


class Status(StrEnum):
    """Whether a question was answered; abstained is never 'no problem'."""

    ANSWERED = "answered"
    ABSTAINED = "abstained"
    FAILED = "failed"


@dataclass(frozen=True)
class Evidence:
    """A number with its source: view, row, column, unit, and number of measurements."""

    view: str
    key: Mapping[str, Any]
    metric: str
    value: float | int | str | None
    unit: str
    n: int | None = None


@dataclass(frozen=True)
class Next:
    """The next call."""

    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Answer:
    """An answer; `rows` names the list in `data` that is cut if the answer is too long."""

    data: Mapping[str, Any] = field(default_factory=dict)
    status: Status = Status.ANSWERED
    reason: str = ""
    evidence: tuple[Evidence, ...] = ()
    warnings: tuple[str, ...] = ()
    rows: str = ""
    next: Next | None = None


def failed(error: PerfpipeError | str) -> Answer:
    """Return the answer to a failed call, with the reason."""
    return Answer(status=Status.FAILED, reason=plain(str(error)))


def render(answer: Answer, limit: int = LIMIT) -> str:
    """Return an answer as JSON of at most `limit` characters; every cut list is counted."""
    every = len(answer.data.get(answer.rows, ())) if answer.rows else 0
    low, high = 0, every
    if len(text := _text(answer, every)) <= limit:
        return text
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(_text(answer, middle)) <= limit else (low, middle - 1)
    if len(text := _text(answer, low)) <= limit:
        return text
    return _text(failed(f"the answer exceeds {limit:,} characters; request less data"), 0)


def _text(answer: Answer, shown: int) -> str:
    data = dict(answer.data)
    if answer.rows in data:
        rows = data[answer.rows]
        total = rows.total if isinstance(rows, Cut) else len(rows)
        data[answer.rows] = first(rows, shown, total)
    document = {
        "schema_version": VERSION,
        "status": answer.status,
        "reason": answer.reason,
        "data": data,
        "evidence": first([asdict(one) for one in answer.evidence], _EVIDENCE),
        "warnings": first(answer.warnings, _WARNINGS),
    }
    cut = truncated({**data, "evidence": document["evidence"], "warnings": document["warnings"]})
    document["truncated"] = cut or None
    document["next"] = asdict(answer.next) if answer.next else None
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), default=str)
