"""Judgements in words, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from perfpipe.pipelines.evaluate.result import Judgement, Profile, Score
from perfpipe.units import format_ns, words

#: Last lines of a candidate's own output that are shown.
_PRINTED = 3


def tell(made: Sequence[Judgement]) -> None:
    """Print judgements."""
    for one in made:
        click.echo("\n".join(lines(one)))


def lines(made: Judgement) -> Iterator[str]:
    """Yield the lines of a judgement."""
    yield f"{made.candidate}: {made.status}: {made.reason}"
    for evidence in made.evidence:
        yield f"  {evidence.sentence()}"
    if not made.ok and made.output:
        yield from (f"  | {line[:200]}" for line in made.output.splitlines()[-_PRINTED:])
    for score in made.scores:
        yield f"  {_score(score)}"
    if made.ok and made.no_scores:
        yield f"  no times: {made.no_scores}"
    if made.ok and made.deterministic is False:
        yield "  not deterministic: equal inputs gave different bits"
    for warning in made.warnings:
        yield f"  warning: {warning}"
    if made.profile is not None:
        yield from _profile(made.profile)


def _profile(made: Profile) -> Iterator[str]:
    if made.why:
        yield f"  no profile: {made.why}"
        return
    yield f"  profile of {made.case} (perfpipe report {made.report}):"
    for kernel in made.kernels:
        kind = " ".join(part for part in (kernel.bound, kernel.subclass) if part)
        sol = f"compute SOL {_pct(kernel.compute_sol_pct)}, memory {_pct(kernel.memory_sol_pct)}"
        room = f"SOL headroom {_pct(kernel.headroom_pct)}"
        took = "" if kernel.time_ns is None else f", {format_ns(kernel.time_ns)}"
        yield f"    {kernel.kernel_name}{took}: {words(kind)}; {sol}; {room}"


def _pct(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0f} %"


def _score(one: Score) -> str:
    interval = "" if one.low is None else f" ({one.low:.3f} to {one.high:.3f})"
    times = [sorted(side)[len(side) // 2] for side in (one.candidate_ms, one.baseline_ms)]
    own, other = (format_ns(ms * 1e6) for ms in times)
    roof = f"{one.attainable_pct:.0f} % of attainable" if one.attainable_pct else one.attainable_why
    return (
        f"{one.case}: {own}, {one.against} {other}: {one.speedup:.3f} x{interval}, {one.verdict}, "
        f"{len(one.candidate_ms)} launches; {roof}; {one.cache}"
    )
