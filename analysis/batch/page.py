"""The page of a batch: progress, failures with reasons, bottlenecks, slow nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from perfpipe.analysis.batch import failures, tables
from perfpipe.analysis.batch.failing import failing_nodes
from perfpipe.analysis.batch.items import FAILED, OPEN, Item, times_of
from perfpipe.analysis.batch.nodes import Compared, compare_places, stands_out
from perfpipe.analysis.batch.usage import usage
from perfpipe.analysis.thresholds import thresholds
from perfpipe.batchrecord import Batch, State
from perfpipe.units import counted, format_ns, words
from perfpipe.viewmodel import Fact, Opening, Report, Section, Source, Table, Tile

#: Rows of the table on the first screen.
_ROWS = 8

#: Workloads that the title names.
_NAMED = 4


def batch_report(
    batch: Batch, items: Sequence[Item], pages: Mapping[str, str], unasked: str | None = None
) -> Report:
    """Build the page of a batch from its tasks; `pages` are those of its runs, by run id.

    `unasked` says why the scheduler did not report the state of tasks without a result.
    """
    nodes = _compared(batch, items, by_gpu=False)
    # If each node has one GPU, nodes are GPUs.
    one_each = len({(item.state.node, *item.gpus) for item in items if item.gpus}) <= len(
        {item.state.node for item in items if item.gpus}
    )
    gpus = None if one_each else _compared(batch, items, by_gpu=True)
    made = [] if gpus is None else [tables.places(batch, items, gpus, by_gpu=True)]
    sections = (
        _section(
            "progress",
            "Progress",
            tables.progress(batch, items, pages),
            failures.reasons(batch, items),
        ),
        _section("failures", "Failures", failures.failures(batch, items)),
        _section("best", "Best and worst", tables.extremes(batch, items)),
        _section(
            "nodes",
            "Nodes and GPUs",
            tables.places(batch, items, nodes, by_gpu=False),
            *made,
            usage(batch, items),
        ),
        _section("configurations", "All tasks", tables.configurations(batch, items)),
    )
    statements = tuple(_statements(batch, items, [of for of in (nodes, gpus) if of]))
    summary = tuple(_summary(batch, items, nodes))
    return Report(
        title=f"{_title(batch)} ({batch.batch_id})",
        notice=_notice(batch),
        statements=statements,
        summary=summary,
        opening=_opening(batch, items, statements, summary),
        sections=(sections[0], *(section for section in sections[1:] if section.tables)),
        warnings=(_warning(unasked),) if unasked else (),
        provenance=tuple(_provenance(batch)),
    )


def _opening(
    batch: Batch, items: Sequence[Item], statements: Sequence[Fact], summary: Sequence[Fact]
) -> Opening:
    """Return the first screen: progress, failures, outliers, and the runs."""
    source = statements[0].source
    told = {fact.name: fact for fact in summary}
    done, failed = sum(item.done for item in items), sum(item.failed for item in items)
    tiles = [
        Tile("Done", f"{done:,} of {len(items):,}", "tasks", source),
        Tile("Not successful", f"{failed:,}", "reasons are below" if failed else "", source),
    ]
    for name in ("Nodes", "Wall time"):
        if name in told:
            number, _, note = told[name].text.partition(", " if name == "Nodes" else " in ")
            tiles.append(Tile(name, number, note, told[name].source))
    said = [f"{told[name].text}" for name in ("GPU", "GPUs") if name in told]
    said += [batch.created_at[:10], counted(len(batch.runs), "run")]
    verdict = next((fact for fact in statements[1:] if "than the others" in fact.text), None)
    subject = Fact("", " · ".join(said), source)
    return Opening(subject, verdict or statements[0], tuple(tiles), lead="Runs", first_rows=_ROWS)


def _title(batch: Batch) -> str:
    names = list(dict.fromkeys(run.workload for run in batch.runs))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _warning(unasked: str) -> Fact:
    said = f"Slurm did not report the state of tasks without a result: {unasked}"
    return Fact("", said, Source("squeue", ()))


def _section(id_: str, title: str, *made: Table) -> Section:
    return Section(id_, title, tuple(table for table in made if table.rows), "there are no tasks")


def _compared(batch: Batch, items: Sequence[Item], *, by_gpu: bool) -> Compared:
    """Compare nodes or GPUs by their measurements."""
    replayed = {run.run_id for run in batch.runs if run.recording is not None}
    measured = [item for item in items if item.state.task.run_id not in replayed]
    if items and not measured:
        return Compared((), "the times come from a recording, not from these machines")
    return compare_places(times_of(measured, by_gpu=by_gpu), "GPU" if by_gpu else "node")


def _notice(batch: Batch) -> str | None:
    """Return the sentence that marks a page with replayed tasks."""
    replayed = [run for run in batch.runs if run.recording is not None]
    captured = dict.fromkeys(
        f"captured on {run.recording.captured_at} (GPU: {run.recording.gpu})"
        for run in replayed
        if run.recording is not None
    )
    if not replayed:
        return None
    if len(replayed) == len(batch.runs):
        begin, end = "Replayed", "Nothing was measured on these machines."
    else:
        names = ", ".join(dict.fromkeys(run.workload for run in replayed))
        begin, end = f"{names}: replayed", "None of its times were measured on these machines."
    of = "a recording" if len(captured) == 1 else "recordings"
    return f"{begin} from {of}: {'; '.join(captured)}. {end}"


def _statements(
    batch: Batch, items: Sequence[Item], compared: Sequence[Compared]
) -> Iterator[Fact]:
    runs = tuple(run.run_id for run in batch.runs)
    yield Fact("", how_far(items), Source("result.json", runs))
    if text := _bounds(items):
        yield Fact("", text, Source("summary.json", runs))
    waiting = Counter(item.reason for item in items if item.state.state is State.WAITING)
    for reason, count in waiting.most_common():
        if reason:
            text = f"{counted(count, 'task')} waiting: {reason}"
            yield Fact("", text, Source("squeue", ()))
    for one in failing_nodes(items):
        jobs = f"{one.failed} of {counted(one.jobs, 'job')} on {one.node}"
        text = (
            f"{jobs} failed, more than with the same configurations on other nodes"
            if one.own
            else f"{jobs} ended without a result of the program, more than on other nodes"
        )
        yield Fact("", text, Source("result.json", runs))
    odd: list[str] = []
    for of in compared:
        for place in of.places:
            # A GPU of an outlier node adds no information.
            if place.verdict and not place.name.startswith(tuple(f"{node} " for node in odd)):
                odd.append(place.name)
                yield Fact("", stands_out(place), Source("result.json", runs))


def how_far(items: Sequence[Item]) -> str:
    """Return how many tasks are done, failed and in progress."""
    counts = Counter(item.state.state for item in items)
    failed = sum(item.failed for item in items)
    done = sum(item.done for item in items)
    said = [f"{done:,} of {counted(len(items), 'task')} done"]
    for states, what in ((FAILED, "not successful: "), (OPEN, "")):
        parts = [f"{counts[state]:,} {state}" for state in states if counts[state]]
        if parts:
            before = f"{failed:,} {what}" if what and len(parts) > 1 else ""
            said.append(before + ", ".join(parts))
    return "; ".join(said)


def _bounds(items: Sequence[Item]) -> str | None:
    """Return the bottlenecks of the configurations, most frequent first."""
    known = [item.summary for item in items if item.done and item.summary.bound]
    if not known:
        return None
    bounds = Counter(words(summary.bound or "") for summary in known)
    parts = [f"{name} in {count:,}" for name, count in _sorted(bounds)]
    parts[0] += f" of {counted(len(known), 'task')}"
    text = f"Largest part of the time: {', '.join(parts)}"
    kernels = Counter(summary.kernel_bound for summary in known if summary.kernel_bound)
    if kernels:
        some = [f"{name} in {count:,}" for name, count in _sorted(kernels)[:3]]
        text += f"; most kernel time is bound by {', '.join(some)}"
    return text


def _sorted(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


def _summary(batch: Batch, items: Sequence[Item], nodes: Compared) -> Iterator[Fact]:
    runs = tuple(run.run_id for run in batch.runs)
    results = Source("result.json", runs)
    last = max((item.state.ended_at or "" for item in items), default="")
    said = batch.created_at + (f"; the last task ended {last}" if last else "")
    yield Fact("Submitted", said, Source("batch.json", (batch.batch_id,)))
    models = Counter(item.summary.gpu for item in items if item.summary.gpu)
    if models:
        named = [f"{name}" + (f" ({n})" if len(models) > 1 else "") for name, n in _sorted(models)]
        yield Fact("GPU" if len(models) == 1 else "GPUs", "; ".join(named), results)
    where = {item.state.node for item in items if item.state.node}
    if where:
        said = f"{len(where)}, not compared: {nodes.reason}"
        if nodes.places:
            odd = sum(bool(place.verdict) for place in nodes.places)
            largest = max(abs(place.ratio - 1) for place in nodes.places)
            said = f"{len(nodes.places)} of {len(where)} compared, "
            said += f"{counted(odd, 'outlier')}" if odd else "no outliers"
            said += f"; largest difference {100 * largest:.1f} %"
        yield Fact("Nodes", said, results)
    times = [item.state.seconds for item in items if item.state.seconds is not None]
    if times:
        text = f"{_duration(sum(times))} in all tasks, longest {_duration(max(times))}"
        yield Fact("Wall time", text, results)
    again = sum(item.state.attempts > 1 for item in items)
    if again:
        yield Fact("Started again", counted(again, "task"), results)
    if any(item.failed for item in items):
        yield Fact("Next", failures.resume_command(batch), Source("batch.json", (batch.batch_id,)))


def _duration(seconds: float) -> str:
    """Return a time that may be hours.

    >>> _duration(5400), _duration(300), _duration(48)
    ('1.5 h', '5 min', '48 s')
    """
    if seconds >= 3600:
        return f"{seconds / 3600:,.1f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 120 else format_ns(seconds * 1e9)


def _provenance(batch: Batch) -> Iterator[Fact]:
    source = Source("batch.json", (batch.batch_id,))
    if batch.command:
        yield Fact("Command", " ".join(batch.command), source)
    yield Fact("Runs", ", ".join(run.run_id for run in batch.runs), source)
    yield Fact("Store", batch.store, source)
    for name, value in batch.provenance.items():
        yield Fact(words(name).capitalize() if name != "perfpipe" else name, value, source)
    yield Fact("Thresholds", f"version {thresholds()['version']:g}", Source("thresholds.toml", ()))
