"""Stacks of forked processes in an export, and what views make of them."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from perfpipe.analysis.session import Session
from perfpipe.ingest.frames import Frame, Stack
from perfpipe.ingest.nsys.forked_stacks import ForkedStacks, add_to_export
from perfpipe.ingest.nsys.scrub_export import scrub_sqlite
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store

#: Ids of StringIds for stacks, the domain of their marks, and its event type.
_FIRST_STRING, _DOMAIN, _NAMED, _MARK = 900_000, 77, 75, 34


def _sample_main(con: sqlite3.Connection, frames: list[tuple[str, str, int]]) -> None:
    """Add marks of nsys's sampler: every thread that calls CUDA has one stack all the time."""
    strings = ["Python Periodic Sampling", *(text for frame in frames for text in frame[:2])]
    numbered = [(_FIRST_STRING + at, text) for at, text in enumerate(strings)]
    con.executemany("INSERT INTO StringIds (id, value) VALUES (?, ?)", numbered)
    con.execute(
        "INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId, schemaId, idx, type) VALUES (?, 1, 0, 7)",
        (_DOMAIN,),
    )
    payload = struct.pack("<QiI", 1, 1, len(frames))
    for at, (_, _, line) in enumerate(frames):
        payload += struct.pack(
            "<QQii", _FIRST_STRING + 1 + 2 * at, _FIRST_STRING + 2 + 2 * at, line, 0
        )
    content = struct.pack("<4Q", _DOMAIN, 1, len(payload), 32) + payload
    sql = "SELECT DISTINCT globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME"
    first, last = con.execute(
        "SELECT min(start), max(end) FROM CUPTI_ACTIVITY_KIND_RUNTIME"
    ).fetchone()
    insert = (
        "INSERT INTO NVTX_EVENTS (start, eventType, globalTid, domainId, textId, binaryData)"
        " VALUES (?, ?, ?, ?, ?, ?)"
    )
    for (thread,) in con.execute(sql).fetchall():
        con.execute(insert, (first, _NAMED, thread, _DOMAIN, _FIRST_STRING, None))
        rows = [(at, _MARK, thread, _DOMAIN, None, content) for at in range(first, last, 1_000_000)]
        con.executemany(insert, rows)


def _epoch(database: Path) -> tuple[int, int, int]:
    """Return the start of a capture, ns of CLOCK_REALTIME, and the first and last call in it."""
    with closing(sqlite3.connect(database)) as con:
        (began,) = con.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()
        sql = "SELECT min(start), max(end) FROM CUPTI_ACTIVITY_KIND_RUNTIME"
        return (began, *con.execute(sql).fetchone())


LOADER = "/opt/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py"
_WORKER = Frame(
    "_worker_loop", "/opt/venv/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", 300
)
TRANSFORM: Stack = (Frame("transform", "/home/ada/train/data.py", 12), _WORKER)
DECODE: Stack = (Frame("decode", "/home/ada/train/data.py", 30), _WORKER)
WAITING: Stack = (Frame("get", "/usr/lib/python3.11/multiprocessing/queues.py", 103), _WORKER)


@pytest.fixture
def loaded(tmp_path: Path, expand: Callable[[str], Path]) -> Path:
    """A capture whose threads wait for workers all the time; a worker transforms 3 times as long.

    It decodes in many short intervals, and has only two long ones of the transform.
    """
    database = tmp_path / "loaded.sqlite"
    database.write_bytes(expand("nsys/eager_small.sqlite").read_bytes())
    with closing(sqlite3.connect(database)) as con:
        frames = [("_try_get_data", LOADER, 1263), ("main", "/home/ada/train/train.py", 5)]
        _sample_main(con, frames)
        con.commit()
    began, first, last = _epoch(database)
    unit = (last - first) // 100
    stacks = ForkedStacks()

    def add(at: int, end: int, stack: Stack) -> None:
        stacks.add(began + first + at * unit, began + first + end * unit, 9_001, 9_001, stack)

    for place in (0, 60):
        add(place, place + 30, TRANSFORM)
    for at in range(30, 50):
        add(at, at + 1, DECODE)
    add(50, 60, WAITING)
    # Before the capture, and of another process.
    stacks.add(began - 10**9, began - 10**8, 9_001, 9_001, DECODE)
    assert add_to_export(stacks, database)
    return database


