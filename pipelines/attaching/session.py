"""Attaches to a program: chooses the ways, uses them at the same time, and stores what they saw."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfpipe.cores import cores
from perfpipe.directories import storing
from perfpipe.errors import PerfpipeError
from perfpipe.ingest.attached import MARK, VERSION
from perfpipe.ingest.nsys.forked_stacks import ForkedStacks, add_to_export
from perfpipe.pipelines.attaching import counters, stacks
from perfpipe.pipelines.attaching.counters import Counters
from perfpipe.pipelines.attaching.kineto import KinetoDaemon
from perfpipe.pipelines.attaching.kineto_signal import KinetoSignal
from perfpipe.pipelines.attaching.nsys_session import NsysSession
from perfpipe.pipelines.attaching.stacks import Stacks, frames_of
from perfpipe.pipelines.attaching.target import Target
from perfpipe.pipelines.attaching.ways import (
    UNPREPARED,
    Prepared,
    Recording,
    Subject,
    Timeline,
    Way,
)
from perfpipe.pipelines.attaching.window import Window
from perfpipe.pipelines.collectors.nsys import export_nsys_rep
from perfpipe.pipelines.ingesting import Failure, ingest_many
from perfpipe.pipelines.place import host_name, machine
from perfpipe.pipelines.program import name_of
from perfpipe.pipelines.runs import Run, task_folder
from perfpipe.provenance import utc_now
from perfpipe.ranrecord import Ran
from perfpipe.runrecord import ATTACH, RunRecord, TaskResult
from perfpipe.secrets import hide_words
from perfpipe.store import Store

#: Timelines, in the order in which they are tried.
TIMELINES: tuple[Timeline, ...] = (NsysSession(), KinetoDaemon(), KinetoSignal())


_SECOND = "another timeline was recorded"


@dataclass(frozen=True)
class Attached:
    """The run of an attach, its ways, whether the program still ran at the end, and what failed."""

    run: RunRecord
    ways: tuple[Way, ...]
    target: Target
    seconds: float
    alive: bool
    notes: tuple[str, ...]


def attach(
    target: Target,
    prepared: Prepared,
    seconds: float,
    store: Store,
    say: Callable[[str], None],
    *,
    timeline: bool = True,
) -> Attached:
    """Look at a program for some seconds and return what was stored.

    Without `timeline`, only samplers are used.  The program continues, whatever happens here.
    """
    subject = Subject(target, target.tree(), prepared)
    words = hide_words(target.command) or (target.name,)
    run = Run.new(store, name_of(words), "", ATTACH, words=words)
    folder = run.directory / "tasks" / task_folder(0, "attach")
    with run.track_status():
        with storing(folder):
            folder.mkdir(parents=True)
        window = Window(target, seconds, folder, say)
        began = utc_now()
        ways, recording, sampled, counted = _look(subject, window, timeline=timeline)
        alive = target.alive
        if not alive:
            window.note(f"the program ended {window.lasted_s:.1f} s after perfpipe had attached")
        files = _files(recording, sampled.samples, window)
        own = _write(subject, window, sampled, counted)
        reports, notes = _ingested([*files, own], store)
        result = TaskResult(
            0, "-", {}, reports=tuple(sorted(reports)), command=words, key="attach",
            files=tuple(str(path.relative_to(store.runs_dir.resolve())) for path in (*files, own)),
            notes=(*window.notes, *notes, *said_of(ways)),
            ran=Ran(
                started_at=began, ended_at=utc_now(), seconds=round(window.lasted_s, 3),
                host=host_name(), machine=machine(target.environment()),
            ),
        )  # fmt: skip
        run.add(result, folder)
    return Attached(run.record, ways, target, window.lasted_s, alive, (*window.notes, *notes))


def _look(
    subject: Subject, window: Window, *, timeline: bool
) -> tuple[tuple[Way, ...], Recording, Stacks, Counters]:
    """Use all ways that can be used at the same time."""
    ways = []
    # The timeline stops first: py-spy still writes its trace then.
    with contextlib.ExitStack() as samplers, contextlib.ExitStack() as timelines:
        recording = Recording()
        used: Timeline | None = None
        for way in TIMELINES if timeline else ():
            why = _SECOND if used else way.why_not(subject)
            if why is None:
                window.say(f"timeline: {way.name}")
                try:
                    recording = timelines.enter_context(way.recording(subject, window))
                    used = way
                except PerfpipeError as error:
                    why = str(error)
            ways.append(Way(way.name, used is way, way.sees, way.lacks, why, way.prepare))
        window.begin()
        sampled = samplers.enter_context(stacks.sampling(subject, window))
        with counters.sampling(subject, window) as counted:
            window.wait()
    why = sampled.why_none
    ways.append(Way(stacks.NAME, why is None, stacks.SEES, stacks.LACKS, why))
    ways.append(Way(counters.NAME, bool(counted.processes), counters.SEES, counters.LACKS))
    return tuple(ways), recording, sampled, counted


def said_of(ways: Sequence[Way]) -> Iterator[str]:
    """Yield what the ways that were used see and lack, and why others were not used."""
    for way in ways:
        if way.used:
            yield f"{way.name}: shows {way.sees}; does not show {way.lacks}"
        elif way.why_not not in (None, UNPREPARED, _SECOND):
            yield f"{way.name} was not used: {way.why_not}"
    if hints := hints_of(ways):
        yield f"no timeline of the GPU, because the program was not prepared: {'; or '.join(hints)}"


def hints_of(ways: Sequence[Way]) -> list[str]:
    """Return how to start the program so that there is a timeline; nothing if there is one."""
    timelines = [way for way in ways if way.prepare]
    if any(way.used for way in timelines):
        return []
    return [way.prepare for way in timelines if way.why_not == UNPREPARED]


def _files(recording: Recording, samples: ForkedStacks, window: Window) -> list[Path]:
    """Return the files of a timeline; stacks are added to exports of nsys."""
    files = list(recording.files)
    for report in recording.exports:
        window.say("nsys export")
        try:
            database = export_nsys_rep(report, report.with_suffix(".sqlite"))
        except PerfpipeError as error:
            window.note(f"no timeline: {error}")
            continue
        if len(samples) and not add_to_export(samples, database):
            window.note("the export of nsys does not say when it began, so it has no stacks")
        files.append(database)
    return files


def _write(subject: Subject, window: Window, sampled: Stacks, counted: Counters) -> Path:
    """Write what was sampled; times count from the beginning of the window."""
    samples, zero = sampled.samples, window.began_ns
    rows = zip(
        *(samples.start_ns, samples.end_ns, samples.pid, samples.tid, samples.stack), strict=True
    )
    content = {
        MARK: VERSION,
        "command": " ".join(hide_words(subject.target.command)) or subject.target.name,
        "pid": subject.target.pid,
        "host": host_name(),
        "began_ns": zero,
        "seconds": window.lasted_s,
        "stacks": [frames_of(stack) for stack in samples.stacks],
        "samples": [
            [max(start - zero, 0), end - zero, *rest] for start, end, *rest in rows if end > zero
        ],
        "processes": counted.processes,
        "gpus": counted.gpus,
        "missing": {
            "stacks": sampled.why_none,
            "processes": "the program ended at once",
            "gpus": counted.no_gpu,
        },
    }
    path = window.into / "attached.json"
    with storing(path):
        path.write_text(json.dumps(content), encoding="utf-8")
    return path


def _ingested(files: Sequence[Path], store: Store) -> tuple[list[str], list[str]]:
    """Return the reports of files, and notes on files that cannot be read."""
    reports, notes = [], []
    for outcome in ingest_many(files, store, jobs=cores()):
        if isinstance(outcome, Failure):
            notes.append(f"{outcome.path.name} cannot be read: {outcome.error}")
        else:
            reports.append(outcome.report_id)
    return reports, notes
