"""Reads guidellm's benchmarks.json: one load per benchmark, with the requests that it kept.

Times are seconds since 1970; the schema is GenerativeBenchmarksReport, version 2:
https://github.com/vllm-project/guidellm/blob/main/src/guidellm/benchmark/schemas/report.py
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, ValidationError

from perfpipe.ingest.serving.loads import Load, Request
from perfpipe.ingest.serving.own import said

_VERSION = 2

_ARRIVALS = {
    "poisson": "poisson",
    "constant": "constant",
    "synchronous": "closed",
    "concurrent": "closed",
    "throughput": "closed",
}


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _Timings(_Part):
    targeted_start: float | None = None
    resolve_start: float | None = None
    request_start: float | None = None
    first_token_iteration: float | None = None
    last_token_iteration: float | None = None
    request_end: float | None = None
    resolve_end: float | None = None
    token_iterations: int = 0


class _Info(_Part):
    status: str
    timings: _Timings
    error: str | None = None


class _Request(_Part):
    info: _Info
    prompt_tokens: int | None = None
    output_tokens: int | None = None


class _Requests(_Part):
    successful: list[_Request]
    incomplete: list[_Request] = []
    errored: list[_Request] = []


class _Strategy(_Part):
    type_: str
    rate: float | None = None


class _Config(_Part):
    strategy: _Strategy


class _Benchmark(_Part):
    config: _Config
    requests: _Requests


class _Metadata(_Part):
    version: int


class _Head(_Part):
    metadata: _Metadata


class _Report(_Head):
    benchmarks: list[_Benchmark]


def read(text: bytes) -> Sequence[Load]:
    """Return the loads of a report; raises ValueError if it is none, or has another version."""
    try:
        version = _Head.model_validate_json(text).metadata.version
        if version != _VERSION:
            raise ValueError(f"guidellm's schema version {version}, but perfpipe reads {_VERSION}")
        report = _Report.model_validate_json(text)
    except ValidationError as error:
        raise ValueError(f"not a report of guidellm: {said(error)}") from error
    return [_load(own) for own in report.benchmarks]


def _load(benchmark: _Benchmark) -> Load:
    strategy, kept = benchmark.config.strategy, benchmark.requests
    made = [_made(own) for own in (*kept.successful, *kept.errored)]
    # Requests that the end of the benchmark cut off did not fail.
    requests = sorted(made, key=lambda own: own.begin_ns or 0)
    return Load(
        requests,
        rate=strategy.rate,
        arrivals=_ARRIVALS.get(strategy.type_, "unknown"),
        generator="guidellm",
    )


def _made(own: _Request) -> Request:
    times = own.info.timings
    failed = own.info.status != "completed"
    tokens = own.output_tokens
    return Request(
        planned_ns=_ns(times.targeted_start),
        sent_ns=_ns(times.resolve_start if times.request_start is None else times.request_start),
        first_token_ns=_ns(times.first_token_iteration),
        last_token_ns=_ns(times.last_token_iteration),
        end_ns=_ns(times.resolve_end if times.request_end is None else times.request_end),
        input_tokens=own.prompt_tokens,
        output_tokens=tokens,
        tokens_from=None if tokens is None else "generator",
        reason=(own.info.error or own.info.status) if failed else None,
    )


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None or seconds < 0 else round(1e9 * seconds)
