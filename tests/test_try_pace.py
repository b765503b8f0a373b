"""The time of a launch from the times of its units, against brute force and simulated loaders."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.analysis.trying.pace import (
    Pace,
    first_steady,
    ms_per_unit,
    pays_after,
    reached_ms,
    read,
    start_up_s,
    window,
)

MS = 10**6
_SPANS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 60)), max_size=6)


def _pace(
    units_ms: Sequence[float],
    *,
    gpu: bool = False,
    compiling: Sequence[tuple[float, float]] = (),
    **known: Any,
) -> Pace:
    """Return a launch that began at 0, whose first unit began after a second."""
    times = [round(MS * at) for at in accumulate(units_ms, initial=1000.0)]
    spans = tuple((round(MS * start), round(MS * end)) for start, end in compiling)
    made = Pace("step", tuple(times), (), spans, times[-1] / 1e9, (), gpu, len(units_ms), 0)
    return replace(made, **known)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=25), _SPANS, st.data())
def test_a_window_counts_each_nanosecond_that_is_not_compilation(
    lengths: list[int], spans: list[tuple[int, int]], data: st.DataObject
) -> None:
    """The oracle counts them one by one."""
    times = tuple(accumulate(lengths, initial=100))
    compiling = tuple((start, start + length) for start, length in spans)
    pace = Pace("step", times, (), compiling, 1.0, (), False, len(lengths), 0)
    first = data.draw(st.integers(0, len(lengths) - 1))
    last = data.draw(st.integers(first + 1, len(lengths)))
    compiled = {ns for start, end in compiling for ns in range(start, end)}
    expected = len([ns for ns in range(times[first], times[last]) if ns not in compiled])
    found = ms_per_unit(pace, first, last)
    if not expected:
        assert found is None
    else:
        assert found == pytest.approx(expected / 1e6 / (last - first))
    later = len(compiled & {*range(times[first], times[-1])})
    assert reached_ms(pace, first) == pytest.approx((times[first] + later) / 1e6)


@given(
    st.lists(st.lists(st.floats(0.1, 50), min_size=6, max_size=60), min_size=1, max_size=4),
    st.integers(0, 10),
    st.booleans(),
)
def test_launches_are_compared_over_units_that_all_of_them_have(
    launches: list[list[float]], at_least: int, gpu: bool
) -> None:
    paces = [_pace(units, gpu=gpu, ended=False) for units in launches]
    found = window(paces, at_least=at_least)
    fewest = min(map(len, launches))
    if found.unit == "launch":
        assert found.note
        assert [found.ms(pace) for pace in paces] == [1e3 * pace.wall_s for pace in paces]
        return
    assert found.first == first_steady(paces, at_least=at_least) >= at_least
    assert found.last == fewest
    assert found.last - found.first >= (20 if gpu else 5)
    for pace, units in zip(paces, launches, strict=True):
        mean = statistics.fmean(units[found.first : fewest])
        assert found.ms(pace) == pytest.approx(mean, rel=1e-4)


def test_bursts_of_a_loader_do_not_flatter() -> None:
    """Four workers finish together: the median would say that it is 6 times as fast, not 4 times."""
    plain, bursts = _pace([16.0] * 120), _pace([1.6, 1.5, 1.2, 11.7] * 30)
    assert statistics.median(bursts.units_ms()) < 16 / 9
    found = window([plain, bursts], at_least=8)
    assert found.ms(plain) == pytest.approx(16)
    assert found.ms(bursts) == pytest.approx(4)


def _loader(workers: int, prefetch: int, batch_ms: float, step_ms: float, steps: int) -> Pace:
    """Return the steps of a program whose loader has begun a second before, and of its model."""
    ready = [0.0] * workers
    made: list[float] = []
    ends: list[float] = [1000.0]
    for number in range(steps):
        worker = number % workers
        begins = max(ready[worker], made[number - workers] if number >= workers else 0.0)
        if number >= workers * prefetch:
            begins = max(begins, ends[number - workers * prefetch])
        ready[worker] = begins + batch_ms
        made.append(ready[worker])
        ends.append(max(ends[-1], made[-1]) + step_ms)
    times = tuple(round(MS * at) for at in ends)
    return Pace("step", times, (), (), ends[-1] / 1e3, (), False, steps, 0)


def test_batches_loaded_before_the_first_step_are_not_a_gain() -> None:
    plain, fast = _pace([17.0] * 120), _loader(4, 2, batch_ms=16, step_ms=1, steps=120)
    found = window([plain, fast], at_least=8)
    assert found.ms(fast) == pytest.approx(4, rel=0.02), "16 ms by four workers"
    assert (found.ms(fast) or 0) > (ms_per_unit(fast, 0, 40) or 0) * 1.15
    assert not found.note
    short = window([_pace([17.0] * 40), _loader(4, 2, 16, 1, 40)], at_least=8)
    assert short.unit == "step"
    assert "up to 8 of the" in short.note


def test_ends_of_epochs_and_validations_stay_inside() -> None:
    """A loader that starts its workers in each epoch takes their time."""
    units = [50.0 if number % 10 == 9 else 10.0 for number in range(100)]
    pace = _pace(units)
    found = window([pace])
    assert found.ms(pace) == pytest.approx(statistics.fmean(units[found.first :]))
    assert found.ms(pace) == pytest.approx(14, rel=0.03)


def test_compilation_is_start_up_wherever_it_happens() -> None:
    plain = _pace([20.0] * 60)
    # 9 s in the first step; 2 s in the middle, twice reported.
    units = [9010.0, *[10.0] * 29, 2010.0, *[10.0] * 29]
    starts = [*accumulate(units, initial=1000.0)]
    spans = [(1000.0, 10_000.0), (starts[30], starts[30] + 2000), (starts[30], starts[30] + 900)]
    compiled = _pace(units, compiling=spans)
    found = window([plain, compiled])
    assert found.ms(compiled) == pytest.approx(10)
    assert found.ms(plain) == pytest.approx(20)
    plain_ms = reached_ms(plain, found.first)
    assert plain_ms is not None
    seconds = start_up_s(compiled, found.first, plain_ms)
    assert seconds == pytest.approx(11 - 0.010 * found.first)
    assert pays_after(seconds, 10) == math.ceil(seconds * 100)
    assert pays_after(seconds, 0) is None
    assert pays_after(seconds, -1) is None
    assert pays_after(-0.1, -1) == 0


def test_all_launches_begin_at_the_unit_at_which_the_last_one_is_steady() -> None:
    plain, slow = _pace([900.0, *[20.0] * 59]), _pace([900.0] * 9 + [10.0] * 51)
    found = window([plain, slow])
    assert found.first == first_steady([slow]) == 10
    assert window([plain, slow], at_least=8).first == 18, "the loader fills in the meantime"


def test_launches_that_ended_by_themselves_must_do_the_same_work() -> None:
    found = window([_pace([10.0] * 60), _pace([10.0] * 55)])
    assert found.different_work == "the launches executed 56 to 61 steps"
    assert found.ms(_pace([10.0] * 60)) is None
    cut = _pace([10.0] * 55, ended=False, cut=True)
    assert window([_pace([10.0] * 60), cut]).last == 55


def test_too_few_units_compare_whole_launches() -> None:
    for count, gpu, unit in ((20, True, "launch"), (22, True, "step"), (6, False, "step")):
        pace = _pace([900.0, *[10.0] * count][: count + 1], gpu=gpu)
        found = window([pace])
        assert found.unit == unit, (count, gpu)
        assert bool(found.note) == (unit == "launch")
    few = _pace([10.0] * 4)
    found = window([few])
    assert "4 steady steps of 5" in found.note
    assert found.ms(few) == pytest.approx(1040)
    assert found.ms(replace(few, cut=True)) is None, "perfpipe ended it"
    assert start_up_s(Pace("launch", (), (), (), 3.0, (), True), 0, 900.0) == 0


def test_a_host_that_runs_ahead_of_the_gpu_until_the_end_says_nothing() -> None:
    ahead = _pace([*[1.0] * 60, *[10.0] * 20], gpu=True)
    assert window([ahead]).unit == "launch"
    assert "long before the GPU" in window([ahead]).note
    assert window([replace(ahead, gpu=False)]).unit == "step"


def test_a_host_that_is_ahead_when_a_launch_is_stopped_says_nothing() -> None:
    """60 steps of 1 ms, and 540 ms until the GPU has executed them; or only two steps of 10 ms."""
    ahead = _pace([1.0] * 60, gpu=True)
    assert window([replace(ahead, idle_ns=ahead.times_ns[-1] + 540 * MS)]).unit == "launch"
    behind = _pace([10.0] * 60, gpu=True)
    assert window([replace(behind, idle_ns=behind.times_ns[-1] + 20 * MS)]).unit == "step"


def test_launches_with_different_units_are_compared_as_a_whole() -> None:
    found = window([_pace([10.0] * 60), Pace("launch", (), (), (), 3.0, (), False)])
    assert (found.unit, "launch, step" in found.note) == ("launch", True)


def _report(folder: Path, pid: int, **known: Any) -> None:
    report = {
        "pid": pid, "gpu": False, "ended": True, "written_ns": 5 * 10**9,
        "optimizers": [], "steps": {"time_ns": [], "optimizer": [], "calls": []}, "modules": [],
    }  # fmt: skip
    (folder / f"report.{pid}.json").write_text(json.dumps(report | known))


def _steps(step_ms: float, count: int = 30, index: int = 0) -> dict[str, list[int]]:
    times = [10**9 + round(step_ms * MS * number) for number in range(count)]
    return {"time_ns": times, "optimizer": [index] * count, "calls": [1] * count}


def _adam(count: int = 30) -> list[dict[str, object]]:
    return [{"class": "Adam", "parameters": 10, "steps": count}]


def test_the_slowest_rank_counts(tmp_path: Path) -> None:
    for pid, step_ms in ((1, 10.0), (2, 12.0), (3, 11.0)):
        _report(tmp_path, pid, optimizers=_adam(), steps=_steps(step_ms))
    (tmp_path / "report.4.json").write_text("{")
    (tmp_path / "report.5.json").write_text('{"steps": 3}')
    _report(tmp_path, 6, optimizers=_adam(), steps=_steps(-20.0))
    (tmp_path / "levers.2.json").write_text('{"compiling_ns": [[1, 5], [9, 9]], "stopped_ns": 8}')
    (tmp_path / "levers.3.json").write_text('{"compiling_ns": [[1]]}')
    pace = read(tmp_path, (), 4.5)
    assert (pace.unit, pace.units, pace.count) == ("step", 29, 29)
    assert pace.units_ms() == pytest.approx([12.0] * 29)
    assert (pace.compiling_ns, pace.idle_ns) == (((1, 5),), 8)
    assert pace.started_ns == 500_000_000, "4.5 s before its last report"
    assert (pace.ended, pace.cut) == (True, False)
    assert read(tmp_path, (), 4.5, started_ns=7).started_ns == 7
    assert not read(tmp_path, (), 4.5, cut=True).ended


def test_steps_count_before_tokens_before_calls(tmp_path: Path) -> None:
    model = {"class": "Net", "parameters": 100, "calls": 40, "time_ns": [*range(0, 40 * MS, MS)]}
    small = {"class": "Tokens", "parameters": 3, "calls": 90, "time_ns": [*range(90)]}
    _report(tmp_path, 1, modules=[small, model])
    _report(tmp_path, 2, modules=[small])
    assert (read(tmp_path, (), 1).unit, read(tmp_path, (), 1).units) == ("call", 39)
    _report(tmp_path, 3, modules=[model], tokens={"time_ns": [*range(0, 20 * MS, MS)]})
    assert (read(tmp_path, (), 1).unit, read(tmp_path, (), 1).units) == ("token", 19)
    _report(tmp_path, 4, optimizers=_adam(), steps=_steps(10.0), tokens={"time_ns": [1, 2]})
    assert (read(tmp_path, (), 1).unit, read(tmp_path, (), 1).units) == ("step", 29)


def test_a_process_that_tries_something_at_the_start_does_not_count(tmp_path: Path) -> None:
    _report(tmp_path, 1, optimizers=_adam(), steps=_steps(10.0))
    _report(tmp_path, 2, optimizers=_adam(4), steps=_steps(40.0, 4))
    assert read(tmp_path, (), 1).units_ms() == pytest.approx([10.0] * 29)


def test_of_several_optimizers_the_largest_that_lasts_counts(tmp_path: Path) -> None:
    """A GAN: the discriminator steps twice as often, and an optimizer tunes something at first."""
    order = [0] * 3 + [1, 1, 2] * 20
    times = [10**9 + 5 * MS * number for number in range(len(order))]
    optimizers = [
        {"class": "LBFGS", "parameters": 900, "steps": 3},
        {"class": "Adam", "parameters": 50, "steps": 40},
        {"class": "Adam", "parameters": 60, "steps": 20},
    ]
    stamps = {"time_ns": times, "optimizer": order, "calls": [1] * len(order)}
    _report(tmp_path, 1, optimizers=optimizers, steps=stamps)
    pace = read(tmp_path, (), 1)
    assert pace.units_ms() == pytest.approx([15.0] * 19)
    assert pace.calls[1:] == (3,) * 19


def test_printed_times_win(tmp_path: Path) -> None:
    _report(tmp_path, 1, optimizers=_adam(), steps=_steps(10.0), gpu=True)
    printed = [900.0, *[2.0, 4.0] * 20]
    pace = read(tmp_path, printed, 3.0)
    assert (pace.unit, pace.units, pace.gpu) == ("iteration", 41, True)
    found = window([pace])
    assert found.ms(pace) == pytest.approx(3.0, rel=0.02)
    assert read(tmp_path, [2.0, math.nan], 3.0).unit == "step"
    assert read(tmp_path / "nothing", (), 3.0).unit == "launch"
    assert window([read(tmp_path / "nothing", (), 3.0)]).ms(
        read(tmp_path / "nothing", (), 3.0)
    ) == pytest.approx(3000)


@given(
    st.lists(st.integers(-5, 2**70), max_size=40),
    st.lists(st.lists(st.integers(-5, 100), max_size=3), max_size=5),
    st.integers(0, 50),
)
def test_any_report_gives_a_pace(times: list[int], spans: list[list[int]], at_least: int) -> None:
    ordered = tuple(sorted(times))
    compiling = tuple((own[0], own[1]) for own in spans if len(own) > 1)
    if len(ordered) < 2:
        return
    pace = Pace("step", ordered, (), compiling, 1.0, (), True, len(ordered) - 1, 0)
    found = window([pace], at_least=at_least)
    ms = found.ms(pace)
    assert ms is None or (ms > 0 and math.isfinite(ms))
