"""Puts loads on a server that runs, and captures a window of each if a profiler is there."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from perfpipe.errors import InputError
from perfpipe.ingest.inputs import identify
from perfpipe.ingest.serving.loads import Load, Request
from perfpipe.ingest.serving.own import loads_of, write_loads
from perfpipe.ingest.serving.reader import READERS, read_loads
from perfpipe.pipelines.beside import Beside
from perfpipe.pipelines.collectors.base import Context, ProgramFailed
from perfpipe.pipelines.serving.block import Serve
from perfpipe.pipelines.serving.bodies import bodies_of
from perfpipe.pipelines.serving.capture import Capture
from perfpipe.pipelines.serving.client import MOST, Sending
from perfpipe.pipelines.serving.server import SERVER_ENDED, Server
from perfpipe.units import counted, request_rate

#: Failure of a load: its generator failed, or no request succeeded.
LOAD_FAILED = "load"

#: How often load and server are looked at, s; how long the load goes on after the server, s.
_LOOK_S, _AFTER_S = 0.05, 1.0

#: Start of the window in a load of unknown length, s; and the largest share of a load it takes.
_WINDOW_AFTER_S, _WINDOW_SHARE = 5.0, 0.6

#: Most bytes of the lines of a load that are kept: a line has the time of every token.
_MOST_BYTES = 8 << 30

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass
class Window:
    """The window that is captured in a load: from `after` s on, for `length` s.

    `start_ns` and `end_ns` are known as soon as the profiler has started and before it stops.
    """

    capture: Capture
    name: str
    after: float
    length: float
    start_ns: int | None = None
    end_ns: int | None = None
    files: list[Path] = field(default_factory=list)

    def look(self, at: float) -> None:
        """Start or stop the capture, if it is time, at a time since the start of the load, s."""
        if self.start_ns is None and at >= self.after:
            self.capture.start()
            self.start_ns = time.time_ns()
        elif self.start_ns is not None and time.time_ns() - self.start_ns >= 1e9 * self.length:
            self.close()

    def close(self) -> None:
        """Stop the capture, if it was started."""
        if self.start_ns is not None and self.end_ns is None:
            self.end_ns = time.time_ns()
            self.files = self.capture.stop(self.name)


def window_of(serve: Serve, rate: float | None, capture: Capture, name: str) -> Window:
    """Return the window of a load: in its middle, if its length is known."""
    if serve.load:
        expected = None
    elif serve.arrival_s is not None:
        expected = serve.arrival_s
    else:
        expected = (serve.requests or 0) / (rate or 1.0)
    length = serve.window if expected is None else min(serve.window, _WINDOW_SHARE * expected)
    after = serve.window_after
    if after is None:
        after = _WINDOW_AFTER_S if expected is None else (expected - length) / 2
    return Window(capture, name, after, length)


class Loads:
    """Puts loads on a server; each has a file with its requests, `<phase>-<rate>.jsonl`."""

    def __init__(self, context: Context, serve: Serve) -> None:
        self._context, self._serve = context, serve
        own = serve.body is not None or not serve.load
        self._bodies = bodies_of(serve, context.launcher.cwd) if own else []

    @property
    def rates(self) -> Sequence[float | None]:
        """The rates of the loads; None is one load that its command controls."""
        return [float(rate) for rate in self._serve.rate] or [None]

    def path(self, phase: str, rate: float | None) -> Path:
        """Return the file of a load."""
        return self._context.into / f"{name_of(phase, rate)}.jsonl"

    def known(self, phase: str, rate: float | None) -> Sequence[Load]:
        """Return what an earlier run has put on at a rate, if that ran to its end."""
        path = self.path(phase, rate)
        if not path.is_file():
            return ()
        try:
            loads = loads_of(path.read_text(encoding="utf-8").splitlines())
        except ValueError:
            return ()
        return loads if all(map(self._is_whole, loads)) else ()

    def _is_whole(self, load: Load) -> bool:
        there = load.capture is None or (self._context.into / load.capture).is_file()
        return there and load.ended_by is None and load.ended_ns is not None and answered(load) > 0

    def warm_up(self, server: Server, phase: str) -> None:
        """Send the requests of the warm-up one after the other; raises if all of them fail."""
        serve = self._serve
        if not (serve.warm_up and self._bodies):
            return
        self._context.say(f"{phase}: warm-up")
        sending = replace(self._sending(None), requests=serve.warm_up, duration=None)
        limit = serve.warm_up * serve.request_timeout + 10
        program = self._client(sending, f"{phase}-warm-up")
        (load,) = self._run(server, program, None, limit, Load(generator="perfpipe"))
        if load.ended_by or not answered(load):
            why = load.ended_by or _reason(load) or "no request was sent"
            kind = SERVER_ENDED if server.ended else LOAD_FAILED
            raise ProgramFailed(kind, f"the warm-up failed: {why}")

    def put(
        self, server: Server, phase: str, rate: float | None, window: Window | None
    ) -> Sequence[Load]:
        """Put a load on a server and return it, also if the server ended; its file is written.

        A load generator may put several, at rates of its own.
        """
        serve = self._serve
        about = Load(
            phase=phase,
            rate=rate,
            arrivals="unknown" if serve.load else "poisson",
            generator="command" if serve.load else "perfpipe",
            slo_ms=serve.slo.model_dump(exclude_none=True),
            model=serve.model.model_dump(exclude_none=True, exclude={"dtype"}),
            dtype=serve.model.dtype,
        )
        name = name_of(phase, rate)
        if serve.load:
            program = self._command(name, rate)
            limit = serve.load_timeout
        else:
            sending = self._sending(rate)
            program = self._client(sending, name)
            arriving = serve.arrival_s or 4 * (serve.requests or 0) / (rate or 1.0) + 10
            limit = arriving + serve.request_timeout + 10
        loads = self._run(server, program, window, limit, about)
        write_loads(self.path(phase, rate), loads)
        return loads

    def feed(self, server: Server, serve: Serve) -> None:
        """Put requests on a server one after the other until it ends."""
        rate = self.rates[0]
        while not server.ended:
            if serve.load:
                program, limit = self._command("ncu", rate), serve.load_timeout
            else:
                timeout = serve.request_timeout
                one = replace(
                    self._sending(None), requests=MOST, duration=None, rate=None, timeout=timeout
                )
                program, limit = self._client(one, "ncu"), MOST * timeout
            own = "command" if serve.load else "perfpipe"
            loads = self._run(server, program, None, limit, Load(generator=own))
            if not server.ended and not any(map(answered, loads)):
                why = next(filter(None, map(_reason, loads)), "no request was sent")
                raise ProgramFailed(LOAD_FAILED, f"no request succeeded: {why}")

    def _sending(self, rate: float | None) -> Sending:
        serve = self._serve
        return Sending(
            url=serve.url or "",
            bodies=self._bodies,
            headers=serve.headers,
            rate=rate,
            requests=serve.requests,
            duration=serve.arrival_s,
            seed=serve.seed,
            timeout=serve.request_timeout,
        )

    def _client(self, sending: Sending, name: str) -> Beside:
        spec = self._context.into / f"{name}-load.json"
        sending.write(spec)
        # -P: modules of the working directory must not take the place of the standard library's.
        words = [sys.executable, "-P", "-m", "perfpipe.pipelines.serving.client", str(spec)]
        return Beside(words, log=self._context.into / f"{name}-load", most=_MOST_BYTES)

    def _command(self, name: str, rate: float | None) -> Beside:
        context, serve = self._context, self._serve
        output = self._output(name)
        output.mkdir(parents=True, exist_ok=True)
        values = {
            "rate": "inf" if rate is None else f"{rate:g}",
            "output": str(output),
            "url": serve.url or "",
            "requests": str(serve.requests or ""),
            "duration": f"{serve.arrival_s or 0:g}",
        }
        words = [
            _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), word)
            for word in serve.load
        ]
        return Beside(
            words,
            log=context.into / f"{name}-load",
            cwd=context.launcher.cwd,
            env=context.workload.env,
            most=_MOST_BYTES,
        )

    def _output(self, name: str) -> Path:
        return self._context.into / f"{name}-output"

    def _run(
        self, server: Server, program: Beside, window: Window | None, limit: float, about: Load
    ) -> Sequence[Load]:
        """Run the program of a load beside the server, and return its loads, at least one."""
        began_ns = time.time_ns()
        ended_by: str | None = None
        dead_since: float | None = None
        with program:
            while not program.wait(_LOOK_S):
                at = program.seconds
                if server.ended:
                    dead_since = at if dead_since is None else dead_since
                    ended_by = ended_by or server.death()
                    if at - dead_since >= _AFTER_S:
                        program.stop()
                elif at > limit:
                    ended_by = ended_by or f"the load took longer than {limit:g} s"
                    program.stop()
                elif window is not None:
                    _look(window, at, server)
        if server.ended:
            ended_by = ended_by or server.death()
        _close(window, ended_by)
        if program.returncode and ended_by is None:
            said = program.complaint() or "no output"
            ended_by = f"the load generator {program.outcome}: {said}"
        loads = [_with(about, own, window, ended_by, began_ns) for own in self._found(program)]
        if about.generator == "perfpipe":
            # Headers may have secrets, and the lines are in the file of the load.
            for ending in (".json", ".out"):
                program.logs[0].with_suffix(ending).unlink(missing_ok=True)
        return loads

    def _found(self, program: Beside) -> Sequence[Load]:
        """Return what a load's program wrote or printed; an empty load if that is nothing."""
        printed = program.logs[0].read_text(encoding="utf-8", errors="replace")
        try:
            loads = self._written(program) or loads_of(printed.splitlines(), only_json=False)
        except ValueError as error:
            raise ProgramFailed(LOAD_FAILED, f"the load generator printed {error}") from error
        return [
            replace(load, requests=sorted(load.requests, key=lambda own: own.begin_ns or 0))
            for load in loads or [Load()]
        ]

    def _written(self, program: Beside) -> Sequence[Load]:
        """Return the loads in the files of a load generator that perfpipe knows, in UTC."""
        name = program.logs[0].name.removesuffix("-load.out")
        folder = self._output(name)
        loads: list[Load] = []
        for path in sorted(folder.rglob("*.json*")) if folder.is_dir() else ():
            try:
                found = identify(path)
            except InputError:
                continue
            if found.format in READERS:
                loads += read_loads(found.format, found.content, path)
        return [_in_utc(load) for load in loads]


def _look(window: Window, at: float, server: Server) -> None:
    """Start or stop a capture; if that fails because the server ended, the server's end counts."""
    try:
        window.look(at)
    except ProgramFailed:
        if not server.program.wait(_AFTER_S):
            raise


def _close(window: Window | None, ended_by: str | None) -> None:
    """Stop a capture; that it is lost matters less than that the server ended."""
    if window is None:
        return
    try:
        window.close()
    except ProgramFailed:
        if ended_by is None:
            raise


def _with(
    about: Load, own: Load, window: Window | None, ended_by: str | None, began_ns: int
) -> Load:
    """Return a load with what is known besides its requests."""
    captured = window is not None and bool(window.files)
    known = own.arrivals != "unknown"
    return replace(
        own,
        phase=about.phase,
        rate=own.rate if about.rate is None else about.rate,
        arrivals=own.arrivals if known else about.arrivals,
        generator=about.generator if about.generator == "perfpipe" else own.generator,
        slo_ms=about.slo_ms,
        model=about.model,
        dtype=about.dtype,
        # The program of the load takes time to start.
        started_ns=own.span_ns[0] or began_ns,
        ended_ns=own.span_ns[1] or time.time_ns(),
        window_start_ns=window.start_ns if window and captured else None,
        window_end_ns=window.end_ns if window and captured else None,
        capture=window.files[0].name if window and captured else None,
        ended_by=ended_by,
    )


def name_of(phase: str, rate: float | None) -> str:
    """Return the name of a load and of its files."""
    return phase if rate is None else f"{phase}-rate-{rate:g}"


def answered(load: Load) -> int:
    """Return how many requests of a load succeeded."""
    return sum(own.reason is None for own in load.requests)


def summary(load: Load) -> str:
    """Return a load in a line: requests and failures."""
    failed = len(load.requests) - answered(load)
    lost = f", {failed:,} failed ({_reason(load)})" if failed else ""
    rate = "" if load.rate is None else f" at {request_rate(load.rate)}"
    under = "without a profiler" if load.phase == "plain" else f"under {load.phase}"
    return f"{under}{rate}: {counted(len(load.requests), 'request')}{lost}"


def _reason(load: Load) -> str:
    reasons = [own.reason for own in load.requests if own.reason]
    return max(set(reasons), key=reasons.count) if reasons else ""


def _in_utc(load: Load) -> Load:
    """Return a load of this machine with its times since 1970."""
    if load.clock == "utc":
        return load
    since_ns = time.time_ns() - time.monotonic_ns()

    def moved(time_ns: int | None) -> int | None:
        return None if time_ns is None else time_ns + since_ns

    def of(own: Request) -> Request:
        return replace(
            own,
            planned_ns=moved(own.planned_ns),
            sent_ns=moved(own.sent_ns),
            first_token_ns=moved(own.first_token_ns),
            last_token_ns=moved(own.last_token_ns),
            end_ns=moved(own.end_ns),
            token_ns=[since_ns + time_ns for time_ns in own.token_ns],
        )

    return replace(load, clock="utc", requests=[of(own) for own in load.requests])
