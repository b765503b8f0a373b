"""Which rank of a job that hangs the others wait for: from flight recorder dumps and NCCL RAS."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from hanging import DEFAULT, WAITS, Hang, Job, Op, ddp, dumps_of, enumerated, write
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpipe.analysis.session import Session
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store


def test_a_rank_that_never_enqueued_a_collective(tmp_path: Path, cli: Cli) -> None:
    hang = Hang(tmp_path, ddp(8, 20, lambda programs: programs[3].pop()))
    assert hang.rows(WAITS) == [("never enqueued", 41, "0-2, 4-7", "3", None)]
    assert hang.verdict(cli) == (
        "**Rank 3 never enqueued all_reduce #41 of default_pg (8 ranks), in which 7 ranks wait at "
        "train.py:12 step(). The last call of rank 3, which is finished, is all_reduce #40 of "
        "default_pg at train.py:10 step(). The dumps were last modified 600 s after the call "
        "(timeout 600 s). Look at the host of rank 3: its log, and 'perfpipe attach PID' or "
        "'py-spy dump' while the job hangs.**"
    )


def test_a_rank_that_skips_a_call_makes_other_calls_from_there_on(tmp_path: Path) -> None:
    hang = Hang(tmp_path, ddp(8, 20, lambda programs: programs[3].pop(13)))
    sql = "SELECT sequence, most_ranks, other_ranks, other_site, shift FROM hang_mismatches"
    assert hang.rows(sql) == [(14, "0-2, 4-7", "3", "train.py:12 step()", "skipped")]
    said = hang.said()
    assert "ranks 0-2, 4-7 call all_reduce 1024 Float at train.py:10 step(), rank 3 calls" in said
    assert "Probably, rank 3 skipped a call of the others" in said


def test_a_skipped_call_of_the_same_size_shows_in_the_lines(tmp_path: Path) -> None:
    """The operands agree, so the calls end, until the rank is out of calls."""
    lines = [Op("all_reduce", line=line) for _ in range(4) for line in (10, 12)]
    hang = Hang(tmp_path, Job({DEFAULT: range(3)}, [lines, [*lines[:3], *lines[4:]], lines]))
    said = hang.said()
    assert "Rank 1 never enqueued all_reduce #8" in said
    assert (
        "In #4, rank 1 is at train.py:10 step(), and most ranks are at train.py:12 step()." in said
    )


def test_an_additional_call(tmp_path: Path) -> None:
    extra = Op("all_gather", size=4, line=33)
    hang = Hang(tmp_path, ddp(4, 8, lambda programs: programs[2].insert(7, extra)))
    sql = "SELECT sequence, other_ranks, other_call, shift FROM hang_mismatches"
    assert hang.rows(sql) == [(8, "2", "all_gather 4 Float", "extra")]
    assert "Probably, rank 2 made an additional call" in hang.said()


def test_two_ranks_that_disagree_are_both_named_and_neither_is_blamed(tmp_path: Path) -> None:
    job = Job(
        {DEFAULT: (0, 1)}, [[Op("all_reduce", dtype="Float")], [Op("all_reduce", dtype="Half")]]
    )
    said = Hang(tmp_path, job).said()
    assert (
        "rank 0 calls all_reduce 1024 Float" in said and "rank 1 calls all_reduce 1024 Half" in said
    )
    assert "Probably" not in said


def test_of_two_ranks_either_made_a_call_too_many_or_one_too_few(tmp_path: Path) -> None:
    """The example of PyTorch's tutorial; NCCL ends the calls that do not belong together."""
    same = [Op("all_reduce", size=12, line=26)] * 2
    last = [Op("all_reduce", size=12, line=36)] * 2
    programs = [[*same, Op("all_reduce", size=20, line=31), *last], [*same, *last]]
    dumps = dumps_of(Job({DEFAULT: (0, 1)}, programs))
    for dump in dumps:
        for entry in dump["entries"][:4]:
            entry["state"] = "completed"
    hang = Hang(tmp_path)
    write(enumerated(dumps), hang.folder)
    said = hang.said()
    assert (
        "different calls as #3 of default_pg: rank 0 calls all_reduce 20 Float at train.py:31"
        in said
    )
    assert (
        "Probably, rank 1 skipped a call" in said and "; or rank 0 made an additional one." in said
    )
    assert "Rank 1 never enqueued all_reduce #5" in said


