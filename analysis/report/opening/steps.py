"""The first screen of a timeline: how long a step takes, how busy the GPU is, what bounds it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from perfpipe.analysis.report.opening import gpus as of_gpus
from perfpipe.analysis.report.opening import jobs, kernels, loops
from perfpipe.analysis.report.opening.gpus import Gpu, about, chosen_of, gpus_of, named, reports_of
from perfpipe.analysis.report.opening.jobs import span_of
from perfpipe.analysis.report.opening.parts import Part
from perfpipe.analysis.report.profiled import uncovered
from perfpipe.analysis.report.ranks import Place, names_of
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.report.verdicts import INCOMPLETE, benchmark_of, cold_of
from perfpipe.analysis.rows import rows_of
from perfpipe.analysis.thresholds import thresholds
from perfpipe.analysis.words import word
from perfpipe.database import in_list, quote, same
from perfpipe.runrecord import OBSERVED, TaskResult
from perfpipe.units import counted, format_bytes, format_ns, format_rate, with_article, words
from perfpipe.viewmodel import Budget, Fact, Source, Tile

#: Views that are read here.
VIEWS = (
    *of_gpus.VIEWS,
    *jobs.VIEWS,
    *loops.VIEWS,
    "step_budget",
    "kernel_categories",
    "step_bounds",
    "step_mfu",
    "kernel_sol",
    "_idle_captures",
    "no_work_findings",
    "loop_findings",
    "few_blocks_findings",
    "migration_findings",
    "_idle_lines",
    "_recompilations",
)

#: Categories of kernels that the sentence names, and their minimum share, %.
_KINDS, _LEAST_PCT = 2, 1

#: Share of a step that its inner iterations take if the step consists of them.
_MOSTLY = 0.8

#: Minimum share of copies without kernels that is shown beside the share of kernels, %.
_COPYING_PCT = 2

#: Minimum share of idle time of one cause that is shown for a compute-bound GPU, %.
_MUCH_PCT = 25

#: A kernel that takes most of the time takes at least this, %.
_MOST_PCT = 50

#: Steps are uneven if their mean differs from their median by this share of the median.
_UNEVEN = 0.1

#: GPUs that the sentence names one by one, and whose budgets are shown.
_NAMED, _BUDGETS = 3, 8


def of_task(scope: Scope, index: int) -> list[Gpu]:
    """Return the GPUs of a configuration, none if it was not traced."""
    tasks = scope.run.tasks if scope.run is not None else ()
    found = [task for task in tasks if task.index == index and task.reports]
    return gpus_of(scope, found[0].reports) if found else []


def why_slow(gpus: Sequence[Gpu], name: str) -> str:
    """Return the largest part of a configuration's time, if it is not compute."""
    if not gpus or gpus[0].bound == "compute":
        return ""
    return f"; {name} is {word('category', gpus[0].bound, 'does')}"


def steps_of(scope: Scope) -> Part | None:
    """Return what bounds the step, or the whole timeline; None without GPU work."""
    every = gpus_of(scope)
    if not every:
        return None
    gpus = chosen_of(every)
    return replace(_of_gpus(scope, gpus), reports=reports_of(gpus), about=about(scope, every, gpus))


def _of_gpus(scope: Scope, gpus: Sequence[Gpu]) -> Part:
    """Return what bounds the step of a job or timeline."""
    reports = reports_of(gpus)
    tasks = scope.run.tasks if scope.run else ()
    task = next((task for task in tasks if reports[0] in task.reports), None)
    source = Source("timeline_bottleneck", reports)
    first = max(gpus, key=lambda gpu: gpu.step_ns or gpu.time_ns)
    if first.step_ns and not first.plain_ns:
        # What the program prints, or what was observed, is not the time of a step.
        task = None
    said = INCOMPLETE if any(gpu.incomplete for gpu in gpus) else ""
    if hardly := _hardly_used(scope, reports, len(gpus)):
        return Part(Fact("", f"{said}{hardly}", source))
    if cold := cold_of(scope, reports):
        tiles = (Tile("GPU time", format_ns(first.time_ns), "start-up", source), busy_tile(gpus))
        return Part(Fact("", f"{said}{cold}", Source("cold_start_findings", reports)), tiles)
    if timed := benchmark_of(scope, reports):
        fact = Fact("", f"{said}{timed}", Source("benchmark_loops", reports))
        return Part(fact, tuple(_reached(scope, reports)))
    parts = loops.parts_of(scope, first.report_id, first.device, first.process_id)
    mean, share = _shares(scope, first, parts.unit)
    limits = _few_blocks(scope, first) + _pages(scope, first) + _owner(scope, first, parts.unit)
    busy = jobs.waiting_of(scope, gpus)
    if len(gpus) > 1 or not limits:
        busy = busy or jobs.exposed_of(scope, gpus)
    busy = busy or _busy(gpus, share, limits, _kinds(scope, first))
    fact = Fact("", f"{said}{_length(first, parts, mean)}{busy}", source)
    return Part(fact, tuple(_tiles(scope, gpus, first, task, parts, source)))


