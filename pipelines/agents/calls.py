"""A call in progress: what it uses, how far it is, and how another thread stops it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from perfpipe.analysis.session import Session
from perfpipe.database import watching

#: How often an interrupt is repeated, s: a query that is still being planned ignores it.
AGAIN_S = 0.1

#: Key of a session.
Key = tuple[object, ...]


class Call:
    """One call of a tool."""

    def __init__(self) -> None:
        #: Sessions in use by key, and further ones, which belong to this call alone.
        self.sessions: dict[Key, Session] = {}
        self.own: list[Session] = []
        #: Reports of the session in use.
        self.reading: list[str] = []
        #: Why the call was stopped; empty if it was not.
        self.stopped = ""
        self._stop = threading.Event()
        self._ended = threading.Event()
        self._interrupting = threading.Lock()

    def stop(self, why: str = "the call was cancelled") -> None:
        """Stop the call, from any thread; its queries are interrupted until it ends."""
        self.stopped = self.stopped or why
        self._stop.set()

    def doing(self) -> str:
        """Return what the call does, in a few words."""
        for session in [*self.sessions.values(), *self.own]:
            made, every = session.progress
            if made < every:
                return f"preparing views: {made} of {every}"
        return "running"

    @contextmanager
    def limited(self, limit: float | None) -> Iterator[None]:
        """Interrupt the queries of this block at a time limit, s, or when the call is stopped."""
        with watching() as interrupt:
            watcher = threading.Thread(target=self._watch, args=(limit, interrupt), daemon=True)
            watcher.start()
            try:
                yield
            finally:
                with self._interrupting:
                    self._ended.set()
                self._stop.set()

    def _watch(self, limit: float | None, interrupt: Callable[[], None]) -> None:
        if not self._stop.wait(limit):
            self.stop(f"the call took longer than {limit:g} s")
        while True:
            # A session that has gone to another call must not be interrupted.
            with self._interrupting:
                if self._ended.is_set():
                    return
                interrupt()
            self._ended.wait(AGAIN_S)
