"""Nested loops: programs whose loops are known, and interval routines against brute force."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from conftest import Cli
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpipe.analysis.session import Session
from perfpipe.ingest.alternation import Repeats, _alternate, _alternation
from perfpipe.ingest.nesting import Events, _covered, per_iteration
from perfpipe.ingest.nsys import loops
from perfpipe.ingest.nsys.issued import Issued
from perfpipe.ingest.nsys.launch_steps import looping
from perfpipe.ingest.nsys.loops import Level
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store


class Program:
    """What a program issues: kernels by number, 10 us apart, copies and pauses of the host."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0
        self.launches: list[tuple[int, int, str]] = []
        self.copies: list[tuple[int, str]] = []
        self._names = iter(range(1, 100_000))

    def kernels(self, least: int, most: int) -> list[int]:
        """Return kernels of a part of the program, some of them equal."""
        names = [next(self._names) for _ in range(self.random.randint(least, most))]
        return self.random.choices(names, k=len(names)) + names

    def launch(self, kernels: Sequence[int], mark: str = "") -> None:
        for kernel in kernels:
            self.launches.append((kernel, self.now, mark))
            self.now += 10_000

    def copy(self, kind: str) -> None:
        """A copy to the host (read) or from it (given); the host waits for the first."""
        self.copies.append((self.now, kind))
        self.now += 50_000 if kind == "read" else 5_000

    def pause(self) -> None:
        self.now += 2_000_000

    def noisy(self, share: float) -> None:
        """Replace some launches by others."""
        for at in self.random.sample(range(len(self.launches)), int(share * len(self.launches))):
            _, host, mark = self.launches[at]
            self.launches[at] = (50_000 + self.random.randrange(10), host, mark)

    def loops(self) -> list[Level]:
        """Return the loops that are found."""
        host = np.array([at for _, at, _ in self.launches], np.int64)
        marks = {
            name: np.array([mark == name for _, _, mark in self.launches])
            for name in ("optimizer", "trial", "sampling", "graph")
        }
        codes = np.unique([kernel for kernel, _, _ in self.launches], return_inverse=True)[1]
        copied = np.array([at for at, _ in self.copies], np.int64)
        kinds = np.array([kind for _, kind in self.copies])
        process = Issued(
            pid=1, tid=np.ones(len(host), np.int64), symbol=codes.astype(np.int32), host=host,
            ended=host + 5_000, idle=np.zeros(len(host), np.int64),
            busy=np.full(len(host), 8_000), copy_tid=np.ones(len(copied), np.int64),
            copy_host=copied, copy_idle=np.zeros(len(copied), np.int64), result=kinds == "read",
            given=kinds == "given", optimizer=marks["optimizer"], trial=marks["trial"],
            sampling=marks["sampling"], graph=marks["graph"],
        )  # fmt: skip
        ((_, found),) = looping(process)
        return found


def _of(levels: Sequence[Level], role: str) -> list[Level]:
    return [level for level in levels if level.role.role == role]


def _step(levels: Sequence[Level]) -> Level:
    (step,) = _of(levels, "step")
    return step


seeds = pytest.mark.parametrize("seed", range(8))


@seeds
def test_a_solver_with_as_many_iterations_as_it_needs(seed: int) -> None:
    program = Program(seed)
    before, body, behind = (program.kernels(3, 12) for _ in range(3))
    counts = [program.random.randint(3, 14) for _ in range(program.random.randint(8, 25))]
    for times in counts:
        program.copy("given")
        program.launch(before)
        for _ in range(times):
            program.launch(body)
            program.copy("read")
        program.launch(behind, "optimizer")
    levels = program.loops()
    step = _step(levels)
    assert len(step) == len(counts)
    assert step.variable
    inner = next(level for level in _of(levels, "inner") if level.outer == step.number)
    assert len(inner) == sum(counts)
    assert inner.per_outer is not None
    assert (inner.per_outer[0], inner.per_outer[2]) == (min(counts), max(counts))


