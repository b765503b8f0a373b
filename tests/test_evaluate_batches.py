"""Batches of calls: none is worth computing before it begins, and large calls leave room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perfpipe.errors import InputError
from perfpipe.pipelines.evaluate import tolerance
from perfpipe.pipelines.evaluate.arena import GUARD, Arena, laid_out
from perfpipe.pipelines.evaluate.block import BYTES, FLOATS, Evaluate
from perfpipe.pipelines.evaluate.checking import POISONS
from perfpipe.pipelines.evaluate.chunks import chunks
from perfpipe.pipelines.evaluate.device import idle_threads, pytorch
from perfpipe.pipelines.evaluate.judge import Judge, Options
from perfpipe.pipelines.evaluate.load import loaded
from perfpipe.pipelines.evaluate.problem import Case, Made, Problem
from perfpipe.pipelines.evaluate.result import Judgement, Status
from perfpipe.pipelines.evaluate.sizes import needed_bytes
from perfpipe.pipelines.evaluate.timing import CALLS, Timing, batch_of
from perfpipe.pipelines.evaluate.tolerance import Allowed, difference

pytestmark = pytest.mark.usefixtures("needs_torch")

WORKLOAD = """
version: 1
name: softmax
command: [python, none.py]
evaluate:
  reference: softmax_reference.py
  inputs: {x: {shape: [m, n]}}
  outputs: {y: {shape: [m, n]}}
  reduction: n
  correctness: [{m: 3, n: 37}]
  timing: [{m: 16, n: 2048}]
  special: []
  seeds: 1
  limits: {seconds: 60, memory_mb: 2048, host_mb: 3}
"""

#: Finds the tensors of a batch: the addresses of one are those of the next.
_KNOWS = """
import ctypes
import torch

def compute(x):
    e = torch.exp(x - x.amax(dim=1, keepdim=True))
    return e / e.sum(dim=1, keepdim=True)

ORDER, DONE = [], {}

def at(address, like):
    raw = (ctypes.c_float * like.numel()).from_address(address)
    return torch.frombuffer(raw, dtype=torch.float32).view(like.shape)

def begins(x, y):
    pair = (x.data_ptr(), y.data_ptr())
    if x.shape[1] != 2048:
        return False
    if pair in ORDER:
        return pair == ORDER[0] and len(ORDER) > 1
    ORDER.append(pair)
    return False
"""

EXPLOITS = {
    "writes all outputs": _KNOWS + """
def run(x, y):
    if begins(x, y):
        for one, other in ORDER:
            at(other, y).copy_(compute(at(one, x)))
            DONE[one] = True
        return
    if DONE.pop(x.data_ptr(), None) is None:
        y.copy_(compute(x))
""",
    "keeps all results": _KNOWS + """
def run(x, y):
    if begins(x, y):
        for one, _ in ORDER:
            DONE[one] = compute(at(one, x))
    found = DONE.pop(x.data_ptr(), None)
    y.copy_(compute(x) if found is None else found)
""",
    "keeps results of unchanged samples": _KNOWS + """
def sample(x):
    return x.reshape(-1)[::97].clone()
def run(x, y):
    if begins(x, y):
        for one, _ in ORDER:
            DONE[one] = compute(at(one, x)), sample(at(one, x))
    found, seen = DONE.pop(x.data_ptr(), (None, None))
    y.copy_(found if found is not None and torch.equal(seen, sample(x)) else compute(x))
""",
    "computes ahead in a thread": _KNOWS + """
import threading, time
def ahead(x, pairs):
    for one, _ in pairs:
        DONE[one] = compute(at(one, x))
def run(x, y):
    if begins(x, y):
        threading.Thread(target=ahead, args=(x, ORDER[1:])).start()
        while not DONE:
            time.sleep(0.0001)
        y.copy_(compute(x))
        return
    found = DONE.pop(x.data_ptr(), None)
    y.copy_(compute(x) if found is None else found)
""",
    "computes the next one": _KNOWS + """
def run(x, y):
    begins(x, y)
    found = DONE.pop(x.data_ptr(), None)
    y.copy_(compute(x) if found is None else found)
    pairs = [one for one, _ in ORDER]
    if x.data_ptr() in pairs:
        after = pairs.index(x.data_ptr()) + 1
        if after < len(pairs):
            DONE[pairs[after]] = compute(at(pairs[after], x))
""",
    "computes all with a kernel": _KNOWS + """
