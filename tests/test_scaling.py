"""What another GPU allows: kernels by their roofs, steps by their budget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perfpipe.analysis.gate.project.page import sentences
from perfpipe.analysis.gate.project.projection import Links, project_alone, project_step
from perfpipe.analysis.gate.project.scaling import (
    MOST_BLOCKS,
    Ratios,
    Span,
    Use,
    figure,
    ratios,
    scale,
)
from perfpipe.analysis.gate.project.totals import COMPUTE, HOST_COPY, KernelTime, Whole
from perfpipe.specs import GpuSpec, gpu_specs

SPECS = {spec.key: spec for spec in gpu_specs()}
H200, B200, A100, L4, B300 = (SPECS[k] for k in ("h200", "b200", "a100_sxm_80", "l4", "b300"))
NEAR = 1e-9


def doubled(spec: GpuSpec) -> GpuSpec:
    """A GPU with all roofs twice as high: twice the SMs at the same clock, with all their units."""
    return replace(
        spec,
        key="doubled",
        sms=2 * spec.sms,
        bandwidth_gbs=2 * figure(spec, "bandwidth"),
        dense={dtype: 2 * peak for dtype, peak in spec.dense.items()},
    )


def inside(value: float, span: Span) -> bool:
    return span.low * (1 - NEAR) <= value <= span.high * (1 + NEAR)


def holds(outer: Span, inner: Span) -> bool:
    return inside(inner.low, outer) and inside(inner.high, outer)


CLASSES = [
    *(("memory", sub) for sub in ("dram", "l2", "l1", "shared", None)),
    *(("compute", sub) for sub in ("tensor", "fma", "fp64", "fp16", "alu", "issue", None)),
    *(("latency", sub) for sub in ("dependency", "small_grid", "tail", None)),
    *(("launch", "short"), ("balanced", None)),
]
#: Roofs that all of these GPUs have figures for.
ROOFS = ("dram", "l2", "sm", "fp32", "fp16", "tf32", "tensor", "packed_fp16")
COMMON = [H200, B200, A100, SPECS["h100_pcie"], SPECS["gb300"], SPECS["rtx_3090"]]
uses = st.builds(
    lambda kind, roofs, blocks, fit: Use(kind[0], kind[1], roofs, blocks, fit),
    st.sampled_from(CLASSES),
    st.dictionaries(st.sampled_from(ROOFS), st.floats(0, 100), min_size=1),
    st.integers(1, 5000),
    st.one_of(st.none(), st.integers(1, MOST_BLOCKS)),
)
gpus = st.sampled_from(COMMON)


@pytest.mark.parametrize(
    ("use", "low", "high", "least"),
    [
        # H200 and B200: 4800 and 7700 GB/s, 1980 and 1965 MHz; 10 % of the time have no roof.
        (Use("memory", "dram", {"dram": 90.0}), 4800 / 7700, None, 0.9 * 4800 / 7700),
        (Use("compute", "tensor", {"fp16": 100.0}), 989.4 / 2250, 989.4 / 2250, 989.4 / 2250),
        (Use("compute", "fma", {"fp32": 100.0}), 66.9 / 75, 66.9 / 75, 66.9 / 75),
        # A few blocks that wait: nothing or the clock changes them.
        (Use("latency", "dependency", {"sm": 0.5}, blocks=8, per_sm=1), 1.0, 1980 / 1965, 0.0),
        # 133 blocks on 132 SMs take two waves, on 148 one.
        (Use("latency", "tail", {"fp32": 45.0}, blocks=133, per_sm=1), 0.5, None, None),
    ],
)
def test_known_kernels(use: Use, low: float, high: float | None, least: float | None) -> None:
    found = scale(use, ratios(H200, B200))
    assert found.kept is not None
    assert found.kept.low == pytest.approx(low)
    if high is not None:
        assert found.kept.high == pytest.approx(high)
    if least is not None:
        assert found.least == pytest.approx(least)


def test_what_has_no_figure_is_unknown() -> None:
    double = Use("compute", "fp64", {"fp64": 90.0, "dram": 5.0})
    found = scale(double, ratios(H200, B300))
    assert (found.kept, found.least) == (None, None)
    assert found.reason is not None
    assert "FP64" in found.reason
    assert B300.missing["fp64"] in found.reason
    # FP8 is in no A100 at all.
    found = scale(Use("compute", "tensor", {"fp8": 90.0}), ratios(H200, A100))
    assert found.reason == "no vendor peak for FP8 tensor on A100 SXM4 80 GB (it has no such units)"
    assert scale(replace(double, roofs={"fp64": 0.5}), ratios(H200, B300)).kept is not None


@given(uses, gpus)
def test_to_itself_nothing_changes(use: Use, gpu: GpuSpec) -> None:
    for own in (use, Use(None, None, {}, use.blocks)):
        found = scale(own, ratios(gpu, gpu))
        assert found.kept is not None
        assert found.kept.low == pytest.approx(1)
        assert found.kept.high == pytest.approx(1)


@given(uses, gpus)
def test_all_roofs_doubled_may_halve_what_they_bound(use: Use, gpu: GpuSpec) -> None:
    found = scale(use, ratios(gpu, doubled(gpu)))
    assert found.kept is not None
    if use.roofs.get(use.roof or "", 0) >= 1:
        assert inside(0.5, found.kept)
    assert found.kept.low >= 0.5 * (1 - NEAR)
    assert found.kept.high <= 1 + NEAR


@given(uses, gpus, gpus)
def test_a_profile_narrows_what_is_not_known(use: Use, before: GpuSpec, after: GpuSpec) -> None:
    to = ratios(before, after)
    known, unknown = scale(use, to), scale(Use(None, None, {}, use.blocks), to)
    assert known.kept is not None
    assert unknown.kept is not None
    assert unknown.reason is not None
    assert known.kept.low <= known.kept.high * (1 + NEAR)
    assert known.least is not None
    assert known.least <= known.kept.low * (1 + NEAR)
    assert holds(unknown.kept, known.kept)


@given(uses, gpus, gpus, st.sampled_from(["as now", "clock", "sms", "roof"]))
def test_a_simulated_kernel_lies_inside(
    use: Use, before: GpuSpec, after: GpuSpec, rest: str
) -> None:
    """By hand: at its roofs each with its own factor, and the rest with one that applies to it."""
    to = ratios(before, after)
    clock = figure(before, "clock") / figure(after, "clock")
    sms = before.sms * clock / after.sms
    dram = figure(before, "bandwidth") / figure(after, "bandwidth")
    by_hand = {"dram": dram, "l2": dram, "sm": sms, "packed_fp16": sms, "tensor": None}
    factors: dict[str, float] = {}
    for roof, pct in use.roofs.items():
        if pct >= 1:
            factor = by_hand.get(roof, before.dense.get(roof, 1) / after.dense.get(roof, 1))
            factors[roof] = before.dense["tf32"] / after.dense["tf32"] if factor is None else factor
    other = {"as now": 1.0, "clock": clock}.get(rest, 1.0)
    if rest == "sms" and (use.blocks or 0) > max(before.sms, after.sms):
        other = sms
    if rest == "roof" and use.roof in factors:
        other = factors[use.roof]
    nearest = max((use.roofs[roof] / 100 for roof in factors), default=0)
    time = max((factors[roof] * use.roofs[roof] / 100 for roof in factors), default=0)
    time += (1 - nearest) * other
    found = scale(use, to)
    assert found.kept is not None
    assert inside(time, found.kept)


@given(st.integers(1, 2000), st.integers(1, 8), gpus, gpus)
def test_waves_by_hand(blocks: int, fit: int, before: GpuSpec, after: GpuSpec) -> None:
    """Blocks that all take equally long, put one by one on the SM that is free first."""

    def time(gpu: GpuSpec) -> int:
        waves, left = 0, blocks
        while left > 0:
            left -= gpu.sms * fit
            waves += 1
        return waves

    use = Use("latency", "tail", {"sm": 0.5}, blocks, fit)
    found = scale(use, ratios(before, after))
    assert found.kept is not None
    assert inside(time(after) / time(before), found.kept)


kernel_lists = st.lists(st.tuples(uses, st.floats(1e3, 1e7)), min_size=1, max_size=6)
LINKS = Links(0.5, 0.5, 0.5, 0.5)


def step(
    kernels: list[tuple[Use, float]],
    to: Ratios,
    host: Span | None = None,
    other: Mapping[str, float] | None = None,
    links: Links = LINKS,
    runs_ahead: bool = True,
) -> Whole:
    times = [KernelTime(f"k{i}", "1,1,1", "1,1,1", t, use) for i, (use, t) in enumerate(kernels)]
    budget = {COMPUTE: math.fsum(t for _, t in kernels), "launch_gap": 2e5, **(other or {})}
    copies = {HOST_COPY: 1.0}
    return project_step("", "step", budget, times, copies, host, to, links, runs_ahead=runs_ahead)


@given(kernel_lists, gpus, st.floats(0, 1.5))
def test_a_step_projected_to_its_own_gpu_is_itself(
    kernels: list[tuple[Use, float]], gpu: GpuSpec, busy: float
) -> None:
    to = ratios(gpu, gpu)
    now = math.fsum(t for _, t in kernels) + 2e5
    host = Span(busy * now, busy * now)
    for own in (None, host):
        found = step(kernels, to, own, links=Links(1, 1, 1, 1))
        assert found.span is not None
        assert inside(found.now_ns, found.span)
        assert found.span.high == pytest.approx(found.now_ns)


@given(kernel_lists, gpus)
def test_a_gpu_twice_as_fast_may_halve_the_compute_part_and_not_the_host(
    kernels: list[tuple[Use, float]], gpu: GpuSpec
) -> None:
    bound = [(Use("memory", "dram", {"dram": 80.0}, 10_000), time) for _, time in kernels]
    found = step(bound, ratios(gpu, doubled(gpu)))
    parts = {part.name: part for part in found.parts}
    compute, gap = parts[COMPUTE], parts["launch_gap"]
    assert compute.span is not None
    assert inside(compute.now_ns / 2, compute.span)
    assert gap.span == Span(gap.now_ns, gap.now_ns)


@given(kernel_lists, gpus, gpus, st.data())
def test_intervals_nest_when_coverage_grows(
    kernels: list[tuple[Use, float]], before: GpuSpec, after: GpuSpec, data: st.DataObject
) -> None:
    to = ratios(before, after)
    few = data.draw(st.sets(st.integers(0, len(kernels) - 1)))
    more = few | data.draw(st.sets(st.integers(0, len(kernels) - 1)))
    now = math.fsum(t for _, t in kernels) + 2e5
    busy = data.draw(st.one_of(st.none(), st.floats(0, 1)))
    host = None if busy is None else Span(busy * now, busy * now)

    ahead = data.draw(st.booleans())

    def covered(which: set[int]) -> Span:
        own = [
            (use if at in which else Use(None, None, {}, use.blocks), time)
            for at, (use, time) in enumerate(kernels)
        ]
        found = step(own, to, host, runs_ahead=ahead)
        assert found.span is not None
        return found.span

    assert holds(covered(few), covered(more))


def test_the_host_decides_where_it_is_slower() -> None:
    kernels = [(Use("compute", "tensor", {"fp16": 100.0}), 1e6)]
    found = step(kernels, ratios(H200, B200), Span(1e6, 1e6))
    assert found.host_decides
    assert found.span == Span(1e6, 1.2e6)
    assert found.gpu is not None
    assert found.gpu.low == pytest.approx(1e6 * 989.4 / 2250)
    told = [*sentences(found, H200, B200)]
    assert told[0].endswith("1 ms to 1.2 ms on B200 SXM 180 GB, 1.00 to 1.20 times as fast")
    first = "B200 SXM 180 GB would finish the GPU work in 440 us, but the host needs 1 ms"
    assert told[1].startswith(first)
    # A host that is not seen may take as long as the step.
    assert step(kernels, ratios(H200, B200)).span == Span(found.gpu.low + 2e5, 1.2e6)
    # One that is seen to be idle does not.
    idle = step(kernels, ratios(H200, B200), Span(1e4, 1e4))
    assert idle.span == Span(found.gpu.low + 2e5, found.gpu.high + 2e5)
    # A GPU half as fast may fill the time in which this one waits.
    slower = step([(Use("memory", "dram", {"dram": 100.0}), 1e6)], ratios(doubled(H200), H200))
    assert slower.span is not None
    assert slower.span.low == pytest.approx(2e6)
    assert slower.span.high == pytest.approx(2.2e6)
    slow = step([(Use("memory", "dram", {"dram": 100.0}), 1e5)], ratios(doubled(H200), H200))
    assert slow.span is not None
    assert slow.span.low == pytest.approx(3e5)


ops = st.tuples(st.floats(1e3, 1e5), st.floats(1e3, 1e5), st.booleans(), st.booleans())


def simulated(
    issued: list[tuple[float, float, bool, bool]], factors: tuple[float, float], steps: int
) -> tuple[float, float, float]:
    """Return the time of a step, the GPU's work in it, and the host's: a queue, played through.

    Each operation takes the host and the GPU some time; it is one of two kinds, each with a factor,
    and the host may wait for it.
    """
    host = gpu = work = half = 0.0
    for number in range(steps):
        if number == steps // 2:
            half = gpu
        for calls, runs, kind, waits in issued:
            host += calls
            gpu = max(gpu, host) + runs * factors[kind]
            work += runs * factors[kind]
            host = gpu if waits else host
    return (gpu - half) / (steps - steps // 2), work / steps, sum(op[0] for op in issued)


#: A kernel that grows fills the wait behind one that shrinks.
FILLS = [(1000.0, 1000.0, True, False), (1285.0, 1000.0, False, True)]


@given(st.lists(ops, min_size=1, max_size=12), gpus, gpus)
@example(FILLS, SPECS["rtx_3090"], A100)
def test_a_queue_played_through_lies_inside(
    issued: list[tuple[float, float, bool, bool]], before: GpuSpec, after: GpuSpec
) -> None:
    """The host waits at the end of each step, and between: times of the other GPU by simulation."""
    issued = [*issued[:-1], (*issued[-1][:3], True)]
    check_played(issued, before, after, 2, ahead=False)


@given(st.lists(ops, min_size=1, max_size=12), gpus, gpus)
def test_a_host_that_runs_ahead_played_through_lies_inside(
    issued: list[tuple[float, float, bool, bool]], before: GpuSpec, after: GpuSpec
) -> None:
    """The host never waits: after many steps it is ahead, or the limit."""
    issued = [(*op[:3], False) for op in issued]
    check_played(issued, before, after, 400, ahead=True)


def check_played(
    issued: list[tuple[float, float, bool, bool]],
    before: GpuSpec,
    after: GpuSpec,
    steps: int,
    *,
    ahead: bool,
) -> None:
    to = ratios(before, after)
    kinds = (Use("memory", "dram", {"dram": 100.0}), Use("compute", "fma", {"fp32": 100.0}))
    factors = (to.roofs["dram"].low, to.roofs["fp32"].low)
    now, work, host = simulated(issued, (1.0, 1.0), steps)
    there, *_ = simulated(issued, factors, steps)
    kernels = [
        KernelTime(f"k{at}", "1,1,1", "1,1,1", runs, kinds[kind])
        for at, (_, runs, kind, _) in enumerate(issued)
    ]
    budget = {COMPUTE: work, "launch_gap": max(now - work, 0.0)}
    own = Span(host, host)
    found = project_step("", "step", budget, kernels, {}, own, to, LINKS, runs_ahead=ahead)
    assert found.span is not None
    # Until the host is ahead, some steps pass.
    slack = 0.02 if ahead else NEAR
    assert found.span.low * (1 - slack) <= there <= found.span.high * (1 + slack)


def test_unknown_parts_are_left_out_and_told() -> None:
    kernels = [
        (Use("compute", "fp64", {"fp64": 90.0}), 1e6),
        (Use("memory", "dram", {"dram": 100.0}), 3e6),
    ]
    found = step(kernels, ratios(H200, B300))
    assert (found.now_ns, found.known_ns) == (4.2e6, 3.2e6)
    assert found.span is not None
    assert found.span.low == pytest.approx(3e6 * 4800 / 8000 + 2e5)
    told = " ".join(sentences(found, H200, B300))
    assert "1 ms of 4.2 ms are not projected: no vendor peak for FP64 on B300" in told
    only = step(kernels[:1], ratios(H200, B300), other={"launch_gap": 0})
    assert (only.span, only.faster, only.known_ns) == (None, None, 0)
    assert "unknown on B300" in next(sentences(only, H200, B300))
    # No figure for PCIe on B200: what is short does not matter, what is long is left out.
    links = Links(0.5, None, None, 0.6)
    short = step(kernels[1:], ratios(H200, B200), other={"transfer": 1e3}, links=links)
    assert short.known_ns == short.now_ns
    long = step(kernels[1:], ratios(H200, B200), other={"transfer": 1e6}, links=links)
    assert long.known_ns == pytest.approx(long.now_ns - 1e6)
    assert [part.reason for part in long.parts if part.span is None] == [
        "one of the GPUs has no vendor figure for the link to the host"
    ]


def test_hidden_work_is_not_profiled() -> None:
    """Half of the compute time is in graphs that were traced as a whole."""
    kernel = KernelTime("k", "1,1,1", "1,1,1", 1e6, Use("memory", "dram", {"dram": 100.0}))
    to = ratios(H200, B200)
    found = project_step("", "step", {COMPUTE: 2e6}, [kernel], {}, None, to, LINKS)
    assert found.profiled_pct == pytest.approx(50)
    assert found.gpu is not None
    assert found.gpu.low == pytest.approx(1e6 * 4800 / 7700 + 1e6 * to.every().low)


def test_an_iteration_changes_as_its_kernels() -> None:
    kernel = KernelTime("k", "1,1,1", "1,1,1", 5e5, Use("memory", "dram", {"dram": 100.0}))
    to = ratios(H200, B200)
    alone = project_alone("", "iteration", 1e6, [kernel], to)
    assert alone.span is not None
    assert alone.span.low == alone.span.high == pytest.approx(1e6 * 4800 / 7700)
    with_launches = project_alone("", "iteration", 1e6, [kernel], to, launches=True)
    assert with_launches.span is not None
    assert with_launches.span.high == pytest.approx(1e6)
    none = project_alone("", "iteration", 1e6, [], to)
    assert (none.span, none.parts[0].reason) == (None, "ncu did not profile its kernels")
