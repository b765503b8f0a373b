"""A store for the tools: resolves names to selections, keeps sessions open for the next call."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from perfpipe import trialrecord
from perfpipe.analysis.report.build import kinds_of
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import named
from perfpipe.analysis.session import Session
from perfpipe.errors import InputError
from perfpipe.pipelines.agents.judging import Jobs
from perfpipe.pipelines.agents.wording import unmarked
from perfpipe.pipelines.query_timeout import time_limit
from perfpipe.pipelines.rereading import rereading
from perfpipe.pipelines.selection import Selection, select
from perfpipe.store import Store
from perfpipe.windows import STEADY

#: Sessions that are kept open.
_KEPT = 3

#: Default time limit of a call, s.
_USUAL_S = 120.0

#: How often an interrupt is repeated, s.
_AGAIN_S = 0.1

Row = dict[str, Any]
T = TypeVar("T")

#: Key of a session.
Key = tuple[object, ...]

#: Paths of reports and names of machines are private; hashes still distinguish machines.
_WITHHOLD = """
    UPDATE reports SET directory = NULL, host = 'host ' || substr(md5(host), 1, 6);
    UPDATE run_tasks SET node = 'host ' || substr(md5(node), 1, 6);
"""


class Desk:
    """Reads one store, one call at a time; `jobs` runs the server's allowed workloads, if any."""

    def __init__(self, store: Store, jobs: Jobs | None = None) -> None:
        self.store, self.jobs = store, jobs
        #: Takes a key, and returns a session that was made in advance, if any.
        self.ready: Callable[[Key], Session | None] = _none
        self._sessions: OrderedDict[Key, Session] = OrderedDict()
        self._open: list[Session] = []
        self._lock = threading.Lock()
        self._late = False
        self._reading: Sequence[str] = ()  # reports of the session in use

    def call(self, work: Callable[[], T]) -> T:
        """Run a call and return its result: one call at a time, stopped if it takes too long."""
        import duckdb

        with self._lock:
            self._late, self._reading = False, []
            limit = time_limit(_USUAL_S)
            ended = threading.Event()
            threading.Thread(target=self._stop_late, args=(limit, ended), daemon=True).start()
            try:
                return rereading(self.store, lambda: self._reading, work)
            except (duckdb.InterruptException, InputError) as error:
                if isinstance(error, InputError) and not self._late:
                    raise
                why = (
                    f"the call took longer than {limit:g} s"
                    if self._late
                    else "the call was cancelled"
                )
                raise InputError(f"stopped: {why}") from error
            finally:
                ended.set()

    def stop(self) -> None:
        """Interrupt the query that runs, if any."""
        for session in [*self._sessions.values(), *self._open]:
            session.con.interrupt()

    def close(self) -> None:
        """Close every session, and end every job."""
        if self.jobs is not None:
            self.jobs.close()
        while self._sessions:
            self._sessions.popitem()[1].close()

    def select(self, names: str | None) -> Selection:
        """Return the selection of comma-separated names; raises InputError."""
        return select(self.store, split(names))

    def name_of(self, chosen: Selection) -> str:
        """Return the names of a selection: its runs, else its reports."""
        runs = [run.run_id for run in chosen.runs]
        return ",".join(runs if chosen.only_runs else chosen.reports)

    def session(self, chosen: Selection, window: str = STEADY) -> Session:
        """Return a session on a selection; later calls reuse it."""
        key = self.key(chosen, window)
        self._reading = chosen.reports
        if key not in self._sessions:
            if len(self._sessions) >= _KEPT:
                self._sessions.popitem(last=False)[1].close()
            self._sessions[key] = self.ready(key) or self.opened(chosen, window)
            self._sessions[key].check_window()
        self._sessions.move_to_end(key)
        return self._sessions[key]

    def key(self, chosen: Selection, window: str = STEADY) -> Key:
        """Return the key of a session."""
        runs = tuple((run.run_id, run.status) for run in chosen.runs)
        trials = tuple(path.name for path in trialrecord.files(self.store.root))
        return tuple(chosen.reports), runs, chosen.only_runs, trials, window

    def opened(self, chosen: Selection, window: str = STEADY) -> Session:
        """Return a new session on a selection."""
        runs = [run.run_id for run in chosen.runs] if chosen.only_runs else None
        return Session.open(self.store, chosen.reports, runs, window=window)

    def scope(self, chosen: Selection, views: Sequence[str], window: str = STEADY) -> Scope:
        """Return the subject of a report, with some views made."""
        session = self.session(chosen, window)
        session.use("reports", *views)
        reports = tuple(sorted(chosen.reports))
        kinds = kinds_of(session.con, reports)
        return Scope(session.con, reports, kinds, chosen.run, left_out=chosen.left_out)

    @contextmanager
    def fresh(self, reports: Sequence[str] | None) -> Iterator[Session]:
        """Open a session for one call, on some reports or all."""
        self._reading = self.store.report_ids() if reports is None else list(reports)
        with Session.open(self.store, reports, use=("reports", "run_tasks")) as session:
            session.con.execute(_WITHHOLD)
            self._open.append(session)
            try:
                yield session
            finally:
                self._open.remove(session)

    def _stop_late(self, limit: float | None, ended: threading.Event) -> None:
        # Repeatedly: a query that is still being planned ignores it.
        late = not ended.wait(limit)
        while late and not ended.wait(_AGAIN_S):
            self._late = True
            self.stop()


def _none(_: Key) -> None:
    """Return no prepared session."""


def split(names: str | None) -> list[str]:
    """Return comma-separated names, without marks."""
    return [unmarked(name) for name in (names or "").split(",") if name.strip()]


def rows(session: Session, sql: str, parameters: object = None) -> list[Row]:
    """Return the rows of a query by column."""
    with named(sql):
        result = session.execute(sql, parameters)
        columns = [column[0] for column in result.description]
        return [dict(zip(columns, row, strict=True)) for row in result.fetchall()]
    raise AssertionError("unreachable")
