"""Reads the JSON lines of requests that perfpipe's load prints, as may any other program.

    {"perfpipe": "load", "rate": 4, "arrivals": "poisson"}                  begins a load; optional
    {"planned_ns": ..., "sent_ns": ..., "end_ns": ..., "status": 200}       a request
    {"perfpipe": "load_end", "ended_ns": ...}                               ends a load; optional

Keys of a load and of a request are the columns of the tables request_loads and requests; token_ns
is the list of the times of request_tokens.  Objectives are {"slo_ms": {"ttft": 200}}; the
keys of "model", and "dtype", are those of `model` in a workload file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError, model_validator

from perfpipe.files import replacing
from perfpipe.ingest.serving.loads import Load, Request

#: Where a line of requests says what it is.
MARK = "perfpipe"

Time = NonNegativeInt


class _Line(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class _Request(_Line):
    planned_ns: Time | None = None
    sent_ns: Time | None = None
    first_token_ns: Time | None = None
    last_token_ns: Time | None = None
    end_ns: Time | None = None
    token_ns: tuple[Time, ...] = Field((), strict=False)
    input_tokens: NonNegativeInt | None = None
    output_tokens: NonNegativeInt | None = None
    tokens_from: str | None = None
    status: int | None = None
    reason: str | None = None
    bytes: NonNegativeInt | None = None

    @model_validator(mode="after")
    def _is_in_order(self) -> _Request:
        if self.planned_ns is None and self.sent_ns is None:
            raise ValueError("it has neither sent_ns nor planned_ns")
        if self.end_ns is None and self.reason is None:
            raise ValueError("it has no end_ns, and no reason of a failure")
        times = [self.sent_ns, self.first_token_ns, *self.token_ns, self.last_token_ns, self.end_ns]
        known = [time for time in times if time is not None]
        if known != sorted(known):
            raise ValueError("its times are not in order: sent, first token, last token, end")
        return self


class _Load(_Line):
    phase: str | None = None
    rate: float | None = Field(None, gt=0)
    arrivals: Literal["poisson", "constant", "closed", "unknown"] = "unknown"
    generator: str = "command"
    clock: Literal["utc", "monotonic"] = "utc"
    started_ns: Time | None = None
    slo_ms: dict[Literal["ttft", "tpot", "e2e"], float] = {}
    model: dict[Literal["weights_gb", "kv_bytes_per_token", "flops_per_token"], float] = {}
    dtype: str | None = None


class _End(_Line):
    ended_ns: Time | None = None
    window_start_ns: Time | None = None
    window_end_ns: Time | None = None
    capture: str | None = None
    ended_by: str | None = None


def loads_of(lines: Iterable[str], *, only_json: bool = True) -> list[Load]:
    """Return the loads in some lines; other lines than JSON objects are skipped unless `only_json`.

    Raises ValueError for a line that is none of these.
    """
    loads: list[Load] = []
    requests: list[Request] = []
    began = False
    for number, text in enumerate(lines, 1):
        if not text.strip() or not (only_json or text.lstrip().startswith("{")):
            continue
        try:
            kind, line = _parsed(text, only_json)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
        if kind == "load":
            loads += [Load(requests)] if requests and not began else []
            requests, began = [], True
            loads.append(Load(requests, **line))
        elif kind == "load_end" and began:
            loads[-1] = replace(loads[-1], **line)
            requests, began = [], False
        elif kind == "request":
            requests.append(Request(**line))
    return loads + ([Load(requests)] if requests and not began else [])


def _parsed(text: str, only_json: bool) -> tuple[str, dict[str, Any]]:
    """Return what a line is, and its fields; a kind of another program's own is empty."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        if not only_json:
            return "", {}
        raise ValueError(f"not JSON ({error})") from error
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    kind = found.pop(MARK, "request")
    if kind == "request" and not only_json and not found.keys() & {"sent_ns", "planned_ns"}:
        return "", {}
    models: dict[str, type[_Line]] = {"load": _Load, "load_end": _End, "request": _Request}
    if kind not in models:
        return "", {}
    try:
        return kind, models[kind].model_validate(found).model_dump()
    except ValidationError as error:
        raise ValueError(f"not a {kind.replace('_', ' ')}: {said(error)}") from error


def said(error: ValidationError) -> str:
    """Return the first fault that pydantic found, as a clause."""
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    text = first["msg"].removeprefix("Value error, ")
    text = text[0].lower() + text[1:]
    return f"{place}: {text}" if place else text


#: What begins a load, what ends it.
_OPENING = (
    "phase", "rate", "arrivals", "generator", "clock", "started_ns", "slo_ms", "model", "dtype",
)  # fmt: skip
_CLOSING = ("ended_ns", "window_start_ns", "window_end_ns", "capture", "ended_by")


def lines_of(load: Load) -> Iterator[str]:
    """Yield the lines of a load, as loads_of reads them."""
    yield json.dumps({MARK: "load", **_stated(load, _OPENING)})
    for request in load.requests:
        yield json.dumps({k: v for k, v in asdict(request).items() if v not in (None, ())})
    yield json.dumps({MARK: "load_end", **_stated(load, _CLOSING)})


def write_loads(path: Path, loads: Iterable[Load]) -> None:
    """Write loads into a file, atomically."""
    lines = [line for load in loads for line in lines_of(load)]
    with replacing(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _stated(load: Load, names: Iterable[str]) -> dict[str, Any]:
    values = {name: getattr(load, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}
