"""Plots of a metric over a parameter: what is drawn, with units, baseline and peaks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfpipe.analysis.rows import rows_of
from perfpipe.analysis.session import Session
from perfpipe.errors import InputError, did_you_mean
from perfpipe.pipelines.api.frames import NCU_METRIC
from perfpipe.pipelines.writing import write_bytes
from perfpipe.templates.curves import Curves, draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

#: Units of an axis by the end of a metric's name, and how many base units one is.
_UNITS = {
    "flop_per_s": ("TFLOP/s", 1e12),
    "bytes_per_s": ("GB/s", 1e9),
    "_pct": ("%", 1),
    "_ms": ("ms", 1),
    "_ns": ("us", 1e3),
    "_hz": ("MHz", 1e6),
    "_mhz": ("MHz", 1),
    "_w": ("W", 1),
    "_j": ("J", 1),
}

#: Peaks that rates reach at most, of the GPUs and data types of the runs.
_PEAKS = {
    "model_flop_per_s": """
        SELECT concat(gpu, ', dense ', string_agg(DISTINCT dtype, ', ' ORDER BY dtype), ' peak'),
            flop_per_s
        FROM _peaks
        GROUP BY gpu, flop_per_s
        ORDER BY flop_per_s
    """,
    "effective_bytes_per_s": """
        SELECT DISTINCT concat(gpu, ', DRAM bandwidth'), bytes_per_s
        FROM _peaks
        ORDER BY bytes_per_s
    """,
}
_PEAKS_OF_RUNS = """
WITH _peaks AS (
    SELECT p.gpu, p.dtype, p.flop_per_s, p.bytes_per_s
    FROM (SELECT dtype, unnest(reports) AS report_id FROM run_tasks) AS t
    JOIN gpu_peaks AS p USING (report_id, dtype)
)
"""

#: Metrics in % of a peak, besides those of ncu.
_OF_PEAK = ("mfu_pct", "hfu_pct", "sol_pct")


def plot_of(
    session: Session,
    frame: DataFrame,
    x: str,
    y: str,
    by: str | Sequence[str] | None,
    baseline: Any,
    path: str | Path | None,
    notice: str | None,
) -> Figure:
    """Draw a metric over a parameter; arguments and errors are those of Results.plot."""
    parameters = [name for name in frame.columns if name != y]
    others = _others(frame, parameters, x, by)
    unit, scale = _unit(frame, y)
    lines = _lines(frame, x, y, others, scale)
    peaks = _peaks(session, y, scale)
    label = f"{y}, {unit}" if unit else y
    if baseline is not None:
        lines, peaks = _relative(lines, str(baseline), others), {"baseline": 1.0}
        label = f"{y} / {y} of {baseline}"
    figure = draw(Curves(x, label, lines, peaks, notice))
    if path is not None:
        write_bytes(Path(path), figure.file(Path(path).suffix))
    drawn: Figure = figure
    return drawn


def _others(
    frame: DataFrame, parameters: Sequence[str], x: str, by: str | Sequence[str] | None
) -> list[str]:
    """Return the parameters that distinguish lines; raises InputError for an unknown one."""
    wanted = [by] if isinstance(by, str) else list(by or ())
    for name in (x, *wanted):
        if name not in parameters:
            known = f"known: {', '.join(parameters)}" if parameters else "there are none"
            raise InputError(f"no parameter {name}{did_you_mean(name, parameters)} ({known})")
    if wanted:
        return wanted
    return [name for name in parameters if name != x and frame[name].nunique(dropna=False) > 1]


def _unit(frame: DataFrame, y: str) -> tuple[str, float]:
    """Return the unit of an axis, and how many base units it is."""
    for end, unit in _UNITS.items():
        if y.endswith(end):
            return unit
    if "pct_of_peak" in y or y.endswith(".pct"):
        return "%", 1.0
    named, _, unit = frame.attrs["columns"].get(y, "").partition(", ")
    return (unit if named == NCU_METRIC else ""), 1.0


def _lines(
    frame: DataFrame, x: str, y: str, others: Sequence[str], scale: float
) -> dict[str, list[tuple[Any, float]]]:
    """Return the points of each line; configurations without a value have none."""
    lines: dict[str, list[tuple[Any, float]]] = {}
    for row in frame.dropna(subset=[y]).to_dict("records"):
        name = ", ".join(f"{row[other]}" for other in others)
        points = lines.setdefault(name, [])
        if any(at == row[x] for at, _ in points):
            raise InputError(
                f"several configurations with {x}={row[x]}: name the parameters in which they "
                "differ in by"
            )
        try:
            points.append((row[x], float(row[y]) / scale))
        except (TypeError, ValueError):
            raise InputError(f"{y} is not a number ({row[y]!r}), so it cannot be drawn") from None
    if not lines:
        raise InputError(f"no configuration has a value of {y}")
    return lines


def _relative(
    lines: dict[str, list[tuple[Any, float]]], baseline: str, others: Sequence[str]
) -> dict[str, list[tuple[Any, float]]]:
    """Return each line divided by that of the baseline, where both have a value."""
    if baseline not in lines:
        known = ", ".join(lines) if others else "only one line"
        raise InputError(f"baseline={baseline}: no such line ({known})")
    base = dict(lines[baseline])
    return {
        name: [(at, value / base[at]) for at, value in points if base.get(at)]
        for name, points in lines.items()
    }


def _peaks(session: Session, y: str, scale: float) -> dict[str, float]:
    """Return the lines that a metric can reach at most, by their label."""
    if y.endswith(_OF_PEAK) or "pct_of_peak" in y:
        return {"peak": 100.0}
    if y not in _PEAKS:
        return {}
    session.use("run_tasks", "gpu_peaks")
    found = rows_of(session.con, _PEAKS_OF_RUNS + _PEAKS[y])
    return {str(label): peak / scale for label, peak in found if peak is not None}
