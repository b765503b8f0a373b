"""Bounds on gains: what they must never be refuted by, and what they assume."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from conftest import Opened, Tiny

from perfpipe.analysis.session import Session
from perfpipe.ingest.ncu.program import program
from perfpipe.store import Store

Ingested = Callable[[str], str]

#: Launches of ncu/ops that do the same work, by their NVTX ranges: the time of each is that of its
#: launches together.
SAME_WORK = {
    "matmul + leaky_relu, 4096 FP16": r"fused_matmul_leaky_relu.*|unfused_matmul_leaky_relu",
    "matmul 4096, TF32 or FP16": r"gemm_(tf32|fp16)_4096",
}


@pytest.mark.parametrize("pattern", SAME_WORK.values(), ids=SAME_WORK)
def test_no_bound_is_refuted_by_a_faster_way(opened: Opened, pattern: str) -> None:
    """A range's launches could together save what the fastest range of the same work saves."""
    sql = f"""
        SELECT
            coalesce(regexp_extract(nvtx_path, '[^/]+$'), nvtx_path) AS way,
            sum(duration_ns),
            sum(duration_ns * (SELECT max(coalesce(gain_pct, 100)) FROM kernel_findings AS f
                WHERE f.report_id = l.report_id AND f.launch_id = l.launch_id) / 100)
        FROM ncu_launches AS l
        WHERE regexp_full_match(regexp_extract(nvtx_path, '[^/]+$'), '{pattern}')
        GROUP BY 1
    """
    with opened("ncu/ops.ncu-rep") as con:
        ways = con.execute(sql).fetchall()
    assert len(ways) >= 2
    for slow, fast in combinations(sorted(ways, key=lambda way: -way[1]), 2):
        assert slow[2] >= slow[1] - fast[1], (slow, fast)


def test_a_graph_is_not_faster_than_the_bound_of_eager(opened: Opened) -> None:
    """The same step launched kernel by kernel and as a CUDA graph."""
    with opened("nsys/eager_small.sqlite") as con:
        ((eager,),) = con.execute("SELECT p50_ns FROM step_summary").fetchall()
        ((bound, technique, floor),) = con.execute(
            "SELECT bound_pct, technique, floor FROM findings WHERE claim = 'launch_overhead'"
        ).fetchall()
    with opened("nsys/graph_whole.sqlite") as con:
        ((graph,),) = con.execute("SELECT p50_ns FROM step_summary").fetchall()
    assert (technique, floor) == ("cuda_graphs", "synced")
    assert 100 * (1 - graph / eager) <= bound <= 100


def test_bounds_nest(opened: Opened) -> None:
    """None exceeds the kernel's share; what keeps the work does not exceed the SOL headroom."""
    with opened(*(f"ncu/{name}.ncu-rep" for name in ("visible", "ops", "block"))) as con:
        classes = con.execute(
            "SELECT share_pct, headroom_pct, gain_pct, floor FROM kernel_classes"
        ).fetchall()
        wrong = con.execute(
            """
            SELECT technique, gain_pct, 100 - max_sol_pct
            FROM kernel_findings JOIN kernel_sol USING (report_id, launch_id)
            JOIN _techniques AS t USING (technique)
            WHERE list_contains(t.keeps, 'work') AND gain_pct > 100 - max_sol_pct + 1e-9
            """
        ).fetchall()
        findings = con.execute(
            """
            SELECT f.bound_pct, max(k.gain_pct) FILTER (k.rank = 1)
            FROM findings AS f
            JOIN kernel_sol AS s ON s.kernel_name = f.kernel_name AND s.report_id = f.reports[1]
                AND s.grid = f.grid AND s.block = f.block AND f.nvtx_path = s.nvtx_path
            JOIN kernel_findings AS k ON k.report_id = s.report_id AND k.launch_id = s.launch_id
                AND (k.bound, k.subclass, k.cause) IS NOT DISTINCT FROM (f.bound, f.subclass, f.cause)
            WHERE f.subject = 'kernel' AND f.launches = 1
            GROUP BY ALL
            """
        ).fetchall()
    assert len(classes) > 60
    assert not wrong
    for share, headroom, gain, floor in classes:
        assert 0 <= headroom <= share + 1e-9
        assert (gain is None) == (floor is None)
        assert gain is None or 0 <= gain <= share + 1e-9
    assert all((bound is None) == (best is None) for bound, best in findings)


