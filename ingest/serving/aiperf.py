"""Reads AIPerf's records of requests, profile_export.jsonl (--export-level records).

A record has the request's times since 1970 in ns, and metrics with their unit:
https://github.com/ai-dynamo/aiperf/blob/main/docs/tutorials/working-with-profile-exports.md
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from perfpipe.files import text_of
from perfpipe.ingest.serving.loads import Load, Request
from perfpipe.ingest.serving.own import said

#: AIPerf's own statistics of the same requests, which also have its settings.
SUMMARY = "profile_export_aiperf.json"

#: Units of times, ns.
_UNITS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "sec": 1e9, "s": 1e9}

_ARRIVALS = {"poisson": "poisson", "constant": "constant", "concurrency_burst": "closed"}


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _Value(_Part):
    value: float | list[float] | None
    unit: str


class _Metadata(_Part):
    request_start_ns: int
    request_end_ns: int
    credit_issued_ns: int | None = None
    benchmark_phase: str = "profiling"
    was_cancelled: bool = False


class _Error(_Part):
    code: int | None = None
    type: str | None = None
    message: str


class _Record(_Part):
    metadata: _Metadata
    metrics: dict[str, Any] | None = None
    error: _Error | None = None

    def _metric(self, name: str) -> _Value | None:
        found = (self.metrics or {}).get(name)
        return None if found is None else _Value.model_validate(found)

    def times_ns(self, name: str) -> list[float]:
        """Return a metric that is a time, or a list of times, in ns; empty if it is missing."""
        found = self._metric(name)
        if found is None or found.value is None:
            return []
        if found.unit not in _UNITS:
            raise ValueError(f"{name} has the unknown unit {found.unit!r}")
        values = found.value if isinstance(found.value, list) else [found.value]
        return [value * _UNITS[found.unit] for value in values]

    def count(self, *names: str) -> int | None:
        """Return the first of these metrics that is there, as a number of tokens."""
        found = map(self._metric, names)
        values = (own.value for own in found if own is not None)
        return next((int(value) for value in values if isinstance(value, float)), None)


def read(lines: Iterable[str], beside: Path) -> Sequence[Load]:
    """Return the load in the lines of a file; `beside` is the directory with the SUMMARY, if any.

    Requests of the warm-up are skipped.  Raises ValueError for a line that is no record.
    """
    requests = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = _Record.model_validate_json(line)
            if record.metadata.benchmark_phase == "profiling":
                requests.append(_request(record))
        except ValidationError as error:
            raise ValueError(f"line {number}: not a record of AIPerf: {said(error)}") from error
        except (ValueError, OverflowError) as error:
            raise ValueError(f"line {number}: {error}") from error
    rate, arrivals = _settings(beside / SUMMARY)
    return [Load(requests, rate=rate, arrivals=arrivals, generator="aiperf")]


def _request(record: _Record) -> Request:
    about = record.metadata
    waited = record.times_ns("time_to_first_token") or record.times_ns("ttft")
    first = about.request_start_ns + round(waited[0]) if waited else None
    # The latency between pieces of the stream; the first one arrives with the first token.
    gaps = record.times_ns("inter_chunk_latency") if first is not None else []
    tokens = [round(time) for time in accumulate(gaps, initial=first)] if first is not None else []
    tokens = [min(time, about.request_end_ns) for time in tokens]
    output = record.count("output_sequence_length", "output_token_count")
    error = record.error
    reason = None
    if error is not None or about.was_cancelled:
        named = (error.type, error.message) if error else ("canceled", None)
        reason = ": ".join(part for part in named if part)
    return Request(
        planned_ns=about.credit_issued_ns,
        sent_ns=about.request_start_ns,
        first_token_ns=first,
        last_token_ns=tokens[-1] if gaps else None,
        end_ns=about.request_end_ns,
        token_ns=tokens if gaps else (),
        input_tokens=record.count("input_sequence_length", "error_isl"),
        output_tokens=output,
        tokens_from=None if output is None else "generator",
        status=error.code if error else None,
        reason=reason,
    )


def _settings(summary: Path) -> tuple[float | None, str]:
    """Return the arrival rate and mode of the load, from AIPerf's own statistics next to it."""
    try:
        found: Any = json.loads(text_of(summary))
        generator = found["input_config"]["loadgen"]
    except (OSError, ValueError, KeyError, TypeError):
        return None, "unknown"
    if not isinstance(generator, dict):
        return None, "unknown"
    rate = generator.get("request_rate")
    if isinstance(rate, (int, float)) and not isinstance(rate, bool) and rate > 0:
        return float(rate), _ARRIVALS.get(str(generator.get("request_rate_mode")), "poisson")
    return None, "closed" if generator.get("concurrency") else "unknown"
