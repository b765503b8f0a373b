"""Fixtures: real captures, expanded and ingested once for all workers."""

from __future__ import annotations

import fcntl
import lzma
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, redirect_stdout
from functools import cache, cached_property
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

import duckdb
import pytest
from hypothesis import HealthCheck, settings

from perfpipe.analysis.session import Session
from perfpipe.analysis.thresholds import thresholds
from perfpipe.analysis.words import _table, finding_files
from perfpipe.catalogue import CATALOGUE
from perfpipe.database import SQL_TYPES, create_table
from perfpipe.ingest import columns
from perfpipe.ingest.reading import ingest
from perfpipe.model import tables
from perfpipe.pipelines import tools
from perfpipe.pipelines.cli import run_cli
from perfpipe.store import Store
from perfpipe.windows import STEADY

pytest_plugins = [
    *("actionruns", "batch_helpers", "browsing", "expanding", "protected", "report_fixtures"),
    *("running_programs", "serving", "slurm_fixtures", "slurm_site", "turns"),
]

# Tests say what is right; how long things take is measured in benchmarks/.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
# Tensors of tests are small: threads that spin until there are more take most of the CPU's time.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# The workers of pytest already keep every core busy.
os.environ.setdefault("PERFPIPE_CORES", "1")

DATA = Path(__file__).parent / "data"
ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that all workers of this test run share."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if base.name.startswith("popen-") else base) / "shared"
    shared.mkdir(exist_ok=True)
    return shared