def test_a_transpose_needs_its_bytes() -> None:
    """Reads in order, writes with a stride: what it must move takes a tenth of its time."""
    n = 8192
    size = 4.0 * n * n
    db = Tiny(
        [{"launch_id": 0, "duration_ns": 1e6, "kernel_name": "transpose"}],
        {
            0: {
                "sm__throughput.avg.pct_of_peak_sustained_elapsed": 5.0,
                "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": 75.0,
                "lts__throughput.avg.pct_of_peak_sustained_elapsed": 75.0,
                "dram__bytes_read.sum": size,
                "dram__bytes_write.sum": 3 * size,
                "dram__bytes.sum.peak_sustained": 1500.0,
                "dram__cycles_elapsed.avg.per_second": 3.2e9,
                "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": size / 32,
                "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": size / 4,
                "l1tex__m_l1tex2xbar_write_bytes.sum": 8 * size,
                "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio": 32.0,
                "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio": 4.0,
                "launch__waves_per_multiprocessor": 9.0,
            }
        },
    )
    ((cause,),) = db.rows("SELECT cause FROM kernel_bottleneck")
    assert cause == "uncoalesced", "its loads are whole, its stores are not"
    rows = db.rows("SELECT gain_pct, floor FROM kernel_findings WHERE technique = 'coalesce'")
    assert rows == [(pytest.approx(100 - 100 * 2 * size / 4.8e12 / 1e-3), "bytes")]


def _launch(db_metrics: dict[str, float], **launch: Any) -> Tiny:
    return Tiny([{"launch_id": 0, "duration_ns": 1e6, **launch}], {0: db_metrics})


def test_a_tail_that_the_counters_deny_is_none() -> None:
    """1.5 waves, but all SMs are active equally long."""
    base = {
        "sm__throughput.avg.pct_of_peak_sustained_elapsed": 98.0,
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": 60.0,
        "launch__waves_per_multiprocessor": 1.5,
        "launch__grid_size": 198.0,
        "launch__sm_count": 132.0,
        "launch__block_size": 1024.0,
        "launch__registers_per_thread": 40.0,
        "launch__occupancy_limit_blocks": 1.0,
        "launch__occupancy_limit_warps": 1.0,
        "launch__occupancy_limit_registers": 1.0,
        "launch__occupancy_limit_shared_mem": 1.0,
        "sm__cycles_active.avg": 1000.0,
    }
    db = Tiny(
        [{"launch_id": launch, "duration_ns": 1e6} for launch in range(2)],
        {at: base | {"sm__cycles_active.max": most} for at, most in enumerate((1000.1, 1400.0))},
    )
    features = "SELECT launch_id, list_contains(features, 'tail') FROM kernel_features ORDER BY 1"
    even, uneven = db.rows(features)
    assert even == (0, False)
    assert uneven == (1, True)
    bounds = (
        "SELECT launch_id, max(gain_pct) FROM kernel_findings WHERE technique = 'tail_removal' "
        "GROUP BY 1"
    )
    assert db.rows(bounds) == [(1, 2.0)]


#: One block on a GPU of 132 SMs.
ONE_BLOCK = {
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": 0.1,
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": 0.2,
    "launch__grid_size": 1.0,
    "launch__sm_count": 132.0,
    "launch__waves_per_multiprocessor": 0.01,
}


@pytest.mark.parametrize(("duration_ns", "bound"), [(1e6, 99.8), (1e4, None)])
def test_one_block_that_works_for_long_has_a_bound(duration_ns: float, bound: float | None) -> None:
    """What any launch costs is most of a short one, and next to nothing of a long one."""
    db = _launch(ONE_BLOCK, duration_ns=duration_ns)
    gains = "SELECT gain_pct FROM kernel_findings WHERE technique = 'more_blocks'"
    assert db.rows(gains) == [(bound and pytest.approx(bound),)]


@pytest.fixture(scope="module")
def one_block() -> Tiny:
    """The findings of one block, and a table `claims` of what is said of a timeline beside it.

    To plan them takes longer than all else here: each case puts its own row into the table.
    """
    db = _launch(ONE_BLOCK)
    assert db.rows("SELECT subject FROM findings") == [("kernel",)]
    db.con.execute("""
        CREATE TABLE claims AS FROM _timeline_claims;
        CREATE OR REPLACE VIEW _timeline_claims AS FROM claims;
    """)
    return db


@pytest.mark.parametrize(("bound", "first"), [(1.0, "kernel"), (6.0, "timeline"), (None, "kernel")])
def test_what_saves_little_on_a_timeline_comes_behind_kernels(
    one_block: Tiny, bound: float | None, first: str
) -> None:
    claim = f"'timeline' AS subject, 'readback' AS claim, {bound or 'NULL'} AS bound_pct"
    one_block.con.execute(f"""
        DELETE FROM claims;
        INSERT INTO claims BY NAME SELECT {claim}, 0.5 AS share_pct;
    """)
    found = one_block.con.execute("SELECT subject FROM findings ORDER BY rank").fetchall()
    assert found[0] == (first,) and len(found) == 2


def test_no_bound_without_anything_known() -> None:
    """A launch of which only SOL is known: advice, and no number."""
    db = _launch(
        {
            "sm__throughput.avg.pct_of_peak_sustained_elapsed": 98.0,
            "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": 0.1,
            "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed": 98.0,
            "launch__waves_per_multiprocessor": 9.0,
        }
    )
    assert db.rows("SELECT technique, gain_pct, floor FROM kernel_findings") == [
        ("fast_math", None, None)
    ]
    assert db.rows("SELECT bound_pct, technique FROM findings") == [(None, "fast_math")]


