"""Prepares the session of a client's likely first call in advance, and the process of queries."""

from __future__ import annotations

import contextlib
import threading

from perfpipe.analysis.session import Session
from perfpipe.errors import PerfpipeError
from perfpipe.pipelines.agents.calls import Key
from perfpipe.pipelines.agents.desk import Desk
from perfpipe.pipelines.agents.overview import VIEWS, listed
from perfpipe.pipelines.agents.queries import warm

#: How long the server waits for it at exit, and how often it interrupts it, s.
_ENDING_S, _AGAIN_S = 10.0, 0.05


class Warming:
    """Opens a session on the newest run, else report, in a thread concurrently with the calls.

    A call that needs a session waits for it: all sessions reuse what it has read and parsed.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._key: Key | None = None
        self._session: Session | None = None
        self._ended = False
        self._thread = threading.Thread(target=self._work, daemon=True)
        desk.ready = self.taken
        self._thread.start()

    def _work(self) -> None:
        import duckdb

        # Errors of a store are reported to the call that encounters them.
        with contextlib.suppress(PerfpipeError, duckdb.Error):
            first = listed(self._desk).next
            target = None if first is None else first.arguments.get("target")
            if target is None or self._ended:
                return
            chosen = self._desk.select(target)
            self._session = self._desk.opened(chosen)
            self._session.use("reports", *VIEWS)
            self._key = self._desk.key(chosen)
            # Calls do not wait for it.
            threading.Thread(target=warm, args=(lambda: self._ended,), daemon=True).start()

    def taken(self, key: Key) -> Session | None:
        """Return the session if it is on that selection, once; waits until it is ready."""
        self._thread.join()
        if key != self._key:
            return None
        found, self._session, self._key = self._session, None, None
        return found

    def end(self) -> None:
        """Interrupt the thread, and close an unused session."""
        self._ended = True
        for _ in range(int(_ENDING_S / _AGAIN_S)):
            if not self._thread.is_alive():
                break
            if self._session is not None:
                self._session.con.interrupt()
            self._thread.join(_AGAIN_S)
        if self._session is not None and not self._thread.is_alive():
            self._session.close()
