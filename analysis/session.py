"""A store open for SQL: tables and views are made when a query first names them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from perfpipe.analysis.macros import macros, with_thresholds
from perfpipe.analysis.names import names_in, names_in_own
from perfpipe.analysis.parallel_views import in_parallel
from perfpipe.analysis.reference import REFERENCE_TABLES
from perfpipe.analysis.rows import named
from perfpipe.analysis.thresholds import thresholds
from perfpipe.analysis.views import PROFILERS, layer_of, views
from perfpipe.cores import cores
from perfpipe.database import (
    comment,
    execute_known,
    first_lines,
    open_database,
    sql_error,
    use_cores,
)
from perfpipe.errors import InputError, did_you_mean
from perfpipe.model import aliases, tables
from perfpipe.sandbox import lock, readable_sql
from perfpipe.snapshot import Snapshot
from perfpipe.storetables import StoreTables, document
from perfpipe.windows import STEADY, WINDOWS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

    from perfpipe.store import Store


class Session:
    """SQL over some tables: those of a store, or those that `con` holds already.

    Views, macros and reference tables are made as queries name them, and what these need.  A view
    that another one reads becomes a table (see View.few): planning it again inside each reader
    would cost more than its rows.  So does one that a later call reads again.
    """

    def __init__(
        self,
        con: DuckDBPyConnection,
        store_tables: StoreTables | None = None,
        *,
        step_range: str | int | None = None,
        window: str = STEADY,
        limits: Mapping[str, float] | None = None,
        materialize: bool = True,
    ) -> None:
        """Take over a connection; `limits` are thresholds, `step_range` says what steps are.

        `window` is the part of timelines that verdicts are about: steady (where steps repeat, else
        all), whole, startup, or the name or number of a step.

        Raises InputError if `step_range` is no regular expression.
        """
        self.con = con
        self._window, self._step_range = window, step_range
        self._store_tables = store_tables
        self._check(step_range)
        self._limits = limits or thresholds()
        self._macros = macros(self._limits, step_range, window)
        self._materialize = materialize
        self._directories: list[Path] = []
        self._locked = False
        self._needs: dict[str, frozenset[str]] = {}
        self._made: set[str] = set()
        self._read: set[str] = set()  # what queries have named
        self._tables: set[str] = set()  # views that were computed once
        #: Names that `use` has made, and those that it makes in all; other threads may read it.
        self.progress = (0, 0)
        stored = StoreTables.names() if store_tables else frozenset[str]()
        made = REFERENCE_TABLES.keys() | self._macros.keys() | views().keys() | aliases().keys()
        self._known = stored | made

    @classmethod
    def open(
        cls,
        store: Store,
        report_ids: Collection[str] | None = None,
        run_ids: Collection[str] | None = None,
        *,
        use: Iterable[str] = (),
        step_range: str | int | None = None,
        window: str = STEADY,
        limits: Mapping[str, float] | None = None,
    ) -> Self:
        """Open some reports and runs of a store, or all, and make the names in `use`.

        `limits` are thresholds.  Raises StoreError if the store cannot be read.
        """
        con = open_database()
        tables = StoreTables(con, Snapshot.of(store, report_ids), run_ids)
        session = cls(con, tables, step_range=step_range, window=window, limits=limits)
        session._directories = [store.reports_dir, store.segments_dir]
        session.use(*use)
        return session

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.con.close()

    def sql(self, query: str) -> DuckDBPyRelation:
        """Return the relation of a query; its `.df()`, `.fetchall()`, `.show()` run it."""
        self.use_for(query)
        return self.con.sql(query)

    def execute(self, query: str, parameters: object = None) -> DuckDBPyConnection:
        """Run a query and return the connection, which holds its result."""
        self.use_for(query)
        return self.con.execute(query, parameters)

    def run_user_sql(self, query: str) -> DuckDBPyConnection:
        """Run a query that somebody typed, which can read the store and nothing else.

        Raises InputError for what is not one SELECT, or does not run.
        """
        import duckdb

        query = readable_sql(self.con, query)
        self.use_for(query)
        if not self._locked:
            use_cores(self.con)
            lock(self.con, self._directories)
            self._locked = True
        try:
            return self.con.execute(query)
        except duckdb.CatalogException as error:
            raise self._missing(error) from error
        except duckdb.Error as error:
            raise sql_error(error) from error

    def _missing(self, error: Exception) -> InputError:
        """Return what a query names in vain; DuckDB would suggest only what has been made."""
        table = _NO_TABLE.search(str(error))
        if table is None:
            return sql_error(error)
        known = [name for name in self._known - self._macros.keys() if not name.startswith("_")]
        hint = did_you_mean(table[1], sorted(known))
        return InputError(
            f"SQL: no table or view '{table[1]}'{hint} ('perfpipe schema' lists them)"
        )

    def use_for(self, query: str) -> None:
        """Make what a query names; where it asks DuckDB's catalogue, all there is, documented."""
        named = names_in(self.con, query)
        if any(name.startswith(_CATALOGUES) for name in named):
            self.use(*self._known)
            self._document()
        self.use(*named)
        self._read |= named

    def use(self, *names: str) -> None:
        """Make tables, views and macros, and what they need; other names are passed over.

        Raises StoreError if files of the store cannot be read, InputError if memory is too little.
        """
        again = self._drop_read_again(names)
        wanted = self.closure({*names, *again})
        tables = self._worth_keeping(wanted) | again
        done: list[str] = []
        self.progress = (0, len(wanted))

        def step(name: str, con: DuckDBPyConnection) -> None:
            with named(f"FROM {name}"):
                if self._make(con, name, "TABLE" if name in tables else "VIEW") == "TABLE":
                    self._tables.add(name)
            self._made.add(name)
            done.append(name)
            self.progress = (len(done), len(wanted))

        self._run(wanted, step)

    def _run(self, names: Sequence[str], step: Callable[[str, DuckDBPyConnection], None]) -> None:
        """Run the steps that make some names, several side by side."""
        rest = {name: self.needs(name) for name in names if name not in StoreTables.names()}
        # Connections that are opened later cannot be set up: the configuration is locked.
        many = len(rest) >= _FEW and not self._locked and self._at_once > 1
        beside = rest if many else {}
        for name in names:
            if name not in beside:
                step(name, self.con)
        if beside:
            in_parallel(self.con, self._at_once, beside, step)

    @cached_property
    def _at_once(self) -> int:
        """How many views are made at a time: where data are small, planning them takes longest."""
        if self._store_tables is None:
            return 1
        if self._store_tables.bytes() > _SMALL:
            # Parts of a view run on one core: with a second view the others are not idle then.
            return min(2, cores())
        self.con.execute("SET threads = 1")
        return cores()

    def _drop_read_again(self, names: Collection[str]) -> set[str]:
        """Drop plain views that this call reads and an earlier one made, to be kept now.

        One that is named itself has to have been named by an earlier query: `use` reads nothing.
        """
        reached = self._read.intersection(names)
        todo = [name for name in names if name in self._known]
        seen: set[str] = set()
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                below = self.needs(name) if name not in self._tables else frozenset[str]()
                reached |= below
                todo += below
        plain = reached & self._made & views().keys() - self._tables
        again = {name for name in plain if self._materialize and views()[name].kept}
        for name in again:
            self.con.execute(f"DROP VIEW {name}")
        self._made -= again
        return again

    def closure(self, names: Iterable[str]) -> list[str]:
        """Return what has to be made for some names and is not yet, each after what it needs."""
        found: dict[str, None] = {}
        seen: set[str] = set()

        def visit(name: str) -> None:
            if name in self._known and name not in seen:
                seen.add(name)
                for needed in sorted(self.needs(name)):
                    visit(needed)
                if name not in self._made:
                    found[name] = None

        for name in sorted(names):
            visit(name)
        return list(found)

    def needs(self, name: str) -> frozenset[str]:
        """Return the tables, views and macros that one names itself."""
        if name not in self._needs:
            self._needs[name] = self._needs_of(name)
        return self._needs[name]

    def _needs_of(self, name: str) -> frozenset[str]:
        if name in REFERENCE_TABLES:
            return REFERENCE_TABLES[name].needs
        if self._is_empty(name):
            return frozenset()
        if name in aliases():
            return frozenset({aliases()[name]})
        # SQL of perfpipe's own calls what it derives kernels, processes and the like.
        return self._named_by(name) & self._known - aliases().keys()

    def _named_by(self, name: str) -> frozenset[str]:
        """Return what the SQL of a view or macro names."""
        if name in views():
            return names_in_own(views()[name].query)
        if name in self._macros:
            return names_in_own(self._macros[name].body)
        return frozenset()

    def _is_empty(self, name: str) -> bool:
        """Return whether a name is a view that is declared, of a profiler without a report here."""
        view = views().get(name)
        return view is not None and bool(view.types) and view.layer in self._without_reports

    @cached_property
    def _without_reports(self) -> frozenset[str]:
        """The layers of profilers of which the store, or what was chosen of it, has no report.

        To tables that are not those of a store rows can be added.
        """
        store = self._store_tables
        if store is None:
            return frozenset()
        there = {layer_of(table) for table in tables() if store.has_files(table)}
        return frozenset(PROFILERS) - there

    def _query(self, view: str) -> str:
        return with_thresholds(views()[view].query, self._limits)

    def _worth_keeping(self, wanted: Collection[str]) -> set[str]:
        """Return the views to compute once, because others of those that are wanted read them."""
        if not self._materialize:
            return set()
        read = {needed for name in wanted if name in views() for needed in self.needs(name)}
        return {name for name in wanted if name in views() and name in read and views()[name].few}

    def _make(self, con: DuckDBPyConnection, name: str, kind: str) -> str:
        """Make a table, view or macro, and return what a view was made as."""
        if self._is_empty(name):
            columns = ", ".join(
                f'"{column}" {type_}' for column, type_ in views()[name].types.items()
            )
            execute_known(con, f"CREATE TABLE {name} ({columns})")
            return "TABLE"
        if name in views():
            execute_known(con, f"CREATE {kind} {name} AS {self._query(name)}")
            return kind
        if name in aliases():
            execute_known(con, f"CREATE VIEW {name} AS FROM {aliases()[name]}")
        elif name in self._macros:
            execute_known(con, self._macros[name].sql)
        elif name in REFERENCE_TABLES:
            REFERENCE_TABLES[name].make(con)
        elif self._store_tables is not None:
            self._store_tables.make(name)
        return ""

    def _document(self) -> None:
        """Attach documentation to all that was made, for the catalogue of the database."""
        kinds = dict(
            self.con.execute(
                "SELECT table_name, replace(table_type, 'BASE ', '') FROM information_schema.tables"
            ).fetchall()
        )
        for name in self._made & views().keys():
            view = views()[name]
            comment(self.con, kinds[name], name, view.doc, view.columns)
        for name in self._made & REFERENCE_TABLES.keys():
            if doc := REFERENCE_TABLES[name].doc:
                comment(self.con, kinds[name], name, doc, REFERENCE_TABLES[name].columns)
        for name in self._made & (StoreTables.names() | aliases().keys()):
            document(self.con, name)

    def check_window(self) -> None:
        """Raise InputError if no timeline has the loop or the step that was chosen."""
        if isinstance(self._step_range, int):
            rows = self.execute("SELECT loop FROM launch_loops").fetchall()
            if not any(loop == self._step_range for (loop,) in rows):
                raise InputError(
                    f"--step {self._step_range}: no such loop; 'perfpipe query \"FROM loops\"' "
                    "lists them"
                )
        if self._window in WINDOWS:
            return
        rows = self.execute("SELECT kind FROM analysis_windows").fetchall()
        if rows and not any(kind == "step" for (kind,) in rows):
            raise InputError(
                f"--window {self._window}: no such step; 'perfpipe query \"FROM steps\"' lists them"
            )

    def _check(self, step_range: str | int | None) -> None:
        import duckdb

        if isinstance(step_range, str):
            try:
                self.con.execute("SELECT regexp_matches('', ?)", [step_range])
            except duckdb.Error as error:
                raise InputError(
                    f"{step_range}: not a regular expression of ranges ({first_lines(error)})"
                ) from error


#: Bytes of reports whose views take longer to plan than to compute, and how many are worth threads.
_SMALL, _FEW = 16 << 20, 4

#: What DuckDB says of a table that is not there.
_NO_TABLE = re.compile("Table with name (.+) does not exist!")

#: How names of the database's own catalogue begin.
_CATALOGUES = ("duckdb_", "information_schema", "pg_", "sqlite_", "pragma_", '"tables"')
