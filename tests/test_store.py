from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from conftest import DATA, Cli, lacking
from forks import asked, forking

from perfpipe.errors import StoreError
from perfpipe.ingest.reading import ingest
from perfpipe.prune import collect_garbage
from perfpipe.runrecord import RunRecord
from perfpipe.store import Store
from perfpipe.verify import verify

Expand = Callable[[str], Path]

#: Processes that ingest the same files at once: one that is first, one that is late, and others
#: that find a report which is there, or half there.
WRITERS = 4

SMALL = ("memcpy", "ops", "graph_whole", "h2d", "compute")


def _faults(store: Store) -> list[tuple[str, str]]:
    return [(name, fault) for name, fault in verify(store) if fault]


def _tables(store: Store, report: str) -> dict[str, str]:
    return {name: table.sha256 for name, table in store.manifest(report).tables.items()}


def test_the_same_bytes_are_ingested_once(expand: Expand, store: Store) -> None:
    first = ingest(expand("nsys/memcpy.sqlite"), store)
    before = store.manifest(first.report_id)
    again = ingest(expand("nsys/memcpy.sqlite"), store)
    assert (first.new, again.new) == (True, False)
    assert store.manifest(first.report_id) == before
    forced = ingest(expand("nsys/memcpy.sqlite"), store, force=True)
    assert forced.new
    assert _tables(store, first.report_id) == {k: v.sha256 for k, v in before.tables.items()}
    assert store.leftovers() == []


def test_report_id_is_the_head_of_the_checksum(expand: Expand, store: Store) -> None:
    report = ingest(expand("nsys/memcpy.sqlite"), store).report_id
    manifest = store.manifest(report)
    digest = subprocess.run(
        ["sha256sum", expand("nsys/memcpy.sqlite")], capture_output=True, text=True, check=True
    ).stdout.split()[0]
    assert manifest.sha256 == digest
    assert report == digest[:16]


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_schema_version_is_refused(version: object, expand: Expand, store: Store) -> None:
    source = expand("nsys/memcpy.sqlite")
    report = ingest(source, store).report_id
    path = store.reports_dir / report / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": version}))
    for refused in (partial(store.check, report), partial(ingest, source, store)):
        with pytest.raises(StoreError, match="schema version"):
            refused()
    assert "schema version" in _faults(store)[0][1]
    assert ingest(source, store, force=True).new
    assert _faults(store) == []


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (lambda p: (p / "launches.parquet").unlink(), "the table is missing"),
        (lambda p: (p / "launches.parquet").write_bytes(b"x"), "size or checksum"),
        (lambda p: (p / "manifest.json").write_text("{"), "cannot read the report manifest"),
        (lambda p: (p / "manifest.json").write_text("[]"), "not a JSON object"),
        (lambda p: (p / "manifest.json").unlink(), "cannot read"),
    ],
)
def test_verify_finds_damage(
    damage: Callable[[Path], object], fault: str, expand: Expand, store: Store
) -> None:
    report = ingest(expand("nsys/memcpy.sqlite"), store).report_id
    assert _faults(store) == []
    damage(store.reports_dir / report)
    assert fault in _faults(store)[0][1]


def test_removed_reports_are_gone_and_missed_by_their_run(expand: Expand, store: Store) -> None:
    report = ingest(expand("nsys/memcpy.sqlite"), store).report_id
    store.write_run(RunRecord("r", "w", "timing", "", reports=(report,)))
    assert _faults(store) == []
    store.remove(report)
    assert store.report_ids() == []
    assert "missing reports" in _faults(store)[0][1]
    with pytest.raises(StoreError, match="no such report"):
        store.remove(report)


def test_garbage_of_killed_writers_is_collected(store: Store) -> None:
    old = store.reports_dir / ".tmp-old"
    old.mkdir(parents=True)
    (old / "x.parquet").write_text("x")
    for path in (old / "x.parquet", old):
        os.utime(path, (1, 1))
    fresh = store.reports_dir / ".tmp-fresh"
    fresh.mkdir()
    assert store.report_ids() == []
    assert collect_garbage(store, 3600) == [old]
    assert store.leftovers() == [fresh]


