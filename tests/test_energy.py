"""The energy of launches and steps, against GPUs whose power is known at every time."""

from __future__ import annotations

import bisect
import random
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from conftest import Cli
from fakenvml import Gpu, install
from faketorch import write_torch
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.analysis.energy import (
    COUNTER,
    NO_STEPS,
    GpuReadings,
    Readings,
    Unknown,
    course_of,
    measured,
)
from perfpipe.analysis.observed import Span, steady_steps
from perfpipe.analysis.report.energy import energy_of
from perfpipe.energyrecord import Energy, together
from perfpipe.pipelines.collectors.energy import metering
from perfpipe.runrecord import GpuState, OneGpu, RunRecord, TaskResult
from perfpipe.store import Store

MS = 10**6


def _energy_mj(watts: Sequence[int], until_ms: float) -> float:
    """The oracle: power of each ms, added up to a time."""
    whole = int(until_ms)
    part = (until_ms - whole) * watts[min(whole, len(watts) - 1)]
    return sum(watts[:whole]) + part


def _read(
    watts: Sequence[int], times_ms: Sequence[int], period_ms: int, phase_ms: int = 0
) -> GpuReadings:
    """Return the readings of a GPU whose counter changes once a period."""
    counter = []
    for at in times_ms:
        changed = (at - phase_ms) // period_ms * period_ms + phase_ms
        counter.append(10**12 + round(_energy_mj(watts, max(changed, 0))))
    return GpuReadings(
        counter, [1000 * watts[min(at, len(watts) - 1)] for at in times_ms], [0] * len(times_ms)
    )


@st.composite
def _launches(draw: st.DrawFn) -> tuple[list[list[int]], list[int], int]:
    """Draw the power of GPUs in each ms, when they are read, and the period of the counters."""
    powers = st.lists(st.tuples(st.integers(1, 700), st.integers(50, 900)), min_size=1, max_size=8)
    gpus = [
        [w for w, ms in draw(powers) for _ in range(ms)] for _ in range(draw(st.integers(1, 3)))
    ]
    length = max(3000, *map(len, gpus))
    gpus = [own + own[-1:] * (length - len(own)) for own in gpus]
    rng = random.Random(draw(st.integers(0, 99)))
    times = [0]
    while times[-1] < length:
        times.append(times[-1] + rng.randint(5, 80))
    times[-1] = length
    return gpus, times, draw(st.integers(10, 110))


@given(_launches(), st.integers(0, 2900), st.integers(1, 2900))
def test_energy_between_two_times_is_that_of_the_power(
    launch: tuple[list[list[int]], list[int], int], start_ms: int, length_ms: int
) -> None:
    """Up to the energy of a period and two intervals at either end."""
    gpus, times_ms, period_ms = launch
    read = tuple(_read(own, times_ms, period_ms, 7 * at) for at, own in enumerate(gpus))
    course = course_of(Readings([at * MS for at in times_ms], read))
    end_ms = min(start_ms + length_ms, times_ms[-1])
    found = course.joules(start_ms * MS, end_ms * MS)
    true = sum(_energy_mj(own, end_ms) - _energy_mj(own, start_ms) for own in gpus) / 1e3
    most_w = sum(max(own) for own in gpus)
    assert found == pytest.approx(true, abs=2 * most_w * (period_ms + 2 * 80) / 1e3 + 0.01)
    middle = (start_ms + end_ms) / 2 * MS
    parts = course.joules(start_ms * MS, middle) + course.joules(middle, end_ms * MS)
    assert parts == pytest.approx(found, abs=1e-6)


@given(_launches())
def test_the_energy_of_a_launch_is_the_difference_of_the_counters(
    launch: tuple[list[list[int]], list[int], int],
) -> None:
    gpus, times_ms, period_ms = launch
    read = tuple(_read(own, times_ms, period_ms) for own in gpus)
    found = measured(Readings([at * MS for at in times_ms], read))
    ends = [(own.counter_mj[0] or 0, own.counter_mj[-1] or 0) for own in read]
    true = sum(after - before for before, after in ends) / 1e3
    assert found.energy_j == pytest.approx(true)
    assert (found.source, found.gpus, found.energy_window_s) == (
        COUNTER, len(gpus), times_ms[-1] / 1e3,
    )  # fmt: skip
    assert found.mean_power_w == pytest.approx(true / times_ms[-1] * 1e3)


