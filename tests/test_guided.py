"""Guided profiling: ncu profiles what the timeline says, within its time, whatever it does."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Cli
from hypothesis import given
from hypothesis import strategies as st

from analysis.profile_plan import ProfilePlan
from perfpipe.errors import InputError
from perfpipe.runrecord import TaskResult
from perfpipe.store import Store
from pipelines import measuring
from pipelines.collectors import guide, ncu, ncu_watch
from pipelines.workload import CollectNcu, load_workload

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
    assert "of the step: what bounds them matters little" in (tmp_path / "report.md").read_text()


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
    assert "--kernel-name-base=function" in (profilers / "ncu.log").read_text()
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
        ("ncu-late-crash", 1, "ncu was killed by signal 11 after 1 of 2 launches; what it wrote is kept"),
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


@pytest.mark.parametrize(
    ("fault", "failure", "sentences"),
    [
        ("ncu-crash", "profiler", ("ncu was killed by signal 11", "may avoid it")),
        ("ncu-stuck", "timeout", ("stopped at its limit of 2 s and left no report", "time_limit")),
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
        patched.setattr(measuring, "collect_ncu", interrupted)
        assert cli("run", workload(), "--collector", "all") == 130
    (run,) = Store(tmp_path / "store").runs()
    assert (run.status, len(run.reports), run.tasks) == ("interrupted", 1, ())
    assert cli("report", "--md") == 0
    text = (tmp_path / "report.md").read_text()
    assert "GPU time budget" in text
    assert "No verdict" not in text
    assert cli("run", workload(), "--collector", "all", "--resume") == 0, cli.err
    assert _kinds(tmp_path) == ["ncu", "nsys"]


PLAN = ProfilePlan(
    report_id="r", device=0, cc="9.0", cuda_device=0, processes=1, window_kind="steady", steps=9,
    launches_before=7, configurations=40, chosen=30, coverage_pct=86, communication_pct=0,
    expected_launches=40, most_launches=40, span_ns=2_000_000_000, refused=None, kernels=(),
    names=("k",), others=(), mangled=True,
)  # fmt: skip


def _guide(plain_s: float, spent_s: float = 0, **options: object) -> guide.Guide:
    """Return the guide for 40 launches, or as many as fit."""
    return _guide_within(guide.Budget(plain_s, spent_s), 40, options)


def _guide_within(
    budget: guide.Budget, launches: int = 40, options: Mapping[str, object] | None = None
) -> guide.Guide:
    return guide.guide_of(
        lambda most: replace(
            PLAN, expected_launches=min(most or launches, launches), coverage_pct=80
        ),
        CollectNcu.model_validate(options or {}),
        budget,
    )


def test_all_launches_of_a_configuration_share_its_time() -> None:
    """Four plain runs and a minute are for the plain run, the timeline, ncu and the report."""
    assert guide.Budget(20).whole_s == 140
    assert _guide(20, 50).limit_s == 140 - 50 - 10
    assert _guide(20, 50).budget_s == 140
    assert _guide(20, 50, time_limit=7).limit_s == 7
    assert _guide(20, 50, time_limit=7).budget_s is None
    # A timeline that took long leaves ncu the start of the program, and a little more.
    assert _guide(20, 500).limit_s == 40


def test_where_no_kernel_has_few_enough_variants_ncu_profiles_what_it_gets_to() -> None:
    """A plan is made for at most so many launches: of 310 variants, none where fewer may be chosen."""

    def plan(most: int | None) -> ProfilePlan:
        if (most or 200) < 310:
            return replace(PLAN, chosen=0, coverage_pct=0, expected_launches=0, most_launches=0)
        return replace(PLAN, chosen=30, coverage_pct=96, expected_launches=310, most_launches=310)

    for plain_s in (1, 5):
        chosen = guide.guide_of(plan, CollectNcu(), guide.Budget(plain_s))
        assert chosen.expected == 310
        assert chosen.depth.passes < guide.BASIC.passes


def test_as_much_of_each_launch_as_there_is_time_for() -> None:
    found = [_guide(7, spent) for spent in (0, 37, 46)]
    assert [one.depth for one in found] == [guide.DETAILED, guide.LEAN, guide.BASIC]
    assert [one.expected for one in found] == [40, 40, 40]
    for one in found:
        assert guide.Budget(7).expected_s(40, one.depth) <= one.limit_s
    assert "40 launches, set=basic, within 32 s of the 88 s" in found[2].summary()


def test_launches_of_a_program_with_much_memory_take_longer() -> None:
    """As H200 took with ncu 2025.3.1, by the program's memory (GB) and the passes of a launch."""
    seen = {(0.22, 21): 0.45, (2.4, 10): 0.47, (2.4, 21): 0.72, (7.7, 21): 1.03}
    for (memory_gb, passes), took_s in seen.items():
        (depth,) = (one for one in (guide.LEAN, guide.BASIC) if one.passes == passes)
        assert depth.launch_s(memory_gb) == pytest.approx(took_s, rel=0.15)
    assert guide.BASIC.launch_s(None) == guide.BASIC.launch_s(2.5)
    # What a program merely holds costs nothing: 16 GB took 0.05 s.
    assert guide.BASIC.launch_s(100) == guide.BASIC.launch_s(8)


