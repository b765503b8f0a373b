"""Bar figures: time budgets, idle time, stall reasons, and rates by size."""

from __future__ import annotations

from typing import Any

from perfpipe.viewmodel import Table
from templates.figures import GREY, Drawing, Mark, Marks, points_of
from templates.formats import format_value, shorten

#: Bars of a figure; the rest is in the table.
_MOST = 16

#: Columns of the figure of steps.
_MOST_STEPS = 80

#: Colours of what a GPU's time goes into, busy ones first; fixed, so that reports can be compared.
_CATEGORIES = {
    "compute": "#2f6fde",
    "communication": "#c2417a",
    "transfer": "#d9730d",
    "sync": "#8e5bd0",
    "launch_gap": "#5b9a32",
    "launch_api": "#8fbf5f",
    "queued": "#c7b42c",
    "host": "#a0522d",
    "profiler_overhead": "#708090",
    "edge": "#b0b8c0",
    "unattributed": "#d0d0d0",
}

#: Colours of stall reasons that are seen most; others follow in grey tones.
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


#: Parts of bars: the length and what it stands for, by bar and part.
Stacks = dict[str, dict[str, tuple[float, Mark]]]


def _words(part: str) -> str:
    return part.replace("_", " ")


def budget_figure(table: Table) -> Drawing | None:
    """Return a stacked bar of the time budget for each GPU, in % of its window."""
    named = [column.name for column in table.columns]
    names = [name for name in ("label", "device") if name in named]
    rows = points_of(table, (*names, "category", "share_pct", "time_ns"), ("share_pct",))
    if not rows:
        return None
    stacks: Stacks = {}
    for *who, category, share, time in rows:
        bar = _who(tuple(who))
        note = f"{bar}: {category} {share:.1f} %, {format_value(time, 'ns')}"
        stacks.setdefault(bar, {})[category] = (share, Mark(note))
    return _stacked(stacks, _CATEGORIES, "% of the window", 100)


def idle_figure(table: Table) -> Drawing | None:
    """Return stacked bars of idle time by length of the interval and cause, in % of the window."""
    named = [column.name for column in table.columns]
    names = [name for name in ("label", "device") if name in named]
    rows = points_of(table, (*names, "size", "cause", "share_pct", "count", "time_ns"), ())
    several = len({tuple(row[: len(names)]) for row in rows}) > 1
    stacks: Stacks = {}
    for row in rows:
        size, cause, share, count, time = row[len(names) :]
        bar = f"{_who(row[: len(names)])}: {size}" if several else size
        note = f"{bar}: {count:,} intervals, mostly {_words(cause)}, {format_value(time, 'ns')}"
        stacks.setdefault(bar, {})[cause] = (share or 0, Mark(note))
    return _stacked(stacks, _CATEGORIES, "% of the window", None) if stacks else None


def steps_figure(table: Table) -> Drawing | None:
    """Return a stacked column for each step, as long as the step; GPUs side by side."""
    named = [column.name for column in table.columns]
    names = [name for name in ("label", "device") if name in named]
    shares = [name for name in _CATEGORIES if f"{name}_pct" in named]
    wanted = (*names, "step", "step_ns", *(f"{name}_pct" for name in shares))
    rows = points_of(table, wanted, ("step_ns",))[:_MOST_STEPS]
    if len(rows) < 2:
        return None
    present = [n for at, n in enumerate(shares) if any(row[len(names) + 2 + at] for row in rows)]

    def draw(axes: Any) -> Marks:
        drawn = {}
        place, places, owners = 0, [], []
        for number, row in enumerate(rows):
            who, (step, length), parts = row[: len(names)], row[len(names) : len(names) + 2], row
            if number and who != rows[number - 1][: len(names)]:
                place += 1
            below = 0.0
            for at, name in enumerate(shares):
                share = parts[len(names) + 2 + at]
                if not share:
                    continue
                height = share * length / 1e8
                (bar,) = axes.bar([place], [height], 0.85, below, color=_CATEGORIES[name])
                bar.set_gid(f"step-{number}-{name}")
                title = f"{_who(who)} {step}: {_words(name)} {share:.1f} % of {length / 1e6:.4g} ms"
                drawn[f"step-{number}-{name}"] = Mark(title, series=_words(name))
                below += height
            places.append(place)
            owners.append(_who(who))
            place += 1
        for name in present:
            axes.scatter([], [], marker="s", c=_CATEGORIES[name], label=_words(name))
        few = dict.fromkeys(owners)
        axes.set(ylabel="ms", xlabel="step", xlim=(-0.8, place - 0.2), xticks=[])
        if len(few) > 1:
            middles = [[p for p, o in zip(places, owners, strict=True) if o == who] for who in few]
            axes.set_xticks([sum(m) / len(m) for m in middles])
            axes.set_xticklabels([shorten(who, 24) for who in few], fontsize=8)
        return drawn

    return Drawing(draw, 8.4, 3.6)