@given(_launches())
def test_without_a_counter_power_is_integrated(
    launch: tuple[list[list[int]], list[int], int],
) -> None:
    """The oracle adds up the trapezoids one by one."""
    gpus, times_ms, _ = launch
    read = [_read(own, times_ms, 10) for own in gpus]
    none = [None] * len(times_ms)
    without = tuple(own._replace(counter_mj=none) for own in read)
    found = measured(Readings([at * MS for at in times_ms], without, instant=True))
    true = 0.0
    for own in gpus:
        for before, after in pairwise(times_ms):
            ends = [own[min(at, len(own) - 1)] for at in (before, after)]
            true += sum(ends) / 2 * (after - before) / 1e3
    assert found.energy_j == pytest.approx(true)
    assert re.fullmatch(r"instant power samples, \d+ Hz", str(found.source))


def _flat(seconds: float, watts: int = 200, every_ms: int = 50) -> Readings:
    """Return readings of a GPU at constant power."""
    times = [*range(0, round(1e3 * seconds) + 1, every_ms)]
    return Readings([at * MS for at in times], (_read([watts] * (times[-1] + 1), times, 20),))


def test_the_energy_of_a_step_is_that_of_the_steady_steps() -> None:
    """Half of the steps at 400 W, after a warm-up at 100 W; an evaluation between them."""
    watts = [100] * 3000 + [400] * 4000 + [50] * 1000 + [400] * 4000
    times = [*range(0, len(watts) + 1, 50)]
    readings = Readings([at * MS for at in times], (_read([*watts, 400], times, 20),))
    spans = (Span(3000 * MS, 7000 * MS, 40), Span(8000 * MS, 12000 * MS, 40))
    found = measured(readings, spans, "token")
    assert found.step_energy_j == pytest.approx(40, rel=0.01)
    assert found.unit == "token"
    assert found.energy_j == pytest.approx(300 + 1600 + 50 + 1600, rel=0.01)
    short = measured(
        readings, [Span(at, at + 900 * MS, 9) for at in range(0, 9000 * MS, 1000 * MS)]
    )
    assert short.step_energy_j is None
    assert "900 ms is too short for NVML energy counter (2 s)" in str(short.steps_missing)
    assert short.energy_j == found.energy_j
    none = measured(readings)
    assert (none.steps_j, none.unit) == ((None,), None)
    assert "perfpipe observed no steps" in str(none.steps_missing)


def test_steady_steps_say_when_they_were() -> None:
    """Spans have the steps whose times count, without evaluations and pauses."""
    lengths, calls = [900.0, 90.0], [1, 1, 1]
    for n in range(200):
        lengths.append(55.0 if n % 50 == 49 else 10.0)
        calls.append(5 if n % 50 == 49 else 1)
    times = [0]
    for length in lengths:
        times.append(times[-1] + round(length * MS))
    found = steady_steps(times, calls)
    assert [own.steps for own in found.spans] == [48, 49, 49, 49]
    assert sum(own.steps for own in found.spans) == len(found.times_ms)
    for own in found.spans:
        assert own.end_ns - own.start_ns == own.steps * 10 * MS
        assert {own.start_ns, own.end_ns} <= {*times}
    assert steady_steps(times[:5]).spans == ()


@pytest.mark.parametrize(
    ("readings", "why"),
    [
        (Readings(missing="NVML does not respond (x)"), r"NVML does not respond \(x\)"),
        (_flat(1.5), r"the launch: 1\.5 s is too short for NVML energy counter \(2 s\)"),
        (_flat(3, watts=0), "NVML energy counter: it did not change"),
    ],
)
def test_what_is_not_known_is_none_with_a_reason(readings: Readings, why: str) -> None:
    found = measured(readings)
    assert (found.energy_j, found.step_energy_j, found.mean_power_w) == (None, None, None)
    assert re.fullmatch(why, str(found.missing))
    assert found.steps_missing


