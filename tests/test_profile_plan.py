"""Which kernels to profile: the views, the options of ncu, and perfpipe plan."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from conftest import Cli, Opened, Tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpipe.analysis.profile_plan import (
    ProfilePlan,
    each_once,
    limits_of,
    name_pattern,
    read_plan,
)
from perfpipe.analysis.session import Session

Ingested = Callable[[str], str]


Row = dict[str, Any]


def _tables(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return kernels that run one after another; `mangled` is the name by default."""
    kernels, start = [], 0
    for row in rows:
        place = {"pid": 1, "device": 0, **row, "start_ns": start, "end_ns": start + row["dur_ns"]}
        shape = {f"{what}_{axis}": 1 for what in ("grid", "block") for axis in "xyz"}
        own = {
            "mangled": row["name"],
            "demangled": row["name"],
            "static_smem": 0,
            "dynamic_smem": 0,
        }
        kernels.append({**shape, **own, **place})
        start += row["dur_ns"]
    keys = ("pid", "device", "name", "start_ns", "end_ns")
    launches = [{"kind": "kernel", **{key: row[key] for key in keys}} for row in kernels]
    return {"nsys_kernels": kernels, "launches": launches}


def _session(
    rows: Iterable[Row], coverage: float | None = None, most: int | None = None
) -> Session:
    """Return a session over such kernels."""
    db = Tiny()
    for table, of_table in _tables(rows).items():
        db.add(table, *of_table)
    session = Session(db.con, limits=limits_of(coverage, most))
    _KEPT.append((session, db))
    return session


#: Databases are cleared as they are dropped.
_KEPT: list[tuple[Session, Tiny]] = []


@pytest.fixture(autouse=True)
def _dropped() -> Iterator[None]:
    yield
    _KEPT.clear()


def _plan(rows: Iterable[Row], coverage: float | None = None) -> ProfilePlan:
    plan = read_plan(_session(rows, coverage), "r")
    assert plan is not None
    return plan


def _chosen(rows: Iterable[Row], coverage: float, most: int = 20) -> list[tuple[Any, ...]]:
    return (
        _session(rows, coverage, most)
        .execute("SELECT name, grid, chosen FROM profile_plan ORDER BY share_pct IS NULL, rank")
        .fetchall()
    )


def test_names_are_chosen_until_they_cover_what_is_asked() -> None:
    """b stands for 35 ns with each launch of ncu, a for 15."""
    rows = [
        {"name": "a", "dur_ns": 10},
        {"name": "b", "dur_ns": 50, "grid_x": 2},
        {"name": "a", "dur_ns": 20, "grid_x": 3},
        {"name": "b", "dur_ns": 20},
    ]
    both = [
        ("b", "2,1,1", True),
        ("a", "3,1,1", False),
        ("b", "1,1,1", True),
        ("a", "1,1,1", False),
    ]
    assert _chosen(rows, 70) == both
    assert [row[2] for row in _chosen(rows, 70.1)] == [True] * 4
    # No more than 3 launches; both names have two sizes.
    assert _chosen(rows, 100, 3) == both
    plan = _plan(rows, 50)
    assert (plan.chosen, plan.names, plan.others) == (2, ("b",), ("a",))
    assert (plan.coverage_pct, plan.expected_launches, plan.most_launches) == (70, 2, 2)


def test_a_profile_stands_for_launches_that_take_about_as_long() -> None:
    """A persistent kernel has one grid for all sizes; ncu begins where the longer one comes first."""
    small, large = {"name": "gemm", "dur_ns": 10}, {"name": "gemm", "dur_ns": 100}
    rows = [small, large, {"name": "relu", "dur_ns": 40}] * 3
    (kernel, *_) = (plan := _plan(rows)).kernels
    assert (kernel.name, kernel.share_pct, kernel.covered_pct) == ("gemm", 330 / 4.5, 30 / 4.5)
    assert plan.coverage_pct == pytest.approx((30 + 120) / 4.5)
    plan = _windowed(rows, 0, 450, 3)
    assert plan.launches_before == 1
    assert plan.coverage_pct == pytest.approx((300 + 120) / 4.5)
    # Steps differ a little, which is no reason to begin elsewhere.
    assert (
        _windowed([{"name": "k", "dur_ns": 1000 + n} for n in range(9)], 0, 9036, 3).launches_before
        == 0
    )


