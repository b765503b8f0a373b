"""Writes sampled stacks for speedscope.app (https://www.speedscope.app/file-format-schema.json)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TextIO

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


class Frame(NamedTuple):
    """A frame: name of the function, file and line, if they are known."""

    name: str
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class Profile:
    """Stacks as numbers of frames, outermost first, and the time of each, ns."""

    name: str
    samples: list[list[int]] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)


def write_profiles(profiles: Sequence[Profile], frames: Sequence[Frame], file: TextIO) -> int:
    """Write profiles, of which the viewer shows the first; return their number."""
    document = {
        "$schema": _SCHEMA,
        "exporter": "perfpipe",
        "activeProfileIndex": 0,
        "shared": {"frames": [_known(frame) for frame in frames]},
        "profiles": [
            {
                "type": "sampled",
                "name": profile.name,
                "unit": "nanoseconds",
                "startValue": 0,
                "endValue": sum(profile.weights),
                "samples": profile.samples,
                "weights": profile.weights,
            }
            for profile in profiles
        ],
    }
    # In one piece: dump would encode it in pure Python.
    file.write(json.dumps(document, ensure_ascii=False, separators=(",", ":")))
    return len(profiles)


def _known(frame: Frame) -> dict[str, Any]:
    named = frame._replace(name=frame.name or "(no name)")
    return {key: value for key, value in named._asdict().items() if value is not None}
