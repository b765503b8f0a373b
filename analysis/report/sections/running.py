"""What a running program did while `perfpipe attach` looked at it."""

from __future__ import annotations

from dataclasses import dataclass

from perfpipe.analysis.report.declare import LABEL, Col, Missing, SectionSpec, TableSpec
from perfpipe.analysis.report.running import KIND
from perfpipe.analysis.report.scope import Scope
from perfpipe.database import in_list

#: Lines of each thread, and threads with lines.
_LINES, _ROWS = 20, 200


@dataclass(frozen=True)
class AttachedTable(TableSpec):
    """A table of what was sampled of a running program."""

    def wanted(self, scope: Scope) -> bool:
        return bool(scope.kinds.get(KIND))

    @property
    def views(self) -> tuple[str, ...]:
        return (self.view, "_labels", "process_use")

    def sql(self, columns: str, scope: Scope) -> str:
        return f"""
            SELECT {columns} FROM {self.view} JOIN _labels USING (report_id)
            WHERE {self.where} AND report_id IN (
                SELECT report_id FROM process_use WHERE report_id IN {in_list(scope.reports)}
            )
            ORDER BY {self.order}
        """


HOST_LINES = AttachedTable(
    "host_code",
    "Time of the host by line",
    (
        LABEL,
        Col("place", "Line", sql="short_source(file) || coalesce(':' || line, '')", doc="line"),
        Col("file", "File", detail=True, hover_of="place"),
        Col("function", "Function"),
        Col("library_function", "Calls"),
        Col("kind", "Owner"),
        Col("pid", "Process", "int"),
        Col("tid", "Thread", "int"),
        Col("time_ns", "Time", "ns"),
        Col("share_pct", "Share", "pct", "% of the thread"),
        Col("samples", "Samples", "int", detail=True),
    ),
    order="tid != pid, is_worker, time_ns DESC, pid, tid, rank",
    where=f"rank <= {_LINES}",
    limit=_ROWS,
    key="{place} {share_pct} of the thread",
)

PROCESSES = AttachedTable(
    "process_use",
    "Processes of the program",
    (
        LABEL,
        Col("pid", "Process", "int"),
        Col("name", "Name"),
        Col("cpu_pct", "CPU", "pct", "% of a core"),
        Col("threads", "Threads", "int"),
        Col("running", "Running threads", "number"),
        Col("blocked", "Blocked threads", "number", detail=True),
        Col("memory_bytes", "Memory", "bytes"),
        Col("read_bytes_s", "Read", "bytes", "per s"),
        Col("written_bytes_s", "Written", "bytes", "per s"),
    ),
    order="cpu_pct DESC NULLS LAST, pid",
)

GPUS = AttachedTable(
    "gpu_use",
    "GPUs of the program",
    (
        LABEL,
        Col("device", "GPU", "int"),
        Col("name", "Model"),
        Col("busy_pct", "Busy", "pct", "%"),
        Col("memory_bytes", "Memory", "bytes"),
        Col("program_bytes", "Used by the program", "bytes"),
        Col("power_w", "Power", "number", "W"),
        Col("sm_mhz", "SM clock", "number", "MHz"),
    ),
    order="device",
)

SECTION = SectionSpec(
    "running",
    "Running program",
    Missing(
        "the program was not attached to",
        perfpipe="look at a running program with perfpipe attach PID",
    ),
    (
        HOST_LINES,
        PROCESSES,
        GPUS,
    ),
)
