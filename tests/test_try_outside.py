"""What launches of `perfpipe try` change or leave outside the protected directories."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from conftest import ROOT
from protected import launch, needs_overlay, settle, sha

from perfpipe.pipelines.trying import outside
from perfpipe.pipelines.trying.protecting import Protection
from perfpipe.scratch import remove_tree, sweep_scratch

pytestmark = pytest.mark.usefixtures("own_places")


def test_files_outside_are_found_and_protected_later(project: Path, tmp_path: Path) -> None:
    needs_overlay(project)
    results = tmp_path / "home" / "results"
    results.mkdir()
    (results / "old").touch()
    cache = tmp_path / "home" / ".cache" / "hub"
    cache.mkdir(parents=True)
    os.utime(results / "old", (1, 1))
    settle()
    script = (
        f"echo 1 > {results}/log; echo 2 > {cache}/model; cat {tmp_path}/temporary/no 2> /dev/null"
    )
    also: list[Path] = []
    protection = Protection(project, "overlay", also=also)
    with protection.launch() as place:
        assert launch(place, "sh", "-c", f"{script}; exit 0").ok
        assert place.outside() == (str(cache / "model"), str(results / "log"))
        assert (
            f"files in {results} changed during this launch; later launches are protected there"
            in (place.notes)
        )
    assert also == [results]
    (results / "log").unlink()
    with protection.launch() as place:
        assert launch(place, "sh", "-c", f"{script}; exit 0").ok
        assert place.outside() == (str(cache / "model"),)
        assert place.written() == {f"{results}/log": sha("1\n")}
    assert [path.name for path in results.iterdir()] == ["old"]


def test_the_search_is_limited_and_says_so(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outside, "_MOST_ENTRIES", 3)
    many = tmp_path / "home" / "many"
    many.mkdir()
    with Protection(project, "copy").launch() as place:
        for number in range(10):
            (many / str(number)).touch()
        place.outside()
        assert any("outside the working directory was ended in" in note for note in place.notes)


def test_a_copied_time_does_not_hide_a_file(tmp_path: Path) -> None:
    watch = outside.Watch([tmp_path])
    (tmp_path / "f").touch()
    os.utime(tmp_path / "f", (1, 1))
    (tmp_path / "perfpipe-own").touch()
    assert watch.changed() == [tmp_path / "f"]


def test_segments_of_ended_processes_are_removed(tmp_path: Path) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    (memory / "psm_0123").touch()
    settle()
    watch = outside.Watch()
    ended = subprocess.Popen(["true"])
    ended.wait()
    with subprocess.Popen(["sleep", "60"]) as lives:
        gone = {f"torch_{ended.pid}_1_0", "sem.mp-abc", "sem.loky-1", "psm_12ab", "nccl-Ab1"}
        stay = {f"torch_{lives.pid}_1_0", f"torch_{os.getpid()}_1_0", "torch_1_0_0", "other"}
        for name in gone | stay:
            (memory / name).touch()
        removed = watch.remove_segments(memory)
        lives.kill()
    assert {*removed} == gone
    assert {path.name for path in memory.iterdir()} == {*stay, "psm_0123"}


def test_a_segment_in_use_stays(tmp_path: Path) -> None:
    import mmap

    watch = outside.Watch()
    (tmp_path / "psm_0a").write_bytes(bytes(4096))
    with (tmp_path / "psm_0a").open("r+b") as file, mmap.mmap(file.fileno(), 4096):
        assert watch.remove_segments(tmp_path) == []
    assert watch.remove_segments(tmp_path) == ["psm_0a"]


@pytest.mark.parametrize(
    ("first", "number", "last", "between"),
    [(10, 11, 20, True), (10, 10, 20, False), (10, 21, 20, False), (90, 95, 5, True),
     (90, 3, 5, True), (90, 50, 5, False)],
)  # fmt: skip
def test_numbers_of_processes_begin_again(
    first: int, number: int, last: int, between: bool
) -> None:
    assert outside._between(first, number, last) is between


def test_unreadable_directories_are_removed() -> None:
    """The kernel makes one below each overlay, and programs may: also by a user who is not root."""
    top = Path(tempfile.mkdtemp(dir="/tmp"))
    (top / "gone" / "closed" / "deep").mkdir(parents=True)
    (top / "gone" / "closed" / "deep" / "f").touch()
    (top / "gone" / "read-only").mkdir()
    (top / "gone" / "read-only" / "f").touch()
    (top / "kept").mkdir()
    (top / "gone" / "link").symlink_to(top / "kept")
    (top / "kept").chmod(0o500)
    (top / "gone" / "read-only").chmod(0o500)
    (top / "gone" / "closed" / "deep").chmod(0)
    (top / "gone" / "closed").chmod(0)
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                for path in (top, *top.rglob("*")):
                    os.chown(path, 65534, 65534, follow_symlinks=False)
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            remove_tree(top / "gone")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert [*top.iterdir()] == [top / "kept"]
    assert (top / "kept").stat().st_mode & 0o777 == 0o500
    remove_tree(top)


KILLED = """\
import sys
from pathlib import Path
from perfpipe.pipelines.process import run
from perfpipe.pipelines.trying.protecting import Protection
with Protection(Path(sys.argv[1]), sys.argv[2]).launch() as place:
    words = place.rewritten(["sh", "-c", "mkdir closed; : > closed/f; chmod 0 closed; echo go; sleep 600"])
    run([*place.wrapper, *words], cwd=place.cwd, on_line=lambda line: print(line, flush=True))
"""


def test_what_a_killed_perfpipe_leaves_is_removed(project: Path, mode: str, tmp_path: Path) -> None:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(project), mode],
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path},
    ) as killed:  # fmt: skip
        assert killed.stdout is not None
        assert killed.stdout.readline() == b"go\n"
        killed.kill()
    temporary = tmp_path / "temporary"
    assert [*temporary.iterdir()]
    sweep_scratch.cache_clear()
    until = time.monotonic() + 30
    while [*temporary.iterdir()] and time.monotonic() < until:
        sweep_scratch.cache_clear()
        sweep_scratch(temporary)
        time.sleep(0.05)
    assert not [*temporary.iterdir()]
    assert not (project / "closed").exists()
