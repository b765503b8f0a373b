"""Which processes share a GPU, for the top of a report."""

from __future__ import annotations

from collections.abc import Iterator

from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import rows_of
from perfpipe.database import in_list
from perfpipe.units import format_ns, gpu_name
from perfpipe.viewmodel import Fact, Source

#: Views that are read here.
VIEWS = ("gpu_processes", "analysis_windows", "_labels")

#: Maximum number of processes that are named.
_NAMED = 4


def sharing_of(scope: Scope) -> Iterator[Fact]:
    """Yield the processes that share a GPU, and the scope of the shares of its time."""
    sql = f"""
        SELECT
            l.label, p.device, count(*),
            list({{pid: p.process_id, busy: p.busy_pct, step: p.step_ns}}
                ORDER BY p.busy_ns DESC, p.process_id),
            any_value(w.process_id),
            any_value(p.other_pct) FILTER (p.process_id = w.process_id)
        FROM gpu_processes AS p
        JOIN analysis_windows AS w USING (report_id, device)
        JOIN _labels AS l USING (report_id)
        WHERE report_id IN {in_list(scope.reports)}
        GROUP BY report_id, p.device, l.label, l.position
        ORDER BY l.position NULLS LAST, l.label, report_id, p.device
    """
    rows = rows_of(scope.con, sql)
    if not rows:
        return
    label, device, many, processes, counted, other_pct = rows[0]
    of = f"{label}, " if len(scope.reports) > 1 else ""
    text = f"{of}{gpu_name(device)} is shared by {many} processes: "
    text += ", ".join(_process(**process) for process in processes[:_NAMED])
    text += f" and {many - _NAMED} more" if many > _NAMED else ""
    text += "; shares of time include the work of all processes"
    if counted is not None:
        text += f", in the steps of process {counted}"
    if other_pct is not None:
        text += f"; for {other_pct:.0f} % of this time only other processes use the GPU"
    text += f" (and {len(rows) - 1} more GPUs)" if len(rows) > 1 else ""
    yield Fact("Shared GPU", text, Source("gpu_processes", scope.reports))


def _process(pid: int | None, busy: float | None, step: float | None) -> str:
    took = f"busy {busy or 0:.0f} % of the time"
    took += f", {format_ns(step)} a step" if step is not None else ""
    return f"{'unknown' if pid is None else pid} ({took})"
