"""Ranks that are late for their collectives, against a simulation that knows by how much."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rank_traces import Traced, write_traces
from simulated_ranks import (
    GEMM,
    OPTIMIZER,
    US,
    Collective,
    Item,
    Job,
    Placed,
    Training,
    Wait,
    Work,
    simulate,
)

from perfpipe.analysis.session import Session
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store


@pytest.mark.parametrize(
    ("pattern", "scale"),
    [
        ("constant", lambda step: 1.5),
        ("growing", lambda step: 1 + 0.1 * step),
        ("bursts", lambda step: 4.0 if step in (5, 11) else 1.0),
        # Steps of more than five times the median, which are not analyzed.
        ("bursts", lambda step: 20.0 if step in (5, 11) else 1.0),
        ("bursts", lambda step: 20.0 if step == 15 else 1.0),
        (None, lambda step: 1.0),
        # Less than 3 % of a step.
        (None, lambda step: 1.02),
    ],
)
def test_lateness_over_the_steps(pattern: str | None, scale: Any, tmp_path: Path) -> None:
    training = Training(
        data=4, microbatches=1, steps=16, scale=lambda rank, step: scale(step) if rank == 2 else 1.0
    )
    with Traced(tmp_path, training) as traced:
        rows = traced.rows("SELECT rank, pattern, late_ns FROM slow_ranks WHERE late_ns > 0")
        by_step = [
            max(0, placed[2].start - sorted(p.start for p in placed.values())[1])
            for placed in (_first_collective(traced.job, step) for step in range(16))
        ]
        expected = sum(by_step)
        assert rows == ([(2, pattern, expected)] if pattern else [])
        found = traced.rows("SELECT late_ns FROM rank_lateness WHERE rank = 2 ORDER BY step")
        assert [late for (late,) in found] == by_step
        # A share of all steps, also of those that are not analyzed.
        ((share, late),) = traced.rows(
            "SELECT steps_pct, late_steps FROM slow_ranks WHERE rank = 2"
        )
        ((whole,),) = traced.rows("SELECT sum(end_ns - start_ns) FROM steps WHERE device = 2")
        assert share == pytest.approx(100 * expected / whole if pattern else 0)
        assert late == (sum(ns > 0 for ns in by_step) if pattern else 0)
        claims = traced.rows("SELECT rank, pattern FROM slow_rank_findings")
        waits = traced.rows(
            "SELECT DISTINCT last_rank, last_cause FROM findings WHERE claim = 'ranks_wait'"
        )
        told = traced.rows(
            "SELECT part, share_of, share_pct FROM findings WHERE claim = 'slow_rank'"
        )
        ((most,),) = traced.rows("SELECT max(window_pct) FROM _exposed_waits")
    # A lateness that is similar in all steps is in the findings of the ranks that wait.
    assert claims == ([(2, pattern)] if pattern in ("growing", "bursts") else [])
    # Where few steps have the lateness, the waiting GPUs may wait too little in the analyzed ones.
    assert waits in (
        [[], [(2, "compute")]] if pattern == "bursts" else [[(2, "compute")] * bool(pattern)]
    )
    if pattern == "bursts":
        assert told == [("loop", "loop", pytest.approx(share))]
    assert all(pct <= most + 1e-9 for part, _, pct in told if part is None)


def _sleeping(sleeps: Sequence[int], buckets: int) -> dict[int, list[list[Item]]]:
    """Return data parallelism of two ranks that sums gradients beside the backward pass.

    Rank 1 sleeps at the start of each step.
    """

    def step(rank: int, number: int) -> Iterator[Item]:
        if rank == 1 and sleeps[number]:
            yield Work(sleeps[number], "spin_kernel")
        yield Work(1_000 * US, GEMM)
        for _ in range(buckets):
            yield Work(200 * US, GEMM, backward=True)
            yield Collective(
                (0, 1), "data", "AllReduce", 1 << 20, 1 << 20, 90 * US, True, beside=True
            )
        yield Wait()
        yield Work(100 * US, OPTIMIZER)

    return {r: [list(step(r, number)) for number in range(len(sleeps))] for r in (0, 1)}


@pytest.mark.parametrize("buckets", [1, 2, 8])
@pytest.mark.parametrize(
    "sleeps",
    [
        [5_000 * US] * 12,
        [300 * US * step for step in range(12)],
        [30_000 * US if step in (4, 9) else 0 for step in range(12)],
    ],
)
def test_lateness_is_what_the_job_would_save(
    sleeps: list[int], buckets: int, tmp_path: Path
) -> None:
    """Collectives that queue behind a late one are no further lateness."""
    job = simulate(_sleeping(sleeps, buckets))
    saved = [
        _length(job, step) - _length(simulate(_sleeping([0] * 12, buckets)), step)
        for step in range(12)
    ]
    assert saved == sleeps
    with _opened(job, tmp_path) as con:
        late = con.execute("SELECT rank, late_ns FROM rank_lateness ORDER BY rank, step").fetchall()
    assert late == [(0, 0)] * 12 + [(1, ns) for ns in sleeps]


def test_the_late_rank_is_decided_by_time(tmp_path: Path) -> None:
    """Rank 0 is late more often than rank 1, but by far less."""
    training = Training(
        data=2,
        microbatches=1,
        steps=16,
        scale=lambda rank, step: 20.0 if (rank, step) in ((1, 5), (1, 11)) else 1.2 - 0.2 * rank,
    )
    with Traced(tmp_path, training) as traced:
        behind = {0: 0, 1: 0}
        for step in range(16):
            starts = {r: p.start for r, p in _first_collective(traced.job, step).items()}
            behind[max(starts, key=lambda r: starts[r])] += abs(starts[0] - starts[1])
        ((rank, share),) = traced.rows("SELECT late_rank, late_pct FROM group_traffic")
    assert (rank, share) == (1, pytest.approx(100 * behind[1] / sum(behind.values())))


def test_lateness_of_a_chosen_step(tmp_path: Path) -> None:
    job = simulate(_sleeping([5_000 * US] * 12, 2))
    with _opened(job, tmp_path, window="3") as con:
        assert con.execute("SELECT DISTINCT step FROM rank_lateness").fetchall() == [(3,)]
        told = con.execute(
            "SELECT DISTINCT last_rank, part FROM findings WHERE claim = 'ranks_wait'"
        ).fetchall()
    assert told == [(1, "step")]


def _length(job: Job, step: int) -> int:
    """Return the duration of a step on rank 0, whose first kernel is not late."""
    items = job.steps[0][step]
    return items[-1].end - items[0].start


@contextmanager
def _opened(job: Job, directory: Path, window: str = "steady") -> Iterator[Session]:
    store = Store(directory / "store")
    reports = [ingest(path, store).report_id for path in write_traces(job, directory)]
    with Session.open(store, reports, window=window) as con:
        yield con


def _first_collective(job: Job, step: int) -> dict[int, Placed]:
    """Return what each rank has of the first all-reduce of a step."""
    return {
        rank: next(p for p in steps[step] if isinstance(p.item, Collective))
        for rank, steps in job.steps.items()
    }
