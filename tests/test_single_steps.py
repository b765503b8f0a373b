"""A capture of a single step: when the step begins."""

from __future__ import annotations

import pytest
from conftest import Tiny

MS = 1_000_000
_BATCH = "execute_16_context_0(sq0sk0)_generation_16(sq16sk8209)"


def _step(*operations: tuple[int, float, float, float]) -> Tiny:
    """Make a range from 1 ms on that launches operations: stream, call, start and end, ms."""
    db = Tiny()
    db.add(
        "nsys_nvtx_ranges",
        {"pid": 1, "tid": 2, "range_id": 1, "style": "PushPop", "name": _BATCH,
         "start_ns": 1 * MS, "end_ns": 30 * MS, "first_call": 0, "calls": len(operations)},
    )  # fmt: skip
    for call, (stream, called, start, end) in enumerate(operations):
        db.add(
            "launches",
            {"pid": 1, "tid": 2, "device": 0, "stream": stream, "kind": "kernel", "name": f"k{call}",
             "call_id": call, "api_start_ns": round(called * MS), "api_end_ns": round(called * MS) + 5000,
             "start_ns": round(start * MS), "end_ns": round(end * MS)},
        )  # fmt: skip
    return db


@pytest.mark.parametrize(
    ("operations", "start_ms"),
    [
        # The host is ahead of work that was issued before the capture.
        ([(7, 2, 150, 160), (7, 3, 160, 170)], 150),
        # A few microseconds on another stream do not show when that work ends.
        ([(8, 2, 2.01, 2.02), (7, 3, 150, 160), (7, 4, 160, 170)], 150),
        # The first stream worked for so long that the second one may wait for it.
        ([(8, 2, 2.01, 20), (7, 3, 150, 160)], 1),
        # The host comes late.
        ([(7, 140, 140.01, 160), (7, 141, 160, 170)], 1),
        # The second operation of a stream waits for what the capture shows.
        ([(7, 2, 2.01, 2.02), (7, 3, 150, 160)], 1),
    ],
)
def test_a_step_begins_when_unrecorded_work_ends(
    operations: list[tuple[int, float, float, float]], start_ms: float
) -> None:
    found = _step(*operations).rows(
        "SELECT start_ns / 1e6, end_ns / 1e6 FROM steps WHERE step IS NOT NULL"
    )
    assert found == [(start_ms, max(end for *_, end in operations))]


def test_only_layers_in_the_step_count() -> None:
    """The capture begins in the layers of the previous step."""
    db = _step(*((7, call / 10, 40 + 10 * call, 50 + 10 * call) for call in range(10, 16)))
    db.add(
        "launch_loops",
        {"pid": 1, "loop": 1, "level": 1, "role": "layer", "source": "period", "iterations": 9,
         "launches": 2.0, "share": 1.0},
    )  # fmt: skip
    for number in range(9):
        start = (80 + 20 * number) * MS
        db.add(
            "launch_steps",
            {"pid": 1, "device": 0, "loop": 1, "run": 1, "step": number, "repeats": 1, "period": 2,
             "start_ns": start, "end_ns": start + 20 * MS, "host_start_ns": 0, "host_end_ns": 0},
        )  # fmt: skip
    assert db.rows("SELECT iterations, usual FROM loops WHERE role = 'layer'") == [(9, 3)]
