"""Groups of ranks, pipelines and experts, against a simulation that knows them."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from hypothesis import given
from hypothesis import strategies as st
from rank_traces import DEVICE_MESH, MEGATRON, Traced, write_traces
from simulated_ranks import (
    Collective,
    Exchange,
    Job,
    Placed,
    Training,
    Work,
    order,
    simulate,
)

from perfpipe.analysis.session import Session
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store


def _routed(source: int, target: int, step: int) -> int:
    return 32 + (source * 7 + target * 29 + step * 11) % 48


# ------------------------------------------------------------------------------------------------ #
# 64 ranks


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    """64 ranks without names: 4 stages, 4 replicas, 4 tensor ranks; stage 2 is slow, rank 37 late.

    Rank 37 is in the second stage from the end, so its lateness comes on top of that of the stage.
    """

    def scale(rank: int, step: int) -> float:
        return (1.3 if rank // 16 == 2 else 1.0) * (1.2 if rank == 37 else 1.0)

    training = Training(tensor=4, data=4, pipeline=4, microbatches=6, steps=3, scale=scale)
    with Traced(tmp_path_factory.mktemp("large"), training) as traced:
        yield traced


def test_mesh_of_64_ranks(large: Traced) -> None:
    sql = "SELECT ranks, captured, data, tensor, pipeline, context, expert, mesh FROM rank_mesh"
    assert large.rows(sql) == [
        (64, 64, 4, 4, 4, None, None, "64 ranks: pipeline 4 x data 4 x tensor 4")
    ]
    expected = {
        group: (kind, "traffic")
        for kind in ("tensor", "data", "pipeline")
        for group in large.training.groups(kind)
    }
    assert large.groups() == expected


def test_bubbles_of_64_ranks(large: Traced) -> None:
    sql = "SELECT rank, stage, steps, window_ns, work_ns, bubble_ns FROM pipeline_stages"
    found = {rank: values for rank, *values in large.rows(sql)}
    assert found.keys() == set(range(64))
    for rank, (stage, steps, window, work, bubble) in found.items():
        expected = [_bubble(large, rank, step) for step in range(3)]
        assert (stage, steps) == (rank // 16, 3)
        assert window == pytest.approx(sum(w for w, _ in expected) / 3)
        assert work == pytest.approx(sum(w for _, w in expected) / 3)
        assert bubble == pytest.approx(window - work)


def test_schedule_of_64_ranks(large: Traced) -> None:
    rows = large.rows(
        "SELECT stages, microbatches, chunks, schedule, ideal_pct, slowest_rank // 16, imbalance, "
        "bubble_pct > ideal_pct FROM pipeline_schedules"
    )
    assert len(rows) == 16
    for stages, batches, chunks, schedule, ideal, slowest, imbalance, above in rows:
        assert (stages, batches, chunks, schedule) == (4, 6, 1, "1F1B")
        assert ideal == pytest.approx(100 * 3 / (6 + 3))
        assert slowest == 2 and 1.1 < imbalance < 1.4 and above


def test_late_rank_of_64_ranks(large: Traced) -> None:
    """Only rank 37 is late of itself; its tensor group inherits the lateness."""
    rows = large.rows("SELECT rank, late_ns FROM slow_ranks ORDER BY late_ns DESC, rank")
    (first, most), (_, next_most), *_ = rows
    assert first == 37 and next_most < most / 20
    late = large.rows(
        "SELECT DISTINCT late_rank FROM group_traffic WHERE kind = 'tensor' AND late_pct > 90"
    )
    assert late == [(37,)]


def test_findings_of_64_ranks(large: Traced) -> None:
    assert large.rows("SELECT count(*) FROM pipeline_bubble_findings") == [(64,)]
    slowest = large.rows("SELECT count(*), min(stage), max(stage) FROM stage_imbalance_findings")
    assert slowest == [(16, 2, 2)]
    rows = large.rows(
        "SELECT claim, bound_pct > 0 AND bound_pct < 100 FROM findings "
        "WHERE claim IN ('pipeline_bubble', 'stage_imbalance', 'ranks_wait')"
    )
    assert dict(rows) == dict.fromkeys(("pipeline_bubble", "stage_imbalance", "ranks_wait"), True)
    # Those that wait for the late rank say why it is late: this is no second finding.
    waits = large.rows(
        "SELECT DISTINCT last_rank, last_cause FROM findings WHERE claim IN ('ranks_wait', 'slow_rank')"
    )
    assert waits == [(37, "compute")]
    # What the stages wait for in messages is no communication to overlap.
    advised = {technique for (technique,) in large.rows("SELECT technique FROM recommendations")}
    assert "smaller_bubble" in advised and "even_stages" in advised


def _bubble(traced: Traced, rank: int, step: int) -> tuple[int, int]:
    """Return how long the microbatches pass through the pipeline of a rank, and how long it works."""
    stages = traced.training.group("pipeline", rank)
    kernels = [_computing(traced.job, stage, step) for stage in stages]
    first = min(placed.start for own in kernels for placed in own)
    last = max(
        p.end for own in kernels for p in own if isinstance(p.item, Work) and p.item.backward
    )
    # Without the collective after the last kernel of the backward pass.
    own = _computing(traced.job, rank, step)
    until = max(p.end for p in own if isinstance(p.item, Work) and p.item.backward)
    return last - first, _union([(p.start, p.end) for p in own if p.start < until])


def _computing(job: Job, rank: int, step: int) -> list[Placed]:
    """Return work on microbatches: kernels but the optimizer's, and collectives of layers."""
    placed = job.steps[rank][step]
    return [
        p
        for p in placed
        if (isinstance(p.item, Work) and not p.item.name.startswith("multi_tensor"))
        or (isinstance(p.item, Collective) and p.item.kind != "data")
    ]


