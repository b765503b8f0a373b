"""Why it changed: where the time went, what differs between the sides, counters that moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from perfpipe.analysis.facts import ARM, COMPILED, ENVIRONMENT, GIT, PACKAGE, PARAMETER, WORK
from perfpipe.analysis.gate.compare.comparison import Compared, Pairs, matched
from perfpipe.analysis.gate.compare.differences import Difference, conditions, counters, settings
from perfpipe.analysis.gate.compare.kernel_changes import KernelChange, kernel_changes, kernel_table
from perfpipe.analysis.gate.compare.share import Share, signed
from perfpipe.analysis.gate.sides import CAPTURE, ENDPOINTS, ITERATION, PROFILED, STEP, Side
from perfpipe.analysis.short_names import short_names
from perfpipe.units import counted, format_ns, words
from perfpipe.viewmodel import Column, Source, Table, Value

#: Columns of the table of differences.
COLUMNS = (
    Column("name", "What differs", "text"),
    Column(
        "kind",
        "Type of difference",
        "text",
        "",
        "part of the time, kernel, setting, condition or counter",
    ),
    Column("before", "Before", "text"),
    Column("after", "After", "text"),
    Column("change", "Difference", "text"),
    Column(
        "share_pct",
        "Share of the change",
        "number",
        "%",
        "share of the change in the step's mean time; parts of the time add up to 100 %, "
        "overlapping kernels can add up to more",
    ),
)

#: Kind of the differences that are kernels.
KERNEL = "kernel"

#: Most items of a kind in a sentence, rows of a short table, kernels with their counters.
_NAMED, _BRIEF, _COUNTED = 3, 4, 3

#: Why it is unknown where the time went, if a side has no timeline.
NO_TIMELINE = "both sides need a timeline ('perfpipe run' or 'perfpipe ab --explain' records one)"

#: Kinds of settings whose names are ambiguous without the kind.
_AMBIGUOUS = (PARAMETER, ARM, WORK, ENVIRONMENT, PACKAGE, COMPILED, GIT)


@dataclass(frozen=True)
class Explanation:
    """Why a time changed: a paragraph, and the differences, most significant first.

    It lists the differences even if no change was found; `changed` says whether one was.
    """

    text: str
    rows: tuple[Difference, ...] = ()
    changed: bool = True
    kernels: tuple[KernelChange, ...] = ()
    share: Share | None = None

    @property
    def title(self) -> str:
        """Its title."""
        return "Why it changed" if self.changed else "Differences"

    @property
    def brief(self) -> tuple[Difference, ...]:
        """The first rows of each kind."""
        kinds: dict[tuple[bool, str], list[Difference]] = {}
        for row in self.rows:
            kinds.setdefault((row.given, row.kind), []).append(row)
        return tuple(row for own in kinds.values() for row in own[:_BRIEF])

    def tables(self, source: Source) -> Iterator[Table]:
        """Yield the differences and the changes of the kernels, with numbers."""
        own = [row for row in self.rows if row.kind != KERNEL]
        rows = tuple(tuple(_rounded(getattr(row, c.name)) for c in COLUMNS) for row in own)
        if self.rows:
            yield Table(self.title, self.text, COLUMNS, rows, len(rows), source)
        if self.kernels and self.share is not None:
            yield kernel_table(self.kernels, self.share, source)


def _rounded(value: Value) -> Value:
    return round(value, 1) if isinstance(value, float) else value


def explain(
    pairs: Pairs, before: Side, after: Side, *, no_timeline: str = NO_TIMELINE
) -> Explanation:
    """Explain the largest change in the time of a step, else of the capture.

    Settings that the user changed come first: the rest may follow from them.  A share is given if
    the time changed by more than the threshold of comparisons.  `no_timeline` says why a side may
    have no timeline, or which option records one.
    """
    before, after = matched(before, after)
    step = _subject(pairs)
    parts = [p for p in pairs.steps if step and _belongs(p, step)]
    whole = sum(part.total_ns or 0 for part in parts) if parts else (step and step.total_ns) or 0
    share = Share(whole, step)
    kernels = kernel_changes(pairs, step)
    names = short_names([[kernel.name for kernel in kernels]])
    moved = [
        (kernel, found)
        for kernel in _telling(kernels, share)
        if (found := counters(*_counters(kernel, before, after)))
    ]
    differing = [*settings(before.facts, after.facts)]
    given, differ = ([d for d in differing if d.given == own] for own in (True, False))
    met = [*conditions(before.facts, after.facts)]
    rows = (
        *given,
        *(_part(part, share) for part in parts if share.counts(part.total_ns or 0)),
        *(_row(kernel, names, share) for kernel in kernels if share.counts(kernel.change_ns)),
        *differ,
        *met,
        *(
            replace(row, name=f"{row.name} of {names[kernel.name]}")
            for kernel, found in moved
            for row in found
        ),
    )
    unknown = _nothing_alike(pairs, before, after) or (
        f"Where the time went is unknown, because {no_timeline}" if _changed(pairs) else ""
    )
    sentences = (
        *_of_settings("Settings that were changed on purpose", given),
        *_causes(pairs),
        *_of_time(step, parts, share, unknown),
        *_of_kernels(kernels, names, share, _hidden(before, after, step)),
        *_same_settings(given, differ),
        *_of_settings("Other differences" if given else "Differences", differ),
        *_of_settings("Conditions of the timed runs", met),
        *_of_counters(moved, names, _telling(kernels, share)),
    )
    return Explanation(
        " ".join(f"{text}." for text in sentences),
        rows,
        _found(pairs),
        tuple(kernel for kernel in kernels if share.counts(kernel.change_ns)),
        share,
    )


def _subject(pairs: Pairs) -> Compared | None:
    """Return the step that changed most, on a timeline if possible, else under ncu."""
    for kinds in ((STEP, CAPTURE), (PROFILED,)):
        own = [
            p for p in pairs.steps if p.key.part in kinds and p.change and p.total_ns is not None
        ]
        if own:
            return max(own, key=lambda pair: abs(pair.total_ns or 0))
    return None


def _belongs(part: Compared, step: Compared) -> bool:
    return part.key.part not in ENDPOINTS and part.key[:2] == step.key[:2]


def _hidden(before: Side, after: Side, step: Compared | None) -> bool:
    """Return whether CUDA graphs hide the kernels of a step on a timeline."""
    if step is None or step.key.part == PROFILED:
        return False
    return step.key.label in before.hidden | after.hidden


def _telling(kernels: Sequence[KernelChange], share: Share) -> list[KernelChange]:
    """Return the first kernels with a significant share of the change."""
    return [kernel for kernel in kernels if share.tells(kernel.change_ns)][:_COUNTED]


def _counters(
    kernel: KernelChange, before: Side, after: Side
) -> tuple[dict[str, float], dict[str, float]]:
    keys = (kernel.before, before), (kernel.after, after)
    found = [
        side.counters.get(key._replace(profiler="ncu"), {}) if key else {} for key, side in keys
    ]
    return found[0], found[1]


def _part(part: Compared, share: Share) -> Difference:
    change = part.total_ns or 0
    before, after = (format_ns(ns or 0) for ns in (part.before_ns, part.after_ns))
    name = words(part.key.part)
    return Difference("time", name, before, after, signed(change), share.of(change))


def _row(kernel: KernelChange, names: dict[str, str], share: Share) -> Difference:
    before = format_ns(kernel.before_ns) if kernel.before else "-"
    after = format_ns(kernel.after_ns) if kernel.after else "-"
    launch = f" ({kernel.launch})" if kernel.launch else ""
    name = f"{names[kernel.name]}: {kernel.what}{launch}"
    change = kernel.change_ns
    return Difference(KERNEL, name, before, after, signed(change), share.of(change))


# The paragraph


def _causes(pairs: Pairs) -> Iterator[str]:
    """Yield other explanations of the change than the code."""
    notes = dict.fromkeys(
        pair.note for pair in pairs.steps if pair.note and "not the code" in pair.note
    )
    for note in list(notes)[:1]:
        yield note[0].upper() + note[1:]
        if pairs.in_turns and "clock" in note:
            yield (
                "The runs of the two sides alternated, so the change itself may lower the clock, "
                "for instance because it draws more power"
            )
    if pairs.beside:
        yield f"Not only the code differs: {'; '.join(pairs.beside)}"


def _changed(pairs: Pairs) -> bool:
    """Return whether a time may have changed: not if all are the same, or unknown."""
    telling = ("improved", "regressed", "unreplicated", "not comparable")
    return any(p.verdict in telling or "not the code" in (p.note or "") for p in pairs.steps)


def _found(pairs: Pairs) -> bool:
    """Return whether a change was found, in the code or in the conditions of the runs."""
    return any(
        p.verdict in ("improved", "regressed") or "not the code" in (p.note or "")
        for p in pairs.steps
    )


def _nothing_alike(pairs: Pairs, before: Side, after: Side) -> str:
    """Return why nothing was compared; empty if something was."""
    if any(pair.change for pair in (*pairs.steps, *pairs.kernels)):
        return ""
    for quiet, other, what in ((before, after, "The baseline"), (after, before, "The other side")):
        if _prints(other) and quiet.measured and not _prints(quiet):
            arm = _arm_of(quiet)
            both = "arms" if arm else "sides"
            return f"{arm or what} printed no times: let both {both} print times, or neither"
    return (
        f"The baseline was measured {_measured(before)}, the other side {_measured(after)}: only "
        "times of the same configuration and the same kind can be compared"
    )


def _prints(side: Side) -> bool:
    """Return whether a program printed times."""
    return any(key.part == ITERATION for key in side.measured)


def _arm_of(side: Side) -> str:
    """Return the name of a side if it is an arm, such as "Arm b"; empty if it is runs."""
    name = side.names[0] if len(side.names) == 1 else ""
    return name.capitalize() if name.startswith("arm ") else ""


def _measured(side: Side) -> str:
    """Return how a side was measured."""
    profilers = sorted({key.profiler for key in side.measured})
    told = [f"under {profiler}" if profiler else "without a profiler" for profiler in profilers]
    return " and ".join(told) or "not at all"


def _of_time(
    step: Compared | None, parts: Sequence[Compared], share: Share, unknown: str
) -> Iterator[str]:
    if step is None:
        if unknown:
            yield unknown
        return
    what = {STEP: "a step", CAPTURE: "the capture"}.get(step.key.part, "all profiled kernels")
    if not share:
        where = "under ncu" if step.key.part == PROFILED else "on the timeline"
        yield f"The time of {what} {where} changed by only {signed(share.whole_ns)}"
        return
    named = [p for p in parts if share.tells(p.total_ns or 0)]
    named.sort(key=lambda p: -abs(p.total_ns or 0))
    told = "; ".join(f"{words(p.key.part)} {share.text(p.total_ns or 0)}" for p in named[:_NAMED])
    label = f" of {step.key.label}" if step.key.label.strip("-") else ""
    yield f"{what.capitalize()}{label} changed by {signed(share.whole_ns)}" + (
        f": {told}" if told else ""
    )


def _of_kernels(
    kernels: Sequence[KernelChange], names: dict[str, str], share: Share, hidden: bool
) -> Iterator[str]:
    named = _telling(kernels, share)
    told = []
    for kernel in named:
        how = kernel.what + (f" ({kernel.launch})" if kernel.launch else "")
        told.append(f"{names[kernel.name]} is {how}: {share.text(kernel.change_ns)}")
    if told:
        yield f"Kernels: {'; '.join(told)}"
    elif kernels and share:
        yield "No kernel accounts for the change"
    if hidden:
        yield "Kernels inside CUDA graphs are not visible (trace with --cuda-graph-trace=node)"
    for what in ("new", "gone"):
        rest = [k for k in kernels if k.what == what and k not in named]
        if rest and share:
            total = sum(kernel.change_ns for kernel in rest)
            more = "more " if any(k.what == what for k in named) else ""
            yield f"{counted(len(rest), f'{more}kernel')} {what} ({signed(total)})"


def _same_settings(given: Sequence[Difference], differ: Sequence[Difference]) -> Iterator[str]:
    if not differ:
        head = "All other settings" if given else "Settings"
        yield f"{head}, versions and the machine are the same, as far as known"


def _of_settings(head: str, differ: Sequence[Difference]) -> Iterator[str]:
    told = [f"{d.kind} {d.name}" if d.kind in _AMBIGUOUS else d.name for d in differ]
    values = [f"{name} {d.before} -> {d.after}" for name, d in zip(told, differ, strict=True)]
    more = f", and {len(differ) - 2 * _NAMED} more" if len(differ) > 2 * _NAMED else ""
    if differ:
        yield f"{head}: {', '.join(values[: 2 * _NAMED])}{more}"


def _of_counters(
    moved: Sequence[tuple[KernelChange, Sequence[Difference]]],
    names: dict[str, str],
    telling: Sequence[KernelChange],
) -> Iterator[str]:
    for kernel, found in moved:
        told = "; ".join(f"{row.name} {row.before} -> {row.after}" for row in found[:_NAMED])
        yield f"{names[kernel.name]} under ncu: {told}"
    if not moved and any(kernel.before and kernel.after for kernel in telling):
        yield (
            "No counters show why the kernels changed, because ncu did not profile the kernels on "
            "both sides"
        )
