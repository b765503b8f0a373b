"""Many ranks as one job: who is which rank, clocks, pairing of collectives, waiting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import pytest
from conftest import Opened, Tiny
from hypothesis import given, settings
from hypothesis import strategies as st

Ingested = Callable[[str], str]
KERNEL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def _ask(opened: Opened, names: Sequence[str], sql: str) -> list[tuple[Any, ...]]:
    """Ask about the whole captures."""
    with opened(*names, window="whole") as con:
        return con.execute(sql).fetchall()


#: Two ranks of which rank 1 had more work in most steps, and rank 0 in every fourth one.
STRAGGLERS = [f"nsys/ddp_straggler_rank{rank}.sqlite" for rank in (0, 1)]


def test_ranks_come_from_the_environment_and_clocks_agree(
    opened: Opened, ingested: Ingested
) -> None:
    rows = _ask(
        opened,
        STRAGGLERS,
        "SELECT rank, rank_source, report_id, collectives, paired, clock_shift_ns, "
        "clock_residual_ns FROM job_ranks",
    )
    assert [row[:5] for row in rows] == [
        (rank, "RANK", ingested(name), 47, 46) for rank, name in enumerate(STRAGGLERS)
    ]
    # One machine: the start times agree to microseconds, so ends of collectives move little.
    assert rows[0][5:] == (None, None)
    assert abs(rows[1][5]) < 100_000
    assert rows[1][6] < 10_000


def test_the_rank_with_more_work_is_last_in_each_step(opened: Opened) -> None:
    last = _ask(
        opened,
        STRAGGLERS,
        "SELECT last_rank FROM paired_collectives WHERE bytes = 33570816 ORDER BY nth",
    )
    # Three buckets a step; steps 101 and 102 of the warm-up, then 0 to 9.
    expected = [int(step % 4 != 3) for step in (101, 102, *range(10))]
    assert [row[0] for row in last][::3] == expected
    steps = _ask(opened, STRAGGLERS, "SELECT step, busiest_rank FROM step_skew WHERE ranks = 2")
    assert steps[1:] == [(f"step {n}", int(n % 4 != 3)) for n in (101, 102, *range(10))]


@pytest.mark.parametrize("window", ["steady", "whole", "startup"])
def test_waiting_is_that_of_the_window(opened: Opened, window: str) -> None:
    """Collectives that begin in the window of both ranks, against their durations."""
    with opened(*STRAGGLERS, window=window) as con:
        paired = con.execute(
            "SELECT p.pair, p.rank, p.dur_ns, p.start_ns >= w.start_ns AND p.start_ns < w.end_ns "
            "FROM _paired AS p JOIN analysis_windows AS w USING (report_id) ORDER BY p.start_ns"
        ).fetchall()
        (collectives,) = con.execute("SELECT count(*) FROM paired_collectives").fetchone() or ()
        skew = con.execute(
            "SELECT rank, collectives, waiting_ns, k.start_ns, window_pct * w.time_ns / 100 "
            "FROM rank_skew AS k JOIN analysis_windows AS w USING (report_id) ORDER BY rank"
        ).fetchall()
    outside = {pair for pair, _, _, inside in paired if not inside}
    least = {pair: min(ns for p, _, ns, _ in paired if p == pair) for pair, *_ in paired}
    waits = {
        rank: [(pair, ns - least[pair]) for pair, r, ns, _ in paired if r == rank]
        for rank in (0, 1)
    }
    assert (not outside) == (window == "whole")
    assert collectives == len(least) - len(outside)
    for rank, counted, waiting, started, of_window in skew:
        known = [ns for pair, ns in waits[rank] if pair not in outside]
        first, ns = waits[rank][0]
        assert (counted, waiting) == (len(known), sum(known))
        assert started == (0 if first in outside else ns)
        assert of_window == pytest.approx(waiting)


def test_bandwidth_is_that_of_the_transfer(opened: Opened) -> None:
    rows = _ask(
        opened,
        STRAGGLERS,
        "SELECT ranks, bytes, transfer_ns, bus_bytes_per_s, algorithm_bytes_per_s, together "
        "FROM paired_collectives WHERE bytes = 33570816",
    )
    assert len(rows) == 36
    for ranks, size, transfer, bus, algorithm, together in rows:
        assert ranks == 2 and together
        assert bus == algorithm == pytest.approx(size / transfer * 1e9)
    # NVLink 4 of an H200: 450 GB/s a direction; what NCCL's ring reaches with two GPUs lies below.
    assert 1.5e11 < median(row[3] for row in rows) < 4.5e11


def test_bytes_of_every_operation_are_those_of_the_payloads(opened: Opened) -> None:
    rows = _ask(
        opened,
        STRAGGLERS[:1],
        "SELECT collective, count, bytes FROM nccl_collectives ORDER BY collective",
    )
    assert rows == [
        # 1 Mi floats each, and what DDP exchanges when it begins.
        ("AllGather", 2, 4 * 2**20 + 8),
        # A gradient of 6 x (2048 x 2048 + 2048) floats in 13 steps, and flags.
        ("AllReduce", 38, 13 * 6 * (2048 * 2048 + 2048) * 4 + 4),
        # The model, the input of 4096 x 2048 floats, and 352 bytes of bookkeeping.
        ("Broadcast", 5, 6 * (2048 * 2048 + 2048) * 4 + 4 * 4096 * 2048 + 352),
        ("ReduceScatter", 1, 4 * 2**20),
        # Grouped with its peer's: 256 Ki floats.
        ("SendRecv", 1, 4 * 2**18),
    ]


@pytest.mark.parametrize(
    "names", [("ddp_comm_rank0", "ddp_comm_rank1"), ("ddp_single",)], ids=["two", "one"]
)
def test_two_reports_and_one_of_two_processes_are_a_job(
    opened: Opened, names: tuple[str, ...]
) -> None:
    reports = [f"nsys/{name}.sqlite" for name in names]
    rows = _ask(
        opened,
        reports,
        "SELECT rank, rank_source, device, collectives, paired FROM job_ranks",
    )
    assert rows == [(rank, "file order", rank, 136, 136) for rank in (0, 1)]
    pairs = _ask(
        opened,
        reports,
        "SELECT count(*), bool_and(together), bool_and(transfer_ns > 0), bool_and(bytes IS NULL), "
        "sum(waiting_ns) FROM paired_collectives",
    )
    assert pairs[0][:4] == (136, True, True, True)
    skew = _ask(opened, reports, "SELECT sum(waiting_ns), sum(transfer_ns) FROM rank_skew")
    total = _ask(opened, reports, "SELECT sum(total_ns) FROM nccl_collectives")
    assert skew[0][0] == pairs[0][4]
    assert skew[0][0] + skew[0][1] == total[0][0]


def _job(
    ranks: list[list[tuple[int, int]]],
    starts: list[int],
    names: list[str] | None = None,
    name: str = "",
    db: Tiny | None = None,
) -> Tiny:
    """One report a rank, with a collective for each (start, end) on the report's own clock."""
    db = db or Tiny()
    for rank, spans in enumerate(ranks):
        report = f"{name}r{rank}"
        source = names[rank] if names else f"rank{rank}.sqlite"
        db.add(
            "reports",
            {"report_id": report, "kind": "nsys", "source_name": source, "directory": f"/{name}",
             "started_ns": starts[rank]},
        )  # fmt: skip
        for start, end in spans:
            db.add(
                "launches",
                {"report_id": report, "kind": "kernel", "name": KERNEL, "pid": 1, "device": 0,
                 "start_ns": start, "end_ns": end},
            )  # fmt: skip
    return db


