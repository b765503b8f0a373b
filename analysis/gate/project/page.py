"""The page of a projection: the time of a step on another GPU, part by part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfpipe.analysis.gate.across_gpus.progress import class_of
from perfpipe.analysis.gate.project.scaling import Span, name_of, ratios
from perfpipe.analysis.gate.project.totals import KERNELS, Moved, Whole
from perfpipe.specs import GpuSpec
from perfpipe.units import format_ns, with_article, words
from perfpipe.viewmodel import Column, Fact, Report, Section, Source, Table, Value

#: Rows of a table.
_MOST = 200
#: Configurations that have a sentence; the table has all.
_TOLD = 5
#: Intervals that are wider either way, as a share of their middle, decide nothing.
_WIDE = 0.15

#: Tables on the first screen.
_FIRST = ("Configurations", "Parts")

_NOW = Column("now_ns", "Measured", "ns", "", "measured time on the GPU of the run")
_SPAN = (
    Column(
        "low_ns",
        "Lowest",
        "ns",
        "",
        "shortest projected time, if the program uses both GPUs equally well",
    ),
    Column(
        "high_ns",
        "Highest",
        "ns",
        "",
        "longest projected time, if the program uses both GPUs equally well",
    ),
)
_LEAST = Column(
    "least_ns",
    "At the roofs",
    "ns",
    "",
    "time of the same work at 100 % of the roofs of the target GPU",
)
_REASON = Column("reason", "Note", "text", "", "what is unknown, and why")
_LABEL = Column("label", "Configuration", "text")
_OF_KERNEL = Column("label", "Configuration", "text", core=False)
_BY = Column("by", "Scales with", "text", "", "roof or link that scales the time")
_WHOLE_COLUMNS = (
    _LABEL,
    Column("kind", "Unit", "text", "", "step, iteration, whole capture or profiled kernels"),
    _NOW,
    Column(
        "known_ns",
        "Known part",
        "ns",
        "",
        "part of the measured time that the projection covers, if not all of it",
    ),
    *_SPAN,
    Column("faster", "Speedup", "text", "", "measured time / projected time"),
    _LEAST,
    Column("host_ns", "Host", "ns", "", "shortest time in which this host can issue the work"),
    Column("profiled_pct", "Profiled", "pct", "%", "share of the kernel time that ncu profiled"),
)
_PART_COLUMNS = (
    Column("part", "Part", "text", "", "category of the budget (gpu_time_budget)"),
    _LABEL,
    _NOW,
    *_SPAN,
    _LEAST,
    _BY,
    _REASON,
)
_KERNEL_COLUMNS = (
    Column("kernel_name", "Kernel", "text"),
    _OF_KERNEL,
    Column("grid", "Grid", "text", "blocks", core=False),
    Column(
        "class",
        "Bound",
        "text",
        "",
        "what bounds the kernel on the GPU of the run (kernel_bottleneck)",
    ),
    _NOW,
    *_SPAN,
    _LEAST,
    _BY,
    _REASON,
)


def projection_page(
    wholes: Sequence[Whole], before: GpuSpec, after: GpuSpec, names: Sequence[str]
) -> Report:
    """Return the page of a projection, for the renderers of reports."""
    source = Source("projection", tuple(names))
    tables = tuple(_tables(wholes, source))
    told = [sentence for whole in wholes[:_TOLD] for sentence in sentences(whole, before, after)]
    return Report(
        title=f"Projection from {before.name} to {after.name}",
        notice=(
            "This is an estimate from the roofs, as an interval. "
            f"Nothing was measured on {after.name}"
        ),
        statements=tuple(Fact("", text, source) for text in told),
        summary=tuple(Fact("Assumption", text, source) for text in assumptions(before, after)),
        sections=(
            Section("projection", "Projection", tables, "" if tables else "nothing to project"),
        ),
        nothing_found="findings are in the report of the run",
        warnings=tuple(Fact("", text, source) for text in _warnings(before, after)),
        provenance=tuple(Fact(spec.name, spec.source, source) for spec in (before, after)),
    )


def sentences(whole: Whole, before: GpuSpec, after: GpuSpec) -> Iterator[str]:
    """Yield the sentences of a projection on one configuration."""
    name = f"{whole.label}: " if whole.label not in ("", "-") else ""
    unit = "together" if whole.kind == KERNELS else with_article(whole.kind)
    now = f"{name}{format_ns(whole.known_ns or whole.now_ns)} {unit} on {before.name}"
    if whole.span is None or whole.faster is None:
        yield f"{now}: unknown on {after.name}, {_unknown(whole.parts)}"
        return
    yield f"{now}: {span_ns(whole.span)} on {after.name}, {span_times(whole.faster)} as fast"
    middle = (whole.span.low + whole.span.high) / 2
    if whole.span.high > (1 + _WIDE) * middle and not whole.host_decides:
        yield f"This interval is too wide for a decision: more than {100 * _WIDE:.0f} % either way"
    if whole.host_decides and whole.gpu is not None and whole.host is not None:
        yield (
            f"{after.name} would finish the GPU work in {span_ns(whole.gpu)}, but the host needs "
            f"{format_ns(whole.host.low)} to issue this work on any GPU"
        )
    left = whole.now_ns - whole.known_ns
    if left > 0 and (reason := _unknown(whole.parts)):
        yield f"{format_ns(left)} of {format_ns(whole.now_ns)} are not projected: {reason}"
    share = whole.profiled_pct
    if share is not None and share < 99.5:
        every = ratios(before, after).every()
        yield (
            f"ncu profiled {share:.0f} % of the kernel time; the time of every other kernel is "
            f"multiplied by {every.low:.2f} to {every.high:.2f}"
        )


def _unknown(parts: Sequence[Moved]) -> str:
    reasons = [part.reason for part in parts if part.span is None and part.reason]
    return "; ".join(dict.fromkeys(reasons))


def span_ns(span: Span) -> str:
    """Return an interval of times, such as '2.5 ms to 2.9 ms'."""
    low, high = format_ns(span.low), format_ns(span.high)
    return low if low == high else f"{low} to {high}"


def span_times(span: Span) -> str:
    """Return an interval of factors.

    >>> span_times(Span(1.001, 1.004)), span_times(Span(0.5, 1.5))
    ('1.00 times', '0.50 to 1.50 times')
    """
    low, high = f"{span.low:.2f}", f"{span.high:.2f}"
    return f"{low} times" if low == high else f"{low} to {high} times"


def assumptions(before: GpuSpec, after: GpuSpec) -> Iterator[str]:
    """Yield the assumptions of a projection; each of them may be wrong."""
    yield (
        f"every kernel reaches the same share of its roof on {after.name} as on {before.name} with "
        f"the same work, traffic and grid, and with the fastest instructions of {after.name}; time "
        "that no roof explains scales with the roofs, the SM clock, SMs x clock or the waves, or "
        "not at all, which gives the interval"
    )
    yield (
        "roofs are the vendor's dense peaks and bandwidths at maximum clocks; issue, load, integer "
        "and special-function rates per SM and cycle are the same on both GPUs; L2, which has no "
        "vendor figure, scales with DRAM or SMs x clock"
    )
    yield (
        "host time, launches, synchronization and gaps stay as the profiler measured them on this "
        "host; communication and copies scale with their link, or not at all; a step is never "
        "shorter than the host needs to issue it"
    )


def _warnings(before: GpuSpec, after: GpuSpec) -> Iterator[str]:
    if max(after.memory_gb) < min(before.memory_gb):
        yield (
            f"{after.name} has {max(after.memory_gb)} GB of memory, {before.name} has "
            f"{min(before.memory_gb)} GB: whether the program fits was not checked"
        )
    if missing := ratios(before, after).missing:
        told = "; ".join(missing.values())
        yield (
            f"{told}: profiled kernels that need it are excluded, and all other kernels are "
            "assumed not to need it"
        )


def _tables(wholes: Sequence[Whole], source: Source) -> Iterator[Table]:
    for title, doc, columns, rows in (
        (
            "Configurations",
            "Projected time of each configuration, if it uses both GPUs equally well.",
            _WHOLE_COLUMNS,
            [_whole_row(whole) for whole in wholes],
        ),
        (
            "Parts",
            "The parts of each time budget. GPU work scales with the GPU; host time does not.",
            _PART_COLUMNS,
            [
                (words(part.name), whole.label or None, *_cells(part))
                for whole in wholes
                for part in whole.parts
            ],
        ),
        (
            "Kernels",
            "Kernels by time. The time of each kernel scales with the roof that bounds the kernel.",
            _KERNEL_COLUMNS,
            _kernel_rows(wholes),
        ),
    ):
        if rows:
            place = _FIRST.index(title) + 1 if title in _FIRST else 0
            some = tuple(rows[:_MOST])
            yield Table(title, doc, columns, some, len(rows), source, headline=place)


def _whole_row(whole: Whole) -> tuple[Value, ...]:
    span, faster = whole.span, whole.faster
    return (
        whole.label or None,
        whole.kind,
        whole.now_ns,
        whole.known_ns if whole.known_ns != whole.now_ns else None,
        None if span is None else span.low,
        None if span is None else span.high,
        None if faster is None else span_times(faster).removesuffix(" times"),
        whole.least_ns,
        None if whole.host is None else whole.host.low,
        whole.profiled_pct,
    )


def _kernel_rows(wholes: Sequence[Whole]) -> list[tuple[Value, ...]]:
    every = [(whole.label, kernel) for whole in wholes for kernel in whole.kernels]
    every.sort(key=lambda item: (-item[1].now_ns, item[1].name))
    return [
        (
            one.name,
            label or None,
            one.kernel.grid if one.kernel else None,
            class_of(one.kernel.use) if one.kernel else None,
            *_cells(one),
        )
        for label, one in every
    ]


def _cells(one: Moved) -> tuple[Value, ...]:
    span = one.span
    by = name_of(one.by) if one.kernel and one.by != "unknown" else words(one.by)
    times = (None, None) if span is None else (span.low, span.high)
    return (one.now_ns, *times, one.least_ns, by, one.reason)
