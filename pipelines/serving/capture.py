"""Captures a window of a server under load: with a session of nsys, or by the server itself."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from perfpipe.pipelines.collectors.base import Context, ProgramFailed
from perfpipe.pipelines.collectors.nsys import exported, profile_options, sampling_options
from perfpipe.pipelines.process import run
from perfpipe.pipelines.serving.block import Serve, host_and_port
from perfpipe.pipelines.serving.server import ask
from perfpipe.pipelines.tools import explain, offered, require_tool
from perfpipe.pipelines.workload import CollectNsys

#: Time limits for starting and ending a capture, s: nsys writes its report at the end.
_STARTING_S, _WRITING_S = 60.0, 600.0

#: How long a report may take to appear after nsys has stopped, s.
_APPEARING_S = 30.0

_FORKS = "--trace-fork-before-exec=true"

#: How long traces must not have grown before they count as complete, s.
_SETTLED_S = 2.0

#: Options of `nsys profile` that mean nothing for a window of a session.
_WHOLE = ("--duration", "--delay", "--kill", "--wait", "--output", "--force-overwrite")


class Capture(Protocol):
    """A profiler that can capture windows of one server.

    `before` are the words in front of the server's command, `env` its variables.
    """

    before: Sequence[str]
    env: Mapping[str, str]

    def start(self) -> None:
        """Begin to capture; raises ProgramFailed if that fails."""

    def stop(self, name: str) -> list[Path]:
        """End the capture and return its files, which are named after `name`."""

    def close(self) -> None:
        """End what is left of the profiler."""


class NsysSession:
    """A session of nsys: the server runs with nsys loaded, and captures are started and stopped."""

    def __init__(self, context: Context, options: CollectNsys) -> None:
        self._context = context
        self._nsys = require_tool("nsys", context.launcher).path
        self._session = f"perfpipe-{uuid.uuid4().hex[:12]}"
        sampling, self.notes = sampling_options(context, options, self._nsys)
        # Servers fork workers, which nsys otherwise traces only after an exec.
        forks = offered(self._nsys, "launch", [_FORKS])
        words = [*sampling, *forks, *profile_options(options)]
        words = [word for word in words if word.partition("=")[0] not in _WHOLE]
        self._starting = offered(self._nsys, "start", words)
        launching = [word for word in words if word not in self._starting]
        self.before: Sequence[str] = [
            self._nsys,
            "launch",
            f"--session-new={self._session}",
            *launching,
        ]
        self.env: Mapping[str, str] = (
            {"NSYS_NVTX_PROFILER_REGISTER_ONLY": "0"} if options.nvtx else {}
        )
        self._report: Path | None = None

    def start(self) -> None:
        self._report = self._context.into / f"capture-{uuid.uuid4().hex[:8]}.nsys-rep"
        words = [f"--output={self._report}", "--force-overwrite=true", *self._starting]
        self._ask("start", words, _STARTING_S)

    def stop(self, name: str) -> list[Path]:
        report = self._report
        if report is None:
            raise ValueError("no capture was started")
        self._report = None
        try:
            self._ask("stop", [], _WRITING_S)
        except ProgramFailed:
            # When the server ends, nsys ends the capture and writes the report.
            if not report.is_file():
                raise
        until = time.monotonic() + _APPEARING_S
        while not report.is_file() and time.monotonic() < until:
            time.sleep(0.1)
        if not report.is_file():
            raise ProgramFailed("profiler", f"nsys stop did not write {report.name}")
        final = report.with_name(f"{name}.nsys-rep")
        report.replace(final)
        database = final.with_suffix(".sqlite")
        exported(self._context, self._nsys, final, database, name)
        return [database]

    def close(self) -> None:
        run([self._nsys, "shutdown", f"--session={self._session}", "--kill=sigterm"], timeout=30)

    def _ask(self, verb: str, words: Sequence[str], timeout: float) -> None:
        done = run(
            [self._nsys, verb, f"--session={self._session}", *words],
            timeout=timeout,
            log=self._context.into / f"nsys-{verb}",
        )
        if not done.ok:
            late = f"took longer than {timeout:g} s" if done.timed_out else "failed"
            said = explain(done.stdout + done.stderr) or done.complaint() or "no output"
            raise ProgramFailed("profiler", f"nsys {verb} {late}: {said}")


class OwnProfiler:
    """The server's own torch.profiler, with POST /start_profile and /stop_profile: vLLM, SGLang."""

    def __init__(self, context: Context, serve: Serve) -> None:
        self._context = context
        self._base = _base(serve)
        self._folder = Path(serve.traces) if serve.traces else context.into / "traces"
        if not self._folder.is_absolute():
            self._folder = context.launcher.cwd / self._folder
        self._folder.mkdir(parents=True, exist_ok=True)
        names = ("VLLM_TORCH_PROFILER_DIR", "SGLANG_TORCH_PROFILER_DIR")
        self.before: Sequence[str] = ()
        folder = str(self._folder)
        self.env: Mapping[str, str] = {} if serve.traces else dict.fromkeys(names, folder)
        self._known: frozenset[Path] = frozenset()

    def start(self) -> None:
        self._known = self._traces()
        self._ask("/start_profile", _STARTING_S)

    def stop(self, name: str) -> list[Path]:
        self._ask("/stop_profile", _WRITING_S)
        self._context.say("waiting for the traces of torch.profiler")
        files = []
        for number, trace in enumerate(sorted(self._settled())):
            ending = ".json.gz" if trace.name.endswith(".gz") else ".json"
            part = f"-{number}" if number else ""
            files.append(self._context.into / f"{name}{part}{ending}")
            shutil.move(trace, files[-1])
        return files

    def close(self) -> None:
        """Do nothing: the profiler is part of the server."""

    def _traces(self) -> frozenset[Path]:
        return frozenset(
            path
            for path in self._folder.rglob("*")
            if path.name.endswith((".json", ".json.gz")) and path.is_file()
        )

    def _settled(self) -> frozenset[Path]:
        """Return the new traces when they are complete; raises ProgramFailed if there are none."""
        until = time.monotonic() + _WRITING_S
        sizes: dict[Path, int] = {}
        since = time.monotonic()
        while time.monotonic() < until:
            now = {path: path.stat().st_size for path in self._traces() - self._known}
            if now != sizes:
                sizes, since = now, time.monotonic()
            elif sizes and time.monotonic() - since >= _SETTLED_S:
                return frozenset(sizes)
            time.sleep(0.1)
        if sizes:
            return frozenset(sizes)
        raise ProgramFailed(
            "profiler",
            f"the server wrote no trace to {self._folder} within {_WRITING_S:g} s; state its own "
            "directory for traces with serve: {traces: DIR}",
        )

    def _ask(self, path: str, timeout: float) -> None:
        url = self._base + path
        try:
            status = ask(url, method="POST", timeout=timeout)
        except OSError as error:
            raise ProgramFailed("profiler", f"POST {url}: {error}") from error
        if status == 404:
            raise ProgramFailed(
                "profiler",
                f"the server has no {path}: it cannot start torch.profiler (vLLM and SGLang need "
                "an option or a variable for that); use --collector nsys",
            )
        if status >= 300:
            raise ProgramFailed("profiler", f"POST {url} answers with status {status}")


def _base(serve: Serve) -> str:
    """Return the beginning of the URLs of the profiler."""
    if serve.profile_url:
        return serve.profile_url.rstrip("/")
    place = serve.url or serve.ready or ""
    found = host_and_port(place)
    if found is None:
        raise ProgramFailed(
            "profiler", "the URL of the server is unknown: set serve: {profile_url: URL}"
        )
    scheme = "https" if place.startswith("https://") else "http"
    return f"{scheme}://{found[0]}:{found[1]}"