_jobs = st.tuples(
    st.lists(
        st.tuples(st.integers(1, 50), st.lists(st.integers(0, 40), min_size=3, max_size=3)),
        min_size=1,
        max_size=6,
    ),
    st.lists(st.integers(-10_000, 10_000), min_size=3, max_size=3),
)


@settings(max_examples=4, deadline=None)
@given(st.lists(_jobs, min_size=8, max_size=8))
def test_pairs_against_a_simulation(
    jobs: list[tuple[list[tuple[int, list[int]]], list[int]]],
) -> None:
    """Ranks arrive at their times, the transfer begins with the last, all end together.

    Several jobs at a time, each in a directory of its own.
    """
    db = Tiny()
    truth: dict[str, list[tuple[int, int, list[int]]]] = {}
    for number, (collectives, wrong) in enumerate(jobs):
        clock = 1_000_000
        ranks: list[list[tuple[int, int]]] = [[], [], []]
        for transfer, late in collectives:
            arrived = [clock + delay for delay in late]
            end = max(arrived) + transfer
            waiting = sum(max(arrived) - at for at in arrived)
            truth.setdefault(f"{number}r0", []).append((transfer, waiting, arrived))
            for rank, at in enumerate(arrived):
                ranks[rank].append((at - 500 * rank, end - 500 * rank))
            clock = end + 10
        # Captures began 500 ns apart, and each start time is off by `wrong`.
        starts = [10**18 + 500 * rank + wrong[rank] for rank in range(3)]
        _job(ranks, starts, name=str(number), db=db)
    rows = db.rows(
        "SELECT job, transfer_ns, waiting_ns, last_rank, last_start_ns - first_start_ns, together "
        "FROM paired_collectives ORDER BY nth"
    )
    assert {job for job, *_ in rows} == truth.keys()
    for job, of_job in truth.items():
        found = [row for of, *row in rows if of == job]
        for (transfer, waiting, arrived), row in zip(of_job, found, strict=True):
            order = sorted(arrived)
            last = arrived.index(order[-1]) if order[-1] > order[-2] else None
            assert row == [transfer, waiting, last, order[-1] - order[0], True]


