"""What a server did under load, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from perfpipe.analysis.report import ttft
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import rows_of
from perfpipe.database import in_list
from perfpipe.units import counted, format_ns, request_rate

#: Views that are read here.
VIEWS = ("serving_rates", "_labels", *ttft.VIEWS)


class Rate(NamedTuple):
    """A load without a profiler, or of another load generator; latencies in ms.

    `label` is the configuration, if there are several.
    """

    report: str
    rate: float | None
    requests: int
    failed: int
    errors: str | None
    per_s: float | None
    ttft_p50: float | None
    ttft_p95: float | None
    e2e_p50: float | None
    e2e_p95: float | None
    slo: str | None
    good_pct: float | None
    good_per_s: float | None
    saturated: bool | None
    growth: float | None
    ended_by: str | None
    label: str | None

    @property
    def at(self) -> str:
        """The load as a phrase."""
        load = "under this load" if self.rate is None else f"at {request_rate(self.rate)}"
        own = self.label not in (None, f"rate={self.rate}", f"rate={self.rate or 0:g}")
        return f"{load} ({self.label})" if own else load


def rates_of(scope: Scope) -> list[Rate]:
    """Return the loads without a profiler, lowest rate first; at a rate, the fastest last."""
    if not scope.kinds.get("serving"):
        return []
    sql = f"""
        SELECT report_id, rate, requests, failed, errors, requests_per_s, ttft_p50_ms, ttft_p95_ms,
            e2e_p50_ms, e2e_p95_ms, slo, good_pct, good_per_s, saturated, latency_growth, ended_by,
            CASE WHEN count(DISTINCT report_id) OVER () > 1 THEN label END
        FROM serving_rates LEFT JOIN _labels USING (report_id)
        WHERE report_id IN {in_list(scope.reports)} AND coalesce(phase, 'plain') = 'plain'
        ORDER BY rate, e2e_p50_ms DESC NULLS FIRST, report_id, load_id
    """
    return [Rate(*row) for row in rows_of(scope.con, sql)]


def about(scope: Scope) -> Rate | None:
    """Return the load that a verdict is about: the highest rate that the server keeps up with."""
    every = rates_of(scope)
    kept = [one for one in every if not one.saturated and one.failed < one.requests]
    return (kept or every)[-1] if every else None


def sentences(scope: Scope) -> Iterator[str]:
    """Yield what the server did at the highest rate that it keeps up with, beyond, and why."""
    chosen = about(scope)
    if chosen is None:
        return
    said = [_latency("TTFT", chosen.ttft_p50, chosen.ttft_p95)]
    said.append(_latency("end-to-end latency", chosen.e2e_p50, chosen.e2e_p95))
    known = " and ".join(filter(None, said)) or f"{counted(chosen.requests, 'request')} were sent"
    text = f"{chosen.at[0].upper()}{chosen.at[1:]}, {known}"
    if chosen.good_pct is not None:
        text += f"; {chosen.good_pct:.0f} % of the requests meet the objectives ({chosen.slo})"
    yield f"{text}."
    rates = rates_of(scope)
    if over := [one for one in rates if one.saturated]:
        yield f"The server is saturated {_saturated(over)}."
    for one in rates:
        if one.failed and not one.ended_by:
            share = 100 * one.failed / one.requests
            yield f"{share:.1f} % of the requests failed {one.at}: {one.errors}."
        if one.ended_by:
            yield f"The load {one.at} ended early: {one.ended_by.rstrip('.')}."
    if where := ttft.parts_of(scope, chosen.rate):
        yield where


def _saturated(loads: Sequence[Rate]) -> str:
    """Return the loads that saturate a server as phrases, with what shows it."""
    signs = [
        f"latency grows by {one.growth:.2g} s per s" if one.growth else "requests pile up"
        for one in loads
    ]
    if len(loads) == 1:
        return f"{loads[0].at}: {signs[0]}"
    *first, last = (f"{one.at} ({sign})" for one, sign in zip(loads, signs, strict=True))
    return f"{', '.join(first)} and {last}"


def _latency(name: str, p50: float | None, p95: float | None) -> str:
    """Return a latency as a clause: p95, or the median if there are too few values."""
    if p95 is not None:
        return f"{name} p95 is {format_ns(1e6 * p95)}"
    return "" if p50 is None else f"the median {name} is {format_ns(1e6 * p50)}"