def _union(intervals: list[tuple[int, int]]) -> int:
    total, until = 0, -1
    for start, end in sorted(intervals):
        total += max(0, end - max(start, until))
        until = max(until, end)
    return total


# ------------------------------------------------------------------------------------------------ #
# Kinds


@pytest.mark.parametrize(
    ("training", "kinds"),
    [
        (Training(data=4, microbatches=2), {"data": "data"}),
        (Training(data=4, microbatches=2, shards=True), {"data": "sharded data"}),
        (Training(tensor=2, data=2, layers=2), {"data": "data", "tensor": "tensor"}),
        (
            Training(tensor=2, data=2, layers=2, sequence=True),
            {"data": "data", "tensor": "tensor"},
        ),
        (Training(context=2, data=2), {"data": "data", "context": "context"}),
        (Training(context=4, ring=True), {"context": "context"}),
        (Training(context=2, data=2, ring=True), {"data": "data", "context": "context"}),
        (Training(data=4, expert=2, tokens=_routed), {"data": "data", "expert": "expert"}),
        (Training(pipeline=2), {"pipeline": "pipeline"}),
        (Training(pipeline=4, schedule="GPipe"), {"pipeline": "pipeline"}),
    ],
)
def test_traffic_shows_the_kind(training: Training, kinds: dict[str, str], tmp_path: Path) -> None:
    with Traced(tmp_path, training) as traced:
        expected = {
            group: (shown, "traffic")
            for kind, shown in kinds.items()
            for group in training.groups(kind)
        }
        assert traced.groups() == expected


@pytest.mark.parametrize("names", [MEGATRON, DEVICE_MESH])
def test_names_show_the_kind_even_from_one_rank(names: dict[str, str], tmp_path: Path) -> None:
    training = Training(tensor=2, data=2, pipeline=2, steps=3)
    with Traced(tmp_path, training, names, ranks=(5,)) as traced:
        expected = {
            training.group(kind, 5): (kind, "name") for kind in ("tensor", "data", "pipeline")
        }
        assert traced.groups() == expected
        ((mesh,),) = traced.rows("SELECT mesh FROM rank_mesh")
        assert mesh == "8 ranks, 1 captured: pipeline 2 x data 2 x tensor 2"
        assert traced.rows("FROM pipeline_stages") == []
        ((link, why),) = traced.rows("SELECT DISTINCT link, link_why FROM group_traffic")
        assert (link, why) == ("unknown", "not all ranks of the group were captured")


@pytest.mark.parametrize(
    ("training", "group", "missing"),
    [
        # Experts whose tokens never change look like any other exchange.
        (Training(data=2, expert=2), "0, 1", "all-to-all of constant sizes"),
        (Training(context=2, steps=1, ring=True), None, ""),
    ],
)
def test_what_is_not_unique_is_unknown(
    training: Training, group: str | None, missing: str, tmp_path: Path
) -> None:
    with Traced(tmp_path, training) as traced:
        rows = traced.rows("SELECT ranks, why FROM rank_groups WHERE kind = 'unknown'")
        assert [ranks for ranks, _ in rows] == ([group] if group else [])
        assert all(why.startswith(missing) for _, why in rows)