#: A shell starts background jobs with interrupts ignored, which would be inherited.
INGEST = """
import signal, sys
from perfpipe.pipelines.cli import run_cli
from perfpipe.pipelines.startup import leave_pandas_out
leave_pandas_out()
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(run_cli(sys.argv[1:]))
"""


def _command(store: Store, *paths: Path) -> list[str]:
    words = [sys.executable, "-c", INGEST, "ingest", "--store", str(store.root), "--jobs", "1"]
    return [*words, *map(str, paths)]


#: What a reader's process does with the files, without the command that waits for it.
WRITE = """
import sys
from pathlib import Path
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store
from perfpipe.pipelines.startup import leave_pandas_out
leave_pandas_out()
for path in sys.argv[2:]:
    ingest(Path(path), Store(Path(sys.argv[1])))
"""


def test_many_writers_of_the_same_files(expand: Expand, store: Store, tmp_path: Path) -> None:
    paths = [expand(f"nsys/{name}.sqlite") for name in SMALL]
    paths += [
        expand(f"ncu/{name}.csv")
        for name in (
            "live_stdout",
            "visible.raw",
            "visible.details",
            "ops.details",
            "visible.source",
        )
    ]
    program = tmp_path / "program.py"
    program.write_text(WRITE)
    words = [str(program), str(store.root), *map(str, paths)]
    errors = [tmp_path / f"errors-{number}" for number in range(WRITERS)]
    # What they import is imported once: that takes as long as some of the files.
    readers = (
        "perfpipe.ingest.nsys.reader",
        "perfpipe.ingest.ncu.csv_pages",
        "perfpipe.ingest.reading",
    )
    with ExitStack() as stack:
        server = stack.enter_context(forking(tmp_path / "socket", *readers))
        writers = [
            stack.enter_context(asked(str(server), {"words": words, "env": {}}, [to, to]))
            for to in (stack.enter_context(path.open("wb")).fileno() for path in errors)
        ]
        for writer, said in zip(writers, errors, strict=True):
            assert writer.recv(64) == b"0", said.read_text()
    assert len(paths) == 10
    assert len(store.report_ids()) == 10
    assert _faults(store) == []
    assert store.leftovers() == []


