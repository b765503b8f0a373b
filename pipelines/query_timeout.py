"""Ends queries at a time limit and on Ctrl-C."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar

from perfpipe.database import watching
from perfpipe.errors import InputError
from perfpipe.pipelines import signals

#: Time limit of a query, or of all queries of a report, s; 0 means no limit.
TIME_VARIABLE = "PERFPIPE_QUERY_TIMEOUT"
USUAL_S = 600.0

#: How often a waiting thread checks for signals, s, and how often an interrupt is repeated, since a
#: query does not see it during planning.
_AGAIN_S = 0.1

#: How long an interrupted query may take to end, s.
_PATIENCE_S = 10.0

T = TypeVar("T")


def time_limit(usual: float = USUAL_S) -> float | None:
    """Return the limit from the environment, else the default, s; None means no limit.

    Raises InputError if the value is not a number of seconds.
    """
    stated = os.environ.get(TIME_VARIABLE)
    try:
        seconds = float(stated) if stated else usual
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < threading.TIMEOUT_MAX:
        raise InputError(f"{TIME_VARIABLE}={stated}: not a number of seconds")
    return seconds or None


def late(limit: float) -> InputError:
    """Return the error of queries that took longer than a limit, s."""
    return InputError(
        f"stopped: the query took longer than {limit:g} s; raise the limit with --timeout "
        f"SECONDS or {TIME_VARIABLE} (0: no limit)"
    )


def _ended(done: threading.Event, limit: float | None) -> bool:
    """Wait for an event, s; return whether it came.

    In turns: a signal that arrives just before a wait does not interrupt it.  Raises
    KeyboardInterrupt if one came earlier and was lost.
    """
    until = None if limit is None else time.monotonic() + limit
    while not done.wait(_AGAIN_S):
        signals.check()
        if until is not None and time.monotonic() >= until:
            return False
    return True


def within(work: Callable[[], T]) -> T:
    """Return what the work gives; InputError if its queries take longer than `time_limit`.

    The work runs in another thread, which this thread can interrupt: DuckDB checks for signals only
    between some of its steps.  A query that does not end when asked to stays until the process
    ends.
    """
    limit = time_limit()
    found: list[T] = []
    failed: list[BaseException] = []
    # join() interrupted by a signal marks the thread as finished, so wait on an Event.
    done = threading.Event()

    def attempt() -> None:
        try:
            found.append(work())
        except BaseException as error:
            failed.append(error)
        finally:
            done.set()

    with watching() as interrupt:
        thread = threading.Thread(target=copy_context().run, args=(attempt,), daemon=True)
        thread.start()
        try:
            is_late = not _ended(done, limit)
        finally:
            left = _PATIENCE_S
            while not done.is_set() and left > 0:
                interrupt()
                done.wait(_AGAIN_S)
                left -= _AGAIN_S
    if limit is not None and is_late:
        raise late(limit)
    if failed:
        raise failed[0]
    return found[0]