def _one_thread(trace: dict[str, Any]) -> None:
    main = min(event["tid"] for event in trace["traceEvents"] if event["cat"] == "cuda_runtime")
    for event in trace["traceEvents"]:
        if event["tid"] == main + 7:
            event["tid"] = main


def _without_groups(trace: dict[str, Any]) -> None:
    trace["traceEvents"] = [e for e in trace["traceEvents"] if e["name"] != "record_param_comms"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_one_thread, "one thread launches all work"),
        (_without_groups, "the capture does not state which communicator"),
    ],
)
def test_captures_that_do_not_show_the_kind(
    change: Callable[[dict[str, Any]], None], why: str, tmp_path: Path
) -> None:
    reports, store = [], Store(tmp_path / "store")
    for path in write_traces(simulate(Training(data=2, steps=3).programs()), tmp_path):
        trace = json.loads(path.read_text())
        change(trace)
        path.write_text(json.dumps(trace))
        reports.append(ingest(path, store).report_id)
    with Session.open(store, reports) as con:
        ((kind, reason),) = con.execute("SELECT kind, why FROM rank_groups").fetchall()
        mesh = con.execute("SELECT data, mesh FROM rank_mesh").fetchall()
    assert kind == "unknown" and reason.startswith(why)
    unknown = "the mesh is unknown, because the kinds of its groups are unknown (rank_groups)"
    assert mesh == [(None, f"2 ranks: {unknown}")]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("DATA_PARALLEL_GROUP_WITH_CP", "data"),
        ("EXPERT_DATA_PARALLEL_GROUP", "data"),
        ("EXPERT_TENSOR_PARALLEL_GROUP", "tensor"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "expert"),
        ("TENSOR_AND_DATA_PARALLEL_GROUP", None),
        ("MODEL_PARALLEL_GROUP", None),
        ("EMBEDDING_GROUP", None),
        ("default_pg", None),
        ("mesh_dp_shard", "data"),
        ("mesh_fsdp", "data"),
        ("mesh_dp_shard_cp", None),
        ("mesh_tp", "tensor"),
        ("mesh_pp", "pipeline"),
        ("mesh_cp", "context"),
        ("mesh_ep", "expert"),
    ],
)
def test_names_of_groups(name: str, kind: str | None, large: Traced) -> None:
    assert large.rows(f"SELECT group_kind('{name}')") == [(kind,)]


# ------------------------------------------------------------------------------------------------ #
# Pipelines and messages


@pytest.mark.parametrize("schedule", ["1F1B", "GPipe"])
@pytest.mark.parametrize(("stages", "microbatches"), [(2, 2), (2, 5), (3, 2), (4, 6)])
def test_schedules(schedule: str, stages: int, microbatches: int, tmp_path: Path) -> None:
    training = Training(pipeline=stages, microbatches=microbatches, schedule=schedule, steps=3)
    with Traced(tmp_path, training) as traced:
        ((found, batches, ideal),) = traced.rows(
            "SELECT schedule, microbatches, ideal_pct FROM pipeline_schedules"
        )
        assert (found, batches) == (schedule, microbatches)
        assert ideal == pytest.approx(100 * (stages - 1) / (microbatches + stages - 1))
        rows = traced.rows("SELECT rank, window_ns, work_ns FROM pipeline_stages")
        for rank, window, work in rows:
            expected = [_bubble(traced, rank, step) for step in range(3)]
            assert window == pytest.approx(sum(w for w, _ in expected) / 3)
            assert work == pytest.approx(sum(w for _, w in expected) / 3)


def test_messages_wait_for_the_later_side(tmp_path: Path) -> None:
    training = Training(pipeline=3, microbatches=3, steps=3)
    with Traced(tmp_path, training) as traced:
        found = {
            (source, target): rest
            for source, target, *rest in traced.rows(
                "SELECT source, target, count, bytes, transfer_ns, receiver_ns, sender_ns "
                "FROM rank_pairs"
            )
        }
        sides: dict[tuple[int, int], dict[str, list[Placed]]] = defaultdict(
            lambda: {"send": [], "recv": []}
        )
        for rank, steps in traced.job.steps.items():
            for placed in itertools.chain.from_iterable(steps):
                if isinstance(placed.item, Exchange):
                    for way, peer, _ in placed.item.messages:
                        pair = (rank, peer) if way == "send" else (peer, rank)
                        sides[pair][way].append(placed)
        assert found.keys() == sides.keys()
        for pair, own in sides.items():
            both = [*zip(own["send"], own["recv"], strict=True)]
            assert found[pair] == [
                len(both),
                len(both) * 2 * 1024 * 512,
                sum(min(s.end - s.start, r.end - r.start) for s, r in both),
                sum(max(0, s.start - r.start) for s, r in both),
                sum(max(0, r.start - s.start) for s, r in both),
            ]


