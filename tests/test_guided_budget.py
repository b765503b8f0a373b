"""What ncu is given to profile in the time that it has, as arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.analysis.profile_plan import ProfilePlan
from perfpipe.pipelines.collectors import guide, ncu
from perfpipe.pipelines.workload import CollectNcu

PLAN = ProfilePlan(
    report_id="r", device=0, cc="9.0", cuda_device=0, processes=1, window_kind="steady", steps=9,
    launches_before=7, configurations=40, chosen=30, coverage_pct=86, communication_pct=0,
    expected_launches=40, most_launches=40, span_ns=2_000_000_000, refused=None, kernels=(),
    names=("k",), others=(), mangled=True,
)  # fmt: skip


def _guide(plain_s: float, spent_s: float = 0, **options: object) -> guide.Guide:
    """Return the guide for 40 launches, or as many as fit."""
    return _guide_within(guide.Budget(plain_s, spent_s), 40, options)


def _guide_within(
    budget: guide.Budget, launches: int = 40, options: Mapping[str, object] | None = None
) -> guide.Guide:
    return guide.guide_of(
        lambda most: replace(
            PLAN, expected_launches=min(most or launches, launches), coverage_pct=80
        ),
        CollectNcu.model_validate(options or {}),
        budget,
    )


def test_all_launches_of_a_configuration_share_its_time() -> None:
    """Four plain runs and a minute are for the plain run, the timeline, ncu and the report."""
    assert guide.Budget(20).whole_s == 140
    assert _guide(20, 50).limit_s == 140 - 50 - 10
    assert _guide(20, 50).budget_s == 140
    assert _guide(20, 50, time_limit=7).limit_s == 7
    assert _guide(20, 50, time_limit=7).budget_s is None
    # A timeline that took long leaves ncu the start of the program, and a little more.
    assert _guide(20, 500).limit_s == 40


def test_where_no_kernel_has_few_enough_variants_ncu_profiles_what_it_gets_to() -> None:
    """A plan is made for at most so many launches: of 310 variants, none where fewer may be chosen."""

    def plan(most: int | None) -> ProfilePlan:
        if (most or 200) < 310:
            return replace(PLAN, chosen=0, coverage_pct=0, expected_launches=0, most_launches=0)
        return replace(PLAN, chosen=30, coverage_pct=96, expected_launches=310, most_launches=310)

    for plain_s in (1, 5):
        chosen = guide.guide_of(plan, CollectNcu(), guide.Budget(plain_s))
        assert chosen.expected == 310
        assert chosen.depth.passes < guide.BASIC.passes


def test_as_much_of_each_launch_as_there_is_time_for() -> None:
    found = [_guide(7, spent) for spent in (0, 37, 46)]
    assert [one.depth for one in found] == [guide.DETAILED, guide.LEAN, guide.BASIC]
    assert [one.expected for one in found] == [40, 40, 40]
    for one in found:
        assert guide.Budget(7).expected_s(40, one.depth) <= one.limit_s
    assert "40 launches, set=basic, within 32 s of the 88 s" in found[2].summary()


def test_how_long_ncu_takes_follows_from_the_plain_run() -> None:
    found = _guide(7)
    expected_s = guide.Budget(7).expected_s(40, guide.DETAILED)
    assert found.about_s == expected_s
    assert found.takes(600) == f"about {expected_s:.0f} s, at most {found.limit_s:.0f} s"
    # The program's own time limit is the lower one.
    assert found.takes(10) == "about 10 s, at most 10 s"
    # A program that was not launched without a profiler: nothing is known of its start.
    assert _guide(0).takes(600) == "at most 50 s"
    assert replace(found, about_s=None).takes(600) == f"at most {found.limit_s:.0f} s"


def test_launches_of_a_program_with_much_memory_take_longer() -> None:
    """As H200 took with ncu 2025.3.1, by the program's memory (GB) and the passes of a launch."""
    seen = {(0.22, 21): 0.45, (2.4, 10): 0.47, (2.4, 21): 0.72, (7.7, 21): 1.03}
    for (memory_gb, passes), took_s in seen.items():
        (depth,) = (one for one in (guide.LEAN, guide.BASIC) if one.passes == passes)
        assert depth.launch_s(memory_gb) == pytest.approx(took_s, rel=0.15)
    assert guide.BASIC.launch_s(None) == guide.BASIC.launch_s(2.5)
    # What a program merely holds costs nothing: 16 GB took 0.05 s.
    assert guide.BASIC.launch_s(100) == guide.BASIC.launch_s(8)


