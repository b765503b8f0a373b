"""The subject of a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from perfpipe.analysis.history import History, history_of_run
from perfpipe.analysis.report.before import Kernels
from perfpipe.runrecord import RunRecord

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from perfpipe.analysis.gate.compare.story import Comparison


#: Kinds of reports that are timelines.
TIMELINES = ("nsys", "torch")


@dataclass(frozen=True)
class Scope:
    """The subject of a report: report ids, their number by kind, the run, a comparison.

    `left_out` are reports that cannot be read, and why; `before` are the kernels of a baseline.
    """

    con: DuckDBPyConnection
    reports: tuple[str, ...]
    kinds: Mapping[str, int]
    run: RunRecord | None = None
    compared: Comparison | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    before: Kernels = field(default_factory=dict)

    @property
    def timeline(self) -> bool:
        """Whether any report is a timeline."""
        return any(count for kind, count in self.kinds.items() if kind in TIMELINES)

    @property
    def profiled(self) -> bool:
        """Whether any report is of profiled kernels."""
        return bool(self.kinds.get("ncu"))

    @cached_property
    def history(self) -> History | None:
        """The history of an autotuning run; None if the run is not one."""
        history = history_of_run(self.run) if self.run is not None else None
        return history if history and history.trials else None
