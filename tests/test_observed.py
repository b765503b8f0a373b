"""The time of a step from times on the host, against a simulated queue of a GPU."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.analysis.gate.history.series import points_of
from perfpipe.analysis.gate.timed import comparable
from perfpipe.analysis.observed import step_times
from perfpipe.runrecord import RunRecord, TaskResult

MS = 10**6


def _at(steps_ms: Sequence[float]) -> list[int]:
    """Return the times at the ends of steps of these lengths, and at the start of the first."""
    times = [0]
    for step in steps_ms:
        times.append(times[-1] + round(step * MS))
    return times


def _issued(steps: int, host: int, gpu: int, queue: int, every: int) -> tuple[list[int], list[int]]:
    """Return when the host issued each step, and when the GPU ended it.

    The queue holds `queue` steps; the host waits for the GPU `every` steps, if not 0.
    """
    issued, ended = [0], [0]
    for step in range(1, steps + 1):
        now = issued[-1]
        if step > queue:
            now = max(now, ended[step - queue])
        ended.append(max(now + host, ended[-1]) + gpu)
        issued.append(ended[-1] if every and step % every == 0 else now + host)
    return issued, ended


@given(
    host=st.integers(1, 40),
    gpu=st.integers(1, 40),
    queue=st.integers(1, 30),
    every=st.sampled_from([0, 1, 2, 3, 5, 7, 10, 20, 25]),
)
def test_it_is_the_time_of_the_slower_of_host_and_gpu(
    host: int, gpu: int, queue: int, every: int
) -> None:
    """However far the host runs ahead.  The oracle is the GPU's mean time in the second half."""
    issued, ended = _issued(400, host * MS, gpu * MS, queue, every)
    true_ms = (ended[400] - ended[200]) / 200 / MS
    found = step_times(issued)
    assert statistics.median(found) == pytest.approx(true_ms, rel=0.1)


def test_single_intervals_are_kept_where_each_step_waits() -> None:
    lengths = [10 + n % 3 for n in range(60)]
    assert step_times(_at(lengths)) == tuple(lengths)


def test_warm_up_is_excluded() -> None:
    """Long steps at the start, or short ones until the queue is full; the next step as well."""
    for first in ([900.0, 80.0], [900.0, 10.0, 80.0], [1.0] * 12):
        assert set(step_times(_at([*first, *[10.0] * 60]))) == {10.0}
    assert len(step_times(_at([900.0, 80.0, *[10.0] * 60]))) == 59


def test_a_host_that_waits_only_at_the_end_says_nothing() -> None:
    issued, _ = _issued(40, MS, 10 * MS, queue=30, every=0)
    assert step_times(issued) == ()
    assert statistics.median(step_times(issued, gpu=False)) == 1.0


def test_steps_of_an_evaluation_are_excluded() -> None:
    """By the calls of the model, even if there are many of them."""
    lengths, calls = [], [1]
    for n in range(100):
        evaluates = n % 10 == 9
        lengths.append(50.0 if evaluates else 10.0)
        calls.append(21 if evaluates else 1)
    assert set(step_times(_at(lengths), calls)) == {10.0}
    assert statistics.mean(step_times(_at(lengths))) == pytest.approx(14)


def test_programs_without_a_usual_number_of_calls_keep_all_steps() -> None:
    calls = [0, *range(40)]
    assert step_times(_at([10.0] * 40), calls) == (10.0,) * 40


def test_rare_pauses_are_excluded_unless_they_may_be_the_gpu() -> None:
    """100 steps of 1 ms and a wait of 900 ms may be 100 steps of 10 ms on the GPU."""
    lengths = [1000.0 if n in (150, 350) else 10.0 for n in range(400)]
    assert set(step_times(_at(lengths), gpu=False)) == {10.0}
    assert step_times(_at(lengths)) == ()
    shorter = [400.0 if n in (150, 350) else 10.0 for n in range(400)]
    assert set(step_times(_at(shorter))) == {10.0}


@pytest.mark.parametrize(("count", "gpu", "known"), [(7, True, False), (8, True, True),
                                                     (4, False, False), (5, False, True)])  # fmt: skip
def test_few_steps_are_not_enough(count: int, gpu: bool, known: bool) -> None:
    assert bool(step_times(_at([10.0] * count), gpu=gpu)) is known


@given(st.lists(st.integers(0, 2**40), max_size=80).map(sorted), st.booleans())
def test_any_times_give_none_or_times_between_the_shortest_and_longest(
    times: list[int], gpu: bool
) -> None:
    found = step_times(times, [1] * len(times), gpu=gpu)
    steps = [after - before for before, after in pairwise(times)]
    for ms in found:
        assert min(steps) / MS * 0.999999 <= ms <= max(steps) / MS * 1.000001
    assert len(found) <= len(steps)


def _result(*times_ms: float, method: str | None = "observed", status: str = "done") -> TaskResult:
    return TaskResult(
        0, "-", {}, status=status, times_ms=times_ms, timing_method=method, seconds=(4.0,)
    )


def test_observed_steps_are_compared_only_if_every_execution_has_them() -> None:
    known, printed = _result(2.0), _result(5.0, method="events")
    unknown, failed = _result(method=None), _result(method=None, status="failed")
    assert comparable([[known, failed], [printed]]) == [(known, failed), (printed,)]
    ((wall, same), (still,)) = comparable([[known, unknown], [printed]])
    assert (wall.times_ms, wall.wall_s) == ((), 4.0)
    assert (same, still) == (unknown, printed)


def test_a_history_does_not_mix_steps_and_wall_times() -> None:
    runs = [
        RunRecord(f"r{n}", "w", "timing", f"2026-01-0{n}T00:00:00Z", tasks=(result,))
        for n, result in enumerate((_result(2.0), _result(method=None)), 1)
    ]
    assert [point.time_ms for point in points_of(runs)] == [4000.0, 4000.0]
    assert [point.time_ms for point in points_of(runs[:1])] == [2.0]
