"""Sizes and bandwidths of collectives, against a program that says them.

Both captures are of one program on two GPUs; its steps call, by tensors of `Mi` elements: all_reduce
(8 fp32, 1 bf16), all_gather, reduce_scatter, broadcast (8), all_to_all, reduce, gather, scatter, two
all_reduce coalesced (1 and 8), a batch of isend and irecv, and send or recv (8).  nsys saw three steps
more, and a barrier more, than torch.profiler.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from conftest import DATA, Cli, Tiny

from perfpipe.analysis.session import Session
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store

MI = 1 << 20
FP32, BF16 = 4 * MI, 2 * MI

#: (kernel, collective) -> (calls, bytes) of a step, as both captures must have them.
STEP = {
    ("AllReduce_Sum_f32_RING_LL", "AllReduce"): (2, 8 * FP32 + (1 + 8) * FP32),
    ("AllReduce_Sum_bf16_RING_LL", "AllReduce"): (1, BF16),
    ("AllGather_RING_LL", "AllGather"): (1, FP32),
    ("ReduceScatter_Sum_f32_RING_LL", "ReduceScatter"): (1, FP32),
    ("Broadcast_RING_LL", "Broadcast"): (1, 8 * FP32),
    ("Reduce_Sum_f32_RING_LL", "Reduce"): (1, FP32),
    # Of two MI elements one goes to the peer.
    ("SendRecv", "AllToAll"): (1, FP32),
}
#: The batch counts once, though it sends and receives.
SENT = (2, FP32 + 8 * FP32)

KINETO = [DATA / "torch" / f"collectives_rank{rank}.kineto.json.gz" for rank in (0, 1)]
NSYS = [DATA / "nsys" / f"collectives_rank{rank}.sqlite.xz" for rank in (0, 1)]


def _ask(store: Store, paths: list[Path], sql: str) -> list[tuple[Any, ...]]:
    reports = [ingest(path, store).report_id for path in paths]
    with Session.open(store, reports, window="whole") as con:
        return con.execute(sql).fetchall()


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("captures_of", "steps", "barriers", "others"),
    [
        (KINETO, 3, 1, {("SendRecv", "Gather"): (1, FP32), ("SendRecv", "Scatter"): (1, FP32),
                        ("SendRecv", "SendRecv"): SENT}),
        # To NCCL torch's gather and scatter are groups of sends and receives.
        (NSYS, 6, 2, {("SendRecv", "SendRecv"): (4, 2 * FP32 + SENT[1])}),
    ],
)  # fmt: skip
def test_sizes_are_those_of_the_program(
    captures: Store,
    captures_of: list[Path],
    steps: int,
    barriers: int,
    others: dict[tuple[str, str], tuple[int, int]],
    rank: int,
) -> None:
    rows = _ask(
        captures,
        [captures_of[rank]],
        "SELECT operation, collective, count, bytes FROM nccl_collectives",
    )
    found = {
        (name.removeprefix("ncclDevKernel_"), collective): (count, size)
        for name, collective, count, size in rows
    }
    expected = {key: (steps * n, steps * size) for key, (n, size) in (STEP | others).items()}
    # A barrier is an all_reduce of one element, whose size only NCCL tells.
    key = ("AllReduce_Sum_f32_RING_LL", "AllReduce")
    count, size = expected[key]
    expected[key] = (count + barriers, size + (4 * barriers if captures_of is NSYS else 0))
    assert found == expected


def test_bandwidth_of_a_trace_is_that_of_a_plain_count(captures: Store) -> None:
    """AllReduce moves 2 (n - 1) / n of its bytes through each link: of two ranks, as many."""
    times: list[list[float]] = []
    for path in KINETO:
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        kernels = [e for e in events if e.get("cat") == "kernel" and "bf16" in e["name"]]
        times.append([e["dur"] for e in sorted(kernels, key=lambda e: float(e["ts"]))])
    expected = [BF16 / min(pair) / 1e3 for pair in zip(*times, strict=True)]
    rows = _ask(
        captures,
        KINETO,
        f"SELECT bus_bytes_per_s / 1e9 FROM paired_collectives WHERE bytes = {BF16} ORDER BY nth",
    )
    assert [value for (value,) in rows] == pytest.approx(expected, rel=1e-6)


def test_both_profilers_see_the_same_bandwidth(captures: Store) -> None:
    sql = """
        SELECT operation, median(bus_bytes_per_s) / 1e9 FROM paired_collectives
        WHERE operation IN ('AllGather', 'ReduceScatter', 'AllToAll') GROUP BY operation
    """
    torch, nsys = (dict(_ask(captures, paths, sql)) for paths in (KINETO, NSYS))
    assert len(torch) == 3
    assert torch == pytest.approx(nsys, rel=0.05)


def test_who_comes_late_to_a_root_tells_no_bandwidth(captures: Store) -> None:
    rows = _ask(
        captures,
        NSYS,
        "SELECT last_rank IS NULL, bus_bytes_per_s / 1e9, transfer_ns FROM paired_collectives "
        "WHERE operation = 'Broadcast'",
    )
    told = [rate for together, rate, _ in rows if together]
    assert 0 < len(told) < len(rows)
    # NVLink of an H200 carries 450 GB/s each way.
    assert all(100 < rate < 450 for rate in told)
    assert all(rate is None and ns for together, rate, ns in rows if not together)


def test_a_group_of_several_communicators_is_not_told() -> None:
    db = Tiny()
    db.con.execute("UPDATE reports SET kind = 'nsys'")
    calls = [("ncclGroupStart", None), ("ncclSend", 7), ("ncclRecv", 8), ("ncclGroupEnd", None)]
    for number, (name, communicator) in enumerate(calls):
        db.add("nsys_nvtx_ranges", {"range_id": number, "pid": 1, "tid": 1, "domain": "NCCL",
                                    "name": name, "start_ns": 10 * number,
                                    "end_ns": 10 * number + 5})  # fmt: skip
        if communicator:
            db.add("nsys_nvtx_payloads",
                   {"range_id": number, "field": "NCCL communicator ID", "text": communicator},
                   {"range_id": number, "field": "Message size [bytes]", "value": 64})  # fmt: skip
    db.add("launches", {"kind": "kernel", "name": "ncclDevKernel_SendRecv", "pid": 1, "tid": 1,
                        "device": 0, "start_ns": 100, "end_ns": 200, "range_id": 3})  # fmt: skip
    assert db.rows("SELECT count, bytes, bus_bytes_per_s FROM nccl_collectives") == [
        (1, None, None)
    ]


def _apart(tmp_path: Path, seconds: float, rank: int = 1, slower: float = 1) -> list[Path]:
    """Return traces of two ranks, of which the second has another clock, rank or pace."""
    paths = []
    for number in (0, 1):
        name = f"27_nobase_rank{number}.json.gz"
        trace = json.loads(gzip.decompress((DATA / "field" / "nsys" / name).read_bytes()))
        start = min(event["ts"] for event in trace["traceEvents"])
        if number:
            trace["distributedInfo"]["rank"] = rank
            for event in trace["traceEvents"]:
                event["ts"] = start + (event["ts"] - start) * slower + seconds * 1e6
        paths.append(tmp_path / f"rank{number}.json")
        paths[-1].write_text(json.dumps(trace))
    return paths


_PAIRS = "SELECT count(*), min(last_rank), round(avg(last_start_ns - first_start_ns)) FROM paired_collectives"


@pytest.mark.parametrize("seconds", [0, 0.4, 5, -86_400])
def test_clocks_that_differ_are_aligned_on_collectives(
    seconds: float, tmp_path: Path, cli: Cli
) -> None:
    paths = _apart(tmp_path, seconds)
    assert _ask(Store(tmp_path / "store"), paths, _PAIRS) == [(30, 1, 150_000)]
    assert cli("report", *paths, "--md", "report.md") == 0, cli.err
    note = "the clocks of the 2 ranks differ by up to"
    assert (note in (tmp_path / "report.md").read_text()) == (abs(seconds) > 1)


@pytest.mark.parametrize(("rank", "slower"), [(0, 1), (1, 1.01)])
def test_captures_of_different_runs_are_not_one_job(
    rank: int, slower: float, tmp_path: Path
) -> None:
    paths = _apart(tmp_path, 5, rank, slower)
    assert _ask(Store(tmp_path / "store"), paths, _PAIRS) == [(0, None, None)]


def test_ranks_that_cannot_be_compared_are_told(tmp_path: Path, cli: Cli) -> None:
    paths = _apart(tmp_path, 5)
    for path in paths:
        trace = json.loads(path.read_text())
        start = min(event["ts"] for event in trace["traceEvents"])
        trace["traceEvents"] = [e for e in trace["traceEvents"] if e["ts"] < start + 8_000]
        path.write_text(json.dumps(trace))
    assert cli("report", *paths, "--md", "report.md") == 0, cli.err
    page = (tmp_path / "report.md").read_text()
    assert "ranks 0, 1 are in one directory, but form 2 jobs and are not compared" in page
    assert _ask(Store(tmp_path / "store"), paths, _PAIRS) == [(0, None, None)]
    # Captures of one rank are no job.
    paths = _apart(tmp_path, 5, rank=0, slower=1.01)
    assert cli("report", *paths, "--md", "report.md") == 0, cli.err
    assert "not compared" not in (tmp_path / "report.md").read_text()


def _exchanging(tmp_path: Path, *, kernel: str, call: str) -> list[Path]:
    """Return the ranks with other collectives, which torch's annotations name."""
    paths = []
    for number in (0, 1):
        name = f"27_nobase_rank{number}.json.gz"
        trace = json.loads(gzip.decompress((DATA / "field" / "nsys" / name).read_bytes()))
        calls = {
            event["args"]["correlation"]: event
            for event in trace["traceEvents"]
            if event["cat"] == "cuda_runtime"
        }
        added = []
        for event in trace["traceEvents"]:
            if event["cat"] == "kernel" and event["name"].startswith("nccl"):
                event["name"] = kernel
                launch = calls[event["args"]["correlation"]]
                span = {"ts": launch["ts"] - 1, "dur": launch["dur"] + 2}
                place = {key: launch[key] for key in ("pid", "tid")}
                added.append({"ph": "X", "cat": "user_annotation", "name": call, **place, **span})
        trace["traceEvents"] += added
        paths.append(tmp_path / f"rank{number}.json")
        paths[-1].write_text(json.dumps(trace))
    return paths


