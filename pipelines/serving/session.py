"""Measures a server: loads without a profiler, then the same loads with a captured window."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from perfpipe.errors import PerfpipeError, ToolMissing
from perfpipe.ingest.serving.loads import Load
from perfpipe.ingest.serving.own import write_loads
from perfpipe.pipelines.collectors.base import Context, Job, Keep, ProgramFailed
from perfpipe.pipelines.collectors.nvml import Samples, sampling
from perfpipe.pipelines.place import stopwatch
from perfpipe.pipelines.plan import Plan
from perfpipe.pipelines.runs import result_of
from perfpipe.pipelines.serving.capture import Capture, NsysSession, OwnProfiler
from perfpipe.pipelines.serving.loading import (
    LOAD_FAILED,
    Loads,
    answered,
    name_of,
    summary,
    window_of,
)
from perfpipe.pipelines.serving.server import SERVER_ENDED, serving
from perfpipe.pipelines.serving.under_ncu import collect_served
from perfpipe.pipelines.workload import CollectNsys
from perfpipe.runrecord import TaskResult
from perfpipe.store import Store
from perfpipe.units import format_ns, request_rate

#: The file with the requests of all loads of a configuration.
REQUESTS = "requests.jsonl"

#: Reads the files of a result into the store.
Read = Callable[[TaskResult, Sequence[Path], Sequence[PerfpipeError]], TaskResult]


def measure_served(
    plan: Plan, context: Context, store: Store, keep: Keep, read: Read
) -> TaskResult:
    """Return the result of a configuration that is a server, with its reports.

    `read` ingests files.  If the run is interrupted, `keep` gets what was measured so far.
    """
    ran = stopwatch(context.launcher, context.workload.env, context.task.command)
    session = _Session(plan, context, store)
    try:
        session.measure()
    except ToolMissing:
        raise
    except PerfpipeError as error:
        session.errors.append(error)
    except BaseException:
        if session.loads:
            result = session.result()
            keep(read(result, session.write(), ()), session.files)
        raise
    files = session.write() if session.loads else []
    result = read(session.result(), files, session.errors)
    code = next((e.program_code for e in session.errors if isinstance(e, ProgramFailed)), None)
    return replace(result, ran=replace(ran(), exit_code=code))


class _Session:
    """The phases of a configuration, and what they have given so far."""

    def __init__(self, plan: Plan, context: Context, store: Store) -> None:
        serve = context.task.serve
        if serve is None:
            raise ValueError("serve")
        self.plan, self.context, self.store, self.serve = plan, context, store, serve
        self.loads: list[Load] = []
        self.files: list[Path] = []
        self.notes: list[str] = []
        self.errors: list[PerfpipeError] = []
        self.seconds: dict[str, float] = {}
        self._samples = Samples()
        self._ready_s = 0.0
        self._loader = Loads(context, serve)

    def measure(self) -> None:
        """Run the server without a profiler, and then under each; raises the first error."""
        context = self.context
        wanted = context.workload.collect.nvml if context.launcher.here else None
        with sampling(wanted, context.into, context.workload.env, self._samples):
            self._phase("plain", self._loader.rates)
        rates = [own.rate for own in self.loads if answered(own)] if self.serve.rate else [None]
        for name in self.plan.profilers:
            began = time.monotonic()
            if name == "ncu":
                self._profile()
            else:
                self._phase(name, rates)
            self.seconds[name] = time.monotonic() - began

    def result(self) -> TaskResult:
        """Return the result so far."""
        root = self.store.runs_dir.resolve()
        return replace(
            result_of(self.context.task),
            gpu_state=self._samples.summary(),
            notes=tuple(self.notes),
            profilers=tuple(self.seconds),
            profiler_s=dict(self.seconds),
            files=tuple(str(path.relative_to(root)) for path in self.files),
        )

    def write(self) -> list[Path]:
        """Write the requests of all loads into one file, and return the files to ingest."""
        path = self.context.into / REQUESTS
        write_loads(path, self.loads)
        self.files = [path, *(file for file in self.files if file != path)]
        return self.files

    def _phase(self, phase: str, rates: Sequence[float | None]) -> None:
        """Put all loads on one server; loads that an earlier run finished are kept.

        Raises ProgramFailed if the server or a load failed, or if no request succeeded.
        """
        found = {rate: self._loader.known(phase, rate) for rate in rates}
        missing = [rate for rate, loads in found.items() if not loads]
        for rate in rates:
            for load in found[rate]:
                self._add(load)
                self.context.tell(f"kept {summary(load)}")
        if not missing:
            return
        with self._capturing(phase) as capture:
            before, env = (capture.before, capture.env) if capture else ((), {})
            self.context.say(f"{phase}: starting the server")
            with serving(self.context, self.serve, phase, before, env) as server:
                if phase == "plain":
                    self._ready_s = server.ready_s
                    took = format_ns(1e9 * server.ready_s)
                    self.notes.append(f"the server was ready after {took}")
                self._loader.warm_up(server, phase)
                for rate in missing:
                    name = name_of(phase, rate)
                    self.context.say(f"{name.replace('-', ' ')}")
                    window = window_of(self.serve, rate, capture, name) if capture else None
                    loads = self._loader.put(server, phase, rate, window)
                    for load in loads:
                        self._add(load)
                        self.context.tell(summary(load))
                    self._keep(window.files if window else ())
                    if window is not None and not window.files:
                        self._uncaptured(name)
                    self._judge(loads, died=server.ended)

    def _add(self, load: Load) -> None:
        self.loads.append(load)
        self._keep([self.context.into / load.capture] if load.capture else ())

    def _keep(self, files: Sequence[Path]) -> None:
        self.files += [path for path in files if path not in self.files]

    def _uncaptured(self, name: str) -> None:
        self.notes.append(
            f"{name}: nothing was captured, because the load ended before the window began; "
            "--window-after and --window set its place"
        )

    def _judge(self, loads: Sequence[Load], *, died: bool) -> None:
        """Raise ProgramFailed for a load that the server did not survive, or that says nothing."""
        for load in loads:
            requests = len(load.requests)
            if died and load.ended_by:
                raise ProgramFailed(
                    SERVER_ENDED,
                    f"under load, after {answered(load):,} of {requests:,} requests"
                    f"{_at(load)}: {load.ended_by}",
                )
            if load.ended_by:
                raise ProgramFailed(
                    LOAD_FAILED, f"the load{_at(load)} ended early: {load.ended_by}"
                )
            if not answered(load):
                why = summary(load) if requests else "the load sent none, or printed no line of one"
                raise ProgramFailed(LOAD_FAILED, f"no request succeeded{_at(load)}: {why}")

    @contextmanager
    def _capturing(self, phase: str) -> Iterator[Capture | None]:
        """Yield what captures windows in a phase; None without a profiler."""
        capture: Capture | None = None
        if phase == "nsys":
            options = self.context.workload.collect.nsys or CollectNsys()
            session = NsysSession(self.context, options)
            self.notes += session.notes
            capture = session
        elif phase == "torch":
            capture = OwnProfiler(self.context, self.serve)
        try:
            yield capture
        finally:
            if capture is not None:
                capture.close()

    def _profile(self) -> None:
        """Profile kernels of the server that its timeline chooses."""
        timelines = [path for path in self.files if path.suffix == ".sqlite"]
        # The time limit of ncu follows from that of a launch: a start and a window.
        result = replace(self.result(), seconds=(self._ready_s + self.serve.window,))
        began = time.monotonic() - result.seconds[0]
        job = Job(self.context, self.store, result, self.plan.profilers, began, timelines[-1:])
        collected = collect_served(job, self.serve, self._loader)
        self.files.append(collected.path)
        self.notes += collected.notes


def _at(load: Load) -> str:
    return "" if load.rate is None else f" at {request_rate(load.rate)}"
