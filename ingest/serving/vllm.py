"""Reads the result of `vllm bench serve --save-result --save-detailed`, also with several results.

Lists have one entry per request, in s: start_times on the clock of the machine (perf_counter),
queue_times in the client, ttfts and latencies from the start, itls between pieces of the stream.
https://github.com/vllm-project/vllm/blob/main/vllm/benchmarks/serve.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from perfpipe.ingest.serving.loads import Load, Request
from perfpipe.ingest.serving.own import said

_LISTS = ("input_lens", "output_lens", "start_times", "ttfts", "itls", "errors")


class _Result(BaseModel):
    model_config = ConfigDict(extra="ignore")

    request_rate: float | str | None = None
    burstiness: float | None = None
    max_concurrency: int | None = None
    input_lens: list[int]
    output_lens: list[int]
    start_times: list[float]
    ttfts: list[float]
    itls: list[list[float]]
    errors: list[str | None]
    latencies: list[float] | None = None
    queue_times: list[float] | None = None


def read(text: str) -> Sequence[Load]:
    """Return the loads of a file of results; raises ValueError if one has no requests."""
    return [_load(found) for found in _results(text)]


def _results(text: str) -> Iterator[Any]:
    """Yield the results of a file, which --append-result puts one after the other."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        try:
            found, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not JSON ({error})") from error
        yield found
        while text[at : at + 1].isspace():
            at += 1


def _load(found: Any) -> Load:
    if not isinstance(found, dict):
        raise ValueError("not a result of vllm bench serve")
    if lost := [name for name in _LISTS if name not in found]:
        raise ValueError(
            f"the result has no {lost[0]} of its requests; run vllm bench serve with "
            "--save-detailed (a version that saves start_times)"
        )
    try:
        own = _Result.model_validate(found)
    except ValidationError as error:
        raise ValueError(f"not a result of vllm bench serve: {said(error)}") from error
    if len({len(getattr(own, name)) for name in _LISTS}) > 1:
        raise ValueError("not a result of vllm bench serve: its lists differ in length")
    requests = [_request(own, at) for at in range(len(own.ttfts))]
    rate = own.request_rate if isinstance(own.request_rate, float) else None
    # A request waits for a place if their number is limited, so its start depends on the server.
    arrivals = "closed" if rate is None and own.max_concurrency else "unknown"
    if rate is not None and own.burstiness == 1.0:
        arrivals = "poisson"
    return Load(requests, rate=rate, arrivals=arrivals, generator="vllm", clock="monotonic")


def _request(own: _Result, at: int) -> Request:
    start, ttft, gaps = own.start_times[at], own.ttfts[at], own.itls[at]
    reason = own.errors[at] or None
    waited = own.queue_times[at] if own.queue_times and at < len(own.queue_times) else None
    streamed = reason is None and ttft > 0
    tokens = list(accumulate(gaps, initial=start + ttft)) if streamed else []
    latency = own.latencies[at] if own.latencies and at < len(own.latencies) else None
    end = tokens[-1] if tokens else None
    if latency is not None and latency > 0:
        end = max(start + latency, end or 0.0)
    return Request(
        planned_ns=None if waited is None else _ns(start - waited),
        sent_ns=_ns(start),
        first_token_ns=_ns(tokens[0]) if tokens else None,
        last_token_ns=_ns(tokens[-1]) if tokens else None,
        end_ns=None if end is None else _ns(end),
        token_ns=[_ns(time) for time in tokens],
        input_tokens=own.input_lens[at],
        output_tokens=own.output_lens[at] if reason is None else None,
        tokens_from="generator" if reason is None else None,
        reason=reason,
    )


def _ns(seconds: float) -> int:
    return max(0, round(1e9 * seconds))
