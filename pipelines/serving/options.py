"""The options of `perfpipe run` for servers, as the `serve` block of a workload file."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

import click

from perfpipe.errors import InputError, did_you_mean
from perfpipe.functions import scalar
from perfpipe.ingest.serving.loads import OBJECTIVES
from perfpipe.pipelines.serving.block import OF_LOAD, Serve, milliseconds
from perfpipe.pipelines.tasks import literal


def _seconds(_: click.Context, option: click.Parameter, text: str | None) -> float | None:
    try:
        return None if text is None else milliseconds(text, "s") / 1e3
    except ValueError as error:
        raise InputError(f"{option.opts[0]}: {error}") from error


def _rates(_: click.Context, option: click.Parameter, text: str | None) -> list[Any] | None:
    if text is None:
        return None
    rates = [scalar(part.strip()) for part in text.split(",")]
    for rate in rates:
        if not isinstance(rate, (int, float)) or not 0 < rate < float("inf"):
            raise InputError(
                f"{option.opts[0]} {text}: expected requests per second, such as 1,4,8"
            )
    return rates


def _objectives(_: click.Context, option: click.Parameter, text: str | None) -> Any:
    if text is None:
        return None
    found = {}
    for part in text.split(","):
        name, _equals, value = part.partition("=")
        if name not in OBJECTIVES:
            hint = did_you_mean(name, OBJECTIVES)
            raise InputError(
                f"{option.opts[0]} {text}: no such objective ({', '.join(OBJECTIVES)}){hint}"
            )
        try:
            found[name] = milliseconds(value, "ms")
        except ValueError as error:
            raise InputError(f"{option.opts[0]} {name}: {error}") from error
    return found


def _body(_: click.Context, option: click.Parameter, text: str | None) -> Any:
    if text is None or not text.lstrip().startswith("{"):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(f"{option.opts[0]}: not JSON ({error})") from error


def _words(_: click.Context, __: click.Parameter, text: str | None) -> list[str] | None:
    return None if text is None else split(text, "--load")


#: The options, with the keys of the block.
_OPTIONS: Mapping[str, dict[str, Any]] = {
    "ready": {
        "metavar": "URL|HOST:PORT",
        "help": "The server is ready when this URL answers with status 200, or when the port "
        "accepts connections.",
    },
    "ready_line": {
        "metavar": "REGEX",
        "help": "The server is ready when it has printed a matching line.",
    },
    "ready_timeout": {
        "metavar": "TIME",
        "callback": _seconds,
        "help": "Time limit until the server is ready (default: 5min).",
    },
    "load": {
        "metavar": "COMMAND",
        "callback": _words,
        "help": "Load generator to run, such as AIPerf, guidellm, vllm bench serve, or a program "
        "that prints JSON lines.  {rate} and {output} (a directory for its files) are replaced.  "
        "Default: perfpipe sends the requests.",
    },
    "rate": {
        "metavar": "R[,R]",
        "callback": _rates,
        "help": "Arrival rates, requests per second, from low to high.  Arrivals are a Poisson "
        "process, independent of the server.",
    },
    "requests": {
        "type": click.IntRange(1),
        "metavar": "N",
        "help": "Number of requests at each rate.",
    },
    "for": {
        "metavar": "TIME",
        "callback": _seconds,
        "help": "Time during which requests arrive at each rate (default: 20s).",
    },
    "url": {"metavar": "URL", "help": "URL to send requests to (POST)."},
    "body": {
        "metavar": "JSON|FILE",
        "callback": _body,
        "help": "Body of a request; {prompt:100} becomes 100 random words.  A .jsonl file has one "
        "body per line, to send in turn.",
    },
    "slo": {
        "metavar": "NAME=TIME[,...]",
        "callback": _objectives,
        "help": "Objectives for the goodput, such as ttft=200ms,tpot=50ms,e2e=2s.",
    },
    "window": {
        "metavar": "TIME",
        "callback": _seconds,
        "help": "Time to capture under a profiler, in the middle of each load (default: 20s, at "
        "most 60 % of the load).",
    },
    "window_after": {
        "metavar": "TIME",
        "callback": _seconds,
        "help": "Time from the start of a load to the captured window.",
    },
    "warm_up": {
        "type": click.IntRange(0),
        "metavar": "N",
        "help": "Requests to send before the first load (default: 5).  With --load, only if there "
        "are --url and --body.",
    },
    "seed": {
        "type": int,
        "metavar": "N",
        "help": "Seed of arrivals and random words (default: 0).",
    },
    "allow_remote": {
        "is_flag": True,
        "default": None,
        "help": "Allow requests to other machines than this one.",
    },
}


def serve_options(command: Any) -> Any:
    """Add --serve and the options of loads."""
    for key, settings in reversed([*_OPTIONS.items()]):
        command = click.option(f"--{key.replace('_', '-')}", f"serve_{key}", **settings)(command)
    add: Callable[[Any], Any] = click.option(
        "--serve",
        metavar="COMMAND",
        help="Start a server instead of a program, put a load on it, and measure its latencies; "
        "see the options from --ready to --allow-remote.",
    )
    return add(command)


def taken_from(given: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of loads from those of the command, and return the keys that are set."""
    every = {key: given.pop(f"serve_{key}") for key in _OPTIONS}
    return {key: value for key, value in every.items() if value is not None}


def split(text: str, option: str) -> list[str]:
    """Return the words of a command line; raises InputError if a quotation is not closed."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(f"{option} {text!r}: {error}") from error
    if not words:
        raise InputError(f"{option} is empty")
    return words


def block_of(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return the block of a workload file: no text of the command line is a parameter's name."""
    made = {
        key: literal(value) if isinstance(value, str) else value for key, value in stated.items()
    }
    if load := stated.get("load"):
        made["load"] = [_of_load(word) for word in load]
    return made


def _of_load(word: str) -> str:
    return re.sub(
        r"\{(\w+)\}", lambda found: found[0] if found[1] in OF_LOAD else literal(found[0]), word
    )


def overriding(serve: Serve, stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return the block of a file with the keys that the command line states."""
    own = serve.model_dump(by_alias=True, exclude_unset=True)
    apart = {"requests": "for", "for": "requests"}
    for key in stated:
        own.pop(apart.get(key, ""), None)
    return {**own, **block_of(stated)}
