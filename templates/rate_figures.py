"""Figures of sweeps and searches: rates, the peak of the GPU, and the library behind them."""

from __future__ import annotations

from typing import Any, NamedTuple

from perfpipe.templates.figures import GREY, Drawing, Mark, Marks, entry, points_of, shade, spot
from perfpipe.templates.formats import shorten
from perfpipe.viewmodel import Table

#: Names of libraries of NVIDIA as these write them.
_LIBRARIES = {"cublas": "cuBLAS", "cudnn": "cuDNN", "cusparse": "cuSPARSE", "cufft": "cuFFT"}

_BANDWIDTHS = {"dram": "DRAM bandwidth", "l2": "L2 bandwidth"}


class _Point(NamedTuple):
    """A configuration: its rate and its roof, in the unit of the figure."""

    size: float
    rate: float
    label: str
    series: str
    library: str | None
    roof: float | None
    roof_name: str


def sizes_figure(table: Table) -> Drawing | None:
    """Return throughput by problem size, one line per combination of the other parameters.

    The rate is FLOP/s, or bytes where nothing is computed.  The roofs are dashed lines.  A line
    whose kernels all come from a library of NVIDIA is named after it.
    """
    flops = _computed(table)
    if len({point.size for point in flops}) > 1 and not all(
        row[0] == "memory" for row in points_of(table, ("roof",), ("model_flop_per_s",))
    ):
        return _rates(flops, "TFLOP/s")
    moved = _moved(table)
    return _rates(moved, "GB/s") if len({point.size for point in moved}) > 1 else None


_WHO = ("size", "label", "series", "library")


def _computed(table: Table) -> list[_Point]:
    wanted = (*_WHO, "model_flop_per_s", "peak_flop_per_s", "dtype")
    return [
        _Point(
            size,
            rate / 1e12,
            str(label),
            str(series),
            library,
            peak and peak / 1e12,
            f"{dtype} peak",
        )
        for size, label, series, library, rate, peak, dtype in points_of(
            table, wanted, ("size", "model_flop_per_s")
        )
    ]


def _moved(table: Table) -> list[_Point]:
    wanted = (*_WHO, "effective_bytes_per_s", "sol_pct", "roof", "memory_level")
    found = []
    for size, label, series, library, rate, sol_pct, roof, level in points_of(
        table, wanted, ("size", "effective_bytes_per_s")
    ):
        peak = 100 * rate / sol_pct / 1e9 if sol_pct and roof == "memory" else None
        name = _BANDWIDTHS.get(level, "peak bandwidth")
        found.append(_Point(size, rate / 1e9, str(label), str(series), library, peak, name))
    return found


def _rates(points: list[_Point], unit: str) -> Drawing:
    lines: dict[str, list[_Point]] = {}
    for point in points:
        lines.setdefault(point.series, []).append(point)
    roofs = {point.roof_name: point.roof for point in points if point.roof}
    several = len(lines) > 1

    def draw(axes: Any) -> Marks:
        axes.set(xlabel="size", ylabel=unit, xscale="log")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_xticks(sorted({point.size for point in points}), minor=False)
        axes.set_xticks([], minor=True)
        drawn = {}
        for number, (series, own) in enumerate(lines.items()):
            colour, sign = shade(number)
            line = sorted(own)
            name = _named(series, own) if several or _library(own) else ""
            axes.plot([p.size for p in line], [p.rate for p in line], color=colour, linewidth=1)
            for at, point in enumerate(line):
                gid = f"size-{number}-{at}"
                spot(axes, (point.size, point.rate), 36, colour, sign, gid, alpha=0.8)
                title = f"{point.label}: {point.rate:.4g} {unit}"
                if point.roof:
                    title += f", {100 * point.rate / point.roof:.0f} % of the {point.roof_name}"
                drawn[gid] = Mark(title, series=name or shorten(series, 40))
            if name:
                entry(axes, name, colour, sign)
        _dashed(axes, roofs, unit)
        highest = max([point.rate for point in points] + [*roofs.values()])
        axes.set_ylim(0, 1.1 * highest)
        return drawn

    return Drawing(draw)


def _library(points: list[_Point]) -> str:
    """Return the library of NVIDIA that all kernels come from, empty if there is none."""
    used = {point.library for point in points}
    return _LIBRARIES.get(next(iter(used)) or "", "") if len(used) == 1 else ""


def _named(series: str, points: list[_Point]) -> str:
    library = _library(points)
    name = shorten(series, 40)
    return f"{library}, {name}" if library and name else library or name


def _dashed(axes: Any, roofs: dict[str, float], unit: str) -> None:
    """Draw what the GPU can reach, with its name above the line."""
    alike: dict[float, list[str]] = {}
    for name, roof in roofs.items():
        alike.setdefault(roof, []).append(name)
    for roof, names in alike.items():
        name = ", ".join(names)
        axes.axhline(roof, color=GREY, linestyle="--", linewidth=1)
        axes.annotate(
            f"{name}: {roof:,.0f} {unit}", (0.01, roof), xycoords=("axes fraction", "data"),
            xytext=(0, 2), textcoords="offset points", fontsize=8, color=GREY,
        )  # fmt: skip


def tuning_figure(table: Table) -> Drawing | None:
    """Return the rates of an autotuning run in trial order, with the best so far as a line.

    Times, if the work is not declared.
    """
    names = ("index", "generation", "time_ms", "label")
    rated = any(column.name == "rate" for column in table.columns)
    wanted = (*names, "rate", "of_peak_pct") if rated else names
    points = sorted(points_of(table, wanted, (*names[:3], *(["rate"] if rated else []))))
    if not points:
        return None

    def draw(axes: Any) -> Marks:
        axes.set(xlabel="configuration, in trial order")
        if rated:
            axes.set(ylabel="TFLOP/s")
        else:
            axes.set(ylabel="time (ms)", yscale="log")
            _ticks(axes)
        drawn: Marks = {}
        so_far: list[float] = []
        roofs: dict[str, float] = {}
        for number, (index, generation, time, label, *of) in enumerate(points):
            colour, mark = shade(generation)
            value = of[0] / 1e12 if rated else time
            spot(axes, (index, value), 34, colour, mark, f"trial-{number}", alpha=0.8)
            series = f"generation {generation}"
            title = f"{label}: {time:.4g} ms" + (f", {value:,.3g} TFLOP/s" if rated else "")
            drawn[f"trial-{number}"] = Mark(title, series=series)
            so_far.append((max if rated else min)([value, *so_far[-1:]]))
            if rated and of[1]:
                roofs["dense peak"] = 100 * value / of[1]
        axes.step([p[0] for p in points], so_far, where="post", color=GREY, linewidth=1)
        for generation in sorted({point[1] for point in points}):
            colour, mark = shade(generation)
            entry(axes, f"generation {generation}", colour, mark)
        if rated:
            _dashed(axes, roofs, "TFLOP/s")
            axes.set_ylim(0, 1.1 * max([so_far[-1], *roofs.values()]))
        return drawn

    return Drawing(draw)


def _ticks(axes: Any) -> None:
    from matplotlib.ticker import LogLocator

    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
    axes.yaxis.set_minor_formatter("{x:g}")
