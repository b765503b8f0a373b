"""Scrubs a torch.profiler trace."""

from __future__ import annotations

import json
from pathlib import Path

from perfpipe.ingest.masking import mask_value, names_in


def scrub_kineto(source: Path, target: Path, *known: str) -> None:
    """Write a copy without user names, host names, directories and `known` names."""
    trace = json.loads(source.read_text(encoding="utf-8"))
    if isinstance(trace, dict):
        trace.pop("traceName", None)
    names = names_in([json.dumps(trace)], *known)
    target.write_text(json.dumps(mask_value(trace, names)), encoding="utf-8")