@seeds
def test_batches_of_tokens(seed: int) -> None:
    """A prompt is read by other kernels than each token, and attention kernels drift."""
    program = Program(seed)
    prompt, layer, head = program.kernels(20, 40), program.kernels(4, 8), program.kernels(2, 4)
    drifting = [next(program._names) for _ in range(4)]
    counts = [program.random.randint(20, 40) for _ in range(program.random.randint(5, 9))]
    for tokens in counts:
        program.pause()
        program.copy("given")
        program.launch(prompt)
        for token in range(tokens):
            for _ in range(6):
                program.launch([*layer, drifting[token * 4 // tokens]])
            program.launch(head, "sampling")
            program.copy("read")
    levels = program.loops()
    assert len(_step(levels)) == len(counts)
    tokens_loop = next(
        level for level in _of(levels, "inner") if level.outer == _step(levels).number
    )
    assert len(tokens_loop) == sum(counts)
    assert {"readback", "sampling"} <= set(tokens_loop.role.evidence)


@seeds
def test_micro_batches_are_inside_the_step_of_the_optimizer(seed: int) -> None:
    program = Program(seed)
    layer, micro, update = program.kernels(4, 8), program.kernels(6, 12), program.kernels(3, 6)
    steps = program.random.randint(6, 20)
    for _ in range(steps):
        for _ in range(4):
            program.copy("given")
            program.launch(micro)
            for _ in range(8):
                program.launch(layer)
        program.launch(update, "optimizer")
    levels = program.loops()
    assert len(_step(levels)) == steps
    inner = [level for level in levels if level.outer == _step(levels).number]
    assert 4 * steps in [len(level) for level in inner]


@seeds
@pytest.mark.parametrize(("every", "batches"), [(5, 6), (10, 6), (50, 12)])
def test_evaluations_between_steps(seed: int, every: int, batches: int) -> None:
    program = Program(seed)
    forward, backward, update, score = (program.kernels(8, 20) for _ in range(4))
    steps = program.random.randint(3, 8) * every
    for step in range(steps):
        program.copy("given")
        program.launch(forward)
        program.launch(backward)
        program.launch(update, "optimizer")
        if step % every == every - 1:
            for _ in range(batches):
                program.copy("given")
                program.launch(forward)
                program.launch(score)
                program.copy("read")
    assert len(_step(program.loops())) == steps


@seeds
def test_epochs_are_around_the_steps(seed: int) -> None:
    program = Program(seed)
    start, body, update = (program.kernels(8, 20) for _ in range(3))
    epochs, steps = program.random.randint(4, 7), program.random.randint(10, 20)
    for _ in range(epochs):
        program.launch(start)
        program.pause()
        for _ in range(steps):
            program.copy("given")
            program.launch(body)
            program.launch(update, "optimizer")
    assert len(_step(program.loops())) == epochs * steps


@seeds
@pytest.mark.parametrize("between", [False, True])
def test_trials_are_not_steps(seed: int, between: bool) -> None:
    """An autotuner tries kernels before the steps, and again where a shape is new."""
    program = Program(seed)
    body = program.kernels(20, 40)
    flush = next(program._names)

    def tune() -> None:
        for _ in range(12):
            kernel = next(program._names)
            for _ in range(10):
                program.launch([flush])
                program.launch([kernel])

    tune()
    steps = program.random.randint(20, 30)
    for step in range(steps):
        program.copy("given")
        program.launch(body)
        program.pause()
        if between and step % 10 == 5:
            tune()
    assert len(_step(program.loops())) == steps


@seeds
def test_trials_with_names_of_an_autotuner(seed: int) -> None:
    """There may be many more trials than steps, and steps may be CUDA graphs."""
    program = Program(seed)
    check, graph = next(program._names), next(program._names)
    for _ in range(15):
        kernel = next(program._names)
        for _ in range(10):
            program.launch([kernel])
            program.launch([check], "trial")
            program.pause()
    steps = program.random.randint(10, 30)
    for _ in range(steps):
        program.launch([graph], "graph")
    levels = program.loops()
    assert len(_step(levels)) == steps
    assert _of(levels, "trial")


@seeds
def test_layers_of_one_pass_are_not_steps(seed: int) -> None:
    program = Program(seed)
    layers = program.random.randint(12, 80)
    program.copy("given")
    program.launch(program.kernels(5, 10))
    layer = program.kernels(4, 10)
    for _ in range(layers):
        program.launch(layer)
    program.launch(program.kernels(5, 10))
    program.copy("read")
    levels = program.loops()
    assert not _of(levels, "step")
    assert layers in [len(level) for level in _of(levels, "layer")]


@seeds
def test_passes_of_a_network_without_a_pause(seed: int) -> None:
    """A benchmark launches 30 passes and waits once at the end."""
    program = Program(seed)
    before, layer, behind = program.kernels(5, 10), program.kernels(5, 10), program.kernels(5, 10)
    for _ in range(30):
        program.launch(before)
        for _ in range(12):
            program.launch(layer)
        program.launch(behind)
    assert len(_step(program.loops())) == 30


@seeds
def test_noise_hides_no_step(seed: int) -> None:
    program = Program(seed)
    body, update = program.kernels(40, 80), program.kernels(6, 12)
    steps = program.random.randint(20, 40)
    for _ in range(steps):
        program.copy("given")
        program.launch(body)
        program.launch(update, "optimizer")
    program.noisy(0.02)
    assert abs(len(_step(program.loops())) - steps) <= 1


@seeds
def test_two_networks_in_turn_are_one_step(seed: int) -> None:
    program = Program(seed)
    one, other = program.kernels(30, 60), program.kernels(8, 14)
    update = program.kernels(3, 6)
    steps = program.random.randint(8, 20)
    for _ in range(steps):
        for part in (one, other):
            program.copy("given")
            program.launch(part)
            program.launch(update, "optimizer")
    assert len(_step(program.loops())) == steps


_places = st.lists(st.integers(0, 60), min_size=3, max_size=12, unique=True).map(sorted)


@given(_places, _places)
def test_alternation_against_brute_force(one: list[int], other: list[int]) -> None:
    other = [2 * place + 1 for place in other]
    one = [2 * place for place in one]
    labels = [place % 2 for place in sorted([*one, *other])]
    changes = sum(a != b for a, b in pairwise(labels))
    found = _alternation(np.array(one), np.array(other))
    assert found == pytest.approx(changes / (len(labels) - 1))
    if len(one) == len(other):
        strict = changes == len(labels) - 1
        assert _alternate(np.array(one), np.array(other)) == strict


@st.composite
def _loops(draw: st.DrawFn) -> Repeats:
    edges = draw(st.lists(st.integers(0, 80), min_size=4, max_size=20, unique=True).map(sorted))
    edges = edges[: len(edges) // 2 * 2]
    heads, ends = np.array(edges[::2], np.int64), np.array(edges[1::2], np.int64)
    return Repeats(heads, ends, float(np.median(ends - heads)), 1)


@settings(max_examples=200)
@given(_loops(), _loops(), _loops())
def test_covered_launches_against_brute_force(loop: Repeats, one: Repeats, other: Repeats) -> None:
    def launches(*loops: Repeats) -> set[int]:
        return {
            at
            for own in loops
            for first, last in zip(own.heads.tolist(), own.ends.tolist(), strict=True)
            for at in range(first, last)
        }

    own = launches(loop)
    shared = len(own & launches(one, other)) / len(own)
    assert _covered(loop, [one, other]) == pytest.approx(shared)


@settings(max_examples=200)
@given(_loops(), _loops(), st.lists(st.booleans(), min_size=81, max_size=81))
def test_counts_against_brute_force(inner: Repeats, outer: Repeats, marks: list[bool]) -> None:
    near = 4 * outer.length
    pairs = list(zip(outer.heads.tolist(), outer.ends.tolist(), strict=True))
    expected = [
        sum(first <= head < last and head - first < near for head in inner.heads.tolist())
        for first, last in pairs
    ]
    assert per_iteration(inner, outer).tolist() == expected
    events = Events.of(np.array(marks))
    assert events.counts(outer).tolist() == [sum(marks[first:last]) for first, last in pairs]


def _run(build: Callable[[Program], None]) -> list[Level]:
    program = Program(0)
    build(program)
    return program.loops()


def test_nothing_repeats_or_is_too_short() -> None:
    assert _run(lambda program: program.launch(list(range(200)))) == []
    assert _run(lambda program: program.launch([1, 2, 1])) == []


def test_a_long_sequence_is_searched_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact steps are found everywhere, and their parts where loops are searched for."""
    program = Program(1)
    body, layer, update = program.kernels(8, 20), program.kernels(4, 8), program.kernels(3, 6)
    for _ in range(120):
        program.copy("given")
        program.launch(body)
        for _ in range(10):
            program.launch(layer)
        program.launch(update, "optimizer")
    monkeypatch.setattr(loops, "_SEARCHED", 2_000)
    levels = program.loops()
    step = _step(levels)
    assert (len(step), step.source) == (120, "period")
    repeats = [level for level in levels if level.outer == step.number]
    assert any(level.per_outer == (10, 10, 10) for level in repeats)
    assert all(level.loop.heads[0] > 100 for level in repeats)


def _view(store: Path, step: int | None = None) -> list[tuple[Any, ...]]:
    with Session.open(Store(store), step_range=step) as con:
        rows: list[tuple[Any, ...]] = con.execute(
            "SELECT loop, parent, unit, role, iterations FROM loops ORDER BY process_id, loop"
        ).fetchall()
    return rows


def test_the_view_shows_trials_and_steps(expand: Callable[[str], Path], tmp_path: Path) -> None:
    """A JAX program: XLA tries matrix products, and then 30 steps run as CUDA graphs."""
    store = tmp_path / "store"
    ingest(expand("real/jax_train_autotuned.sqlite"), Store(store))
    found = _view(store)
    assert [iterations for *_, role, iterations in found if role == "step"] == [30]
    assert {role for *_, role, _ in found} == {"trial", "step"}


def test_another_loop_can_be_the_step(
    expand: Callable[[str], Path], tmp_path: Path, cli: Cli
) -> None:
    """Text generation: each token consists of 12 layers."""
    store = tmp_path / "store"
    ingest(expand("real/gpt2_generate.sqlite"), Store(store))
    (step, layer) = (row for row in _view(store) if row[3] in ("step", "layer"))
    assert step[2:] == ("token", "step", 96)
    assert layer[1] == step[0]
    chosen = _view(store, layer[0])
    assert {loop: role for loop, _, _, role, _ in chosen} == {step[0]: "outer", layer[0]: "step"}
    assert cli("report", "--store", store, "--step", str(layer[0])) == 0, cli.err
    assert cli("report", "--store", store, "--step", "99") == 2
    assert "--step 99: no such loop" in cli.err
    assert cli("report", "--store", store, "--step", "1", "--step-range", "x") == 2
    assert "exclude each other" in cli.err