def test_a_killed_writer_leaves_a_clean_store(expand: Expand, store: Store) -> None:
    """Kill -9 at many moments: whatever is published is whole, and a later ingest completes it."""
    paths = [expand("nsys/eager_small.sqlite"), expand("nsys/memcpy.sqlite")]
    chance = random.Random(1)
    seen: set[tuple[int, bool]] = set()
    for attempt in range(12):
        known = set(store.leftovers())
        process = subprocess.Popen(
            _command(store, *paths),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        # Every second one is killed while it writes, the others at any moment.
        while attempt % 2 == 0 and process.poll() is None and known >= set(store.leftovers()):
            time.sleep(0.005)
        time.sleep(chance.random() * 0.06 * attempt)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert _faults(store) == []
        seen.add((len(store.report_ids()), bool(store.leftovers())))
    assert any(leftovers for _, leftovers in seen), "no kill hit a writer at work"
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(subprocess.run, _command(store, *paths), check=True).result()
    assert len(store.report_ids()) == 2
    assert _faults(store) == []
    collect_garbage(store, 0)
    assert store.leftovers() == []


#: Imports first, since another user may not be able to read the interpreter's files.
UNPRIVILEGED = """
import os, sys
from pathlib import Path
import perfpipe.ingest.nsys.reader
from perfpipe.ingest.reading import ingest
from perfpipe.errors import PerfpipeError
from perfpipe.store import Store
if os.geteuid() == 0:
    os.setuid(65534)
try:
    ingest(Path(sys.argv[1]), Store(sys.argv[2]))
except PerfpipeError as error:
    sys.exit(f"{error.exit_code}: {error}")
"""


def test_an_interrupt_ends_in_a_word_and_leaves_nothing(
    expand: Expand, store: Store, tmp_path: Path
) -> None:
    temporary = tmp_path / "t"
    temporary.mkdir()
    packed = DATA / "ncu" / "ops.ncu-rep.xz"
    process = subprocess.Popen(
        _command(store, expand("nsys/memcpy.sqlite"), packed),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    deadline = time.monotonic() + 60
    while not (store.report_ids() and store.leftovers()) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "interrupted"
    assert "Traceback" not in errors
    assert store.leftovers() == []
    assert list(temporary.iterdir()) == []
    assert len(store.report_ids()) == 1


def test_a_store_without_permission(expand: Expand, tmp_path: Path) -> None:
    """Root may write anywhere, so the process gives up its rights first."""
    root = tmp_path / "closed"
    root.mkdir(mode=0o555)
    readable = tmp_path / "memcpy.sqlite"
    shutil.copyfile(expand("nsys/memcpy.sqlite"), readable)
    for parent in [tmp_path, *tmp_path.parents][:-2]:
        parent.chmod(0o755)
    words = [sys.executable, "-c", UNPRIVILEGED, str(readable), str(root / "store")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.stderr.startswith("2: cannot write the store")
    assert "Permission denied" in done.stderr
    assert list(root.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode != 0:
        lacking(f"mounting a tmpfs needs root: {done.stderr}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.parametrize("name", ["nsys/eager_small.sqlite", "ncu/visible.ncu-rep"])
def test_a_full_disk(name: str, small_disk: Path, expand: Expand, cli: Cli) -> None:
    store = Store(small_disk / "store")
    filler = small_disk / "filler"
    filler.write_bytes(bytes(850 << 10))
    assert cli("ingest", expand(name), "--store", store.root) == 2
    assert "No space left on device" in cli.err
    assert "nothing was changed" in cli.err
    assert "Traceback" not in cli.err
    assert store.report_ids() == []
    assert store.leftovers() == []
    assert _faults(store) == []


def test_a_disk_that_fills_at_any_moment(small_disk: Path, expand: Expand) -> None:
    """Leave a little more room each time, so that every table in turn is the one that fails."""
    store = Store(small_disk / "store")
    filler = small_disk / "filler"
    sentences = set()
    for free_kib in range(8, 1000, 24):
        filler.write_bytes(bytes((1000 - free_kib) << 10))
        try:
            ingest(expand("nsys/eager_small.sqlite"), store)
        except StoreError as error:
            sentences.add(str(error))
            assert "nothing was changed" in str(error)
        assert _faults(store) == []
        assert store.leftovers() == []
        if store.report_ids():
            break
        filler.unlink()
    assert store.report_ids(), "the report never fitted"
    assert len(sentences) >= 1


def test_a_full_disk_for_decompression(small_disk: Path, store: Store) -> None:
    packed = DATA / "nsys" / "eager_small.sqlite.xz"
    done = subprocess.run(
        _command(store, packed),
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "TMPDIR": str(small_disk)},
    )
    assert done.returncode == 2
    assert "TMPDIR" in done.stderr
    assert "No space left on device" in done.stderr
    assert not list(small_disk.glob("perfpipe-*"))
    assert store.report_ids() == []


def test_there_is_no_store(cli: Cli) -> None:
    for words in (["report"], ["report", "name"]):
        assert cli(*words) == 2
        assert ": no store; create one" in cli.err


def test_a_launch_that_ended_early_does_not_hide_the_store(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.write_run(RunRecord("whole", "w", "timing", "2026-01-01T00:00:00Z"))
    (store.runs_dir / "early" / "tasks" / "000").mkdir(parents=True)
    assert [run.run_id for run in store.runs()] == ["whole"]
