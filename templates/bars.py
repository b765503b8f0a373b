"""Bar figures: the time budget, stall reasons, occupancy, and rates by size."""

from __future__ import annotations

from typing import Any

from perfpipe.viewmodel import Table
from templates.figures import GREY, Drawing, points_of
from templates.formats import format_value, shorten

#: Bars of a figure; the rest is in the table.
_MOST = 16

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


def budget_figure(table: Table) -> Drawing | None:
    """Return a stacked bar of the time budget for each GPU, in % of its window."""
    named = [column.name for column in table.columns]
    names = [name for name in ("label", "device") if name in named]
    rows = points_of(table, (*names, "category", "share_pct", "time_ns"), ("share_pct",))
    if not rows:
        return None
    stacks: dict[str, dict[str, tuple[float, str]]] = {}
    for *who, category, share, time in rows:
        words = [str(who[0])] if "label" in names else []
        bar = ", ".join([*words, f"GPU {who[-1]}"])
        note = f"{bar}: {category} {share:.1f} %, {format_value(time, 'ns')}"
        stacks.setdefault(bar, {})[category] = (share, note)
    return _stacked(stacks, _CATEGORIES, "% of the window", 100)


def stalls_figure(table: Table) -> Drawing | None:
    """Return a stacked bar of warp states for each launch, in cycles per issued instruction."""
    rows = points_of(
        table, ("kernel_name", "launch_id", "reason", "cycles"), ("launch_id", "cycles")
    )
    stacks: dict[str, dict[str, tuple[float, str]]] = {}
    for kernel, launch, reason, cycles in rows:
        bar = f"{shorten(str(kernel), 36)} ({launch})"
        note = f"{kernel}: {reason} {cycles:.3g} cycles"
        stacks.setdefault(bar, {})[reason] = (cycles, note)
    return _stacked(stacks, _REASONS, "cycles per issued instruction", None) if stacks else None


def _stacked(
    stacks: dict[str, dict[str, tuple[float, str]]],
    colours: dict[str, str],
    unit: str,
    whole: float | None,
) -> Drawing | None:
    bars = list(stacks)[:_MOST]
    present = {part for bar in bars for part in stacks[bar]}
    order = [part for part in colours if part in present] + sorted(present - colours.keys())

    def draw(axes: Any) -> dict[str, str]:
        titles = {}
        for at, bar in enumerate(bars):
            left = 0.0
            for part in order:
                if part not in stacks[bar]:
                    continue
                width, note = stacks[bar][part]
                (patch,) = axes.barh([at], [width], left=left, color=colours.get(part, GREY))
                patch.set_gid(f"bar-{at}-{part}")
                titles[f"bar-{at}-{part}"] = note
                left += width
        for part in order:
            axes.scatter(
                [], [], marker="s", c=colours.get(part, GREY), label=part.replace("_", " ")
            )
        axes.set(xlabel=unit, yticks=range(len(bars)), ylim=(len(bars) - 0.4, -0.6))
        axes.set_yticklabels([shorten(bar, 44) for bar in bars], fontsize=8)
        if whole is not None:
            axes.set_xlim(0, whole)
        return titles

    return Drawing(draw, 8.4, 1.3 + 0.32 * len(bars))


def occupancy_figure(table: Table) -> Drawing | None:
    """Return theoretical and achieved occupancy of each launch, with what limits it."""
    names = ("kernel_name", "launch_id", "limiters", "theoretical_occupancy_pct")
    rows = points_of(table, (*names, "achieved_occupancy_pct"), names[3:])[:_MOST]
    if not rows:
        return None

    def draw(axes: Any) -> dict[str, str]:
        titles = {}
        for at, (kernel, launch, limiters, most, achieved) in enumerate(rows):
            (patch,) = axes.barh([at], [most], height=0.75, color="#b6c7dd")
            patch.set_gid(f"most-{at}")
            titles[f"most-{at}"] = (
                f"{kernel} ({launch}): theoretical {most:.1f} %, limited by {limiters or 'nothing'}"
            )
            if achieved is not None:
                (patch,) = axes.barh([at], [achieved], height=0.4, color="#2f6fde")
                patch.set_gid(f"achieved-{at}")
                titles[f"achieved-{at}"] = f"{kernel} ({launch}): achieved {achieved:.1f} %"
        axes.scatter([], [], marker="s", c="#b6c7dd", label="theoretical")
        axes.scatter([], [], marker="s", c="#2f6fde", label="achieved")
        axes.set(xlabel="% of the warps an SM can hold", xlim=(0, 100))
        axes.set(yticks=range(len(rows)), ylim=(len(rows) - 0.4, -0.6))
        labels = [f"{shorten(str(row[0]), 36)} ({row[1]})" for row in rows]
        axes.set_yticklabels(labels, fontsize=8)
        return titles

    return Drawing(draw, 8.4, 1.3 + 0.32 * len(rows))


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
    def draw(axes: Any) -> dict[str, str]:
        axes.set(xlabel="size", ylabel=unit, xscale="log", ylim=(0, None))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        sizes = sorted({row[0] for row in rows})
        axes.set_xticks(sizes, minor=False)
        axes.set_xticks([], minor=True)
        best = [max(row[1] for row in rows if row[0] == size) / scale for size in sizes]
        axes.plot(sizes, best, color=GREY, linewidth=1)
        titles = {}
        for number, (size, rate, label, *_) in enumerate(rows):
            marks = axes.scatter([size], [rate / scale], s=36, c="#2f6fde", alpha=0.8)
            marks.set_gid(f"size-{number}")
            titles[f"size-{number}"] = f"{label}: {rate / scale:.4g} {unit}"
        axes.set_ylim(0, 1.1 * max(row[1] for row in rows) / scale)
        return titles

    return Drawing(draw)
