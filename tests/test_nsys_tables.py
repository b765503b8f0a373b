from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Opened

from perfpipe.analysis.session import Session
from perfpipe.ingest.nsys import sqlite_export
from perfpipe.ingest.outcome import Outcome
from perfpipe.ingest.reading import ingest
from perfpipe.manifest import Manifest
from perfpipe.model import tables
from perfpipe.store import Store
from perfpipe.tablewriter import TableWriter

Expand = Callable[[str], Path]


def _rows(store: Store, report: str, table: str) -> list[tuple[Any, ...]]:
    path = store.table_path(report, table)
    if not path.exists():
        return []
    columns = pq.read_table(path).drop_columns(["report_id"])
    return list(zip(*(column.to_pylist() for column in columns.columns), strict=True))


def _all_tables(store: Store, report: str) -> dict[str, list[tuple[Any, ...]]]:
    return {name: _rows(store, report, name) for name in store.manifest(report).tables}


@pytest.fixture
def arrowdir(expand: Expand, tmp_path: Path) -> Path:
    """The parquetdir capture as nsys writes an arrowdir: one Arrow stream a table."""
    target = tmp_path / "arrowdir"
    target.mkdir()
    for file in expand("nsys/gpumetrics_parquetdir").glob("*.parquet"):
        table = pq.read_table(file)
        path = str(target / f"{file.stem}.arrow")
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=1000)
    return target


def test_sqlite_parquetdir_and_arrowdir_give_identical_tables(
    expand: Expand, arrowdir: Path, store: Store
) -> None:
    reports = [
        ingest(path, store).report_id
        for path in (
            expand("nsys/gpumetrics.sqlite"),
            expand("nsys/gpumetrics_parquetdir"),
            arrowdir,
        )
    ]
    first, *others = [_all_tables(store, report) for report in reports]
    assert len(set(reports)) == 3
    assert {name: len(rows) for name, rows in first.items()}["nsys_gpu_metrics"] == 13398
    for other in others:
        assert other == first


