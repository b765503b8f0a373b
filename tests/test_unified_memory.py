"""Migrations of unified memory: what is read of them, and the finding about them."""

from __future__ import annotations

import lzma
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import DATA, Cli, Opened, Tiny

from perfpipe.analysis.session import Session
from perfpipe.ingest.reading import ingest
from perfpipe.ingest.scrub import scrub_file
from perfpipe.store import Store

TO_GPU, TO_HOST = (f"[CUDA memcpy Unified {d}]" for d in ("Host-to-Device", "Device-to-Host"))
US = 1_000
MB = 1_000_000
Row = dict[str, Any]

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
        ((migration, compute),) = con.execute(
            "SELECT sum(time_ns) FILTER (category = 'migration'), "
            "sum(time_ns) FILTER (category = 'compute') FROM gpu_time_budget"
        ).fetchall()
        ((faults, function, gain, floor),) = con.execute(
            "SELECT gpu_faults, faulting, gain_pct, floor FROM migration_findings"
        ).fetchall()
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
    # Half of the migrations have faults; of the others, three of five kinds delay kernels.
    assert (migration, migration + compute) == (1500 * 12_000 + 900 * 7_000, 900_000_000)
    assert (faults, function, floor) == (4500, "fill_input", "served")
    assert gain == pytest.approx(100 * migration / 900_000_000)


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
        ((faults, gain),) = con.execute(
            "SELECT gpu_faults, gain_pct FROM migration_findings"
        ).fetchall()
    assert "--cuda-um-gpu-page-faults=true" in reasons[0][0]
    assert (faults, gain) == (None, None)


def _kernel(start: int, end: int, name: str = "k", grid: int = 1) -> tuple[Row, Row]:
    spans = {"pid": 1, "device": 0, "start_ns": start * US, "end_ns": end * US}
    own = {"dur_ns": (end - start) * US, "grid_x": grid, "demangled": name, "name": name}
    return {**spans, "kind": "kernel", "name": name, "demangled": name}, {**spans, **own}


def _moved(
    start: int, end: int, size: int = MB, *, cause: str | None = "Page fault",
    operation: str = TO_GPU, address: int | None = 0,
) -> tuple[Row, Row]:  # fmt: skip
    spans = {"pid": 1, "device": 0, "start_ns": start * US, "end_ns": end * US}
    own = {
        "operation": operation, "bytes": size, "migration_cause": cause, "address": address,
        "dur_ns": (end - start) * US,
    }  # fmt: skip
    return {**spans, "kind": "memcpy", "name": operation}, {**spans, **own}


def _timeline(kernels: list[tuple[Row, Row]], moved: list[tuple[Row, Row]]) -> Tiny:
    db = Tiny()
    db.add("launches", *sorted((op for op, _ in kernels + moved), key=lambda op: op["start_ns"]))
    db.add("nsys_kernels", *(row for _, row in kernels))
    db.add("nsys_memory_ops", *(row for _, row in moved))
    return db


FOUND = "SELECT kind, kernels, kernel_ns, extra_ns, repeated_bytes, gain_pct, floor FROM migration_findings"


#: One program, measured without (3 steps) and with prefetching (8 steps): in each step three kernels
#: use 67 MB, which the host then updates (H200, nsys 2025.3).
MEASURED = ("unified/page_faults.sqlite", "unified/prefetch.sqlite")


@pytest.fixture(scope="module")
def measured(opened: Opened) -> Iterator[Session]:
    with opened(*MEASURED, window="whole") as session:
        yield session


@pytest.mark.parametrize("capture", MEASURED)
def test_the_parts_of_a_measured_capture_add_up(
    measured: Session, ingested: Callable[[str], str], capture: str
) -> None:
    sql = f"""
        SELECT sum(time_ns) - any_value(window_ns), min(time_ns) >= 0, sum(share_pct),
            max(share_pct) FILTER (category = 'migration') > 5,
            max(share_pct) FILTER (category = 'unattributed')
        FROM gpu_time_budget WHERE report_id = '{ingested(capture)}'
    """
    assert measured.execute(sql).fetchall() == [(0, True, pytest.approx(100), True, 0)]


