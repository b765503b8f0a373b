"""Decides which kernels to profile, from a timeline in the store."""

from __future__ import annotations

from perfpipe.analysis.profile_plan import VIEWS_USED, ProfilePlan, limits_of, read_plan
from perfpipe.analysis.session import Session
from perfpipe.pipelines.collectors.guide import (
    Budget,
    Guide,
    KernelsHidden,
    NothingToProfile,
    guide_of,
)
from perfpipe.pipelines.workload import CollectNcu
from perfpipe.store import Store


def plan_of(
    store: Store, report_id: str, coverage: float | None = None, max_kernels: int | None = None
) -> ProfilePlan:
    """Return the plan for a timeline in the store.

    `coverage` is the share of its kernel time to cover, %; None means the value of
    thresholds.toml.  Raises KernelsHidden or NothingToProfile with the reason.
    """
    limits = limits_of(coverage, max_kernels)
    with Session.open(store, [report_id], use=VIEWS_USED, limits=limits) as session:
        plan = read_plan(session, report_id)
        counted = session.execute("SELECT count(*) FROM nsys_graph_launches").fetchone()
    if hidden := counted[0] if counted else 0:
        raise KernelsHidden(
            f"the timeline has {hidden:,} CUDA graphs traced as a whole, so their kernels are "
            "hidden; trace graph nodes with 'nsys: {cuda_graph_trace: node}'"
        )
    if plan is None:
        raise NothingToProfile("the timeline has no kernels")
    if plan.refused:
        raise NothingToProfile(plan.refused)
    return plan


def guide_by(
    store: Store,
    report_id: str | None,
    options: CollectNcu,
    budget: Budget,
    *,
    from_start: bool = False,
) -> Guide:
    """Return how ncu should profile the kernels of a timeline; report None means no timeline.

    `from_start` means that the launches before the steps differ from those of the timeline.

    Raises NothingToProfile if the timeline has no kernel that may be profiled.
    """
    # Defaults come from thresholds.toml.
    stated = options.model_fields_set
    coverage = options.coverage if "coverage" in stated else None
    most = options.max_kernels if "max_kernels" in stated else None

    def make_plan(fitting: int | None) -> ProfilePlan | str:
        if report_id is None:
            return "there is no timeline"
        launches = min((n for n in (most, fitting) if n is not None), default=None)
        try:
            return plan_of(store, report_id, coverage, launches)
        except KernelsHidden as reason:
            return str(reason)

    return guide_of(make_plan, options, budget, from_start=from_start)