def test_shapes_may_differ_because_nccl_sees_numbers_of_elements(tmp_path: Path) -> None:
    job = ddp(2, 3)
    dumps = dumps_of(job)
    for entry in dumps[1]["entries"]:
        entry["input_sizes"] = entry["output_sizes"] = [[2, entry["input_sizes"][0][0] // 2]]
    hang = Hang(tmp_path)
    write(enumerated(dumps), hang.folder)
    assert hang.rows("FROM hang_mismatches") == []


def test_all_to_all_may_differ_in_size(tmp_path: Path) -> None:
    programs = [[Op("all_to_all", size=8 * (rank + 1))] for rank in range(3)]
    assert Hang(tmp_path, Job({DEFAULT: range(3)}, programs)).rows("FROM hang_mismatches") == []


def test_two_sends_that_wait_for_each_other(tmp_path: Path) -> None:
    programs = [
        [Op("send", peer=1, line=3), Op("recv", peer=1, line=4)],
        [Op("send", peer=0, line=7), Op("recv", peer=0, line=8)],
    ]
    said = Hang(tmp_path, Job({DEFAULT: (0, 1)}, programs)).said()
    assert (
        "Ranks 0-1 wait for each other: rank 0 in send to rank 1 of default_pg at train.py:3 step(), "
        "rank 1 in send to rank 0 of default_pg at train.py:7 step()." in said
    )


def test_groups_in_another_order_on_two_ranks(tmp_path: Path) -> None:
    first, second = Op("all_reduce", "tp", line=1), Op("all_reduce", "dp", line=2)
    job = Job({"tp": (0, 1), "dp": (0, 1)}, [[first, second], [second, first]])
    assert (
        "Ranks 0-1 wait for each other: rank 0 in all_reduce #1 of tp" in Hang(tmp_path, job).said()
    )


def test_a_batch_waits_for_the_peer_of_one_of_its_transfers(tmp_path: Path) -> None:
    """The other transfers of the batches, and the other ranks of the ring, are no causes."""
    ring = [_exchange(rank, 5) for rank in range(5)]
    ring[2] = []
    hang = Hang(tmp_path, Job({DEFAULT: range(5)}, ring))
    causes = "SELECT kind, source, target, idle_ranks FROM hang_waits WHERE kind != 'behind' ORDER BY source"
    assert hang.rows(causes) == [("never enqueued", 1, 2, "2"), ("never enqueued", 2, 3, "2")]


def _exchange(rank: int, ranks: int) -> list[Op]:
    to, source = (rank + 1) % ranks, (rank - 1) % ranks
    return [Op("send", peer=to, line=3, batch=1), Op("recv", peer=source, line=4, batch=1)]


def test_batches_that_end(tmp_path: Path) -> None:
    job = Job({DEFAULT: range(4)}, [_exchange(rank, 4) for rank in range(4)])
    assert (
        "No rank waits: 12 calls in the dumps of 4 ranks are finished" in Hang(tmp_path, job).said()
    )


def test_ranks_behind_another_group_are_no_cause(tmp_path: Path) -> None:
    """Rank 1 is in the group tp, so rank 0 waits for it in vain; rank 2 is what tp waits for."""
    programs = [
        [Op("all_reduce", "world", line=1)],
        [Op("all_gather", "tp", line=2), Op("all_reduce", "world", line=1)],
        [],
    ]
    hang = Hang(tmp_path, Job({"world": (0, 1), "tp": (1, 2)}, programs))
    assert {(row[0], row[3], row[4]) for row in hang.rows(WAITS)} == {
        ("behind", None, "1"),
        ("never enqueued", "2", None),
    }
    said = hang.said()
    assert "Rank 2 never enqueued all_gather #1 of tp" in said and "world" not in said


def test_a_rank_without_a_dump_is_unknown(tmp_path: Path) -> None:
    hang = Hang(tmp_path, ddp(4, 5, lambda programs: programs[1].pop()))
    (hang.folder / "nccl_trace_rank_1").unlink()
    said = hang.said()
    assert "Rank 1 left no dump: whether the call was enqueued there is unknown." in said
    assert "never enqueued" not in said
    assert hang.rows("SELECT state FROM hang_ranks WHERE rank = 1") == [("no dump",)]


def test_a_dump_of_active_calls_does_not_show_what_is_finished(tmp_path: Path) -> None:
    """As TORCH_INCLUDE_ONLY_ACTIVE makes them: rank 1 may have finished the call."""
    dumps = dumps_of(ddp(3, 4, lambda programs: programs[2].pop()))
    for dump in dumps:
        dump["pg_status"] = {"0": {"last_enqueued_collective": 9}}
        dump["entries"] = [one for one in dump["entries"] if one["state"] != "completed"]
    dumps[1]["entries"] = []
    dumps[2]["pg_status"]["0"]["last_enqueued_collective"] = 8
    hang = Hang(tmp_path)
    write(enumerated(dumps), hang.folder)
    said = hang.said()
    assert "1 rank waits in all_reduce #9" in said and "never enqueued" not in said
    assert "Ranks 1-2 left no dump, or one of active calls alone" in said


# Dumps of older versions: 2.0 has no types, stacks of threads, or marks of sends and receives.
_LATER = (
    "is_p2p", "input_dtypes", "output_dtypes", "timeout_ms", "thread_name", "thread_id", "retired",
    "time_discovered_started_ns", "op_id", "pg_id",
)  # fmt: skip


def test_dumps_of_older_versions(tmp_path: Path) -> None:
    programs = [[Op("all_reduce"), Op("send", peer=1)], [Op("all_reduce")]]
    dumps = dumps_of(Job({DEFAULT: (0, 1)}, programs))
    for dump in dumps:
        dump["version"] = "2.1"
        del dump["comm_lib_version"], dump["pg_status"]
        for entry in dump["entries"]:
            for name in _LATER:
                del entry[name]
    hang = Hang(tmp_path)
    write(enumerated(dumps), hang.folder)
    sql = "SELECT kind, source, target, idle_ranks FROM hang_waits"
    assert hang.rows(sql) == [("never enqueued", 0, 1, "1")]


@pytest.mark.parametrize("timed", [True, False])
def test_a_collective_that_started_everywhere_or_may_have(timed: bool, tmp_path: Path) -> None:
    job = ddp(4, 5)
    job.stuck, job.timed = (DEFAULT, 6), timed
    said = Hang(tmp_path, job).said()
    where = "all_reduce #6 of default_pg (4 ranks)"
    if timed:
        assert f"On all 4 ranks, {where} started at train.py:10 step()" in said
        assert "Check the network and the GPUs" in said
    else:
        assert f"All 4 ranks enqueued {where}" in said and "TORCH_NCCL_ENABLE_TIMING=1" in said


def test_a_collective_that_has_not_started_on_a_rank(tmp_path: Path) -> None:
    job = ddp(4, 5)
    job.stuck = (DEFAULT, 6)
    dumps = dumps_of(job)
    entry = dumps[2]["entries"][5]
    entry["state"], entry["time_discovered_started_ns"] = "scheduled", None
    hang = Hang(tmp_path)
    write(enumerated(dumps), hang.folder)
    assert "it has not started on rank 2." in hang.said()


def test_json_has_no_stacks(tmp_path: Path) -> None:
    job = ddp(4, 5, lambda programs: programs[1].pop())
    dumps = dumps_of(job)
    for dump in dumps:
        for entry in dump["entries"]:
            del entry["frames"]
            entry["process_group"] = [*entry["process_group"]]
            for name in ("time_discovered_started_ns", "time_discovered_completed_ns"):
                entry[name] = entry[name] or 0
    hang = Hang(tmp_path)
    write(enumerated(dumps), hang.folder, as_json=True)
    assert "Rank 1 never enqueued all_reduce #11" in hang.said()
    assert " at " not in hang.said().split("Look at")[0].replace("at the host", "")


def test_a_buffer_that_wrapped(tmp_path: Path) -> None:
    job = ddp(4, 50, lambda programs: programs[2].pop())
    job.buffer = 10
    hang = Hang(tmp_path, job)
    assert hang.rows(WAITS) == [("never enqueued", 101, "0-1, 3", "2", None)]
    assert hang.rows("SELECT DISTINCT overwritten FROM hang_ranks ORDER BY ALL") == [(90,), (91,)]


def test_groups_of_one_name_and_other_ranks(tmp_path: Path) -> None:
    """As after split_group: both halves are called 0."""
    dumps = dumps_of(ddp(2, 3))
    short = dumps_of(ddp(2, 3, lambda programs: programs[1].pop()))
    for dump in short:
        dump["pg_config"]["0"]["ranks"] = "[2, 3]"
    hang = Hang(tmp_path)
    write(enumerated([*dumps, *short]), hang.folder)
    assert hang.rows(WAITS) == [("never enqueued", 7, "2", "3", None)]


def test_a_group_that_was_created_again(tmp_path: Path) -> None:
    """Its numbers start again; the name is the same, the id in the process is not."""
    dumps = dumps_of(ddp(2, 2, lambda programs: programs[1].pop()))
    for dump in dumps:
        again = [
            dict(entry, pg_id=7, record_id=entry["record_id"] + 100) for entry in dump["entries"]
        ]
        for entry in dump["entries"]:
            entry["state"] = "completed"
        if dump is dumps[1]:
            first = dump["entries"][-1]
            dump["entries"].append(dict(first, collective_seq_id=5, record_id=50))
        dump["entries"] += again
    hang = Hang(tmp_path)
    write(enumerated(dumps), hang.folder)
    assert hang.rows(WAITS) == [("never enqueued", 5, "0", "1", None)]


# One planted fault in a random job: the rank and the collective are those of the simulator.


@st.composite
def planted(draw: st.DrawFn) -> tuple[Job, int, str, int]:
    """Return a job of several groups, the rank that misses its last calls, group and number."""
    ranks = draw(st.integers(2, 6))
    groups: dict[str, Sequence[int]] = {DEFAULT: range(ranks)}
    for number in range(draw(st.integers(0, 3))):
        members = draw(st.sets(st.integers(0, ranks - 1), min_size=2, max_size=ranks))
        groups[f"g{number}"] = sorted(members)
    calls = draw(
        st.lists(
            st.tuples(st.sampled_from([*groups]), st.sampled_from([16, 64]), st.integers(1, 9)),
            min_size=1,
            max_size=12,
        )
    )
    programs: list[list[Op]] = [[] for _ in range(ranks)]
    for group, size, line in calls:
        for rank in groups[group]:
            programs[rank].append(Op("all_reduce", group, size=size, line=line))
    rank = draw(st.sampled_from([rank for rank in range(ranks) if programs[rank]]))
    left = draw(st.integers(0, len(programs[rank]) - 1))
    missed = programs[rank][left]
    number = sum(op.group == missed.group for op in programs[rank][: left + 1])
    programs[rank] = programs[rank][:left]
    return (
        Job(groups, programs, buffer=draw(st.sampled_from([3, 2000]))),
        rank,
        missed.group,
        number,
    )


class Hangs:
    """Several jobs in a store, by report."""

    def __init__(self, folder: Path, jobs: Sequence[Job]) -> None:
        self.store = Store(folder / "store")
        self.reports = []
        for number, job in enumerate(jobs):
            dumps = dumps_of(job)
            for dump in dumps:
                # Jobs differ, so that none is read twice.
                dump["comm_lib_version"] = str(number)
            path = write(enumerated(dumps), folder / str(number))
            self.reports.append(ingest(path, self.store).report_id)

    def rows(self, sql: str) -> list[list[tuple[Any, ...]]]:
        """Return the rows of each job; the first column is the report."""
        with Session.open(self.store, self.reports) as session:
            rows = session.execute(sql).fetchall()
        return [[row[1:] for row in rows if row[0] == report] for report in self.reports]


@given(st.lists(planted(), min_size=1, max_size=12))
@settings(max_examples=6)
def test_the_rank_that_stopped_is_the_one_that_is_named(
    tmp_path_factory: pytest.TempPathFactory, faults: list[tuple[Job, int, str, int]]
) -> None:
    hangs = Hangs(tmp_path_factory.mktemp("hang"), [job for job, *_ in faults])
    sql = "SELECT report_id, kind, group_name, sequence, idle_ranks, older FROM hang_waits"
    for (_, rank, group, number), rows in zip(faults, hangs.rows(sql), strict=True):
        causes = [row for row in rows if row[0] != "behind"]
        # All that is wrong is that this rank stopped; overwritten calls leave doubts.
        certain = {row[:4] for row in causes if not row[4]}
        assert certain <= {("never enqueued", *row[1:3], str(rank)) for row in certain}
        assert ("never enqueued", group, number, str(rank)) in certain or any(
            row[4] for row in causes
        )
    assert not any(hangs.rows("SELECT report_id FROM hang_mismatches"))


@st.composite
def transfers(draw: st.DrawFn) -> Job:
    """Return ranks that send and receive in any order: many of these jobs hang."""
    ranks = draw(st.integers(2, 4))
    programs: list[list[Op]] = [[] for _ in range(ranks)]
    for _ in range(draw(st.integers(1, 6))):
        source, target = draw(st.permutations(range(ranks)))[:2]
        for rank, op in ((source, Op("send", peer=target)), (target, Op("recv", peer=source))):
            program = programs[rank]
            program.insert(draw(st.integers(0, len(program))), op)
    return Job({DEFAULT: range(ranks)}, programs)


@given(st.lists(transfers(), min_size=1, max_size=12))
@settings(max_examples=6)
def test_matched_transfers_hang_if_and_only_if_ranks_wait_for_each_other(
    tmp_path_factory: pytest.TempPathFactory, jobs: list[Job]
) -> None:
    """Every transfer has both ends, so only their order can block; the simulator knows whether."""
    hangs = Hangs(tmp_path_factory.mktemp("hang"), jobs)
    for job, rows in zip(jobs, hangs.rows("SELECT report_id, kind FROM hang_waits"), strict=True):
        ends = zip(job.run(), job.programs, strict=True)
        kinds = {kind for (kind,) in rows}
        assert ("deadlock" in kinds) == any(end < len(program) for end, program in ends)
        assert kinds <= {"deadlock", "behind"}


# The real recorder, and PyTorch's own analyzer.

_GLOO = """
import os, sys, time
import torch, torch.distributed as dist
from torch._C import _distributed_c10d as recorder
rank, folder, port = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", f"file://{folder}/rendezvous", rank=rank, world_size=3)
value = torch.ones(4)
dist.all_reduce(value)
half = dist.new_group([0, 1], group_desc="half")
if rank < 2:
    dist.broadcast(value, 0, group=half)
if rank != 2:
    dist.all_reduce(value, async_op=True)  # rank 2 never calls it
time.sleep(1)
with open(f"{folder}/dumps/trace_rank_{rank}", "wb") as file:
    file.write(recorder._dump_fr_trace())
os._exit(0)
"""


def test_dumps_of_the_real_recorder(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    hang = Hang(tmp_path)
    hang.folder.mkdir()
    program = tmp_path / "train.py"
    program.write_text(_GLOO)
    env = os.environ | {"TORCH_FR_BUFFER_SIZE": "100"}
    words = [sys.executable, str(program)]
    ranks = [
        subprocess.Popen([*words, str(rank), str(tmp_path), "0"], env=env) for rank in range(3)
    ]
    try:
        assert [rank.wait(120) for rank in ranks] == [0, 0, 0]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    if not any(hang.rows("FROM hang_calls")):
        pytest.skip("this PyTorch does not record calls of gloo")
    line = _GLOO.splitlines().index(next(x for x in _GLOO.splitlines() if "never" in x)) + 1
    assert hang.rows("SELECT kind, operation, idle_ranks, ranks_from, site FROM hang_waits") == [
        ("never enqueued", "all_reduce", "2", "calls", f"train.py:{line} <module>()")
    ]
    assert "(at least 3 ranks)" in hang.said()


def _fr_trace(folder: Path) -> list[Any]:
    """Return the collectives of PyTorch's analyzer."""
    from torch.distributed.flight_recorder.components.builder import build_db
    from torch.distributed.flight_recorder.components.loader import read_dir

    args = Namespace(
        trace_dir=str(folder),
        prefix="nccl_trace_rank_",
        verbose=False,
        just_print_entries=False,
        allow_incomplete_ranks=True,
        mismatch_cap=10,
    )
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        details, version = read_dir(args)
        # Its verdict depends on the order in which it meets the ranks: that of the directory.
        ordered = dict(sorted(details.items()))
        return [*build_db(ordered, args, version).collectives]


@pytest.mark.parametrize("rank", [0, 3])
def test_the_analyzer_of_pytorch_agrees_on_who_is_missing(rank: int, tmp_path: Path) -> None:
    pytest.importorskip("torch.distributed.flight_recorder.fr_trace")
    hang = Hang(tmp_path, ddp(6, 6, lambda programs: programs[rank].pop()))
    missing = [(one.collective_seq_id, one.missing_ranks) for one in _fr_trace(hang.folder)]
    assert [pair for pair in missing if pair[1]] == [(13, {rank})]
    assert hang.rows("SELECT sequence, idle_ranks FROM hang_waits") == [(13, str(rank))]


def test_the_analyzer_of_pytorch_blames_all_others_if_the_first_rank_is_wrong(
    tmp_path: Path,
) -> None:
    pytest.importorskip("torch.distributed.flight_recorder.fr_trace")

    def wrong(programs: list[list[Op]]) -> None:
        programs[0][4] = Op("all_reduce", size=7, line=50)

    hang = Hang(tmp_path, ddp(6, 6, wrong))
    blamed = [
        {*one.mismatch_collectives} for one in _fr_trace(hang.folder) if one.mismatch_collectives
    ]
    assert blamed[0] == {1, 2, 3, 4, 5}
    sql = "SELECT sequence, most_ranks, other_ranks, other_site FROM hang_mismatches"
    assert hang.rows(sql) == [(5, "1-5", "0", "train.py:50 step()")]
