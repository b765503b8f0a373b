"""The memory chart of a kernel: traffic between the SMs, the caches and DRAM."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup, escape

from perfpipe.templates.formats import format_value
from perfpipe.viewmodel import Table, Value

#: View whose tables have a chart.
_VIEW = "kernel_memory_levels"

#: Boxes from the SMs outwards: level of the view, and name.
_CHAIN = (("", "SMs"), ("L1", "L1/TEX"), ("L2", "L2"), ("DRAM", "DRAM"))

_BOX, _GAP, _HIGH = 104, 96, 62
_WIDTH = len(_CHAIN) * _BOX + (len(_CHAIN) - 1) * _GAP
_SHARED_AT = _HIGH + 26


def memory_chart(table: Table) -> Markup:
    """Return the chart of a kernel's traffic as SVG; empty for other tables, or without traffic.

    Boxes are filled by throughput, % of peak.  Arrows to the left are reads, to the right writes.
    Metrics that were not collected are absent.
    """
    if table.source.view != _VIEW:
        return Markup()
    names = [column.name for column in table.columns]
    levels = {str(row[0]): dict(zip(names, row, strict=True)) for row in table.rows}
    if not levels.keys() & {"L1", "L2", "DRAM"}:
        return Markup()
    shared = levels.get("shared")
    parts = [_box(0, 0, "SMs", None)]
    for place, (level, name) in enumerate(_CHAIN[1:], 1):
        if level in levels:
            parts += _flows(place, levels[level])
        parts.append(_box(place * (_BOX + _GAP), 0, name, levels.get(level)))
    if shared is not None:
        parts.append(_box(_BOX + _GAP, _SHARED_AT, "Shared memory", shared))
        down = _SHARED_AT + _HIGH / 2
        parts.append(f'<path class="flow" d="M{_BOX / 2} {_HIGH}V{down:g}H{_BOX + _GAP - 2}"/>')
    high = _SHARED_AT + _HIGH if shared is not None else _HIGH
    return Markup(  # noqa: S704
        f'<svg class="memory" viewBox="-1 -1 {_WIDTH + 2} {high + 2}" role="img" '
        f'aria-label="Memory chart; the table below lists the numbers">{"".join(parts)}</svg>'
    )


def _box(x: float, y: float, name: str, level: Mapping[str, Value] | None) -> str:
    """Return a box with its name, throughput and hit rate, or excess traffic."""
    lines = [name]
    used = level.get("sol_pct") if level else None
    if level:
        for key, word in (("sol_pct", "of peak"), ("hit_pct", "hits"), ("excess_pct", "excess")):
            if level.get(key) is not None and len(lines) < 3:
                lines.append(f"{format_value(level[key], 'pct')} % {word}")
    share = min(max(float(used), 0), 100) / 100 if isinstance(used, (int, float)) else 0
    top = y + (_HIGH - 15 * len(lines)) / 2 + 11
    texts = "".join(
        f'<text x="{x + _BOX / 2:g}" y="{top + 15 * at:g}">{escape(line)}</text>'
        for at, line in enumerate(lines)
    )
    return (
        f'<rect class="full" x="{x:g}" y="{y + _HIGH * (1 - share):g}" width="{_BOX}" '
        f'height="{_HIGH * share:g}"/>'
        f'<rect class="box" x="{x:g}" y="{y:g}" width="{_BOX}" height="{_HIGH}" rx="5"/>{texts}'
    )


def _flows(place: int, level: Mapping[str, Value]) -> list[str]:
    """Return the arrows between a level and the one nearer to the SMs."""
    right = place * (_BOX + _GAP)
    left = right - _GAP
    middle = (left + right) / 2
    flows = []
    for key, y, start, end, sign in (
        ("read_bytes", 24, right, left, 1),
        ("write_bytes", 50, left, right, -1),
    ):
        value = level.get(key)
        if value is None:
            continue
        tip = end + 2 * sign
        flows.append(
            f'<path class="flow" d="M{start} {y}H{tip}m{6 * sign} -4l{-6 * sign} 4l{6 * sign} 4"/>'
            f'<text x="{middle:g}" y="{y - 5}">{escape(_carried(place, value))}</text>'
        )
    return flows


def _carried(place: int, value: Value) -> str:
    """Return what an arrow carries; only global accesses are counted between the SMs and L1."""
    return format_value(value, "bytes") + (" global" if place == 1 else "")
