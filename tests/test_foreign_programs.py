"""Programs that know nothing of perfpipe: what their recordings lead to, from launch to advice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.session import Session
from perfpipe.store import Store

#: What may be said of a long start-up, whose share is of the capture.
START_UP = {"keep_alive", "cache_compiled", "preload"}


@pytest.mark.parametrize(
    ("name", "launches", "steps", "bound", "techniques", "coverage"),
    [
        # A batch of 64 small images: the GPU waits for the host three quarters of the time.
        ("vision_train", 876, 55, "launch_overhead", ["cuda_graphs", "fused_batch_norm"], 60),
        # FP32 activations, which cuDNN converts for its kernels.
        ("jax_train", 52, 58, "compute", ["no_conversions"], 70),
    ],
)
def test_a_program_without_annotations(
    replayed: Callable[[str], Path],
    name: str,
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
            "FROM step_sources WHERE used"
        ).fetchall()
        verdicts = con.execute("SELECT bound, share_pct FROM timeline_bottleneck").fetchall()
        covered = con.execute("SELECT profiled_pct FROM step_coverage").fetchall()
        findings = con.execute(
            "SELECT subject, share_of, share_pct, bound_pct, technique FROM findings ORDER BY rank"
        ).fetchall()
    assert windows == [("steady", steps, "period")]
    assert typical == [(launches, steps)]
    assert [row[0] for row in verdicts] == [bound]
    assert covered[0][0] > coverage
    assert {row[1] for row in findings if row[4] not in START_UP} == {"step"}
    assert all(row[3] is None or row[3] <= row[2] for row in findings if row[0] == "kernel")
    timeline = [row for row in findings if row[0] == "timeline" and row[1] == "step"]
    assert [row[4] for row in timeline] == techniques
