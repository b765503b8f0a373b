"""Compaction: the same answers, readers and writers at work, kills at any moment."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from conftest import Cli

from perfpipe import compaction, segments
from perfpipe.analysis.session import Session
from perfpipe.analysis.views import views
from perfpipe.compaction import compact
from perfpipe.errors import StoreError
from perfpipe.ingest.reading import ingest
from perfpipe.model import tables
from perfpipe.prune import collect_garbage
from perfpipe.store import Store
from perfpipe.verify import verify

Expand = Callable[[str], Path]

CAPTURES = ("nsys/memcpy.sqlite", "nsys/graph_whole.sqlite", "ncu/visible.raw.csv")
#: Every row of what views read of these reports.
ROWS = (
    "FROM reports",
    "FROM collection_gaps ORDER BY ALL",
    "SELECT * FROM ncu_launches ORDER BY ALL",
    "SELECT * FROM ncu_metrics ORDER BY ALL",
    "SELECT * FROM nsys_kernels ORDER BY ALL",
    "SELECT * FROM launches ORDER BY ALL",
)
#: With a view of timelines and one of counters.  All views are asked once: planning them takes
#: longer than all else here.
QUERIES = ("FROM cuda_gpu_kern_sum", "FROM kernel_sol", *ROWS)


@pytest.fixture
def filled(store: Store, stored: Callable[..., list[str]]) -> Store:
    """A store with a few reports."""
    stored(*CAPTURES)
    return store


def _answers(store: Store, reports: list[str] | None = None) -> list[Any]:
    with Session.open(store, reports) as session:
        return [session.execute(query).fetchall() for query in QUERIES]


def _rows(store: Store) -> list[Any]:
    with Session.open(store) as session:
        return [session.execute(query).fetchall() for query in ROWS]


def _faults(store: Store) -> list[tuple[str, str]]:
    return [(name, fault) for name, fault in verify(store) if fault]


def _clone(store: Store, report: str, number: int) -> str:
    """Copy a report under another id; rows keep the old one in no file."""
    clone = f"{number:016x}"
    source, target = store.reports_dir / report, store.reports_dir / clone
    target.mkdir()
    record = json.loads((source / "manifest.json").read_text())
    for path in source.glob("*.parquet"):
        rows = pq.read_table(path)
        at = rows.schema.get_field_index("report_id")
        changed = rows.set_column(at, "report_id", [[clone] * len(rows)])
        pq.write_table(changed.replace_schema_metadata(rows.schema.metadata), target / path.name)
        record["tables"][path.stem]["bytes"] = (target / path.name).stat().st_size
    record["report_id"] = clone
    (target / "manifest.json").write_text(json.dumps(record))
    return clone


@pytest.mark.parametrize("at_once", [compaction._AT_ONCE, 1e-4])
def test_answers_stay_the_same(
    at_once: float, filled: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if each report is sorted by itself."""
    monkeypatch.setattr(compaction, "_AT_ONCE", at_once)
    before, ids = _answers(filled), filled.report_ids()
    manifests = filled.manifests()
    done = compact(filled, grace_s=0)
    assert (done.added, len(done.removed)) == (3, 3)
    assert filled.own_report_ids() == []
    assert filled.report_ids() == ids
    assert filled.manifests() == manifests
    assert [filled.manifest(report) for report in ids] == manifests
    assert _answers(filled) == before
    assert _faults(filled) == []
    for report in ids:
        own = [[row for row in rows if report in row] for rows in before]
        assert _answers(filled, [report]) == own


def test_every_view_answers_from_segments(filled: Store) -> None:
    names = [view.name for view in views().values() if view.public]
    with Session.open(filled, use=names) as session:
        before = {name: session.execute(f"FROM {name}").fetchall() for name in names}
    compact(filled, grace_s=0)
    with Session.open(filled, use=names) as session:
        for name in names:
            assert session.execute(f"FROM {name}").fetchall() == before[name], name


