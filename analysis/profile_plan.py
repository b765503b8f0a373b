"""Which kernels of a timeline to profile, and the options of ncu that select them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from perfpipe.analysis.macros import communicating
from perfpipe.analysis.thresholds import thresholds
from perfpipe.database import quote

if TYPE_CHECKING:
    from perfpipe.analysis.session import Session

#: Views that a session needs for the functions here.
VIEWS_USED = ("profile_plan", "profile_plan_totals", "_window_kernels")

#: Longer names are matched by a unique part, so that commands stay readable.
_LONG = 80

#: Shortest parts that may represent a name: an identifier in it, or any part.
_SHORTEST_IDENTIFIER, _SHORTEST_PART = 8, 24


@dataclass(frozen=True)
class PlannedKernel:
    """A kernel configuration: a row of the view profile_plan, with times in ns and shares in %."""

    rank: int
    name: str
    demangled: str
    grid: str
    block: str
    instances: int
    launches: int
    time_ns: int
    share_pct: float
    cumulative_pct: float
    chosen: bool
    covered_pct: float
    why: str


@dataclass(frozen=True)
class ProfilePlan:
    """The kernels of a timeline to profile, and the input for ncu: see profile_plan_totals.

    `names` are those that ncu selects, `others` those of all other kernels of the report;
    `mangled` says which kind of names they are.  `refused` is why nothing may be profiled.
    """

    report_id: str
    device: int | None
    cc: str | None
    cuda_device: int | None
    processes: int
    window_kind: str
    steps: int | None
    launches_before: int
    configurations: int
    chosen: int
    coverage_pct: float
    communication_pct: float | None
    expected_launches: int
    most_launches: int
    span_ns: int | None
    refused: str | None
    kernels: tuple[PlannedKernel, ...]
    names: tuple[str, ...]
    others: tuple[str, ...]
    mangled: bool

    @cached_property
    def ncu_words(self) -> list[str]:
        """The options of ncu that select the kernels: one launch of each configuration."""
        base = "mangled" if self.mangled else "function"
        words = [
            f"--kernel-name-base={base}",
            f"--kernel-name=regex:{name_pattern(self.names, self.others)}",
            "--filter-mode=per-launch-config",
            "--launch-count=1",
        ]
        if self.launches_before:
            words.append(f"--launch-skip-before-match={self.launches_before}")
        if self.processes > 1 and self.cuda_device is not None:
            words.append(f"--devices={self.cuda_device}")
        return words


def read_plan(session: Session, report_id: str) -> ProfilePlan | None:
    """Return the plan for a timeline; None if it has no kernels.

    How much to cover is among the thresholds of the session (see `limits_of`).
    """
    chosen = f"report_id = {quote(report_id)}"
    totals = _mappings(session, f"FROM profile_plan_totals WHERE {chosen}")
    if not totals:
        return None
    rows = _mappings(
        session, f"FROM profile_plan WHERE {chosen} AND share_pct IS NOT NULL ORDER BY rank"
    )
    names = {name for row in rows for name in row["ncu_names"]}
    known = session.execute(
        f"SELECT DISTINCT filter_name, mangled IS NOT NULL FROM _window_kernels WHERE {chosen}"
    ).fetchall()
    fields = {
        name: totals[0][name] for name in ProfilePlan.__dataclass_fields__ if name in totals[0]
    }
    return ProfilePlan(
        **fields,
        kernels=tuple(
            PlannedKernel(**{name: row[name] for name in PlannedKernel.__dataclass_fields__})
            for row in rows
        ),
        names=tuple(sorted(names)),
        others=tuple(sorted(name for name, _ in known if name not in names)),
        mangled=all(mangled for _, mangled in known),
    )


def each_once() -> list[str]:
    """Return the options of ncu for one launch of every configuration.

    This is the fallback without a timeline.  Communication is excluded by name.
    """
    return [
        "--kernel-name-base=demangled",
        f"--kernel-name=regex:^(?!{communicating()})",
        "--filter-mode=per-launch-config",
        "--launch-count=1",
    ]


def limits_of(coverage: float | None, max_kernels: int | None) -> dict[str, float]:
    """Return the thresholds for planning; None keeps a threshold."""
    asked = {"plan.coverage_pct": coverage, "plan.max_kernels": max_kernels}
    return thresholds() | {name: float(value) for name, value in asked.items() if value is not None}


def name_pattern(names: Collection[str], others: Collection[str]) -> str:
    """Return a regular expression that matches all `names` and none of `others`.

    Long names are represented by a part that no other name contains.
    """
    text = "\n".join(others)
    whole: list[str] = []
    parts: list[str] = []
    for name in sorted(set(names)):
        part = _part(name, text)
        (whole if part is None else parts).append(re.escape(name if part is None else part))
    alternatives = [f"^({'|'.join(whole)})$"] if whole else []
    return "|".join([*alternatives, *dict.fromkeys(parts)])


def _part(name: str, others: str) -> str | None:
    """Return a part of a name that the other names lack: an identifier if possible."""
    for identifier in _identifiers(name):
        if len(identifier) >= _SHORTEST_IDENTIFIER and identifier not in others:
            return identifier
    length = _SHORTEST_PART
    while len(name) > _LONG and length < len(name):
        for start in range(len(name) - length + 1):
            if name[start : start + length] not in others:
                return name[start : start + length]
        length += length // 3
    return None


def _identifiers(name: str) -> Iterator[str]:
    """Yield the identifiers in a mangled name; its length precedes each identifier."""
    # A number after L and a type is a template argument.
    for match in re.finditer(r"(?<!L[a-z])(?<!\d)\d+", name) if name.startswith("_Z") else ():
        identifier = name[match.end() : match.end() + int(match[0][:4])]
        if re.fullmatch(r"[A-Za-z]\w+", identifier) and len(identifier) == int(match[0]):
            yield identifier


def _mappings(session: Session, sql: str) -> list[Mapping[str, Any]]:
    result = session.execute(sql)
    columns = [column[0] for column in result.description]
    return [dict(zip(columns, row, strict=True)) for row in result.fetchall()]
