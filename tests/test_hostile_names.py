"""Files, folders and names that others chose: no reader waits, leaves its folder, or breaks a line."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT

from perfpipe.errors import InputError, StoreError, brief
from perfpipe.ingest import inputs
from perfpipe.ingest.finding import expand_paths
from perfpipe.ingest.reading import ingest
from perfpipe.ingest.scrub import scrub_file
from perfpipe.pipelines.cli import run_cli
from perfpipe.pipelines.recording import load_recording
from perfpipe.store import Store
from perfpipe.verify import verify

Expand = Callable[[str], Path]


def test_pipes_and_circles_of_links(expand: Expand, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "below").mkdir(parents=True)
    os.mkfifo(folder / "pipe.sqlite")
    for name in ("a", "b"):
        (folder / "below" / name).symlink_to(folder)
    report = folder / "below" / "memcpy.sqlite"
    with pytest.raises(InputError, match="no report in this directory"):
        expand_paths([str(folder)])
    shutil.copy(expand("nsys/memcpy.sqlite"), report)
    assert expand_paths([str(folder)]) == [report]
    with pytest.raises(InputError, match="not a regular file"):
        inputs.identify(folder / "pipe.sqlite")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="a file that cannot be read")
def test_what_the_operating_system_makes_is_refused_at_once(tmp_path: Path) -> None:
    for folder in ("/proc", "/proc/self", "/sys", "/dev"):
        (tmp_path / folder[1:].replace("/", "-")).symlink_to(folder)
        with pytest.raises(InputError, match=f"^{folder}: a directory of the operating system"):
            expand_paths([folder])
    with pytest.raises(InputError, match="no report in this directory"):
        expand_paths([str(tmp_path)])
    with pytest.raises(InputError, match=r"^cannot read /proc/self/mem: Input/output error$"):
        inputs.identify(Path("/proc/self/mem"))


def test_an_empty_directory_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert run_cli(["ingest", str(tmp_path / "empty"), "--store", str(tmp_path / "s")]) == 2
    assert "no report in this directory" in capsys.readouterr().err


def test_file_names_that_are_no_utf_8(expand: Expand, tmp_path: Path, store: Store) -> None:
    path = Path(os.fsdecode(bytes(tmp_path) + b"/caf\xe9.sqlite"))
    try:
        shutil.copy(expand("nsys/memcpy.sqlite"), path)
    except OSError as error:
        if error.errno == errno.EILSEQ:
            pytest.skip("this file system has no such names")
        raise
    manifest = store.manifest(ingest(path, store).report_id)
    assert manifest.source_name == r"caf\xe9.sqlite"
    assert [fault for _, fault in verify(store) if fault] == []


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("version: 1\0", "not YAML"),
        ("tasks: [{params: {}, files: [%s]}]" % ("k" * 10_000), "is not a valid file name"),
        ('tasks: [{params: {}, files: ["a\\0b"]}]', "is not a valid file name"),
    ],
)
def test_damaged_recordings(content: str, sentence: str, tmp_path: Path) -> None:
    head = "version: 1\nworkload: w\ngpu: g\ncaptured_at: '2026-01-01'\n"
    path = tmp_path / "recording.yaml"
    path.write_text((head if content.startswith("tasks") else "") + content)
    with pytest.raises(InputError, match=sentence) as caught:
        load_recording(tmp_path)
    said = str(caught.value).removeprefix(f"{path}")
    assert said.isprintable()
    assert len(said) < 300


@pytest.mark.parametrize("name", ["../outside.sqlite", "{outside}", "link.sqlite"])
def test_recordings_name_files_of_their_own(name: str, tmp_path: Path) -> None:
    directory = tmp_path / "recording"
    directory.mkdir()
    outside = tmp_path / "outside.sqlite"
    outside.write_bytes(b"x")
    (directory / "link.sqlite").symlink_to(outside)
    (directory / "recording.yaml").write_text(
        "version: 1\nworkload: w\ngpu: g\ncaptured_at: 2026-01-01\n"
        f"tasks: [{{params: {{}}, files: ['{name.format(outside=outside)}']}}]\n"
    )
    with pytest.raises(InputError, match="is not in the recording"):
        load_recording(directory)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
def test_scrubbing_onto_a_full_disk_blames_the_disk(expand: Expand) -> None:
    with pytest.raises(StoreError, match="cannot write /dev/full"):
        scrub_file(expand("nsys/memcpy.sqlite"), Path("/dev/full"))


def test_examples_are_copied_whole_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(_: Path, target: Path) -> None:
        target.write_bytes(b"x")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    monkeypatch.setattr("perfpipe.pipelines.commands.init.shutil.copyfile", full)
    assert run_cli(["init", str(tmp_path / "mine")]) == 2
    said = capsys.readouterr().err
    assert re.search(rf"cannot write {re.escape(str(tmp_path))}/mine/\S+: No space", said)
    assert list((tmp_path / "mine").iterdir()) == []


def test_a_terminal_without_the_characters(expand: Expand, tmp_path: Path) -> None:
    """What it cannot show is spelled out."""
    path = tmp_path / "a\u2192b.csv"
    shutil.copy(expand("ncu/live_stdout.csv"), path)
    words = [sys.executable, "-m", "perfpipe", "ingest", str(path), "--store", str(tmp_path / "s")]
    env = {**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    assert r"a\u2192b.csv" in done.stdout


@pytest.mark.parametrize("text", ["a\x1b[31mb", "two\nlines", "\u202etxt", "k" * 10**7, "\ud800"])
def test_what_errors_repeat_is_one_printable_line(text: str) -> None:
    assert brief(text).isprintable()
    assert len(brief(text)) < 130


def test_arguments_that_are_not_utf8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, word = tmp_path / "store", os.fsdecode(b"q\xfe")
    program = ["sh", "-c", 'printf "%s" "$1"', "x", word]
    page = str(tmp_path / "page.md")
    pages = ["--md", page, "--html", str(tmp_path / "page.html")]
    words = ["run", "--collector", "timing", "--store", str(store), *pages, "--", *program]
    assert run_cli(words) == 0
    (run,) = Store(store).runs()
    assert run.words == (*program,)
    assert run_cli(["query", "--store", str(store), "SELECT status FROM runs"]) == 0
    assert "done" in capsys.readouterr().out


def test_a_store_whose_path_is_not_utf8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / os.fsdecode(b"q\xfe")
    assert run_cli(["ingest", "--store", str(path), str(ROOT / "README.md")]) == 2
    assert r"q\xfe: this path is not UTF-8" in capsys.readouterr().err
    assert not path.exists()
