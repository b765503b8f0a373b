"""Inputs that a fuzzer made: each is refused in a sentence, or read with what it lost said."""

from __future__ import annotations

import gzip
import json
import lzma
import re
import shutil
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from io import BytesIO
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import zstandard
from conftest import DATA, Cli

from perfpipe.analysis.session import Session
from perfpipe.errors import InputError
from perfpipe.ingest.ncu.csv_tables import extent, whole
from perfpipe.ingest.reading import ingest
from perfpipe.pipelines.ingesting import Failure, ingest_many
from perfpipe.store import Store
from perfpipe.verify import verify

Expand = Callable[[str], Path]
Edited = Callable[..., Path]

#: The longest sentence that refuses an input, without its path.
SENTENCE = 300

#: By name: what the sentence that refuses an input says.
REFUSED = {
    "1-00005-sqlite-silent.sqlite": "NULL value in VULKAN_WORKLOAD.nameId",
    "1-00006-csv-silent.csv": "duplicate column: ID",
    "1-00171-dir-traceback": "PROFILER_OVERHEAD has no column start",
    "1-00262-sqlite-longmessage.sqlite": "malformed database schema",
    "1-00370-dir-traceback": "4 of 4 rows of PROFILER_OVERHEAD have no valid start",
    "1-00425-sqlite-traceback.sqlite": "TARGET_INFO_GPU_METRICS has no column metricId",
    "1-00431-sqlite-traceback.sqlite": "export schema 2²",
    "1-00447-dir-traceback": "950 of 950 rows .* shortName that is not in StringIds",
    "1-00524-dir-traceback": r"2,472 of 2,472 rows .* correlationId \(not an integer\)",
    "1-00635-dir-traceback": "40 of 40 rows of NVTX_EVENTS have no valid globalTid",
    "1-00803-sqlite-traceback.sqlite": "SYNCHRONIZATION has no column start",
    "2-00272-sqlite-traceback.sqlite": "KERNEL has no column end",
    "2-00353-sqlite-traceback.sqlite": "export schema 2²",
    "2-00508-sqlite-longmessage.sqlite": "malformed database schema",
    "2-00795-dir-traceback": r"1 of 1 rows .* globalPid \(not an integer\)",
    "2-00921-dir-traceback": r"2,472 of 2,472 rows .* correlationId \(not an integer\)",
    "2-00965-csv-silent.csv": "rows before the header",
    "2-01424-sqlite-traceback.sqlite": "export schema ",
    "2-01715-sqlite-silent.sqlite": "NULL value in TARGET_INFO_SYSTEM_ENV.nameEnum",
    "2-01801-dir-traceback": r"70 of 70 rows .* srcDeviceId \(not an integer\)",
    "3-00076-sqlite-longmessage.sqlite": "malformed database schema",
    "3-00080-sqlite-silent.sqlite": "malformed",
    "3-00114-sqlite-silent.sqlite": "NULL value in CUPTI_ACTIVITY_KIND_BLOCK_PHASE_TRACE.BlockID",
    "3-00231-sqlite-silent.sqlite": "Page 306 is never used",
    "3-00417-sqlite-silent.sqlite": "Rowid 1683 out of order",
    # The rows of calls are those of a table that is not read, and fit its columns.
    "3-00770-sqlite-silent.sqlite": "KERNEL has rows, but CUPTI_ACTIVITY_KIND_RUNTIME .* has none",
    "5-00089-sqlite-traceback.sqlite": "rows of GPU_METRICS have a metric",
}

#: By name: rows of a table that is read, and the warning on what is not.
READ = {
    "1-00001-packed-hang.sqlite.xz": ("nsys_nvtx_ranges", 59, ""),
    "1-00122-sqlite-traceback.sqlite": ("nsys_memory_ops", 120, ""),
    "1-00347-dir-traceback": ("nsys_kernels", 950, "26 of 26 rows of DIAGNOSTIC_EVENT have no"),
    "2-00234-json-traceback.json": ("nsys_kernels", 60, "1 of 335 rows of traceEvents have no"),
    "2-00371-sqlite-traceback.sqlite": ("nsys_gpu_metrics", 60, ""),
    # The rows of two tables are exchanged, and fit the columns of both: SQLite sees no fault.
    "3-00344-sqlite-silent.sqlite": ("nsys_kernels", 3000, ""),
    "2-01754-dir-traceback": ("nsys_kernels", 950, "4 of 4 rows of ENUM_DIAGNOSTIC_SOURCE_TYPE"),
    "4-00044-ncurep-traceback.ncu-rep": ("ncu_metrics", 1832, ""),
    "4-00274-ncurep-traceback.ncu-rep": ("ncu_metrics", 1832, ""),
    "4-01315-ncurep-memory.ncu-rep": ("ncu_metrics", 1832, ""),
    "4-01863-ncurep-traceback.ncu-rep": ("ncu_metrics", 1832, ""),
}

