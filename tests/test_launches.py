"""What `perfpipe run` says of its launches before the first one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT, Cli

from perfpipe.pipelines.launches import announced
from perfpipe.pipelines.plan import Plan, planned_tasks
from perfpipe.pipelines.workload import load_workload
from perfpipe.store import Store

Planned = Callable[..., Plan]
UNKNOWN = "  how long a launch takes is unknown before the first one; "


@pytest.fixture
def planned(tmp_path: Path) -> Planned:
    def plan(collect: str = "{nsys: {}, ncu: {}}", more: str = "", collector: str = "all") -> Plan:
        path = tmp_path / "w.yaml"
        path.write_text(
            f"version: 1\nname: w\ncommand: [echo, '{{n}}']\ncollect: {collect}\n"
            + (more or "matrix: {n: [1]}\n")
        )
        workload = load_workload(path)
        return Plan(workload, path, planned_tasks(workload, path), collector)

    return plan


def test_every_launch_of_an_unknown_program_is_named_with_its_reason(
    planned: Planned, store: Store
) -> None:
    assert list(announced(planned(), store, preview=True)) == [
        "3 launches of the program, because each profiler slows it in its own way",
        "  1 without a profiler, for the times",
        "  1 under nsys, for the timeline; a preliminary verdict follows",
        "  1 under ncu, for the counters of the kernels that take most of the timeline",
        f"{UNKNOWN}one that takes longer than 600 s fails",
    ]


@pytest.mark.parametrize(
    ("collect", "more", "collector", "lines"),
    [
        ("{}", "", "timing", ["1 launch of the program", "  1 without a profiler, for the times"]),
        ("{ncu: {}}", "", "ncu", ["  1 under ncu, for the counters of the first launch of each kernel"]),
        ("{nsys: {}, ncu: {kernels: gemm, replay_mode: application}}", "", "all",
         ["  1 under ncu, for the counters of the kernels that the workload file selects; ncu starts "
          "the program anew for each pass (replay_mode)"]),
        ("{nsys: {}, torch: {}}", "", "all", ["  1 under torch.profiler, for the operators"]),
        ("{nsys: {}}", "matrix: {n: [1, 2]}\nlaunches: 3\nduration: 60\n", "all",
         ["8 launches of the program, 4 for each of 2 configurations, because each profiler slows it "
          "in its own way", "  6 without a profiler, for the times", "  2 under nsys, for the timeline",
          f"{UNKNOWN}each is stopped after 60 s"]),
    ],
)  # fmt: skip
def test_launches_follow_from_the_workload(
    collect: str, more: str, collector: str, lines: list[str], planned: Planned, store: Store
) -> None:
    said = list(announced(planned(collect, more, collector), store))
    assert [line for line in said if line in lines] == lines, said


def test_a_search_launches_few_under_profilers(store: Store) -> None:
    path = ROOT / "workloads" / "fused_matmul_tuning.yaml"
    workload = load_workload(path)
    tune = workload.tune
    assert tune is not None
    said = list(announced(Plan(workload, path, planned_tasks(workload, path), "all"), store))
    assert f"at most {tune.generations * tune.population}" in said[0]
    assert f"  {tune.confirm} more of the fastest one and of the default, to confirm" in said[1]
    assert said[2].startswith("  1 of the fastest one and of the default under nsys")


def test_what_was_measured_before_says_how_long_it_takes(
    planned: Planned, profilers: Path, cli: Cli, store: Store
) -> None:
    plan = planned()
    assert cli("run", plan.path, "--collector", "all") == 0, cli.err
    assert UNKNOWN in cli.err
    assert " last time" not in cli.err
    (run,) = store.runs()
    (task,) = run.tasks
    times = {"plain": 12.34, "nsys": 15.0, "ncu": 61.0}
    seconds = {name: times[name] for name in ("nsys", "ncu")}
    store.write_run(replace(run, tasks=(replace(task, seconds=(12.34,), profiler_s=seconds),)))
    said = "\n".join(announced(plan, store))
    for shown in (
        "  1 without a profiler (12.3 s last time), for",
        "  1 under nsys (15 s last time), for",
        "  1 under ncu (61 s last time), for",
    ):
        assert shown in said
    assert UNKNOWN not in said
    # These launches end otherwise, or are of another command: their times are unknown.
    assert "last time" not in "\n".join(announced(planned(more="matrix: {n: [2]}\n"), store))
    stopped = planned(more="matrix: {n: [1]}\nduration: 5\n")
    assert "last time" not in "\n".join(announced(stopped, store))
    three = "\n".join(announced(planned(more="matrix: {n: [1]}\nlaunches: 3\n"), store))
    assert "3 without a profiler, for" in three and "under nsys (15 s last time)" in three


def test_the_lines_are_progress_and_come_first(
    planned: Planned, profilers: Path, cli: Cli, tmp_path: Path
) -> None:
    assert cli("run", planned().path, "--collector", "all", "--json") == 0, cli.err
    assert json.loads(cli.out)["run"]["workload"] == "w"
    lines = cli.err.splitlines()
    assert lines[1].startswith("3 launches of the program, because")
    # No screen is printed here, so none is promised.
    assert "preliminary" not in cli.err
    assert cli("run", planned().path, "--collector", "all", "--resume") == 0
    assert "  configurations with a result are not launched again" in cli.err
