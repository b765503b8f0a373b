"""Which kernels to profile: the views, the options of ncu, and perfpipe plan."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from conftest import Cli, Tiny
from hypothesis import given
from hypothesis import strategies as st

from analysis.profile_plan import ProfilePlan, each_once, limits_of, name_pattern, read_plan
from analysis.session import Session
from perfpipe.store import Store

Ingested = Callable[[str], str]


Row = dict[str, Any]


def _session(
    rows: Iterable[Row], coverage: float | None = None, most: int | None = None
) -> Session:
    """Return a session over kernels that run one after another; `mangled` is the name by default."""
    db, start = Tiny(), 0
    for row in rows:
        place = {"pid": 1, "device": 0, **row, "start_ns": start, "end_ns": start + row["dur_ns"]}
        shape = {f"{what}_{axis}": 1 for what in ("grid", "block") for axis in "xyz"}
        own = {
            "mangled": row["name"],
            "demangled": row["name"],
            "static_smem": 0,
            "dynamic_smem": 0,
        }
        db.add("nsys_kernels", {**shape, **own, **place})
        keys = ("pid", "device", "name", "start_ns", "end_ns")
        db.add("launches", {"kind": "kernel", **{key: place[key] for key in keys}})
        start += row["dur_ns"]
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


def test_the_longest_configurations_are_chosen_until_they_cover_what_is_asked() -> None:
    rows = [
        {"name": "a", "dur_ns": 10},
        {"name": "b", "dur_ns": 50, "grid_x": 2},
        {"name": "a", "dur_ns": 20, "grid_x": 3},
        {"name": "b", "dur_ns": 20},
    ]
    assert _chosen(rows, 70) == [
        ("b", "2,1,1", True), ("a", "3,1,1", True), ("b", "1,1,1", False), ("a", "1,1,1", False),
    ]  # fmt: skip
    assert [row[2] for row in _chosen(rows, 70.1)] == [True, True, True, False]
    assert [row[2] for row in _chosen(rows, 100, 1)] == [True, False, False, False]
    plan = _plan(rows, 50)
    assert (plan.chosen, plan.names, plan.others) == (1, ("b",), ("a",))
    # ncu selects b by name, and so profiles its other size too, unless it is stopped before.
    assert (plan.coverage_pct, plan.expected_launches, plan.most_launches) == (70, 1, 2)


def test_instances_that_add_little_are_not_profiled() -> None:
    """Of the instances of a chosen configuration, the longest suffice."""
    plan = _plan(
        [
            {"name": "k", "mangled": "k_long", "demangled": "k<0>", "dur_ns": 80},
            {"name": "k", "mangled": "k_short", "demangled": "k<1>", "dur_ns": 1},
            {"name": "other", "dur_ns": 19},
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
    assert "no kernel besides communication" in str(_plan([communication]).refused)


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
    assert "2 ranks each call their GPU number 0" in str(_plan(alike).refused)
    # Processes that do not wait for each other may all be profiled.
    assert _plan(row for row in alike if row["name"] == "a").refused is None


def test_what_comes_before_the_window_is_skipped_and_not_counted() -> None:
    """Two launches of warm-up on either GPU of the process, two steady ones, and one after them."""
    session = _session(
        [
            {"name": "init", "dur_ns": 100},
            {"name": "init", "dur_ns": 100, "device": 1},
            {"name": "a", "dur_ns": 10},
            {"name": "b", "dur_ns": 90},
            {"name": "b", "dur_ns": 90, "grid_x": 2},
        ]
    )
    session.con.execute(
        "CREATE VIEW analysis_windows AS SELECT 'r' AS report_id, device, 'steady' AS kind, "
        "200 AS start_ns, 300 AS end_ns, 1 AS steps FROM (VALUES (0), (1)) AS t (device)"
    )
    session._made.add("analysis_windows")
    plan = read_plan(session, "r")
    assert plan is not None
    assert (plan.window_kind, plan.steps, plan.names) == ("steady", 1, ("b",))
    assert [kernel.share_pct for kernel in plan.kernels] == [90, 10]
    assert "--launch-skip-before-match=2" in plan.ncu_words
    # The other size of b comes after all has been seen.
    assert (plan.expected_launches, plan.most_launches) == (1, 2)


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
    assert pattern.search("elementwise_kernel")
    assert not pattern.search("ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    assert not pattern.search("my_nvshmem_kernel")


def test_the_plan_of_a_training_step_is_a_document(
    cli: Cli, ingested: Ingested, stored: Any
) -> None:
    (report,) = stored("nsys/ddp_single.sqlite")
    assert cli("plan", report[:8]) == 0, cli.err
    assert "ddp_single.sqlite, GPU 0: 7 of 37 kernels take 82 % of the kernel time" in cli.out
    assert "One of 2 ranks is profiled, on its GPU 0." in cli.out
    assert "Communication, 48 % of all kernel time, is left out" in cli.out
    command = cli.out.splitlines()[-1]
    assert command.startswith("ncu --force-overwrite --set=detailed ")
    assert command.endswith("--devices=0 --export=profile torchrun --standalone "
                            "--nproc-per-node 2 train.py ddp comm")  # fmt: skip
    assert "nccl" not in command
    assert cli("plan", report, "--max-kernels", "2", "--json") == 0
    (plan,) = json.loads(cli.out)["plans"]
    assert [kernel["rank"] for kernel in plan["kernels"]] == [1, 2]
    assert plan["expected_minutes"] > 0
    assert len(plan["names"]) == 2
    assert cli("plan", report, "--coverage", "0") == 2


def test_a_file_is_ingested_and_what_cannot_be_planned_says_why(
    cli: Cli, expand: Callable[[str], Any]
) -> None:
    assert cli("plan", expand("nsys/graph_whole.sqlite")) == 0, cli.err
    assert "nothing to profile: the timeline has 20 CUDA graphs traced as a whole" in cli.out
    assert "cuda_graph_trace: node" in cli.out
    assert cli("plan", "no-such-report") == 2
    assert "is not a run or report in this store" in cli.err


def test_the_shares_of_a_step_add_up(ingested: Ingested, captures: Store) -> None:
    """What ncu saw of the block's step, weighted with the timeline; the rest is unknown."""
    reports = [ingested("ncu/block.ncu-rep"), ingested("nsys/gpumetrics.sqlite")]
    with Session.open(captures, reports) as session:
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
