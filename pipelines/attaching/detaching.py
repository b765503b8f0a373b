"""Starts a program that outlives perfpipe, prepared for `perfpipe attach`.

    runs/<run_id>/detached.json    the process, its nsys session, its directory of sockets
    runs/<run_id>/end.json         its exit code, written by its keeper (keeper.py) when it ends
    detached/<run_id>              an empty file while the end is not in the run's record

The next command that uses the store records the end of a program.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfpipe.decoding import decode
from perfpipe.directories import storing
from perfpipe.errors import InputError, PerfpipeError, StoreError, TaskFailed, ToolMissing
from perfpipe.jsonfile import read_json, read_versioned, write_json
from perfpipe.model import SCHEMA_VERSION
from perfpipe.owner import host
from perfpipe.pipelines.attaching.kineto import (
    DAEMON_VARIABLE,
    DIRECTORY_VARIABLE,
    LOG_VARIABLE,
)
from perfpipe.pipelines.attaching.nsys_session import launch_words, shutdown_words
from perfpipe.pipelines.attaching.target import Target, stat_of, target_of
from perfpipe.pipelines.attaching.ways import Prepared
from perfpipe.pipelines.complaint import complaint, ended
from perfpipe.pipelines.place import host_name, machine
from perfpipe.pipelines.program import Program, name_of
from perfpipe.pipelines.runs import Run, task_folder
from perfpipe.pipelines.tools import find_tool, gpus, require_tool
from perfpipe.provenance import utc, utc_now
from perfpipe.ranrecord import Ran
from perfpipe.runrecord import DETACH, RunRecord, TaskResult
from perfpipe.store import DETACHED, Store

#: How a program can be prepared, by --collector.
PREPARATIONS = ("auto", "nsys", "torch", "timing")

_KEEPER = Path(__file__).with_name("keeper.py")

#: Names of the files in the directory of a run.
_RECORD, _END = "detached.json", "end.json"

#: Writes the process id of the program before it becomes the program: nsys starts others first.
_NAMED = ["sh", "-c", 'echo $$ > "$0.tmp" && mv "$0.tmp" "$0" && exec "$@"']

#: How long nsys may take to start the program, s.
_STARTING_S = 60.0


@dataclass(frozen=True)
class Detached:
    """A program that was started to outlive perfpipe; `started` as in `Target`."""

    pid: int
    started: int
    keeper: int
    keeper_started: int
    host: str
    launched_at: str
    session: str | None = None
    tmpdir: str | None = None
    sockets: str | None = None

    @property
    def prepared(self) -> Prepared:
        """How it was prepared."""
        return Prepared(self.session, self.tmpdir)

    @property
    def target(self) -> Target | None:
        """Its process; None if it has ended, or runs on another machine."""
        found = target_of(self.pid) if self.host == host() else None
        return found if found and found.started == self.started else None


def detach(program: Program, collector: str, store: Store) -> tuple[Run, Detached]:
    """Start a program and return its run, which is marked as running.

    Raises ToolMissing if nsys is wanted and missing, TaskFailed if the program cannot be started.
    """
    prepared = _preparation(collector)
    tool = require_tool("nsys") if prepared == "nsys" else None
    words = tuple(program.words)
    run = Run.new(store, name_of(words), "", DETACH, words=words)
    folder = run.directory / "tasks" / task_folder(0, "detach")
    with storing(folder):
        folder.mkdir(parents=True)
        pending = _pending(store, run.record.run_id)
        pending.parent.mkdir(exist_ok=True)
    env = {**os.environ, **program.env}
    session = sockets = None
    command: list[str] = [*words]
    after: list[str] = []
    if tool is not None:
        session = f"perfpipe-{uuid.uuid4().hex[:12]}"
        command = [*launch_words(tool.path, session), *_NAMED, str(folder / "pid"), *words]
        after = shutdown_words(tool.path, session)
    elif prepared == "torch":
        # A directory of its own: the abstract socket is that of all programs of the machine.
        sockets = tempfile.mkdtemp(prefix="perfpipe-")
        # libkineto would print an error every 5 s while there is no daemon.
        env = {DAEMON_VARIABLE: "1", DIRECTORY_VARIABLE: sockets, LOG_VARIABLE: "99", **env}
    try:
        keeper = _keep(run, command, env, program.directory, after)
        pid, started = _process(keeper, folder, named=tool is not None)
    except PerfpipeError:
        if sockets is not None:
            shutil.rmtree(sockets, ignore_errors=True)
        raise
    tmpdir = env.get("TMPDIR") or None
    keeper_stat = stat_of(keeper.pid)
    found = Detached(
        pid, started, keeper.pid, keeper_stat.started if keeper_stat else 0, host(), utc_now(),
        session, tmpdir, sockets,
    )  # fmt: skip
    with storing(run.directory):
        write_json(run.directory / _RECORD, {"schema_version": SCHEMA_VERSION, **vars(found)})
        run.write()
        pending.touch()
    return run, found


def _preparation(collector: str) -> str:
    """Return how to prepare a program: nsys if there is a GPU and nsys, else PyTorch's traces."""
    if collector not in PREPARATIONS:
        raise InputError(f"--collector {collector}: --detach takes {', '.join(PREPARATIONS)}")
    if collector == "auto":
        return "nsys" if gpus() and find_tool("nsys") else "torch"
    return collector


@dataclass(frozen=True)
class _Keeper:
    """A keeper, and the process that it started: the program, or nsys."""

    pid: int
    child: int