def test_time_that_waits_for_workers_is_what_they_did_by_its_duration(
    loaded: Path, store: Store
) -> None:
    report = ingest(loaded, store).report_id
    with Session.open(store, [report]) as session:
        rows = session.execute(
            "SELECT rank, function, line, via, self_ns, code_pct FROM idle_code"
            " WHERE level = 'user' AND function IS NOT NULL AND self_ns > 0 ORDER BY rank, self_ns DESC"
        ).fetchall()
        assert rows[0][:4] == (1, "transform", 12, "worker process")
        shares = {(row[1], row[3]): row[5] for row in rows}
        assert shares.keys() == {("transform", "worker process"), ("decode", "worker process")}
        sums = session.execute(
            "SELECT level, sum(self_ns) FROM idle_code GROUP BY level"
        ).fetchall()
        (idle,) = session.execute("SELECT sum(time_ns) FROM idle_stacks").fetchone() or ()
        assert dict(sums) == dict.fromkeys(("user", "function", "line"), idle)
        (whole,) = (
            session.execute(
                "SELECT sum(time_ns) FROM idle_stacks WHERE worker_stack_id IS NOT NULL"
            ).fetchone()
            or ()
        )
        # In the analyzed window, to the ns.
        worked = dict(
            session.execute(
                "WITH span AS (SELECT min(start_ns) AS a, max(end_ns) AS b FROM _analysed_spans)"
                " SELECT f.function, sum(least(s.end_ns, b) - greatest(s.start_ns, a))"
                " FROM host_samples AS s JOIN span ON s.end_ns > a AND s.start_ns < b"
                " JOIN host_stacks AS k ON k.stack_id = s.stack_id AND k.depth = 0"
                " JOIN host_frames AS f USING (frame_id)"
                " WHERE s.source = 'py-spy' AND f.function != 'get' GROUP BY 1"
            ).fetchall()
        )
        assert worked["transform"] > worked["decode"] > 0
        parts = {row[1]: 0 for row in rows}
        for _, function, _, _, self_ns, _ in rows:
            parts[function] += self_ns
        assert sum(parts.values()) == whole
        for function, ns in parts.items():
            # Each piece of idle time is rounded.
            exact = whole * worked[function] / sum(worked.values())
            assert abs(ns - exact) <= 10_000


def test_an_export_keeps_the_stacks_and_a_scrubbed_one_masks_them(
    loaded: Path, store: Store, tmp_path: Path
) -> None:
    rows = (
        "SELECT time_ns, start_ns, end_ns, pid, tid, source FROM host_samples"
        " WHERE source = 'py-spy' ORDER BY start_ns"
    )
    with Session.open(store, [ingest(loaded, store).report_id]) as session:
        before = session.execute(rows).fetchall()
    _, first, last = _epoch(loaded)
    assert len(before) == 24
    assert before[1][1] == first
    assert before[1][2] == first + 30 * ((last - first) // 100)
    scrubbed = tmp_path / "scrubbed.sqlite"
    assert not [name for name in scrub_sqlite(loaded, scrubbed) if name.startswith("PERFPIPE")]
    assert b"/home/ada" not in scrubbed.read_bytes()
    again = Store(tmp_path / "again")
    with Session.open(again, [ingest(scrubbed, again).report_id]) as session:
        assert session.execute(rows).fetchall() == before
        found = {name for (name,) in session.execute("SELECT file FROM host_frames").fetchall()}
    assert "data.py" in {Path(name).name for name in found if name}


def test_an_export_that_does_not_say_when_it_began_is_left_alone(loaded: Path) -> None:
    with closing(sqlite3.connect(loaded)) as con:
        con.executescript(
            "DROP TABLE PERFPIPE_HOST_SAMPLES; DROP TABLE PERFPIPE_HOST_FRAMES;"
            "DROP TABLE TARGET_INFO_SESSION_START_TIME;"
        )
    stacks = ForkedStacks()
    stacks.add(1, 2, 3, 3, TRANSFORM)
    assert not add_to_export(stacks, loaded)
    with closing(sqlite3.connect(loaded)) as con:
        sql = "SELECT count(*) FROM sqlite_master WHERE name LIKE 'PERFPIPE%'"
        assert con.execute(sql).fetchone() == (0,)
