"""Loops in sequences: against sequences whose steps are known."""

from __future__ import annotations

from itertools import pairwise
from math import lcm
from random import Random

import numpy as np
import numpy.typing as npt
import pytest
from conftest import DATA
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from perfpipe.ingest.boundaries import boundaries, irregular_first, irregular_last
from perfpipe.ingest.columns import Columns
from perfpipe.ingest.nsys.issued import Issued, Placed
from perfpipe.ingest.nsys.launch_steps import _kept, _parts, looping
from perfpipe.ingest.nsys.steps import steps_of
from perfpipe.ingest.periods import loops

Codes = npt.NDArray[np.int32]


def _codes(parts: list[list[int]]) -> Codes:
    return np.array([symbol for part in parts for symbol in part], np.int32)


def _is_primitive(step: list[int], alike: float = 0.9) -> bool:
    """Return whether a step is not a shorter one repeated, or nearly so, by trying all lags."""
    twice = step * 2
    size = len(step)
    most = max(
        (sum(twice[i] == twice[i + k] for i in range(size)) for k in range(1, size)), default=0
    )
    return most <= alike * size


@st.composite
def steps(draw: st.DrawFn, symbols: int = 12, least: int = 4, most: int = 60) -> list[int]:
    """A step of a program, in which layers may repeat."""
    head = draw(st.lists(st.integers(0, symbols), min_size=least, max_size=most))
    layer = draw(st.lists(st.integers(0, symbols), min_size=2, max_size=12))
    tail = draw(st.lists(st.integers(0, symbols), min_size=least, max_size=most))
    return head + layer * draw(st.integers(0, 12)) + tail


@settings(max_examples=80, deadline=None)
@given(steps(), st.integers(4, 12), st.integers(0, 40), st.randoms(use_true_random=False))
def test_the_period_is_that_of_the_step(
    step: list[int], times: int, before: int, random: Random
) -> None:
    """Layers do not win over the step, nor two steps; what comes before is left out."""
    if not _is_primitive(step):
        return
    start = random.sample(range(100, 180), before)
    found = loops(_codes([start, *[step] * times]))
    main = max(found, key=lambda loop: loop.last - loop.first)
    assert main.period == len(step)
    assert abs(main.first - before) <= 1
    assert main.last == before + times * len(step)


