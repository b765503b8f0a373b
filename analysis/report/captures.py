"""The whole captures around a step: their phases, and how busy the GPUs are meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import rows_of
from perfpipe.database import in_list
from perfpipe.picture import Capture, Phase, Span

#: Views that are read here.
VIEWS = ("_capture_phases", "_capture_busy", "step_pictures")

#: GPUs whose captures are drawn at most.
_MOST = 4


class Drawn(NamedTuple):
    """A GPU whose step is drawn, and the name of the GPU."""

    report_id: str
    device: int
    name: str


def captures_of(scope: Scope, drawn: Sequence[Drawn]) -> Iterator[Capture]:
    """Yield the captures of the GPUs of a picture, as many as are drawn.

    Captures of a job are on one clock; each other capture begins at zero.
    """
    gpus = list(dict.fromkeys(drawn))[:_MOST]
    listed = in_list([*dict.fromkeys(gpu.report_id for gpu in gpus)])
    phases = _grouped(
        scope,
        "SELECT report_id, device, phase, start_ns, end_ns, steps FROM _capture_phases "
        f"WHERE report_id IN {listed} ORDER BY start_ns, end_ns",
    )
    steps = _grouped(
        scope,
        "SELECT report_id, device, job, role, start_ns, end_ns, offset_ns FROM step_pictures "
        f"WHERE report_id IN {listed} ORDER BY role",
    )
    busy = _grouped(
        scope,
        "SELECT report_id, device, start_ns, end_ns, parts_pct FROM _capture_busy "
        f"WHERE report_id IN {listed}",
    )
    places = [gpu for gpu in gpus if {gpu[:2]} <= busy.keys() & steps.keys()]
    first: dict[str, int] = {}
    for gpu in places:
        (job, *_, offset_ns), start_ns = steps[gpu[:2]][0], busy[gpu[:2]][0][0]
        first[job] = min(start_ns + offset_ns, first.get(job, start_ns + offset_ns))
    for gpu in places:
        (job, *_, offset_ns), ((start_ns, end_ns, parts),) = steps[gpu[:2]][0], busy[gpu[:2]]
        shift = offset_ns - first[job]
        yield Capture(
            gpu.name,
            Span(start_ns + shift, end_ns + shift),
            tuple(Phase(name, Span(a + shift, b + shift), n) for name, a, b, n in phases[gpu[:2]]),
            tuple(round(pct, 1) for pct in parts),
            tuple((role, Span(a + shift, b + shift)) for _, role, a, b, _ in steps[gpu[:2]]),
        )


def _grouped(scope: Scope, sql: str) -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    """Return rows by report and device, without these."""
    found: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
    for report_id, device, *rest in rows_of(scope.con, sql):
        found.setdefault((report_id, device), []).append(tuple(rest))
    return found