def _changed(readings: Readings, **columns: Sequence[int | None]) -> Readings:
    return Readings(readings.times_ns, (readings.gpus[0]._replace(**columns),))


def test_readings_that_cannot_be_right() -> None:
    known = _flat(12)
    counter = [*known.gpus[0].counter_mj]
    reset = _changed(known, counter_mj=[*counter[:100], *counter[: len(counter) - 100]])
    assert measured(reset).missing == "the energy counter was reset during the launch"
    lost = _changed(known, counter_mj=[None, *counter[1:]])
    assert "did not respond just before" in str(measured(lost).missing)
    some = _changed(known, counter_mj=[*counter[:50], None, *counter[51:]])
    assert measured(some).energy_j == measured(known).energy_j
    nothing = _changed(known, counter_mj=[None] * len(counter), power_mw=[None] * len(counter))
    assert "neither the energy nor the power" in str(measured(nothing).missing)
    spans = [Span(-5, 9000 * MS, 3)]
    assert "not within those of the readings" in str(measured(known, spans).steps_missing)


def test_a_pause_of_perfpipe_hides_power_but_not_the_counter() -> None:
    """The counter counts meanwhile; only the energy at a time within the pause is unknown."""
    times = [*range(0, 6000, 50), *range(8000, 14001, 50)]
    own = _read([300] * 14001, times, 20)
    readings = Readings([at * MS for at in times], (own,))
    assert measured(readings).energy_j == pytest.approx(300 * 14, rel=0.01)
    course = course_of(readings)
    assert course.joules(1000 * MS, 13000 * MS) == pytest.approx(3600, rel=0.01)
    with pytest.raises(Unknown, match=r"not read for 2\.05 s"):
        course.joules(1000 * MS, 7000 * MS)
    of_power = measured(_changed(readings, counter_mj=[None] * len(times)))
    assert of_power.missing == "the GPU was not read for 2.05 s"
    assert of_power.source == "averaged power samples, 20 Hz"


def test_power_samples_check_the_counter() -> None:
    """Only if the launch is long enough for power that is averaged over 1 s."""
    assert measured(_flat(9)).sampled_energy_j is None
    assert measured(_flat(12)).sampled_energy_j == pytest.approx(2400)


def test_idle_power_is_the_lowest_at_no_load() -> None:
    known = _flat(3)
    count = len(known.times_ns)
    power = [*[70_000] * 9, 60_000, 61_000, *[500_000] * (count - 11)]
    load = [*[0] * 9, 5, 0, *[99] * (count - 11)]
    found = measured(_changed(known, power_mw=power, load_pct=load))
    assert (found.idle_w, found.idle_gpus) == (61, 0)
    assert measured(_changed(known, load_pct=[None] * count)).idle_w is None
    assert measured(_changed(known, load_pct=[1] * count)).idle_w is None
    assert measured(_changed(known, load_pct=[0] * count)).idle_gpus == 1


def test_several_launches_are_one_record() -> None:
    """A median needs all of them: short ones alone must not be missing from it."""
    spans = [Span(0, 3000 * MS, 10)]
    launches = [measured(_flat(s, watts), spans, "step") for s, watts in ((3, 100), (4, 300))]
    both = together(launches)
    assert both is not None
    assert both.energy_j == pytest.approx(750, rel=0.01)
    assert both.mean_power_w == pytest.approx(200, rel=0.01)
    assert both.step_energy_j == pytest.approx(60, rel=0.02)
    partly = together([*launches, measured(_flat(1))])
    assert partly is not None and partly.launches_j[:2] == both.launches_j
    assert (partly.energy_j, partly.step_energy_j) == (None, None)
    assert "too short" in str(partly.missing)
    assert together([]) is None


