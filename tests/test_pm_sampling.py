"""What series of PM sampling say of a kernel's course, against a plain reading of the series."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Opened, Tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpipe.analysis.thresholds import thresholds
from perfpipe.ingest.ncu.names import keeps_instances

SM = "TPC.TriageCompute.sm__cycles_active.avg"
DRAM = "FBSP.TriageCompute.dramc__throughput.avg.pct_of_peak_sustained_elapsed"
ALU = "pmsampling:sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_elapsed"
START, STEP = 10**18, 1500
FEWEST = int(thresholds()["series.min_samples"])
PARTS = int(thresholds()["series.parts"])


Series = dict[str, list[float]]


def _sampled(*launches: Series) -> Tiny:
    """Launches with these series, behind the sample with key 0 that reports begin with."""
    db = Tiny([{"launch_id": launch} for launch in range(len(launches))])
    for launch, series in enumerate(launches):
        for metric, values in series.items():
            keys = [0, *(START + STEP * index for index in range(len(values)))]
            db.con.execute(
                "INSERT INTO ncu_instances (report_id, launch_id, metric, instance, key_int, value) "
                "SELECT 'r', ?, ?, unnest(range(?)), unnest(?::BIGINT[]), unnest(?::DOUBLE[])",
                [launch, metric, len(keys), keys, [99999.0, *values]],
            )
    return db


def _states(values: list[float]) -> list[str]:
    """The state of each sample from the first active one to the last."""
    active = [index for index, value in enumerate(values) if value > 0]
    span = values[active[0] : active[-1] + 1]
    levels = sorted(value for value in span if value > 0)
    plateau = levels[math.ceil(0.9 * len(levels)) - 1]
    busy = [value >= plateau / 2 for value in span]
    states = []
    for index, one in enumerate(busy):
        before, after = any(busy[:index]), any(busy[index:])
        states.append("busy" if one else "ramp" if not before else "bubble" if after else "tail")
    return states


_levels = st.sampled_from([0.0, 1.0, 40.0, 50.0, 90.0, 100.0])
_series = st.lists(st.tuples(_levels, st.integers(1, 15)), min_size=1, max_size=8).map(
    lambda runs: [value for value, count in runs for _ in range(count)]
)


@settings(max_examples=7)
@given(st.lists(_series, min_size=10, max_size=10))
def test_ramp_bubbles_and_tail(launches: list[list[float]]) -> None:
    """Several launches at a time: planning the views takes longer than all else."""
    db = _sampled(*({SM: values} for values in launches))
    rows = db.rows(
        "SELECT samples, ramp_pct, tail_pct, bubble_pct, bubbles, longest_bubble_ns, reason "
        "FROM kernel_activity ORDER BY launch_id"
    )
    for values, row in zip(launches, rows, strict=True):
        _check_activity(values, row)


def _check_activity(values: list[float], row: tuple[Any, ...]) -> None:
    samples, ramp, tail, bubble, bubbles, longest, reason = row
    if not any(values):
        assert (samples, tail, reason) == (
            None,
            None,
            "not collected; use ncu --section PmSampling",
        )
        return
    states = _states(values)
    assert samples == len(states)
    if samples < FEWEST:
        assert ramp is tail is bubble is bubbles is longest is None
        assert reason.startswith(f"{samples} samples are too few")
        return
    runs = [(state, len(list(run))) for state, run in itertools.groupby(states)]
    lengths = [length for state, length in runs if state == "bubble"]
    for pct, state in ((ramp, "ramp"), (tail, "tail"), (bubble, "bubble")):
        assert pct == pytest.approx(100 * states.count(state) / samples)
    assert bubbles == len(lengths)
    assert longest == (pytest.approx(STEP * max(lengths)) if lengths else None)
    assert reason is None


Three = tuple[list[float], list[float], list[float]]
_three = st.integers(FEWEST, 90).flatmap(
    lambda n: st.tuples(
        st.lists(st.sampled_from([10.0, 90.0, 100.0]), min_size=n, max_size=n),
        st.lists(st.integers(0, 100).map(float), min_size=n, max_size=n),
        st.lists(st.integers(0, 100).map(float), min_size=n, max_size=n),
    )
)


@settings(max_examples=7)
@given(st.lists(_three, min_size=5, max_size=5))
def test_parts_and_phases(launches: list[Three]) -> None:
    db = _sampled(*({SM: sm, DRAM: dram, ALU: alu} for sm, dram, alu in launches))
    parts = db.rows("SELECT launch_id, part, unit, pct FROM kernel_activity_parts")
    phases = db.rows("SELECT launch_id, unit, start_pct, end_pct FROM kernel_phases ORDER BY phase")
    courses = db.rows(
        "SELECT launch_id, unit, rank, mean_pct, max_pct, course, parts_pct, leads "
        "FROM kernel_courses ORDER BY rank"
    )
    for launch, series in enumerate(launches):
        own = [[row for of, *row in rows if of == launch] for rows in (parts, phases, courses)]
        _check_course(series, *own)


def _check_course(
    series: Three, of_parts: list[Any], phases: list[Any], courses: list[Any]
) -> None:
    sm, dram, alu = series
    plateau = sorted(sm)[math.ceil(0.9 * len(sm)) - 1]
    parts: dict[int, list[int]] = {}
    for index in range(len(sm)):
        parts.setdefault(index * PARTS // len(sm), []).append(index)

    def mean(values: list[float], part: int | None) -> float:
        chosen = range(len(values)) if part is None else parts[part]
        return sum(values[index] for index in chosen) / len(chosen)

    found = {(part, unit): pct for part, unit, pct in of_parts}
    expected = {
        (part, unit): pytest.approx(scale * mean(values, part))
        for part in parts
        for unit, values, scale in (("sm", sm, 100 / plateau), ("dram", dram, 1), ("alu", alu, 1))
    }
    assert found == expected
    leaders = [
        "idle" if found[part, "sm"] < 50
        else "alu" if found[part, "alu"] >= found[part, "dram"] else "dram"
        for part in sorted(parts)
    ]  # fmt: skip
    assert [unit for unit, *_ in phases] == [unit for unit, _ in itertools.groupby(leaders)]
    ends = list(itertools.accumulate(len(list(run)) for _, run in itertools.groupby(leaders)))
    assert [end for *_, end in phases] == [100 * end / PARTS for end in ends]
    assert [start for _, start, _ in phases] == [0, *(100 * end / PARTS for end in ends[:-1])]
    assert courses[0][0] == "sm"
    assert {unit for unit, *_ in courses} == {"sm", "alu", "dram"}
    for unit, _, mean_pct, highest, course, values, leads in courses:
        shown = [found[part, unit] for part in sorted(parts)]
        assert (mean_pct, highest) == (pytest.approx(mean(shown, None)), max(shown))
        assert values == pytest.approx(shown, abs=0.051)
        assert course == "".join("▁▂▃▄▅▆▇█"[min(int(value * 8 / 100), 7)] for value in shown)
        name = "idle" if unit == "sm" else unit
        assert leads == [part for part in sorted(parts) if leaders[part] == name]


def test_series_of_another_pass_are_left_out() -> None:
    """The kernel ran anew for them, at another time; so do those of another spelling."""
    db = _sampled({SM: [90.0] * FEWEST})
    for metric, shift in ((DRAM, 10**6), ("pmsampling:sm__cycles_active.avg", 2 * 10**6)):
        db.con.execute(
            "INSERT INTO ncu_instances (report_id, launch_id, metric, instance, key_int, value) "
            "SELECT 'r', 0, ?, instance, key_int + ?, 50 FROM ncu_instances WHERE metric = ?",
            [metric, shift, SM],
        )
    assert db.rows("SELECT samples, interval_ns, tail_pct FROM kernel_activity") == [
        (FEWEST, STEP, 0)
    ]
    assert db.rows("SELECT DISTINCT unit FROM kernel_activity_parts") == [("sm",)]
    assert db.rows(
        "SELECT phase, unit, start_pct, end_pct, unit_pct, sm_pct FROM kernel_phases"
    ) == [(0, None, 0, 100, None, 100)]


@pytest.mark.parametrize(
    ("name", "tails"), [("range", {"range": 5}), ("pm", {"fma_k": 5, "copy_k": 5})]
)
def test_series_of_a_range_and_of_single_metrics(
    opened: Opened, name: str, tails: dict[str, float]
) -> None:
    """A range was sampled in three passes; `--metrics pmsampling:...` in one for each metric.

    The SMs are idle between the two kernels of the range.
    """
    with opened(f"ncu/{name}.ncu-rep") as con:
        rows = con.execute(
            "SELECT kernel_name, tail_pct, bubbles, interval_ns, reason FROM kernel_activity"
        ).fetchall()
    assert {kernel for kernel, *_ in rows} == set(tails)
    for kernel, tail, bubbles, interval, reason in rows:
        assert 0 <= tail < tails[kernel]
        assert (bubbles, reason) == (int(kernel == "range"), None)
        assert interval == pytest.approx(STEP, rel=0.01)


def test_the_course_of_real_kernels(opened: Opened) -> None:
    with opened("ncu/visible.ncu-rep") as con:
        rows = con.execute(
            "SELECT kernel_name, tail_pct, bubbles, sampled_ns / duration_ns, reason "
            "FROM kernel_activity JOIN ncu_launches USING (report_id, launch_id, kernel_name)"
        ).fetchall()
        units = dict(
            con.execute(
                "SELECT kernel_name, unit FROM kernel_phases "
                "JOIN ncu_launches USING (report_id, launch_id) WHERE phase = 0"
            ).fetchall()
        )
    told = {name: values for name, *values in rows}
    assert told.pop("tiny_grid")[3].startswith("2 samples are too few")
    assert told["partial_wave"][0] == pytest.approx(50, abs=1)
    assert all(tail < 6 for name, (tail, *_) in told.items() if name != "partial_wave")
    for name, (_, bubbles, share, reason) in told.items():
        assert (bubbles, reason) == (0, None), name
        assert share == pytest.approx(1, abs=0.01), name
    expected = {"dram_copy": "dram", "fp64_fma": "fp64", "sfu_heavy": "xu", "int_alu": "alu",
                "bank_conflict": "l1", "l2_resident": "l2", "fp32_fma": "issue"}  # fmt: skip
    assert {name: units[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (
            ["ncu/block.ncu-rep", "nsys/gpumetrics.sqlite"],
            "not collected; use ncu --section PmSampling",
        ),
        (["ncu/visible.details.csv"], "not printed on this CSV page; ingest the .ncu-rep"),
    ],
)
def test_without_pm_sampling_it_is_said_what_to_collect(
    names: list[str], reason: str, opened: Opened, pages: Callable[..., Path]
) -> None:
    with opened(*names) as con:
        told = con.execute("SELECT DISTINCT reason, tail_pct FROM kernel_activity").fetchall()
        parts = con.execute("SELECT count(*) FROM kernel_activity_parts").fetchone()
    assert told == [(reason, None)]
    assert parts == (0,)
    document = json.loads((pages(*names) / "report.json").read_text())
    titles = {table["title"] for one in document["sections"] for table in one["tables"]}
    assert {title for title in titles if "ctivity" in title} == {
        "Kernels whose activity over time is unknown"
    }


def test_the_course_of_kernels_is_drawn_and_told(pages: Callable[..., Path]) -> None:
    folder = pages("ncu/visible.ncu-rep")
    page, text = ((folder / f"report.{kind}").read_text() for kind in ("html", "md"))
    # The kernel that idles for half of its time, with a lane for each of its units.
    for title in ("sm 50 % of the plateau", "issue 49 % of peak"):
        assert f"<title>partial_wave (14): {title} on average" in page
    assert "issue at 96 % until 50 %, then SMs idle until 100 %" in text
    # One kernel is too short for enough samples.
    assert "| 1 | 2 samples are too few; use ncu --pm-sampling-interval 1000 |" in text


@pytest.mark.parametrize("metric", [SM, DRAM, ALU, "pmsampling:sm__cycles_active.avg"])
def test_series_are_kept(metric: str) -> None:
    assert keeps_instances(metric)
    assert not keeps_instances(metric.rpartition(".TriageCompute.")[2].removeprefix("pmsampling:"))
