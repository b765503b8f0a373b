"""What is read of migrations of unified memory, and of page faults."""

from __future__ import annotations

import lzma
import sqlite3
from pathlib import Path

from conftest import DATA

from perfpipe.analysis.session import Session
from perfpipe.ingest.reading import ingest
from perfpipe.ingest.scrub import scrub_file
from perfpipe.store import Store

FIELD = DATA / "field" / "nsys" / "28_unified_memory.sqlite.xz"

#: What nsys adds if it records page faults and causes.
FAULTS = (
    "UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET migrationCause = 1 + rowid % 5, "
    "virtualAddress = 4096 * rowid",
    "INSERT INTO CUDA_UM_GPU_PAGE_FAULT_EVENTS SELECT start - 5000, end, globalPid, deviceId, "
    "4096 * rowid, 3, 2 FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE rowid % 2",
    "INSERT INTO StringIds VALUES (90001, 'fill_input'), (90002, 'libm')",
    "INSERT INTO CUDA_UM_CPU_PAGE_FAULT_EVENTS (start, globalPid, address, CpuInstruction, module) "
    "SELECT start + 1, globalPid, 4096 * rowid, 90001, 90002 FROM CUPTI_ACTIVITY_KIND_MEMCPY "
    "WHERE rowid % 3 = 0",
)

READ = """
    SELECT migration_cause, count(*), min(address) FROM nsys_memory_ops GROUP BY ALL
    UNION ALL SELECT access, sum(faults), sum(dur_ns) FROM nsys_gpu_page_faults GROUP BY ALL
    UNION ALL SELECT function, count(*), min(address) FROM nsys_cpu_page_faults GROUP BY ALL
    ORDER BY ALL
"""


def _with_faults(path: Path, *more: str) -> Path:
    path.write_bytes(lzma.decompress(FIELD.read_bytes()))
    with sqlite3.connect(path) as con:
        for statement in (*FAULTS, *more):
            con.execute(statement)
    con.close()
    return path


def test_page_faults_and_causes_are_read(tmp_path: Path, store: Store) -> None:
    path = _with_faults(tmp_path / "faults.sqlite")
    report = ingest(path, store).report_id
    with Session.open(store, [report]) as con:
        found = con.execute(READ).fetchall()
    # nsys spells one of its labels wrong.
    assert [tuple(row) for row in found] == [
        ("Access counters", 600, 4096 * 4),
        ("Eviction", 600, 4096 * 3),
        ("Page fault", 600, 4096),
        ("Speculative prefecth", 600, 4096 * 2),
        ("User prefetch", 600, 4096 * 5),
        ("Write", 4500, 1500 * 12_000),
        ("fill_input", 1000, 4096 * 3),
    ]


def test_a_scrubbed_copy_keeps_page_faults(tmp_path: Path, store: Store) -> None:
    path = _with_faults(tmp_path / "faults.sqlite")
    copy = tmp_path / "scrubbed.sqlite"
    scrub_file(path, copy)
    rows = []
    for report in (ingest(path, store).report_id, ingest(copy, store).report_id):
        with Session.open(store, [report]) as con:
            rows.append(con.execute(READ).fetchall())
    assert rows[0] == rows[1]


def test_causes_without_labels_are_those_of_later_exports(tmp_path: Path, store: Store) -> None:
    drop = ("DROP TABLE ENUM_CUDA_UNIF_MEM_MIGRATION", "DROP TABLE ENUM_CUDA_UNIF_MEM_ACCESS_TYPE")
    old = ingest(_with_faults(tmp_path / "old.sqlite", *drop), store).report_id
    with Session.open(store, [old]) as con:
        found = {row[0] for row in con.execute(READ).fetchall()}
    assert {"Page fault", "User prefetch", "Speculative prefetch", "Write"} <= found


def test_why_page_faults_are_missing_is_stated(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "none.sqlite"
    path.write_bytes(lzma.decompress(FIELD.read_bytes()))
    report = ingest(path, store).report_id
    with Session.open(store, [report]) as con:
        reasons = con.execute(
            "SELECT reason FROM collection_gaps WHERE table_name = 'gpu_page_faults'"
        ).fetchall()
    assert "--cuda-um-gpu-page-faults=true" in reasons[0][0]