def _hardly_used(scope: Scope, reports: Sequence[str], gpus: int) -> str:
    """Return a sentence if the GPUs of a timeline were hardly used; else an empty text."""
    sql = f"""
        SELECT sum(time_ns), max(calls_ns) FROM _idle_captures
        WHERE report_id IN {in_list(reports)}
        HAVING count(*) = {gpus}
    """
    for worked, called in rows_of(scope.con, sql):
        return (
            f"The GPU was hardly used: {format_ns(worked)} of work while the program made CUDA "
            f"calls for {format_ns(called)}"
        )
    return ""


def budgets_of(scope: Scope, reports: Sequence[str]) -> Iterator[Budget]:
    """Yield what the first GPUs of some timelines do in the analyzed time; jobs by rank.

    The categories of a job have the same order on all of its GPUs.
    """
    sql = f"""
        SELECT report_id, device, label, job, rank,
            list(category ORDER BY of_all DESC, category), list(pct ORDER BY of_all DESC, category)
        FROM (
            SELECT *, sum(pct) OVER (PARTITION BY coalesce(job, report_id), category) AS of_all
            FROM (
                SELECT *, share_pct
                    * plain_scale(category, work_scale, communication_scale, idle_scale) AS pct
                FROM gpu_time_budget
                LEFT JOIN step_times USING (report_id, device)
                LEFT JOIN _gpu_ranks USING (report_id, device)
                WHERE report_id IN {in_list(reports)} AND time_ns > 0
            )
        )
        JOIN _labels USING (report_id)
        GROUP BY position, label, report_id, device, job, rank
        ORDER BY position NULLS LAST, min(label) OVER (PARTITION BY coalesce(job, report_id)),
            rank NULLS LAST, label, report_id, device
        LIMIT {_BUDGETS}
    """
    rows = rows_of(scope.con, sql) if reports else []
    places = [Place(row[0], row[1], *row[2:5]) for row in rows]
    for place, name, (*_, categories, shares) in zip(places, names_of(places), rows, strict=True):
        yield Budget(
            name,
            tuple(zip(categories, shares, strict=True)),
            Source("gpu_time_budget", (place.report_id,)),
        )


def _length(gpu: Gpu, parts: loops.Parts, mean: str) -> str:
    if gpu.step_ns is None:
        return f"The analyzed window lasts {format_ns(gpu.time_ns)}"
    inner = ""
    if parts.inner and parts.inner_ns:
        each = gpu.untraced(parts.inner_ns)
        inner = f": {parts.inner} of {format_ns(each)}"
        # Much else than these iterations may belong to a step.
        if parts.inner_count * parts.inner_ns < _MOSTLY * gpu.step_ns:
            whole = format_ns(parts.inner_count * each)
            inner = f", {whole} of it in {parts.inner} of {format_ns(each)}"
    return f"A {parts.unit} takes {format_ns(gpu.untraced(gpu.step_ns))}{mean}{inner}"


def _kinds(scope: Scope, gpu: Gpu) -> str:
    """Return the largest categories of the kernel time of a GPU."""
    rows = rows_of(
        scope.con,
        f"""
        SELECT
            category, share_pct, longest, share_pct * longest_pct / 100,
            if(category = 'communication', overlap_pct, NULL)
        FROM kernel_categories LEFT JOIN comm_overlap USING (report_id, device)
        WHERE report_id = {quote(gpu.report_id)} AND {same("device", gpu.device)} AND time_ns > 0
        ORDER BY time_ns DESC, category LIMIT {_KINDS}
        """,
    )
    told = [
        _kind(category, share, longest, own, overlap)
        for category, share, longest, own, overlap in rows
        if share is not None and share >= _LEAST_PCT
    ]
    return f"; kernel time: {', '.join(told)}" if told else ""


