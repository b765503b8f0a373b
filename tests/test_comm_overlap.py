"""Communication against the intervals of its kernels, by plain computation."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from conftest import Opened

from perfpipe.store import Store

Ingested = Callable[[str], str]


def test_communication_is_measured_by_unions(captures: Store, opened: Opened) -> None:
    """Against nsys's own recipe of these captures: the sum of overlapped and exposed time."""
    sql = (
        "SELECT communication_ns, compute_ns, overlapped_ns, exposed_ns, overlap_pct "
        "FROM comm_overlap"
    )
    with opened("nsys/ddp_comm_rank0.sqlite") as con:
        communication, compute, overlapped, exposed, pct = con.execute(sql).fetchall()[0]
        kernels = con.execute("SELECT name, start_ns, end_ns FROM nsys_kernels").fetchall()
        budget = con.execute("SELECT sum(dur_ns) FROM nsys_kernels WHERE name LIKE 'nccl%'")
        assert budget.fetchone() == (communication,), "one communicating kernel at a time here"
    comm = sorted((s, e) for name, s, e in kernels if name.startswith("nccl"))
    rest = sorted((s, e) for name, s, e in kernels if not name.startswith("nccl"))
    shared = sum(max(0, min(e, f) - max(s, t)) for s, e in _union(comm) for t, f in _union(rest))
    assert overlapped == shared
    assert communication == overlapped + exposed
    assert compute == sum(e - s for s, e in _union(rest))
    assert pct == pytest.approx(100 * overlapped / communication)


def _union(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in intervals:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged
