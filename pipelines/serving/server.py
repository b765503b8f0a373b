"""Starts a server, waits until it is ready, and ends it."""

from __future__ import annotations

import http.client
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from perfpipe.errors import InputError, brief
from perfpipe.pipelines.beside import Beside
from perfpipe.pipelines.collectors.base import COLLECTOR_VARIABLE, Context, ProgramFailed, Say
from perfpipe.pipelines.serving.block import Serve, host_and_port
from perfpipe.units import format_ns

#: Failure of a server that did not get ready, and of one that ended under load.
NOT_READY, SERVER_ENDED = "not_ready", "server_ended"

#: How often the server is asked, and how long an answer may take, s.
_AGAIN_S, _ANSWER_S = 0.1, 5.0

#: Requests to this machine do not go through a proxy, and are not redirected elsewhere.
_OPENER = urllib.request.OpenerDirector()
for _handler in (
    urllib.request.HTTPHandler(),
    urllib.request.HTTPSHandler(),
    urllib.request.UnknownHandler(),
):
    _OPENER.add_handler(_handler)


def ask(url: str, *, method: str = "GET", timeout: float = _ANSWER_S) -> int:
    """Return the status of a request without a body; raises OSError if there is no response."""
    request = urllib.request.Request(url, method=method)  # noqa: S310
    try:
        with _OPENER.open(request, timeout=timeout) as response:
            response.read(1 << 16)
            return int(response.status)
    except (ValueError, http.client.HTTPException, urllib.error.URLError) as error:
        raise OSError(str(getattr(error, "reason", error))) from error


class Readiness:
    """Whether a server is ready: by a URL, a port, or a line that it prints."""

    def __init__(self, serve: Serve) -> None:
        self._place = serve.ready or serve.url
        self._pattern = re.compile(serve.ready_line) if serve.ready_line else None
        self._only_port = serve.ready is None
        self._said = threading.Event()

    def hear(self, line: str) -> None:
        """Read a line that the server prints."""
        if self._pattern is not None and self._pattern.search(line):
            self._said.set()

    def lack(self) -> str | None:
        """Return what is missing; None if the server is ready."""
        if self._pattern is not None and not self._said.is_set():
            return f"no line matches {self._pattern.pattern!r}"
        return None if self._pattern is not None and self._only_port else self.silence()

    def silence(self) -> str | None:
        """Return why nothing answers at its place; None if something does."""
        place = self._place
        if place is None:
            return "no place to ask"
        try:
            if place.startswith(("http://", "https://")) and not self._only_port:
                status = ask(place)
                return None if status == 200 else f"{place} answers with status {status}"
            found = host_and_port(place)
            if found is None:
                raise InputError(f"{place}: neither a URL nor HOST:PORT")
            with socket.create_connection(found, timeout=_ANSWER_S):
                return None
        except OSError as error:
            return f"{place}: {brief(error.strerror or error)}"


class Server:
    """A server that runs; `ready_s` is the time until it was ready."""

    def __init__(self, program: Beside, ready_s: float) -> None:
        self.program, self.ready_s = program, ready_s

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.program.wait(0)

    def death(self) -> str:
        """Return how it ended, with its last words."""
        said = self.program.complaint() or "no output"
        return f"the server {self.program.outcome}: {said}"


@contextmanager
def serving(
    context: Context,
    serve: Serve,
    phase: str,
    before: Sequence[str | Path] = (),
    env: Mapping[str, str] | None = None,
    on_line: Say | None = None,
) -> Iterator[Server]:
    """Start a server and yield it when it is ready; end it, with all its processes, at the end.

    `before` are the words of a profiler; `on_line` gets the lines that both print.

    Raises InputError if something else already answers at its place, ProgramFailed with NOT_READY
    if it does not get ready.
    """
    ready = Readiness(serve)
    if ready.silence() is None:
        raise InputError(
            f"a server already answers at {serve.ready or serve.url}; end it, or use another port"
        )

    def hear(line: str) -> None:
        ready.hear(line)
        if on_line is not None:
            on_line(line)

    launcher = context.launcher
    directory = launcher.execution.directory
    log = context.into / f"server-{phase}"
    with Beside(
        [*launcher.execution.wrapper, *before, *context.task.command],
        log=log,
        cwd=Path(directory) if directory else launcher.cwd,
        env={**context.workload.env, COLLECTOR_VARIABLE: phase, **(env or {})},
        on_line=hear,
        grace_s=serve.stop_timeout,
    ) as program:
        yield Server(program, _wait(program, ready, serve, context))


def _wait(program: Beside, ready: Readiness, serve: Serve, context: Context) -> float:
    """Return how long it took until a server was ready, s."""
    began = time.monotonic()
    said = 0.0
    while (lack := ready.lack()) is not None:
        took = time.monotonic() - began
        if program.wait(_AGAIN_S):
            raise ProgramFailed(
                NOT_READY,
                f"the server {program.outcome} after {format_ns(1e9 * program.seconds)}, before it "
                f"was ready: {program.complaint() or 'no output'} (log: {program.logs[1]})",
                program.returncode,
            )
        if took > serve.ready_timeout:
            last = program.complaint() or "no output"
            raise ProgramFailed(
                NOT_READY,
                f"the server was not ready after {serve.ready_timeout:g} s ({lack}); its last "
                f"output: {last} (log: {program.logs[1]}); --ready-timeout raises the limit",
            )
        if took - said >= 1:
            said = took
            context.say(f"waiting for the server, {took:.0f} s")
    return time.monotonic() - began