def _windowed(rows: Iterable[Row], start_ns: int, end_ns: int, steps: int) -> ProfilePlan:
    """Return the plan for a window of some steps."""
    session = _session(rows)
    session.con.execute(
        "CREATE VIEW analysis_windows AS SELECT 'r' AS report_id, device, 'steady' AS kind, "
        f"{start_ns} AS start_ns, {end_ns} AS end_ns, {steps} AS steps "
        "FROM (VALUES (0), (1)) AS t (device)"
    )
    session._made.add("analysis_windows")
    plan = read_plan(session, "r")
    assert plan is not None
    return plan


LAUNCHES = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 2), st.sampled_from([1, 2, 5, 40])),
    min_size=1,
    max_size=24,
)


@settings(max_examples=5)
@given(
    st.lists(st.tuples(LAUNCHES, st.integers(1, 4)), min_size=5, max_size=5),
    st.integers(1, 100),
    st.integers(1, 8),
)
def test_the_plan_against_trying_every_start(
    timelines: list[tuple[list[tuple[str, int, int]], int]], coverage: int, most: int
) -> None:
    """Several timelines at a time: planning the views takes longer than all else."""
    db, windows = Tiny(), []
    for number, (launches, steps) in enumerate(timelines):
        rows = ({"name": name, "grid_x": grid, "dur_ns": ns} for name, grid, ns in launches)
        db.add_report(f"r{number}", _tables(rows))
        total = sum(ns for *_, ns in launches)
        windows.append(f"('r{number}', 0, 'steady', 0, {total}, {steps})")
    session = Session(db.con, limits=limits_of(coverage, most))
    session.con.execute(
        f"CREATE VIEW analysis_windows AS FROM (VALUES {', '.join(windows)}) "
        "AS t (report_id, device, kind, start_ns, end_ns, steps)"
    )
    session._made.add("analysis_windows")
    for number, (launches, steps) in enumerate(timelines):
        plan = read_plan(session, f"r{number}")
        assert plan is not None
        _check_plan(plan, launches, steps, coverage, most)


