"""The page of steps with shorter parts: what is asked, replayed and assumed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfpipe.analysis.critical.parts import HOST_WORK, Edges, Part
from perfpipe.analysis.critical.tables import NEEDS, ranks_of, replayed_steps
from perfpipe.analysis.rows import rows_of
from perfpipe.errors import InputError, did_you_mean
from perfpipe.units import counted, format_ns, gpu_name
from perfpipe.viewmodel import Column, Fact, Report, Section, Source, Table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Views that are read here.
VIEWS = (*sorted(NEEDS), "_labels")

#: What a replay assumes, as a clause.
ASSUMED = (
    "dependencies stay, clocks do not change, the host takes as long as under the profiler, and "
    "work at the same time does not slow each other down more or less than before"
)

_WISH = re.compile(r"(?P<what>.+?)(?:@(?P<rank>\d+))?=(?P<percent>\d+(?:\.\d+)?)\s*%?")

_COLUMNS = (
    Column("label", "Configuration", "text"),
    Column("device", "GPU", "int", "", "GPU whose step takes longest"),
    Column("shorter", "Shorter", "text", "", "the parts, and by how much of their time"),
    Column("step_ns", "Recorded step", "ns", "", "mean time of the replayed steps"),
    Column("new_ns", "Replayed step", "ns", "", "mean time of these steps with the shorter parts"),
    Column("gain_pct", "Time saved", "pct", "%"),
    Column("steps", "Steps", "int", "", "steps that are averaged"),
)


@dataclass(frozen=True)
class Wish:
    """A part, and by how much of its time it is shorter (0 to 1)."""

    part: Part
    share: float

    @property
    def text(self) -> str:
        """The wish in words."""
        rank = "" if self.part.rank is None else f" of rank {self.part.rank}"
        return f"{self.part.name or self.part.category}{rank} {100 * self.share:g} % shorter"


@dataclass(frozen=True)
class Shorter:
    """The steps of a job as recorded and with shorter parts; times are means, ns."""

    report: str
    label: str
    device: int | None
    steps: int
    step_ns: float
    new_ns: float

    @property
    def gain_pct(self) -> float:
        """Time saved, % of the recorded step."""
        return 100 * (self.step_ns - self.new_ns) / self.step_ns if self.step_ns else 0.0


def wish_of(text: str) -> tuple[str, int | None, float]:
    """Parse PART[@RANK]=PERCENT into part, rank and share.

    Raises InputError if it is none.

    >>> wish_of("host work@1=20")
    ('host work', 1, 0.2)
    """
    match = _WISH.fullmatch(text.strip())
    percent = float(match["percent"]) if match else 0.0
    if match is None or not 0 < percent <= 100:
        raise InputError(
            f"--shorter {text}: not PART=PERCENT or PART@RANK=PERCENT with a percentage above 0 "
            "and up to 100, such as compute=20"
        )
    rank = None if match["rank"] is None else int(match["rank"])
    return match["what"], rank, percent / 100


def shorter_steps(
    con: DuckDBPyConnection, texts: Sequence[str]
) -> tuple[tuple[Wish, ...], list[Shorter]]:
    """Replay the steps of all jobs with shorter parts, as PART[@RANK]=PERCENT.

    Raises InputError for a part or rank that no step has, or if there are no steps.
    """
    asked = [wish_of(text) for text in texts]
    ranks, labels = ranks_of(con), dict(rows_of(con, "SELECT report_id, label FROM _labels"))
    steps = [(step, Edges(step, ranks)) for step in replayed_steps(con)]
    if not steps:
        raise InputError("nothing to replay: no timeline")
    categories = {HOST_WORK, *(name for _, edges in steps for name in edges.categories)}
    names = {name for _, edges in steps for name in edges.names}
    wishes = []
    for what, rank, share in asked:
        if rank is not None and rank not in ranks.values():
            raise InputError(f"--shorter {what}@{rank}: no such rank ('FROM job_ranks' lists them)")
        if what not in categories | names:
            hint = did_you_mean(what, sorted(categories | names))
            raise InputError(
                f"--shorter {what}: no such category, kernel, operation or call in these steps"
                f"{hint} ('FROM critical_path_parts' lists them)"
            )
        named = what not in categories
        part = Part(None if named else what, what if named else None, rank)
        wishes.append(Wish(part, share))
    found = []
    for step, edges in steps:
        replayed = edges.shorter([[(wish.part, wish.share) for wish in wishes]])
        if replayed is not None:
            found.append(
                Shorter(
                    step.report, labels.get(step.report, step.report), step.device,
                    replayed.steps, replayed.step_ns, replayed.new_ns[0],
                )
            )  # fmt: skip
    if not found:
        raise InputError("nothing to replay: the ends of the steps were not recorded")
    return tuple(wishes), found


def page(wishes: Sequence[Wish], found: Sequence[Shorter]) -> Report:
    """Return the page, for the renderers of reports."""
    source = Source("critical_path_gains", tuple(own.report for own in found))
    asked = ", ".join(wish.text for wish in wishes)
    rows = tuple(
        (own.label, own.device, asked, own.step_ns, own.new_ns, own.gain_pct, own.steps)
        for own in found
    )
    table = Table(
        "Steps with shorter parts",
        "Recorded steps, and the same steps replayed with shorter parts.",
        _COLUMNS,
        rows,
        len(rows),
        source,
        headline=1,
    )
    return Report(
        title="Steps with shorter parts",
        notice="This is a replay of recorded steps. Nothing was measured with shorter parts",
        statements=tuple(Fact("", text, source) for text in _sentences(asked, found)),
        summary=(Fact("Assumption", ASSUMED, source),),
        sections=(Section("shorter", "Steps with shorter parts", (table,), ""),),
        nothing_found="findings are in the report of the run",
    )


def _sentences(asked: str, found: Sequence[Shorter]) -> Iterator[str]:
    for own in found:
        times = f"{format_ns(own.step_ns)} -> {format_ns(own.new_ns)} a step"
        yield (
            f"{own.label} {gpu_name(own.device)}: {times} with {asked}, {own.gain_pct:.1f} % less "
            f"(mean of {counted(own.steps, 'step')})"
        )


def as_data(wishes: Sequence[Wish], found: Sequence[Shorter]) -> Mapping[str, Any]:
    """Return the replay as JSON data; times in ns."""
    return {
        "shorter": [
            {
                "category": wish.part.category,
                "name": wish.part.name,
                "rank": wish.part.rank,
                "percent": 100 * wish.share,
            }
            for wish in wishes
        ],
        "assumed": [ASSUMED],
        "configurations": [{**vars(own), "gain_pct": own.gain_pct} for own in found],
    }