def _keep(
    run: Run, command: Sequence[str], env: dict[str, str], cwd: Path, after: Sequence[str]
) -> _Keeper:
    folder = run.directory / "tasks" / task_folder(0, "detach")
    request = {
        "words": [*command],
        "env": env,
        "cwd": str(cwd),
        "out": str(folder / "plain.out"),
        "err": str(folder / "plain.err"),
        "end": str(run.directory / _END),
        "after": [*after],
    }
    keeper = subprocess.Popen(
        [sys.executable, "-I", "-S", str(_KEEPER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert keeper.stdin is not None and keeper.stdout is not None  # noqa: S101
    with contextlib.suppress(OSError), keeper.stdin as request_to:
        request_to.write(json.dumps(request).encode())
    with keeper.stdout as answer:
        said = answer.read()
    # Nobody waits for it: it outlives this process.
    keeper.returncode = 0
    match said.decode().split():
        case ["process", pid]:
            return _Keeper(keeper.pid, int(pid))
        case ["failed", number, "cwd"]:
            raise InputError(f"{cwd}: {os.strerror(int(number))}")
        case ["failed", number, "program"] if int(number) in (errno.ENOENT, errno.ENOTDIR):
            raise ToolMissing(f"{command[0]}: no such program")
        case ["failed", number, _]:
            raise TaskFailed(f"{command[0]}: cannot start ({os.strerror(int(number))})")
        case _:
            raise TaskFailed(f"{command[0]}: its keeper was killed")


def _process(keeper: _Keeper, folder: Path, *, named: bool) -> tuple[int, int]:
    """Return the process of the program and its start time."""
    late = time.monotonic() + _STARTING_S
    file = folder / "pid"
    while named and not file.exists():
        stat = stat_of(keeper.child)
        if stat is None or stat.ended or time.monotonic() > late:
            text = complaint(_text(folder / "plain.out"), _text(folder / "plain.err"))
            raise TaskFailed(f"nsys did not start the program: {text or 'no output'}")
        time.sleep(0.02)
    pid = int(file.read_text(encoding="utf-8")) if named else keeper.child
    stat = stat_of(pid)
    # A program that has already ended has no start time; its keeper records its end.
    return pid, stat.started if stat else 0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def detached_of(store: Store, run_id: str) -> Detached | None:
    """Return how the program of a run was started; None if it was not detached."""
    path = store.runs_dir / run_id / _RECORD
    if not path.exists():
        return None
    try:
        found: Detached = decode(Detached, read_versioned(path, "detached program"))
    except ValueError as error:
        raise StoreError(f"{path}: not a complete record of a program ({error})") from error
    return found


def running(store: Store) -> Iterator[tuple[str, Detached]]:
    """Yield the detached programs of a store whose end is not recorded, by run."""
    try:
        names = sorted(entry.name for entry in os.scandir(store.root / DETACHED))
    except OSError:
        return
    for run_id in names:
        with contextlib.suppress(PerfpipeError):
            if (found := detached_of(store, run_id)) is not None:
                yield run_id, found


def prepared_for(store: Store, target: Target) -> Prepared:
    """Return how a process was prepared: it, or a process that started it, was detached."""
    known = {(own.pid, own.started): own.prepared for _, own in running(store)}
    pid, seen = target.pid, set[int]()
    while pid > 1 and pid not in seen and (stat := stat_of(pid)):
        if (found := known.get((pid, stat.started))) is not None:
            return found
        seen.add(pid)
        pid = stat.parent
    return Prepared()


def settle(store: Store) -> None:
    """Record the ends of detached programs of this machine, if the store can be written."""
    for run_id, own in running(store):
        end = store.runs_dir / run_id / _END
        if own.host != host():
            continue
        keeper = stat_of(own.keeper)
        kept = keeper is not None and keeper.started == own.keeper_started and not keeper.ended
        if not end.exists() and (kept or own.target is not None):
            continue
        with contextlib.suppress(PerfpipeError, OSError):
            _record_end(store, run_id, own, end)


def _record_end(store: Store, run_id: str, own: Detached, end: Path) -> None:
    run = Run(store, store.run(run_id))
    code = seconds = None
    ended_at = utc_now()
    if end.exists():
        content = read_json(end, "end of a program")
        code, seconds = int(content["code"]), float(content["seconds"])
        ended_at = utc(float(content["ended"]))
    run.record = _with_end(run.record, own, code, seconds, ended_at)
    run.write()
    if own.sockets is not None:
        shutil.rmtree(own.sockets, ignore_errors=True)
    _pending(store, run_id).unlink(missing_ok=True)


def _with_end(
    record: RunRecord, own: Detached, code: int | None, seconds: float | None, at: str
) -> RunRecord:
    """Return the record of a run whose program has ended."""
    words = record.words or ()
    error = None
    if code is None:
        error = "how it ended is unknown: its keeper was killed, or the machine was restarted"
    elif code:
        error = f"{words[0] if words else 'the program'} {ended(code)}"
    result = TaskResult(
        0, "-", {}, status="failed" if error else "done", error=error,
        failure="crash" if error else None, command=words, key="detach",
        ran=Ran(
            started_at=own.launched_at, ended_at=at, seconds=round(seconds or 0.0, 3),
            host=host_name(), exit_code=code, machine=machine({}),
        ),
    )  # fmt: skip
    return replace(record, status=result.status, ended_at=at, tasks=(result,))


def _pending(store: Store, run_id: str) -> Path:
    return store.root / DETACHED / run_id


def line_of(store: Store, run_id: str, name: str) -> str | None:
    """Return what is said of a run whose program still runs."""
    for known, own in running(store):
        if known == run_id:
            where = "" if own.host == host() else f" on {own.host}"
            return f"runs as process {own.pid}{where}; to look at it: perfpipe attach {name}"
    return None