def _check_plan(
    plan: ProfilePlan, launches: list[tuple[str, int, int]], steps: int, coverage: int, most: int
) -> None:
    """What ncu sees first from each launch of a step on, and what the names of that stand for."""
    total = sum(ns for *_, ns in launches)

    def firsts(start: int) -> dict[tuple[str, int], int]:
        seen: dict[tuple[str, int], int] = {}
        for name, grid, ns in launches[start:]:
            alike = (x for n, g, x in launches if (n, g) == (name, grid) and x <= 3 * ns <= 9 * x)
            seen.setdefault((name, grid), sum(alike))
        return seen

    step = -(-len(launches) // steps)
    gains = [sum(firsts(start).values()) for start in range(step)]
    start = next(n for n in range(step) if 100 * (max(gains) - gains[n]) <= total)
    seen = firsts(start)
    worth = {
        name: (sum(gain), len(gain))
        for name in "abc"
        if (gain := [ns for (other, _), ns in seen.items() if other == name])
    }
    names, covered, profiles = [], 0, 0
    for name in sorted(worth, key=lambda n: (-worth[n][0] / worth[n][1], -worth[n][0], n)):
        profiles += worth[name][1]
        if 100 * covered < coverage * total and profiles <= most:
            names.append(name)
            covered += worth[name][0]
    assert plan.launches_before == start
    assert plan.names == tuple(sorted(names))
    assert plan.coverage_pct == pytest.approx(100 * covered / total)
    assert plan.expected_launches == sum(worth[name][1] for name in names)
    assert sum(kernel.covered_pct for kernel in plan.kernels) == pytest.approx(plan.coverage_pct)


def test_instances_that_add_little_are_not_profiled() -> None:
    """Of the instances of a chosen configuration, the longest suffice."""
    plan = _plan(
        [
            {"name": "k", "mangled": "k_long", "demangled": "k<0>", "dur_ns": 90},
            {"name": "k", "mangled": "k_short", "demangled": "k<1>", "dur_ns": 1},
            {"name": "other", "dur_ns": 9},
        ]
    )
    assert plan.names == ("k_long",)
    assert plan.kernels[0].instances == 2


def test_communication_is_never_profiled() -> None:
    communication = {"name": "ncclDevKernel_AllReduce", "dur_ns": 90}
    rows = [communication, {"name": "a", "dur_ns": 10}]
    plan = _plan(rows)
    assert plan.names == ("a",)
    assert plan.coverage_pct == 100
    assert plan.communication_pct == 90
    assert not re.search(plan.ncu_words[1].partition("regex:")[2], "ncclDevKernel_AllReduce")
    ((why,),) = (
        _session(rows)
        .execute("SELECT why FROM profile_plan WHERE starts_with(name, 'nccl')")
        .fetchall()
    )
    assert "waits for other ranks" in why
    assert "only communication kernels run" in str(_plan([communication]).refused)


def test_one_rank_is_profiled_or_the_reason_is_given() -> None:
    ranks = [
        {"pid": pid, "device": device, "name": name, "dur_ns": 10}
        for pid, device in ((7, 1), (8, 0))
        for name in ("ncclKernel", "a")
    ]
    plan = _plan(ranks)
    assert plan.refused is None
    assert plan.ncu_words[-1] == "--devices=0"
    # With CUDA_VISIBLE_DEVICES, each rank calls its GPU 0.
    alike = [{**row, "device": 0} for row in ranks]
    assert "2 ranks all use GPU number 0" in str(_plan(alike).refused)
    # Processes that do not wait for each other may all be profiled.
    assert _plan(row for row in alike if row["name"] == "a").refused is None


def test_what_comes_before_the_window_is_skipped_and_not_counted() -> None:
    """Two launches of warm-up on either GPU of the process, two steady ones, and one after them."""
    plan = _windowed(
        [
            {"name": "init", "dur_ns": 100},
            {"name": "init", "dur_ns": 100, "device": 1},
            {"name": "a", "dur_ns": 10},
            {"name": "b", "dur_ns": 90},
            {"name": "b", "dur_ns": 90, "grid_x": 2},
        ],
        200,
        300,
        1,
    )
    assert (plan.window_kind, plan.steps, plan.names) == ("steady", 1, ("b",))
    assert [kernel.share_pct for kernel in plan.kernels] == [90, 10]
    assert "--launch-skip-before-match=2" in plan.ncu_words
    # The other size of b comes after all has been seen.
    assert (plan.expected_launches, plan.most_launches, plan.span_ns) == (1, 2, 100)


@given(
    st.sets(
        st.text("abZ_0$.", min_size=1, max_size=5).map(lambda x: f"_ZN{x}12" + x * 40), min_size=1
    ),
    st.sets(st.text("abZ_0$.", min_size=1, max_size=5).map(lambda x: f"_ZN{x}12" + x * 40)),
)
def test_the_pattern_finds_the_names_and_no_other(names: set[str], others: set[str]) -> None:
    others -= names
    pattern = re.compile(name_pattern(names, others))
    assert all(pattern.search(name) for name in names)
    assert not any(pattern.search(name) for name in others)


def test_a_long_name_is_selected_by_an_identifier_that_no_other_has() -> None:
    name = "_ZN2at6native29vectorized_elementwise_kernelILi8ENS0_13BinaryFunctorIN3c108BFloat16E"
    other = "_ZN2at6native29vectorized_elementwise_kernelILi8ENS0_11FillFunctorIN3c108BFloat16EE"
    assert name_pattern([name], [other]) == "BinaryFunctor"
    assert name_pattern(["fusion_1"], ["fusion_12"]) == "^(fusion_1)$"


def test_without_a_timeline_everything_but_communication_is_profiled_once() -> None:
    words = each_once()
    pattern = re.compile(
        next(w for w in words if w.startswith("--kernel-name=")).partition("regex:")[2]
    )
    assert "--kernel-name-base=demangled" in words
    for name in (
        "elementwise_kernel(float *)",
        "void dispatch<8>(int *)",
        "triton_poi_fused_all_reduce_0",
        "void block_all_reduce_sum<256>(float *)",
    ):
        assert pattern.search(name), name
    for name in (
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096>)",
        "my_nvshmem_kernel",
        "void deep_ep::intranode::dispatch<8>(int4 *)",
        "void vllm::cross_device_reduce_1stage<float, 2>(T1)",
        "oneShotAllReduceKernel<half>(P)",
    ):
        assert not pattern.search(name), name