def test_pinned_memory_makes_launches_take_longer_but_for_one_pass() -> None:
    """As H200 took with ncu 2025.3.1, by the pinned memory (GB), for 5 passes and for one."""
    units, once = guide.units_of("9.0")
    for pinned_gb, took_s in {1.0: 1.13, 4.0: 3.8}.items():
        assert units.launch_s(0.1, pinned_gb) == pytest.approx(took_s, rel=0.15)
        assert once.launch_s(0.1, pinned_gb) == once.launch_s(80.0) < 0.1
    budget = guide.Budget(25, 60, 22.0, 4.9)
    assert budget.fitting(units, 90) == 11
    assert budget.fitting(once, 90) > 1000


def test_where_nothing_else_fits_one_pass_is_collected() -> None:
    _, once = guide.units_of("9.0")
    found = _guide_within(guide.Budget(7, 66, 8.0, 4.0))
    assert found.depth == once
    assert found.expected == 40
    (note,) = found.notes
    assert "only the constituents of Speed of Light that one pass counts; the SOL may be" in note
    (metrics,) = (w for w in ncu.profile_options(CollectNcu(), once) if w.startswith("--metrics"))
    assert "dram__cycles_active.avg.pct_of_peak_sustained_elapsed" in metrics
    assert "lts__t_sectors" not in metrics


def test_where_basic_takes_too_long_the_main_constituents_are_collected() -> None:
    units, _ = guide.units_of("9.0")
    found = _guide(7, 58)
    assert found.depth == units
    assert found.expected == 40
    assert "40 launches, main constituents of the SOLs, within" in found.summary()
    words = ncu.profile_options(CollectNcu(metrics=["own"]), units)
    assert "--section=LaunchStats" in words
    assert not [word for word in words if word.startswith("--set")]
    (metrics,) = (word for word in words if word.startswith("--metrics=own,"))
    for unit in ("sm__issue_active", "dram__cycles_active"):
        assert f"{unit}.avg.pct_of_peak_sustained_elapsed" in metrics
    # Elsewhere nobody compared them with the SOLs.
    assert [guide.units_of(cc) for cc in ("8.0", "10.0", "9", "", None)] == [()] * 5


@given(st.floats(0, 300), st.floats(0, 1000))
def test_what_does_not_fit_is_not_asked_for_and_said(plain_s: float, spent_s: float) -> None:
    found = _guide_within(guide.Budget(plain_s, spent_s), 2000)
    assert found.expected is not None
    expected_s = guide.Budget(plain_s).expected_s(found.expected, found.depth)
    assert expected_s <= found.limit_s or found.expected == 1
    units, once = guide.units_of("9.0")
    of_units = found.depth in (units, once)
    assert len(found.notes) == of_units + (found.expected < 2000)
    if of_units:
        assert "constituents of Speed of Light" in found.notes[0]
    if found.expected < 2000:
        assert found.depth == once
        one_more_s = guide.Budget(plain_s).expected_s(found.expected + 1, found.depth)
        assert one_more_s > found.limit_s - 1e-9
        assert f"asked for {found.expected} of 2000 launches" in found.notes[1]


def test_what_the_workload_says_of_sections_is_kept() -> None:
    assert _guide(7, 45, set="full").depth.words == ("--set=full",)
    stated = _guide(7, 45, sections=["SourceCounters"]).depth
    assert stated.words == ("--set=detailed", "--section=SourceCounters")
    words = ncu.profile_options(CollectNcu(), guide.LEAN)
    assert "--set=basic" in words
    assert "--section=WarpStateStats" in words


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
    assert "ncu profiled 1 of 2 launches and was stopped when no more had come for 1 s" in note
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
