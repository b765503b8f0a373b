"""Loads on a server and their requests, as all load generators describe them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

#: Objectives that a load can have for its requests, and the columns of request_loads.
OBJECTIVES = ("ttft", "tpot", "e2e")


@dataclass(frozen=True)
class Request:
    """A request: times in ns on the clock of its load, None if unknown.

    `token_ns` has the arrival of each piece of the response; `reason` says why it failed.
    """

    planned_ns: int | None = None
    sent_ns: int | None = None
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    end_ns: int | None = None
    token_ns: Sequence[int] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    tokens_from: str | None = None
    status: int | None = None
    reason: str | None = None
    bytes: int | None = None

    @property
    def begin_ns(self) -> int | None:
        """When it was to be sent, or else when it was sent."""
        return self.sent_ns if self.planned_ns is None else self.planned_ns


@dataclass(frozen=True)
class Load:
    """A load at one rate; `slo_ms` has the objectives of its requests, ms.  See request_loads.

    `model` is what an iteration of the server's model moves and computes, as in a workload file.
    """

    requests: Sequence[Request] = ()
    phase: str | None = None
    rate: float | None = None
    arrivals: str = "unknown"
    generator: str = "command"
    clock: str = "utc"
    started_ns: int | None = None
    ended_ns: int | None = None
    window_start_ns: int | None = None
    window_end_ns: int | None = None
    capture: str | None = None
    slo_ms: Mapping[str, float] = field(default_factory=dict)
    model: Mapping[str, float] = field(default_factory=dict)
    dtype: str | None = None
    ended_by: str | None = None

    @property
    def span_ns(self) -> tuple[int | None, int | None]:
        """Start and end: as stated, else those of its requests."""
        begins = [own.begin_ns for own in self.requests if own.begin_ns is not None]
        ends = [own.end_ns for own in self.requests if own.end_ns is not None]
        start = min(begins, default=None) if self.started_ns is None else self.started_ns
        return start, max(ends, default=None) if self.ended_ns is None else self.ended_ns
