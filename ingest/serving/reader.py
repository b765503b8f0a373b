"""Writes the tables of requests from the files of load generators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from perfpipe.errors import InputError, brief
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.serving import aiperf, guidellm, own, vllm
from perfpipe.ingest.serving.loads import OBJECTIVES, Load, Request
from perfpipe.provenance import utc
from perfpipe.secrets import hidden

#: What reads a file, by its format.
READERS: dict[str, Callable[[Path, Path], Sequence[Load]]] = {
    "requests": lambda path, _: own.loads_of(_text(path).splitlines()),
    "aiperf": lambda path, beside: aiperf.read(_text(path).splitlines(), beside),
    "guidellm": lambda path, _: guidellm.read(path.read_bytes()),
    "vllm-bench": lambda path, _: vllm.read(_text(path)),
}


def read_serving(builder: ReportBuilder) -> None:
    """Read the loads of a file; raises InputError if it has no requests."""
    source = builder.source
    loads = read_loads(source.format, source.content, source.path)
    if not any(load.requests for load in loads):
        raise InputError(f"{source.path}: there are no requests in this file")
    builder.facts.tool_version = loads[0].generator
    starts = [load.span_ns[0] for load in loads if load.clock == "utc"]
    if known := [start for start in starts if start is not None]:
        builder.facts.captured_at = utc(min(known) // 10**9)
    _write(builder, loads)


def read_loads(form: str, content: Path, path: Path) -> Sequence[Load]:
    """Return the loads of a file of a format; `path` is how the user names it.

    Raises InputError with one sentence if the file is not of this format.
    """
    try:
        loads = READERS[form](content, path.parent)
        for load in loads:
            _check_range(load)
        return loads
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text") from error
    except (ValueError, OverflowError) as error:
        raise InputError(f"{path}: {brief(error, 300)}") from error


#: Times, ns, and counts whose differences can be stored.
_MOST = 2**62


def _check_range(load: Load) -> None:
    """Raise ValueError for a number that no clock and no server has."""
    for about in (load, *load.requests):
        for name, value in vars(about).items():
            numbers = value if name == "token_ns" else (value,)
            if wrong := [n for n in numbers if isinstance(n, int) and not -_MOST < n < _MOST]:
                raise ValueError(f"{name} {brief(wrong[0], 30)} is out of range")


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8-sig")


def _write(builder: ReportBuilder, loads: Sequence[Load]) -> None:
    placed = [(number, load, own) for number, load in enumerate(loads) for own in load.requests]
    builder.write("request_loads", _columns_of_loads(loads), len(loads))
    names = (
        "planned_ns", "sent_ns", "first_token_ns", "last_token_ns", "end_ns", "input_tokens",
        "output_tokens", "tokens_from", "status", "bytes",
    )  # fmt: skip
    columns = {name: [getattr(own, name) for *_, own in placed] for name in names}
    columns |= {
        "request_id": list(range(len(placed))),
        "load_id": [number for number, *_ in placed],
        "phase": [load.phase for _, load, _ in placed],
        "rate": [load.rate for _, load, _ in placed],
        "reason": [own.reason and hidden(brief(own.reason)) for *_, own in placed],
    }
    builder.write("requests", columns, len(placed))
    _write_tokens(builder, [own for *_, own in placed])


def _columns_of_loads(loads: Sequence[Load]) -> dict[str, list[object]]:
    same = (
        "phase", "rate", "arrivals", "generator", "clock", "window_start_ns", "window_end_ns",
        "capture", "dtype", "ended_by",
    )  # fmt: skip
    columns: dict[str, list[object]] = {
        name: [getattr(load, name) for load in loads] for name in same
    }
    columns["load_id"] = list(range(len(loads)))
    columns["started_ns"] = [load.span_ns[0] for load in loads]
    columns["ended_ns"] = [load.span_ns[1] for load in loads]
    columns["weights_bytes"] = [_scaled(load.model.get("weights_gb"), 1e9) for load in loads]
    for name in ("kv_bytes_per_token", "flops_per_token"):
        columns[name] = [load.model.get(name) for load in loads]
    for name in OBJECTIVES:
        columns[f"slo_{name}_ms"] = [load.slo_ms.get(name) for load in loads]
    return columns


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else factor * value


def _write_tokens(builder: ReportBuilder, requests: Sequence[Request]) -> None:
    ids = [at for at, own in enumerate(requests) for _ in own.token_ns]
    if not ids:
        builder.lacks("request_tokens", "the file has no arrival times of tokens")
        return
    columns = {
        "request_id": ids,
        "position": [at for own in requests for at in range(len(own.token_ns))],
        "time_ns": [time for own in requests for time in own.token_ns],
    }
    builder.write("request_tokens", columns, len(ids))