CRASHES = "4-01380-ncurep-crash.ncu-rep"


BAD = DATA / "bad"

#: Fixtures that most inputs were made from: they are compressed as what differs from these.
BASES = (
    "nsys/eager_small.sqlite",
    "nsys/graph_node.sqlite",
    "nsys/gpumetrics.sqlite",
    "nsys/gpumetrics_parquetdir.tar",
    "ncu/visible.details.csv",
    "ncu/visible.raw.csv",
)


@pytest.fixture(scope="session")
def found(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return an input that the fuzzer found."""
    base = b"".join(lzma.decompress((DATA / f"{name}.xz").read_bytes()) for name in BASES)
    known = zstandard.ZstdCompressionDict(base, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    packed = (BAD / "found.tar.zst").read_bytes()
    content = zstandard.ZstdDecompressor(known, max_window_size=2**27).decompress(packed)
    folder = tmp_path_factory.mktemp("found")
    with tarfile.open(fileobj=BytesIO(content)) as archive:
        # Python 3.11.3 and older have neither the argument nor the filter.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    hang = folder / "1-00001-packed-hang.sqlite"
    hang.with_name(f"{hang.name}.xz").write_bytes(lzma.compress(hang.read_bytes(), preset=0))
    return lambda name: folder / name


def _sentence(error: BaseException, path: Path) -> str:
    """Return what an error says about a path, in one printable line."""
    text = str(error)
    assert text.startswith(f"{path}: ")
    said = text.removeprefix(f"{path}: ")
    assert said.isprintable()
    assert len(said) <= SENTENCE
    return said


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_found_inputs_are_refused(name: str, found: Callable[[str], Path], store: Store) -> None:
    path = found(name)
    with pytest.raises(InputError) as caught:
        ingest(path, store)
    assert re.search(REFUSED[name], _sentence(caught.value, path))
    assert store.report_ids() == []
    assert store.leftovers() == []


@pytest.mark.parametrize("name", sorted(READ))
def test_found_inputs_are_read(name: str, found: Callable[[str], Path], store: Store) -> None:
    table, rows, warning = READ[name]
    manifest = store.manifest(ingest(found(name), store).report_id)
    assert manifest.tables[table].rows == rows
    assert not warning or any(text.startswith(warning) for text in manifest.warnings)
    assert store.leftovers() == []
    assert [fault for _, fault in verify(store) if fault] == []


def test_a_crash_of_a_vendors_reader_leaves_nothing(
    found: Callable[[str], Path], store: Store
) -> None:
    path = found(CRASHES)
    (outcome,) = ingest_many([path], store, jobs=1)
    assert isinstance(outcome, Failure)
    assert "the reader crashed" in _sentence(outcome.error, path)
    assert store.leftovers() == []


@pytest.mark.parametrize(
    ("statement", "lost"),
    [
        ("SET end = start - 1 WHERE rowid <= 50", "50 of 3,480 rows .* end before they begin"),
        ("SET start = NULL, end = NULL WHERE rowid = 7", None),
        ("SET end = 1 << 62 WHERE rowid = 7", r"1 of 3,480 rows .* end \(not a time\)"),
        ("SET end = start + 400 * 86400000000000 WHERE rowid = 7", "last more than a year"),
    ],
)
def test_impossible_times_are_counted(
    statement: str, lost: str | None, edited: Edited, store: Store
) -> None:
    """They are no times; the operations stay, without an end."""
    table = "CUPTI_ACTIVITY_KIND_KERNEL"
    loose = [
        "PRAGMA writable_schema = ON",
        f"UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL', '') WHERE name = '{table}'",
        "PRAGMA writable_schema = RESET",
    ]
    path = edited("ddp_single", *loose, f"UPDATE {table} {statement}")
    with closing(sqlite3.connect(path)) as con:
        (rows,) = con.execute(f"SELECT count(*) FROM {table}").fetchone()
    manifest = store.manifest(ingest(path, store).report_id)
    left_out = int(lost is None)
    lost = lost or "1 of 3,480 rows .* have no valid start; they were skipped"
    assert manifest.tables["nsys_kernels"].rows == rows - left_out
    assert any(re.search(lost.replace("3,480", f"{rows:,}"), text) for text in manifest.warnings)
    assert 0 < manifest.lost_pct < 20


def test_events_of_an_unknown_type_are_counted(edited: Edited, store: Store) -> None:
    change = "UPDATE NVTX_EVENTS SET eventType = 999 WHERE eventType = 59 AND rowid {} 20"
    manifest = store.manifest(ingest(edited("ddp_single", change.format("=")), store).report_id)
    assert any("1 of " in text and "have an unknown type" in text for text in manifest.warnings)
    path = edited("ddp_single", change.format(">"))
    with pytest.raises(InputError, match=r"unknown type; they were skipped; this is over 20 %"):
        ingest(path, store)
    forced = store.manifest(ingest(path, store, force=True).report_id)
    assert forced.lost_pct > 20


def test_names_that_are_gone_are_counted(edited: Edited, store: Store) -> None:
    with pytest.raises(InputError, match=r"[nN]ame\w* that is not in StringIds; this is over 20 %"):
        ingest(edited("memcpy", "DELETE FROM StringIds"), store)


def test_loss_lowers_the_confidence_of_a_verdict(edited: Edited, store: Store) -> None:
    change = "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start - 1 WHERE rowid % 20 = 0"
    report = ingest(edited("ddp_single", change), store).report_id
    whole = ingest(edited("ddp_single"), store).report_id
    with Session.open(store, [report, whole]) as con:
        sql = "SELECT report_id, incomplete, confidence, explanation FROM timeline_bottleneck"
        told = {row[0]: row[1:] for row in con.execute(sql).fetchall()}
    assert told[report][:2] == (True, "low")
    assert "5.0 % of the rows in one table of the file are lost or damaged" in told[report][2]
    assert not told[whole][0]


def test_details_cut_within_a_row_are_refused(expand: Expand, tmp_path: Path, store: Store) -> None:
    lines = expand("ncu/visible.details.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    path = tmp_path / "cut.csv"
    middle = len(lines) // 2
    cut = '","'.join(lines[middle].split('","')[:9])
    path.write_text("".join(lines[:middle]) + cut + '"\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"has 9 of \d+ cells \(the last row is truncated\)"):
        ingest(path, store)
    path.write_text("".join([*lines[:middle], cut + '"\n', *lines[middle:]]), encoding="utf-8")
    with pytest.raises(InputError, match=rf"row {middle:,} of {len(lines):,} has 9 of"):
        ingest(path, store)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda row: row[1:], "a line has only a part of a row"),
        (lambda row: row[len(row) // 2 :].lstrip('"'), "a line has only a part of a row"),
        (lambda row: row[: len(row) // 2].rstrip('"'), "truncated|damaged CSV"),
    ],
)
def test_rows_of_which_a_part_is_left(
    change: Callable[[str], str],
    sentence: str,
    packed: bool,
    expand: Expand,
    tmp_path: Path,
    store: Store,
) -> None:
    """They do not pass for output of the program; the file is told by the name that it has."""
    lines = expand("ncu/visible.details.csv").read_text(encoding="utf-8").splitlines()
    rule = next(at for at, line in enumerate(lines) if line.endswith('.","",""'))
    lines[rule] = change(lines[rule])
    path = tmp_path / ("input.csv.gz" if packed else "input.csv")
    content = "\n".join([*lines, ""]).encode()
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(InputError, match=sentence) as caught:
        ingest(path, store)
    _sentence(caught.value, path)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda lines: [*lines, lines[5]], "scattered rows of launch 0"),
        (lambda lines: [*lines, lines[5].replace('"0"', '""', 1)], "rows without a launch ID"),
        (lambda lines: [*lines, '384.56",'], "a line has only a part of a row"),
    ],
)
def test_rows_of_a_launch_follow_one_another(
    change: Callable[[list[str]], list[str]],
    sentence: str,
    expand: Expand,
    tmp_path: Path,
    store: Store,
) -> None:
    lines = expand("ncu/visible.details.csv").read_text(encoding="utf-8").splitlines()
    path = tmp_path / "input.csv"
    path.write_text("\n".join([*change(lines), ""]), encoding="utf-8")
    with pytest.raises(InputError, match=sentence) as caught:
        ingest(path, store)
    _sentence(caught.value, path)


def test_a_column_that_is_shorter_than_its_table(
    expand: Expand, tmp_path: Path, store: Store
) -> None:
    """A page that is damaged ends its column, and the reader tells no rows at all."""
    directory = tmp_path / "export"
    shutil.copytree(expand("nsys/gpumetrics_parquetdir"), directory, copy_function=shutil.copyfile)
    file = directory / "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION.parquet"
    file.write_bytes(lzma.decompress((BAD / "short_column.parquet.xz").read_bytes()))
    with pytest.raises(InputError, match=r"damaged or truncated \(only 0 of 1 rows can be read\)"):
        ingest(directory, store)


@pytest.mark.parametrize("ids", [{"pid": 1 << 31, "tid": 1}, {"pid": 1, "tid": 1 << 64}])
def test_ids_that_do_not_fit_are_counted(ids: dict[str, int], tmp_path: Path, store: Store) -> None:
    call = {"ph": "X", "cat": "cpu_op", "name": "f", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [*[call] * 9, call | ids]}))
    manifest = store.manifest(ingest(path, store).report_id)
    assert manifest.tables["nsys_nvtx_ranges"].rows == 9
    assert any("1 of 10 rows of traceEvents have no valid" in w for w in manifest.warnings)


def test_categories_that_are_no_texts(tmp_path: Path, store: Store) -> None:
    kernel = {"ph": "X", "name": "k", "pid": 0, "tid": 7, "ts": 1.5, "dur": 2, "args": {}}
    events = [kernel | {"cat": "kernel"} for _ in range(9)]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [*events, kernel | {"cat": 1e308}]}))
    manifest = store.manifest(ingest(path, store).report_id)
    assert manifest.tables["nsys_kernels"].rows == 9
    said = "1 of 10 rows of traceEvents have no valid category; they were skipped"
    assert said in manifest.warnings
    assert manifest.lost_pct == 10


def test_values_beyond_64_bits_are_no_numbers() -> None:
    assert [whole(cell) for cell in ("9" * 30, "9" * 5000, "\uff11", "1,000", "-7")] == [
        None, None, None, 1000, -7,
    ]  # fmt: skip
    assert extent(f"({'9' * 30}, 1, 1)") is None
    assert extent("(2, 1, 1)") == (2, 1, 1)


def test_a_kernel_name_of_any_length_is_stored_whole(
    expand: Expand, tmp_path: Path, store: Store
) -> None:
    name = "k" * 300_000
    text = expand("ncu/visible.raw.csv").read_text(encoding="utf-8")
    path = tmp_path / "long.csv"
    path.write_text(text.replace("fp64_fma(double *, int)", name), encoding="utf-8")
    report = ingest(path, store).report_id
    with Session.open(store, [report]) as con:
        (found,) = con.execute("SELECT max(length(kernel_name)) FROM ncu_launches").fetchone() or ()
    assert found == len(name)


def test_an_export_without_rows_to_sort(expand: Expand, tmp_path: Path, store: Store) -> None:
    directory = tmp_path / "export"
    shutil.copytree(expand("nsys/gpumetrics_parquetdir"), directory, copy_function=shutil.copyfile)
    for kind in ("MEMCPY", "MEMSET"):
        file = directory / f"CUPTI_ACTIVITY_KIND_{kind}.parquet"
        pq.write_table(pq.read_table(file).slice(0, 0), file)
    assert "nsys_memory_ops" not in store.manifest(ingest(directory, store).report_id).tables


def test_a_csv_that_ends_in_nuls_is_refused(cli: Cli, tmp_path: Path) -> None:
    """A file system may leave it so after a crash: of 15 launches 6 are whole."""
    packed = DATA / "field" / "ncu" / "14_ends_in_nuls.csv.xz"
    content = lzma.decompress(packed.read_bytes())
    (tmp_path / "nul.csv").write_bytes(content)
    for path in (packed, tmp_path / "nul.csv"):
        assert cli("ingest", path) == 2
        assert f"{path}: truncated (the last 161,725 of 415,554 bytes are NUL" in cli.err
        assert cli("ingest", "--force", path) == 2
    assert not list((tmp_path / "store" / "reports").glob("*"))


@pytest.mark.parametrize("page", ["raw", "details", "source"])
def test_nuls_within_a_csv_are_refused_or_counted(
    page: str, expand: Expand, store: Store, tmp_path: Path
) -> None:
    lines = expand(f"ncu/visible.{page}.csv").read_bytes().splitlines(keepends=True)
    middle = len(lines) // 2
    path = tmp_path / "nul.csv"

    def write(line: bytes) -> Path:
        path.write_bytes(b"".join([*lines[:middle], line, *lines[middle + 1 :]]))
        return path

    kept = lines[middle].rstrip(b"\r\n")
    with pytest.raises(InputError, match=r"damaged CSV \(20 NUL bytes within a row"):
        ingest(write(kept[:10] + bytes(20) + kept[30:] + b"\n"), store)
    manifest = store.manifest(ingest(write(bytes(50) + b"\n"), store).report_id)
    assert any("50 NUL bytes between the rows" in said for said in manifest.warnings)
