"""Findings in files of their own, and the words of all: nothing is missing, nothing is unknown."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Opened, Tiny, claims
from jinja2 import meta

from perfpipe.analysis.finding_files import FindingFile, parse_block
from perfpipe.analysis.knowledge import techniques
from perfpipe.analysis.macros import macros
from perfpipe.analysis.sentences import environment, rendered
from perfpipe.analysis.session import Session
from perfpipe.analysis.thresholds import thresholds
from perfpipe.analysis.views import parse_view, views
from perfpipe.analysis.words import _assumptions, assumption, finding_files, word
from perfpipe.store import Store

KEYS = {"report_id": "VARCHAR", "device": "BIGINT", "share_pct": "DOUBLE"}
SAID = 'claim = "c"\nsays = "s"\nevidence = "e"\nquestion = "FROM v"\n'


@pytest.mark.parametrize("file", finding_files().values(), ids=lambda file: file.claim)
def test_a_template_uses_columns_of_its_view(file: FindingFile) -> None:
    for template in (file.says, file.evidence):
        environment().from_string(template)  # syntax, and filters
        names = meta.find_undeclared_variables(environment().parse(template))
        assert names <= {*file.types, "share", "words"}
    view = views()[file.view]
    assert view.public and view.layer == "nsys"
    assert word("category", file.category, "part")
    for key, entry in file.techniques.items():
        assert techniques()[key].technique == entry["technique"]


def test_every_claim_and_category_has_words() -> None:
    """What SQL can say of a timeline: categories of the budget, and the cases of claims."""
    bounds = set(
        re.findall(r"\w+", views()["timeline_bottleneck"].columns["bound"].partition(";")[0])
    ) - {"launch_gap", "launch_api", "queued", "or", "and"}
    categories = {bound for bound in bounds if bound in macros(thresholds())["is_work"].body} | {
        "launch_overhead", "sync", "host", "loading", "kernel_gap", "device_wait", "building", "no_work",
    }  # fmt: skip
    assert categories <= bounds
    for bound in categories:
        for form in ("does", "part", "idle"):
            assert isinstance(word("category", bound, form), str)
    # Waiting for work and migration are findings with files of their own.
    contributors = categories - {"compute", "no_work", "migration"} | {
        "readback",
        "ranks_wait",
        "start_skew",
    }
    assert contributors <= claims("timeline")
    assert claims("timeline") == contributors | finding_files().keys()


def test_every_floor_that_sql_names_has_an_assumption() -> None:
    """No floor lacks one, and no assumption is of a floor that is not there."""
    kept = {floor for item in techniques().values() for floor in item.keeps}
    named = kept | {"waiting", "start", "host", "half_types", "around", "allocation", "chain"}
    named |= {"measured", "served", "all_sms", "full_warps"}
    for floor in named:
        assert assumption(floor)
    text = " ".join(view.sql for view in views().values()) + " ".join(kept)
    text += " ".join(macro.body for macro in macros(thresholds()).values())
    assert {floor for floor in _assumptions() if not re.search(rf"\b{floor}\b", text)} == set()


@pytest.mark.parametrize("name", ["launch-overhead", "", "other"])
def test_a_missing_word_is_an_error(name: str) -> None:
    with pytest.raises(KeyError):
        word("category", name, "does")
    with pytest.raises(KeyError):
        word("timeline", name, "says")
    with pytest.raises(KeyError):
        assumption(name)


@pytest.mark.parametrize(
    ("block", "types", "problem"),
    [
        ('claim = "c"\nsays = "s"', {}, "missing 2 required"),
        (SAID + "surprise = 1", {}, "surprise"),
        (SAID + "claim = 1", {}, "Cannot overwrite"),
        (SAID + 'each = "operator"', {}, "no column operator"),
        (SAID + '[columns]\ntime_ns = "idle_ns"', {}, "no column idle_ns"),
        (SAID, {"gain_pct": "DOUBLE"}, "a bound needs one assumption"),
        (SAID + '[columns]\nbound_pct = "share_pct"', {}, "cannot give bound_pct, only causes"),
        (SAID.replace('"c"', '"a claim"'), {}, "'a claim' is not an identifier"),
        (SAID + '[techniques.t]\ntechnique = "x"', {}, "technique t lacks check_first, detail"),
        (
            SAID + '[assumes]\na = "x"\nb = "y"',
            {"gain_pct": "DOUBLE"},
            "a bound needs one assumption",
        ),
    ],
)
def test_a_block_that_is_not_whole_is_refused(
    block: str, types: dict[str, str], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_block(block, "nsys/findings/v.sql", "v", {**KEYS, **types})


def test_a_finding_without_the_columns_of_all_is_refused() -> None:
    text = (
        f"-- V.\n--\n-- report_id VARCHAR: report\n/* finding\n{SAID}*/\nCREATE VIEW v AS\nFROM w;"
    )
    with pytest.raises(ValueError, match=r"nsys/v\.sql: no column device"):
        parse_view(text, "nsys/v.sql")


def test_findings_and_their_advice_state_the_same_shares(
    replayed: Callable[[str], Path],
) -> None:
    """Where the time of a step without the profiler is known."""
    with Session.open(Store(replayed("transformer_step"))) as con:
        rows = con.execute("""
            SELECT technique, max(f.share_pct), any_value(r.share_pct)
            FROM findings AS f JOIN recommendations AS r USING (technique)
            WHERE f.bound = 'operator' GROUP BY technique
        """).fetchall()
        scales = con.execute("SELECT max(work_scale) FROM step_times").fetchall()
    assert len(rows) >= 2 and scales[0][0] > 1.2
    for technique, found, advised in rows:
        assert found == pytest.approx(advised), technique


def test_filters() -> None:
    template = "{{ n | counted('call') }} of {{ b | bytes }} in {{ t | ns }}: {{ w | words }}"
    said = rendered(template, {"n": 1, "b": 1500, "t": 2e6, "w": "launch_gap"})
    assert said == "1 call of 1.5 kB in 2 ms: launch gap"


MS = 1_000_000


def _steps(calls: list[tuple[str, float, float]]) -> Tiny:
    """Twelve steps of 10 ms: kernels from 0 to 4 and from 9 to 10, and calls (name, from, to), ms."""
    db = Tiny()
    who = {"pid": 1, "tid": 1}
    for step in range(12):
        at = (step + 1) * 10 * MS
        db.add(
            "nsys_nvtx_ranges",
            {**who, "range_id": step, "name": f"step {step}", "style": "PushPop",
             "start_ns": at, "end_ns": at + 10 * MS, "first_call": 2 * step, "calls": 2},
        )  # fmt: skip
        for part, (begin, end) in enumerate(((0, 4), (9, 10))):
            issued = at + begin * MS
            db.add(
                "launches",
                {**who, "kind": "kernel", "name": f"k{part}", "device": 0,
                 "call_id": 2 * step + part, "api_start_ns": issued, "api_end_ns": issued + 1,
                 "start_ns": issued + 1, "end_ns": at + end * MS},
            )  # fmt: skip
        for name, since, until in calls:
            spans = {"start_ns": at + round(since * MS), "end_ns": at + round(until * MS)}
            db.add("nsys_api_calls", {**who, "name": name, **spans})
    return db


def test_steps_that_allocate() -> None:
    """In each step 2 of 5 ms without work: one call overlaps the kernel by 1 ms, both take 3 ms."""
    db = _steps([("cudaMalloc", 3, 5), ("cudaFree", 6, 7), ("cudaLaunchKernel", 8, 8.9)])
    sql = "SELECT calls, per_step, share_pct, gain_pct, functions FROM allocation_findings"
    ((calls, per_step, share, gain, functions),) = db.rows(sql)
    assert (per_step, share) == (2, pytest.approx(20, abs=0.1))
    assert gain == pytest.approx(30, abs=0.1)
    assert functions == f"cudaFree {calls // 2}, cudaMalloc {calls // 2}"
    found = db.rows(
        "SELECT claim, bound_pct, floor, technique, time_ns > 0 FROM findings "
        "WHERE claim = 'allocation'"
    )
    assert found == [("allocation", gain, "allocation", "allocate_once", True)]
    advised = db.rows(
        "SELECT gain_pct, floors FROM recommendations WHERE technique = 'allocate_once'"
    )
    assert advised == [(gain, ["allocation"])]


@pytest.mark.parametrize(("until", "bounds"), [(8.9, []), (6.9, ["host"])])
def test_a_host_that_only_allocates_does_no_other_work(until: float, bounds: list[str]) -> None:
    """Of 5 ms without work in each step, the host allocates for nearly all, or for 2.9 ms."""
    db = _steps([("cudaMalloc", 4, until)])
    rows = db.rows("SELECT bound FROM timeline_findings WHERE bound = 'host'")
    assert [bound for (bound,) in rows] == bounds
    ((first,),) = db.rows("SELECT technique FROM recommendations WHERE rank = 1")
    assert (first == "allocate_once") == (bounds == [])


@pytest.mark.parametrize("name", ["cudaMallocAsync", "cuMemAllocFromPoolAsync", "hipMalloc"])
def test_steps_that_wait_for_a_pool_or_hip(name: str) -> None:
    """A pool that gave its memory back maps it anew."""
    db = _steps([(name, 5, 7)])
    ((share, functions),) = db.rows("SELECT share_pct, functions FROM allocation_findings")
    assert (share, functions.split()[0]) == (pytest.approx(20, abs=0.1), name)


@pytest.mark.parametrize(
    "calls",
    [
        [],
        [("cudaMalloc", 1, 3)],  # beside the kernel
        [("cudaFreeAsync", 5, 7), ("cudaMemcpy", 5, 7)],
        [("cudaMalloc", 5, 5.1)],
    ],
)
def test_steps_that_do_not_wait_for_allocation(calls: list[tuple[str, float, float]]) -> None:
    assert _steps(calls).rows("FROM allocation_findings") == []


def test_allocation_outside_the_steps_is_none_of_theirs() -> None:
    db = _steps([])
    for at in range(20):
        start = -(at + 2) * MS
        call = {"pid": 1, "tid": 1, "name": "cudaMalloc"}
        db.add("nsys_api_calls", {**call, "start_ns": start, "end_ns": start + MS})
    assert db.rows("FROM allocation_findings") == []


#: Median step without a profiler, ms: every tensor from cudaMalloc, and from PyTorch's cache (H200).
ALLOCATING_MS, CACHED_MS = 8.86, 4.58


def test_what_a_cache_saves_is_within_the_bound(opened: Opened) -> None:
    """Training steps of an MLP with PYTORCH_NO_CUDA_MEMORY_CACHING=1."""
    with opened("real/allocating_steps.sqlite") as con:
        ((per_step, share),) = con.execute(
            "SELECT per_step, share_pct FROM allocation_findings"
        ).fetchall()
        ((claim, bound),) = con.execute(
            "SELECT claim, bound_pct FROM findings WHERE rank = 1"
        ).fetchall()
        ((technique,),) = con.execute(
            "SELECT technique FROM recommendations WHERE rank = 1"
        ).fetchall()
    saved = 100 * (1 - CACHED_MS / ALLOCATING_MS)
    assert (claim, technique) == ("allocation", "allocate_once")
    assert per_step == pytest.approx(144, abs=0.1)
    assert share == pytest.approx(36.3, abs=0.1)
    assert saved == pytest.approx(48.3, abs=0.1) and saved < bound < 60