def _of_gpu(scope: Scope, gpu: Gpu, select: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query that are about one GPU."""
    where = f"report_id = {quote(gpu.report_id)} AND {same('device', gpu.device)}"
    return rows_of(scope.con, f"{select} WHERE {where}")


def _few_blocks(scope: Scope, gpu: Gpu) -> str:
    """Return the kernel that takes most of the time and has too few blocks, if there is one."""
    select = "SELECT longest, longest_pct, blocks, sm_count FROM few_blocks_findings"
    for longest, longest_pct, blocks, sms in _of_gpu(scope, gpu, select):
        if longest_pct < _MOST_PCT:
            continue
        return (
            f"; {longest} takes {longest_pct:.0f} % of that time, with {counted(blocks, 'block')} "
            f"for {sms} SMs"
        )
    return ""


def _pages(scope: Scope, gpu: Gpu) -> str:
    """Return how long kernels run that may wait for pages of unified memory, if that is long.

    What such kernels compute matters less.
    """
    select = "SELECT kernel_pct, migrations, bytes FROM migration_findings"
    for kernel_pct, migrations, size in _of_gpu(scope, gpu, select):
        if kernel_pct < thresholds()["timeline.contributor_pct"]:
            continue
        return (
            f"; kernels that may wait for pages of unified memory take {kernel_pct:.0f} % of that "
            f"time ({counted(migrations, 'migration')}, {format_bytes(size)})"
        )
    return ""


def _kind(category: str, share: float, longest: str, own: float, overlap: float | None) -> str:
    """Return the category of kernels; the longest kernel if no rule matches them.

    `overlap` is the share of communication that other kernels overlap, %.
    """
    if overlap is not None:
        return f"{share:.0f} % communication ({overlap:.0f} % of it overlapped)"
    if category != "other":
        return f"{share:.0f} % {words(category)}"
    if 2 * own >= share:
        return f"{own:.0f} % {longest}"
    return f"{share:.0f} % other kernels ({longest} {own:.0f} %)"


def _shares(scope: Scope, gpu: Gpu, unit: str) -> tuple[str, str]:
    """Return the mean step if steps are uneven, and how long the GPU is busy and copies."""
    of_all = f"{'at least ' if gpu.incomplete else ''}{gpu.busy_pct:.0f} %"
    copying = f" and copying for {_copying([gpu])}" if _copying([gpu]) else ""
    if gpu.kind != "steady" or not gpu.steps or gpu.step_ns is None:
        return "", f"{of_all} of that time{copying}"
    mean_ns = gpu.time_ns / gpu.steps
    if abs(mean_ns - gpu.step_ns) <= _UNEVEN * gpu.step_ns:
        return "", f"{of_all} of that time{copying}"
    sql = f"""
        SELECT median(busy_pct) FROM (
            SELECT 100 * sum(time_ns) / any_value(step_ns) AS busy_pct
            FROM step_budget
            WHERE report_id = {quote(gpu.report_id)} AND {same("device", gpu.device)}
                AND phase = 'steady' AND is_busy(category)
            GROUP BY step_index
        )
    """
    ((typical,),) = rows_of(scope.con, sql)
    typical = min(100.0, typical * gpu.work_scale)
    return (
        f" (median; {format_ns(gpu.untraced(mean_ns))} on average)",
        f"{typical:.0f} % of a median {unit} and {of_all} of all steady "
        f"{'batches' if unit == 'batch' else f'{unit}s'}{',' if copying else ''}{copying}",
    )


def _copying(gpus: Sequence[Gpu]) -> str:
    """Return the share of time in which GPUs only copy; empty if it is negligible."""
    shares = [gpu.copying_pct for gpu in gpus]
    return f"{span_of(shares)} %" if max(shares) >= _COPYING_PCT else ""


def _busy(gpus: Sequence[Gpu], share: str, limits: str, kinds: str) -> str:
    if len(gpus) == 1:
        (gpu,) = gpus
        busy = f", and the GPU is busy for {share}"
        if gpu.bound == "compute":
            return f"{busy}{_idle(gpu)}{limits or kinds}"
        bound = word("category", gpu.bound, "does")
        if gpu.slow_pct is not None and gpu.bound == "launch_overhead":
            bound += f" and waits for one recurring launch for {gpu.slow_pct:.0f} % of the step"
        if gpu.loads and gpu.bound == "host":
            bound += " and waits for input data"
        return f"{busy}; the GPU is {bound}{limits}"
    if len(gpus) <= _NAMED:
        parts = [
            f"{name} spends {gpu.share_pct:.0f} %{'' if place else ' of it'} "
            f"{word('category', gpu.bound, 'does')}"
            for place, (name, gpu) in enumerate(zip(named(gpus), gpus, strict=True))
        ]
        return f"; {', '.join(parts)}"
    bounds = statistics.multimode(gpu.bound for gpu in gpus)
    shares = [f"{gpu.share_pct:.0f}" for gpu in gpus if gpu.bound == bounds[0]]
    span = min(shares) if len(set(shares)) == 1 else f"{min(shares)} to {max(shares)}"
    does = word("category", bounds[0], "does")
    return f"; {len(shares)} of {len(gpus)} GPUs spend {span} % of the time {does}"


def _owner(scope: Scope, gpu: Gpu, unit: str) -> str:
    """Return what the program waits for besides its own work: requests, or a loop on the host."""
    select = "SELECT share_pct, median_ns, p95_ns, busy_pct FROM no_work_findings"
    for share, median_ns, p95_ns, busy in _of_gpu(scope, gpu, select):
        return (
            f"; no request is there for {share:.0f} % of the time; without this wait, "
            f"{with_article(unit)} takes {format_ns(median_ns)} (p95 {format_ns(p95_ns)}), "
            f"and the GPU is busy for {busy:.0f} % of that time"
        )
    for (kind,) in _of_gpu(scope, gpu, "SELECT kind FROM loop_findings"):
        loop = "a while loop of XLA" if kind == "xla" else "a loop on the host"
        return f"; {loop} reads values back to decide how to go on{_line(scope, gpu, 'sync')}"
    built = ""
    if gpu.bound == "building":
        built = "".join(
            f"; {words}" for (words,) in _of_gpu(scope, gpu, "SELECT words FROM _recompilations")
        )
    line = _line(scope, gpu, gpu.bound)
    return f"{built};{line[1:]}" if built and line else built or line


def _line(scope: Scope, gpu: Gpu, bound: str) -> str:
    """Return the lines of the program that take most of the idle time with this cause."""
    for own, said in _of_gpu(scope, gpu, "SELECT bound, words FROM _idle_lines"):
        if own == bound:
            return f": {said}"
    return ""


def _idle(gpu: Gpu) -> str:
    """Return the largest cause of idle time of a GPU, if it is idle for much of its time."""
    if gpu.idle is None or gpu.idle_pct is None or gpu.idle_pct < _MUCH_PCT:
        return ""
    return f"; largest idle part: {words(gpu.idle)}, {gpu.idle_pct:.0f} %"


def _tiles(
    scope: Scope,
    gpus: Sequence[Gpu],
    first: Gpu,
    task: TaskResult | None,
    parts: loops.Parts,
    source: Source,
) -> Iterator[Tile]:
    windows = Source("analysis_windows", source.reports)
    times = sorted(task.times_ms) if task is not None else []
    observed = task is not None and task.timing_method == OBSERVED
    traced = f"{format_ns(first.step_ns)} when traced" if first.step_ns else ""
    if times:
        median = statistics.median(times)
        p95 = statistics.quantiles(times, n=20)[-1] if len(times) > 1 else median
        many = counted(len(times), "observed step" if observed else "iteration")
        note = "; ".join((f"p95 {format_ns(p95 * 1e6)}, {many}", *_rates(task, median), traced))
        timed = Source("run_times", (scope.run.run_id,) if scope.run else ())
        name = parts.unit.capitalize() if observed else "Iteration"
        yield Tile(name, format_ns(median * 1e6), note.rstrip("; "), timed)
    elif first.step_ns is not None:
        p95_ns = f"p95 {format_ns(first.p95_ns)}, " if first.p95_ns and first.steps != 1 else ""
        means = (
            f", each the mean of {counted(first.averaged, 'iteration')}"
            if first.averaged and first.averaged > 1
            else ""
        )
        note = f"{p95_ns}{counted(first.steps or 0, 'traced steady step')}{means}"
        said = (parts.rate(first.step_ns), parts.layers)
        note = "; ".join((note, *(part for part in said if part)))
        yield Tile(parts.unit.capitalize(), format_ns(first.step_ns), note, windows)
    else:
        yield Tile("GPU time", format_ns(first.time_ns), "no repeating step was found", windows)
    yield busy_tile(gpus)
    # What bounds kernels matters little where there are hardly any.
    if first.busy_pct >= thresholds()["timeline.contributor_pct"]:
        yield from _reached(scope, source.reports)


def _rates(task: TaskResult | None, median_ms: float) -> Iterator[str]:
    """Yield how many samples and tokens are processed in a second, if their number is declared."""
    for unit in ("samples", "tokens"):
        count = getattr(task, unit, None)
        if count and median_ms > 0:
            yield f"{1e3 * count / median_ms:,.0f} {unit}/s"


def busy_tile(gpus: Sequence[Gpu]) -> Tile:
    """Return how busy GPUs are, and the largest cause of idle time of the first GPU.

    If GPUs communicate for much of the time, how long they compute: a GPU that waits for another
    one in a collective is busy with nothing else.
    """
    first = gpus[0]
    of = "the steady steps" if first.kind == "steady" else "the analyzed window"
    idle = first.share_pct if first.bound not in ("compute", "communication", "transfer") else None
    note = f"of {of}"
    note += f"; copying: {copying}" if (copying := _copying(gpus)) else ""
    note += f"; {words(first.bound)}: {idle:.0f} %" if idle is not None else ""
    reports = tuple(dict.fromkeys(gpu.report_id for gpu in gpus))
    least = "≥ " if any(gpu.incomplete for gpu in gpus) else ""
    source = Source("gpu_time_budget", reports)
    if max(gpu.exposed_pct for gpu in gpus) >= _COPYING_PCT:
        computing = span_of([gpu.busy_pct - gpu.exposed_pct for gpu in gpus])
        exposed = span_of([gpu.exposed_pct for gpu in gpus])
        total = span_of([gpu.communication_pct for gpu in gpus])
        note = f"communication: {exposed} % exposed, {total} % in total; {note}"
        return Tile("Computing", f"{least}{computing} %", note, source)
    span = span_of([gpu.busy_pct for gpu in gpus])
    return Tile("GPU busy", f"{least}{span} %", note, source)


def _reached(scope: Scope, reports: Sequence[str]) -> Iterator[Tile]:
    """Yield the MFU if FLOPs are declared; else how close the kernels are to their limit."""
    listed = in_list(reports)
    mfu = rows_of(
        scope.con,
        "SELECT median(mfu_pct), median(model_flop_per_s), count(*) FROM step_mfu "
        f"WHERE report_id IN {listed}",
    )
    ((pct, rate, steps),) = mfu
    if pct is not None:
        note = f"of the dense peak: {format_rate(rate, 'FLOP/s')}; {counted(steps, 'step')}"
        yield Tile("MFU", f"{pct:.3g} %", note, Source("step_mfu", tuple(reports)))
        return
    source = Source("step_bounds", tuple(reports))
    known = rows_of(
        scope.con,
        f"""
        SELECT
            time_weighted(sol_pct, time_ns),
            coalesce(sum(share_pct ORDER BY rank) FILTER (sol_pct IS NOT NULL), 0), count(*)
        FROM step_bounds WHERE report_id IN {listed}
        """,
    )
    ((sol_pct, share_pct, joined),) = known
    if joined and (sol_pct is None or share_pct < thresholds()["timeline.contributor_pct"]):
        why = f"{share_pct:.2g} % of kernel time profiled"
        yield Tile("Mean SOL", "unknown", why, source)
    elif sol_pct is not None:
        note = f"{share_pct:.0f} % of kernel time profiled"
        ((some,),) = rows_of(scope.con, "SELECT coalesce(bool_or(one_pass), false) FROM kernel_sol")
        least = "≥ " if some else ""
        yield Tile("Mean SOL", f"{least}{sol_pct:.0f} %", note, source)
    elif scope.profiled and len(uncovered(scope)) == scope.kinds["ncu"]:
        yield Tile("Mean SOL", "unknown", "ncu profiled other kernels", source)
    elif scope.profiled:
        yield from kernels.sol_of(scope)
    else:
        why = "no kernels were profiled, and no FLOPs were declared (see perfpipe work)"
        yield Tile("Share of peak", "unknown", why, source)