def test_the_cost_that_launches_measure_is_what_prefetching_saves(
    measured: Session, ingested: Callable[[str], str]
) -> None:
    """And it is the time in which the driver handles page faults."""
    faults, prefetch = (ingested(capture) for capture in MEASURED)
    sql = f"""
        SELECT kind, kernels, kernel_ns, extra_ns, repeated_bytes, gpu_faults, cpu_faults, faulting
        FROM migration_findings WHERE report_id = '{faults}'
    """
    ((kind, kernels, kernel_ns, extra_ns, repeated, *seen),) = measured.execute(sql).fetchall()
    assert (kind, kernels, repeated) == ("round_trip", 3, 2 * 4 * 2**24)
    assert seen == [1259, 576, "main"]
    ((first_ns,),) = measured.execute(
        f"""
        SELECT avg(dur_ns) FROM (
            SELECT dur_ns, row_number() OVER (ORDER BY start_ns) AS place
            FROM nsys_kernels WHERE report_id = '{prefetch}'
        ) WHERE place % 3 = 1
        """
    ).fetchall()
    assert (kernel_ns - extra_ns) / kernels == pytest.approx(first_ns, rel=0.05)
    ((handled_ns,),) = measured.execute(
        f"""
        SELECT time_ns - (
            SELECT sum(dur_ns) FROM nsys_memory_ops
            WHERE report_id = '{faults}' AND operation LIKE '%Unified Device-to-Host%'
        ) FROM gpu_time_budget WHERE report_id = '{faults}' AND category = 'migration'
        """
    ).fetchall()
    assert handled_ns == pytest.approx(extra_ns, rel=0.01)
    kinds = measured.execute(
        f"SELECT kind, kernels FROM migration_findings WHERE report_id = '{prefetch}'"
    ).fetchall()
    assert kinds == [("prefetched", 0)]


def test_the_page_names_what_to_do(cli: Cli, expand: Callable[[str], Path], tmp_path: Path) -> None:
    assert cli("report", expand(MEASURED[0]), "--md", "report.md", "--html", "report.html") == 0
    said = (tmp_path / "report.md").read_text()
    assert "back and forth between host and GPU" in said
    assert "these launches take 55.4 ms longer than launches of the same kernels" in said
    assert "Keep unified memory on one side" in said
    assert "cudaMemPrefetchAsync" in said
    html = (tmp_path / "report.html").read_text()
    assert html.count("migration") > 3


def test_launches_without_migrations_measure_the_cost() -> None:
    """Launches of 100 us take 400 us while pages migrate; another grid does not count."""
    kernels = [
        _kernel(0, 400), _kernel(400, 500), _kernel(500, 600), _kernel(600, 1000),
        _kernel(1000, 1010, grid=2),
    ]  # fmt: skip
    db = _timeline(kernels, [_moved(10, 60, address=0), _moved(650, 700, address=MB)])
    ((kind, count, kernel_ns, extra, repeated, gain, floor),) = db.rows(FOUND)
    assert (kind, count, kernel_ns, repeated) == ("on_demand", 2, 800 * US, 0)
    assert (extra, floor) == (600 * US, "measured")
    assert gain == pytest.approx(100 * 600 / 1010)
    assert db.rows("SELECT category, time_ns FROM gpu_time_budget WHERE time_ns > 0") == [
        ("compute", 910 * US),
        ("migration", 100 * US),
    ]
    assert db.rows("SELECT claim, bound_pct, technique FROM findings") == [
        ("unified_memory", gain, "prefetch_pages")
    ]


def test_what_kernels_wait_for_is_unknown_without_page_faults() -> None:
    """It is ranked between the time of the migrations and that of the kernels."""
    db = _timeline([_kernel(0, 1000)], [_moved(10, 60)])
    assert db.rows(FOUND) == [("on_demand", 1, 1000 * US, None, 0, None, "served")]
    (found,) = db.rows("SELECT share_pct, bound_pct, most_pct FROM findings")
    assert found == (5, None, 52.5)


def test_data_that_goes_back_and_forth() -> None:
    """Each step moves the same bytes there and back."""
    kernels = [_kernel(200 * n, 200 * n + 100) for n in range(4)]
    moved = [_moved(200 * n + 10, 200 * n + 90) for n in range(4)]
    moved += [_moved(200 * n + 110, 200 * n + 190, operation=TO_HOST) for n in range(4)]
    db = _timeline(kernels, moved)
    ((kind, _, _, _, repeated, *_),) = db.rows(FOUND)
    assert (kind, repeated) == ("round_trip", 3 * MB)
    assert db.rows("SELECT technique FROM recommendations ORDER BY rank") == [
        ("keep_pages",),
        ("prefetch_pages",),
    ]


