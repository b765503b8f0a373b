"""Judgements as trials of a search, which `perfpipe report --tuning` reads; failures are data."""

from __future__ import annotations

import json
from pathlib import Path

from perfpipe.errors import StoreError, os_error_sentence
from perfpipe.pipelines.evaluate.result import Judgement


def trial(made: Judgement, generation: int) -> dict[str, object]:
    """Return a judgement as a line: the time is that of the first case."""
    first = made.scores[0] if made.scores else None
    return {
        "params": {"candidate": made.candidate, **made.params},
        "digest": made.digest,
        "generation": generation,
        "default": False,
        "launches_ms": [[ms] for ms in first.candidate_ms] if first else [],
        "status": "done" if first else "failed",
        "failure": None if first else str(made.status) if not made.ok else "not timed",
        "error": None if first else made.no_scores if made.ok else made.reason,
    }


def append(path: Path, made: Judgement, generation: int) -> None:
    """Append a judgement to a JSON lines file; raises StoreError."""
    line = json.dumps(trial(made, generation), ensure_ascii=False) + "\n"
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(line)
    except OSError as error:
        raise StoreError(os_error_sentence(error, "cannot write")) from error
