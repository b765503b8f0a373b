"""Many commands on one store at once: readers, writers, and who removes what was replaced."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from conftest import Cli

from perfpipe import compaction, exchanging
from perfpipe.compaction import compact
from perfpipe.errors import StoreError
from perfpipe.ingest.reading import ingest
from perfpipe.inuse import reading
from perfpipe.manifest import Manifest
from perfpipe.owner import own_name
from perfpipe.pipelines.rereading import rereading
from perfpipe.prune import collect_garbage, remove_replaced
from perfpipe.snapshot import Snapshot
from perfpipe.store import Store
from perfpipe.verify import verify

Expand = Callable[[str], Path]

CAPTURE, OTHER = "nsys/memcpy.sqlite", "nsys/h2d.sqlite"


def _run_callers(seconds: float, seed: int) -> None:
    words = [sys.executable, str(Path(__file__).with_name("callers.py"))]
    words += ["--seconds", str(seconds), "--seed", str(seed)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout[-5000:]


def test_sixteen_callers_at_once() -> None:
    _run_callers(4, 1)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_sixteen_callers_for_ten_minutes() -> None:
    _run_callers(600, 1)


@pytest.fixture
def report(store: Store, stored: Callable[..., list[str]]) -> str:
    one, _ = stored(CAPTURE, OTHER)
    return one


def _faults(store: Store) -> list[str]:
    return [f"{name}: {fault}" for name, fault in verify(store) if fault]


def test_a_report_that_moves_while_it_is_listed_is_there(
    store: Store, report: str, expand: Expand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a segment to a directory of its own, between the looks at both."""
    compact(store, 0)
    look = Store.reports_in_segments

    def moving(own: Store) -> Any:
        monkeypatch.setattr(Store, "reports_in_segments", look)
        ingest(expand(CAPTURE), store, force=True)
        return look(own)

    monkeypatch.setattr(Store, "reports_in_segments", moving)
    assert Snapshot.of(store, [report]).holds(report)


def test_a_report_that_is_ingested_again_is_always_there(
    store: Store, report: str, expand: Expand, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, seen = Path.rename, []

    def looking(path: Path, target: Path) -> Path:
        done = rename(path, target)
        seen.append((store.reports_dir / report).is_dir())
        return done

    monkeypatch.setattr(Path, "rename", looking)
    before = store.written_at(report)
    ingest(expand(CAPTURE), store, force=True)
    assert store.written_at(report) != before
    assert all(seen)


def test_a_report_is_replaced_where_directories_cannot_be_exchanged(
    store: Store, report: str, expand: Expand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchanging, "_renameat2", lambda: None)
    before = store.written_at(report)
    ingest(expand(CAPTURE), store, force=True)
    assert store.written_at(report) != before
    assert store.leftovers() == []
    assert _faults(store) == []


def test_what_is_read_is_not_removed(store: Store, report: str) -> None:
    compact(store, 3600)
    with reading(store.root):
        assert remove_replaced(store, 0) == []
        assert collect_garbage(store, 0) == []
    assert len(remove_replaced(store, 0)) == 2


def test_a_query_reads_its_store(
    store: Store, report: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    from perfpipe.analysis.session import Session

    run = Session.run_user_sql
    kept = store.root / "kept"

    def removing(session: Session, query: str) -> Any:
        compact(store, 0)
        if store.own_report_ids():
            kept.touch()
        return run(session, query)

    monkeypatch.setattr(Session, "run_user_sql", removing)
    assert cli("query", "SELECT count(*) FROM nsys_kernels", "-r", report) == 0, cli.err
    assert kept.exists()


def test_garbage_in_use_is_none(store: Store, report: str, cli: Cli) -> None:
    directory = store.reports_dir / own_name(".tmp-1a2b")
    directory.mkdir()
    os.utime(directory, (1, 1))
    assert collect_garbage(store, 0) == []
    assert directory.is_dir()
    assert cli("store", "verify") == 0
    assert cli.out == "2 intact, 0 damaged, 0 leftovers\n"


def test_what_was_ingested_since_is_not_taken_for_replaced(
    store: Store, report: str, expand: Expand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a second; its writer publishes it before it hides the report in segments."""
    monkeypatch.setattr("perfpipe.provenance.utc_now", lambda: "2026-01-01T00:00:00Z")
    ingest(expand(CAPTURE), store, force=True)
    compact(store, 3600)
    ingest(expand(CAPTURE), store, force=True)
    shutil.rmtree(store.removed_dir)
    removed = remove_replaced(store, 0)
    assert [path.name for path in removed] != []
    assert report not in [path.name for path in removed]
    assert report in store.own_report_ids()


def test_a_compaction_begins_again_where_reports_change(
    store: Store, report: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = compaction._write

    def vanishing(*args: Any) -> None:
        monkeypatch.setattr(compaction, "_write", write)
        store.remove(report)
        write(*args)

    monkeypatch.setattr(compaction, "_write", vanishing)
    assert compact(store, 0).added == 1
    assert report not in store.report_ids()
    assert _faults(store) == []


def test_a_compaction_says_that_the_store_is_busy(
    store: Store, report: str, expand: Expand, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changing(*_: Any) -> None:
        ingest(expand(CAPTURE), store, force=True)
        raise StoreError("a file is gone")

    monkeypatch.setattr(compaction, "_write", changing)
    assert cli("store", "compact") == 2
    assert "the store is busy: other commands change what this one reads; try again" in cli.err
    assert _faults(store) == []


@pytest.mark.parametrize("error", [duckdb.IOException("gone"), FileNotFoundError("gone")])
@pytest.mark.parametrize("others", [True, False])
def test_a_reader_begins_again_until_the_store_is_busy(
    store: Store, report: str, error: Exception, others: bool
) -> None:
    """Other commands change the store if other files vanish each time."""
    begun = []

    def work() -> None:
        begun.append(1)
        raise StoreError(f"cannot read file {len(begun) if others else 7}") from error

    said = "the store is busy" if others else "cannot read file 7"
    with pytest.raises(StoreError, match=said):
        rereading(store, lambda: [report], work)
    assert len(begun) == 5


@pytest.mark.parametrize("change", ["gone", "again", "compacted"])
def test_verify_tells_damage_from_change(
    store: Store, report: str, change: str, expand: Expand, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Manifest.read

    def changing(path: Path) -> Manifest:
        manifest = read(path)
        if manifest.report_id == report:
            monkeypatch.setattr(Manifest, "read", read)
            if change == "again":
                ingest(expand(CAPTURE), store, force=True)
                # As if another version of perfpipe had written it.
                raise StoreError("a file has another size")
            if change == "compacted":
                compact(store, 0)
            shutil.rmtree(store.reports_dir / report, ignore_errors=True)
        return manifest

    monkeypatch.setattr(Manifest, "read", changing)
    assert _faults(store) == []


def test_verify_finds_damage_that_stays(store: Store, report: str) -> None:
    path = store.table_path(report, "launches")
    path.write_bytes(bytes(path.stat().st_size))
    assert _faults(store) == [f"{report}: launches: size or checksum differs from the manifest"]
