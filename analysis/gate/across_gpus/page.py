"""The page of a comparison of two GPU models: measured and possible speedup."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from perfpipe.analysis.gate.across_gpus.progress import Profiled, Reached, Work, class_of, is_short
from perfpipe.analysis.gate.across_gpus.reading import Across
from perfpipe.analysis.gate.project.page import assumptions, span_times
from perfpipe.analysis.gate.project.scaling import Span
from perfpipe.units import counted, format_ns, with_article
from perfpipe.viewmodel import Column, Fact, Report, Section, Source, Table, Value

#: Rows of a table; configurations and kernels that sentences cover.
_MOST, _TOLD, _LOSSES = 200, 3, 2

#: Tables on the first screen.
_FIRST = ("Configurations", "Kernels")

_RATIO = Column("ratio", "Speedup", "number", "", "time on A / time on B")
_POSSIBLE = Column(
    "possible",
    "Possible speedup",
    "text",
    "",
    "speedup if the work reached the same percentage of the roofs on B as on A",
)
_GOT_PCT = Column(
    "got_pct",
    "Achieved",
    "pct",
    "%",
    "measured speedup / largest possible speedup; above 100, the work uses B better than A",
)
_HELD = Column(
    "held_by",
    "Limits on B",
    "text",
    "",
    "limits that are new on B, and features of B that are not used",
)
_REASON = Column(
    "reason",
    "Why unknown",
    "text",
    "",
    "why the possible speedup is unknown",
)
_LABEL = Column("label", "Configuration", "text")
_WORK_COLUMNS = (
    _LABEL,
    Column("part", "Unit", "text", "", "an iteration without a profiler, a step, or a capture"),
    Column("before_ns", "Time on A", "ns"),
    Column("after_ns", "Time on B", "ns"),
    _RATIO,
    _POSSIBLE,
    _GOT_PCT,
    _HELD,
    _REASON,
)
_KERNEL_COLUMNS = (
    Column("kernel_name", "Kernel on A", "text"),
    Column("other", "Kernel on B", "text", "", "name, if B runs a different kernel"),
    Column("label", "Configuration", "text", core=False),
    Column("class_a", "Bound on A", "text", "", "what bounds the kernel (kernel_bottleneck)"),
    Column("class_b", "Bound on B", "text", core=False),
    Column("before_ns", "Time on A", "ns", "", "median of the kernel's profiled launches"),
    Column("after_ns", "Time on B", "ns", "", "median of the kernel's profiled launches"),
    _RATIO,
    _POSSIBLE,
    Column(
        "roofs", "Speedup at the roofs", "number", "", "speedup at 100 % of B's roofs", core=False
    ),
    _GOT_PCT,
    _HELD,
    Column("how", "Matched by", "text", core=False),
    _REASON,
)
_LEFT_COLUMNS = (
    Column("kernel_name", "Kernel", "text"),
    Column("gpu", "GPU", "text"),
    Column("label", "Configuration", "text", core=False),
    Column("launches", "Launches", "int"),
    Column("time_ns", "Time", "ns", "", "median of the kernel's profiled launches"),
)


def across_page(found: Across, names: Sequence[str]) -> Report:
    """Return the page of a comparison across GPUs, for the renderers of reports."""
    source = Source("comparison across GPUs", tuple(names))
    tables = tuple(_tables(found, source))
    missing = "the two sides have no configuration and no profiled kernel in common"
    before, after = found.gpus
    return Report(
        title=f"{before.name} (A) and {after.name} (B)",
        notice=None,
        statements=tuple(Fact("", text, source) for text in sentences(found) or [missing]),
        summary=tuple(Fact("Assumption", text, source) for text in _assumed(found)),
        sections=(Section("across", "Across GPUs", tables, "" if tables else missing),),
        nothing_found="findings are in the reports of the runs",
        provenance=tuple(Fact(spec.name, spec.source, source) for spec in found.gpus),
    )


def _assumed(found: Across) -> Iterator[str]:
    yield (
        "the possible speedup assumes that every kernel reaches the same share of each roof on B "
        "as on A; for L2, the roof is the bandwidth that ncu measured, if ncu measured it on both"
    )
    yield from [*assumptions(*found.gpus)][:2]


def sentences(found: Across) -> list[str]:
    """Return the sentences of a comparison: configurations, kernels, and the largest losses."""
    told = [_of_work(work) for work in found.works[:_TOLD] if work.ratio is not None]
    if found.kernels:
        told.append(_of_kernels(found))
    lost = [one for one in found.kernels if is_short(one.pair.ratio, one.possible)]
    return told + [_of_loss(one) for one in lost[:_LOSSES]]


def _of_work(work: Work) -> str:
    name = f"{work.label}: " if work.label not in ("", "-") else ""
    times = f"{format_ns(work.after_ns or 0)} instead of {format_ns(work.before_ns or 0)}"
    text = (
        f"{name}{with_article(work.part)} is {work.ratio:.2f} times as fast on B as on A ({times})"
    )
    if work.possible is None or work.got_pct is None:
        return f"{text}; the possible speedup is unknown: {work.reason}"
    text += f"; possible speedup: {span_times(work.possible)}"
    short = is_short(work.ratio, work.possible)
    return f"{text}: {'; '.join(work.held_by)}" if work.held_by and short else text


def _of_kernels(found: Across) -> str:
    known = [one for one in found.kernels if one.possible is not None]
    others = sum(one.pair.before.key != one.pair.after.key for one in found.kernels)
    left = len(found.only_before) + len(found.only_after)
    before = math.fsum(one.pair.before.time_ns for one in found.kernels)
    after = math.fsum(one.pair.after.time_ns for one in found.kernels)
    text = (
        f"{counted(len(found.kernels), 'matched profiled kernel')}: one launch of each takes "
        f"{format_ns(after)} in total on B and {format_ns(before)} on A "
        f"({before / after:.2f} times as fast)"
    )
    if known and len(known) == len(found.kernels):
        low, high = (
            math.fsum(one.pair.before.time_ns * end(one.scaled.kept) for one in known)
            for end in (_low, _high)
        )
        if low > 0:
            possible = Span(before / high, before / low)
            text += f"; possible speedup: {span_times(possible)}"
    if others:
        text += f"; {others} of them run as a different kernel on B"
    return f"{text}; {left} have no counterpart" if left else text


def _low(span: Span | None) -> float:
    return span.low if span else 0.0


def _high(span: Span | None) -> float:
    return span.high if span else 0.0


def _of_loss(one: Reached) -> str:
    pair = one.pair
    chosen = "" if pair.before.key == pair.after.key else f" ({pair.after.name} on B)"
    possible = "" if one.possible is None else f" (possible: {span_times(one.possible)})"
    why = "; ".join(one.held_by) or "the profiles do not show why"
    return f"{pair.before.name}{chosen} is {pair.ratio:.2f} times as fast on B{possible}: {why}"


def _tables(found: Across, source: Source) -> Iterator[Table]:
    left = [*((found.gpus[0].name, one) for one in found.only_before)]
    left += [(found.gpus[1].name, one) for one in found.only_after]
    for title, doc, columns, rows in (
        ("Configurations", "The same configuration on both GPUs.", _WORK_COLUMNS, _works(found)),
        (
            "Kernels",
            "Profiled kernels that do the same work on both GPUs, in order of the time that they "
            "lose on B compared with the possible speedup.",
            _KERNEL_COLUMNS,
            [_kernel(one) for one in found.kernels],
        ),
        (
            "Kernels without a counterpart",
            "Kernels that were profiled on only one GPU, or that do different work on the "
            "two GPUs.",
            _LEFT_COLUMNS,
            [_alone(gpu, one) for gpu, one in left],
        ),
    ):
        if rows:
            place = _FIRST.index(title) + 1 if title in _FIRST else 0
            some = tuple(rows[:_MOST])
            yield Table(title, doc, columns, some, len(rows), source, headline=place)


def _times(span: Span | None) -> str | None:
    return None if span is None else span_times(span).removesuffix(" times")


def _works(found: Across) -> list[tuple[Value, ...]]:
    return [
        (
            work.label or None,
            work.part,
            work.before_ns,
            work.after_ns,
            work.ratio,
            _times(work.possible),
            work.got_pct,
            "; ".join(work.held_by) or None,
            work.reason,
        )
        for work in found.works
    ]


def _kernel(one: Reached) -> tuple[Value, ...]:
    old, new = one.pair.before, one.pair.after
    return (
        old.name,
        new.name if new.key != old.key else None,
        old.label or None,
        class_of(old.use),
        class_of(new.use),
        old.time_ns,
        new.time_ns,
        one.pair.ratio,
        _times(one.possible),
        one.roofs,
        one.got_pct,
        "; ".join(one.held_by) or None,
        one.pair.how,
        one.reason,
    )


def _alone(gpu: str, one: Profiled) -> tuple[Value, ...]:
    return (one.name, gpu, one.label or None, one.launches, one.time_ns)
