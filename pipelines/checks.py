"""The results of `perfpipe doctor`: one line per check."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from perfpipe.errors import ToolMissing

OK, MISSING, WARNING = "ok", "missing", "warning"

#: Values of --need.
NEEDS = ("nsys", "ncu", "gpu", "slurm")


@dataclass(frozen=True)
class Check:
    """One line of the doctor: `state` is ok, warning or missing."""

    name: str
    state: str
    text: str

    def __str__(self) -> str:
        return f"{self.state:8} {self.name:12} {self.text}"


def require(checks: Iterable[Check], needed: Iterable[str]) -> None:
    """Raise ToolMissing if a needed tool is missing."""
    wanted = set(needed)
    missing = [check.name for check in checks if check.name in wanted and check.state == MISSING]
    if missing:
        raise ToolMissing(f"missing: {', '.join(missing)}")
