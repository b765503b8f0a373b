"""Profiles a function or the program of a workload file, from Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfpipe.errors import InputError
from perfpipe.functions import Profiled
from perfpipe.pipelines.api.function import workload_of
from perfpipe.pipelines.api.results import Results
from perfpipe.pipelines.console import progress, say
from perfpipe.pipelines.launcher import Launcher
from perfpipe.pipelines.launches import announced
from perfpipe.pipelines.plan import (
    COLLECTORS,
    Plan,
    choose_collector,
    nothing_to_replay,
    planned_tasks,
)
from perfpipe.pipelines.runner import execute, raise_for_status
from perfpipe.pipelines.signals import launching
from perfpipe.pipelines.tasks import directory_of
from perfpipe.pipelines.tools import gpus_on
from perfpipe.pipelines.workload import CollectNcu, Scalar, Workload, load_workload
from perfpipe.runrecord import RunRecord
from perfpipe.store import Store
from perfpipe.sweeping import sweep
from perfpipe.units import counted

#: How to time a program without a GPU, for a message.
_TIMING = 'collector="timing" measures how long it takes'


def profile(
    what: Callable[..., Any] | str | Path,
    parameters: Any,
    collector: str | None,
    store_path: str | Path | None,
    metrics: Sequence[str],
    settings: Mapping[str, Any],
) -> Results:
    """Run every configuration; arguments and errors are those of `perfpipe.profile`."""
    if isinstance(what, Profiled):
        own = dict(what.settings)
        stated = own.pop("collector", None), own.pop("store", None), own.pop("metrics", ())
        collector, store_path = collector or stated[0], store_path or stated[1]
        metrics, settings = metrics or stated[2], {**own, **settings}
        parameters = what.parameters if parameters is None else parameters
    collector = collector or "auto"
    if collector not in COLLECTORS:
        raise InputError(f"collector={collector!r}: not one of {', '.join(COLLECTORS)}")
    store = Store.locate(store_path)
    if callable(what):
        workload, path = workload_of(what, parameters, settings, store)
    elif not isinstance(what, str | Path):
        raise InputError(f"{what!r} is neither a function nor the path of a workload file")
    else:
        workload, path = _from_file(Path(what), parameters, settings)
    workload = _with_metrics(workload, metrics)
    record = _run(_plan(workload, path, collector), store)
    return Results.of_run(store, record, metrics)


def _from_file(path: Path, parameters: Any, settings: Mapping[str, Any]) -> tuple[Workload, Path]:
    """Return the workload of a file with other values of its parameters and settings."""
    if path.suffix not in (".yaml", ".yml"):
        raise InputError(
            f"{path}: neither a function nor a workload file (.yaml); for any other program, use "
            "'perfpipe run -- PROGRAM', and then perfpipe.report()"
        )
    if parameters is not None and not isinstance(parameters, Mapping):
        raise InputError(f"{path}: give its parameters as a mapping from names to lists of values")
    overrides: dict[str, list[Scalar]] = {name: [value] for name, value in settings.items()}
    for name, values in (parameters or {}).items():
        overrides[name] = list(values) if isinstance(values, Sequence | range) else [values]
    return load_workload(path, overrides), path


def _with_metrics(workload: Workload, metrics: Sequence[str]) -> Workload:
    """Return the workload, with which ncu also collects these metrics."""
    if not metrics:
        return workload
    if isinstance(metrics, str):
        raise InputError(f"metrics={metrics!r}: give a list of names")
    ncu = workload.collect.ncu or CollectNcu.model_validate({})
    every = list(dict.fromkeys((*ncu.metrics, *metrics)))
    collect = workload.collect.model_copy(update={"ncu": ncu.model_copy(update={"metrics": every})})
    return workload.model_copy(update={"collect": collect})


def _plan(workload: Workload, path: Path, asked: str) -> Plan:
    launcher = Launcher(workload.execution, directory_of(workload, path))
    kind, reason = choose_collector(asked, launcher)
    if kind == "replay" and workload.recording is None:
        raise nothing_to_replay(workload.name, asked, gpus_on(launcher), _TIMING)
    plan = Plan(workload, path, planned_tasks(workload, path), kind)
    say(f"{workload.name}: {counted(plan.launches, 'configuration')}; {reason}")
    return plan


def _run(plan: Plan, store: Store) -> RunRecord:
    """Run a plan; raises TaskFailed if nothing succeeded, and notes other failures."""
    if plan.collector != "replay":
        for line in announced(plan, store):
            say(line)
    sweep(store)
    with launching(), progress(plan.workload.name, plan.launches) as steps:
        record = execute(plan, store, steps)
    if not any(task.done for task in record.tasks):
        raise_for_status(record)
    return record
