"""Recordings and scrubbed reports: the same rows, and nothing that tells who made them where."""

from __future__ import annotations

import json
import lzma
import re
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT, Cli
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.energyrecord import Energy
from perfpipe.ingest.masking import mask, mask_bytes, names_in
from perfpipe.ingest.reading import ingest
from perfpipe.ingest.scrub import scrub_file
from perfpipe.pipelines.plan import planned_tasks
from perfpipe.pipelines.workload import load_workload
from perfpipe.store import Store

RECORDINGS = sorted((ROOT / "workloads" / "recordings").iterdir())
CAPTURES = ("nsys/eager_small.sqlite", "nsys/ddp_straggler_rank0.sqlite", "nsys/h2d.sqlite",
            "ncu/visible.ncu-rep", "ncu/multi.ncu-rep", "ncu/range.ncu-rep",
            "torch/train_step.kineto.json")  # fmt: skip

PROGRAM = """
import json
def say(what, **more): print(json.dumps({"perfpipe": what, **more}))
say("about", torch="2.11.0")
say("kernel", registers=40)
say("validation", ok=True, max_abs_error=0.25)
say("time", ms=[3.0, 1.0, 2.0], method="queued")
"""


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compress with little effort: what is in a file is tested, and not its size."""
    monkeypatch.setattr("perfpipe.ingest.compressed.XZ_PRESET", 0)


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for a workload and its run, which the first test that needs them makes."""
    return tmp_path_factory.mktemp("measured") / "once"


@pytest.fixture
def measured(once: Path, tmp_path: Path, profilers: Path, cli: Cli) -> Path:
    """A workload that was measured with all collectors, in the store of `cli`."""
    path = tmp_path / "w.yaml"
    if once.exists():
        shutil.copytree(once, tmp_path, dirs_exist_ok=True)
        return path
    (tmp_path / "program.py").write_text(PROGRAM)
    path.write_text(
        'version: 1\nname: w\ncommand: ["{python}", program.py]\nmatrix: {n: [1, 2]}\n'
        "collect: {nsys: {}, ncu: {}}\nrecording: rec\n"
    )
    assert cli("run", path, "--collector", "all") == 0, cli.err
    shutil.copytree(tmp_path, once, ignore=shutil.ignore_patterns("bin"))
    return path


def test_a_recording_replays_what_was_measured(measured: Path, cli: Cli, tmp_path: Path) -> None:
    (before,) = Store(tmp_path / "store").runs()
    energy = Energy("NVML energy counter", (50.0,), (2.5,), (None,), (None,), gpus=1, idle_w=70)
    tasks = tuple(replace(task, energy=energy) for task in before.tasks)
    before = replace(before, tasks=tasks)
    Store(tmp_path / "store").write_run(before)
    assert cli("record", "--to", tmp_path / "rec", "--limit", "9") == 0, cli.err
    words = ("run", measured, "--collector", "replay", "--store", tmp_path / "other")
    assert cli(*words) == 0
    assert cli("report", "--md", "--store", tmp_path / "other") == 0
    (after,) = Store(tmp_path / "other").runs()
    for ours, theirs in zip(before.tasks, after.tasks, strict=True):
        kept = ("times_ms", "launches_ms", "timing_method", "validation", "kernel", "energy")
        for name in ("params", *kept):
            assert getattr(theirs, name) == getattr(ours, name), name
        assert len(theirs.reports) == 2
    assert after.recording and after.recording.tools["torch"] == "2.11.0"
    assert "Replayed from a recording: captured on" in (tmp_path / "report.md").read_text()


def test_only_some_configurations_are_recorded(measured: Path, cli: Cli, tmp_path: Path) -> None:
    assert cli("record", "--to", tmp_path / "rec", "--filter", "n=2") == 0
    assert cli("run", measured, "--collector", "replay", "--filter", "n=2") == 0
    assert cli("run", measured, "--collector", "replay") == 1
    assert cli("record", "--to", tmp_path / "x", "--filter", "n=7") == 2