@pytest.mark.parametrize(
    ("kernel", "call", "operation"),
    [
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", "nccl:all_to_all", "AllToAll"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "nccl:gather", "Gather"),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "nccl:all_reduce", "AllReduce"),
        ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
         "nccl:_reduce_scatter_base", "ReduceScatter"),
        ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", "nccl:broadcast", "Broadcast"),
        ("void vllm::cross_device_reduce_1stage<float, 2>(RankData*)", "none", "AllReduce"),
    ],
)  # fmt: skip
def test_collectives_are_paired_by_the_call_that_torch_names(
    kernel: str, call: str, operation: str, tmp_path: Path
) -> None:
    paths = _exchanging(tmp_path, kernel=kernel, call=call)
    asked = "SELECT operation, count(*), min(last_rank) FROM paired_collectives GROUP BY operation"
    assert _ask(Store(tmp_path / "store"), paths, asked) == [(operation, 30, 1)]


def test_sends_are_not_paired(tmp_path: Path) -> None:
    kernel = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
    paths = _exchanging(tmp_path, kernel=kernel, call="nccl:send 0->1")
    assert _ask(Store(tmp_path / "store"), paths, _PAIRS) == [(0, None, None)]


def test_messages_in_nested_groups_are_those_of_the_program(captures: Store) -> None:
    """A batch of isend and irecv is a group of groups: scatter, batch and send; gather and batch."""
    sql = (
        "SELECT source, target, count, bytes, transfer_ns > 0 AND receiver_ns < 2000000 "
        "FROM rank_pairs"
    )
    reports = [ingest(path, captures).report_id for path in NSYS]
    with Session.open(captures, reports) as con:
        ((steps,),) = con.execute("SELECT DISTINCT steps FROM analysis_windows").fetchall()
        rows = con.execute(sql).fetchall()
    assert rows == [
        (0, 1, 3 * steps, steps * (FP32 + FP32 + 8 * FP32), True),
        (1, 0, 2 * steps, steps * (FP32 + FP32), True),
    ]
