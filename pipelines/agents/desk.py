"""A store for the tools: resolves names to selections, keeps sessions open for the next call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from perfpipe import trialrecord
from perfpipe.analysis.report.build import kinds_of
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import named
from perfpipe.analysis.session import Session
from perfpipe.errors import InputError, PerfpipeError
from perfpipe.pipelines.agents.calls import Call, Key
from perfpipe.pipelines.agents.judging import Jobs
from perfpipe.pipelines.agents.pool import Pool
from perfpipe.pipelines.agents.wording import unmarked
from perfpipe.pipelines.query_timeout import time_limit
from perfpipe.pipelines.rereading import rereading
from perfpipe.pipelines.selection import Selection, select
from perfpipe.store import Store
from perfpipe.windows import STEADY

#: Default time limit of a call, s.
_USUAL_S = 120.0

Row = dict[str, Any]
T = TypeVar("T")

#: Paths of reports and names of machines are private; hashes still distinguish machines.
_WITHHOLD = """
    UPDATE reports SET directory = NULL, host = 'host ' || substr(md5(host), 1, 6);
    UPDATE run_tasks SET node = 'host ' || substr(md5(node), 1, 6);
"""


class Desk:
    """Reads one store for several calls at a time; `jobs` runs the allowed workloads, if any."""

    def __init__(self, store: Store, jobs: Jobs | None = None) -> None:
        self.store, self.jobs = store, jobs
        #: Takes a key, and returns a session that was made in advance, if any.
        self.ready: Callable[[Key], Session | None] = _none
        self._pool = Pool()
        # Of what is asked outside of `call`: one call that ends with the desk.
        self._outside = Call()

    def call(self, work: Callable[[], T], call: Call | None = None) -> T:
        """Run a call and return its result; it is stopped if it takes too long."""
        import duckdb

        own = call or Call()
        outer = _call.set(own)
        try:
            with own.limited(time_limit(_USUAL_S)):
                return rereading(self.store, lambda: own.reading, work)
        except (duckdb.InterruptException, PerfpipeError) as error:
            if not own.stopped:
                raise
            raise InputError(f"stopped: {own.stopped}") from error
        finally:
            self._pool.give_back(own)
            _call.reset(outer)

    def is_stopped(self) -> bool:
        """Return whether the call of this thread was stopped."""
        call = _call.get()
        return bool(call and call.stopped)

    def close(self) -> None:
        """Close every session, and end every job."""
        if self.jobs is not None:
            self.jobs.close()
        self._pool.give_back(self._outside)
        self._pool.close()

    @property
    def is_empty(self) -> bool:
        """Whether the store is missing, or holds nothing."""
        store = self.store
        return not (store.report_ids() or store.run_ids() or trialrecord.files(store.root))

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
        call = _call.get() or self._outside
        call.reading = list(chosen.reports)

        def make() -> Session:
            made = self.ready(key) or self.opened(chosen, window)
            made.check_window()
            return made

        return self._pool.take(key, call, make)

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
        call = _call.get() or self._outside
        call.reading = self.store.report_ids() if reports is None else list(reports)
        with Session.open(self.store, reports, use=("reports", "run_tasks")) as session:
            session.con.execute(_WITHHOLD)
            call.own.append(session)
            try:
                yield session
            finally:
                call.own.remove(session)


#: The call that this thread runs, if any.
_call: ContextVar[Call | None] = ContextVar("call", default=None)


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
