"""Stacks on the host: what a sample stands for."""

from __future__ import annotations

import struct
from collections import defaultdict
from itertools import pairwise
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.ingest.frames import Frame
from perfpipe.ingest.host_stacks import NO_STACK, HostStacks, Samples, spans_of
from perfpipe.ingest.nsys.python_stacks import PythonStacks, strings_of

Taken = list[tuple[int, int]]  # time, thread


def _spans(taken: Taken) -> list[tuple[int, int]]:
    samples = Samples("python sampling")
    for time, thread in taken:
        samples.add(time, 7, thread, 0)
    start, end = spans_of(samples)
    return list(zip(start.tolist(), end.tolist(), strict=True))


def _period(taken: Taken) -> int:
    """Return the median time between samples of a thread, 0 if no thread has two."""
    threads = defaultdict(list)
    for time, thread in sorted(taken):
        threads[thread].append(time)
    apart = [b - a for times in threads.values() for a, b in pairwise(times)]
    return int(median(apart)) if apart else 0


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 2)), min_size=1, max_size=12))
def test_each_nanosecond_belongs_to_the_nearest_sample(taken: Taken) -> None:
    """A nanosecond is its middle, so that no distance is the same unless two samples are as near.

    It belongs to no sample if the nearest one is more than a period away.
    """
    spans, period = _spans(taken), _period(taken)
    for thread in {thread for _, thread in taken}:
        own = [at for at, (_, of) in enumerate(taken) if of == thread]
        for ns in range(-70, 140):
            holders = [at for at in own if spans[at][0] <= ns < spans[at][1]]
            distance = {at: abs(2 * ns + 1 - 2 * taken[at][0]) for at in own}
            nearest = min(distance.values())
            assert len(holders) == (nearest < 2 * period)
            assert all(distance[at] == nearest for at in holders)


def test_a_single_sample_stands_for_nothing() -> None:
    assert _spans([(5, 1), (9, 2)]) == [(5, 5), (9, 9)]


def test_time_between_distant_samples_is_not_sampled() -> None:
    """A thread that sleeps is not sampled by perf."""
    times = [0, 10, 20, 30, 1_000, 1_010, 1_020]
    assert _spans([(time, 1) for time in times])[3:5] == [(25, 40), (990, 1_005)]


def test_traced_stacks_keep_their_times() -> None:
    samples = Samples("os backtrace")
    samples.trace(5, 9, 7, 1, 0)
    samples.trace(7, 8, 7, 1, 0)
    start, end = spans_of(samples)
    assert (start.tolist(), end.tolist()) == ([5, 7], [9, 8])


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        "zz",
        struct.pack("<4Q", 1, 1, 16, 1 << 62),
        struct.pack("<4QQiI", 1, 1, 16, 1 << 63, 0, 0, 0),
        struct.pack("<4QQiI", 1, 1, 1 << 63, 32, 0, 0, 1),
    ],
)
def test_damaged_payloads_are_counted(payload: bytes | str) -> None:
    read = PythonStacks({}, HostStacks())
    assert read.number(payload) == NO_STACK
    assert read.damaged == 1
    assert strings_of(payload) == set()


class _Written:
    """Stands for a report: keeps what is written."""

    def __init__(self) -> None:
        self.columns: dict[str, dict[str, list[object]]] = {}

    def write(self, name: str, columns: dict[str, list[object]], rows: int) -> None:
        self.columns[name] = columns


def test_secrets_in_names_are_hidden() -> None:
    stacks = HostStacks()
    stacks.number((Frame("call --token=s3cret", "/run/--password=hunter2.py", 3),))
    written = _Written()
    stacks.write_stacks(written)  # type: ignore[arg-type]
    assert "s3cret" not in str(written.columns) and "hunter2" not in str(written.columns)
    assert written.columns["host_frames"]["line"] == [3]
