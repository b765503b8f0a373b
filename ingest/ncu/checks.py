"""Consistency checks at ingest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.ncu.number_style import DOUBTED

#: Stall reasons are collected in a different pass than the warp latency that they add up to.
STALL_SUM_TOLERANCE = 0.03

#: SM and GPC clocks come from different passes; beyond this, rates are not comparable.
CLOCK_TOLERANCE = 0.03

LATENCY = "smsp__average_warp_latency_per_inst_issued.ratio"
_STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio")
SAMPLES = "smsp__pcsamp_sample_count"
_SAMPLED = re.compile(r"smsp__pcsamp_warps_issue_stalled_(?!\w+_not_issued$)\w+")
SM_CLOCK = "sm__cycles_elapsed.avg.per_second"
GPC_CLOCK = "gpc__cycles_elapsed.avg.per_second"

#: Fewer averaged stall reasons than this are a selection, which may not add up.
_ALL_STALLS = 16

#: Values that are not finite, and the begin of ncu's names of intermediate results.
_NOT_FINITE = frozenset({"nan", "-nan", "inf", "-inf"})
_INTERMEDIATE = "derived_temp"

#: Maximum number of metrics that a warning names.
_NAMED = 3

_DOUBTS = {
    "stalls": "ncu's passes disagree: the stall reasons do not add up to the warp latency",
    "samples": "the sampled stall reasons do not add up to the sample count",
    "clocks": "ncu's passes disagree (use percentages, not rates): SM and GPC clocks differ",
}


@dataclass
class LaunchChecks:
    """Gathers inconsistencies of launches and warns once per kind."""

    _found: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    _launches: int = 0
    #: Launches by metric that ncu printed as nan or infinity.
    _not_finite: dict[str, int] = field(default_factory=dict)
    #: The metrics of the last launch, and the members of each family; most launches are alike.
    _names: list[str] = field(default_factory=list)
    _members: list[list[str]] = field(default_factory=lambda: [[], []])

    def add(self, launch_id: int, values: Mapping[str, float | str | None]) -> None:
        """Check a launch: stalls against latency, samples against their sum, clocks of passes."""
        self._launches += 1
        for name, value in values.items():
            if isinstance(value, str) and value.removeprefix(DOUBTED) in _NOT_FINITE:
                self._not_finite[name] = self._not_finite.get(name, 0) + 1
        latency = values.get(LATENCY)
        stalls, sampled = (
            [v for v in map(values.get, names) if isinstance(v, float)]
            for names in self._families(values)
        )
        if isinstance(latency, float) and latency > 0 and len(stalls) >= _ALL_STALLS:
            self._note("stalls", launch_id, sum(stalls) / latency - 1, STALL_SUM_TOLERANCE)
        samples = values.get(SAMPLES)
        if isinstance(samples, float) and samples and sampled:
            self._note("samples", launch_id, sum(sampled) / samples - 1, 0)
        sm, gpc = values.get(SM_CLOCK), values.get(GPC_CLOCK)
        if isinstance(sm, float) and isinstance(gpc, float) and gpc > 0:
            self._note("clocks", launch_id, sm / gpc - 1, CLOCK_TOLERANCE)

    def _families(self, values: Mapping[str, object]) -> list[list[str]]:
        """Return the stall reasons and the sampled stall reasons among metrics."""
        if (names := list(values)) != self._names:
            self._names = names
            self._members = [list(filter(f.fullmatch, names)) for f in (_STALL, _SAMPLED)]
        return self._members

    def _note(self, kind: str, launch_id: int, off: float, tolerance: float) -> None:
        if abs(off) > tolerance:
            self._found.setdefault(kind, []).append((launch_id, off))

    def report(self, builder: ReportBuilder) -> None:
        """Add the warnings."""
        names = [name for name in self._not_finite if not name.startswith(_INTERMEDIATE)]
        if names:
            most = max(self._not_finite[name] for name in names)
            more = f" and {len(names) - _NAMED} more" if names[_NAMED:] else ""
            builder.warn(
                f"ncu printed nan or infinity for {', '.join(names[:_NAMED])}{more}, in up to "
                f"{most} of {self._launches} launches: these values are NULL"
            )
        for kind, doubts in self._found.items():
            worst = max(doubts, key=lambda doubt: abs(doubt[1]))
            builder.warn(
                f"{_DOUBTS[kind]} in {len(doubts)} of {self._launches} launches "
                f"(worst: {100 * worst[1]:+.1f} % in launch {worst[0]})"
            )


def check_launches(builder: ReportBuilder, *, found: int, expected: int) -> None:
    """Warn if the number of launches differs from the log in the report."""
    if expected and found != expected:
        builder.warn(
            f"found {found} launches, but the log in the report lists {expected}; "
            "the other launches are lost"
        )
