"""Files that somebody still writes, and what lies beside the target of a link."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from conftest import Cli

from perfpipe.errors import InputError
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.formats import Format
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store

Expand = Callable[[str], Path]

#: Copies every kernel once more.
MORE = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL"


@pytest.fixture
def export(expand: Expand, tmp_path: Path) -> Path:
    """A capture of the test's own, in a directory of its own."""
    path = tmp_path / "real" / "capture.sqlite"
    path.parent.mkdir()
    shutil.copyfile(expand("nsys/eager_small.sqlite"), path)
    return path


@pytest.fixture
def link(export: Path, tmp_path: Path) -> Path:
    """A link to the capture, in another directory and under another name."""
    path = tmp_path / "latest.sqlite"
    path.symlink_to(export)
    return path


def _with_rows_in_its_wal(export: Path) -> Iterator[None]:
    with closing(sqlite3.connect(export)) as con:
        con.execute("PRAGMA journal_mode=wal")
        con.execute("PRAGMA wal_autocheckpoint=0")
        con.execute(MORE)
        con.commit()
        yield


def _with_a_hot_journal(export: Path) -> Iterator[None]:
    with closing(sqlite3.connect(export)) as con:
        con.execute("PRAGMA cache_size=1")
        con.execute(MORE)
        yield


@pytest.mark.parametrize("state", [_with_rows_in_its_wal, _with_a_hot_journal])
@pytest.mark.parametrize("linked", [False, True])
def test_a_capture_is_not_read_without_its_journal(
    state: Callable[[Path], Iterator[None]], linked: bool, export: Path, link: Path, cli: Cli
) -> None:
    with contextmanager(state)(export):
        path = link if linked else export
        assert cli("ingest", path) == 2
        assert f"{path}: still being written (capture.sqlite-" in cli.err
    assert cli("ingest", path) == 0, "the connection is closed: what it committed is in the file"


@pytest.mark.parametrize("mode", ["persist", "truncate"])
def test_a_journal_that_is_kept_after_a_commit_is_no_obstacle(
    mode: str, export: Path, link: Path, cli: Cli
) -> None:
    with closing(sqlite3.connect(export)) as con:
        con.execute(f"PRAGMA journal_mode={mode}")
        con.execute(MORE)
        con.commit()
    assert Path(f"{export}-journal").exists()
    assert cli("ingest", link) == 0, cli.err
    assert cli("query", "SELECT count(*) FROM nsys_kernels", "--format", "csv") == 0
    assert cli.out.splitlines()[1] == str(2 * 7080)


WRITE = """
import sqlite3, sys
con = sqlite3.connect(sys.argv[1], isolation_level=None)
con.execute("PRAGMA journal_mode=off")
while True:
    con.execute("INSERT INTO StringIds SELECT max(id) + 1, 'x' FROM StringIds")
    print(flush=True)
"""


def test_a_capture_that_another_process_writes_is_refused(
    export: Path, link: Path, cli: Cli, tmp_path: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITE, str(export)], stdout=subprocess.PIPE
    ) as writer:
        try:
            assert writer.stdout is not None
            writer.stdout.readline()
            # Its output goes nowhere from here on: it writes as fast as it can.
            drain = subprocess.Popen(["cat"], stdin=writer.stdout, stdout=subprocess.DEVNULL)
            assert cli("ingest", link) == 2
        finally:
            writer.kill()
            writer.wait()
            drain.wait()
    assert f"{link}: still being written" in cli.err
    assert not list((tmp_path / "store" / "reports").glob("*"))
    assert cli("ingest", link) == 0, cli.err


def _grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\n")


def _touch(path: Path) -> None:
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


def _count(path: Path) -> None:
    """Change SQLite's counter and nothing else that a file system tells."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(24)
        counter = int.from_bytes(file.read(4), "big")
        file.seek(24)
        file.write((counter + 1).to_bytes(4, "big"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _replace(path: Path) -> None:
    before = path.stat()
    copy = path.with_suffix(".new")
    shutil.copyfile(path, copy)
    copy.rename(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("nsys/memcpy.sqlite", _count),
        ("nsys/memcpy.sqlite", _touch),
        ("ncu/ops.raw.csv", _grow),
        ("ncu/block.ncu-rep", _replace),
        ("nsys/gpumetrics_parquetdir", _touch),
        ("torch/train_step.kineto.json.gz", _grow),
    ],
)
def test_a_file_that_changes_while_it_is_read_is_refused(
    name: str,
    change: Callable[[Path], None],
    expand: Expand,
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packed = Path(__file__).parent / "data" / name
    source = packed if packed.exists() else expand(name)
    path = tmp_path / source.name
    (shutil.copytree if source.is_dir() else shutil.copyfile)(source, path)
    changed = path / "StringIds.parquet" if path.is_dir() else path
    read = Format.read

    def read_and_change(form: Format, builder: ReportBuilder) -> None:
        read(form, builder)
        change(changed)

    monkeypatch.setattr(Format, "read", read_and_change)
    said = re.escape(f"{changed}: still being written (it changed while it was read)")
    with pytest.raises(InputError, match=said):
        ingest(path, store)
    assert store.report_ids() == []
    assert store.leftovers() == []
