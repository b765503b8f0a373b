"""The figures of a server under load, against the same computed request by request."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from conftest import Tiny
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import linregress

from perfpipe.analysis.thresholds import thresholds

MS = 1_000_000
#: A percentile and the fewest values that it rests on: (1 - 0.05) confidence that the largest exceeds it.
LEAST = {50: 5, 95: 59, 99: 299}


def request(
    at_ms: float, *, ttft: float | None = 10.0, gaps: Sequence[float] = (), tail: float = 1.0,
    wait: float = 0.0, tokens: int | None = -1, reason: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return a request that arrives at a time; its response is streamed with these gaps, ms."""
    first = None if ttft is None else round((at_ms + ttft) * MS)
    pieces = [] if first is None else [first]
    for gap in gaps if pieces else ():
        pieces.append(pieces[-1] + round(gap * MS))
    last = pieces[-1] if pieces else round(at_ms * MS)
    return {
        "planned_ns": round(at_ms * MS),
        "sent_ns": round((at_ms + wait) * MS),
        "first_token_ns": first,
        "last_token_ns": pieces[-1] if pieces else None,
        "end_ns": last + round(tail * MS),
        "output_tokens": len(pieces) if tokens == -1 else tokens,
        "reason": reason,
        "pieces": pieces,
    }


def tiny(*loads: Sequence[dict[str, Any]], **about: Any) -> Tiny:
    """Return a database with some loads, at the rates 1, 2, ..."""
    made, number = Tiny(), 0
    for load_id, requests in enumerate(loads):
        ends = [own["end_ns"] for own in requests]
        load = {"load_id": load_id, "phase": "plain", "rate": float(load_id + 1), "clock": "utc",
                "arrivals": "poisson", "generator": "perfpipe", "started_ns": 0,
                "ended_ns": max(ends, default=0)}  # fmt: skip
        made.add("request_loads", {**load, **about})
        for own in requests:
            row = {key: value for key, value in own.items() if key != "pieces"}
            made.add("requests", {"request_id": number, "load_id": load_id, **row})
            for position, time_ns in enumerate(own["pieces"]):
                made.add("request_tokens",
                         {"request_id": number, "position": position, "time_ns": time_ns})  # fmt: skip
            number += 1
    return made


