"""Compares runs with a baseline: which configurations and kernels got faster or slower.

The sample is the run, not the launch: launches of one process are not independent, so a test on
pooled launches reports most unchanged kernels as changed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from analysis.rows import rows_of
from analysis.thresholds import thresholds
from perfpipe.database import in_list
from perfpipe.runrecord import RunRecord
from perfpipe.viewmodel import Column, Fact, Source, Table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Verdicts, most severe first.
VERDICTS = (
    *("regressed", "inconclusive", "unreplicated", "not comparable"),
    *("gone", "new", "improved", "same"),
)

_COLUMNS = (
    Column("what", "What", "text", "", "time of an iteration, or a kernel by its profiler"),
    Column("label", "Configuration", "text"),
    Column("kernel_name", "Kernel", "text"),
    Column("grid", "Grid", "text", "blocks", core=False),
    Column("block", "Block", "text", "threads", core=False),
    Column("before_ns", "Before", "ns", "", "median of the baseline's runs"),
    Column("after_ns", "After", "ns", "", "median of the compared runs"),
    Column("change_pct", "Change", "number", "%", "ratio of geometric means over the runs - 1"),
    Column("low_pct", "CI low", "number", "%", "lower end of the 95 % confidence interval"),
    Column("high_pct", "CI high", "number", "%", "upper end of the 95 % confidence interval"),
    Column("total_ns", "Total change", "ns", "", "change in time of all its launches in a run"),
    Column(
        "runs", "Runs", "text", "", "runs before and after; fewer than two per side prove nothing"
    ),
    Column("verdict", "Verdict", "text"),
    Column("note", "Note", "text", "", "why the two are not comparable", core=False),
)


class Key(NamedTuple):
    """What is matched; `profiler` is empty for the time of an iteration without a profiler."""

    profiler: str
    label: str
    kernel: str
    grid: str
    block: str


@dataclass
class Measured:
    """What one side measured for a key: median per run, launches per run, SM clocks."""

    medians: list[float] = field(default_factory=list)
    launches: list[int] = field(default_factory=list)
    sm_mhz: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Side:
    """One side of a comparison: measurements, GPU models, and ids of its runs."""

    measured: dict[Key, Measured]
    gpus: frozenset[str]
    names: tuple[str, ...]

    def __getitem__(self, key: Key) -> Measured:
        return self.measured.get(key, Measured())


class Change(NamedTuple):
    """A change in time, as ratio - 1; the interval is None with fewer than two runs per side."""

    ratio: float
    low: float | None
    high: float | None
    verdict: str


def judge(before: Sequence[float], after: Sequence[float]) -> Change:
    """Compare the times of runs: Welch's interval on the difference of their mean logarithms.

    The verdict is `regressed` or `improved` if the 95 % interval excludes no change and the change
    exceeds the threshold, `same` if the interval lies within the threshold, else `inconclusive`;
    `unreplicated` with a single run on a side.  Times must be positive.
    """
    logs = [math.log(time) for time in before], [math.log(time) for time in after]
    change = statistics.fmean(logs[1]) - statistics.fmean(logs[0])
    if min(len(before), len(after)) < 2:
        return Change(math.expm1(change), None, None, "unreplicated")
    margin = _margin(*logs)
    low, high = change - margin, change + margin
    limit = math.log1p(thresholds()["compare.change_pct"] / 100)
    if (low > 0 or high < 0) and abs(change) > limit:
        verdict = "regressed" if change > 0 else "improved"
    elif -limit <= low and high <= limit:
        verdict = "same"
    else:
        verdict = "inconclusive"
    return Change(math.expm1(change), math.expm1(low), math.expm1(high), verdict)


def _margin(before: Sequence[float], after: Sequence[float]) -> float:
    """Return half of Welch's 95 % interval on the difference of two means."""
    errors = [statistics.variance(side) / len(side) for side in (before, after)]
    if not sum(errors):
        return 0
    from scipy.stats import t

    # Welch-Satterthwaite: the two sides may have different variances.
    freedom = sum(errors) ** 2 / sum(
        error**2 / (len(side) - 1) for error, side in zip(errors, (before, after), strict=True)
    )
    return float(t.ppf(0.975, freedom)) * math.sqrt(sum(errors))


def side_of(con: DuckDBPyConnection, runs: Sequence[RunRecord], reports: Sequence[str]) -> Side:
    """Gather one side: runs with their reports; a report without a run counts as a run."""
    found: dict[Key, Measured] = {}
    owners: dict[str, tuple[int, str]] = {}
    kernels: dict[tuple[Key, int], list[tuple[float, int]]] = {}
    for number, run in enumerate(runs):
        for task in run.tasks:
            owners |= dict.fromkeys(task.reports, (number, task.label))
            if task.median_ms is not None:
                own = found.setdefault(Key("", task.label, "", "", ""), Measured())
                own.medians.append(task.median_ms * 1e6)
                own.launches.append(1)
                clock = task.gpu_state and task.gpu_state.sm_mhz
                own.sm_mhz += [clock] if clock else []
    for number, report in enumerate(r for r in reports if r not in owners):
        owners[report] = (len(runs) + number, "")
    sql = f"SELECT * FROM kernel_times WHERE report_id IN {in_list(list(owners))}"
    for report, profiler, kernel, grid, block, launches, median, _ in rows_of(con, sql):
        number, label = owners[report]
        key = Key(profiler, label, kernel, grid, block)
        if median > 0:
            kernels.setdefault((key, number), []).append((median, launches))
    # Several processes of one run are one sample: they are not independent.
    for (key, _), times in sorted(kernels.items()):
        own = found.setdefault(key, Measured())
        own.medians.append(statistics.median(median for median, _ in times))
        own.launches.append(sum(count for _, count in times))
    sql = f"SELECT DISTINCT gpu FROM reports WHERE report_id IN {in_list(reports)}"
    gpus = frozenset(str(gpu) for (gpu,) in rows_of(con, sql) if gpu)
    return Side(found, gpus, tuple(run.run_id for run in runs) or tuple(reports))