def test_a_meter_reads_before_during_and_after_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [Gpu(), Gpu(lambda at: 50.0)]
    install(monkeypatch, gpus)
    with metering({}, interval_s=0.01) as meter:
        began = len(meter.readings().times_ns)
        time.sleep(0.3)
    readings = meter.readings()
    assert began >= 1
    assert len(readings.times_ns) > 3
    assert [*readings.times_ns] == sorted(readings.times_ns)
    assert [own.power_mw[0] for own in readings.gpus] == [100_000, 50_000]
    course = course_of(readings)
    found = course.joules(readings.times_ns[0], readings.times_ns[-1])
    assert found == pytest.approx(sum(own.counted[-1] - own.counted[0] for own in gpus) / 1e3)


@pytest.mark.parametrize(
    ("lacks", "source"),
    [
        ((), COUNTER),
        (("nvmlDeviceGetTotalEnergyConsumption",), "instant power samples"),
        (
            ("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetFieldValues"),
            "averaged power samples",
        ),
    ],
)
def test_the_source_is_the_best_that_all_gpus_have(
    lacks: tuple[str, ...], source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, [Gpu(), Gpu(lacks=lacks)])
    with metering({}, interval_s=0.01) as meter:
        time.sleep(0.05)
    assert course_of(meter.readings()).source.startswith(source)


def test_only_gpus_that_the_program_may_use_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, [Gpu(), Gpu(), Gpu(mig=1)])
    with metering({"CUDA_VISIBLE_DEVICES": "1"}) as meter:
        pass
    assert len(meter.readings().gpus) == 1
    for env, why in (({}, "MIG"), ({"CUDA_VISIBLE_DEVICES": ""}, "sees no GPU")):
        with metering(env) as meter:
            pass
        assert not meter.reads
        assert why in str(meter.unread().missing)
    with metering({}, wanted=False) as meter:
        pass
    assert "not requested" in str(meter.unread().steps_missing)


#: Takes 60 steps of 5 ms at least, without a GPU.
TRAIN = """
import time, torch
class Net(torch.nn.Module): pass
net = Net(layer=torch.nn.Module(10))
optimizer = torch.optim.Optimizer(net.parameters())
for _ in range(60):
    net(1)
    time.sleep(0.005)
    optimizer.step()
"""


def _last(store: Path) -> TaskResult:
    return max(Store(store).runs(), key=lambda run: run.run_id).tasks[0]