def latencies(requests: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """Return the values of each metric, ms, one request after the other."""
    found: dict[str, list[float]] = {
        "ttft": [],
        "tpot": [],
        "itl": [],
        "e2e": [],
        "client_wait": [],
    }
    for own in requests:
        if own["reason"] is not None:
            continue
        start = own["planned_ns"]
        found["e2e"].append((own["end_ns"] - start) / 1e6)
        found["client_wait"].append((own["sent_ns"] - start) / 1e6)
        if own["first_token_ns"] is not None:
            found["ttft"].append((own["first_token_ns"] - start) / 1e6)
            if own["output_tokens"] and own["output_tokens"] > 1:
                span = own["last_token_ns"] - own["first_token_ns"]
                found["tpot"].append(span / 1e6 / (own["output_tokens"] - 1))
        found["itl"] += [
            (b - a) / 1e6 for a, b in zip(own["pieces"], own["pieces"][1:], strict=False)
        ]
    return found


times = st.floats(0, 5000, allow_nan=False)
requests_of = st.lists(
    st.builds(
        request, times, ttft=st.none() | times, gaps=st.lists(times, max_size=4), tail=times, wait=times,
        reason=st.sampled_from([None, None, None, "HTTP 503", "timeout: no answer"]),
    ),
    min_size=1, max_size=70,
)  # fmt: skip


@given(requests_of)
def test_latencies_are_those_of_the_requests(requests: list[dict[str, Any]]) -> None:
    rows = tiny(requests).rows(
        "SELECT metric, samples, mean_ms, p50_ms, p95_ms, p99_ms, max_ms, missing FROM serving_latencies"
    )
    known = latencies(requests)
    assert [row[0] for row in rows] == list(known)
    for metric, samples, mean, *percentiles, largest, missing in rows:
        values = known[metric]
        assert samples == len(values)
        assert (missing is None) == (len(values) >= LEAST[99])
        for (q, least), found in zip(LEAST.items(), percentiles, strict=True):
            if len(values) < least:
                assert found is None
            else:
                assert found == pytest.approx(np.percentile(values, q), abs=1e-6)
        if values:
            assert mean == pytest.approx(statistics.fmean(values), abs=1e-6)
            assert largest == pytest.approx(max(values), abs=1e-6)


@given(requests_of, st.none() | times, st.none() | times, st.none() | times)
def test_goodput_counts_the_requests_that_meet_every_objective(
    requests: list[dict[str, Any]], ttft: float | None, tpot: float | None, e2e: float | None
) -> None:
    about = {"slo_ttft_ms": ttft, "slo_tpot_ms": tpot, "slo_e2e_ms": e2e}
    ((good_per_s, good_pct, duration_s, failed, error_pct),) = tiny(requests, **about).rows(
        "SELECT good_per_s, good_pct, duration_s, failed, error_pct FROM serving_rates"
    )
    lost = sum(own["reason"] is not None for own in requests)
    assert (failed, error_pct) == (lost, pytest.approx(100 * lost / len(requests)))
    answered = [own for own in requests if own["reason"] is None]
    streamed = any(own["first_token_ns"] is not None for own in answered)
    if (ttft is None and tpot is None and e2e is None) or (ttft is not None and not streamed):
        assert good_per_s is None and good_pct is None
        return
    if tpot is not None and not answered:
        assert good_per_s is None
        return

    def met(own: dict[str, Any]) -> bool:
        one = latencies([own])
        limits = {"ttft": ttft, "tpot": tpot, "e2e": e2e}
        return all(
            limit is None
            or (one[name] and one[name][0] <= limit)
            or (name == "tpot" and own["output_tokens"] <= 1)
            for name, limit in limits.items()
        )

    good = sum(map(met, answered))
    assert good_pct == pytest.approx(100 * good / len(requests))
    if duration_s:
        assert good_per_s == pytest.approx(good / duration_s)


@given(st.lists(st.tuples(times, times), min_size=2, max_size=60))
def test_saturation_is_growth_of_latency_or_of_the_backlog(
    points: list[tuple[float, float]],
) -> None:
    requests = [request(at, ttft=None, tail=took) for at, took in points]
    ((growth, backlog, saturated, missing),) = tiny(requests).rows(
        "SELECT latency_growth, backlog_pct, saturated, saturated_missing FROM serving_rates"
    )
    begins = [own["planned_ns"] for own in requests]
    ends = [own["end_ns"] for own in requests]
    x, y = np.array(begins) / 1e9, np.array(ends) / 1e9 - np.array(begins) / 1e9
    if np.ptp(x) < 1e-2:
        return
    found = linregress(x - x.mean(), y - y.mean())
    assert growth == pytest.approx(found.slope, rel=1e-4, abs=1e-4)
    half, last = (min(begins) + max(begins)) // 2, max(begins)

    def in_progress(now: int) -> int:
        return sum(begin <= now < end for begin, end in zip(begins, ends, strict=True))

    before, after = in_progress(half), in_progress(last)
    arrived = sum(begin > half for begin in begins)
    assert backlog == pytest.approx(100 * (after - before) / arrived)
    if len(points) < 30:
        assert saturated is None and missing == f"{len(points)} of the 30 responses that it needs"
        return
    if abs(growth - 0.1) < 1e-3 or abs(growth - 3 * found.stderr) < 1e-3:
        return
    slower = growth > 0.1 and growth > 3 * found.stderr
    fuller = backlog > 10 and after - before > 2 * math.sqrt(after + before)
    brief = statistics.median(y) > np.ptp(x) / 2
    assert saturated == (True if slower else None if brief else fuller)
    assert (missing is None) == (saturated is not None)


def test_a_queue_that_grows_is_saturation_and_one_that_does_not_is_none() -> None:
    # 10 requests/s arrive; a server of 8 requests/s answers one after the other, one of 20 at once.
    slow = [request(100 * n, ttft=None, tail=125 + 25 * n) for n in range(60)]
    fast = [request(100 * n, ttft=None, tail=50) for n in range(60)]
    # All are served at once, and end together: their latencies do not grow.
    shared = [
        request(100 * n, ttft=None, tail=300 * 100 - 100 * n if n > 99 else 4000)
        for n in range(200)
    ]
    rows = tiny(slow, fast, shared).rows(
        "SELECT saturated, latency_growth, arrivals_per_s, completions_per_s FROM serving_rates"
    )
    assert rows[0] == (True, pytest.approx(0.25), pytest.approx(10), pytest.approx(8))
    assert rows[1] == (False, pytest.approx(0), pytest.approx(10), pytest.approx(10))
    assert rows[2][0]


def test_what_cannot_be_known_has_a_reason() -> None:
    few = [request(n, gaps=[1]) for n in range(20)]
    whole = [request(n, ttft=None, tokens=None) for n in range(20)]
    failed = [request(n, reason="HTTP 500") for n in range(3)]
    rows = tiny(few, whole, failed).rows(
        "SELECT load_id, metric, p50_ms, missing FROM serving_latencies"
    )
    missing = {(load, metric): why for load, metric, _, why in rows}
    assert missing[0, "ttft"] == "20 of the 59 values that p95 needs"
    assert missing[1, "ttft"] == missing[1, "itl"] == "the responses were not streamed"
    assert missing[1, "e2e"] == "20 of the 59 values that p95 needs"
    assert missing[2, "e2e"] == "no request succeeded"
    assert [p50 for load, metric, p50, _ in rows if (load, metric) == (0, "ttft")] == [10.0]
    rates = tiny(few, whole, failed).rows(
        "SELECT output_tokens_per_s IS NULL, good_per_s, errors, saturated FROM serving_rates"
    )
    assert rows and rates[0][:3] == (False, None, None)
    assert rates[1][0] and rates[2] == (True, None, "HTTP 500", None)


def test_a_request_that_was_never_streamed_does_not_meet_an_objective_for_its_first_token() -> None:
    requests = [request(0), request(1, ttft=None)]
    sql = "SELECT good_pct FROM serving_rates"
    assert tiny(requests, slo_ttft_ms=100.0).rows(sql) == [(50.0,)]


def test_overhead_compares_requests_in_the_captured_window() -> None:
    plain = [request(100 * n, ttft=10) for n in range(20)]
    # Slower only while the capture runs, and much slower while its report is written.
    traced = [request(100 * n, ttft=10 if n < 5 else 12 if n < 15 else 90) for n in range(20)]
    made = tiny(plain)
    made.add("request_loads", {"load_id": 1, "phase": "nsys", "rate": 1.0, "clock": "utc",
                               "window_start_ns": 490 * MS, "window_end_ns": 1490 * MS})  # fmt: skip
    for number, own in enumerate(traced):
        row = {key: value for key, value in own.items() if key != "pieces"}
        made.add("requests", {"request_id": 100 + number, "load_id": 1, **row})
    rows = made.rows(
        "SELECT metric, plain_ms, traced_ms, overhead_pct, traced_samples, missing FROM serving_overhead"
    )
    assert rows[0] == ("ttft", 10.0, 12.0, pytest.approx(20), 10, None)
    assert rows[1][3] is None and "a median needs 5" in rows[1][5]


def test_the_fewest_values_follow_from_the_confidence() -> None:
    for q, least in LEAST.items():
        assert thresholds()[f"serving.least_p{q}"] == least
        assert (q / 100) ** least <= 0.05 < (q / 100) ** (least - 1)