def test_what_cannot_be_recorded(measured: Path, cli: Cli, tmp_path: Path) -> None:
    target = tmp_path / "rec"
    assert cli("record", "--to", target, "--limit", "0.00001") == 1
    assert "the recording would take" in cli.err
    assert not target.exists()
    assert cli("record", "--to", target, "--limit", "9") == 0
    assert cli("record", "--to", target) == 2
    assert "--force replaces it" in cli.err
    assert cli("record", "--to", target, "--force", "--limit", "9") == 0
    for report in tmp_path.rglob("ncu.ncu-rep"):
        report.unlink()
    assert cli("record", "--to", target, "--force") == 2
    assert "is gone; run it again" in cli.err
    assert (target / "recording.yaml").is_file(), "the old one stays"
    assert not list(tmp_path.glob(".tmp-*"))
    assert cli("run", measured, "--collector", "replay", "--store", tmp_path / "o") == 0
    assert cli("record", "--to", tmp_path / "y", "--store", tmp_path / "o") == 2
    assert "is itself a replay" in cli.err


@pytest.mark.parametrize("folder", RECORDINGS, ids=lambda folder: folder.name)
def test_shipped_recordings_are_whole_small_and_anonymous(folder: Path) -> None:
    assert sum(path.stat().st_size for path in folder.iterdir()) < 4.5e6
    workload = ROOT / "workloads" / f"{folder.name.rpartition('-')[0]}.yaml"
    loaded = load_workload(workload)
    assert loaded.recording == f"recordings/{folder.name}"
    from perfpipe.pipelines.recording import load_recording

    recording = load_recording(folder)
    assert folder.name.rpartition("-")[2] in recording.gpu.lower()
    found = recording.tasks_for(planned_tasks(loaded, workload), loaded, workload)
    assert all(recorded for _, recorded in found)
    for path in folder.glob("*.xz"):
        content = lzma.decompress(path.read_bytes())
        assert not re.search(rb"/(home|root|work|tmp|Users)/[\w.-]*[A-Za-z]", content), path
        assert not re.search(rb"\b(HOSTNAME|USER|LD_LIBRARY_PATH|HOME)=", content), path
        if path.name.endswith(".sqlite.xz"):
            assert b"Hostname" not in content


@pytest.mark.parametrize("name", CAPTURES)
def test_scrubbing_keeps_the_rows(
    name: str,
    expand: Callable[[str], Path],
    captures: Store,
    ingested: Callable[[str], str],
    cli: Cli,
    tmp_path: Path,
) -> None:
    packed = ROOT / "tests" / "data" / f"{name}.gz"
    source = packed if packed.exists() else expand(name)
    target = tmp_path / ("scrubbed" if "multi" in name else "scrubbed.xz")
    assert cli("scrub", source, "--to", target) == 0, cli.err
    known = ingest(source, captures).report_id if source == packed else ingested(name)
    before = captures.manifest(known)
    store = Store(tmp_path / "s")
    after = store.manifest(ingest(target, store).report_id)
    fewer = {"nsys_environment", "nsys_diagnostics", "nsys_processes", "nsys_threads"}
    for table in before.tables.keys() - fewer:
        rows = after.tables[table].rows if table in after.tables else 0
        assert rows == before.tables[table].rows, table
    assert after.facts.gpu == before.facts.gpu
    assert cli("scrub", source, "--to", target) == 2
    assert "--force overwrites" in cli.err


def test_names_and_paths_are_gone(
    edited: Callable[..., Path], tmp_path: Path, captures: Store
) -> None:
    path = edited(
        "h2d",
        "INSERT INTO TARGET_INFO_SYSTEM_ENV (globalVid, devStateName, name, nameEnum, value) "
        "VALUES (1, 'x', 'Hostname', 1, 'gpu-node-17.example.org')",
        "INSERT INTO META_DATA_CAPTURE (name, value) VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE', "
        "'API_TOKEN=\"hunter2secret\"')",
        "INSERT INTO META_DATA_CAPTURE (name, value) VALUES ('PROCESS_1:ENVIRONMENT_VARIABLE', "
        "'HOME=\"/home/adalovelace\"')",
        "INSERT INTO META_DATA_CAPTURE (name, value) VALUES ('PROCESS_2:ENVIRONMENT_VARIABLE', "
        "'RANK=\"3\"')",
        "INSERT INTO StringIds (id, value) VALUES (99991, '/home/adalovelace/models/run.py')",
        "INSERT INTO StringIds (id, value) VALUES (99992, 'nobody refers to this secret')",
        "UPDATE NVTX_EVENTS SET text = 'load /home/adalovelace/data/x.bin on gpu-node-17', "
        "textId = NULL WHERE rowid = (SELECT min(rowid) FROM NVTX_EVENTS)",
        "UPDATE PROCESSES SET name = '/home/adalovelace/bin/train'",
        "CREATE TABLE SECRETS (a TEXT)",
        "INSERT INTO SECRETS VALUES ('adalovelace')",
    )
    target = tmp_path / "scrubbed.sqlite"
    assert "SECRETS" in scrub_file(path, target)
    content = target.read_bytes()
    for word in (b"adalovelace", b"hunter2secret", b"gpu-node-17", b"example.org", b"/home/",
                 b"nobody refers"):  # fmt: skip
        assert word not in content, word
    with sqlite3.connect(target) as con:
        assert con.execute("SELECT count(*) FROM META_DATA_CAPTURE WHERE value LIKE 'RANK%'"
                           ).fetchone() == (1,)  # fmt: skip
        assert ("load x.bin on xxxxxxxxxxx",) in con.execute(
            "SELECT text FROM NVTX_EVENTS").fetchall()  # fmt: skip
    con.close()
    store = Store(tmp_path / "s")
    manifest = store.manifest(ingest(target, store).report_id)
    assert manifest.facts.host is None