@dataclass(frozen=True)
class Comparison:
    """The difference from a baseline: tables, sentences for the verdict, and what was compared."""

    tables: tuple[Table, ...]
    statements: tuple[Fact, ...]
    sides: tuple[Fact, ...]


def compare(before: Side, after: Side) -> Comparison:
    """Compare two sides: configurations by time, kernels per profiler.

    Times on different GPU models are not compared.
    """
    source = Source("comparison", before.names + after.names)
    rows = sorted(_rows(before, after), key=_order)
    tables, facts = [], []
    for title, doc, timed in (
        ("Regression check: configurations", "Time of an iteration without a profiler", True),
        ("Regression check: kernels", "Kernels by name, grid, block and configuration", False),
    ):
        own = [row for row in rows if (row.what == "time") == timed]
        if not own:
            continue
        facts.append(Fact("", _sentence(own, "configurations" if timed else "kernels"), source))
        doc += f" compared with the baseline; changes below {_limit()} % are ignored."
        columns = tuple(c for c in _COLUMNS if not (timed and c.name in _OF_KERNELS))
        at = [_COLUMNS.index(column) for column in columns]
        shown = tuple(tuple(row[i] for i in at) for row in own)
        tables.append(Table(title, doc, columns, shown[:_MOST], len(shown), source))
    sides = tuple(
        Fact(title, ", ".join(side.names), Source("comparison", side.names))
        for title, side in (("Baseline", before), ("Compared", after))
    )
    return Comparison(tuple(tables), tuple(facts), sides)


#: Rows of a table.
_MOST = 200

_OF_KERNELS = {"what", "kernel_name", "grid", "block", "total_ns"}


class Row(NamedTuple):
    """A row of the tables: the columns of `_COLUMNS`, in their order."""

    what: str
    label: str
    kernel_name: str
    grid: str
    block: str
    before_ns: float | None
    after_ns: float | None
    change_pct: float | None
    low_pct: float | None
    high_pct: float | None
    total_ns: float | None
    runs: str
    verdict: str
    note: str | None


def _rows(before: Side, after: Side) -> Iterator[Row]:
    foreign = None
    if before.gpus != after.gpus:
        foreign = f"{_list(before.gpus)} before, {_list(after.gpus)} after"
    for key in before.measured.keys() | after.measured.keys():
        old, new = before[key], after[key]
        old_ns = statistics.median(old.medians) if old.medians else None
        new_ns = statistics.median(new.medians) if new.medians else None
        note, change, total = foreign, None, None
        if old_ns is None or new_ns is None:
            verdict = "gone" if new_ns is None else "new"
        else:
            change = judge(old.medians, new.medians)
            if note is None and change.verdict in ("improved", "regressed"):
                note = _clocks(old, new, change.verdict)
            verdict = "not comparable" if note else change.verdict
            total = (new_ns - old_ns) * statistics.median(new.launches)
        yield Row(
            f"{key.profiler} kernel" if key.profiler else "time",
            *key[1:],
            old_ns,
            new_ns,
            _percent(change and change.ratio),
            _percent(change and change.low),
            _percent(change and change.high),
            total,
            f"{len(old.medians)} and {len(new.medians)}",
            verdict,
            note,
        )


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else 100 * ratio


def _order(row: Row) -> tuple[Any, ...]:
    """Sort by absolute change in time, not by percent; unmatched rows come last."""
    return (row.total_ns is None, -abs(row.total_ns or 0), *row[:5])


def _clocks(before: Measured, after: Measured, verdict: str) -> str | None:
    """Return a note if clocks explain a change: they differ, and cycles did not change likewise."""
    if any(len(side.sm_mhz) != len(side.medians) for side in (before, after)):
        return None
    old, new = statistics.median(before.sm_mhz), statistics.median(after.sm_mhz)
    if abs(new / old - 1) * 100 <= thresholds()["compare.clock_pct"]:
        return None
    cycles = [
        [time * clock for time, clock in zip(side.medians, side.sm_mhz, strict=True)]
        for side in (before, after)
    ]
    if judge(*cycles).verdict == verdict:
        return None
    return f"SM clock {old:,.0f} MHz before, {new:,.0f} MHz after; cycles did not change as much"


def _sentence(rows: Sequence[Row], what: str) -> str:
    counts = {verdict: sum(row.verdict == verdict for row in rows) for verdict in VERDICTS}
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    text = f"Compared with the baseline, of {len(rows)} {what}: {told}"
    if single := [row.change_pct or 0 for row in rows if row.verdict == "unreplicated"]:
        text += (
            f", changed by {min(single):+.1f} to {max(single):+.1f} % (one run per side proves "
            "nothing: repeat both)"
        )
    for verdict in ("regressed", "improved"):
        # Rows are sorted by change in time, largest first.
        for row in [row for row in rows if row.verdict == verdict][:1]:
            name = " ".join(part for part in (row.kernel_name, row.label) if part)
            text += (
                f"; most {verdict}: {name or 'the only one'}, {row.change_pct:+.1f} % "
                f"({row.low_pct:+.1f} to {row.high_pct:+.1f} %)"
            )
    return text


def _limit() -> str:
    return f"{thresholds()['compare.change_pct']:g}"


def _list(names: frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "an unknown GPU"
