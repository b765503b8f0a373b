"""Statistics equal those of `nsys stats`, in every column of every row of every capture."""

from __future__ import annotations

import csv
import re
import statistics
from collections.abc import Callable, Iterator
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from typing import Any

import pytest
from conftest import DATA, empty_database
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpipe.analysis.session import Session
from perfpipe.store import Store

STATS = DATA / "nsys" / "stats"
CAPTURES = sorted(path.name.removesuffix(".sqlite.xz") for path in DATA.glob("nsys/*.sqlite.xz"))
VIEWS = (
    "cuda_gpu_kern_sum", "cuda_gpu_kern_gb_sum", "cuda_gpu_mem_time_sum", "cuda_gpu_mem_size_sum",
    "cuda_gpu_sum", "cuda_api_sum", "cuda_kern_exec_sum", "nvtx_sum", "nvtx_pushpop_sum",
    "nvtx_gpu_proj_sum", "nvtx_kern_sum", "osrt_sum",
)  # fmt: skip
#: What `nsys stats` was not asked for; of all other captures it was asked for each of its reports.
UNASKED = {f"memory_pool_{view}" for view in VIEWS} | {
    f"{capture}_{view}"
    for capture in ("ddp_comm_rank0", "ddp_comm_rank1", "ddp_single")
    for view in ("cuda_gpu_kern_gb_sum", "cuda_gpu_sum", "nvtx_pushpop_sum", "osrt_sum")
}


def _column(header: str) -> str:
    """Return nsys's header as a column name: 'Total Time (ns)' -> total_time_ns."""
    name = header.replace("(%)", "pct").replace("(ns)", "ns").replace("(MB)", "mb")
    return re.sub(r"\W+", "_", name).strip("_").lower()


Summary = tuple[list[str], dict[str, list[tuple[Any, ...]]]]


@pytest.fixture(scope="module")
def summaries(
    captures: Store, ingested: Callable[[str], str]
) -> Iterator[Callable[[str], Summary]]:
    """Return the columns of a view and its rows by capture, which share a session."""
    of_report = {ingested(f"nsys/{capture}.sqlite"): capture for capture in CAPTURES}

    with Session.open(captures, [*of_report], use=VIEWS) as session:

        @cache
        def summary(view: str) -> Summary:
            found = session.execute(f"SELECT report_id, * EXCLUDE report_id FROM {view}")
            names = [column[0] for column in found.description]
            rows: dict[str, list[tuple[Any, ...]]] = {capture: [] for capture in CAPTURES}
            for report, *row in found.fetchall():
                rows[of_report[report]].append(tuple(row))
            return names[1:], rows

        yield summary


@pytest.mark.parametrize(
    ("capture", "view"),
    [(c, v) for c in CAPTURES for v in VIEWS if f"{c}_{v}" not in UNASKED],
)
def test_equal_to_nsys(capture: str, view: str, summaries: Callable[[str], Summary]) -> None:
    path = STATS / f"{capture}_{view}.csv"
    names, found = summaries(view)
    rows = [tuple(_cell(str(v) if v is not None else "") for v in r) for r in found[capture]]
    if not path.exists():
        # nsys writes no file where it found no row.
        assert rows == []
        return
    with path.open(newline="") as file:
        header, *printed = list(csv.reader(file))
    assert names == [_column(text) for text in header]
    expected = [tuple(map(_cell, row)) for row in printed if row]
    assert rows == expected


def _cell(text: str) -> str | float | None:
    """Return a cell as a number where it is one; nsys prints nothing for NULL."""
    try:
        return float(text)
    except ValueError:
        return text or None


def test_every_expected_answer_was_compared() -> None:
    answers = {path.name for view in VIEWS for path in STATS.glob(f"*_{view}.csv")}
    assert answers == {path.name for path in STATS.iterdir()}
    assert len(answers) == 160
    assert not UNASKED & {name.removesuffix(".csv") for name in answers}


durations = st.lists(st.integers(0, 10**12), min_size=1, max_size=40)


@settings(max_examples=30)
@given(durations)
def test_statistics_against_brute_force(values: list[int]) -> None:
    """The view's arithmetic on one kernel name, against Python's statistics."""
    con = _empty_store()
    con.execute("DELETE FROM nsys_kernels")
    con.execute(
        "INSERT INTO nsys_kernels BY NAME SELECT 'r' report_id, 'k' demangled, unnest(?) dur_ns",
        [values],
    )
    row = con.execute("SELECT * FROM cuda_gpu_kern_sum").fetchone()
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    assert row is not None
    assert row[2:4] == (sum(values), len(values))
    assert row[4] == pytest.approx(statistics.fmean(values), abs=0.0501, rel=1e-12)
    assert row[5] == pytest.approx(statistics.median(values), abs=0.0501, rel=1e-12)
    assert row[6:8] == (min(values), max(values))
    assert row[8] == pytest.approx(deviation, abs=0.0501, rel=1e-6)
    assert row[1] == (100.0 if sum(values) else None)


@cache
def _empty_store() -> Session:
    """Return a session whose tables have no rows; examples of a test follow one another in it."""
    return Session(empty_database(), materialize=False)


@given(
    st.one_of(
        st.floats(-1e12, 1e12, allow_nan=False),
        st.integers(-(10**9), 10**9).map(lambda n: n / 20),
        st.integers(-(10**9), 10**9).map(lambda n: n / 4),
    )
)
def test_rounding_goes_by_the_exact_value(number: float) -> None:
    ours = _empty_store().execute("SELECT round_tenth(?::DOUBLE)", [number]).fetchone()
    exact = Decimal(number).quantize(Decimal("0.1"), ROUND_HALF_UP)
    assert ours is not None
    assert ours[0] == float(exact)
