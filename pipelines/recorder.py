"""Makes a recording of a run: its results and its anonymized, compressed reports."""

from __future__ import annotations

import getpass
import re
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from perfpipe.analysis.session import Session
from perfpipe.errors import InputError, StoreError, TaskFailed, brief, os_error_sentence
from perfpipe.ingest.compressed import xz
from perfpipe.ingest.masking import mask, names_in
from perfpipe.ingest.reading import ingest
from perfpipe.ingest.scrub import ENDINGS, scrub_file
from perfpipe.owner import own_name
from perfpipe.paths import inside
from perfpipe.pipelines.recording import KEPT, load_recording
from perfpipe.pipelines.tasks import passes
from perfpipe.runrecord import RunRecord, TaskResult
from perfpipe.scratch import scratch, sweep_beside
from perfpipe.store import Store
from perfpipe.units import format_bytes

#: Tables that may have fewer rows in a scrubbed report.
_FEWER = frozenset({"nsys_environment", "nsys_diagnostics", "nsys_processes", "nsys_threads"})

_HEADER = """\
# Recorded by `perfpipe record` from a run of {what} on {gpu}.
# Machine and user names, paths and environment variables were removed.
"""


def record_run(
    store: Store,
    run: RunRecord,
    target: Path,
    *,
    filters: Mapping[str, list[str]],
    limit: int,
    force: bool,
) -> int:
    """Write a recording of a measured run and return its size in bytes.

    `filters` chooses tasks by their parameters, as in `perfpipe run`.

    Raises InputError if the run is a replay or its reports are gone, TaskFailed if the recording
    would be larger than `limit` bytes or would not replay the same rows.
    """
    if run.replayed:
        raise InputError(f"{run.run_id} is itself a replay; record a measured run")
    if target.exists() and not force:
        raise InputError(f"{target} already exists; --force replaces it")
    with _replacing(target) as directory:
        chosen = [task for task in run.tasks if passes(task.params, filters)]
        if not chosen:
            raise InputError(f"{run.run_id}: no configuration matches --filter")
        tasks = [_task(store, task, directory) for task in chosen]
        document = {
            "version": 1,
            "workload": run.workload,
            **_origin(store, run),
            "tasks": tasks,
        }
        what = run.workload_file or f"the program {run.workload}"
        text = _HEADER.format(what=brief(what), gpu=brief(document["gpu"]))
        text += yaml.safe_dump(document, sort_keys=False, width=100, default_flow_style=None)
        (directory / "recording.yaml").write_text(text, encoding="utf-8")
        load_recording(directory)
        sizes = {path: path.stat().st_size for path in directory.iterdir()}
        if sum(sizes.values()) > limit:
            largest = max(sizes, key=lambda path: sizes[path])
            raise TaskFailed(
                f"the recording would take {format_bytes(sum(sizes.values()))}, including "
                f"{format_bytes(sizes[largest])} for {largest.name}; record fewer launches "
                "(launch_count, repeats) or raise --limit"
            )
        return sum(sizes.values())


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """Yield a temporary directory that replaces `target` if the block succeeds."""
    temporary = target.with_name(own_name(".tmp"))
    try:
        sweep_beside(target)
        temporary.mkdir(parents=True)
        yield temporary
        if target.exists():
            shutil.rmtree(target)
        temporary.rename(target)
    except OSError as error:
        raise StoreError(os_error_sentence(error, "cannot write the recording")) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _task(store: Store, task: TaskResult, directory: Path) -> dict[str, Any]:
    kept = asdict(task, dict_factory=_without_none)
    entry: dict[str, Any] = {"params": task.params}
    entry |= {name: kept[name] for name in KEPT if kept.get(name) not in (None, (), "done")}
    if "error" in entry:
        # Messages of programs name their files.
        names = names_in([task.error], socket.gethostname(), getpass.getuser())
        entry["error"] = mask(entry["error"], names)
    if len(task.launches_ms) < 2:
        entry.pop("launches_ms", None)
    if task.energy is None or task.energy.source is None:
        entry.pop("energy", None)
    files = [_file(store, task, name, directory) for name in task.files]
    return entry | ({"files": files} if files else {})


def _without_none(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in items if value is not None and value != {}}


def _file(store: Store, task: TaskResult, name: str, directory: Path) -> str:
    """Scrub, verify and compress one report; returns its file name."""
    source = inside(store.runs_dir, name)
    if not source.is_file():
        raise InputError(f"{source}: the report of {task.label} is gone; run it again")
    ending = next((end for end in ENDINGS.values() if name.endswith(end)), source.suffix)
    words = re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(map(str, task.params.values()))).strip("-")
    packed = directory / f"{task.index:02d}-{words}{ending}.xz"
    with scratch() as folder:
        plain = folder / f"scrubbed{ending}"
        scrub_file(source, plain, socket.gethostname(), getpass.getuser())
        _check(store, source, plain, Store(folder / "store"))
        packed.write_bytes(xz(plain.read_bytes()))
    return packed.name


def _check(store: Store, source: Path, scrubbed: Path, scratch: Store) -> None:
    """Raise TaskFailed if the scrubbed report gives different rows from the original."""
    before = store.manifest(ingest(source, store).report_id)
    after = scratch.manifest(ingest(scrubbed, scratch).report_id)
    for table in (before.tables.keys() | after.tables.keys()) - _FEWER:
        counts = [m.tables[table].rows if table in m.tables else 0 for m in (before, after)]
        if counts[0] != counts[1]:
            raise TaskFailed(
                f"{source}: scrubbing changed {table} from {counts[0]} to {counts[1]} rows; "
                "nothing was written"
            )


def _origin(store: Store, run: RunRecord) -> dict[str, Any]:
    """Return GPU, time and tool versions of a run."""
    with Session.open(store, run.reports) as session:
        gpus = session.execute(
            "SELECT gpu FROM reports WHERE gpu IS NOT NULL ORDER BY report_id LIMIT 1"
        ).fetchall()
        versions = session.execute(
            "SELECT kind, max(tool_version) FROM reports WHERE kind IN ('nsys', 'ncu') "
            "GROUP BY kind ORDER BY kind"
        ).fetchall()
        drivers = session.execute(
            "SELECT max(value) FROM nsys_environment WHERE name = 'NvDriverVersion'"
        ).fetchall()
    tools = {kind: version for kind, version in versions if version}
    if drivers[0][0]:
        tools["driver"] = drivers[0][0]
    for task in run.tasks:
        tools |= task.software or {}
    gpu = gpus[0][0] if gpus else "a machine without a GPU"
    return {"gpu": gpu, "captured_at": run.started_at, "tools": tools}