def _who(names: tuple[Any, ...]) -> str:
    return ", ".join([*map(str, names[:-1]), f"GPU {names[-1]}"])


def stalls_figure(table: Table) -> Drawing | None:
    """Return a stacked bar of warp states for each launch, in cycles per issued instruction."""
    rows = points_of(
        table, ("kernel_name", "launch_id", "reason", "cycles"), ("launch_id", "cycles")
    )
    stacks: Stacks = {}
    for kernel, launch, reason, cycles in rows:
        bar = f"{shorten(str(kernel), 36)} ({launch})"
        note = f"{kernel}: {reason} {cycles:.3g} cycles"
        stacks.setdefault(bar, {})[reason] = (cycles, Mark(note, str(kernel)))
    return _stacked(stacks, _REASONS, "cycles per issued instruction", None) if stacks else None


def _stacked(
    stacks: Stacks,
    colours: dict[str, str],
    unit: str,
    whole: float | None,
) -> Drawing | None:
    bars = list(stacks)[:_MOST]
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
                (patch,) = axes.barh([at], [width], left=left, color=colours.get(part, GREY))
                patch.set_gid(f"bar-{at}-{part}")
                drawn[f"bar-{at}-{part}"] = mark._replace(series=_words(part))
                left += width
        for part in order:
            axes.scatter([], [], marker="s", c=colours.get(part, GREY), label=_words(part))
        axes.set(xlabel=unit, yticks=range(len(bars)), ylim=(len(bars) - 0.4, -0.6))
        axes.set_yticklabels([shorten(bar, 44) for bar in bars], fontsize=8)
        if whole is not None:
            axes.set_xlim(0, whole)
        return drawn

    return Drawing(draw, 8.4, 1.3 + 0.32 * len(bars))


def sizes_figure(table: Table) -> Drawing | None:
    """Return the rate of a sweep by size: FLOP/s, or bytes where nothing is computed."""
    for name, unit, scale in (
        ("model_flop_per_s", "TFLOP/s", 1e12),
        ("effective_bytes_per_s", "GB/s", 1e9),
    ):
        rows = points_of(table, ("size", name, "label", "mfu_pct", "roof"), ("size", name))
        memory = all(row[4] == "memory" for row in rows)
        if len({row[0] for row in rows}) > 1 and (name.startswith("eff") or not memory):
            return _rates(rows, unit, scale)
    return None


def _rates(rows: list[tuple[Any, ...]], unit: str, scale: float) -> Drawing | None:
    def draw(axes: Any) -> Marks:
        axes.set(xlabel="size", ylabel=unit, xscale="log", ylim=(0, None))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        sizes = sorted({row[0] for row in rows})
        axes.set_xticks(sizes, minor=False)
        axes.set_xticks([], minor=True)
        best = [max(row[1] for row in rows if row[0] == size) / scale for size in sizes]
        axes.plot(sizes, best, color=GREY, linewidth=1)
        drawn = {}
        for number, (size, rate, label, *_) in enumerate(rows):
            marks = axes.scatter([size], [rate / scale], s=36, c="#2f6fde", alpha=0.8)
            marks.set_gid(f"size-{number}")
            drawn[f"size-{number}"] = Mark(f"{label}: {rate / scale:.4g} {unit}")
        axes.set_ylim(0, 1.1 * max(row[1] for row in rows) / scale)
        return drawn

    return Drawing(draw)
