"""Answers `perfpipe try --sensitivity`: what handicaps show, and whether the timeline agrees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from perfpipe.analysis.critical.slopes import VIEWS, predicted_slopes
from perfpipe.analysis.rows import rows_of
from perfpipe.analysis.session import Session
from perfpipe.analysis.trying import causes
from perfpipe.analysis.trying.causes import Cause
from perfpipe.pipelines.collectors.base import Say
from perfpipe.pipelines.place import machine
from perfpipe.pipelines.trying import sensitivity
from perfpipe.pipelines.trying.bench import Bench
from perfpipe.pipelines.trying.diagnosing import Diagnosis, diagnosis_of
from perfpipe.pipelines.trying.launching import PLAIN
from perfpipe.pipelines.trying.session import Wishes, launching
from perfpipe.pipelines.trying.subject import Subject
from perfpipe.store import Store
from perfpipe.units import counted, format_ns


@dataclass(frozen=True)
class Slowed:
    """What each handicap shows, the verdict of the timeline, and why slopes contradict it.

    `predicted` are the slopes that a replay of the timeline predicts.
    """

    program: str
    gpu: str
    causes: Mapping[str, Cause]
    diagnosis: str = ""
    contradiction: str | None = None
    predicted: Mapping[str, float] = field(default_factory=dict)

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {
            "program": self.program,
            "gpu": self.gpu,
            "handicaps": [cause.row() for cause in self.causes.values()],
            "diagnosis": self.diagnosis,
            "contradiction": self.contradiction,
            "predicted_slopes": {**self.predicted},
        }

    def lines(self) -> Iterator[str]:
        """Yield it as text."""
        yield from causes.lines(self.causes)
        if self.diagnosis:
            yield f"Timeline: {self.diagnosis}"
        for handicap, slope in self.predicted.items():
            cause = self.causes.get(handicap)
            if cause is not None and cause.slopes is not None:
                yield causes.compared(cause, slope)
        if self.contradiction:
            yield self.contradiction


def slow(subject: Subject, store: Store, wishes: Wishes, say: Say, detail: Say) -> Slowed:
    """Slow one resource at a time within the budget.

    Raises TaskFailed if the program fails without any change.
    """
    with launching(subject, store, wishes) as (launches, places):
        bench = Bench(launches, wishes.budget_s, detail)
        say("launching the program without changes, to see that it runs")
        first = bench.launch(PLAIN)
        found = Diagnosis()
        if wishes.diagnose:
            found = diagnosis_of(subject, store, launches, places, say, fresh=wishes.fresh)
        rounds = wishes.rounds or sensitivity.ROUNDS
        most = sensitivity.launches(rounds=rounds)
        needed_s = most * first.seconds
        enough = "" if needed_s <= bench.left_s else "; the budget does not allow all of them"
        say(
            f"up to {counted(most, 'launch')} of about {format_ns(1e9 * first.seconds)}: "
            f"{needed_s / 60:.1f} min{enough}"
        )
        slopes = sensitivity.sensitivity(
            sensitivity.launch_with(launches, bench.timeout(PLAIN)),
            rounds=rounds,
            say=detail,
            fits=lambda count: bench.left_s >= count * bench.plain_s,
        )
    category = _category(store, found)
    return Slowed(
        subject.workload.name,
        machine(subject.workload.env),
        slopes,
        found.verdict,
        causes.contradicts(category, slopes) if category else None,
        _predicted(store, found),
    )


def _predicted(store: Store, found: Diagnosis) -> dict[str, float]:
    """Return the slopes that a replay of a run's timeline predicts; empty without a timeline."""
    if found.run is None:
        return {}
    with Session.open(store, found.run.reports, use=VIEWS) as session:
        return predicted_slopes(session.con)
    raise AssertionError("unreachable")


def _category(store: Store, found: Diagnosis) -> str | None:
    """Return the category that limits the GPU of a run; None if it is unknown, or GPUs differ."""
    if found.run is None or not found.verdict:
        return None
    if any(key in found.advice for key in ("data_loading", "more_loading")):
        return "input"
    with Session.open(store, found.run.reports, use=("timeline_bottleneck",)) as session:
        bounds = rows_of(session.con, "SELECT DISTINCT bound FROM timeline_bottleneck")
        return str(bounds[0][0]) if len(bounds) == 1 else None
    raise AssertionError("unreachable")
