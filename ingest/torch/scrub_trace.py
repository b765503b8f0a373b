"""Scrubs a torch.profiler trace."""

from __future__ import annotations

import json
from pathlib import Path

from perfpipe.errors import InputError
from perfpipe.ingest.compressed import chunks
from perfpipe.ingest.masking import mask_value, names_in
from perfpipe.ingest.torch.trace_json import DAMAGED, EVENTS, Damaged, TraceJson


def scrub_kineto(source: Path, target: Path, *known: str) -> list[str]:
    """Write a copy without user names, host names, directories and `known` names.

    Events that are not valid JSON are repaired.  Raises InputError if the trace is cut or damaged.
    """
    trace = TraceJson(chunks(source), float)
    names = frozenset(known)
    try:
        for event in trace.events():
            names |= names_in([json.dumps(event)])
    except Damaged as error:
        raise InputError(f"{source}: {error}") from error
    if trace.cut:
        raise InputError(f"{source}: {DAMAGED}: it ends within its events")
    names = names_in([json.dumps(trace.members)], *names)
    trace.members.pop("traceName", None)
    with target.open("w", encoding="utf-8") as file:
        file.write("{")
        for name, value in trace.members.items():
            file.write(json.dumps(mask_value({name: value}, names))[1:-1] + ", ")
        file.write(f'"{EVENTS}": [')
        for number, event in enumerate(TraceJson(chunks(source), float).events()):
            file.write((", " if number else "") + json.dumps(mask_value(event, names)))
        file.write("]}")
    return []