@pytest.mark.parametrize("stages", [2, 3])
def test_bytes_of_messages(stages: int, tmp_path: Path) -> None:
    """All messages count, also those before which torch waited for another one."""
    with Traced(tmp_path, Training(pipeline=stages, microbatches=3, steps=4)) as traced:
        sizes = [
            2 * elements
            for steps in traced.job.steps.values()
            for placed in itertools.chain.from_iterable(steps)
            if isinstance(placed.item, Exchange)
            for _, _, elements in placed.item.messages
        ]
        found = traced.rows("SELECT step_bytes FROM rank_groups")
        assert found == [(sum(sizes) / stages / 4,)]


@given(st.integers(2, 6), st.integers(1, 8), st.sampled_from(["1F1B", "GPipe"]))
def test_the_simulated_bubble_is_ideal(stages: int, microbatches: int, schedule: str) -> None:
    """Equal stages and instant messages give (p - 1) / (m + p - 1): the formula is right."""
    ns = {"F": 1, "B": 2}
    orders = [order(schedule, stage, stages, microbatches) for stage in range(stages)]
    ends: dict[tuple[str, int, int], int] = {}
    places = [0] * stages
    clocks = [0] * stages
    while any(place < len(orders[stage]) for stage, place in enumerate(places)):
        for stage in range(stages):
            if places[stage] == len(orders[stage]):
                continue
            part = orders[stage][places[stage]]
            number = orders[stage][: places[stage]].count(part)
            before = stage - 1 if part == "F" else stage + 1
            need = (part, before, number)
            if 0 <= before < stages and need not in ends:
                continue
            start = max(clocks[stage], ends.get(need, 0))
            clocks[stage] = ends[part, stage, number] = start + ns[part]
            places[stage] += 1
    window = max(clocks)
    work = 3 * microbatches
    assert (window - work) / window == pytest.approx((stages - 1) / (microbatches + stages - 1))


# ------------------------------------------------------------------------------------------------ #
# Experts


def test_tokens_of_experts(tmp_path: Path) -> None:
    training = Training(data=4, expert=4, tokens=_routed, microbatches=1, steps=5)
    with Traced(tmp_path, training) as traced:
        rows = traced.rows("SELECT rank, tokens, load, imbalance FROM expert_loads ORDER BY rank")
    expected = [
        sum(_routed(source, rank, step) for source in range(4) for step in range(5)) / 5
        for rank in range(4)
    ]
    mean = sum(expected) / 4
    assert [row[1] for row in rows] == pytest.approx(expected)
    assert [row[2] for row in rows] == pytest.approx([value / mean for value in expected])
    assert rows[0][3] == pytest.approx(max(expected) / mean)


def test_uneven_tokens_are_a_finding(tmp_path: Path) -> None:
    """The rank with more tokens computes longer, so that the others wait in the all-to-all."""
    training = Training(
        data=4,
        expert=4,
        microbatches=1,
        steps=4,
        tokens=lambda source, target, step: 64 + step + (192 if target == 1 else 0),
        scale=lambda rank, step: 3.0 if rank == 1 else 1.0,
    )
    with Traced(tmp_path, training) as traced:
        rows = traced.rows(
            "SELECT device, loaded_rank, imbalance FROM expert_imbalance_findings ORDER BY device"
        )
    assert [(device, loaded) for device, loaded, _ in rows] == [(0, 1), (2, 1), (3, 1)]
    assert all(imbalance == pytest.approx(2.2, abs=0.1) for *_, imbalance in rows)


def test_the_report_shows_the_groups(tmp_path: Path, cli: Cli) -> None:
    training = Training(pipeline=2, data=2, steps=3)
    paths = write_traces(simulate(training.programs()), tmp_path, MEGATRON)
    assert cli("report", *paths, "--md", "report.md") == 0, cli.err
    page = (tmp_path / "report.md").read_text()
    assert "4 ranks: pipeline 2 x data 2" in page
    assert "stage 1 (of 0 to 1) has no work for" in page
