"""Sampled GPU metrics: weighted by time, and what they say of busy GPUs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from conftest import Tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpipe.analysis.session import Session
from perfpipe.store import Store

SM, TENSOR = "SMs Active [Throughput %]", "Tensor Active [Throughput %]"
ISSUE = "SM Issue [Throughput %]"
READ, WRITE = "DRAM Read Bandwidth [Throughput %]", "DRAM Write Bandwidth [Throughput %]"


def _busy(*spans: tuple[int, int]) -> Tiny:
    db = Tiny()
    for start, end in spans:
        db.add(
            "launches",
            {"kind": "kernel", "name": "k", "pid": 1, "device": 0, "start_ns": start, "end_ns": end},
        )  # fmt: skip
    return db


def _sample(db: Tiny, at: int, **values: float) -> None:
    names = {"sm": SM, "tensor": TENSOR, "issue": ISSUE, "read": READ, "write": WRITE}
    for key, value in values.items():
        row = {"gpu": 0, "device": 0, "timestamp_ns": at, "metric": names[key], "value": value}
        db.add("nsys_gpu_metrics", row)


sampled = st.tuples(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(-10, 90), st.integers(0, 100)), min_size=2, max_size=8,
             unique_by=lambda sample: sample[0]),
)  # fmt: skip


@settings(max_examples=10, deadline=None)
@given(st.lists(sampled, min_size=5, max_size=5))
def test_means_against_each_nanosecond(
    together: list[tuple[list[tuple[int, int]], list[tuple[int, int]]]],
) -> None:
    """Several timelines at a time, each a report of its own."""
    db = Tiny()
    for number, (ops, samples) in enumerate(together):
        kernel = {"kind": "kernel", "name": "k", "pid": 1, "device": 0}
        of_gpu = {"gpu": 0, "device": 0, "metric": SM}
        db.add_report(
            f"r{number}",
            {
                "launches": [{**kernel, "start_ns": s, "end_ns": s + length} for s, length in ops],
                "nsys_gpu_metrics": [
                    {**of_gpu, "timestamp_ns": at, "value": value} for at, value in samples
                ],
            },
        )
    rows = db.rows(
        "SELECT report_id, scope, time_ns, sampled_ns, sm_active_pct, tensor_active_pct "
        "FROM gpu_metrics_sum"
    )
    found = {(report, scope): rest for report, scope, *rest in rows}
    for number, (ops, samples) in enumerate(together):
        busy = {t for start, length in ops for t in range(start, start + length)}
        whole = set(range(min(busy), max(busy) + 1))
        for scope, window in (("whole", whole), ("compute", busy)):
            # A value holds from the sample before up to its own.
            known = [
                value
                for t in window
                for (start, _), (end, value) in pairwise(sorted(samples))
                if start <= t < end
            ]
            mean = sum(known) / len(known) if known else None
            expected = [len(window), len(known), pytest.approx(mean), None]
            assert found[f"r{number}", scope] == expected


def test_windows_without_a_sample_are_unknown() -> None:
    db = _busy((0, 10))
    _sample(db, 100, sm=50)
    _sample(db, 200, sm=50)
    assert db.rows("SELECT scope, sampled_ns, sm_active_pct FROM gpu_metrics_sum") == [
        ("compute", 0, None),
        ("whole", 0, None),
    ]


def test_without_samples_there_is_nothing() -> None:
    assert _busy((0, 10)).rows("SELECT * FROM gpu_metrics_sum") == []


@pytest.mark.parametrize(
    ("values", "bound"),
    [
        ({"issue": 20, "tensor": 10, "read": 50, "write": 30}, "memory"),
        ({"issue": 20, "tensor": 85, "read": 30, "write": 10}, "compute"),
        ({"issue": 70, "tensor": 0, "read": 30, "write": 10}, "compute"),
        ({"issue": 20, "tensor": 30, "read": 10, "write": 10}, "neither"),
        # Half of what it takes is not collected: no verdict.
        ({"issue": 20, "tensor": 30}, None),
    ],
)
def test_metrics_decide_what_busy_means(values: dict[str, float], bound: str | None) -> None:
    db = _busy((0, 100))
    _sample(db, 0, **values)
    _sample(db, 100, **values)
    assert db.rows("SELECT bound, busy_bound FROM timeline_bottleneck") == [("compute", bound)]


def test_of_a_real_capture(captures: Store, ingested: Callable[[str], str]) -> None:
    report = ingested("nsys/gpumetrics.sqlite")
    with Session.open(captures, [report]) as con:
        scopes = con.execute(
            "SELECT scope, count(*), bool_and(sampled_ns = time_ns) FROM gpu_metrics_sum GROUP BY scope"
        ).fetchall()
        (mean,) = con.execute(
            "SELECT sum(sm_active_pct * time_ns) / sum(time_ns) FROM gpu_metrics_sum "
            "WHERE scope = 'step'"
        ).fetchall()[0]
        whole, bandwidth = con.execute(
            "SELECT sm_active_pct, dram_bytes_per_s FROM gpu_metrics_sum WHERE scope = 'whole'"
        ).fetchall()[0]
        # Samples are 50 us apart here: their plain mean within the window comes close.
        (plain,) = con.execute(
            f"SELECT avg(value) FROM nsys_gpu_metrics WHERE metric = '{SM}' AND timestamp_ns "
            "BETWEEN (SELECT min(start_ns) FROM launches) AND (SELECT max(end_ns) FROM launches)"
        ).fetchall()[0]
        verdict = con.execute("SELECT bound, busy_bound FROM timeline_bottleneck").fetchall()
    assert {scope: (n, covered) for scope, n, covered in scopes}["step"] == (10, True)
    assert mean == pytest.approx(whole)
    assert whole == pytest.approx(plain, rel=0.01)
    assert 0 < bandwidth < 4.8e12
    assert verdict == [("compute", "neither")]
