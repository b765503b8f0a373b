"""The tables and sentences of a report on a comparison with a baseline."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perfpipe.analysis.gate.compare.comparison import Compared, Pairs, pairs_of
from perfpipe.analysis.gate.compare.explain import NO_TIMELINE, Explanation, explain
from perfpipe.analysis.gate.judging import ONE_RUN, Change
from perfpipe.analysis.gate.limits import USUAL, Limits, told
from perfpipe.analysis.gate.sides import (
    CAPTURE,
    ENDPOINTS,
    ITERATION,
    KERNEL,
    PROFILED,
    STEP,
    WALL,
    Measured,
    Side,
)
from perfpipe.analysis.thresholds import thresholds
from perfpipe.units import format_ns, words
from perfpipe.viewmodel import Column, Fact, Source, Table, Value

#: Verdicts, most severe first.
VERDICTS = (
    *("regressed", "inconclusive", "unreplicated", "not comparable"),
    *("gone", "new", "improved", "same"),
)

_BEFORE = (
    Column("before_ns", "Before", "ns", "", "median over the baseline's runs"),
    Column("after_ns", "After", "ns", "", "median of the compared runs"),
    Column(
        "change_pct",
        "Change",
        "number",
        "%",
        "ratio of the geometric means over the runs, minus 1; "
        "with outliers, the median ratio of runs",
    ),
    Column(
        "low_pct", "95 % CI, lower end", "number", "%", "lower end of the 95 % confidence interval"
    ),
    Column(
        "high_pct", "95 % CI, upper end", "number", "%", "upper end of the 95 % confidence interval"
    ),
)
_BEHIND = (
    Column(
        "q",
        "Adjusted p-value",
        "number",
        "",
        "p-value of the change, adjusted for multiple tests (Benjamini-Hochberg): "
        "the expected share of false positives among the changes up to this q",
        core=False,
    ),
    Column(
        "runs",
        "Runs",
        "text",
        "",
        "number of runs before and after; fewer than two per side prove nothing",
    ),
    Column(
        "sm_mhz",
        "SM clock",
        "text",
        "MHz",
        "clock before and after, from the profiler or else from the timed launches of the same run",
        core=False,
    ),
    Column("verdict", "Verdict", "text", "", "verdict on the change; parts of a step have none"),
    Column("note", "Note", "text", "", "reason for the verdict", core=False),
)
_LABEL = Column("label", "Configuration", "text")
_STEP_COLUMNS = (
    Column(
        "what",
        "Measured unit",
        "text",
        "",
        "an iteration without a profiler, a step, or a part of a step",
    ),
    _LABEL,
    *_BEFORE,
    Column("total_ns", "Difference", "ns", "", "time after minus time before"),
    *_BEHIND,
)
_ENERGY_COLUMNS = (
    Column(
        "what",
        "Measured energy",
        "text",
        "",
        "of a step that perfpipe observed, or of an execution without a profiler; idle power "
        "included",
    ),
    _LABEL,
    Column("before_j", "Before", "number", "J", "median over the baseline's runs"),
    Column("after_j", "After", "number", "J", "median of the compared runs"),
    *_BEFORE[2:],
    *(column for column in _BEHIND if column.name != "sm_mhz"),
)
_KERNEL_COLUMNS = (
    Column("what", "Timed by", "text", "", "profiler that timed the kernel"),
    _LABEL,
    Column("kernel_name", "Kernel", "text"),
    Column("grid", "Grid", "text", "blocks", core=False),
    Column("block", "Block", "text", "threads", core=False),
    *_BEFORE,
    Column(
        "total_ns",
        "Total change",
        "ns",
        "",
        "change in the total time of all launches of the kernel, per step if there are steps",
    ),
    *_BEHIND,
)

#: Rows of a table; parts of a step that a sentence names, and their least share of it.
_MOST, _PARTS, _LEAST_SHARE = 200, 3, 0.01

#: From this ratio on, a change is shown as a multiple.
_MULTIPLE = 1.5


@dataclass(frozen=True)
class Comparison:
    """The difference from a baseline: tables, sentences for the verdict, and what was compared."""

    tables: tuple[Table, ...]
    statements: tuple[Fact, ...]
    sides: tuple[Fact, ...]
    why: Explanation
    pairs: Pairs


def compare(
    before: Side,
    after: Side,
    *,
    allow_mixed: bool = False,
    limits: Limits = USUAL,
    no_timeline: str = NO_TIMELINE,
) -> Comparison:
    """Compare two sides: why it changed, steps with their parts, kernels by profiler.

    `no_timeline` says why a side may have no timeline.
    """
    source = Source("comparison", before.names + after.names)
    pairs = pairs_of(before, after, allow_mixed=allow_mixed, limits=limits)
    why = explain(pairs, before, after, no_timeline=no_timeline)
    tables = [*why.tables(source)]
    for title, doc, own, columns in (
        (
            "Regression check: steps",
            "Iteration time without a profiler, step time, and mean time per step of each budget "
            f"category, compared with the baseline; {_ignored(pairs.steps)}.",
            pairs.steps,
            _STEP_COLUMNS,
        ),
        (
            "Regression check: energy",
            "Energy of the GPUs that the program may use, compared with the baseline; "
            f"{_ignored(pairs.energies)}. The verdict on the times does not depend on it.",
            tuple(pair for pair in pairs.energies if pair.change),
            _ENERGY_COLUMNS,
        ),
        (
            "Regression check: kernels",
            "Kernels by name, grid, block and configuration, tested together (Benjamini-Hochberg, "
            f"5 %), compared with the baseline; {_ignored(pairs.kernels)}.{_on_timers(pairs)}",
            pairs.kernels,
            _KERNEL_COLUMNS,
        ),
    ):
        if own:
            rows = tuple(_cells(pair, columns) for pair in own[:_MOST])
            tables.append(Table(title, doc, columns, rows, len(own), source))
    sides = tuple(
        Fact(title, ", ".join(side.names), Source("comparison", side.names))
        for title, side in (("Baseline", before), ("Compared", after))
    )
    statements = tuple(Fact("", text, source) for text in _sentences(pairs))
    return Comparison(tuple(tables), statements, sides, why, pairs)


def _ignored(pairs: Sequence[Compared]) -> str:
    return f"changes below {told(pair.limit_pct for pair in pairs)} are ignored"


def _on_timers(pairs: Pairs) -> str:
    """Return a sentence on the timer resolution of kernel durations."""
    used = {pair.key.profiler for pair in pairs.kernels}
    told = [
        f"{profiler} {step} ns ({origin})"
        for profiler, (step, origin) in sorted(pairs.timers.items())
        if profiler in used and step > 1
    ]
    return (
        f" Intervals are at least as wide as the timer's step: {', '.join(told)}." if told else ""
    )


def _cells(pair: Compared, columns: Sequence[Column]) -> tuple[Value, ...]:
    key, change = pair.key, pair.change
    counts = [len(side.medians) for side in (pair.before, pair.after)]
    before_j, after_j = pair.medians if pair.is_energy else (None, None)
    values: dict[str, Value] = {
        "what": _what(pair),
        "label": key.label,
        "kernel_name": key.kernel,
        "grid": key.grid,
        "block": key.block,
        "before_ns": pair.before_ns,
        "after_ns": pair.after_ns,
        "before_j": before_j,
        "after_j": after_j,
        "change_pct": _percent(change.ratio if change else _ratio(pair)),
        "low_pct": _percent(change and change.low) if pair.verdict else None,
        "high_pct": _percent(change and change.high) if pair.verdict else None,
        "total_ns": pair.total_ns,
        "q": pair.q,
        "runs": f"{counts[0]} and {counts[1]}",
        "sm_mhz": _clock(pair),
        "verdict": pair.verdict,
        "note": pair.note,
    }
    return tuple(values[column.name] for column in columns)


def _what(pair: Compared) -> str:
    profiler, _, part, *_ = pair.key
    if part == KERNEL:
        return f"{profiler} kernel"
    if part == PROFILED:
        return f"profiled kernels ({profiler})"
    if part in (STEP, CAPTURE):
        return f"{part} ({profiler})"
    return f"{words(part)} ({profiler})" if profiler else part


def _clock(pair: Compared) -> str | None:
    """Return the SM clocks before and after, as far as they are known."""
    sides = [_median_clock(side) for side in (pair.before, pair.after)]
    return " and ".join(sides) if any(side != "-" for side in sides) else None


def _median_clock(side: Measured) -> str:
    known = [clock for clock in side.sm_mhz if clock]
    return f"{statistics.median(known):,.0f}" if known else "-"


def _ratio(pair: Compared) -> float | None:
    """Return the change of a part that took no time in some runs."""
    before_ns, after_ns = pair.before_ns, pair.after_ns
    return after_ns / before_ns - 1 if before_ns and after_ns is not None else None


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else 100 * ratio


def _sentences(pairs: Pairs) -> Iterator[str]:
    """Yield the sentences of the verdict: the primary endpoint first, then kernels."""
    for part in ENDPOINTS:
        own = [p for p in pairs.steps if p.key.part == part]
        profiler = own[0].key.profiler if own else ""
        own = [pair for pair in own if pair.key.profiler == profiler]
        if any(pair.change for pair in own):
            yield _primary(own[0], pairs) if len(own) == 1 else _counted(own, "configurations")
            break
    if pairs.kernels:
        yield _counted(pairs.kernels, "kernels")
    if pairs.order:
        yield (
            f"The runs of the two sides {pairs.order}, so the change includes drift: changes below "
            f"{thresholds()['compare.drift_pct']:g} % are treated as noise (to avoid drift, "
            "alternate the runs: A B B A)"
        )


def _primary(pair: Compared, pairs: Pairs) -> str:
    """Return the change of the primary endpoint, and the parts that changed."""
    what = {
        ITERATION: "An iteration",
        WALL: "A launch of the program, from start to end,",
        STEP: "A step",
        CAPTURE: "The capture",
    }
    text = (
        f"{what.get(pair.key.part, 'The sum of all profiled kernels')} took "
        f"{format_ns(pair.before_ns or 0)} in the baseline and takes "
        f"{format_ns(pair.after_ns or 0)} now: {_by_how_much(pair)}, {_judged(pair)}"
    )
    step = next((p for p in pairs.steps if p.key.part in (STEP, CAPTURE)), None)
    parts = [
        p
        for p in pairs.steps
        if step and p.key.part not in ENDPOINTS and p.key[:2] == step.key[:2]
        if abs(p.total_ns or 0) >= _LEAST_SHARE * (step.before_ns or 0)
    ]
    told = ", ".join(
        f"{words(p.key.part)} {'+' if (p.total_ns or 0) > 0 else '-'}"
        f"{format_ns(abs(p.total_ns or 0))}"
        for p in parts[:_PARTS]
    )
    return f"{text} ({told} per step)" if told else text


def _by_how_much(pair: Compared) -> str:
    ratio = pair.change.ratio if pair.change else 0
    if 1 + ratio <= 1 / _MULTIPLE:
        return f"{1 / (1 + ratio):.1f} times as fast"
    if 1 + ratio >= _MULTIPLE:
        return f"{1 + ratio:.1f} times as long"
    return f"{100 * ratio:+.1f} %"


def _judged(pair: Compared) -> str:
    if pair.verdict == "unreplicated":
        return f"unreplicated ({ONE_RUN})"
    if pair.note:
        return f"{pair.verdict} ({pair.note})"
    return f"{pair.verdict} ({pair.change.interval if pair.change else ''})"


def _counted(pairs: Sequence[Compared], what: str) -> str:
    counts = {verdict: sum(pair.verdict == verdict for pair in pairs) for verdict in VERDICTS}
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    text = f"{len(pairs)} {what} were compared with the baseline: {told}"
    single = [100 * p.change.ratio for p in pairs if p.verdict == "unreplicated" and p.change]
    if single:
        text += f", changed by {min(single):+.1f} to {max(single):+.1f} % ({ONE_RUN})"
    for verdict in ("regressed", "improved"):
        # Pairs are sorted by change in time, largest first.
        for pair in [pair for pair in pairs if pair.verdict == verdict][:1]:
            name = " ".join(part for part in (pair.key.kernel, pair.key.label) if part)
            change = pair.change or Change(0)
            text += (
                f"; largest change among those that {verdict}: {name or 'the only one'}, "
                f"{100 * change.ratio:+.1f} % ({change.interval})"
            )
    return text
