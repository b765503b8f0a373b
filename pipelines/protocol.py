"""The JSON lines that a program prints for perfpipe, each with the key "perfpipe".

{"perfpipe": "validation", "ok": true, "max_abs_error": 0.01}      before any timing
{"perfpipe": "time", "ms": [0.5, 0.4]}                          one entry per sample, ms
{"perfpipe": "kernel", "registers": 128, "spills": 0}           a compiled kernel
{"perfpipe": "about", "torch": "2.11.0"}                        versions of what it uses
{"perfpipe": "out_of_resources", "reason": "..."}               it does not fit on the hardware
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

from perfpipe.runrecord import Kernel, Validation

_KEY = "perfpipe"

#: Characters of an invalid time that are kept.
_SHOWN = 40


@dataclass
class ProgramOutput:
    """The messages of a program: times in ms, validation, compiled kernel."""

    times_ms: list[float] = field(default_factory=list)
    invalid_times: list[str] = field(default_factory=list)
    method: str | None = None
    validation: Validation | None = None
    kernel: Kernel | None = None
    software: dict[str, str] | None = None
    out_of_resources: str | None = None

    def feed(self, line: str) -> None:
        """Parse a line; lines that are not valid messages are ignored."""
        if not line.startswith("{"):
            return
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(message, dict):
            return
        content = {key: value for key, value in message.items() if key != _KEY}
        match message.get(_KEY):
            case "validation" if self.validation is None or self.validation.ok:
                # Every rank reports validation: one failure is enough.
                self.validation = Validation.of({**content, "ok": bool(content.get("ok"))})
            case "time":
                stated = content.get("ms")
                # An empty list is no time either.
                times: list[Any] = stated if isinstance(stated, list) and stated else [stated]
                self.times_ms += [float(ms) for ms in times if _is_time(ms)]
                self.invalid_times += [json.dumps(ms)[:_SHOWN] for ms in times if not _is_time(ms)]
                self.method = str(content["method"]) if "method" in content else self.method
            case "kernel":
                self.kernel = Kernel.of(content)
            case "about":
                self.software = {k: str(v) for k, v in content.items() if v is not None}
            case "out_of_resources":
                self.out_of_resources = str(content.get("reason", ""))


def _is_time(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) and value > 0
