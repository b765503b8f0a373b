"""Guided profiling: ncu profiles what the timeline says, within its time, whatever it does."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Cli

from perfpipe.errors import InputError
from perfpipe.pipelines.collectors import guide, ncu, ncu_watch
from perfpipe.pipelines.collectors.nsys import children_work
from perfpipe.pipelines.workload import CollectNcu, load_workload
from perfpipe.runrecord import TaskResult
from perfpipe.store import Store

Write = Callable[..., Path]


@pytest.fixture
def workload(tmp_path: Path) -> Write:
    def write(collect: str = "{nsys: {}, ncu: {}}") -> Path:
        path = tmp_path / "w.yaml"
        path.write_text(
            f"version: 1\nname: w\ncommand: [echo, good]\ntimeout: 90\ncollect: {collect}\n"
        )
        return path

    return write


def _task(tmp_path: Path) -> TaskResult:
    (task,) = Store(tmp_path / "store").runs()[-1].tasks
    return task


def _kinds(tmp_path: Path) -> list[str]:
    store = Store(tmp_path / "store")
    return sorted(m.kind for m in store.manifests() if m.report_id in _task(tmp_path).reports)


def _is_gone(pid: int) -> bool:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
            if state != "Z":
                time.sleep(0.05)
                continue
        return True
    return False


def test_the_timeline_says_what_ncu_profiles(
    workload: Write, profilers: Path, cli: Cli, tmp_path: Path
) -> None:
    assert cli("run", workload(), "--collector", "all") == 0, cli.err
    assert cli("report", "--md") == 0
    (words,) = (profilers / "ncu.log").read_text().splitlines()
    assert "--kernel-name-base=mangled --kernel-name=regex:vectorized_elementwise_kernel" in words
    assert "--filter-mode=per-launch-config --launch-count=1" in words
    assert "--set=detailed" in words
    assert _kinds(tmp_path) == ["ncu", "nsys"]
    assert _task(tmp_path).notes == ()
    # They are too little of the step for their bounds to be told.
    assert "of the step, so their bottlenecks hardly matter" in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, True),
        ({"set": "full"}, True),
        ({"select": "all"}, False),
        ({"kernels": "gemm"}, False),
        ({"launch_count": 3}, False),
        ({"graph_profiling": "graph"}, False),
        ({"options": ["-k", "gemm"]}, False),
        ({"options": ["--nvtx-include=step 1/"]}, False),
        ({"options": ["--verbose"]}, True),
    ],
)
def test_who_chooses_the_kernels(options: dict[str, object], expected: bool) -> None:
    found = CollectNcu.model_validate(options)
    assert found.guided == expected
    assert found.chosen_set == options.get("set", "detailed" if expected else "basic")


def test_two_that_choose_are_refused(workload: Write) -> None:
    with pytest.raises(InputError, match="select: auto chooses the kernels itself; remove nvtx"):
        load_workload(workload("{ncu: {select: auto, nvtx: step}}"))


def test_coverage_and_the_most_kernels_are_the_workloads(
    workload: Write, profilers: Path, cli: Cli, tmp_path: Path
) -> None:
    path = workload("{nsys: {}, ncu: {coverage: 50, max_kernels: 1}}")
    assert cli("run", path, "--collector", "all") == 0, cli.err
    assert cli("plan", "--coverage", "50", "--max-kernels", "1") == 0
    assert "1 of 2 kernels takes 67 % of the kernel time" in cli.out
    assert "echo good" in cli.out.splitlines()[-1]


def test_without_a_timeline_each_configuration_is_profiled_once(
    workload: Write, profilers: Path, cli: Cli, tmp_path: Path
) -> None:
    assert cli("run", workload(), "--collector", "ncu") == 0, cli.err
    assert cli("report", "--md") == 0
    assert "--kernel-name-base=demangled" in (profilers / "ncu.log").read_text()
    note = "ncu profiled the first launch of each kernel configuration: there is no timeline"
    assert _task(tmp_path).notes == (note,)
    assert note in (tmp_path / "report.md").read_text()


def test_a_timeline_without_kernels_is_no_failure(
    workload: Write, profilers: Path, cli: Cli, tmp_path: Path, edited: Callable[..., Path]
) -> None:
    empty = edited("memcpy", "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")
    (profilers / "timeline.sqlite").unlink()
    (profilers / "timeline.sqlite").symlink_to(empty)
    assert cli("run", workload(), "--collector", "all") == 0, cli.err
    assert _kinds(tmp_path) == ["nsys"]
    assert _task(tmp_path).notes == ("ncu profiled nothing: the timeline has no kernels",)
    assert not (profilers / "ncu.log").exists()


@pytest.mark.parametrize(
    ("fault", "launches", "note"),
    [
        # All that was expected has been seen: the program is ended, which is no news.
        ("ncu-endless", 1, None),
        ("ncu-hang", 1, "ncu was stopped at its limit of 2 s, after 1 of 2 launches; raise "
         "collect.ncu.time_limit to profile more"),
        ("ncu-late-crash", 1, "ncu was killed by SIGSEGV after 1 of 2 launches; its report is kept"),
    ],
)  # fmt: skip
def test_what_was_profiled_is_kept(
    workload: Write, profilers: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    fault: str, launches: int, note: str | None,
) -> None:  # fmt: skip
    monkeypatch.setattr(guide, "STARTUP_S", 0.0)
    limit = 2 if fault == "ncu-hang" else 80
    (profilers / "FAULT").write_text(fault)
    path = workload(f"{{nsys: {{}}, ncu: {{time_limit: {limit}}}}}")
    started = time.monotonic()
    assert cli("run", path, "--collector", "all") == 0, cli.err
    assert time.monotonic() - started < 60
    assert _kinds(tmp_path) == ["ncu", "nsys"]
    assert _task(tmp_path).notes == ((note,) if note else ())
    assert len((profilers / "ncu.log").read_text().splitlines()) == launches
    assert _is_gone(int((profilers / "child").read_text()))


def test_where_ending_the_program_costs_the_report_it_runs_to_its_end(
    workload: Write, profilers: Path, cli: Cli, tmp_path: Path
) -> None:
    (profilers / "FAULT").write_text("ncu-fragile")
    assert cli("run", workload(), "--collector", "all") == 0, cli.err
    assert len((profilers / "ncu.log").read_text().splitlines()) == 2
    assert _kinds(tmp_path) == ["ncu", "nsys"]


def test_a_program_that_launches_less_under_ncu_is_profiled_from_its_start(
    workload: Write, profilers: Path, cli: Cli, tmp_path: Path
) -> None:
    """A benchmark that lasts a fixed time gets to fewer launches, all of which would be skipped."""
    (profilers / "FAULT").write_text("fewer")
    assert cli("run", workload(), "--collector", "all") == 0, cli.err
    first, second = (profilers / "ncu.log").read_text().splitlines()
    assert "--launch-skip-before-match" in first
    assert "--launch-skip-before-match" not in second
    assert _kinds(tmp_path) == ["ncu", "nsys"]
    assert ncu._FEWER in _task(tmp_path).notes


def test_where_other_processes_work_they_are_profiled_from_the_steps_on(
    workload: Write, profilers: Path, cli: Cli, tmp_path: Path
) -> None:
    (profilers / "FAULT").write_text("children")
    path = workload()
    path.write_text(path.read_text().replace("[echo, good]", "['{python}', -c, pass]"))
    assert cli("run", path, "--collector", "all") == 0, cli.err
    first, second = (profilers / "ncu.log").read_text().splitlines()
    assert "--target-processes=application-only" in first
    assert "--target-processes=all" in second
    assert "--launch-skip-before-match" in second
    assert _task(tmp_path).notes == ()


@pytest.mark.parametrize(("launched", "starts"), [(None, 2), ("+ 16777216", 1)])
def test_where_the_timeline_shows_that_children_work_they_are_profiled_at_once(
    launched: str | None, starts: int, workload: Write, profilers: Path, cli: Cli,
    edited: Callable[..., Path],
) -> None:  # fmt: skip
    """A server's workers, say: a program of long imports is not launched in vain before."""
    if launched:
        other = f"UPDATE ProcessStreams SET globalPid = globalPid {launched}"
        (profilers / "timeline.sqlite").unlink()
        (profilers / "timeline.sqlite").symlink_to(edited("memcpy", other))
    (profilers / "FAULT").write_text("children")
    path = workload()
    path.write_text(path.read_text().replace("[echo, good]", "['{python}', -c, pass]"))
    assert cli("run", path, "--collector", "all") == 0, cli.err
    words = (profilers / "ncu.log").read_text().splitlines()
    assert len(words) == starts
    assert "--target-processes=all" in words[-1]
    again = "launched again under ncu, with its child processes: its first process has no kernels"
    assert (again in cli.err) == (starts == 2)