@settings(max_examples=60, deadline=None)
@given(steps(least=20), st.integers(5, 12), st.randoms(use_true_random=False))
def test_noise_does_not_hide_the_period(step: list[int], times: int, random: Random) -> None:
    """Two in a hundred launches differ, as where a kernel is chosen by the length of a sequence."""
    if not _is_primitive(step):
        return
    codes = _codes([step] * times)
    changed = random.sample(range(len(codes)), len(codes) // 50)
    codes[changed] = 200
    found = loops(codes)
    main = max(found, key=lambda loop: loop.last - loop.first)
    assert main.period == len(step)
    assert main.last - main.first >= (times - 2) * len(step)


@settings(max_examples=60, deadline=None)
@given(steps(least=10), st.integers(6, 12), st.data())
def test_boundaries_survive_steps_with_more_launches(
    step: list[int], times: int, data: st.DataObject
) -> None:
    """An allocation or a log inserts launches into one step: the others keep their places."""
    if not _is_primitive(step, alike=0.5) or len(step) < 16:
        return
    longer = data.draw(st.integers(2, times - 3))
    parts = [list(step) for _ in range(times)]
    parts[longer][len(step) // 2 : len(step) // 2] = [300, 301, 302]
    codes = _codes(parts)
    known = np.cumsum([0, *(len(part) for part in parts)])
    main = max(loops(codes), key=lambda loop: loop.last - loop.first)
    start = int(known[0 if longer > times // 2 else longer + 1])
    found = boundaries(codes, main, start, Columns())
    assert set(found.tolist()) >= set(known[1:-1].tolist())
    assert len(found) == len(known)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 32))
def test_the_period_is_that_of_the_step_behind_much_auto_tuning(seed: int) -> None:
    """What is tuned before may launch several times as much as the loop.

    Layers that repeat at a multiple of the length of what is tuned are not looked at: they have its
    period.
    """
    random = Random(seed)

    def some(least: int, most: int, symbols: int) -> list[int]:
        return random.choices(range(symbols), k=random.randint(least, most))

    before_layers, layer = some(20, 60, 13), some(2, 12, 13)
    layers = layer * random.randint(0, 12)
    step = before_layers + layers + some(20, 60, 13)
    times = random.randint(4, 24)
    tried = [300 + symbol for symbol in some(8, 24, 4)]
    assume(2 * lcm(len(tried), len(layer)) > len(layers))
    tuning = tried * (random.randint(1, 6) * times * len(step) // len(tried))
    before = len(tuning) + 3
    last = loops(_codes([tuning, [400, 401, 402], *[step] * times]))[-1]
    if _is_primitive(step, alike=0.6):
        assert last.period == len(step)
        assert abs(last.first - before) <= 1
        assert last.last == before + times * len(step)


#: Programs, the launches of a step, and at least so many steps: a first one may do more.
SEQUENCES = [
    ("timm_convnext_train", 1014, [24]),
    ("timm_resnet50_infer", 232, [34]),
    ("timm_vit_train_compiled", 686, [24]),
    ("dcgan_train", 325, [14, 14, 14, 14]),
    ("mingpt_train", 303, [299]),
    ("llmc_train", 453, [20, 20, 20, 20]),
    ("llmc_train", 171, [64, 64, 64, 63]),
]


@pytest.mark.parametrize(("program", "period", "repeats"), SEQUENCES)
def test_launches_of_public_programs(program: str, period: int, repeats: list[int]) -> None:
    """As recorded on an H200: timm's benchmark.py, an example of PyTorch, minGPT's adder, llm.c.

    cuDNN's auto-tuning launches six times what ConvNeXt's training does; layers repeat in all.
    Every 20 steps llm.c evaluates and generates text, for twice as long, without an optimizer.
    """
    held = np.load(DATA / "launch_sequences.npz")
    codes = held[program].astype(np.int32)
    kinds = [
        np.unpackbits(held[name], count=len(codes)).astype(bool)
        for name in (f"{program}_marks", f"{program}_inputs")
        if name in held
    ]
    own = [loop for loop in loops(codes, kinds) if loop.period == period]
    assert [(loop.last - loop.first) // period for loop in own] == repeats


def test_an_evaluation_is_a_loop_of_its_own() -> None:
    train = list(range(40))
    evaluate = list(range(50, 68))
    codes = _codes([[99] * 5, *[train] * 20, *[evaluate] * 15, *[train] * 20])
    assert [(loop.period, loop.first, loop.last) for loop in loops(codes)] == [
        (40, 5, 805),
        (18, 805, 1075),
        (40, 1075, 1875),
    ]


def test_epochs_do_not_win_over_steps_that_are_marked() -> None:
    step = [*range(40), 90]
    evaluation = list(range(50, 68))
    codes = _codes([[99] * 5, *[*[step] * 20, *[evaluation] * 10] * 4])
    assert {loop.period for loop in loops(codes, [codes == 90])} == {41, 18}
    micro = list(range(30))
    accumulated = micro * 4 + [90, *range(40, 60)]
    codes = _codes([accumulated] * 8)
    assert [loop.period for loop in loops(codes, [codes == 90])] == [len(accumulated)]


def test_an_accumulation_of_gradients_is_one_step() -> None:
    micro = list(range(30))
    step = micro * 4 + list(range(40, 60))
    (loop,) = loops(_codes([step] * 8))
    assert loop.period == len(step)


def test_a_first_step_that_sets_things_up_is_found() -> None:
    step = list(range(50))
    first = step[:30] + list(range(100, 115)) + step[30:]
    codes = _codes([[200] * 9, first, *[step] * 6])
    loop = max(loops(codes), key=lambda loop: loop.last - loop.first)
    edges = boundaries(codes, loop, 9 + len(first), Columns())
    begin = int(edges[0])
    earlier = begin if begin == 9 else irregular_first(codes, loop, begin)
    assert earlier == 9


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=40))
def test_any_sequence_gives_loops_that_repeat_and_do_not_overlap(symbols: list[int]) -> None:
    codes = np.array(symbols, np.int32)
    found = loops(codes)
    for loop in found:
        assert 0 <= loop.first < loop.last <= len(codes)
        assert loop.last - loop.first >= 3 * loop.period
    for one, other in pairwise(found):
        assert one.last <= other.first


def test_no_loop_in_what_does_not_repeat() -> None:
    assert loops(np.arange(500, dtype=np.int32)) == []
    assert loops(np.array([], np.int32)) == []


@settings(max_examples=60, deadline=None)
@given(steps(least=10), st.integers(5, 12), st.integers(0, 2), st.integers(0, 30))
def test_no_step_is_lost_at_the_end(step: list[int], times: int, behind: int, after: int) -> None:
    """The last steps may differ, such as where one logs, and too few follow it to repeat."""
    if not _is_primitive(step, alike=0.5) or len(step) < 16:
        return
    longer = [*step[: len(step) // 2], 300, 301, 302, *step[len(step) // 2 :]]
    parts = [*[step] * times, longer, *[step] * behind]
    codes = _codes([*parts, list(range(400, 400 + after))])
    main = max(loops(codes), key=lambda loop: loop.last - loop.first)
    edges = boundaries(codes, main, 0, Columns()).tolist()
    while (last := irregular_last(codes, main, edges[-1])) is not None:
        assert last > edges[-1]
        edges.append(last)
    known = np.cumsum([0, *(len(part) for part in parts)]).tolist()
    # A step whose own end occurs earlier in it may end there.
    assert edges == known or (longer.count(step[-1]) > 1 and len(edges) == len(known))


def test_other_work_at_the_end_is_no_step() -> None:
    step = list(range(40))
    codes = _codes([*[step] * 8, step[:20], list(range(200, 230))])
    (loop,) = loops(codes)
    assert irregular_last(codes, loop, 320) is None


def _issued(sequences: dict[int, list[int]], random: Random) -> tuple[Issued, list[int]]:
    """Return what the threads of a process issue, interleaved at random, and who issued what."""
    left = {tid: iter(symbols) for tid, symbols in sequences.items()}
    turns = [tid for tid, symbols in sequences.items() for _ in symbols]
    random.shuffle(turns)
    codes = np.array([next(left[tid]) for tid in turns], np.int32)
    host = np.arange(len(codes), dtype=np.int64) * 1000
    none, no = np.array([], np.int64), np.zeros(len(codes), bool)
    return Issued(
        pid=1, tid=np.array(turns, np.int64), symbol=codes, host=host, ended=host + 500,
        idle=np.zeros(len(codes), np.int64), busy=np.full(len(codes), 10), copy_tid=none,
        copy_host=none, copy_idle=none, result=none.astype(bool), given=none.astype(bool),
        optimizer=no, trial=no, sampling=no, graph=no,
    ), turns  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(8, 40), min_size=2, max_size=3, unique=True),
    st.integers(6, 12),
    st.integers(0, 1 << 32),
)
def test_threads_with_loops_of_their_own(periods: list[int], times: int, seed: int) -> None:
    """In the sequence of the process nothing repeats; in that of each thread everything does."""
    sequences = {
        tid: [100 * tid + place for place in range(period)] * times
        for tid, period in enumerate(periods, 1)
    }
    process, turns = _issued(sequences, Random(seed))
    found = {part.thread: steps for part, steps in looping(process)}
    assert set(found) == set(sequences)
    for tid, period in enumerate(periods, 1):
        ((loop),) = found[tid]
        # Where the boundary lies within a period, part of one is left over at either end.
        assert loop.loop.length == period
        assert times - 1 <= len(loop) <= times
    # A thread for each GPU: every GPU has the steps of its own.
    device = np.array(turns, np.int64)
    placed = Placed(
        process.host, process.host + 10, np.ones_like(device), device, device, process.host
    )
    rows = list(_parts(_kept(process, lambda: [placed])))
    assert [set(part["device"].to_pylist()) for part in rows] == [{tid} for tid in sequences]
    assert [len(part["step"]) for part in rows] == [len(found[tid][0]) for tid in sequences]
    assert len({tuple(set(part["loop"].to_pylist())) for part in rows}) == len(periods)
    # On one GPU, those of the thread that launches most.
    one = Placed(
        process.host, process.host + 10, np.ones_like(device), device, 0 * device, process.host
    )
    (part,) = _parts(_kept(process, lambda: [one]))
    launches = {
        tid: int((level.loop.ends - level.loop.heads).sum()) for tid, (level,) in found.items()
    }
    most = max(launches.values())
    known = {period for tid, period in enumerate(periods, 1) if launches[tid] == most}
    assert set(part["period"].to_pylist()) <= known


def test_a_gpu_that_no_loop_uses_has_no_steps() -> None:
    process, _ = _issued({1: [*range(100, 120), *list(range(40)) * 10]}, Random(0))
    device = np.where(process.symbol < 100, 0, 1)
    one = np.ones_like(device)
    placed = Placed(process.host, process.host + 10, one, one, device, process.host)
    (part,) = _parts(_kept(process, lambda: [placed]))
    assert set(part["device"].to_pylist()) == {0}


def test_threads_that_take_turns_are_one_loop() -> None:
    """Autograd launches the second half of each step from a thread of its own."""
    process, _ = _issued({1: list(range(40)) * 10}, Random(0))
    tid = np.where(process.symbol < 25, 1, 2).astype(np.int64)
    process = Issued(**(vars(process) | {"tid": tid}))
    ((part, (loop,)),) = looping(process)
    assert (part.thread, loop.loop.length, len(loop)) == (None, 40, 10)


def test_auto_tuning_is_not_taken_for_the_loop_behind_it() -> None:
    """It launches a kernel and what empties the cache in turns, whatever the step's length."""
    tuning = [1, 0] * 200 + [2] + [1, 0] * 150 + [3, 0] * 170
    step = [4, 1, 1, 5, 3, 6]
    found = loops(_codes([tuning, step * 40]))
    assert [loop.period for loop in found if loop.last > len(tuning) + 30] == [6]
    assert all(loop.period < 6 for loop in found if loop.first < len(tuning) - 30)
    (steps,) = steps_of(_issued({1: [*tuning, *(step * 40)]}, Random(0))[0])
    assert (steps.period, len(steps.match)) == (6, 40)


def test_a_loop_of_few_kernels_is_no_auto_tuning_where_little_comes_behind_it() -> None:
    solver = [1, 2] * 400
    found = steps_of(_issued({1: [*solver, *([3, 1, 4, 2] * 5)]}, Random(0))[0])
    assert found[0].period == 2
    assert len(found[0].match) >= 399


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 6), st.integers(3, 40), st.integers(4, 10))
def test_layers_in_a_step_lose_to_the_step(layer: int, layers: int, times: int) -> None:
    """However many layers there are, each step has something besides."""
    step = [*range(1, layer + 1)] * layers + [90, 91]
    (loop,) = loops(_codes([step * times]))
    assert loop.period == len(step)
