"""Says before a run which launches of the program there will be, why, and how long they took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from perfpipe.pipelines.plan import Plan
from perfpipe.pipelines.runs import Run
from perfpipe.pipelines.workload import Scalar
from perfpipe.runrecord import TaskResult
from perfpipe.secrets import hide_words
from perfpipe.store import Store
from perfpipe.units import counted, format_ns

#: How launches of each kind run, and what they are for.
_UNDER = {
    "plain": ("without a profiler", "for the times"),
    "nsys": ("under nsys", "for the timeline"),
    "torch": ("under torch.profiler", "for the operators"),
    "ncu": ("under ncu", "for the counters of"),
    "modules": ("under nsys", "for the GPU time of PyTorch's modules"),
}

#: The same for servers.
_SERVED = {
    "plain": ("without a profiler", "for the latencies at each rate"),
    "nsys": ("under nsys", "for the timeline of a window of each load"),
    "torch": ("with its own torch.profiler", "for the operators in a window of each load"),
    "ncu": ("under ncu", "for the counters of kernels from the timeline"),
}

#: What ncu does if it replays the whole program.
_ANEW = "; ncu starts the program anew for each pass (replay_mode)"


def announced(plan: Plan, store: Store, *, preview: bool = False) -> Iterator[str]:
    """Yield lines on the launches of a run, with the times of the last ones, if they are known.

    `preview` says that a verdict is printed before ncu.
    """
    if plan.workload.tune is not None:
        yield from _of_search(plan)
        return
    if plan.workload.serve is not None:
        yield from _of_servers(plan)
        return
    counts = {"plain": plan.workload.launches, **dict.fromkeys(plan.profilers, 1)}
    each, tasks = sum(counts.values()), len(plan.tasks)
    of = "" if tasks == 1 else f", {each} for each of {tasks:,} configurations"
    why = ", because each profiler slows it in its own way" if plan.profilers else ""
    yield f"{counted(each * tasks, 'launch')} of the program{of}{why}"
    last = _last_times(plan, store)
    for name, count in counts.items():
        under, purpose = _UNDER[name]
        took = f" ({format_ns(1e9 * last[name])} last time)" if name in last else ""
        follows = "; a preliminary verdict follows" if preview and name == "nsys" else ""
        kernels = _kernels(plan) if name == "ncu" else ""
        yield f"  {count * tasks:,} {under}{took}, {purpose}{kernels}{follows}"
    if plan.resume:
        yield "  configurations with a result are not launched again"
    if "plain" not in last:
        yield f"  how long a launch takes is unknown before the first one; {_limit(plan)}"


def _kernels(plan: Plan) -> str:
    """Return which kernels ncu profiles."""
    ncu = plan.workload.collect.ncu
    if ncu is None or not ncu.guided:
        chosen = " the kernels that the workload file selects"
    elif plan.profilers == ("ncu",):
        chosen = " the first launch of each kernel"
    else:
        chosen = " the kernels that take most of the timeline"
    anew = ncu is not None and ncu.replay_mode in ("application", "app-range")
    return chosen + (_ANEW if anew else "")


def _limit(plan: Plan) -> str:
    duration, timeout = plan.workload.duration, plan.workload.timeout
    if duration is not None:
        return f"each is stopped after {duration:g} s"
    return f"one that takes longer than {timeout:g} s fails"


def _of_servers(plan: Plan) -> Iterator[str]:
    """Yield how often the server is started, and for what."""
    counts = {"plain": 1, **dict.fromkeys(plan.profilers, 1)}
    each, tasks = len(counts), len(plan.tasks)
    of = "" if tasks == 1 else f", {each} for each of {tasks:,} configurations"
    yield f"{counted(each * tasks, 'start')} of the server{of}"
    for name in counts:
        under, purpose = _SERVED[name]
        yield f"  {tasks:,} {under}, {purpose}"
    if plan.resume:
        yield "  loads that ran to their end are kept"


def _of_search(plan: Plan) -> Iterator[str]:
    tune, launches = plan.workload.tune, plan.workload.launches
    assert tune is not None  # noqa: S101
    most = f"of which there are at most {plan.launches:,}"
    yield f"{counted(launches, 'launch')} of each configuration, {most}"
    if tune.confirm:
        yield f"  {tune.confirm} more of the fastest one and of the default, to confirm the gain"
    for name in plan.profilers:
        under, purpose = _UNDER[name]
        kernels = _kernels(plan) if name == "ncu" else ""
        yield f"  1 of the fastest one and of the default {under}, {purpose}{kernels}"


def _last_times(plan: Plan, store: Store) -> Mapping[str, float]:
    """Return how long all launches of a kind took when they were last measured, s, by kind.

    A kind is missing unless a run has the times of all configurations.
    """
    names = ("plain", *plan.profilers)
    found: dict[str, float] = {}
    for run in reversed(Run.measured(store, plan.workload.name, plan.words)):
        known = {_identity(task.command, task.params): task for task in run.tasks}
        then = [known.get(_identity(task.command, task.params)) for task in plan.tasks]
        for name in names:
            times = [_time(plan, task, name) for task in then]
            if name not in found and None not in times:
                found[name] = sum(time or 0.0 for time in times)
        if len(found) == len(names):
            break
    return found


def _identity(command: Sequence[str], params: Mapping[str, Scalar]) -> tuple[tuple[str, ...], str]:
    # Results have their words without secrets.
    return hide_words(tuple(command)), repr(dict(params))


def _time(plan: Plan, then: TaskResult | None, name: str) -> float | None:
    """Return the time of a kind of launch of a task; None if it ended in another way."""
    if then is None or not then.done or then.ended_after_s != plan.workload.duration:
        return None
    if name != "plain":
        return then.profiler_s.get(name)
    return sum(then.seconds) if len(then.seconds) == plan.workload.launches else None