def test_ranges_read_in_parts_are_those_read_at_once(
    expand: Expand, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = expand("nsys/ddp_comm_rank0.sqlite")
    whole = ingest(path, store)
    monkeypatch.setattr(sqlite_export, "_LONG", 1)
    parts = Store(tmp_path / "in parts")
    assert ingest(path, parts).rows == whole.rows
    # Domains, payloads and names that only later parts know are among them.
    assert _all_tables(parts, whole.report_id) == _all_tables(store, whole.report_id)


def test_counts_are_those_of_the_export(expand: Expand, store: Store) -> None:
    report = ingest(expand("nsys/eager_small.sqlite"), store).report_id
    counts = {name: table.rows for name, table in store.manifest(report).tables.items()}
    assert counts["nsys_kernels"] == 7080
    assert counts["nsys_memory_ops"] == 500 + 320
    assert counts["nsys_api_calls"] == 17402
    assert counts["nsys_osrt"] == 84
    assert counts["nsys_nvtx_ranges"] == 80
    assert counts["launches"] == 7080 + 820


def test_facts_of_the_capture(expand: Expand, store: Store) -> None:
    report = ingest(expand("nsys/eager_small.sqlite"), store).report_id
    facts = store.manifest(report).facts
    assert facts.tool_version == "2025.3.2.0"
    assert facts.export_schema == "3.20.3"
    assert facts.gpu == "NVIDIA H200"
    assert facts.sm_count == 132
    assert facts.command == "python3 train.py eager_small"
    assert facts.captured_at == "2026-11-20T12:00:58Z"


def _brute_force_launches(path: Path) -> Iterator[tuple[int, int, str, int | None]]:
    """Join on (process, correlation id) with dictionaries, straight from the export."""
    mask = 0xFFFFFF
    with sqlite3.connect(path) as con:
        calls = {
            ((tid >> 24) & mask, correlation): (tid & mask, start)
            for tid, correlation, start in con.execute(
                "SELECT globalTid, correlationId, start FROM CUPTI_ACTIVITY_KIND_RUNTIME"
            )
        }
        for table in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"):
            for start, pid, correlation in con.execute(
                f"SELECT start, globalPid, correlationId FROM CUPTI_ACTIVITY_KIND_{table}"
            ):
                call = calls.get(((pid >> 24) & mask, correlation))
                yield start, (pid >> 24) & mask, table, call and call[1]


@pytest.mark.parametrize("name", ["ddp_single", "graph_node", "graph_whole", "memcpy"])
def test_launches_against_brute_force(name: str, expand: Expand, opened: Opened) -> None:
    """ddp_single holds two processes whose correlation ids collide."""
    kinds = {"kernel": "KERNEL", "memcpy": "MEMCPY", "memset": "MEMSET", "graph": "GRAPH_TRACE"}
    with opened(f"nsys/{name}.sqlite") as con:
        rows = con.execute("SELECT start_ns, pid, kind, api_start_ns FROM launches").fetchall()
    found = sorted((s, p, kinds[k], a) for s, p, k, a in rows)
    assert found == sorted(_brute_force_launches(expand(f"nsys/{name}.sqlite")))


def test_a_graph_launch_owns_many_kernels(opened: Opened) -> None:
    with opened("nsys/graph_node.sqlite") as con:
        per_call = con.execute(
            "SELECT count(*) FROM launches GROUP BY pid, correlation_id ORDER BY 1"
        ).fetchall()
    assert per_call == [(395,)] * 20


def test_whole_graphs_are_flagged(captures: Store, ingested: Callable[[str], str]) -> None:
    manifest = captures.manifest(ingested("nsys/graph_whole.sqlite"))
    assert any("traced as a whole" in warning for warning in manifest.warnings)
    assert manifest.tables["nsys_graph_launches"].rows == 20


def _gaps(manifest: Manifest) -> dict[tuple[str, str], str]:
    return {(gap.table, gap.column): gap.reason for gap in manifest.missing}


def test_missing_tables_are_gaps_with_a_reason(edited: Callable[..., Path], store: Store) -> None:
    path = edited(
        "memcpy",
        "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL",
        "DROP TABLE NVTX_EVENTS",
        "DROP TABLE DIAGNOSTIC_EVENT",
        "DROP TABLE TARGET_INFO_GPU",
        "DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME",
    )
    outcome = ingest(path, store)
    gaps = _gaps(store.manifest(outcome.report_id))
    assert gaps["nsys_kernels", ""].startswith("CUPTI_ACTIVITY_KIND_KERNEL is not in the export")
    assert "annotate the program" in gaps["nsys_nvtx_ranges", ""]
    assert ("nsys_gpus", "") in gaps
    assert any("15 of 15 GPU operations have no launching API call" in w for w in outcome.warnings)
    with Session.open(store) as con:
        assert con.execute("SELECT count(*) FROM nsys_kernels").fetchone() == (0,)
        assert con.execute("SELECT count(*), count(api_name) FROM launches").fetchone() == (15, 0)


def test_missing_columns_of_older_schemas_are_null(
    edited: Callable[..., Path], store: Store
) -> None:
    table = "CUPTI_ACTIVITY_KIND_KERNEL"
    path = edited(
        "memcpy",
        *(
            f"ALTER TABLE {table} DROP COLUMN {column}"
            for column in ("greenContextId", "mangledName", "graphNodeId", "sharedMemoryExecuted")
        ),
        "ALTER TABLE NVTX_EVENTS DROP COLUMN textId",
        "DROP TABLE ENUM_CUDA_KERNEL_LAUNCH_TYPE",
    )
    report = ingest(path, store).report_id
    gaps = _gaps(store.manifest(report))
    assert gaps["nsys_kernels", "mangled"] == f"{table} in this export has no column mangledName"
    with Session.open(store) as con:
        row = con.execute(
            "SELECT mangled, graph_node_id, launch_type, registers FROM nsys_kernels LIMIT 1"
        ).fetchone()
        names = con.execute("SELECT DISTINCT name FROM nsys_nvtx_ranges ORDER BY 1").fetchall()
    assert row == (None, None, "Regular", 32)
    assert names[0] == ("step 0",)


def test_nvtx_text_may_be_registered(edited: Callable[..., Path], store: Store) -> None:
    path = edited(
        "memcpy",
        "INSERT INTO StringIds VALUES (99999, 'registered')",
        "UPDATE NVTX_EVENTS SET text = NULL, textId = 99999 WHERE text = 'step 0'",
        "UPDATE NVTX_EVENTS SET \"end\" = NULL WHERE text = 'step 4'",
    )
    ingest(path, store)
    with Session.open(store) as con:
        rows = con.execute(
            "SELECT name, end_ns IS NULL, depth FROM nsys_nvtx_ranges ORDER BY start_ns"
        )
        found = rows.fetchall()
    assert found[0] == ("registered", False, 0)
    assert found[-1] == ("step 4", True, 0)


def test_domains_belong_to_their_process(opened: Opened) -> None:
    with opened("nsys/ddp_single.sqlite") as con:
        rows = con.execute(
            "SELECT domain, count(DISTINCT pid), count(*) FROM nsys_nvtx_ranges GROUP BY domain"
        ).fetchall()
    assert {domain for domain, _, _ in rows} == {None, "NCCL"}
    assert all(processes == 2 for _, processes, _ in rows)


def test_negative_global_ids(edited: Callable[..., Path], store: Store) -> None:
    """The top byte of a global id may set the sign bit; process and thread stay the same."""
    flip = -(2**63)
    tables = {
        "CUPTI_ACTIVITY_KIND_KERNEL": "globalPid",
        "CUPTI_ACTIVITY_KIND_MEMCPY": "globalPid",
        "CUPTI_ACTIVITY_KIND_RUNTIME": "globalTid",
        "NVTX_EVENTS": "globalTid",
    }
    plain = ingest(edited("memcpy"), store).report_id
    before = {t: _rows(store, plain, t) for t in ("launches", "nsys_api_calls", "nsys_nvtx_ranges")}
    path = edited("memcpy", *(f"UPDATE {t} SET {c} = {c} | {flip}" for t, c in tables.items()))
    with sqlite3.connect(path) as con:
        assert (
            con.execute("SELECT max(globalPid) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()[0] < 0
        )
    report = ingest(path, store).report_id
    assert {t: _rows(store, report, t) for t in before} == before


def test_unsorted_events_are_sorted(edited: Callable[..., Path], store: Store) -> None:
    plain = ingest(edited("memcpy"), store).report_id
    before = _all_tables(store, plain)
    statements = []
    for table in ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS"):
        statements += [
            f"CREATE TABLE reversed AS SELECT * FROM {table} ORDER BY start DESC",
            f"DELETE FROM {table}",
            f"INSERT INTO {table} SELECT * FROM reversed",
            "DROP TABLE reversed",
        ]
    report = ingest(edited("memcpy", *statements), store).report_id
    assert report != plain
    assert _all_tables(store, report) == before


def test_a_bad_cell_costs_that_cell_only(edited: Callable[..., Path], store: Store) -> None:
    path = edited(
        "memcpy",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET gridX = 'abc' WHERE correlationId = 88",
    )
    outcome = ingest(path, store)
    with Session.open(store) as con:
        rows = con.execute("SELECT count(*), count(grid_x), count(grid_y) FROM nsys_kernels")
        assert rows.fetchone() == (10, 9, 10)
    assert any("gridX (not a size)" in warning for warning in outcome.warnings)


def test_a_bad_cell_behind_the_first_batch(
    edited: Callable[..., Path], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_export, "BATCH", 4)
    path = edited(
        "memcpy",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET gridX = 'abc' "
        "WHERE start = (SELECT max(start) FROM CUPTI_ACTIVITY_KIND_KERNEL)",
    )
    ingest(path, store)
    with Session.open(store) as con:
        rows = con.execute(
            "SELECT count(*), count(grid_x), count(DISTINCT start_ns) FROM nsys_kernels"
        )
        assert rows.fetchone() == (10, 9, 10)


def test_environment_variables_are_dropped_but_for_the_allow_list(
    edited: Callable[..., Path], store: Store
) -> None:
    path = edited(
        "memcpy",
        """INSERT INTO META_DATA_CAPTURE VALUES
           ('PROCESS_0:ENVIRONMENT_VARIABLE', 'RANK="3"'),
           ('PROCESS_0:ENVIRONMENT_VARIABLE', 'AWS_SECRET_ACCESS_KEY="hunter2"'),
           ('PROCESS_0:USER_NAME', 'somebody')""",
        """INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES
           (1, 'Local', 'DeviceEnvironment', 610, 'WORLD_SIZE=8;TOKEN=hunter2')""",
    )
    report = ingest(path, store).report_id
    with Session.open(store) as con:
        rows = con.execute(
            "SELECT name, value FROM nsys_environment WHERE source = 'variable' ORDER BY 1"
        ).fetchall()
    assert rows == [("RANK", "3"), ("WORLD_SIZE", "8")]
    stored = (
        b"".join(path.read_bytes() for path in (store.reports_dir / report).iterdir())
        + repr(_all_tables(store, report)).encode()
    )
    assert b"hunter2" not in stored
    assert b"somebody" not in stored


def test_mpi_calls(edited: Callable[..., Path], store: Store) -> None:
    """No capture here has MPI; the rows follow NVIDIA's schema."""
    thread = 281502306797149
    pid, tid = (thread >> 24) & 0xFFFFFF, thread & 0xFFFFFF
    path = edited(
        "memcpy",
        "INSERT INTO StringIds VALUES (90001, 'MPI_Send'), (90002, 'MPI_Allreduce'), "
        "(90003, 'MPI_Wait'), (90004, 'MPI_Init')",
        f"INSERT INTO MPI_RANKS VALUES ({thread}, 5)",
        "INSERT INTO MPI_COMMUNICATORS VALUES (5, 1, 42, NULL, 5, 8, 0, 0, '0,1,2,3,4,5,6,7')",
        f"INSERT INTO MPI_P2P_EVENTS VALUES (10, 30, {thread}, 90001, 42, 7, 3, 4096, NULL)",
        f"INSERT INTO MPI_COLLECTIVES_EVENTS VALUES (40, 90, {thread}, 90002, 42, 0, 64, 64, NULL)",
        f"INSERT INTO MPI_START_WAIT_EVENTS VALUES (91, NULL, {thread}, 90003, 1)",
        f"INSERT INTO MPI_OTHER_EVENTS VALUES (1, 2, {thread}, 90004)",
    )
    report = ingest(path, store).report_id
    assert _rows(store, report, "mpi_ranks") == [(pid, tid, 5)]
    assert _rows(store, report, "mpi_p2p") == [(pid, tid, "MPI_Send", 10, 30, 20, 42, 7, 3, 4096)]
    assert _rows(store, report, "mpi_collectives") == [
        (pid, tid, "MPI_Allreduce", 40, 90, 50, 42, 0, 64, 64)
    ]
    assert _rows(store, report, "mpi_start_wait") == [(pid, tid, "MPI_Wait", 91, None, None)]
    assert _rows(store, report, "mpi_other") == [(pid, tid, "MPI_Init", 1, 2, 1)]
    assert _rows(store, report, "mpi_communicators") == [(5, 1, 42, None, 5, 8, "0,1,2,3,4,5,6,7")]


def test_an_empty_capture_is_warned_of(edited: Callable[..., Path], store: Store) -> None:
    tables = ("KERNEL", "MEMCPY", "MEMSET")
    path = edited("memcpy", *(f"DELETE FROM CUPTI_ACTIVITY_KIND_{t}" for t in tables))
    outcome: Outcome = ingest(path, store)
    assert "the capture has no GPU work" in outcome.warnings


def test_each_text_of_a_row_group_is_stored_once(tmp_path: Path) -> None:
    """Batches come with dictionaries of their own, and Parquet writes texts in full from then on."""
    names = [f"kernel {number} {'x' * 1000}" for number in range(4)]
    with TableWriter(tmp_path, tables()["nsys_kernels"], "r") as writer:
        for name in names:
            writer.write({"name": pa.array([name] * 500).dictionary_encode()}, 500)
        writer.close()
    with pq.ParquetFile(writer.path) as file:
        assert file.read(["name"])["name"].to_pylist() == [n for n in names for _ in range(500)]
        group = file.metadata.row_group(0)
        column = group.column(file.schema_arrow.names.index("name"))
        assert column.total_uncompressed_size < 2 * sum(map(len, names))