def test_the_plan_of_a_training_step_is_a_document(
    cli: Cli, ingested: Ingested, stored: Any
) -> None:
    (report,) = stored("nsys/ddp_single.sqlite")
    assert cli("plan", report[:8]) == 0, cli.err
    assert "ddp_single.sqlite, GPU 0: 13 of 37 kernels take 87 % of the kernel time" in cli.out
    assert "Only one of 2 ranks is profiled, on GPU 0." in cli.out
    assert "Communication, 48 % of all kernel time, is excluded" in cli.out
    command = cli.out.splitlines()[-1]
    assert command.startswith("ncu --force-overwrite --set=detailed ")
    assert command.endswith("--devices=0 --export=profile torchrun --standalone "
                            "--nproc-per-node 2 train.py ddp comm")  # fmt: skip
    assert "nccl" not in command
    assert cli("plan", report, "--max-kernels", "2", "--json") == 0
    (plan,) = json.loads(cli.out)["plans"]
    assert plan["most_launches"] == 2
    assert plan["kernels"][0]["rank"] == 1
    assert plan["expected_minutes"] > 0
    assert plan["coverage_pct"] == pytest.approx(sum(k["covered_pct"] for k in plan["kernels"]))
    assert cli("plan", report, "--coverage", "0") == 2


def test_a_file_is_ingested_and_what_cannot_be_planned_says_why(
    cli: Cli, expand: Callable[[str], Any]
) -> None:
    assert cli("plan", expand("nsys/graph_whole.sqlite")) == 0, cli.err
    assert "nothing to profile: the timeline has 20 CUDA graphs traced as a whole" in cli.out
    assert "cuda_graph_trace: node" in cli.out
    assert cli("plan", "no-such-report") == 2
    assert "no run, report or batch 'no-such-report' in the store" in cli.err


def test_the_shares_of_a_step_add_up(opened: Opened) -> None:
    """What ncu saw of the block's step, weighted with the timeline; the rest is unknown."""
    with opened("nsys/gpumetrics.sqlite", "ncu/block.ncu-rep") as session:
        ((total, bounds),) = session.execute(
            "SELECT sum(share_pct), list(bound) FROM step_bounds"
        ).fetchall()
        ((configurations, profiled, coverage, parts),) = session.execute(
            "SELECT configurations, profiled_configurations, coverage_pct, "
            "profiled_pct + communication_pct + unprofiled_pct FROM step_coverage"
        ).fetchall()
        ((unknown,),) = session.execute(
            "SELECT coalesce(sum(share_pct), 0) FROM step_bounds WHERE subclass = 'not_profiled'"
        ).fetchall()
        ((matched,),) = session.execute(
            "SELECT sum(time_pct) FROM kernel_headroom WHERE matched"
        ).fetchall()
    assert total == pytest.approx(100)
    assert parts == pytest.approx(100)
    assert coverage == pytest.approx(100 - unknown)
    # Nothing is cut off: the window is the whole capture here.
    assert coverage == pytest.approx(matched, abs=1)
    assert 0 < profiled <= configurations
    assert {"memory", "compute", "latency"} & set(bounds)
