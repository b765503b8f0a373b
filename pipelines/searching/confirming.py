"""Confirms finalists together: fresh processes and inputs, beside the baseline, in random order."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from perfpipe.analysis.search_decision import FINALISTS, gains_of
from perfpipe.errors import InputError
from perfpipe.pipelines.console import Progress
from perfpipe.pipelines.evaluate.result import Judgement, Score
from perfpipe.pipelines.searching.session import Session
from perfpipe.searchrecord import Confirmation, Round, Times

#: Rounds of a confirmation: in each another finalist is checked for correctness, on new inputs.
_ROUNDS = 3


def confirm(session: Session, progress: Progress) -> None:
    """Confirm the finalists, or go on with it; nothing is done if they are confirmed already.

    Finalists that are new since an earlier confirmation make another look necessary.
    """
    disk = session.disk
    finalists = tuple(own.name for own, _ in session.found.ranking[:FINALISTS])
    if not finalists:
        return
    last = disk.search.confirmations[-1] if disk.search.confirmations else None
    if last is None:
        last = Confirmation(0, finalists)
    elif {*last.finalists} != {*finalists} and _is_complete(session, last):
        last = Confirmation(last.look + 1, finalists)
    while not _is_complete(session, last):
        number = len(last.rounds)
        order = [name for name in last.finalists if name not in last.failed]
        # The same order if the search is continued; another one in each round.
        random.Random(f"{disk.search.seed} {last.look} {number}").shuffle(order)  # noqa: S311
        judged = order[number % len(order)]
        progress.detail(f"confirmation {number + 1}: {', '.join(order)}")
        made = _round(session, judged, order, -(-_launches(session, last) // _ROUNDS))
        last = replace(last, rounds=(*last.rounds, made))
        disk.confirm(last)
        disk.change(spent_s=session.clock.used_s)
        progress.step(f"confirmation, round {number + 1} of {_ROUNDS}: {_told(made)}")


def _launches(session: Session, confirmation: Confirmation) -> int:
    # The exact test needs another launch for each halving of the level.
    return session.disk.search.settings.confirm + confirmation.look


def _is_complete(session: Session, confirmation: Confirmation) -> bool:
    """Return whether every finalist that is still right has its launches."""
    gains = confirmation.gains()
    needed = _launches(session, confirmation)
    return all(len(own) >= needed for own in gains.values())


def _round(session: Session, judged: str, order: Sequence[str], launches: int) -> Round:
    """Return fresh launches of all finalists; one of them is also checked for correctness."""
    disk, baseline = session.disk, session.disk.search.baseline
    others = [name for name in order if name != judged]
    against: dict[str, Path] = {name: disk.files(name) for name in others}
    names = [baseline, *others]
    random.SystemRandom().shuffle(names)
    sides = {name: against.get(name, disk.baseline) for name in names}
    try:
        made = session.judged(judged, sides, launches)
    except InputError:
        if not others:
            raise
        # One of the others failed: each is judged alone, which shows which one.
        return _each(session, order, launches)
    if failed := _failure(made):
        return Round(judged, made.seed, {}, {judged: failed})
    gains = {name: _gains(made.scores, name, baseline) for name in others}
    return Round(judged, made.seed, {**gains, judged: gains_of(made.scores, baseline)})


def _each(session: Session, order: Sequence[str], launches: int) -> Round:
    disk, search = session.disk, session.disk.search
    gains: dict[str, tuple[float, ...]] = {}
    failed: dict[str, str] = {}
    seed = 0
    for name in order:
        made = session.judged(name, {search.baseline: disk.baseline}, launches)
        seed = made.seed
        if why := _failure(made):
            failed[name] = why
        else:
            gains[name] = gains_of(made.scores, search.baseline)
    return Round(", ".join(order), seed, gains, failed)


def _failure(made: Judgement) -> str:
    """Return why a judgement has no times; empty if it has."""
    if not made.ok:
        return f"{made.status}: {made.reason}"
    return "" if made.scores else made.no_scores or "it was not timed"


def _gains(scores: Sequence[Score], name: str, baseline: str) -> tuple[float, ...]:
    """Return the gains over the baseline of a finalist that ran beside the judged one."""
    own = {one.case: one.baseline_ms for one in scores if one.against == name}
    pairs = (
        Times(one.case, baseline, own[one.case], one.baseline_ms)
        for one in scores
        if one.against == baseline
    )
    return gains_of(pairs, baseline)


def _told(made: Round) -> str:
    parts = [
        f"{name} {math.exp(statistics.fmean(own)):.3f} x" for name, own in made.gains.items() if own
    ]
    parts += [f"{name} failed: {why}" for name, why in made.failed.items()]
    return ", ".join(parts)
