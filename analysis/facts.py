"""Facts about the runs of one side besides their times: settings, versions, and conditions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perfpipe.analysis.rows import rows_of
from perfpipe.database import in_list
from perfpipe.runrecord import GpuState, RunRecord, TaskResult
from perfpipe.units import format_bytes, format_rate

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Tables and views that are read here.
VIEWS = (
    *("reports", "nsys_environment", "nsys_gpus", "_gpus"),
    *("nsys_kernels", "nsys_graph_launches"),
)

#: Names of settings; the first word is their kind.
MACHINE_MODEL = "machine model"
NODE, UUID, MODEL, DRIVER, LIMIT = "node", "GPU", "GPU model", "driver", "power limit"

#: Kinds of settings, in the order in which they are shown.
ARGUMENTS = "arguments"
PROGRAM_NAME = "interpreter or program"
WORKLOAD = "workload"
PARAMETER, ARM, WORK = "parameter", "arm", "work of an iteration"
PROGRAM, ENVIRONMENT = "program", "environment"
COMPILED, GIT, PACKAGE, VERSION, MACHINE = "compiled kernel", "git", "package", "version", "machine"
KINDS = (PARAMETER, ARM, WORK, PROGRAM, COMPILED, ENVIRONMENT, GIT, PACKAGE, VERSION, MACHINE)

#: Conditions of a run; each is a number.
SM, MEMORY, TEMPERATURE = "SM clock", "memory clock", "temperature"
POWER, ECC, NEIGHBORS, THROTTLED = "power", "ECC errors", "other processes", "throttled"
UNITS = {SM: "MHz", MEMORY: "MHz", TEMPERATURE: "°C", POWER: "W"}


@dataclass(frozen=True)
class Facts:
    """The known facts about a side.

    `settings` are the distinct values among its runs, by kind and name, as far as runs record them.
    `partial` are kinds that some run may not record completely.  `conditions`
    have a value per run, None if unknown.  `throttled_by` are the limiters of clocks
    that any run met.
    """

    settings: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    conditions: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    throttled_by: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()

    def values(self, kind: str, name: str) -> tuple[str, ...]:
        """Return the values of a setting; empty if unknown."""
        return self.settings.get(kind, {}).get(name, ())


def facts_of(runs: Sequence[Sequence[TaskResult]]) -> Facts:
    """Gather facts from the results of runs; a run with several has the conditions of the worst."""
    found = _Found()
    for results in runs:
        for result in results:
            _add_result(found, result)
        found.conditions.append(_conditions(results))
        states = [result.gpu_state for result in results]
        found.throttled |= {by for state in states if state for by in state.throttled_by or ()}
    return found.facts()


def with_records(facts: Facts, runs: Sequence[RunRecord]) -> Facts:
    """Return the same with the facts in run records besides their results."""
    found = _Found()
    for run in runs:
        found.add(VERSION, "perfpipe", run.provenance.get("perfpipe"))
        found.add(PROGRAM, WORKLOAD, run.workload)
    return _merged(facts, found.facts())


def with_reports(facts: Facts, con: DuckDBPyConnection, reports: Sequence[str]) -> Facts:
    """Return the same with what profilers report about the machine and themselves."""
    found = _Found()
    chosen = f"report_id IN {in_list(list(reports))}"
    sql = f"SELECT DISTINCT kind, tool_version, gpu, host FROM reports WHERE {chosen}"
    for kind, version, gpu, host in rows_of(con, sql):
        found.add(VERSION, kind, version)
        found.add(MACHINE, MODEL, gpu)
        found.add(MACHINE, NODE, host)
    sql = f"SELECT source, name, value FROM nsys_environment WHERE {chosen}"
    for source, name, value in rows_of(con, sql):
        if name == "NvDriverVersion":
            found.add(MACHINE, DRIVER, value)
        elif source == "variable":
            found.add(ENVIRONMENT, name, value)
    sql = f"""
        SELECT r.report_id, r.command, any_value(g.report_id) IS NOT NULL,
            round(100.0 * count(k.graph_node_id) / count(k.report_id))
        FROM reports AS r
        LEFT JOIN nsys_kernels AS k ON k.report_id = r.report_id
        LEFT JOIN (SELECT DISTINCT report_id FROM nsys_graph_launches) AS g
            ON g.report_id = r.report_id
        WHERE r.{chosen} AND r.kind = 'nsys'
        GROUP BY r.report_id, r.command ORDER BY r.report_id
    """
    for _, command, whole, pct in rows_of(con, sql):
        by_graphs = None if pct is None else f"{pct:.0f} % of the kernels"
        found.add(PROGRAM, "CUDA graphs", "traced as a whole" if whole else by_graphs)
        if not facts.values(PROGRAM, ARGUMENTS):
            found.add(PROGRAM, ARGUMENTS, command)
    sql = (
        "SELECT DISTINCT g.uuid FROM _gpus AS u JOIN nsys_gpus AS g "
        f"ON g.report_id = u.report_id AND g.gpu = u.device WHERE u.{chosen}"
    )
    for (uuid,) in rows_of(con, sql):
        found.add(MACHINE, UUID, uuid)
    return _merged(facts, found.facts())


def _merged(facts: Facts, more: Facts) -> Facts:
    """Return facts with more settings; known ones stay."""
    settings = {
        kind: {**more.settings.get(kind, {}), **facts.settings.get(kind, {})}
        for kind in KINDS
        if kind in facts.settings or kind in more.settings
    }
    partial = tuple(sorted({*facts.partial, *more.partial}))
    return Facts(settings, facts.conditions, facts.throttled_by, partial)


class _Found:
    """Settings and conditions while they are gathered."""

    def __init__(self) -> None:
        self._settings: dict[str, dict[str, set[str]]] = {}
        self.conditions: list[dict[str, float | None]] = []
        self.throttled: set[str] = set()
        self.partial: set[str] = set()

    def add(self, kind: str, name: str, value: object) -> None:
        """Add a value, if there is one."""
        if value is not None and value != "":
            self._settings.setdefault(kind, {}).setdefault(name, set()).add(str(value))

    def add_all(self, kind: str, values: Mapping[str, Any] | None) -> None:
        """Add values by name."""
        if values is not None:
            # An empty list is a known value.
            self._settings.setdefault(kind, {})
            for name, value in values.items():
                self.add(kind, name, value)

    def facts(self) -> Facts:
        """Return the gathered facts."""
        settings = {
            kind: {name: tuple(sorted(values)) for name, values in sorted(own.items())}
            for kind in KINDS
            if (own := self._settings.get(kind)) is not None
        }
        names = {n: None for own in self.conditions for n, v in own.items() if v is not None}
        conditions = {name: tuple(own[name] for own in self.conditions) for name in names}
        limiters, partial = (tuple(sorted(own)) for own in (self.throttled, self.partial))
        return Facts(settings, conditions, limiters, partial)


def _add_result(found: _Found, task: TaskResult) -> None:
    found.add_all(PARAMETER, task.params)
    found.add_all(ARM, dict(setting.split("=", 1) for setting in task.variant if "=" in setting))
    found.add(WORK, "FLOPs", None if task.flops is None else format_rate(task.flops, "FLOP"))
    found.add(WORK, "bytes", None if task.bytes is None else format_bytes(task.bytes))
    if task.command:
        found.add(PROGRAM, PROGRAM_NAME, task.command[0])
        found.add(PROGRAM, ARGUMENTS, " ".join(task.command[1:]))
    if task.kernel is not None:
        numbers = {name: getattr(task.kernel, name) for name in _COMPILED}
        found.add_all(COMPILED, numbers)
    found.add_all(PACKAGE, task.software)
    if task.ran is None or task.ran.packages is None:
        # The settings that the program itself states may be incomplete.
        found.partial.add(PACKAGE)
    if task.ran is not None:
        found.add_all(ENVIRONMENT, task.ran.environment)
        found.add_all(PACKAGE, task.ran.packages)
        found.add(MACHINE, NODE, task.ran.host)
        found.add(MACHINE, MACHINE_MODEL, task.ran.machine)
        if task.ran.git is not None:
            found.add(GIT, "commit", task.ran.git.name)
            found.add(GIT, "branch", task.ran.git.branch)
        for uuid in task.ran.gpus or ():
            found.add(MACHINE, UUID, uuid)
    state = task.gpu_state
    if state is not None:
        found.add(MACHINE, DRIVER, state.driver)
        for gpu in state.gpus:
            found.add(MACHINE, MODEL, gpu.name)
            limit = gpu.power_limit_w
            found.add(MACHINE, LIMIT, None if limit is None else f"{limit:g} W")


_COMPILED = ("registers", "spills", "shared_bytes", "warps", "stages")


def _conditions(tasks: Iterable[TaskResult]) -> dict[str, float | None]:
    """Return the conditions of a run: its lowest clocks, else the highest value of its tasks."""
    states = [task.gpu_state for task in tasks if task.gpu_state is not None]
    return {
        SM: _one(min, (state.sm_mhz for state in states)),
        MEMORY: _one(min, (state.memory_mhz for state in states)),
        TEMPERATURE: _one(max, (state.temperature_c for state in states)),
        POWER: _one(max, (state.power_w for state in states)),
        ECC: _one(max, (state.ecc_errors for state in states)),
        NEIGHBORS: _one(max, (state.neighbors for state in states)),
        THROTTLED: _one(max, (_throttled(state) for state in states)),
    }


def _throttled(state: GpuState) -> float | None:
    by = state.throttled_by
    return None if by is None else float(bool(by))


def _one(choose: Any, values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(choose(known)) if known else None