def test_a_run_stores_the_energy_of_launches_and_steps(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least_s: Callable[[float], None]
) -> None:
    least_s(0.001)
    gpu = Gpu()
    install(monkeypatch, [gpu])
    write_torch(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    words = ("run", "--collector", "timing", "--", sys.executable, "train.py")
    assert cli(*words, report=True) == 0, cli.err
    energy = _last(tmp_path / "store").energy
    assert energy is not None and energy.energy_j and energy.step_energy_j
    assert energy.energy_j == pytest.approx((gpu.counted[-1] - gpu.counted[0]) / 1e3)
    assert 0 < energy.step_energy_j < energy.energy_j
    assert (energy.source, energy.unit, energy.idle_w) == (COUNTER, "step", 100)
    page = (tmp_path / "report.md").read_text()
    assert re.search(rf"Energy.* per step, .* per execution \(.*{COUNTER}, 1 GPU", page)
    sql = (
        "SELECT energy_j > step_energy_j, mean_power_w > 0, idle_power_w, energy_source, "
        "energy_unit, energy_gpus, energy_missing, step_energy_missing FROM run_tasks"
    )
    assert cli("query", sql, "--format", "csv") == 0, cli.err
    assert cli.out.splitlines()[-1].lower() == f"true,true,100.0,{COUNTER.lower()},step,1,,"


def test_programs_on_machines_without_a_gpu_have_a_reason(cli: Cli, tmp_path: Path) -> None:
    assert cli("run", "--collector", "timing", "--", sys.executable, "-c", "pass") == 0, cli.err
    energy = _last(tmp_path / "store").energy
    assert energy is not None
    if not energy.gpus:
        assert energy.missing and energy.missing == energy.steps_missing
        assert energy.launches_j == (None,)


def test_times_that_a_program_prints_have_no_energy(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least_s: Callable[[float], None]
) -> None:
    """And a launch that is too short has none either."""
    least_s(1000)
    install(monkeypatch, [Gpu()])
    code = 'print(\'{"perfpipe": "time", "ms": [1.0, 2.0]}\')'
    assert cli("run", "--collector", "timing", "--", sys.executable, "-c", code) == 0, cli.err
    energy = _last(tmp_path / "store").energy
    assert energy is not None
    assert "do not say when they were" in str(energy.steps_missing)
    assert re.search(r"too short for NVML energy counter \(1000 s\)", str(energy.missing))


def test_a_launch_that_is_stopped_has_no_energy_of_its_own() -> None:
    found = measured(_flat(30), [Span(0, 9000 * MS, 10)], "step", cut="the program was stopped")
    assert (found.energy_j, found.missing) == (None, "the program was stopped")
    assert found.step_energy_j == pytest.approx(180, rel=0.01)


def test_energy_between_changes_of_the_counter_is_interpolated() -> None:
    """The oracle of interpolation: by hand, on a counter that changes every 100 ms."""
    times = [0, 60, 120, 180, 240, 300]
    counter = [0, 0, 20, 20, 50, 90]
    readings = Readings([at * MS for at in times], (GpuReadings(counter, [1] * 6, [0] * 6),))
    course = course_of(readings)
    changes = [(0, 0), (120, 20), (240, 50), (300, 90)]
    for at in range(0, 301, 7):
        place = min(bisect.bisect_right(changes, (at, 10**9)), len(changes) - 1)
        (t0, e0), (t1, e1) = changes[place - 1], changes[place]
        by_hand = e0 + (e1 - e0) * (at - t0) / (t1 - t0)
        assert course.joules(0, at * MS) == pytest.approx(by_hand / 1e3)


def test_an_empty_record_is_unknown() -> None:
    assert (Energy().energy_j, Energy().step_energy_j, Energy().mean_power_w) == (None, None, None)


def _run(*energies: Energy, neighbors: int | None = None) -> RunRecord:
    state = GpuState(1, (OneGpu(0, neighbors=neighbors),))
    tasks = [
        TaskResult(at, f"n={at}", {"n": at}, energy=energy, gpu_state=state)
        for at, energy in enumerate(energies)
    ]
    return RunRecord("r", "w", "timing", "2026-01-01T00:00:00Z", tasks=tuple(tasks))


def _said(*energies: Energy, neighbors: int | None = None) -> str:
    return "".join(fact.text for fact in energy_of(_run(*energies, neighbors=neighbors)))


def test_a_report_states_the_energy_in_one_line() -> None:
    spans = [Span(0, 12000 * MS, 3000)]
    found = measured(_flat(12, watts=312), spans, "token")
    assert _said(found) == (
        "1.25 J per token, 3.74 kJ per execution (312 W on average over 12 s, of which "
        "312 W x 12 s are idle power); NVML energy counter, 1 GPU"
    )
    assert _said(found, neighbors=2).endswith("; includes 2 other processes on the GPU")
    other = replace(found, sampled_j=(6000.0,), gpus=8, idle_gpus=7)
    assert _said(other).endswith("8 GPUs (7 idle); power samples give 6 kJ per execution instead")
    none = measured(_flat(1))
    assert _said(none).startswith("unknown: the launch: 1 s is too short for NVML energy counter")
    steps = measured(_flat(12), spans, "step", cut="the program was stopped after 12 s")
    assert _said(steps).endswith("1 GPU; per execution unknown: the program was stopped after 12 s")
    assert _said(measured(_flat(12))).endswith("per step unknown: " + NO_STEPS)
    assert _said(found, measured(_flat(12, watts=100), spans, "token"), none) == (
        "400 mJ to 1.25 J per token (2 of 3 configurations), "
        "1.2 kJ to 3.74 kJ per execution (2 of 3 configurations); NVML energy counter"
    )
    assert _said(Energy(missing="NVML does not respond")) == "", "no GPU, no line"