def test_pinned_memory_makes_launches_take_longer_but_for_one_pass() -> None:
    """As H200 took with ncu 2025.3.1, by the pinned memory (GB), for 5 passes and for one."""
    units, once = guide.units_of("9.0")
    for pinned_gb, took_s in {1.0: 1.13, 4.0: 3.8}.items():
        assert units.launch_s(0.1, pinned_gb) == pytest.approx(took_s, rel=0.15)
        assert once.launch_s(0.1, pinned_gb) == once.launch_s(80.0) < 0.1
    budget = guide.Budget(25, 60, 22.0, 4.9)
    assert budget.fitting(units, 90) == 11
    assert budget.fitting(once, 90) > 1000


def test_where_nothing_else_fits_one_pass_is_collected() -> None:
    _, once = guide.units_of("9.0")
    found = _guide_within(guide.Budget(7, 66, 8.0, 4.0))
    assert found.depth == once
    assert found.expected == 40
    (note,) = found.notes
    assert "only the constituents of Speed of Light from one pass; the real SOL may be" in note
    (metrics,) = (w for w in ncu.profile_options(CollectNcu(), once) if w.startswith("--metrics"))
    assert "dram__cycles_active.avg.pct_of_peak_sustained_elapsed" in metrics
    assert "lts__t_sectors" not in metrics


def test_where_basic_takes_too_long_the_main_constituents_are_collected() -> None:
    units, _ = guide.units_of("9.0")
    found = _guide(7, 58)
    assert found.depth == units
    assert found.expected == 40
    assert "40 launches, main constituents of the SOLs, within" in found.summary()
    words = ncu.profile_options(CollectNcu(metrics=["own"]), units)
    assert "--section=LaunchStats" in words
    assert not [word for word in words if word.startswith("--set")]
    (metrics,) = (word for word in words if word.startswith("--metrics=own,"))
    for unit in ("sm__issue_active", "dram__cycles_active"):
        assert f"{unit}.avg.pct_of_peak_sustained_elapsed" in metrics
    # Elsewhere nobody compared them with the SOLs.
    assert [guide.units_of(cc) for cc in ("8.0", "10.0", "9", "", None)] == [()] * 5


@given(st.floats(0, 300), st.floats(0, 1000))
def test_what_does_not_fit_is_not_asked_for_and_said(plain_s: float, spent_s: float) -> None:
    found = _guide_within(guide.Budget(plain_s, spent_s), 2000)
    assert found.expected is not None
    expected_s = guide.Budget(plain_s).expected_s(found.expected, found.depth)
    assert expected_s <= found.limit_s or found.expected == 1
    units, once = guide.units_of("9.0")
    of_units = found.depth in (units, once)
    assert len(found.notes) == of_units + (found.expected < 2000)
    if of_units:
        assert "constituents of Speed of Light" in found.notes[0]
    if found.expected < 2000:
        assert found.depth == once
        one_more_s = guide.Budget(plain_s).expected_s(found.expected + 1, found.depth)
        assert one_more_s > found.limit_s - 1e-9
        assert f"limited to {found.expected} of 2000 launches" in found.notes[1]


def test_what_the_workload_says_of_sections_is_kept() -> None:
    assert _guide(7, 45, set="full").depth.words == ("--set=full",)
    stated = _guide(7, 45, sections=["SourceCounters"]).depth
    assert stated.words == ("--set=detailed", "--section=SourceCounters")
    words = ncu.profile_options(CollectNcu(), guide.LEAN)
    assert "--set=basic" in words
    assert "--section=WarpStateStats" in words


def test_however_much_time_there_is_the_report_of_ncu_stays_small() -> None:
    """Of kernels with thousands of variants, ncu profiles five times what a plan may have."""

    def plan(most: int | None) -> ProfilePlan:
        if (most or 200) < 3000:
            return replace(PLAN, chosen=0, coverage_pct=0, expected_launches=0, most_launches=0)
        return replace(PLAN, chosen=30, coverage_pct=96, expected_launches=3000)

    made = guide.guide_of(plan, CollectNcu(), guide.Budget(3600))
    assert made.expected == 1000
    assert "the first 1,000 of 3,000 launches" in made.notes[0]
    more = CollectNcu.model_validate({"max_kernels": 600})
    assert guide.guide_of(plan, more, guide.Budget(3600)).notes == ()
