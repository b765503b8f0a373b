"""The strip above a step: the whole capture with its phases, as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby

from perfpipe.picture import Capture, Phase, Picture, Span
from perfpipe.templates.formats import shorten
from perfpipe.templates.step_drawing import LEFT, WIDTH
from perfpipe.units import counted, format_ns

#: The steps of the views of a picture, in order.
_ROLES = ("median", "slowest")

#: Colors and names of phases, in order.
_PHASES = {
    "start-up": ("#808890", "start-up"),
    "warm-up": ("#c7902c", "warm-up, compilation"),
    "steady": ("#5b9a32", "steady steps"),
    "other": ("#8e5bd0", "other (evaluation, checkpoint, slow step)"),
    "shutdown": ("#808890", "end"),
    "whole": ("#5b6b7c", "no steps found"),
}

#: Color of busy GPUs, and the number of shades.
_BUSY, _SHADES = "#2f6fde", 8

#: Heights of the row of phases, the row of shades, the space after a GPU, and the arrows, pixels.
#: The first screen of a page has hardly any room.
_HIGH, _LOW, _GAP, _ARROWS = 9, 4, 2, 7

#: Width of a letter; the least width of a phase that is drawn, and of the mark of a step.
_LETTER, _LEAST, _MARK = 6.0, 0.3, 3.0


def strip_svg(picture: Picture) -> str:
    """Return the captures of a picture on one scale; empty if there are none.

    For each GPU: phases, below them a shade for the share of the time in which the GPU is busy,
    around both a frame for each step that is drawn.
    """
    captures = picture.captures
    if not captures:
        return ""
    end_ns = max(capture.span.end_ns for capture in captures)
    body: list[str] = []
    y = _ARROWS
    roles = _ROLES[: len(picture.views)]
    for capture in captures:
        body += _capture(capture, end_ns, y)
        body += _steps(capture, roles, end_ns, y)
        y += _HIGH + _LOW + _GAP
    said = "Whole capture: " + "; ".join(
        f"{capture.name}: {_sentence(capture)}" for capture in captures
    )
    return (
        f'<svg class="strip" viewBox="0 0 {WIDTH} {y}" font-family="system-ui, sans-serif" '
        f'font-size="9" fill="currentColor" role="img"><title>{escape(said)}</title>'
        f'<text x="0" y="6" font-size="8">Capture: {format_ns(end_ns)} (▼ drawn step)</text>'
        f"{''.join(body)}</svg>"
    )


def _capture(capture: Capture, end_ns: int, y: float) -> Iterator[str]:
    yield f'<text x="0" y="{y + 8}">{escape(shorten(capture.name, 24))}</text>'
    for name, (colour, said) in _PHASES.items():
        own = [phase for phase in capture.phases if phase.name == name]
        if own:
            line = _line([phase.span for phase in own], end_ns, y, _HIGH, colour)
            yield f"<path {line}><title>{_title(said, own)}</title></path>"
            yield from _named(said.partition(" (")[0], own, end_ns, y)
    for shade, spans in sorted(_shades(capture).items()):
        line = _line(spans, end_ns, y + _HIGH, _LOW, _BUSY)
        said = f"GPU about {100 * shade / _SHADES:.0f} % busy"
        yield f'<path {line} stroke-opacity="{shade / _SHADES:g}"><title>{said}</title></path>'


def _shades(capture: Capture) -> dict[int, list[Span]]:
    """Return the parts of a capture by shade; parts next to each other that are alike are one."""
    parts, (start_ns, end_ns) = capture.busy_pct, capture.span
    width = (end_ns - start_ns) / len(parts)
    found: dict[int, list[Span]] = {}
    at = 0
    for shade, alike in groupby(round(_SHADES * pct / 100) for pct in parts):
        until = at + len([*alike])
        span = Span(round(start_ns + width * at), round(start_ns + width * until))
        found.setdefault(shade, []).append(span)
        at = until
    return found


def _steps(capture: Capture, roles: Sequence[str], end_ns: int, y: float) -> Iterator[str]:
    """Yield a frame around each step that is drawn; the arrow of the one that is seen is filled."""
    for role, span in capture.steps:
        if role not in roles:
            continue
        left, wide = _place(span, end_ns)
        wide = max(wide, _MARK)
        said = f"{role.capitalize()} step, {format_ns(span.start_ns)} after the start"
        fill = "currentColor" if role == roles[0] else "none"
        yield (
            f'<g data-role="{role}" stroke="currentColor"><title>{escape(said)}</title>'
            f'<rect x="{left:.1f}" y="{y - 1:g}" width="{wide:.1f}" height="{_HIGH + _LOW + 2}" '
            'fill="#fff" fill-opacity=".25" stroke-width="1.5"/>'
            f'<path d="M{left + wide / 2:.1f} {y - 1:g}l-3.5 -5h7z" fill="{fill}"/></g>'
        )


def _named(said: str, phases: list[Phase], end_ns: int, y: float) -> Iterator[str]:
    """Yield the name of a phase, on the longest of its parts, if there is room."""
    left, wide = max((_place(phase.span, end_ns) for phase in phases), key=lambda place: place[1])
    if wide > _LETTER * len(said) + 6:
        yield f'<text x="{left + 4:.1f}" y="{y + 7.5:g}" fill="#fff">{said}</text>'


def _place(span: Span, end_ns: int) -> tuple[float, float]:
    """Return where a part begins, and its width, pixels."""
    scale = (WIDTH - LEFT) / end_ns
    return LEFT + span.start_ns * scale, (span.end_ns - span.start_ns) * scale


def _line(spans: Sequence[Span], end_ns: int, y: float, high: int, colour: str) -> str:
    """Return the attributes of a path as thick as a row: shorter to write than rectangles."""
    places = (_place(span, end_ns) for span in spans)
    middle = y + high / 2
    path = "".join(f"M{x:.1f} {middle:g}h{wide:.1f}" for x, wide in places if wide >= _LEAST)
    return f'd="{path}" stroke="{colour}" stroke-width="{high}"'


def _title(said: str, phases: list[Phase]) -> str:
    steps = sum(phase.steps for phase in phases)
    time = format_ns(sum(phase.span.end_ns - phase.span.start_ns for phase in phases))
    of = f"{counted(steps, 'step')}, " if steps else ""
    return f"{said}: {of}{time}"


def _sentence(capture: Capture) -> str:
    names = dict.fromkeys(phase.name for phase in capture.phases)
    return ", ".join(
        _title(_PHASES[name][1], [phase for phase in capture.phases if phase.name == name])
        for name in names
    )
