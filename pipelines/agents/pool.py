"""Sessions that are kept for later calls; each is used by one call at a time."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable

from perfpipe.analysis.session import Session
from perfpipe.database import watch
from perfpipe.errors import InputError
from perfpipe.pipelines.agents.calls import AGAIN_S, Call, Key

#: Sessions that are kept, those in use included.
_KEPT = 3


class Pool:
    """Gives each call the session of a key, and keeps the last ones."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._idle: OrderedDict[Key, Session] = OrderedDict()
        self._used: Counter[Key] = Counter()

    def take(self, key: Key, call: Call, make: Callable[[], Session]) -> Session:
        """Return the session of a key, until `give_back`; waits while another call uses it.

        A call that holds a session already does not wait: two calls could wait for each other.
        Raises InputError if the call is stopped while it waits.
        """
        if key in call.sessions:
            return call.sessions[key]
        with self._changed:
            while self._used[key] and not call.sessions:
                if call.stopped:
                    raise InputError(call.stopped)
                self._changed.wait(AGAIN_S)
            session = self._idle.pop(key, None)
            self._used[key] += 1
            self._shrink()
        try:
            session = session or make()
        except BaseException:
            self._release(key)
            raise
        watch(session.con)
        call.sessions[key] = session
        return session

    def give_back(self, call: Call) -> None:
        """Keep the sessions of a call that has ended."""
        while call.sessions:
            key, session = call.sessions.popitem()
            with self._changed:
                if key in self._idle:
                    session.close()
                else:
                    self._idle[key] = session
            self._release(key)

    def close(self) -> None:
        """Close the sessions that no call uses."""
        with self._changed:
            while self._idle:
                self._idle.popitem()[1].close()

    def _release(self, key: Key) -> None:
        with self._changed:
            self._used[key] -= 1
            self._used += Counter()  # forgets keys that nobody uses
            self._shrink()
            self._changed.notify_all()

    def _shrink(self) -> None:
        while self._idle and len(self._idle) + self._used.total() > _KEPT:
            self._idle.popitem(last=False)[1].close()