@pytest.mark.parametrize(
    ("name", "children"),
    [
        ("memcpy", False),  # python
        ("ddp_single", True),  # torchrun, which starts two ranks
        ("graph_whole", False),  # no kernels
        ("collectives_rank0", False),  # unknown
    ],
)
def test_an_export_shows_whether_the_launched_process_works(
    name: str, children: bool, expand: Callable[[str], Path], tmp_path: Path
) -> None:
    assert children_work(expand(f"nsys/{name}.sqlite")) == children
    assert not children_work(tmp_path / "nowhere.sqlite")


@pytest.mark.parametrize(
    ("fault", "failure", "sentences"),
    [
        ("ncu-crash", "profiler", ("ncu was killed by SIGSEGV", "may avoid it")),
        ("ncu-stuck", "timeout", ("stopped at its limit of 2 s without a report", "time_limit")),
    ],
)
def test_a_failing_ncu_leaves_the_timeline_and_no_process(
    workload: Write, profilers: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    fault: str, failure: str, sentences: tuple[str, ...],
) -> None:  # fmt: skip
    monkeypatch.setattr(ncu, "_WRITING_S", 1.0)
    monkeypatch.setattr(guide, "STARTUP_S", 0.0)
    (profilers / "FAULT").write_text(fault)
    limit = 2 if fault == "ncu-stuck" else 80
    path = workload(f"{{nsys: {{}}, ncu: {{time_limit: {limit}}}}}")
    assert cli("run", path, "--collector", "all", report=True) == 1
    task = _task(tmp_path)
    assert task.failure == failure
    assert all(sentence in str(task.error) for sentence in sentences), task.error
    assert "\n" not in str(task.error)
    assert _kinds(tmp_path) == ["nsys"]
    assert "GPU time budget" in (tmp_path / "report.md").read_text()
    assert _is_gone(int((profilers / "child").read_text()))


