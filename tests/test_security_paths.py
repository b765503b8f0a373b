"""Stores, runs, batches and recordings of others lead nowhere outside of their directories."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Cli

from perfpipe.analysis.session import Session
from perfpipe.batchrecord import Batch, BatchRun, BatchTask
from perfpipe.compaction import compact
from perfpipe.errors import InputError, StoreError
from perfpipe.paths import inside, is_plain
from perfpipe.pipelines.batch.disk import BatchDirectory
from perfpipe.pipelines.recording import load_recording
from perfpipe.runrecord import RunRecord
from perfpipe.store import Store
from perfpipe.verify import verify

OUTSIDE = ("../x", "../../x", "/etc/passwd", "a/b", "..", ".", ".x", "", "a\0b", "a\nb", "a\\b",
           "~root", "x" * 300)  # fmt: skip


def _edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def _beside(root: Path) -> Iterator[str]:
    """Yield what lies beside a store."""
    for path in sorted(root.parent.rglob("*")):
        if path != root and root not in path.parents:
            yield str(path.relative_to(root.parent))


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_is_no_plain_name(name: str, tmp_path: Path) -> None:
    assert not is_plain(name)
    with pytest.raises(StoreError):
        RunRecord(name, "w", "all", "t").write(tmp_path / "run.json")


@pytest.mark.parametrize("name", ["gemm-20261122t144338z-1a2b", "ä", "x y", "a.b", "x" * 200])
def test_what_is_one(name: str) -> None:
    assert is_plain(name)


def test_links_lead_out_too(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link").symlink_to("/etc")
    assert inside(tmp_path / "in", "a/b") == tmp_path / "in" / "a" / "b"
    for name in ("../x", "/etc/passwd", "link/passwd", "a/../../x"):
        with pytest.raises(StoreError, match="is outside of"):
            inside(tmp_path / "in", name)


@pytest.mark.parametrize("run_id", ["../../x", "/tmp/x", "other"])
def test_a_run_of_another_name_is_left_out(
    run_id: str, store: Store, cli: Cli, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("one", "two"):
        store.write_run(RunRecord(name, "w", "all", "t", status="done"))
    _edit(store.runs_dir / "two" / "run.json", run_id=run_id)
    before = list(_beside(store.root))
    assert cli("query", "SELECT run_id FROM runs", "--format", "csv") == 0
    assert cli.out == "run_id\none\n"
    assert "run two is skipped" in caplog.text
    assert cli("report", "--index", tmp_path / "store" / "pages", "two") == 2
    assert list(_beside(store.root)) == before
    assert [fault for name, fault in verify(store) if name == "two"] != [None]


def test_the_files_of_a_run_stay_in_the_store(store: Store, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "secret.sqlite").write_text("secret")
    task = {"index": 0, "label": "a", "params": {}, "files": ["../../secret.sqlite"]}
    store.write_run(RunRecord("one", "w", "all", "t", status="done"))
    _edit(store.runs_dir / "one" / "run.json", tasks=[task])
    assert cli("record", "--to", tmp_path / "rec") == 2
    assert "is outside of" in cli.err
    assert not (tmp_path / "rec").exists()


@pytest.mark.parametrize("name", ["../x.sqlite", "/etc/passwd", "link.sqlite"])
def test_the_files_of_a_recording_lie_beside_it(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "rec"
    shutil.copytree(ROOT / "workloads" / "recordings" / "vector_add-h200", folder)
    (tmp_path / "x.sqlite").write_text("x")
    (folder / "link.sqlite").symlink_to(tmp_path / "x.sqlite")
    text = (folder / "recording.yaml").read_text()
    file = next(path.name for path in folder.glob("*.xz"))
    (folder / "recording.yaml").write_text(text.replace(file, name))
    with pytest.raises(InputError, match=r"is not in the recording|is not one beside it"):
        load_recording(folder)


@pytest.mark.parametrize(
    ("changes", "task"),
    [
        ({"batch_id": "../x"}, {}),
        ({"batch_id": "other"}, {}),
        ({"runs": [{"run_id": "../../x", "workload": "w", "file": "f", "collector": "all"}]}, {}),
        ({}, {"run_id": "../../x"}),
        ({}, {"key": "../../../x"}),
    ],
)
def test_a_batch_of_others_stays_in_the_store(
    changes: dict[str, Any], task: dict[str, Any], store: Store
) -> None:
    run = BatchRun("r", "w", "f", "all")
    batch = Batch("b", "t", (run,), 1, str(store.root), "python", "/")
    own = BatchTask(0, "r", "w", 0, "0123456789abcdef", "x")
    made = BatchDirectory.create(store, batch, [own], {})
    assert BatchDirectory.read(store, "b").tasks == (own,)
    _edit(made.path / "batch.json", **changes)
    _edit(made.path / "tasks.jsonl", **task)
    with pytest.raises(StoreError):
        assert BatchDirectory.read(store, "b").tasks


def test_a_foreign_segment_removes_nothing(
    stored: Callable[..., list[str]],
    store: Store,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stored("nsys/memcpy.sqlite")
    segment = compact(store, 0).segment
    assert segment is not None
    shutil.copytree(segment.path, store.segments_dir / "foreign")
    (tmp_path / "mine").mkdir()
    for change in ({"replaces": ["../../mine"]}, {"reports": ["../x"]}):
        _edit(store.segments_dir / "foreign" / "segment.json", **change)
        assert [one.path for one in Store(store.root).segments()] == [segment.path]
        assert "is not a plain file name" in caplog.text
        compact(store, 0)
        assert ("foreign", True) in ((name, fault is not None) for name, fault in verify(store))
    assert (tmp_path / "mine").is_dir()


@pytest.mark.parametrize("case", ["table", "id", "link", "linked report"])
def test_a_foreign_report_reads_nothing_outside(
    case: str,
    stored: Callable[..., list[str]],
    store: Store,
    cli: Cli,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole, foreign = stored("nsys/memcpy.sqlite", "nsys/h2d.sqlite")
    folder = store.reports_dir / foreign
    manifest = json.loads((folder / "manifest.json").read_text())
    if case == "table":
        tables = {**manifest["tables"], "../../../x": manifest["tables"]["launches"]}
        _edit(folder / "manifest.json", tables=tables)
    elif case == "id":
        _edit(folder / "manifest.json", report_id=whole)
    elif case == "link":
        shutil.move(folder / "launches.parquet", tmp_path / "launches.parquet")
        (folder / "launches.parquet").symlink_to(tmp_path / "launches.parquet")
    else:
        shutil.move(folder, tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
    assert cli("query", "SELECT report_id FROM reports", "--format", "csv") == 0, cli.err
    assert cli.out == f"report_id\n{whole}\n"
    assert case == "linked report" or f"report {foreign} is skipped" in caplog.text
    assert cli("scrub", store.root, "--to", tmp_path / "copy") in (0, 2)
    assert not list((tmp_path / "copy").rglob("x.parquet"))


@pytest.mark.parametrize("name", ["g[1]", "g*", "g?", "g{a,b}", "g 'q\" ä"])
def test_a_store_of_any_name_is_read_from_there(
    name: str, stored: Callable[..., list[str]], store: Store, tmp_path: Path
) -> None:
    """Not as a pattern: of "g[1]" DuckDB would read g1."""
    stored("nsys/memcpy.sqlite", "nsys/h2d.sqlite")
    odd, plain = Store(tmp_path / name), Store(tmp_path / "g1")
    for one in (odd, plain):
        shutil.copytree(store.root, one.root)
    plain.remove(plain.report_ids()[0])
    sql = "SELECT count(DISTINCT report_id) FROM nsys_memory_ops"
    for _ in ("directories", "a segment"):
        with Session.open(odd) as session:
            assert session.execute(sql).fetchall() == [(2,)]
            assert session.run_user_sql(sql).fetchall() == [(2,)]
        assert not [fault for _, fault in verify(odd) if fault]
        compact(odd, 0)