@pytest.mark.parametrize("compacted", [False, True])
def test_a_store_is_scrubbed_whole(
    compacted: bool,
    edited: Callable[..., Path],
    expand: Callable[[str], Path],
    cli: Cli,
    tmp_path: Path,
) -> None:
    path = edited(
        "h2d",
        "INSERT INTO TARGET_INFO_SYSTEM_ENV (globalVid, devStateName, name, nameEnum, value) "
        "VALUES (1, 'x', 'Hostname', 1, 'gpu-node-17.example.org')",
    )
    assert cli("ingest", path, expand("nsys/memcpy.sqlite" if compacted else "ncu/pm.ncu-rep")) == 0
    if compacted:
        assert cli("store", "compact", "--grace", "0") == 0
        assert "2 reports compacted" in cli.out
    assert cli("scrub", tmp_path / "store", "--to", tmp_path / "given") == 0
    assert cli("store", "verify", "--store", tmp_path / "given") == 0
    before, after = Store(tmp_path / "store"), Store(tmp_path / "given")
    assert before.report_ids() == after.report_ids()
    for manifest in after.manifests():
        assert manifest.facts.host is None
        assert str(tmp_path) not in json.dumps(manifest.source_path)
        for table, stored in before.manifest(manifest.report_id).tables.items():
            assert table == "nsys_environment" or manifest.tables[table].rows == stored.rows
    text = "SELECT count(*) n FROM nsys_environment WHERE value LIKE '%gpu-node%'"
    assert cli("query", text, "--format", "csv", "--store", tmp_path / "given") == 0
    assert cli.out.splitlines() == ["n", "0"]


@pytest.mark.parametrize("content", [b"", b"no report", b"SQLite format 3\0" + b"x" * 200])
def test_what_is_no_report_is_refused(content: bytes, cli: Cli, tmp_path: Path) -> None:
    source = tmp_path / "x.sqlite"
    source.write_bytes(content)
    assert cli("scrub", source, "--to", tmp_path / "y.sqlite") == 2
    assert len(cli.err.splitlines()) == 1
    assert not (tmp_path / "y.sqlite").exists()
    assert not list(tmp_path.glob(".tmp-*"))


def test_a_truncated_report_is_refused(
    expand: Callable[[str], Path], cli: Cli, tmp_path: Path
) -> None:
    source = tmp_path / "x.ncu-rep"
    source.write_bytes(expand("ncu/visible.ncu-rep").read_bytes()[:-100])
    assert cli("scrub", source, "--to", tmp_path / "y.ncu-rep") == 2
    assert "truncated" in cli.err
    shutil.rmtree(tmp_path / "store", ignore_errors=True)
    assert cli("scrub", expand("ncu/visible.details.csv"), "--to", tmp_path / "y.csv") == 2
    assert "cannot be scrubbed" in cli.err


@given(st.lists(st.sampled_from(["/home/", "ada", "/", "x.py", " ", "=", "USER", "17", "\n"])))
def test_masked_bytes_keep_their_length(parts: list[str]) -> None:
    text = "".join(parts)
    names = frozenset({"ada"})
    masked = mask_bytes(text.encode(), names)
    assert len(masked) == len(text.encode())
    assert b"ada" not in masked
    assert "ada" not in mask(text, names)


def test_names_that_say_nothing_stay() -> None:
    assert names_in(["/home/root/x USER=ab"], "localhost", "127.0.0.1", None) == frozenset()
    assert names_in(["HOSTNAME=n17.cluster"]) == {"n17.cluster", "n17"}
    assert mask("https://a.b/c/d and L1/TEX at 3/4", frozenset()) == (
        "https://a.b/c/d and L1/TEX at 3/4"
    )
