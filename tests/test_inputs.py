from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from perfpipe.errors import InputError
from perfpipe.ingest.finding import expand_paths
from perfpipe.ingest.inputs import identify, opened

Expand = Callable[[str], Path]


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("ncu/visible.ncu-rep", "ncu-rep"),
        ("ncu/visible.raw.csv", "ncu-csv"),
        ("ncu/visible.details.csv", "ncu-csv"),
        ("ncu/live_stdout.csv", "ncu-csv"),
        ("ncu/visible.source.csv", "ncu-source-csv"),
        ("nsys/memcpy.sqlite", "nsys-sqlite"),
    ],
)
def test_the_content_tells_the_kind(name: str, form: str, expand: Expand, tmp_path: Path) -> None:
    disguised = tmp_path / "report.txt"
    disguised.symlink_to(expand(name))
    assert identify(disguised).format == form
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(expand(name).read_bytes(), 1))
    assert identify(packed).format == form


def test_export_directories_are_recognised(expand: Expand) -> None:
    assert identify(expand("nsys/gpumetrics_parquetdir")).format == "nsys-parquetdir"


def test_an_nsys_rep_is_recognised_by_its_head(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"NVIDIA Tegra Profiler Report 36398880.\n\x0bLocal (CLI)")
    assert identify(path).format == "nsys-rep"


def test_the_same_content_has_the_same_id_however_packed(expand: Expand, tmp_path: Path) -> None:
    plain = expand("nsys/memcpy.sqlite")
    packed = tmp_path / "m.sqlite.xz"
    packed.write_bytes(lzma.compress(plain.read_bytes(), preset=0))
    with opened(identify(plain)) as a, opened(identify(packed)) as b:
        assert a.report_id == b.report_id
        assert a.size == b.size


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "empty"),
        (b"\x00\x01\x02\x03" * 100, "unknown binary data"),
        (b"hello\n", "without an ncu CSV header"),
        (b"==PROF== Connected to process 1\n", "add --csv --page raw"),
        (b'{"results": []}', "JSON"),
        (b"ID;Process ID;Process Name\n", "saved again by another program"),
        (b"ID,Process ID,Process Name\n0,1,a\n", "saved again by another program"),
        (b"PAR1" + bytes(100), "give the whole directory"),
    ],
)
def test_other_content_is_refused_in_a_sentence(
    content: bytes, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "input"
    path.write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        identify(path)


def test_arguments_name_files_patterns_and_folders(expand: Expand, tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.ncu-rep").symlink_to(expand("ncu/visible.ncu-rep"))
    (folder / "deep" / "b.sqlite").symlink_to(expand("nsys/memcpy.sqlite"))
    (folder / "deep" / "export").symlink_to(expand("nsys/gpumetrics_parquetdir"))
    (folder / "notes.csv").write_text("Time (%),Total Time (ns)\n")
    (folder / "README.md").write_text("not a report")
    names = [path.name for path in expand_paths([str(folder)])]
    assert names == ["a.ncu-rep", "b.sqlite", "export"]
    assert expand_paths([str(folder / "*.ncu-rep"), str(folder / "a.ncu-rep")]) == [
        folder / "a.ncu-rep"
    ]
    with pytest.raises(InputError, match="no such file"):
        expand_paths([str(folder / "*.nothing")])
