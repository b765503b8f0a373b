"""Launches programs where the workload says: locally, through a wrapper, or remotely."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import IO

from perfpipe.errors import TaskFailed, os_error_sentence
from perfpipe.files import replacing
from perfpipe.pipelines.git import git_facts
from perfpipe.pipelines.process import Finished, run
from perfpipe.pipelines.ranks import with_ranks
from perfpipe.pipelines.remote_guard import guarded
from perfpipe.pipelines.workload import Execution
from perfpipe.ranrecord import Git

#: Time limit for creating, copying or removing files on the remote side, s.
_PATIENCE_S = 600

#: The same when a run is interrupted, s.
_HURRY_S = 10


class Launcher:
    """Runs commands by an Execution; `cwd` is the program's directory on this machine.

    With ssh, the files that a command writes stay in a separate remote directory until `fetch`
    copies them; leaving the context removes that directory.
    """

    def __init__(self, execution: Execution, cwd: Path) -> None:
        self.execution, self.cwd = execution, cwd
        self._scratch: str | None = None

    @property
    def remote(self) -> bool:
        """Whether files that a command writes are on another machine."""
        return self.execution.kind == "ssh"

    @property
    def here(self) -> bool:
        """Whether the program runs on this machine."""
        return self.execution.kind == "local"

    @cached_property
    def git(self) -> Git | None:
        """What is checked out where programs run; None if remote or not a repository."""
        return None if self.remote else git_facts(Path(self.execution.directory or self.cwd))

    def run(
        self,
        words: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        log: Path | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> Finished:
        """Run a command in the program's directory; see `process.run`."""
        command = [str(word) for word in words]
        if not self.here:
            settings = [f"{name}={value}" for name, value in (env or {}).items()]
            command = ["env", *settings, *command] if settings else command
        if self.execution.kind == "srun":
            command = with_ranks(command)
        directory = self.execution.directory
        if self.remote:
            # ssh joins its arguments with spaces and passes them to a remote shell.
            line = guarded(command)
            command = [f"cd {shlex.quote(directory or str(self.cwd))} && exec {line}"]
        return run(
            [*self.execution.wrapper, *command],
            cwd=Path(directory) if directory and not self.remote else self.cwd,
            env=env if self.here else None,
            timeout=timeout,
            log=log,
            on_line=on_line,
            open_stdin=self.remote,
            keep_rest=self.remote,
        )

    def output(self, path: Path) -> str:
        """Return where a command must write the file that will be at `path` here."""
        if not self.remote:
            return str(path)
        return f"{self._remote_directory()}/{path.name}"

    def fetch(self, path: Path) -> bool:
        """Copy what a command wrote for `path`; returns False if it wrote nothing."""
        if not self.remote:
            return path.is_file()
        there = shlex.quote(self.output(path))
        if not self._ask(f"test -f {there}").ok:
            return False
        try:
            with replacing(path) as temporary, temporary.open("wb") as target:
                done = self._ask(f"cat {there}", stdout=target)
                if done.timed_out:
                    raise TaskFailed(f"copying back {path.name} took longer than {_PATIENCE_S} s")
                if not done.ok:
                    raise TaskFailed(f"{path.name} could not be copied back: {done.complaint()}")
        except OSError as error:
            raise TaskFailed(os_error_sentence(error, "cannot store the report")) from error
        return True

    def which(self, candidates: Sequence[str]) -> str | None:
        """Return the first remote program that is on PATH or matches a path pattern."""
        words = " ".join(
            f'"$(command -v {shlex.quote(name)})"' if "/" not in name else name
            for name in candidates
        )
        script = f'for p in {words}; do [ -x "$p" ] && echo "$p" && exit 0; done; exit 1'
        command = [script] if self.remote else ["sh", "-c", script]
        answer = self._ask(*command)
        # With srun, every task answers.
        return next(iter(answer.stdout.split("\n")), None) or None if answer.ok else None

    def _ask(
        self, *command: str, timeout: float = _PATIENCE_S, stdout: IO[bytes] | None = None
    ) -> Finished:
        """Run a short command through the wrapper."""
        words = [*self.execution.wrapper, *command]
        return run(words, timeout=timeout, stdout=stdout, keep_rest=self.remote)

    def _remote_directory(self) -> str:
        if self._scratch is None:
            template = "mktemp -d ${TMPDIR:-/tmp}/perfpipe-XXXXXXXX"
            answer = self._ask(template)
            lines = answer.stdout.split()
            if not answer.ok or not lines:
                wrapper = shlex.join(self.execution.wrapper)
                raise TaskFailed(f"{wrapper} does not respond: {answer.complaint()}")
            self._scratch = lines[-1]
        return self._scratch

    def __enter__(self) -> Launcher:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._scratch is not None:
            remove = f"rm -rf -- {shlex.quote(self._scratch)}"
            self._ask(remove, timeout=_HURRY_S if kind else _PATIENCE_S)
            self._scratch = None
