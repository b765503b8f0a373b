"""The first screen of a distributed job: who waits for whom, and what no kernel overlaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from perfpipe.analysis.report.opening.gpus import Gpu, named, reports_of
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import rows_of
from perfpipe.analysis.thresholds import thresholds
from perfpipe.analysis.words import word
from perfpipe.database import in_list
from perfpipe.units import format_ns, gpu_name

#: Views that are read here.
VIEWS = ("rank_skew", "_exposed_waits", "_rank_causes", "step_times", "nccl_collectives")


class _Wait(NamedTuple):
    """How long a GPU waits for a late rank, % of its step, and why that rank is late."""

    report_id: str
    device: int
    pct: float
    late_rank: int
    cause: str | None


def waiting_of(scope: Scope, gpus: Sequence[Gpu]) -> str:
    """Return how long GPUs wait for the rank that is always late, and why it is.

    Waiting is what no compute kernel hides, after the first collective, in which ranks wait that
    did not start together.  Empty if no GPU waits much, or if the late rank waits as well: then
    no rank is to blame.
    """
    waits = {(w.report_id, w.device): w for w in _waits(scope, reports_of(gpus))}
    found = [(gpu, waits[of]) for gpu in gpus if (of := (gpu.report_id, gpu.device)) in waits]
    if not found or any(gpu.rank == wait.late_rank for gpu, wait in found):
        return ""
    longest, wait = max(found, key=lambda one: one[1].pct)
    ns = format_ns(longest.length_ns * wait.pct / 100)
    names = dict(zip(gpus, named(gpus), strict=True))
    who = f"{names[longest]} waits {ns}"
    if len(found) > 1:
        who = f"{len(found)} of {len(gpus)} GPUs wait up to {ns}"
    late = next((gpu for gpu in gpus if gpu.rank == wait.late_rank), None)
    whom = f"rank {wait.late_rank}"
    if late and late.device != late.rank:
        whom += f" ({gpu_name(late.device)})"
    return f"; {who} of it for {whom}, {_why(wait, late)}"


def _why(wait: _Wait, late: Gpu | None) -> str:
    if late and late.loads and wait.cause == "host":
        return "which waits for input data"
    return word("category", wait.cause, "late") if wait.cause else "which arrives last"


def _waits(scope: Scope, reports: Sequence[str]) -> list[_Wait]:
    """Return the GPUs that wait for much of a step, in jobs whose last rank is always the same."""
    sql = f"""
        WITH late AS (
            SELECT job, arg_max(rank, (last, -rank)) AS rank FROM rank_skew
            WHERE straggler = 'steady' GROUP BY job
        )
        SELECT
            k.report_id, k.device,
            max(
                e.window_pct * (1 - coalesce(k.start_ns / nullif(k.waiting_ns, 0), 0))
                * coalesce(t.communication_scale, 1)
            ) AS pct,
            any_value(l.rank), any_value(c.cause)
        FROM rank_skew AS k
        JOIN late AS l USING (job)
        JOIN _exposed_waits AS e
            ON e.job = k.job AND e.rank = k.rank AND e.report_id = k.report_id
                AND e.device = k.device
        LEFT JOIN _rank_causes AS c ON c.job = k.job AND c.rank = k.rank
        LEFT JOIN step_times AS t ON t.report_id = k.report_id AND t.device = k.device
        WHERE k.report_id IN {in_list(reports)}
        GROUP BY k.report_id, k.device
        HAVING pct >= {thresholds()["timeline.contributor_pct"]}
    """
    return [_Wait(*row) for row in rows_of(scope.con, sql)]


def exposed_of(scope: Scope, gpus: Sequence[Gpu]) -> str:
    """Return how much communication no kernel overlaps, if no GPU loses more to anything else."""
    least = thresholds()["timeline.contributor_pct"]
    own = [gpu for gpu in gpus if gpu.exposed_pct >= least]
    if not own or any(gpu.bound not in ("compute", "communication") for gpu in gpus):
        return ""
    whom = ""
    if len(gpus) > 1:
        every = "both GPUs" if len(gpus) == 2 else f"all {len(gpus)} GPUs"
        whom = f"on {every if len(own) == len(gpus) else f'{len(own)} of {len(gpus)} GPUs'}, "
    share = span_of([gpu.exposed_pct for gpu in own])
    computing = span_of([gpu.busy_pct - gpu.exposed_pct for gpu in own])
    # Nothing shows how long a single rank waits for others.
    waits = ", waits for other ranks included," if len(gpus) == 1 else ","
    return (
        f"; {whom}{share} % of it is {_operations(scope, own)} that no kernel overlaps{waits} and "
        f"{computing} % is compute"
    )


def _operations(scope: Scope, gpus: Sequence[Gpu]) -> str:
    """Return the collective operation that takes most of the communication time."""
    sql = f"""
        SELECT collective, 100 * sum(total_ns) / sum(sum(total_ns)) OVER () AS pct
        FROM nccl_collectives WHERE report_id IN {in_list([gpu.report_id for gpu in gpus])}
            AND collective != operation
        GROUP BY collective ORDER BY pct DESC, collective LIMIT 1
    """
    for collective, pct in rows_of(scope.con, sql):
        if pct >= _MOST_PCT:
            return str(collective)
    return "communication"


#: Share of the communication time from which one operation stands for all, %.
_MOST_PCT = 80


def span_of(shares: Sequence[float]) -> str:
    """Return the least and the largest of some shares, once if they are equal."""
    low, high = f"{min(shares):.0f}", f"{max(shares):.0f}"
    return low if low == high else f"{low} to {high}"