def test_what_an_interrupted_run_has_read_is_told(
    workload: Write, profilers: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeline is in the store while ncu runs: ncu profiles what it says."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ncu, "collect_ncu", interrupted)
        assert cli("run", workload(), "--collector", "all") == 130
    (run,) = Store(tmp_path / "store").runs()
    (task,) = run.tasks
    assert (run.status, run.reports, task.done) == ("interrupted", task.reports, True)
    assert (task.profilers, task.notes) == (("nsys",), ("ncu did not finish",))
    assert len(task.reports) == 1 and task.seconds and task.profiler_s.keys() == {"nsys"}
    assert cli("report", "--md") == 0
    text = (tmp_path / "report.md").read_text()
    assert "GPU time budget" in text
    assert "No verdict" not in text
    assert "ncu did not finish" in text
    assert cli("run", workload(), "--collector", "all", "--resume") == 0, cli.err
    assert _kinds(tmp_path) == ["ncu", "nsys"]


def test_what_never_comes_is_not_waited_for(
    workload: Write, profilers: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program chooses another kernel this time, and runs on without one that is wanted."""
    monkeypatch.setattr(guide, "_QUIET_S", 1.0)
    (profilers / "FAULT").write_text("ncu-quiet")
    started = time.monotonic()
    assert cli("run", workload(), "--collector", "all") == 0, cli.err
    assert time.monotonic() - started < 50
    (note,) = _task(tmp_path).notes
    assert "ncu profiled 1 of 2 launches and was stopped after 1 s without another one" in note
    assert _kinds(tmp_path) == ["ncu", "nsys"]
    assert _is_gone(int((profilers / "child").read_text()))


def test_only_processes_of_the_launch_are_ended() -> None:
    """A line of the program that looks like one of ncu ends nothing."""
    child = subprocess.Popen(
        ["sleep", "60"], env={ncu_watch.MARK_VARIABLE: "ab", "PATH": "/usr/bin:/bin"}
    )
    try:
        until = time.monotonic() + 20
        while not ncu_watch.is_marked(child.pid, "ab") and time.monotonic() < until:
            time.sleep(0.01)
        assert ncu_watch.is_marked(child.pid, "ab")
        assert not ncu_watch.is_marked(child.pid, "a")
        assert not ncu_watch.is_marked(1, "ab")
        assert not ncu_watch.is_marked(2**22 + 1, "ab")
    finally:
        child.kill()
        child.wait()
