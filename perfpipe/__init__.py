"""perfpipe: profiles GPU workloads and reports what limits them.

In a program or a notebook::

    import perfpipe

    @perfpipe.profiled({"size": [512, 4096], "dtype": ["fp16", "bf16"]})
    def gemm(size, dtype): ...                      # prepares, and returns the step to measure

    result = gemm.profile()
    result.frame()                                  # a row for each configuration
    result.plot("size", "median_ms", by="dtype")
    perfpipe.report("@1")                           # the newest run of the store

Imports nothing but the standard library, until something is called that needs more.
"""

from __future__ import annotations

from perfpipe import early

early.heed_interrupts()

from typing import TYPE_CHECKING, overload  # noqa: E402

from perfpipe import functions  # noqa: E402
from perfpipe.windows import STEADY  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from perfpipe.analysis.session import Session
    from perfpipe.functions import Profiled
    from perfpipe.pipelines.api.results import Results

    #: Values of each parameter, or configurations.
    Parameters = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]

__all__ = ["open_store", "profile", "profiled", "report"]

__version__ = "0.1.0"


@overload
def profiled(parameters: Callable[..., Any], /) -> Profiled: ...
@overload
def profiled(
    parameters: Parameters | None = None, /, **settings: Any
) -> Callable[[Callable[..., Any]], Profiled]: ...
def profiled(parameters: Any = None, /, **settings: Any) -> Any:
    """Declare a function that perfpipe profiles: `@perfpipe.profiled({"size": [512, 4096]})`.

    The arguments are those of `profile`, which `.profile()` of the function calls with them.
    """
    if callable(parameters):
        return functions.Profiled(parameters, None, settings)
    return lambda function: functions.Profiled(function, parameters, settings)


def profile(
    what: Callable[..., Any] | str | Path,
    parameters: Parameters | None = None,
    /,
    *,
    collector: str | None = None,
    store: str | Path | None = None,
    metrics: Sequence[str] = (),
    **settings: Any,
) -> Results:
    """Profile a function, or the program of a workload file, for some parameters.

    A function is called with the parameters, by name.  It prepares, and returns a callable: the
    step, which is timed and profiled.  If it returns anything else, its whole call is the step.  As
    with `perfpipe run`, each configuration runs in processes of its own: without a profiler, under
    nsys, and under ncu.  So the function must be at the top level of a file or a notebook.

    `parameters` maps each parameter to its values, all combinations of which are run, or is a list
    of configurations; for a workload file, the values replace those of the file.  Values are
    numbers, text, booleans or None.  `collector` is that of `perfpipe run`: auto (the default),
    timing, nsys, ncu, torch, all or replay.  `metrics` are names of ncu metrics to collect in
    addition.  `settings` are keys of a workload file, such as `repeats=20` and
    `work={"flops": "2*size**3"}`; for a workload file only warmup, repeats, launches, timeout and
    duration.

    Without a GPU, auto replays the `recording`, if there is one.

    Raises InputError for what cannot be profiled, ToolMissing if a profiler is not installed,
    TaskFailed if every configuration failed.
    """
    if functions.launched:
        raise functions.InLaunch
    from perfpipe.pipelines.api.profiling import profile as run

    return run(what, parameters, collector, store, metrics, settings)


def report(*names: str | Path, store: str | Path | None = None) -> Results:
    """Return the report of runs, reports or files; in a notebook it is shown.

    A name is the id of a run or report, or a prefix of it, @1 for the newest run, the name of a
    workload for its newest run, or a file, which is read into the store.  Without names: the newest
    run, or else all reports.

    Raises InputError for an unknown name, StoreError if there is no store.
    """
    from perfpipe.pipelines.api.results import Results

    return Results.named(names, store)


def open_store(
    path: str | Path | None = None,
    reports: Collection[str] | None = None,
    *,
    step_range: str | int | None = None,
    window: str = STEADY,
) -> Session:
    """Open a store for SQL, with every table and view of `perfpipe schema`.

    `path` defaults to $PERFPIPE_STORE, else ./perfpipe-store.  `reports` are the ids of the reports
    to open (default: all), which is faster in a large store.  `step_range` is a regular expression
    of NVTX ranges to treat as steps, or the number of a loop (view `loops`) whose iterations are
    the steps; `window` is the part of timelines to analyze: steady, whole,
    startup, or a step's name or number.  `.sql(query)` returns a DuckDB relation.

    Raises StoreError if there is no store, or it was written with another schema version,
    InputError if `step_range` is not a regular expression.
    """
    from perfpipe.analysis.session import Session
    from perfpipe.store import Store

    store = Store.locate(path, must_exist=True)
    return Session.open(store, reports, step_range=step_range, window=window)
