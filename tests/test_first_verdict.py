"""A verdict as soon as the timeline is read: while ncu runs, and after Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Cli
from kills import PERFPIPE

from perfpipe.errors import InputError
from perfpipe.pipelines import reporting
from perfpipe.store import Store

WORDS = ("run", "--collector", "all")
PRELIMINARY = "Preliminary, from the timeline alone"


@pytest.fixture
def sweep(tmp_path: Path) -> Callable[[str], Path]:
    def write(sizes: str) -> Path:
        path = tmp_path / "w.yaml"
        path.write_text(
            "version: 1\nname: w\ncommand: [echo, '{size}']\n"
            f"sizes: {sizes}\ncollect: {{nsys: {{}}, ncu: {{}}}}\n"
        )
        return path

    return write


def _at(text: str, *parts: str) -> list[int]:
    """Return where parts of a text are, each of which it must have once."""
    assert [text.count(part) for part in parts] == [1] * len(parts), text
    return [text.index(part) for part in parts]


def test_the_verdict_comes_between_timeline_and_ncu(
    profilers: Path, cli: Cli, undrawn: None
) -> None:
    assert cli(*WORDS, "--", "echo", "good", report=True) == 0, cli.err
    verdict = next(line for line in cli.out.splitlines() if line.startswith("A step takes"))
    said = ("nsys is next, ", PRELIMINARY, verdict, "\n1. ", "ncu continues, about ", "[1/1] echo:")
    places = _at(cli.err, *said)
    assert places == sorted(places)
    assert " plus its overhead" in cli.err
    assert " s, at most " in cli.err and " s; Ctrl-C keeps this\n" in cli.err
    # stdout is that of the final report alone.
    assert PRELIMINARY not in cli.out
    assert cli.out.count("A step takes") == 1
    assert cli.out.splitlines()[-1] == "Report: report.html, report.md"


def test_kernels_that_the_file_selects_follow_the_verdict_too(
    profilers: Path, cli: Cli, tmp_path: Path, undrawn: None
) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(
        "version: 1\nname: w\ncommand: [echo]\ncollect: {nsys: {}, ncu: {launch_count: 1}}\n"
    )
    assert cli(*WORDS, path, report=True) == 0, cli.err
    said = (
        PRELIMINARY,
        "ncu continues, ",
        " plus its overhead; Ctrl-C keeps",
    )
    assert _at(cli.err, *said) == sorted(_at(cli.err, *said))


@pytest.mark.parametrize(
    ("option", "sizes"), [("--json", "[1]"), ("--no-report", "[1]"), (None, "[1, 2]")]
)
def test_who_reads_no_screen_gets_none(
    option: str | None, sizes: str, sweep: Callable[[str], Path], profilers: Path, cli: Cli,
    undrawn: None,
) -> None:  # fmt: skip
    """A sweep would fill the screen; a program that reads JSON has no use for it."""
    assert cli(*WORDS, sweep(sizes), *filter(None, [option]), report=True) == 0, cli.err
    assert PRELIMINARY not in cli.err + cli.out
    assert "Ctrl-C" not in cli.err


def test_a_verdict_that_fails_does_not_end_the_run(
    profilers: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, undrawn: None
) -> None:
    def failing(*_: object) -> str:
        raise InputError("stopped: too long")

    monkeypatch.setattr(reporting, "preview_of_run", failing)
    assert cli(*WORDS, "--", "echo", "good", report=True) == 0, cli.err
    assert "no preliminary verdict: stopped: too long\n" in cli.err
    assert "Ctrl-C keeps this" not in cli.err
    assert "A step takes" in cli.out


def test_a_replay_has_no_launches_to_tell_of(replay_words: list[str], cli: Cli) -> None:
    assert cli(*replay_words) == 0, cli.err
    assert PRELIMINARY not in cli.err
    assert "launch" not in cli.err


@pytest.fixture
def replay_words(read_before: Callable[[str], None]) -> list[str]:
    from conftest import ROOT

    read_before("gemm")
    return ["run", str(ROOT / "workloads/gemm.yaml"), "--collector", "replay", "--set", "size=512"]


@pytest.fixture
def interrupted(
    profilers: Path, tmp_path: Path
) -> Iterator[Callable[[signal.Signals], tuple[int, str, str]]]:
    """Start a run whose ncu goes on, signal it then, and return its exit code and output."""
    mark = f"FIRST_VERDICT={tmp_path}"

    def alive() -> list[int]:
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark.encode() in path.read_bytes().split(b"\0"):
                    found.append(int(path.parent.name))
        return found

    def end(number: signal.Signals) -> tuple[int, str, str]:
        (profilers / "FAULT").write_text("ncu-hang")
        with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
            process = subprocess.Popen(
                [*PERFPIPE, *WORDS, "--store", "store", "--env", mark, "--", "echo", "good"],
                cwd=tmp_path,
                stdout=out,
                stderr=err,
                preexec_fn=lambda: [signal.signal(n, signal.SIG_DFL) for n in (1, 2, 15)] and None,
            )
            until = time.monotonic() + 120
            while not (profilers / "child").exists() and process.poll() is None:
                assert time.monotonic() < until, (tmp_path / "err").read_text()
                time.sleep(0.02)
            process.send_signal(number)
            code = process.wait(120)
        assert alive() == [], "nothing is left when it returns"
        return code, (tmp_path / "out").read_text(), (tmp_path / "err").read_text()

    yield end
    for pid in alive():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_ncu_and_keeps_the_timeline(
    number: signal.Signals,
    interrupted: Callable[[signal.Signals], tuple[int, str, str]],
    profilers: Path,
    cli: Cli,
    tmp_path: Path,
) -> None:
    code, out, err = interrupted(number)
    assert (code, out) == (128 + number, "")
    assert PRELIMINARY in err
    (run,) = Store(tmp_path / "store").runs()
    (task,) = run.tasks
    assert (run.status, run.reports, task.profilers) == ("interrupted", task.reports, ("nsys",))
    assert len(run.reports) == 1 and task.seconds
    assert "ncu did not finish" in task.notes
    last = err.splitlines()[-1]
    show = f"perfpipe report {run.run_id} --store store"
    assert f"; to show what was measured: {show}; to continue: perfpipe run --resume " in last
    assert cli(*show.split()[1:]) == 0, cli.err
    assert "A step takes" in cli.out
    (profilers / "FAULT").unlink()
    assert cli("run", "--resume", *last.partition("--resume ")[2].split()) == 0
    (again,) = Store(tmp_path / "store").runs()
    assert (again.run_id, again.status, len(again.reports)) == (run.run_id, "done", 2)
