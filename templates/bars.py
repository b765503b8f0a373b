"""Bar figures: time budgets, idle time and stall reasons."""

from __future__ import annotations

from typing import Any

from perfpipe.templates.figures import (
    GREY,
    Drawing,
    Mark,
    Marks,
    block,
    entry,
    gpus_of,
    launches_of,
)
from perfpipe.templates.formats import format_value, shorten
from perfpipe.units import words
from perfpipe.viewmodel import Table

#: Maximum number of bars; the table has the rest.
_MOST = 16

#: Half the width of a bar.
_HALF = 0.4

#: A bar longer than this many times most of the others is cut.
_CUT = 6

#: Colors of time categories, busy ones first; fixed, so that reports can be compared.
CATEGORIES = {
    "compute": "#2f6fde",
    "communication": "#c2417a",
    "migration": "#e07b39",
    "transfer": "#8a6d00",
    "other_process": "#b48a78",
    "sync": "#8e5bd0",
    "launch_gap": "#5b9a32",
    "launch_api": "#8fbf5f",
    "queued": "#c7b42c",
    "kernel_gap": "#4f8a6b",
    "device_wait": "#3c9fb0",
    "building": "#b8536b",
    "no_work": "#9aa5b1",
    "loading": "#20808d",
    "host": "#a0522d",
    "profiler_overhead": "#708090",
    "edge": "#b0b8c0",
    "unattributed": "#d0d0d0",
}


def part_words(category: str) -> str:
    """Return a category of a time budget in words: in it, nothing overlaps communication."""
    return "exposed communication" if category == "communication" else words(category)


#: Categories in which the GPU does nothing; hatched, so that color is not the only cue.
IDLE = frozenset(CATEGORIES) - {
    "compute",
    "communication",
    "migration",
    "transfer",
    "other_process",
}

#: Colors of kernel categories, as above.
KERNELS = {
    "gemm": "#2f6fde",
    "convolution": "#1f4f9e",
    "attention": "#20808d",
    "normalization": "#5b9a32",
    "softmax": "#8fbf5f",
    "elementwise": "#d9730d",
    "reduction": "#c7b42c",
    "optimizer": "#8e5bd0",
    "gather scatter": "#a0522d",
    "sort": "#9370db",
    "rng": "#e0a060",
    "copy": "#708090",
    "communication": "#c2417a",
    "other": "#d0d0d0",
}

#: Colors of the most common stall reasons; others are gray.
_REASONS = {
    "long_scoreboard": "#d9730d",
    "short_scoreboard": "#c7b42c",
    "wait": "#5b9a32",
    "barrier": "#8e5bd0",
    "math_pipe_throttle": "#2f6fde",
    "gmma": "#1f4f9e",
    "lg_throttle": "#a0522d",
    "mio_throttle": "#c2417a",
    "tex_throttle": "#20808d",
    "not_selected": "#8fbf5f",
    "selected": "#708090",
    "dispatch_stall": "#b0b8c0",
    "no_instruction": "#556b2f",
    "branch_resolving": "#9370db",
    "sleeping": "#d0d0d0",
    "drain": "#e0a060",
    "membar": "#b22222",
    "imc_miss": "#008b8b",
}


#: Parts of bars: length and mark, by bar and part.
Stacks = dict[str, dict[str, tuple[float, Mark]]]


def budget_figure(table: Table) -> Drawing | None:
    """Return a stacked bar of the time budget for each GPU, in % of its window."""
    stacks: Stacks = {}
    for gpu, (category, share, time) in gpus_of(
        table, ("category", "share_pct", "time_ns"), ("share_pct",)
    ):
        note = f"{gpu}: {part_words(category)} {share:.1f} %, {format_value(time, 'ns')}"
        stacks.setdefault(gpu, {})[category] = (share, Mark(note))
    return stacked(stacks, CATEGORIES, "% of the window", 100) if stacks else None


def categories_figure(table: Table) -> Drawing | None:
    """Return a stacked bar of kernel time by category for each GPU, in % of its kernel time."""
    stacks: Stacks = {}
    wanted = ("category", "share_pct", "time_ns", "longest")
    for gpu, (category, share, time, longest) in gpus_of(table, wanted, ("share_pct",)):
        if time:
            note = f"{gpu}: {category} {share:.1f} %, {format_value(time, 'ns')}"
            stacks.setdefault(gpu, {})[category] = (share, Mark(note, str(longest)))
    return stacked(stacks, KERNELS, "% of kernel time", 100) if stacks else None


def idle_figure(table: Table) -> Drawing | None:
    """Return stacked bars of idle time by interval length and cause, in % of the window."""
    rows = gpus_of(table, ("size", "cause", "share_pct", "count", "time_ns"), ())
    several = len({gpu for gpu, _ in rows}) > 1
    stacks: Stacks = {}
    for gpu, (size, cause, share, count, time) in rows:
        bar = f"{gpu}: {size}" if several else size
        note = f"{bar}: {count:,} intervals, mostly {words(cause)}, {format_value(time, 'ns')}"
        stacks.setdefault(bar, {})[cause] = (share or 0, Mark(note))
    return stacked(stacks, CATEGORIES, "% of the window", None) if stacks else None


def stalls_figure(table: Table) -> Drawing | None:
    """Return a stacked bar of warp states for each launch, in cycles per issued instruction."""
    wanted = ("kernel_name", "reason", "cycles")
    stacks: Stacks = {}
    for owner, (kernel, reason, cycles) in launches_of(table, wanted, ("cycles",)):
        note = f"{owner}: {reason} {cycles:.3g} cycles"
        stacks.setdefault(owner, {})[reason] = (cycles, Mark(note, str(kernel)))
    return stacked(stacks, _REASONS, "cycles per issued instruction", None) if stacks else None


def stacked(
    stacks: Stacks,
    colours: dict[str, str],
    unit: str,
    whole: float | None,
) -> Drawing | None:
    """Return stacked bars, in the order of `colours`; `whole` is the length of each, if known."""
    bars = list(stacks)[:_MOST]
    said = part_words if colours is CATEGORIES else words
    lengths = sorted(sum(length for length, _ in stacks[bar].values()) for bar in bars)
    # Bars that dwarf all others are cut and labeled with their length.
    limit = whole or min(lengths[-1], _CUT * lengths[3 * len(lengths) // 4] or lengths[-1])
    present = {part for bar in bars for part in stacks[bar]}
    order = [part for part in colours if part in present] + sorted(present - colours.keys())

    def draw(axes: Any) -> Marks:
        drawn = {}
        for at, bar in enumerate(bars):
            left = 0.0
            for part in order:
                if part not in stacks[bar]:
                    continue
                width, mark = stacks[bar][part]
                patch = block(axes, left, at - _HALF, width, 2 * _HALF, colours.get(part, GREY))
                patch.set_gid(f"bar-{at}-{part}")
                drawn[f"bar-{at}-{part}"] = mark._replace(series=said(part))
                left += width
            if left > 1.01 * limit:
                axes.annotate(
                    f"{left:,.0f} ", (limit, at), ha="right", va="center", fontsize=8, color="white"
                )
        for part in order:
            entry(axes, said(part), colours.get(part, GREY))
        axes.set(xlabel=unit, yticks=range(len(bars)), ylim=(len(bars) - 0.4, -0.6))
        axes.set_yticklabels([shorten(bar, 44) for bar in bars], fontsize=8)
        axes.set_xlim(0, limit)
        return drawn

    return Drawing(draw, 8.4, 1.3 + 0.32 * len(bars))
