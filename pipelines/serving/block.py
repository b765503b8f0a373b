"""The `serve` block of a workload file: the command is a server, which a load is put on."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

#: Words in a load's command that are replaced for each load.
OF_LOAD = ("rate", "output", "url", "requests", "duration")

#: Factor of a unit of time, to ms.
_UNITS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "min": 6e4, "m": 6e4, "h": 3.6e6}

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+) ?(us|ms|s|min|m|h)?")


def milliseconds(text: str, unit: str) -> float:
    """Return a duration such as 200ms, 20s or 1.5 min, in ms; `unit` is that of a plain number.

    >>> milliseconds("1.5s", "ms")
    1500.0
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration, such as 200ms or 20s")
    return float(match[1]) * _UNITS[match[2] or unit]


def _in_s(value: Any) -> Any:
    return milliseconds(value, "s") / 1e3 if isinstance(value, str) else value


def _in_ms(value: Any) -> Any:
    return milliseconds(value, "ms") if isinstance(value, str) else value


#: A number of seconds, or a text such as 20s; a number of milliseconds, or a text such as 200ms.
Seconds = Annotated[float, BeforeValidator(_in_s)]
Milliseconds = Annotated[float, BeforeValidator(_in_ms)]


def host_and_port(place: str) -> tuple[str, int] | None:
    """Return host and port of a URL, or of HOST:PORT; None if it is neither."""
    try:
        parts = urlsplit(place if "://" in place else f"tcp://{place}")
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return None
    return (parts.hostname, port) if parts.hostname and port else None