@pytest.mark.parametrize(
    ("kernel", "technique"),
    [
        ("sm90_xmma_fprop_implicit_gemm_f16f16_nhwckrsc_nhwc_tilesize128x64x64_cudnn", "tried"),
        ("void implicit_convolve_sgemm<float, float, (int)1024, (int)5>(int)", "tuned"),
    ],
)
def test_only_what_computes_in_nchw_is_to_be_given_channels_last(
    kernel: str, technique: str
) -> None:
    sol = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
    metrics = {"sm__throughput.avg.pct_of_peak_sustained_elapsed": 40.0, sol: 70.0}
    name = kernel.removeprefix("void ").partition("<")[0]
    db = _launch(metrics, kernel_name=name, kernel_demangled=kernel)
    found = db.rows("SELECT technique FROM kernel_findings ORDER BY rank")
    assert found == [(f"{technique}_convolution",)]


def test_shares_are_of_the_step_where_there_is_one(
    pages: Callable[..., Path], replayed: Callable[[str], Path]
) -> None:
    store = Store(replayed("transformer_step"))
    with Session.open(store) as con:
        rows = con.execute(
            "SELECT share_of, sum(share_pct), max(bound_pct) FROM findings "
            "WHERE subject = 'kernel' GROUP BY 1"
        ).fetchall()
        ((busy,),) = con.execute(
            "SELECT sum(time_ns) FILTER (category = 'compute') * 100.0 / sum(time_ns) "
            "FROM gpu_time_budget"
        ).fetchall()
    ((share_of, share, bound),) = rows
    assert share_of == "steps", "several configurations"
    assert bound <= share <= busy + 1


@pytest.mark.parametrize(
    ("timeline", "profile", "paired"),
    [
        ("python3 train.py --lr 1", "/usr/bin/python3.12", True),
        ("/opt/app/solver -n 4", "/opt/app/solver", True),
        ("/opt/app/solver -n 4", "/opt/app/other", False),
        ("./solver", "/usr/bin/python3.12", False),
        ("torchrun --nproc-per-node 2 train.py", "/usr/bin/python3.12", True),
        ("python3 train.py", "python3 other.py", False),
        ("/opt/bin/python3 -u -X dev /x/train.py --lr 1", "/usr/bin/python3.12 train.py", True),
        ("python3 -m train", "/usr/bin/python3.12 train.py", True),
        ("python3 /opt/bin/torchrun train.py", "/usr/bin/python3.12 train.py", True),
        (None, "/opt/app/other", True),
    ],
)
def test_profiles_of_another_program_are_not_pooled(
    timeline: str | None, profile: str, paired: bool
) -> None:
    """Reports ingested by hand, of the same GPU model."""
    db = Tiny([{"launch_id": 0, "duration_ns": 1e6}], {})
    same = {"gpu": "NVIDIA H200", "directory": "d"}
    db.con.execute("DELETE FROM reports")
    db.add("reports", same | {"report_id": "t", "kind": "nsys", "command": timeline})
    db.add("reports", same | {"report_id": "p", "kind": "ncu", "command": profile})
    assert bool(db.rows("FROM _report_pairs")) is paired


@pytest.mark.parametrize(("profile", "pairs"), [("ncu/block", 0), ("real/llama_train", 1)])
def test_a_profile_pairs_with_the_timeline_of_its_script(
    opened: Opened, profile: str, pairs: int
) -> None:
    """Both profiles are of the same interpreter on the same GPU model."""
    with opened("real/llama_train.sqlite", f"{profile}.ncu-rep") as con:
        assert con.execute("SELECT count(*) FROM _report_pairs").fetchall() == [(pairs,)]


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("/opt/ncu --set basic -f -o block python3 train.py block 1 ", "train.py"),
        (
            "ncu --nvtx --export=/home/ada/x /v/bin/python3 -u -W error /home/ada/a.py --key K",
            "a.py",
        ),
        ("ncu -o python python3 a.py", "a.py"),
        ("ncu --unheard-of python3 a.py", None),
        ("ncu python3 -m a", None),
        ("ncu python3 -c 'import a' a.py", None),
        ("ncu torchrun a.py", None),
        ('ncu sh -c "python3 a.py"', None),
        ('ncu python3 "/x/My Project/a.py"', None),
        ('ncu python3 "a.py', None),
        ("ncu -o a", None),
        (None, None),
    ],
)
def test_the_script_of_a_profile_is_told_where_it_is_certain(
    command: str | None, script: str | None
) -> None:
    python = "/usr/bin/python3.12"
    assert program(python, command) == (f"{python} {script}" if script else python)
    assert program("/opt/app/solver", command) == "/opt/app/solver"
