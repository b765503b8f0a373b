"""Rows of the ncu tables, gathered launch by launch and written in batches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from perfpipe.ingest.builder import ReportBuilder
from perfpipe.tablewriter import TableWriter

#: Rows to gather before writing.
_BATCH = 100_000

DURATION = "gpu__time_duration.sum"


class Rows:
    """Rows as columns, written to a table whenever a batch is full."""

    def __init__(self, writer: TableWriter, columns: tuple[str, ...]) -> None:
        self._writer = writer
        self._columns: dict[str, list[Any]] = {name: [] for name in columns}
        self._first = next(iter(self._columns.values()))

    def add(self, *values: Any) -> None:
        """Add a row."""
        for column, value in zip(self._columns.values(), values, strict=True):
            column.append(value)
        if len(self._first) >= _BATCH:
            self.flush()

    def extend(self, rows: int, **values: Any) -> None:
        """Add rows as columns: a list with a value per row, or one value for all rows."""
        for name, column in self._columns.items():
            value = values[name]
            column.extend(value if isinstance(value, list) else [value] * rows)
        if len(self._first) >= _BATCH:
            self.flush()

    def write(self, rows: int, columns: dict[str, Any]) -> None:
        """Write rows given as columns, after the gathered rows."""
        if self._first:
            self.flush()
        self._writer.write(columns, rows)

    def flush(self) -> None:
        """Write the gathered rows."""
        if self._first or not self._writer.rows:
            self._writer.write(self._columns, len(self._first))
            for column in self._columns.values():
                column.clear()


LAUNCH_COLUMNS = (
    "launch_id",
    "range_index",
    "action_index",
    "workload_type",
    "kernel_name",
    "kernel_demangled",
    "cc",
    "device",
    "device_name",
    "context",
    "stream",
    "grid_x",
    "grid_y",
    "grid_z",
    "block_x",
    "block_y",
    "block_z",
    "process_id",
    "nvtx_path",
    "duration_ns",
)


@dataclass
class Launch:
    """One row of ncu_launches; grid and block are (x, y, z), None for a range."""

    launch_id: int
    kernel_name: str
    kernel_demangled: str
    workload_type: str = "kernel"
    range_index: int | None = None
    action_index: int | None = None
    cc: str | None = None
    device: int | None = None
    device_name: str | None = None
    context: int | None = None
    stream: int | None = None
    grid: tuple[int | None, ...] = (None, None, None)
    block: tuple[int | None, ...] = (None, None, None)
    process_id: int | None = None
    nvtx_path: str | None = None
    duration_ns: float | None = None

    def row(self) -> tuple[Any, ...]:
        """Return the values in the order of LAUNCH_COLUMNS."""
        values = {**vars(self)}
        for name in ("grid", "block"):
            values |= dict(zip((f"{name}_x", f"{name}_y", f"{name}_z"), values[name], strict=True))
        return tuple(values[column] for column in LAUNCH_COLUMNS)


@dataclass
class NcuTables:
    """Writers of the ncu tables of one report."""

    launches: Rows
    metrics: Rows
    instances: Rows
    rules: Rows
    source: Rows

    def flush(self) -> None:
        """Write the gathered rows of all tables."""
        for rows in (self.launches, self.metrics, self.instances, self.rules, self.source):
            rows.flush()


SOURCE_STALLS = tuple(
    "barrier branch_resolving dispatch_stall drain gmma imc_miss lg_throttle long_scoreboard "
    "math_pipe_throttle membar mio_throttle misc no_instruction not_selected selected "
    "short_scoreboard sleeping tex_throttle wait".split()
)

SOURCE_COLUMNS = (
    "launch_id",
    "pc",
    "address",
    "sass",
    "file",
    "line",
    "text",
    "samples",
    "samples_not_issued",
    "executions",
    "thread_executions",
    *(f"stall_{reason}" for reason in SOURCE_STALLS),
)


@contextmanager
def ncu_tables(builder: ReportBuilder) -> Iterator[NcuTables]:
    """Open the ncu tables; they are complete if the block succeeds."""
    columns = {
        "ncu_launches": LAUNCH_COLUMNS,
        "ncu_metrics": ("launch_id", "metric", "value", "text", "unit"),
        "ncu_instances": ("launch_id", "metric", "instance", "key_int", "key_text", "value"),
        "ncu_rules": (
            "launch_id",
            "result_index",
            "rule",
            "section",
            "title",
            "message",
            "type",
            "speedup_kind",
            "speedup_pct",
        ),
        "ncu_source": SOURCE_COLUMNS,
    }
    with ExitStack() as stack:
        tables = NcuTables(
            *(Rows(stack.enter_context(builder.table(name)), c) for name, c in columns.items())
        )
        yield tables
        tables.flush()
