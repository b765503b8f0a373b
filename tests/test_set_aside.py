"""A report that cannot be read is set aside by name; every other one answers."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Cli

from perfpipe.compaction import compact
from perfpipe.store import Store

Stored = Callable[..., list[str]]
Damage = Callable[[Store, str, str], object]

#: Commands that read every report of a store, and two whose answers are compared.
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("report", "--md", "report.md"),
    ("report", "--findings"),
    ("budget",),
)
QUERY = ("query", "FROM timeline_bottleneck", "--format", "csv")
LIST = ("store", "ls")


def _manifest(store: Store, report: str) -> Path:
    return store.reports_dir / report / "manifest.json"


def _edit_manifest(store: Store, report: str, **changes: object) -> None:
    path = _manifest(store, report)
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def _newer(store: Store, report: str, _: str) -> None:
    _edit_manifest(store, report, schema_version=99)


def _foreign(store: Store, report: str, other: str) -> None:
    _edit_manifest(store, report, report_id=other)


def _mistyped(store: Store, report: str, _: str) -> None:
    _edit_manifest(store, report, facts={"sm_count": 10**19})


def _cut(store: Store, report: str, _: str) -> None:
    path = store.table_path(report, "launches")
    path.write_bytes(path.read_bytes()[:-100])


def _zeroed(store: Store, report: str, _: str) -> None:
    """Keep the size of a file, as a file system may that lost its blocks."""
    path = store.table_path(report, "launches")
    content = path.read_bytes()
    path.write_bytes(content[:4] + bytes(len(content) - 12) + content[-8:])


def _rewrite(store: Store, report: str, column: str, change: Callable[[int], int]) -> None:
    """Change a column of `launches`, and make the manifest agree."""
    path = store.table_path(report, "launches")
    rows = pq.read_table(path)
    values = [change(value) for value in rows[column].to_pylist()]
    at = rows.schema.get_field_index(column)
    pq.write_table(rows.set_column(at, rows.schema.field(at), pa.array(values, pa.int64())), path)
    content = path.read_bytes()
    tables = json.loads(_manifest(store, report).read_text())["tables"]
    tables["launches"] |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    _edit_manifest(store, report, tables=tables)


def _beyond(store: Store, report: str, _: str) -> None:
    """Times whose differences have more than 64 bits."""
    _rewrite(store, report, "start_ns", lambda _: -(2**63) + 1)


@pytest.mark.parametrize("damage", [_newer, _foreign, _mistyped, _cut, _zeroed, _beyond])
def test_the_others_answer(
    damage: Damage, stored: Stored, store: Store, cli: Cli, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    whole, damaged = stored("nsys/h2d.sqlite", "nsys/memcpy.sqlite")
    alone: dict[tuple[str, ...], list[str]] = {}
    both: tuple[tuple[str, ...], ...] = (QUERY, LIST)
    for command in both:
        assert cli(*command) == 0
        alone[command] = [line for line in cli.out.splitlines() if damaged not in line]
    damage(store, damaged, whole)
    # A list reads manifests, not rows.
    seen = [LIST] if damage not in (_zeroed, _beyond) else []
    for command in (*COMMANDS, QUERY, *seen):
        caplog.clear()
        assert cli(*command) == 0, cli.err
        assert f"report {damaged} is skipped: " in caplog.text, command
        assert cli.out.splitlines() == alone.get(command, cli.out.splitlines())
    assert damaged in (tmp_path / "report.md").read_text()
    assert "cannot be read and is skipped" in (tmp_path / "report.md").read_text()
    assert cli("report", damaged) != 0
    assert cli.err.count("\n") == 1


@pytest.mark.parametrize("damage", [_newer, _foreign, _mistyped, _cut, _zeroed])
def test_verify_finds_what_other_commands_complain_of(
    damage: Damage, stored: Stored, store: Store, cli: Cli
) -> None:
    whole, damaged = stored("nsys/h2d.sqlite", "nsys/memcpy.sqlite")
    damage(store, damaged, whole)
    assert cli("store", "verify") == 2
    assert [line.split(":")[0] for line in cli.out.splitlines()[:-1]] == [damaged]
    assert cli.out.splitlines()[-1] == "1 intact, 1 damaged, 0 leftovers"


def test_a_run_is_reported_without_the_report_that_is_damaged(
    replayed: Callable[[str], Path], store: Store, cli: Cli, tmp_path: Path
) -> None:
    shutil.copytree(replayed("vector_add"), store.root)
    damaged, *rest = store.report_ids()
    assert rest
    _newer(store, damaged, "")
    assert cli("report", "--md", "report.md") == 0
    assert f"report {damaged} cannot be read and is skipped" in (tmp_path / "report.md").read_text()


def test_an_input_is_read_again_where_its_report_is_damaged(
    expand: Callable[[str], Path], store: Store, cli: Cli
) -> None:
    source = expand("nsys/memcpy.sqlite")
    assert cli("ingest", source) == 0
    (report,) = store.report_ids()
    for damage in (_foreign, _mistyped, _cut):
        damage(store, report, "0123456789abcdef")
        assert cli("store", "verify") == 2
        assert cli("ingest", source) == 0
        assert cli("store", "verify") == 0


def test_reports_in_a_segment_are_set_aside_too(
    stored: Stored, store: Store, cli: Cli, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a file with the right size and the wrong content."""
    stored("nsys/h2d.sqlite")
    assert compact(store, 0).segment is not None
    (segment,) = store.segments()
    path = segment.path / "launches.parquet"
    content = path.read_bytes()
    path.write_bytes(content[:4] + bytes(len(content) - 12) + content[-8:])
    (whole,) = stored("nsys/memcpy.sqlite")
    (damaged,) = segment.reports
    assert cli("report", "--md", "report.md") == 0, cli.err
    assert f"report {damaged} is skipped: segment {segment.segment_id}" in caplog.text
    assert cli("query", "SELECT DISTINCT report_id FROM launches", "--format", "csv") == 0
    assert cli.out.splitlines() == ["report_id", whole]


