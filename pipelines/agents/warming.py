"""Makes what a client asks for first while it has not asked yet."""

from __future__ import annotations

import contextlib
import threading

from perfpipe.analysis.session import Session
from perfpipe.errors import PerfpipeError
from perfpipe.pipelines.agents.desk import Desk, Key
from perfpipe.pipelines.agents.overview import VIEWS, listed

#: How long the end of the server waits for it, and how often that interrupts it, s.
_ENDING_S, _AGAIN_S = 10.0, 0.05


class Warming:
    """Opens a session on the newest run, else report, in a thread beside the calls.

    A call that needs a session waits for it: what it has read and parsed serves all sessions.
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

        # What is wrong with a store is told to the call that finds it.
        with contextlib.suppress(PerfpipeError, duckdb.Error):
            first = listed(self._desk).next
            target = None if first is None else first.arguments.get("target")
            if target is None or self._ended:
                return
            chosen = self._desk.select(target)
            self._session = self._desk.opened(chosen)
            self._session.use("reports", *VIEWS)
            self._key = self._desk.key(chosen)

    def taken(self, key: Key) -> Session | None:
        """Return the session if it is on that selection, once; waits until it is made."""
        self._thread.join()
        if key != self._key:
            return None
        found, self._session, self._key = self._session, None, None
        return found

    def end(self) -> None:
        """Interrupt the thread, and close what nobody took."""
        self._ended = True
        for _ in range(int(_ENDING_S / _AGAIN_S)):
            if not self._thread.is_alive():
                break
            if self._session is not None:
                self._session.con.interrupt()
            self._thread.join(_AGAIN_S)
        if self._session is not None and not self._thread.is_alive():
            self._session.close()