def test_compactions_at_the_same_time_double_no_rows(
    filled: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, write = _answers(filled), compaction._write

    def beside(*args: Any) -> None:
        monkeypatch.setattr(compaction, "_write", write)
        compact(filled, grace_s=3600)
        write(*args)

    monkeypatch.setattr(compaction, "_write", beside)
    compact(filled, grace_s=3600)
    assert len(filled.segments()) == 2
    assert _answers(filled) == before
    assert _faults(filled) == []
    compact(filled, grace_s=0)
    assert _answers(filled) == before
    filled.remove(gone := filled.report_ids()[0])
    assert not any(gone in row for rows in _answers(filled) for row in rows)


def test_a_copied_segment_is_a_store(filled: Store, cli: Cli, tmp_path: Path) -> None:
    before, done = _answers(filled), compact(filled, grace_s=0)
    assert done.segment is not None
    for name in (done.segment.segment_id, "f" * 12):
        shutil.copytree(done.segment.path, tmp_path / "copy" / "segments" / name)
    assert _answers(Store(tmp_path / "copy")) == before
    assert cli("query", "SELECT count(*) FROM reports", "--store", tmp_path / "copy") == 0, cli.err


def test_segments_of_other_stores_are_merged(filled: Store, cli: Cli, tmp_path: Path) -> None:
    before = _answers(filled)
    shared = Store(tmp_path / "shared")
    for number, report in enumerate(filled.report_ids()):
        node = Store(tmp_path / f"node{number}")
        shutil.copytree(filled.reports_dir / report, node.reports_dir / report)
        compact(node, grace_s=0)
        (segment,) = node.segments()
        shutil.copytree(segment.path, shared.segments_dir / segment.segment_id)
    assert len(shared.segments()) == 3
    assert cli("store", "compact", "--grace", "0", "--store", shared.root) == 0, cli.err
    assert cli.out.startswith("3 segments compacted into segment ")
    assert len(shared.segments()) == 1
    assert _answers(shared) == before
    assert _faults(shared) == []


@pytest.mark.parametrize(
    ("added", "sizes", "merged"),
    [
        (0, [], []),
        (0, [5], []),
        (0, [1, 3], []),
        (0, [1, 2], [1, 2]),
        (0, [1, 4, 5, 100], [4, 5]),
        (0, [0, 4, 5], [4, 5]),
        (0, [0, 0, 9], [0, 0]),
        (1, [0, 2, 7], [0, 2]),
        (1, [3], []),
        (50, [1, 4, 5, 100], [1, 4, 5, 100]),
    ],
)
def test_which_segments_are_merged(added: int, sizes: list[int], merged: list[int]) -> None:
    held = {
        segments.Segment(Path(str(at)), frozenset(), frozenset(), ()): frozenset(
            f"{at}-{number}" for number in range(size)
        )
        for at, size in enumerate(sizes)
    }
    assert [len(held[one]) for one in compaction._to_merge(held, added)] == merged


def test_readers_keep_what_they_opened(filled: Store) -> None:
    before = _answers(filled)
    with Session.open(filled) as session:
        session.use("launches")
        done = compact(filled, grace_s=3600)
        assert done.removed == []
        assert session.execute(QUERIES[-1]).fetchall() == before[-1]
    # Both are there: the segment is read, and each row counts once.
    assert len(filled.own_report_ids()) == 3
    assert _answers(filled) == before
    assert compact(filled, grace_s=3600).segment is None
    assert len(collect_garbage(filled, 0)) == 3
    assert _answers(filled) == before


def test_new_reports_stand_beside_segments_until_they_are_merged(
    store: Store, expand: Expand
) -> None:
    for count, name in enumerate(CAPTURES, 1):
        ingest(expand(name), store)
        assert len(store.report_ids()) == count
        answers = _answers(store)
        compact(store, grace_s=0)
        assert _answers(store) == answers
    assert len(store.segments()) == 1
    assert len(store.segments()[0].reports) == 3
    assert [path.name for path in store.segments_dir.iterdir()] == [store.segments()[0].path.name]


def test_large_segments_are_left_alone(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_GROWTH", 1)
    report = filled.report_ids()[0]
    compact(filled, grace_s=0)
    (first,) = filled.segments()
    clone = _clone_from_segment(filled, report)
    compact(filled, grace_s=0)
    assert {len(segment.reports) for segment in filled.segments()} == {3, 1}
    assert first in filled.segments()
    assert clone in filled.report_ids()
    assert _faults(filled) == []


def _clone_from_segment(store: Store, report: str) -> str:
    """Lay a report of a segment into a directory of its own, under another id."""
    manifest = store.manifest(report)
    directory = store.reports_dir / "rows"
    directory.mkdir(parents=True)
    with Session.open(store, [report]) as session:
        for name in manifest.tables:
            session.use(name)
            target = directory / f"{name}.parquet"
            session.con.execute(
                f"COPY {name} TO '{target}' (FORMAT parquet, KV_METADATA "
                "{'perfpipe.schema_version': '1'})"
            )
    manifest.write(directory / "manifest.json")
    clone = _clone(store, "rows", 7)
    shutil.rmtree(directory)
    _restate(store, clone)
    return clone


def _restate(store: Store, report: str) -> None:
    from dataclasses import replace

    from perfpipe.manifest import Manifest, StoredTable

    directory = store.reports_dir / report
    manifest = Manifest.read(directory / "manifest.json")
    stated = {
        name: StoredTable.of(directory / f"{name}.parquet", table.rows, table.schema)
        for name, table in manifest.tables.items()
    }
    replace(manifest, tables=stated).write(directory / "manifest.json")


def test_large_reports_stay_where_they_are(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {m.report_id: sum(t.bytes for t in m.tables.values()) for m in filled.manifests()}
    largest = max(sizes, key=lambda report: sizes[report])
    monkeypatch.setattr(compaction, "LARGEST", sizes[largest] - 1)
    before = _answers(filled)
    assert compact(filled, grace_s=0).added == 2
    assert filled.own_report_ids() == [largest]
    assert _answers(filled) == before


def test_single_reports_are_taken_out(filled: Store, expand: Expand) -> None:
    before = _answers(filled)
    compact(filled, grace_s=0)
    gone, *left = filled.report_ids()
    filled.remove(gone)
    assert filled.report_ids() == left
    with pytest.raises(StoreError, match="no such report"):
        filled.remove(gone)
    kept = [[row for row in rows if gone not in row] for rows in before]
    assert _answers(filled) == kept
    assert _faults(filled) == []
    # The same bytes again: a directory of its own, and then part of the next segment.
    again = [ingest(expand(name), filled) for name in CAPTURES]
    assert [outcome.new for outcome in again].count(True) == 1
    assert _answers(filled) == before
    compact(filled, grace_s=0)
    assert (_answers(filled), _faults(filled)) == (before, [])
    assert not list(filled.removed_dir.iterdir())


def test_a_report_ingested_anew_counts_instead_of_the_segments(
    filled: Store, expand: Expand
) -> None:
    compact(filled, grace_s=0)
    outcome = ingest(expand(CAPTURES[0]), filled, force=True)
    assert filled.own_report_ids() == [outcome.report_id]
    assert len(_answers(filled)[2]) == 3
    assert collect_garbage(filled, 0) == [], "it is not in the segment any more"
    assert filled.own_report_ids() == [outcome.report_id]


def test_what_is_removed_while_a_segment_is_written_is_not_in_it(
    filled: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = filled.report_ids()[0]
    write = compaction._write

    def removing(*args: Any) -> None:
        write(*args)
        filled.remove(gone)

    monkeypatch.setattr(compaction, "_write", removing)
    compact(filled, grace_s=0)
    assert gone not in filled.report_ids()
    assert len(filled.report_ids()) == 2
    assert not any(gone in row for rows in _answers(filled) for row in rows)


def test_columns_that_an_older_version_lacks_are_null(filled: Store) -> None:
    """Files without a signature, one of them without a column that there is today."""
    report = next(m for m in filled.manifests() if "nsys_kernels" in m.tables).report_id
    clone = _clone(filled, report, 1)
    path = filled.table_path(clone, "nsys_kernels")
    rows = pq.read_table(path)
    pq.write_table(rows.drop_columns(["green_context"]), path)
    manifest = filled.reports_dir / clone / "manifest.json"
    record = json.loads(manifest.read_text())
    for table in record["tables"].values():
        del table["schema"]
    record["tables"]["nsys_kernels"]["bytes"] = path.stat().st_size
    manifest.write_text(json.dumps(record))
    sql = "SELECT * EXCLUDE report_id FROM nsys_kernels WHERE report_id = '{}' ORDER BY ALL"

    def pair() -> list[Any]:
        with Session.open(filled) as session:
            return [session.execute(sql.format(name)).fetchall() for name in (report, clone)]

    before = pair()
    assert len(before[0]) == len(before[1]) > 0
    assert {row[-1] for row in before[1]} == {None}
    compact(filled, grace_s=0)
    assert pair() == before


@pytest.mark.parametrize("same_size", [False, True])
def test_a_damaged_report_stays_where_it_is(filled: Store, same_size: bool) -> None:
    report = next(m for m in filled.manifests() if "launches" in m.tables).report_id
    path = filled.table_path(report, "launches")
    path.write_bytes(bytes(path.stat().st_size) if same_size else b"PAR1")
    whole = [one for one in filled.report_ids() if one != report]
    assert compact(filled, grace_s=0).added == len(whole)
    assert filled.own_report_ids() == [report]
    (segment,) = filled.segments()
    assert sorted(segment.reports) == whole
    assert [name for name, _ in _faults(filled)] == [report]
    assert filled.leftovers() == []


@pytest.mark.parametrize("damage", ["gone", "cut", "index", "version"])
def test_damaged_segments_are_named(
    filled: Store, damage: str, expand: Expand, caplog: pytest.LogCaptureFixture
) -> None:
    compact(filled, grace_s=0)
    (segment,) = filled.segments()
    table = segment.path / "launches.parquet"
    index = segment.path / "segment.json"
    if damage == "gone":
        table.unlink()
    elif damage == "cut":
        table.write_bytes(table.read_bytes()[:-10])
    elif damage == "index":
        index.write_text("{}")
    else:
        index.write_text(json.dumps({**json.loads(index.read_text()), "schema_version": 9}))
    segments._read.cache_clear()
    assert [name for name, _ in _faults(filled)] == [segment.segment_id]
    assert filled.report_ids() == []
    assert f"segment {segment.segment_id} is skipped: " in caplog.text
    assert ingest(expand(CAPTURES[0]), filled).new, "what cannot be read is read anew"
    assert len(filled.report_ids()) == 1


def test_a_kill_at_any_moment_loses_nothing(filled: Store, tmp_path: Path) -> None:
    before = _rows(filled)
    pristine = tmp_path / "pristine"
    shutil.copytree(filled.root, pristine)
    stages = set()
    for attempt in range(5):
        shutil.rmtree(filled.root)
        shutil.copytree(pristine, filled.root)
        process = _compacting(filled, "compact(store, grace_s=0)")
        # From before the first file to after the last: what is on disk says how far it came.
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            files = len(list(filled.segments_dir.glob(".tmp-*/*.parquet")))
            if files > 4 * attempt or filled.segments():
                break
            time.sleep(0.0005)
        process.kill()
        process.wait()
        stages.add((len(filled.leftovers()) > 0, len(filled.segments())))
        assert _rows(filled) == before
        assert _faults(filled) == []
        collect_garbage(filled, 0)
        assert filled.leftovers() == []
        assert _rows(filled) == before
    assert any(leftover for leftover, _ in stages), "no kill hit a compaction at work"


def _compacting(store: Store, statement: str) -> subprocess.Popen[bytes]:
    """Start a process that compacts: it imports no test."""
    program = (
        "import sys; from perfpipe.compaction import compact; from perfpipe.store import Store; "
        f"store = Store(sys.argv[1]); {statement}"
    )
    return subprocess.Popen([sys.executable, "-c", program, str(store.root)])


def test_readers_go_on_while_compaction_works(filled: Store) -> None:
    """Each answer is whole while another process compacts and reports are ingested anew."""
    before = _answers(filled)
    process = _compacting(filled, "[compact(store, grace_s=3600) for _ in range(4)]")
    rounds = 0
    while process.poll() is None or rounds == 0:
        assert _answers(filled) == before
        rounds += 1
    assert process.returncode == 0
    assert _answers(filled) == before


def test_the_command(filled: Store, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFPIPE_STORE", str(filled.root))
    assert cli("store", "compact", "--grace", "0") == 0
    assert cli.out.startswith("3 reports compacted into segment ")
    assert "3 replaced directories removed" in cli.err
    assert cli("store", "compact") == 0
    assert cli.out == "nothing to compact\n"
    assert cli("store", "compact", "--json") == 0
    assert json.loads(cli.out) == {
        "schema_version": 1, "added": 0, "merged": 0, "segment": None, "removed": 0,
    }  # fmt: skip
    assert cli("store", "ls") == 0
    assert len(cli.out.splitlines()) == 3
    assert cli("store", "verify") == 0
    assert cli.out == "1 intact, 0 damaged, 0 leftovers\n"
    report = filled.report_ids()[0]
    assert cli("query", f"SELECT count(*) FROM reports WHERE report_id = '{report}'",
               "--format", "csv") == 0  # fmt: skip
    assert cli.out.splitlines() == ["count_star()", "1"]
    assert cli("query", "SELECT report_id FROM reports", "--report", report[:6],
               "--format", "csv") == 0  # fmt: skip
    assert cli.out.splitlines() == ["report_id", report]
    assert cli("store", "rm", report) == 0
    assert cli("report", report) == 2


def test_tables_of_all_kinds_are_in_a_segment(filled: Store) -> None:
    compact(filled, grace_s=0)
    (segment,) = filled.segments()
    stored = {file.table for file in segment.files} - {"catalogue", "collection_gaps"}
    assert stored <= tables().keys()
    assert {"launches", "ncu_metrics", "nsys_kernels"} <= stored
