"""Judgements as candidates of a search, which `perfpipe report --tuning` reads; failures are data.

Absolute times of different launches are not comparable, so that times are kept in pairs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from perfpipe.errors import StoreError, os_error_sentence
from perfpipe.pipelines.evaluate.result import Judgement
from perfpipe.searchrecord import CANDIDATE, Attempt, Kernel, Times

#: Most characters of a candidate's own output that are kept: the last ones.
_PRINTED = 2000

#: Values that a line leaves to the reader, and keys that it always has.
_USUAL = asdict(Attempt("", 0, ""))
_ALWAYS = ("name", "generation", "status")


def attempt_of(made: Judgement, name: str, generation: int, parents: Sequence[str] = ()) -> Attempt:
    """Return a judgement as a candidate of a search."""
    profile = made.profile
    return Attempt(
        name,
        generation,
        str(made.status),
        made.reason,
        parents=tuple(parents),
        digest=made.digest,
        times=tuple(
            Times(one.case, one.against, one.candidate_ms, one.baseline_ms) for one in made.scores
        ),
        no_times=made.no_scores,
        evidence=tuple(one.sentence() for one in made.evidence),
        params=dict(made.params),
        attainable_pct={
            one.case: one.attainable_pct for one in made.scores if one.attainable_pct is not None
        },
        device=made.device,
        seed=made.seed,
        seconds=made.seconds,
        output=made.output[-_PRINTED:],
        warnings=made.warnings,
        report=profile.report if profile else None,
        profile=tuple(
            Kernel(
                one.kernel_name,
                " ".join(part for part in (one.bound, one.subclass) if part),
                one.time_ns,
                one.compute_sol_pct,
                one.memory_sol_pct,
                one.headroom_pct,
                one.technique,
            )
            for one in (profile.kernels if profile else ())
        ),
        profile_missing=profile.why if profile else None,
    )


def append(path: Path, made: Judgement, generation: int, parents: Sequence[str] = ()) -> None:
    """Append a judgement to a JSON lines file; raises StoreError."""
    own = attempt_of(made, made.candidate, generation, parents)
    stated = {key: one for key, one in asdict(own).items() if key in _ALWAYS or one != _USUAL[key]}
    line = json.dumps({"kind": CANDIDATE, **stated}, ensure_ascii=False) + "\n"
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(line)
    except OSError as error:
        raise StoreError(os_error_sentence(error, "cannot write")) from error