def test_overlapping_parts_of_the_addresses_count_once() -> None:
    moved = [
        _moved(10, 20, size=100, address=0),
        _moved(20, 30, size=100, address=50),
        _moved(30, 90, size=30, address=60),
    ]
    assert _timeline([_kernel(0, 100)], moved).rows(FOUND)[0][4] == 50 + 30


def test_no_addresses_no_repetition() -> None:
    """Unknown is not zero."""
    found = _timeline([_kernel(0, 100)], [_moved(10, 90, address=None)]).rows(FOUND)
    assert found[0][4] is None


def test_prefetches_delay_no_kernel() -> None:
    """Those beside kernels are free; the others are exposed."""
    moved = [
        _moved(0, 100, cause="User prefetch"),
        _moved(200, 300, cause="User prefetch", address=MB),
        _moved(350, 400, cause="User prefetch", address=2 * MB),
    ]
    db = _timeline([_kernel(100, 350)], moved)
    assert db.rows(FOUND) == [("prefetched", 0, 0, None, 0, 37.5, "served")]
    assert db.rows("SELECT technique FROM findings") == [("overlap_prefetches",)]
    none = _timeline([_kernel(100, 350)], [_moved(200, 300, cause="User prefetch")])
    assert none.rows("FROM migration_findings") == []


def test_results_that_the_host_reads_page_by_page_after_prefetched_input() -> None:
    """The remaining advice is to prefetch the results, too."""
    moved = [_moved(0, 100, 4 * MB, cause="User prefetch")]
    moved += [
        _moved(200 * n, 200 * n + 10, cause="Page fault", operation=TO_HOST, address=n * MB)
        for n in (1, 2)
    ]
    db = _timeline([_kernel(100, 110)], moved)
    assert db.rows("SELECT kind FROM migration_findings") == [("on_demand",)]


def test_evictions() -> None:
    moved = [
        _moved(10, 40, cause="Eviction", operation=TO_HOST),
        _moved(40, 80, cause="Page fault", address=MB),
    ]
    db = _timeline([_kernel(0, 100)], moved)
    assert db.rows("SELECT kind, evicted_bytes FROM migration_findings") == [("evicted", MB)]
    assert db.rows("SELECT technique FROM findings") == [("fit_in_memory",)]


def test_a_store_without_causes_goes_by_the_direction() -> None:
    """As those of earlier versions."""
    moved = [
        _moved(10, 40, cause=None, address=None),
        _moved(50, 90, cause=None, address=None, operation=TO_HOST),
    ]
    db = _timeline([_kernel(0, 100)], moved)
    assert db.rows("SELECT kind, kernels FROM migration_findings") == [("on_demand", 1)]
    assert db.rows("SELECT time_ns FROM gpu_time_budget WHERE category = 'migration'") == [
        (30 * US,)
    ]


def test_few_pages_are_no_finding() -> None:
    """One short migration beside kernels that run for long."""
    assert _timeline([_kernel(0, 10_000)], [_moved(10, 11)]).rows("FROM migration_findings") == []


def test_the_host_that_reads_results_page_by_page() -> None:
    """The GPU waits for the host, which calls nothing; the migrations are a finding of their own."""
    moved = [
        _moved(100 * n, 100 * n + 1, cause="Page fault", operation=TO_HOST, address=n * MB)
        for n in range(2, 12)
    ]
    db = _timeline([_kernel(0, 100)], moved)
    budget = dict(db.rows("SELECT category, time_ns FROM gpu_time_budget WHERE time_ns > 0"))
    assert budget == {"host": 991 * US, "compute": 100 * US, "migration": 10 * US}
    assert db.rows("SELECT cause, kind, name, count, time_ns FROM idle_causes") == [
        ("host", "next operation", TO_HOST, 10, 991 * US)
    ]
    ((idle_pct,),) = db.rows("SELECT idle_pct FROM migration_findings")
    assert idle_pct == pytest.approx(100 * 991 / 1101)
    assert {row[0] for row in db.rows("SELECT claim FROM findings")} == {"host", "unified_memory"}


def test_bandwidth_of_migrations_is_that_of_the_link() -> None:
    db = _timeline([_kernel(0, 100)], [_moved(10, 90)])
    ((link, covered),) = db.rows("SELECT link, covered_pct FROM memory_op_summary")
    assert (link, covered) == ("PCIe", 100)
