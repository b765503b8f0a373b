"""Reads from a timeline in the store which kernels to profile."""

from __future__ import annotations

from analysis.profile_plan import VIEWS_USED, ProfilePlan, limits_of, read_plan
from analysis.session import Session
from perfpipe.errors import TaskFailed
from perfpipe.store import Store


class KernelsHidden(TaskFailed):
    """A timeline that does not show the kernels of CUDA graphs."""


class NothingToProfile(TaskFailed):
    """A timeline without a kernel that may be profiled; nothing has failed."""


def plan_of(
    store: Store, report_id: str, coverage: float | None = None, max_kernels: int | None = None
) -> ProfilePlan:
    """Return the plan for a timeline in the store.

    `coverage` is the share of its kernel time to cover, %; None stands for what thresholds.toml
    says.  Raises KernelsHidden or NothingToProfile with the reason.
    """
    limits = limits_of(coverage, max_kernels)
    with Session.open(store, [report_id], use=VIEWS_USED, limits=limits) as session:
        plan = read_plan(session, report_id)
        counted = session.execute("SELECT count(*) FROM nsys_graph_launches").fetchone()
    if hidden := counted[0] if counted else 0:
        raise KernelsHidden(
            f"the timeline has {hidden:,} CUDA graphs traced as a whole, which hides their "
            "kernels; trace their nodes with 'nsys: {cuda_graph_trace: node}'"
        )
    if plan is None:
        raise NothingToProfile("the timeline has no kernels")
    if plan.refused:
        raise NothingToProfile(plan.refused)
    return plan