def is_here(host: str) -> bool:
    """Return whether a host is this machine by its name or address: localhost, 127.0.0.1, ::1."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _place(text: str) -> str:
    # Placeholders are replaced later.
    if "{" not in text and host_and_port(text) is None:
        raise ValueError(f"{text!r} is neither a URL nor HOST:PORT")
    return text


def _web(text: str) -> str:
    if "{" not in text and not text.startswith(("http://", "https://")):
        raise ValueError(f"{text!r} does not begin with http:// or https://")
    return _place(text)


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression ({error})") from error
    return text


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Slo(_Model):
    """Objectives of a request, ms or with a unit (200ms); goodput counts requests that meet all."""

    ttft: Milliseconds | None = Field(None, gt=0, description="largest time to first token")
    tpot: Milliseconds | None = Field(
        None, gt=0, description="largest time per output token after the first"
    )
    e2e: Milliseconds | None = Field(None, gt=0, description="largest end-to-end latency")


class ServedModel(_Model):
    """What an iteration of the model moves and computes on one GPU, for roofs of iterations."""

    weights_gb: float | None = Field(
        None, gt=0, description="weights that an iteration reads on one GPU, GB (1e9 bytes)"
    )
    kv_bytes_per_token: float | None = Field(
        None,
        ge=0,
        description="bytes of keys and values of a token on one GPU: 2 x layers x KV heads x head "
        "size x bytes of a value",
    )
    flops_per_token: float | None = Field(
        None, gt=0, description="FLOPs of a token on one GPU, about twice the number of weights"
    )
    dtype: str | None = Field(
        None, description="data type of the matrix products, for the peak, such as bf16 or fp8"
    )


class Serve(_Model):
    """Treats the command as a server: starts it, waits until it is ready, and puts loads on it.

    Each load runs without a profiler first, and then under nsys, which captures a window of it.
    """

    ready: Annotated[str, AfterValidator(_place)] | None = Field(
        None,
        description="URL that answers with status 200, or HOST:PORT that accepts a connection, as "
        "soon as the server is ready; default: the host and port of url",
    )
    ready_line: Annotated[str, AfterValidator(_pattern)] | None = Field(
        None, description="regular expression of a line that the server prints when it is ready"
    )
    ready_timeout: Seconds = Field(
        300, gt=0, description="time limit until the server is ready, seconds"
    )
    load: list[str] = Field(
        [],
        description="command of a load generator; {rate}, {output} (a directory for its files), "
        "{url}, {requests} and {duration} are replaced; default: perfpipe sends the requests",
    )
    load_timeout: Seconds = Field(600, gt=0, description="time limit of this command, seconds")
    url: Annotated[str, AfterValidator(_web)] | None = Field(
        None, description="URL to send requests to (POST)"
    )
    body: dict[str, Any] | str | None = Field(
        None,
        description="body of a request: JSON, or a file with one JSON object, or with one per line "
        "(.jsonl) to send in turn; {prompt:100} in a text becomes 100 random words; with load, the "
        "body of the warm-up",
    )
    headers: dict[str, str] = Field({}, description="additional headers of a request")
    rate: list[float | str] = Field(
        [],
        description="arrival rates, requests/s, from low to high; arrivals are a Poisson process",
    )
    requests: int | None = Field(None, ge=1, description="number of requests at each rate")
    duration: Seconds | None = Field(
        None,
        gt=0,
        alias="for",
        description="time during which requests arrive at each rate, seconds; default: 20, unless "
        "requests is set",
    )
    seed: int = Field(0, description="seed of the arrivals and the random words")
    request_timeout: Seconds = Field(
        60, gt=0, description="time limit of a request, seconds; a later response is a failure"
    )
    warm_up: int = Field(
        5,
        ge=0,
        description="requests to send one after the other before the first load; with load, only "
        "if there are url and body",
    )
    slo: Slo = Field(Slo(), description="objectives of the requests, for the goodput")
    model: ServedModel = Field(
        ServedModel(),
        description="what an iteration of the model moves and computes, for roofs",
    )
    window: Seconds = Field(
        20, gt=0, description="time to capture under nsys or torch.profiler, seconds"
    )
    window_after: Seconds | None = Field(
        None,
        ge=0,
        description="time from the start of a load to the start of the captured window, seconds; "
        "default: the window is in the middle of the load, or begins after 5 s if its length is "
        "unknown",
    )
    profile_url: Annotated[str, AfterValidator(_web)] | None = Field(
        None,
        description="URL whose /start_profile and /stop_profile control torch.profiler in the "
        "server; default: that of url or ready",
    )
    traces: str | None = Field(
        None,
        description="directory where the server writes traces of torch.profiler; default: the "
        "directory that perfpipe sets in $VLLM_TORCH_PROFILER_DIR and $SGLANG_TORCH_PROFILER_DIR",
    )
    stop_timeout: Seconds = Field(
        10,
        gt=0,
        description="time until a server that ignores SIGTERM is killed, seconds",
    )
    allow_remote: bool = Field(False, description="allow requests to other machines than this one")

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if not (self.ready or self.ready_line or self.url):
            raise ValueError(
                "say how to see that the server is ready: ready (URL or HOST:PORT) or ready_line"
            )
        if not self.load:
            if self.url is None:
                raise ValueError("say what load to put on the server: load (a command) or url")
            if not self.rate:
                raise ValueError("say how many requests to send: rate (requests per second)")
        if self.requests is not None and self.duration is not None:
            raise ValueError("requests and for exclude each other")
        if self.load and self.body is not None and self.url is None:
            raise ValueError("say where to send body: url (with load, both are for the warm-up)")
        return self

    @model_validator(mode="after")
    def _stays_here(self) -> Self:
        if self.allow_remote:
            return self
        for name in ("url", "ready", "profile_url"):
            place = getattr(self, name)
            found = host_and_port(place) if place and "{" not in place else None
            if found and not is_here(found[0]):
                raise ValueError(
                    f"{name}: {found[0]} is not this machine; --allow-remote (allow_remote: true) "
                    "lets perfpipe send requests there"
                )
        return self

    @property
    def arrival_s(self) -> float | None:
        """Time during which requests arrive, s; None if their number is set."""
        if self.requests is not None:
            return None
        return 20.0 if self.duration is None else self.duration

    def resolved(self, replace: Callable[[str], str]) -> Serve:
        """Return it with placeholders of parameters replaced; rates are then numbers.

        Raises ValueError if a value is not what its key needs.
        """
        stated = self.model_dump(by_alias=True, exclude_unset=True)
        texts = ("ready", "ready_line", "url", "profile_url", "traces")
        made: dict[str, Any] = {name: replace(stated[name]) for name in texts if stated.get(name)}
        made["load"] = [replace(word) for word in self.load]
        if isinstance(self.body, str):
            made["body"] = replace(self.body)
        rates = [replace(one) if isinstance(one, str) else one for one in self.rate]
        made["rate"] = [_rate(rate) for rate in rates]
        return Serve.model_validate({**stated, **made})


def _rate(value: float | str) -> float:
    try:
        rate = float(value)
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise ValueError(f"rate: {value!r} is not a number of requests per second above 0")
    return rate
