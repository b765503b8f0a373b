"""Programs that run beside perfpipe, such as a server: their output goes to files as it comes."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from perfpipe.errors import TaskFailed
from perfpipe.pipelines.complaint import complaint, ended
from perfpipe.pipelines.process import KEPT_OUTPUT, Supervised

#: Characters at the end of the output in which a complaint is looked for.
_LAST = 1 << 16

#: How long to wait for the end of the output of a program that has ended, s.
_DRAIN_S = 5.0


class Beside:
    """A program in a `with` block; leaving the block ends it and every process that it started.

    Its output is in LOG.out and LOG.err, at most `most` bytes of each; `on_line` also gets every
    line, in another thread.  `grace_s` is the time between SIGTERM and SIGKILL.
    """

    def __init__(
        self,
        words: Sequence[str | Path],
        *,
        log: Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] | None = None,
        grace_s: float = 3.0,
        most: int = KEPT_OUTPUT,
    ) -> None:
        self.words = [str(word) for word in words]
        settings = {**os.environ, **(env or {})}
        if any("\0" in text for text in (*self.words, *settings.values())):
            raise TaskFailed(f"{self.words[0]}: cannot start (null byte in an argument)")
        self.logs = log.with_name(f"{log.name}.out"), log.with_name(f"{log.name}.err")
        self._cwd, self._env, self._on_line, self._grace_s = cwd, settings, on_line, grace_s
        self._most = most
        self._supervised = Supervised(self.words[0], None)
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Beside:
        self._supervised.__enter__()
        try:
            process = self._supervised.process
            for stream, path in zip((process.stdout, process.stderr), self.logs, strict=True):
                if stream is not None:
                    thread = threading.Thread(target=self._copy, args=(stream, path), daemon=True)
                    self._threads.append(thread)
                    thread.start()
            self._supervised.start(self.words, self._cwd, self._env, grace_s=self._grace_s)
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._supervised.__exit__(kind)
        self._drain()

    def wait(self, seconds: float | None) -> bool:
        """Return whether it has ended within a time; raises ToolMissing if it does not exist."""
        done = self._supervised.wait(seconds)
        if done:
            self._drain()
        return done

    @property
    def seconds(self) -> float:
        """Time since it was started, or for which it ran, s."""
        return self._supervised.ended[1] if self._supervised.ended else self._supervised.seconds

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative if a signal ended it; None while it runs."""
        return self._supervised.ended[0] if self._supervised.ended else None

    @property
    def outcome(self) -> str:
        """How it ended: 'exited with code 3'."""
        return "still runs" if self.returncode is None else ended(self.returncode)

    def stop(self) -> None:
        """Let its supervisor end it; returns at once."""
        self._supervised.hang_up()

    def complaint(self) -> str:
        """Return the exception that it printed, or else its last lines of output, as one line."""
        texts = [path.read_text("utf-8", "replace") if path.exists() else "" for path in self.logs]
        return complaint(texts[0][-_LAST:], texts[1][-_LAST:])

    def _drain(self) -> None:
        for thread in self._threads:
            thread.join(_DRAIN_S)

    def _copy(self, stream: IO[str], path: Path) -> None:
        left = self._most
        with contextlib.suppress(ValueError), path.open("w", encoding="utf-8") as file:
            # A stream that is closed while it is read raises ValueError.
            for line in stream:
                if left > 0:
                    try:
                        file.write(line[:left])
                        file.flush()
                        left -= len(line)
                    except OSError:  # a full disk must not block the program
                        left = 0
                if self._on_line is not None:
                    self._on_line(line)