@pytest.fixture(scope="module", params=[7, 1 << 18])
def few_rows(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let columns be used a few rows at a time, and as usual."""
    with patch.object(columns, "_AT_A_TIME", request.param):
        yield


def lacking(what: str) -> NoReturn:
    """Skip a test that this machine has not the means for; where CI is set, fail."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture(scope="session")
def needs_torch() -> None:
    """Tests load PyTorch when they run: every worker imports all test files."""
    if find_spec("torch") is None:
        lacking("PyTorch is not installed")


def publish(target: Path, make: Callable[[Path], object]) -> Path:
    """Make a file or directory beside its place and rename it there; other workers wait for it."""
    if not target.exists():
        with target.with_name(f".{target.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.exists():
                temporary = target.with_name(f".{target.name}")
                make(temporary)
                temporary.rename(target)
    return target


@pytest.fixture(scope="session")
def captures(shared: Path) -> Store:
    """A store that captures are ingested into as tests ask for them."""
    return Store(shared / "store")


@pytest.fixture(scope="session")
def ingested(shared: Path, captures: Store, expand: Callable[[str], Path]) -> Callable[[str], str]:
    """Return the report id of a capture in the shared store: one worker ingests it, once."""

    @cache
    def report(name: str) -> str:
        known = shared / f"{name.replace('/', '-')}.id"
        publish(known, lambda at: at.write_text(ingest(expand(name), captures).report_id))
        return known.read_text()

    return report


Opened = Callable[..., AbstractContextManager[Session]]


@pytest.fixture(scope="session")
def opened(captures: Store, ingested: Callable[[str], str]) -> Iterator[Opened]:
    """Return a session on captures for a `with`, to read: tests of a worker share its views."""

    @cache
    def session(*names: str, window: str = STEADY) -> Session:
        return sessions.enter_context(
            Session.open(captures, [ingested(name) for name in names], window=window)
        )

    with ExitStack() as sessions:
        yield lambda *names, **options: nullcontext(session(*names, **options))


@pytest.fixture(scope="session")
def replayed(shared: Path) -> Callable[[str], Path]:
    """Return a store of one run, the replay of a shipped recording: 'gemm'.  To be read only."""

    def replay(name: str) -> Path:
        workload = str(ROOT / "workloads" / f"{name}.yaml")
        words = ["run", workload, "--collector", "replay", "--no-report", "--store"]
        return publish(shared / f"replay-{name}", lambda at: succeed(*words, str(at)))

    return replay


@pytest.fixture
def read_before(replayed: Callable[[str], Path], store: Store) -> Callable[[str], None]:
    """Put the reports of a shipped recording into `store`: its replay need not read them again."""

    def put(name: str) -> None:
        shutil.copytree(replayed(name) / "reports", store.reports_dir, dirs_exist_ok=True)

    return put


@pytest.fixture(scope="session")
def pages(
    shared: Path, replayed: Callable[[str], Path], captures: Store, ingested: Callable[[str], str]
) -> Callable[..., Path]:
    """Return a directory with report.html, .md and .json of a recording or of captures."""

    def report(*names: str) -> Path:
        recording = (ROOT / "workloads" / f"{names[0]}.yaml").exists()
        store = replayed(names[0]) if recording else captures.root
        of = [] if recording else [ingested(name) for name in names]

        def make(at: Path) -> None:
            at.mkdir()
            files = [f"--{kind}={at}/report.{kind}" for kind in ("html", "md", "json")]
            succeed("report", *of, *files, "--store", str(store))

        return publish(shared / f"pages-{'-'.join(names).replace('/', '-')}", make)

    return report


@pytest.fixture
def stored(
    captures: Store, ingested: Callable[[str], str], store: Store
) -> Callable[..., list[str]]:
    """Put captures into `store`, which is that of `cli`, and return their report ids.

    What is there afterwards is what ingest writes.
    """

    def put(*names: str) -> list[str]:
        ids = [ingested(name) for name in names]
        for report in ids:
            shutil.copytree(captures.reports_dir / report, store.reports_dir / report)
        return ids

    return put


def succeed(*words: str) -> None:
    """Run a command whose output is no part of what the test prints that is the first to ask."""
    with redirect_stdout(StringIO()):
        assert run_cli(list(words)) == 0


@pytest.fixture
def edited(expand: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """Return a copy of an nsys capture after some SQL."""

    def edit(name: str, *statements: str, folder: str = "nsys") -> Path:
        path = tmp_path / f"{name}.sqlite"
        shutil.copyfile(expand(f"{folder}/{name}.sqlite"), path)
        with sqlite3.connect(path) as con:
            for statement in statements:
                con.execute(statement)
        con.close()
        return path

    return edit


def stand_ins(folder: Path, expand: Callable[[str], Path]) -> None:
    """Write programs called nsys and ncu into a new directory: see standin.py."""
    folder.mkdir()
    packed = ROOT / "workloads/recordings/vector_add-h200/00-65536-1024.ncu-rep.xz"
    (folder / "capture.ncu-rep").write_bytes(lzma.decompress(packed.read_bytes()))
    (folder / "timeline.sqlite").symlink_to(expand("nsys/memcpy.sqlite"))
    # They need no packages; to look for those takes as long as all else that they do.
    script = f"#!{sys.executable} -IS\n" + (Path(__file__).parent / "standin.py").read_text()
    for name in ("nsys", "ncu"):
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)


@pytest.fixture
def profilers(
    tmp_path: Path, expand: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A directory with programs called nsys and ncu, first on PATH."""
    folder = tmp_path / "bin"
    stand_ins(folder, expand)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    tools.find_tool.cache_clear()
    yield folder
    tools.find_tool.cache_clear()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store of this test's own."""
    return Store(tmp_path / "store")


Row = dict[str, Any]


class Tiny:
    """A database of a few rows, to see what a view makes of them.

    `metrics` maps a launch id to its values by ncu's name; a text is stored as text.
    """

    def __init__(self, launches: Sequence[Row] = (), metrics: dict[int, Row] | None = None) -> None:
        self._con = _IDLE.pop() if _IDLE else _with_macros()
        self._con.execute("BEGIN")
        self._waiting: dict[tuple[str, tuple[str, ...]], list[Row]] = {}
        self._operations = 0
        self.add("reports", {"kind": "ncu", "gpu": "NVIDIA H200", "sm_count": 132})
        ids = sorted({launch["launch_id"] for launch in launches} | set(metrics or {}))
        known = {launch["launch_id"]: launch for launch in launches}
        for launch_id in ids:
            defaults = {"launch_id": launch_id, "kernel_name": f"k{launch_id}", "cc": "9.0"}
            self.add("ncu_launches", {**defaults, **known.get(launch_id, {})})
        for launch_id, values in (metrics or {}).items():
            for metric, value in values.items():
                column = "text" if isinstance(value, str) else "value"
                row = {"launch_id": launch_id, "metric": metric, column: value}
                self.add("ncu_metrics", row)

    @property
    def con(self) -> duckdb.DuckDBPyConnection:
        """The database with all rows: those with the same columns are inserted at a time."""
        while self._waiting:
            (table, names), rows = self._waiting.popitem()
            columns = ", ".join(f"unnest(?::{_types()[table, name]}[])" for name in names)
            self._con.execute(
                f"INSERT INTO {table} ({', '.join(names)}) SELECT {columns}",
                [[row[name] for row in rows] for name in names],
            )
        return self._con

    @cached_property
    def _session(self) -> Session:
        session = Session(self._con)
        session._made |= session._macros.keys()
        return session

    @property
    def session(self) -> Session:
        """What makes views here."""
        assert self.con
        return self._session

    def __del__(self) -> None:
        """Undo what was done, and leave the database to the next one."""
        self._con.execute("ROLLBACK")
        _IDLE.append(self._con)

    def add(self, table: str, *rows: Row) -> None:
        """Add rows of the report r; operations are numbered as they come."""
        for row in rows:
            row = {"report_id": "r", **row} if table != "run_tasks" else row
            if table == "launches":
                row = {"op_id": self._operations, **row}
                self._operations += 1
            self._waiting.setdefault((table, tuple(row)), []).append(row)

    def add_report(self, report: str, rows: dict[str, list[Row]]) -> None:
        """Insert another report with rows of some tables."""
        self.add("reports", {"report_id": report, "kind": "nsys"})
        for table, of_table in rows.items():
            self.add(table, *({**row, "report_id": report} for row in of_table))

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Make the views that the query names and run it."""
        return self.session.execute(sql).fetchall()


#: Databases of no rows; what a test does in one is a transaction that is not kept.
_IDLE: list[duckdb.DuckDBPyConnection] = []


@cache
def _types() -> dict[tuple[str, str], str]:
    """Return DuckDB's type by table and column."""
    stored = {(t.name, c.name): SQL_TYPES[c.type] for t in tables().values() for c in t.columns}
    return stored | {(name, c): kind for name, spec in CATALOGUE.items() for c, kind, _ in spec}


def empty_database() -> duckdb.DuckDBPyConnection:
    """Return a database with the tables of a store, without rows."""
    con = duckdb.connect()
    for name, table in tables().items():
        create_table(con, name, [(c.name, SQL_TYPES[c.type], "") for c in table.columns])
    for name, spec in CATALOGUE.items():
        create_table(con, name, spec)
    return con


def _with_macros() -> duckdb.DuckDBPyConnection:
    """Return such a database with the macros, which are the same in nearly all tests."""
    session = Session(empty_database())
    session.use(*session._macros)
    return session.con


class Cli:
    """Runs commands in this process, in a directory of its own.

    A run writes its report only where `report` says so: that costs more than all else here.
    """

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = ""
        self.err = ""

    def __call__(self, *args: str | Path, report: bool = False) -> int:
        words = [str(arg) for arg in args]
        if words[0] == "run" and not report:
            words.insert(1, "--no-report")
        code = run_cli(words)
        self.out, self.err = self._capsys.readouterr()
        return code


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line, with its store in the test's directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERFPIPE_STORE", str(tmp_path / "store"))
    return Cli(capsys)


def claims(subject: str) -> frozenset[str]:
    """Return the claims that findings about a subject, timeline or kernel, can make."""
    own = finding_files() if subject == "timeline" else {}
    return frozenset((*_table()[subject], *own))


@pytest.fixture
def least_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[float], None]]:
    """Sets the shortest time whose energy is known; a busy machine may not read for long."""

    def set_least(seconds: float) -> None:
        own = tmp_path / "thresholds.toml"
        own.write_text(f"[energy]\nleast_counter_s = {seconds}\ngap_s = 1000\n")
        monkeypatch.setenv("PERFPIPE_THRESHOLDS", str(own))
        thresholds.cache_clear()

    yield set_least
    thresholds.cache_clear()
