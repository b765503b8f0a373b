"""Programs that know nothing of perfpipe: what their recordings lead to, from launch to advice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perfpipe.analysis.session import Session
from perfpipe.store import Store

#: What may be said of a long start-up, whose share is of the capture.
START_UP = {"keep_alive", "cache_compiled", "cache_tuned", "preload"}


@pytest.mark.parametrize(
    ("name", "source", "launches", "steps", "bound", "techniques", "coverage"),
    [
        # A batch of 64 small images: the GPU waits for the host three quarters of the time.
        (
            "vision_train",
            "period",
            876,
            57,
            "launch_overhead",
            ["cuda_graphs", "fused_batch_norm"],
            60,
        ),
        # FP32 activations, which cuDNN converts for its kernels.
        ("jax_train", "NVTX", 52, 58, "compute", ["mixed_precision", "no_conversions"], 79),
    ],
)
def test_a_program_without_annotations(
    replayed: Callable[[str], Path],
    name: str,
    source: str,
    launches: int,
    steps: int,
    bound: str,
    techniques: list[str],
    coverage: int,
) -> None:
    with Session.open(Store(replayed(name))) as con:
        windows = con.execute("SELECT kind, steps, source FROM analysis_windows").fetchall()
        typical = con.execute(
            "SELECT period_launches, (SELECT count(*) FROM steps WHERE phase = 'steady') "
            "FROM step_sources WHERE source = 'period'"
        ).fetchall()
        verdicts = con.execute("SELECT bound, share_pct FROM timeline_bottleneck").fetchall()
        covered = con.execute("SELECT profiled_pct FROM step_coverage").fetchall()
        findings = con.execute(
            "SELECT subject, share_of, share_pct, bound_pct, technique FROM findings ORDER BY rank"
        ).fetchall()
        first = con.execute("SELECT technique FROM recommendations ORDER BY rank").fetchone()
    assert windows == [("steady", steps, source)]
    assert typical == [(launches, steps)]
    assert [row[0] for row in verdicts] == [bound]
    assert covered[0][0] > coverage
    assert {row[1] for row in findings if row[4] not in START_UP} == {"step"}
    assert all(row[3] is None or row[3] <= row[2] for row in findings if row[0] == "kernel")
    timeline = [row for row in findings if row[0] == "timeline" and row[1] == "step"]
    assert [row[4] for row in timeline] == techniques
    assert first == (techniques[0],)


@pytest.mark.parametrize(
    ("name", "launches", "moved", "coverage"),
    [
        # Of the names that stand for most time for each launch, those that cover 85 %.
        ("vision_train", 103, 0, 85),
        # Of three conversions with one grid, ncu takes the one that takes most time.
        ("jax_train", 18, 11, 85),
    ],
)
def test_what_is_planned_stands_for_most_of_a_step(
    replayed: Callable[[str], Path], name: str, launches: int, moved: int, coverage: int
) -> None:
    with Session.open(Store(replayed(name))) as con:
        (found,) = con.execute(
            "SELECT most_launches, launches_before, coverage_pct FROM profile_plan_totals"
        ).fetchall()
        (before,) = (
            con.execute(
                "SELECT count(*) FROM nsys_kernels, (FROM analysis_windows) AS w "
                "WHERE nsys_kernels.start_ns < w.start_ns"
            ).fetchone()
            or ()
        )
        took = con.execute(
            "SELECT demangled, grid, block, covered_pct FROM profile_plan WHERE chosen"
        ).fetchall()
    assert found[:2] == (launches, before + moved)
    assert found[2] == pytest.approx(sum(row[3] for row in took))
    assert coverage < found[2] < coverage + 2


@pytest.mark.parametrize("name", ["vision_train", "jax_train"])
def test_what_was_profiled_is_counted_by_one_rule(
    replayed: Callable[[str], Path], name: str
) -> None:
    """Launches of a profiled grid that take much longer or shorter are not: JAX converts tensors
    of several sizes with one grid."""
    with Session.open(Store(replayed(name)), window="whole") as con:
        covered, otherwise = (
            con.execute("SELECT profiled_pct, otherwise_pct FROM step_coverage").fetchone() or ()
        )
        rows = con.execute(
            "SELECT name, grid, block, matched, instances, total_time_ns, time_pct, max_sol_pct "
            "FROM kernel_headroom"
        ).fetchall()
        launches = con.execute(
            "SELECT demangled, concat_ws(',', grid_x, grid_y, grid_z), "
            "concat_ws(',', block_x, block_y, block_z), dur_ns FROM nsys_kernels"
        ).fetchall()
        profiled = con.execute(
            "SELECT key, grid, block, min_ns, max_ns FROM _profiled_kernels"
        ).fetchall()
        keys = dict(
            con.execute(
                "SELECT DISTINCT demangled, kernel_key(demangled) FROM nsys_kernels"
            ).fetchall()
        )
    ranges = {tuple(row[:3]): row[3:] for row in profiled}
    expected: dict[tuple[str, str, str, bool], list[int]] = {}
    for kernel, grid, block, ns in launches:
        least, most = ranges.get((keys[kernel], grid, block), (1, 0))
        expected.setdefault((kernel, grid, block, least <= 3 * ns and ns <= 3 * most), []).append(
            ns
        )
    assert {tuple(row[:4]): row[4:6] for row in rows} == {
        key: (len(durations), sum(durations)) for key, durations in expected.items()
    }
    assert all((row[7] is not None) == row[3] for row in rows)
    both = {row[:3] for row in rows if row[3]} & {row[:3] for row in rows if not row[3]}
    assert both
    assert sum(row[6] for row in rows if row[3]) == pytest.approx(covered)
    known = {row[0] for row in profiled}
    others = sum(row[6] for row in rows if not row[3] and keys[row[0]] in known)
    assert otherwise == pytest.approx(others)