@pytest.mark.parametrize("cell", ["9x.0", "9", "", "-1.0", "9.0.0", "1e9"])
def test_a_damaged_compute_capability_is_null(
    cell: str, expand: Callable[[str], Path], store: Store, cli: Cli, tmp_path: Path
) -> None:
    """Kernel views, findings and reports of every report answer."""
    text = expand("ncu/visible.raw.csv").read_text()
    path = tmp_path / "hostile.csv"
    path.write_text(text.replace('"(1056, 1, 1)","0","9.0"', f'"(1056, 1, 1)","0","{cell}"', 1))
    assert cli("ingest", path, expand("ncu/ops.raw.csv")) == 0
    for view in ("kernel_bottleneck", "kernel_sol", "kernel_occupancy"):
        sql = f"SELECT count(*), count(DISTINCT report_id) FROM {view}"
        assert cli("query", sql, "--format", "csv") == 0, cli.err
        assert cli.out.splitlines()[1] == "56,2"
    assert cli("report", "--findings") == 0, cli.err
    assert cli("report", "--md", "report.md") == 0, cli.err
    said = f"1 of 15 rows of the CSV have a damaged CC ({cell!r}), read as NULL"
    warned = [warning for m in store.manifests() for warning in m.warnings]
    assert (said in warned) == (cell != "")
    assert cell == "" or said.replace("'", "") in (tmp_path / "report.md").read_text().replace(
        "'", ""
    )


def test_a_store_that_was_written_before_answers(stored: Stored, store: Store, cli: Cli) -> None:
    """A compute capability that is no number was stored as text."""
    whole, damaged = stored("ncu/visible.raw.csv", "ncu/ops.raw.csv")
    path = store.table_path(damaged, "ncu_launches")
    rows = pq.read_table(path)
    at = rows.schema.get_field_index("cc")
    cells = pa.array(["9x.0"] * len(rows))
    pq.write_table(rows.set_column(at, rows.schema.field(at), cells), path)
    tables = json.loads(_manifest(store, damaged).read_text())["tables"]
    tables["ncu_launches"]["bytes"] = path.stat().st_size
    _edit_manifest(store, damaged, tables=tables)
    sql = "SELECT DISTINCT report_id FROM kernel_bottleneck ORDER BY 1"
    assert cli("query", sql, "--format", "csv") == 0, cli.err
    assert cli.out.splitlines()[1:] == sorted((whole, damaged))
