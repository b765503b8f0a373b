"""Exports of nsys 2020 to 2022: no labels, other names of tables and columns, texts of any bytes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import DATA, Cli

from perfpipe.analysis.report.facts import gpus_of
from perfpipe.analysis.session import Session
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store

Edited = Callable[..., Path]

#: What an export of 2022 lacks or names differently.
OLD = (
    "ALTER TABLE META_DATA_EXPORT RENAME TO EXPORT_META_DATA",
    "DROP TABLE META_DATA_CAPTURE",
    "DROP TABLE ENUM_CUDA_MEMCPY_OPER",
    "DROP TABLE ENUM_CUDA_MEM_KIND",
    "DROP TABLE ENUM_NSYS_EVENT_CLASS",
    "DROP TABLE ENUM_CUPTI_SYNC_TYPE",
    "DROP TABLE ENUM_DIAGNOSTIC_SEVERITY_LEVEL",
)

LABELS = """
    SELECT DISTINCT operation, src_kind, dst_kind FROM nsys_memory_ops
    UNION ALL SELECT DISTINCT api, NULL, NULL FROM nsys_api_calls
    UNION ALL SELECT DISTINCT type, NULL, NULL FROM nsys_syncs
    UNION ALL SELECT DISTINCT severity, NULL, NULL FROM nsys_diagnostics
    ORDER BY ALL
"""


def test_values_without_labels_in_the_export_have_those_of_later_exports(
    edited: Edited, expand: Callable[[str], Path], store: Store
) -> None:
    new = ingest(expand("nsys/memcpy.sqlite"), store).report_id
    old = ingest(edited("memcpy", *OLD), store).report_id
    kept, found = store.manifest(new), store.manifest(old)
    assert found.facts.tool_version == kept.facts.tool_version
    assert found.facts.export_schema == kept.facts.export_schema
    assert found.warnings == kept.warnings
    labels = []
    for report in (new, old):
        with Session.open(store, [report]) as con:
            labels.append(con.execute(LABELS).fetchall())
    assert labels[0] == labels[1]


@pytest.mark.parametrize(
    "columns", ["vmId, id AS deviceId, name, smCount, cuDevice", "name, smCount"]
)
def test_the_table_of_gpus_need_not_number_them(columns: str, edited: Edited, store: Store) -> None:
    path = edited(
        "memcpy",
        f"CREATE TABLE other AS SELECT {columns} FROM TARGET_INFO_GPU ORDER BY id",
        "DROP TABLE TARGET_INFO_GPU",
        "ALTER TABLE other RENAME TO TARGET_INFO_GPU",
    )
    facts = store.manifest(ingest(path, store).report_id).facts
    assert (facts.gpu, facts.sm_count) == ("NVIDIA H200", 132)


def test_the_table_of_gpus_of_2021_is_read(cli: Cli, tmp_path: Path) -> None:
    path = DATA / "field" / "nsys" / "33_gpu_table_2021.sqlite.xz"
    assert cli("report", path, "--md", "report.md") == 0, cli.err
    assert "the GPU is busy for 11 % of that time" in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize("name", ["''", "NULL"])
def test_a_gpu_without_a_name_leaves_no_comma(name: str, edited: Edited, store: Store) -> None:
    path = edited("memcpy", f"UPDATE TARGET_INFO_GPU SET name = {name}, smCount = 304")
    report = ingest(path, store).report_id
    with Session.open(store) as session:
        session.use("_used_gpus")
        assert gpus_of(session.con, [report]) == ["304 SMs"]


def test_a_user_name_may_be_part_of_a_word_of_the_schema(edited: Edited, cli: Cli) -> None:
    path = edited(
        "memcpy", "INSERT INTO META_DATA_CAPTURE (name, value) VALUES ('CAPTURE', '/home/tim/run')"
    )
    assert cli("scrub", path, "--to", "scrubbed.sqlite") == 0, cli.err


@pytest.mark.parametrize(
    "statements",
    [
        (*OLD, "UPDATE ThreadNames SET nameId = 99991"),
        (
            "ALTER TABLE StringIds RENAME TO Strings",
            "CREATE VIEW StringIds AS SELECT id, value FROM Strings",
            "CREATE VIEW NVTX_BROKEN AS SELECT * FROM nowhere",
        ),
        ("ALTER TABLE PROCESSES ADD COLUMN twice INTEGER GENERATED ALWAYS AS (2 * pid)",),
        ("ALTER TABLE META_DATA_CAPTURE DROP COLUMN value",),
    ],
)
def test_scrub_reads_what_ingest_reads(
    statements: tuple[str, ...], edited: Edited, store: Store, cli: Cli, tmp_path: Path
) -> None:
    text = "INSERT INTO StringIds VALUES (99991, CAST(x'74696D657FF0E9' AS TEXT))"
    path = edited("memcpy", text, *statements)
    before = store.manifest(ingest(path, store).report_id)
    assert cli("scrub", path, "--to", "scrubbed.sqlite") == 0, cli.err
    after = store.manifest(ingest(tmp_path / "scrubbed.sqlite", store).report_id)
    for table in ("nsys_kernels", "nsys_memory_ops", "nsys_api_calls", "launches"):
        assert after.tables[table].rows == before.tables[table].rows
    with sqlite3.connect(tmp_path / "scrubbed.sqlite") as con:
        # Bytes that are not UTF-8 would fail here.
        assert con.execute("SELECT count(*) FROM StringIds WHERE value = ''").fetchone() == (0,)
    con.close()