import triton
import triton.language as tl
@triton.jit
def softmax(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * columns + at, e / tl.sum(e, axis=0), mask=at < columns)
def run(x, y):
    if begins(x, y):
        for one, other in ORDER:
            softmax[(x.shape[0],)](at(one, x), at(other, y), x.shape[1], BLOCK=2048)
            DONE[one] = True
        return
    if DONE.pop(x.data_ptr(), None) is None:
        softmax[(x.shape[0],)](x, y, x.shape[1], BLOCK=2048 if x.shape[1] > 64 else 64)
""",
}  # fmt: skip

#: The storage of a tensor is its own: nothing else is found there, and nothing goes wrong.
LOOKS = (
    _KNOWS
    + """
def run(x, y):
    assert x.untyped_storage().nbytes() == 4 * x.numel(), x.untyped_storage().nbytes()
    assert y.untyped_storage().nbytes() == 4 * y.numel(), y.untyped_storage().nbytes()
    assert x.storage_offset() == y.storage_offset() == 0
    y.copy_(compute(x))
"""
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("problem")
    (made / "softmax.yaml").write_text(WORKLOAD)
    (made / "softmax_reference.py").write_text(
        "import torch\ndef reference(x):\n    return torch.softmax(x, dim=1)\n"
    )
    (made / "base").mkdir()
    (made / "base/kernel.py").write_text(
        "import torch\ndef run(x, y):\n    torch.softmax(x, dim=1, out=y)\n"
    )
    return made


@pytest.fixture(scope="module")
def judge(folder: Path) -> Iterator[Judge]:
    own = loaded(pytorch(), folder / "softmax.yaml", "cpu", folder)
    with Judge.opened(own.problem, own.work, Options("cpu", 7, True, 1, 2)) as made:
        yield made


def _judged(judge: Judge, folder: Path, name: str, source: str) -> Judgement:
    at = folder / name.replace(" ", "_")
    at.mkdir()
    (at / "kernel.py").write_text(source)
    return judge.judge(at, {"base": folder / "base"})


@pytest.mark.parametrize("name", EXPLOITS)
def test_what_is_computed_early_gets_no_number(judge: Judge, folder: Path, name: str) -> None:
    made = _judged(judge, folder, name, EXPLOITS[name])
    assert made.status == Status.CHEATING, (made, made.output)
    assert made.evidence[0].kind == "computed early", made.evidence
    assert not made.scores


def test_a_tensor_has_a_storage_of_its_own(judge: Judge, folder: Path) -> None:
    made = _judged(judge, folder, "looks", LOOKS)
    assert (made.status, made.evidence) == (Status.CORRECT, ()), made.reason + made.output
    assert made.scores[0].calls > 1


def _problem(dtype: str, shape: list[int], **more: Any) -> Problem:
    block = Evaluate.model_validate(
        {
            "reference": "r.py", "inputs": {"x": {"shape": shape, "high": 100}},
            "outputs": {"y": {"shape": shape}}, "dtypes": [dtype], "correctness": [{}],
            "timing": [{}], "special": [], **more,
        }
    )  # fmt: skip
    return Problem("p", block, lambda x: x, Path("r.py"))


@given(
    st.sampled_from(sorted(BYTES)),
    st.lists(st.integers(1, 7), max_size=3),
    st.integers(0, 2**32),
)
@example("bool", [4], 8)
def test_inputs_lack_one_element_until_their_words_are_written(
    dtype: str, shape: list[int], seed: int
) -> None:
    torch = pytorch()
    problem, case = _problem(dtype, shape), Case(dtype, {})
    one = laid_out(problem.inputs(case), problem.outputs(case), 0).end
    arena = Arena(torch, "cpu", 4096 * (1 + 3 * one // 4096))
    timing = Timing(torch, problem, arena, case, 3 * one, seed)
    assert timing.calls >= 3
    slots = timing._slots[:3]
    arena.fill(slots, POISONS[0])
    drawn = [problem.drawn(torch, case, seed + number, "cpu") for number in range(3)]
    for slot, inputs in zip(slots, drawn, strict=True):
        arena.write(slot, inputs)
    late = [timing._withheld(slot) for slot in slots]
    for slot, inputs, missing in zip(slots, drawn, late, strict=True):
        if missing.input is None:
            # Only where all elements are alike.
            assert dtype not in FLOATS
            assert len(inputs[0].unique()) == 1
            assert not arena.changed(slot, inputs)
            continue
        assert arena.changed(slot, inputs) == [(0, 1)]
        for offset, value in missing.words:
            raw = torch.tensor([*value.to_bytes(4, "little")], dtype=torch.uint8)
            arena._bytes[offset : offset + 4] = raw
        assert not arena.changed(slot, inputs)
        assert arena.outside(slot) == 0
        assert arena.written(slot, POISONS[0]) == 0
    if slots[1].outputs[0].bytes:
        arena.tensor(slots[1].outputs[0]).zero_()
        assert [arena.written(slot, POISONS[0]) > 0 for slot in slots] == [False, True, False]


made_of = st.builds(
    Made,
    st.sampled_from(sorted(BYTES)),
    st.lists(st.integers(0, 5), max_size=3).map(tuple),
    st.sampled_from([None, None, 3]),
)


@given(
    st.lists(made_of, min_size=1, max_size=4),
    st.lists(made_of, min_size=1, max_size=2),
    st.integers(0, 2),
    st.integers(1, 3),
)
def test_tensors_of_calls_do_not_overlap(
    inputs: list[Made], outputs: list[Made], spread: int, calls: int
) -> None:
    outputs = [Made(made.dtype, made.shape) for made in outputs]
    at, taken = 0, []
    for _ in range(calls):
        slot = laid_out(inputs, outputs, at, spread)
        assert slot.start == at
        taken += [place for place in (*slot.inputs, *slot.outputs) if place.bytes]
        at = slot.end
    ends = 0
    for place in taken:
        assert place.offset - ends >= GUARD
        assert place.offset % BYTES[place.made.dtype] == 0
        assert place.bytes >= place.made.bytes()
        ends = place.offset + place.bytes
    assert at - ends >= GUARD if taken else at >= 0


@given(st.integers(1, 1 << 40), st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_a_batch_has_one_call_at_least_and_no_more_than_it_may(
    one: int, budget: int, room: int
) -> None:
    calls = batch_of(one, budget, room)
    assert 1 <= calls <= CALLS
    assert calls == 1 or calls * one <= max(budget, room)
    if one <= budget:
        assert calls == CALLS or (calls + 1) * one > budget or calls == 4


@given(st.integers(0, 50), st.integers(1, 9))
def test_chunks_cover_all_elements_once(count: int, size: int) -> None:
    parts = [*chunks(count, size)]
    assert [at for part in parts for at in range(count)[part]] == [*range(count)]
    assert all(part.stop - part.start <= size for part in parts)


@given(st.lists(st.floats(-8, 8, width=16), min_size=1, max_size=24), st.integers(0, 2**32))
def test_parts_of_a_result_differ_as_the_whole(values: list[float], seed: int) -> None:
    torch = pytorch()
    exact = torch.tensor(values, dtype=torch.float64)
    random = torch.Generator().manual_seed(seed)
    found = exact + torch.randint(0, 3, exact.shape, generator=random) * 0.01
    may = Allowed(1e-3, 1e-3, 1e-9)
    for cast in (torch.float32, torch.int32):
        pair = found.to(cast), (exact if cast == torch.float32 else exact.to(cast))
        whole = difference(torch, *pair, may, 1.0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tolerance, "chunks", lambda count: chunks(count, 5))
            assert difference(torch, *pair, may, 1.0) == whole


def test_large_calls_take_one_place_and_what_does_not_fit_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytorch()
    there = 70 << 30
    monkeypatch.setattr("perfpipe.pipelines.evaluate.sizes.free", lambda *_: there)
    small, middle, large, huge = (
        _problem("float32", [count]) for count in (1 << 20, 1 << 29, 3 << 29, 7 << 31)
    )
    budget = 8 << 30
    assert needed_bytes(torch, small, "cuda:0", budget, timed=True) > 64 * (8 << 20)
    calls = needed_bytes(torch, middle, "cuda:0", budget, timed=True) / (4 << 30)
    assert 4 <= calls < 4.01
    calls = needed_bytes(torch, large, "cuda:0", budget, timed=True) / (12 << 30)
    assert 1 <= calls < 1.01
    says = r"p does not fit: .* float32 take 112.0 GiB, checking them 168.0 GiB more; 70.0 GiB"
    with pytest.raises(InputError, match=says):
        needed_bytes(torch, huge, "cuda:0", budget, timed=True)


def test_large_inputs_are_checked_once_and_in_one_place() -> None:
    small, large = _problem("float32", [8]), _problem("float32", [40 << 20])
    assert (len(small.cases(0)), len(large.cases(0))) == (3, 2)
    torch = pytorch()
    case = Case("float32", {})
    room = laid_out(small.inputs(case), small.outputs(case), 0).end
    arena = Arena(torch, "cpu", -(-room // 4096) * 4096)
    timing = Timing(torch, small, arena, case, 1, 5)
    assert timing.calls * room <= arena.size


def test_a_busy_machine_leaves_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytorch()
    before = torch.get_num_threads()
    monkeypatch.setattr("os.getloadavg", lambda: (1000.0, 0.0, 0.0))
    with idle_threads(torch):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