def test_clocks_are_set_by_the_ends_of_collectives() -> None:
    db = _job([[(100, 200), (300, 400)], [(7_150, 7_200), (7_350, 7_402)]], [10**18, 10**18])
    assert db.rows(
        "SELECT rank, clock_offset_ns, clock_shift_ns, clock_residual_ns FROM job_ranks"
    ) == [(0, 0, None, None), (1, -7_001, -7_001, 1.0)]


def test_ranks_that_differ_in_number_are_not_paired() -> None:
    def job() -> Tiny:
        return _job([[(100, 200), (300, 400)], [(100, 200)]], [0, 0])

    assert job().rows("SELECT rank, collectives, paired FROM job_ranks") == [(0, 2, 0), (1, 1, 0)]
    assert job().rows("SELECT * FROM paired_collectives") == []
    assert job().rows("SELECT * FROM rank_skew") == []


def test_file_order_is_that_of_the_numbers_in_names() -> None:
    names = ["rank10.sqlite", "rank9.sqlite", "rank1.sqlite"]
    db = _job([[(100, 200)]] * 3, [0, 0, 0], names)
    assert db.rows("SELECT report_id, rank, rank_source FROM job_ranks") == [
        ("r2", 0, "file order"),
        ("r1", 1, "file order"),
        ("r0", 2, "file order"),
    ]


def test_sources_of_ranks() -> None:
    def ranks(db: Tiny) -> list[tuple[Any, ...]]:
        return db.rows("SELECT rank, report_id, rank_source FROM job_ranks")

    def job(**variables: tuple[str, str]) -> Tiny:
        db = _job([[(100, 200)]] * 2, [0, 0])
        for name, values in variables.items():
            for rank, value in enumerate(values):
                row = {"report_id": f"r{rank}", "source": "variable", "name": name, "value": value}
                db.add("nsys_environment", row)
        return db

    assert ranks(job(SLURM_PROCID=("5", "4"), LOCAL_RANK=("0", "1"))) == [
        (4, "r1", "SLURM_PROCID"),
        (5, "r0", "SLURM_PROCID"),
    ]
    # Two nodes: local ranks repeat, so they are no ranks of the job.
    assert ranks(job(LOCAL_RANK=("0", "0"))) == [(0, "r0", "file order"), (1, "r1", "file order")]
    assert ranks(job(RANK=("1", "x"))) == [(0, "r0", "file order"), (1, "r1", "file order")]
    db = job(RANK=("0", "1"))
    for rank in (0, 1):
        db.add("mpi_ranks", {"report_id": f"r{rank}", "pid": 1, "tid": 1, "rank": 7 - rank})
    assert ranks(db) == [(6, "r1", "MPI_RANKS"), (7, "r0", "MPI_RANKS")]


@pytest.mark.parametrize(
    ("change", "jobs"),
    [
        ("UPDATE reports SET directory = '/elsewhere' WHERE report_id = 'r1'", 2),
        ("UPDATE reports SET started_ns = 3000000000 WHERE report_id = 'r1'", 2),
        ("UPDATE reports SET started_ns = NULL", 2),
        ("UPDATE reports SET started_ns = 50 WHERE report_id = 'r1'", 1),
    ],
)
def test_reports_of_one_directory_at_one_time_are_a_job(change: str, jobs: int) -> None:
    db = _job([[(100, 200)], [(100, 200)]], [0, 0])
    db.con.execute(change)
    assert db.rows("SELECT count(DISTINCT job) FROM job_ranks") == [(jobs,)]


def test_a_steady_straggler_and_one_that_moves() -> None:
    early, late = (0, 110), (100, 110)
    for lasts, expected in (("1111", "steady"), ("1010", "moves"), ("....", None)):
        ranks: list[list[tuple[int, int]]] = [[], []]
        for n, last in enumerate(lasts):
            for rank in (0, 1):
                start, end = late if last in (str(rank), ".") else early
                ranks[rank].append((1000 * n + start, 1000 * n + end))
        assert _job(ranks, [0, 0]).rows("SELECT DISTINCT straggler FROM rank_skew") == [(expected,)]


def test_what_the_first_step_loads_is_called_out(opened: Opened) -> None:
    rows = _ask(
        opened,
        STRAGGLERS,
        "SELECT s.first_ns, s.p50_ns, s.first_loading_ns, sum(c.dur_ns) FROM step_summary AS s "
        "JOIN nsys_nvtx_ranges AS r ON r.report_id = s.report_id AND r.name = 'step 100' "
        "JOIN nsys_api_calls AS c ON c.report_id = r.report_id "
        "AND regexp_matches(c.name, '^cu(da)?(Library|Module)(Load|Get)') "
        "AND c.start_ns BETWEEN r.start_ns AND r.end_ns GROUP BY ALL",
    )
    assert len(rows) == 2
    for first, median_ns, loading, plain in rows:
        assert loading == plain
        # Most of what the first step takes beyond the others is loading.
        assert 0.5 * (first - median_ns) < loading < first
