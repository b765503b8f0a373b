"""Memory snapshots: owner, line and bytes are those that a simulated program knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from allocator import MIB, Allocator, OutOfMemory, Training, Truth, forward, plain, snapshot, write
from conftest import Cli
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfpipe.analysis.session import Session
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store
from perfpipe.units import format_bytes

Query = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture(name="query_of")
def _query_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Query]]:
    opened: list[Session] = []

    def query_of(content: dict[str, Any]) -> Query:
        folder = tmp_path_factory.mktemp("snapshot")
        store = Store(folder / "store")
        ingest(write(folder / "a.pickle", content), store)
        opened.append(session := Session.open(store))
        session.__enter__()
        return lambda sql: session.execute(sql).fetchall()

    yield query_of
    for session in opened:
        session.__exit__(None, None, None)


def at(truths: Sequence[Truth], event: int) -> list[Truth]:
    """Return what is in use after an event, one by one."""
    return [own for own in truths if own.start <= event and (own.end is None or own.end > event)]


def used(truths: Sequence[Truth], event: int) -> int:
    return sum(own.size for own in at(truths, event))


def used_at_most(program: Training) -> int:
    return max(used(program.truths, event) for event in range(len(program.allocator.trace)))


def by_owner(truths: Sequence[Truth]) -> Counter[tuple[str, int | None]]:
    found: Counter[tuple[str, int | None]] = Counter()
    for own in truths:
        found[own.category, own.line] += own.size
    return found


_SIZES = st.lists(st.integers(1, 30 * MIB), min_size=1, max_size=4)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    parameters=_SIZES, activations=_SIZES, steps=st.integers(1, 5), states=st.integers(0, 2),
    leak=st.integers(0, MIB), temporary=st.integers(0, 3 * MIB), micro=st.integers(1, 3),
    annotate=st.booleans(),
)  # fmt: skip
def test_against_the_program(
    query_of: Callable[..., Query], parameters: list[int], activations: list[int], steps: int,
    **more: Any,
) -> None:  # fmt: skip
    program = Training(Allocator())
    program.run(parameters, activations, steps=steps, **more)
    query, truths = query_of(snapshot(program.allocator)), program.truths
    events = range(len(program.allocator.trace))
    ((peak, event, end, reserved),) = query(
        "SELECT peak_bytes, peak_event, end_bytes, end_reserved_bytes FROM snapshot_peak"
    )
    courses = [used(truths, event) for event in events]
    assert (peak, event) == (max(courses), courses.index(max(courses)))
    assert (end, reserved) == (courses[-1], program.allocator.reserved)
    owners = query(
        "SELECT category, line, sum(peak_bytes), sum(end_bytes) FROM snapshot_owners GROUP BY ALL"
    )
    assert {own[:2]: own[2] for own in owners if own[2]} == +by_owner(at(truths, event))
    assert {own[:2]: own[3] for own in owners if own[3]} == +by_owner(at(truths, events[-1]))
    growth = query("SELECT line, grown_bytes, bytes_per_step FROM snapshot_growth")
    leaks = more["leak"] and steps > 3
    assert growth == ([(77, more["leak"] * (steps - 1), more["leak"])] if leaks else [])
    assert len(query("FROM snapshot_steps")) == steps


@pytest.mark.parametrize(
    ("parameters", "activations", "states", "owner"),
    [
        ([40 * MIB, 8 * MIB], [MIB], 2, ("optimizer state", "train.py", 60)),
        ([4 * MIB], [60 * MIB, 2 * MIB, 9 * MIB], 0, ("activations", "model.py", 30)),
    ],
)
def test_planted_peaks(
    query_of: Callable[..., Query], parameters: list[int], activations: list[int], states: int,
    owner: tuple[str, str, int],
) -> None:  # fmt: skip
    program = Training(Allocator())
    program.run(parameters, activations, states=states)
    query = query_of(snapshot(program.allocator))
    (first, *_) = query("SELECT category, file, line, modules FROM snapshot_owners")
    category, file, line, modules = first
    assert (category, file.rpartition("/")[2], line) == owner
    assert modules == ("model.py:30" if category == "activations" else None)


def test_a_ring_that_lost_its_oldest_events(query_of: Callable[..., Query]) -> None:
    """What was allocated before the first event is counted; its stack is that of its block."""
    program = Training(Allocator())
    program.run([8 * MIB, 4 * MIB], [3 * MIB, 5 * MIB], leak=MIB // 2, steps=6)
    trace, truths = program.allocator.trace, program.truths
    for kept in range(1, len(trace), 7):
        query = query_of(snapshot(program.allocator, events=kept))
        lost = len(trace) - kept
        events = range(lost - 1, len(trace))
        courses = [used(truths, event) for event in events]
        # A tensor whose release is complete only after the first event was gone before.
        ((peak, end, before, reserved),) = query(
            "SELECT peak_bytes, end_bytes, before_bytes, end_reserved_bytes FROM snapshot_peak"
        )
        assert (peak, end, before) == (max(courses), courses[-1], courses[0])
        assert reserved == program.allocator.reserved
        ((earliest,),) = query("SELECT min(reserved_bytes) FROM _snapshot_moments")
        assert earliest > 0


def test_steps_without_an_optimizer_are_backward_passes(query_of: Callable[..., Query]) -> None:
    program = Training(Allocator())
    gradients: list[int] = []
    for _ in range(5):
        program._micro([MIB], [2 * MIB, MIB], 0, gradients)
        program.drop(gradients, plain(61))
        gradients.clear()
    query = query_of(snapshot(program.allocator))
    assert [row[2:5:2] for row in query("FROM snapshot_steps")] == [
        (n, "backward") for n in range(5)
    ]


def test_forward_alone_is_not_decided(query_of: Callable[..., Query]) -> None:
    """Without a backward pass, nobody knows whether what forward keeps is an activation."""
    program = Training(Allocator())
    program.new("forward", 30, 3 * MIB, forward(30))
    program.drop([program.new("temporary", 31, MIB, forward(31))], forward(31))
    program.new("unknown", 77, MIB, plain(77))
    query = query_of(snapshot(program.allocator))
    rows = query("SELECT category, line, end_bytes FROM snapshot_owners ORDER BY ALL")
    assert rows == [("forward", 30, 3 * MIB), ("temporary", 31, 0), ("unknown", 77, MIB)]


def test_out_of_memory(query_of: Callable[..., Query]) -> None:
    """A full GPU, and one on which free memory lies between tensors."""
    full = Training(Allocator(64 * MIB))
    with pytest.raises(OutOfMemory):
        full.run([20 * MIB], [12 * MIB] * 9)
    query = query_of(snapshot(full.allocator))
    ((size, allocated, free, cause, line, category),) = query(
        "SELECT bytes, allocated_bytes, device_free_bytes, cause, line, largest_category FROM snapshot_ooms"
    )
    held = used(full.truths, len(full.allocator.trace))
    assert (size, allocated, cause, line) == (12 * MIB, held, "full", 33)
    assert free == 64 * MIB - full.allocator.reserved
    assert category == "forward"
    ((factor, fits, source),) = query(
        "SELECT factor, fits_double, capacity_source FROM snapshot_batch"
    )
    assert (fits, source) == ("no", "oom") and 1 < factor < 2
    pieces = Training(Allocator(60 * MIB))
    held_ = [pieces.new("unknown", 77, 5 * MIB, plain(77)) for _ in range(12)]
    pieces.drop(held_[::2], plain(78))
    with pytest.raises(OutOfMemory):
        pieces.new("unknown", 79, 11 * MIB, plain(79))
    query = query_of(snapshot(pieces.allocator))
    ((cause, between, line),) = query("SELECT cause, between_bytes, line FROM snapshot_ooms")
    assert (cause, between, line) == ("fragmentation", 30 * MIB, 79)
    ((largest, split, free_bytes),) = query(
        "SELECT largest_free_bytes, split_bytes, free_bytes FROM snapshot_peak"
    )
    assert (largest, split, free_bytes) == (5 * MIB, 30 * MIB, 30 * MIB)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(parameters=_SIZES, activations=_SIZES, steps=st.integers(1, 2))
def test_larger_batch(
    query_of: Callable[..., Query], parameters: list[int], activations: list[int], steps: int
) -> None:
    """The largest batch that fits is the largest for which the program itself fits.

    Its first step allocates the state of the optimizer, and the second one holds it.
    """
    one, whole, two = Training(Allocator()), Training(Allocator()), Training(Allocator())
    one.run(parameters, activations, steps=steps)
    whole.run(parameters, activations, steps=2)
    two.run(parameters, [2 * size for size in activations], steps=2)
    content = snapshot(one.allocator)
    peak = used_at_most(two)
    for capacity, fits in ((peak, "yes"), (peak - 1, "no")):
        content["perfpipe"] = {"devices": [{"name": "a GPU", "memory_bytes": capacity}]}
        ((later, double, source, factor, said),) = query_of(content)(
            "SELECT later_peak_bytes, double_bytes, capacity_source, factor, fits_double "
            "FROM snapshot_batch"
        )
        assert (later, double, source, said) == (used_at_most(whole), peak, "gpu", fits)
        if capacity < used_at_most(whole):
            assert factor is None
        else:
            assert (factor >= 2) == (fits == "yes")


def test_two_gpus(query_of: Callable[..., Query]) -> None:
    first, second = Training(Allocator(device=0)), Training(Allocator(device=1))
    first.run([MIB], [2 * MIB])
    second.run([3 * MIB], [2 * MIB], leak=MIB)
    query = query_of(snapshot(first.allocator, second.allocator))
    peaks = query("SELECT device, peak_bytes FROM snapshot_peak")
    for (device, peak), own in zip(peaks, (first, second), strict=True):
        assert peak == used_at_most(own)
        assert device == own.allocator.device
    assert query("SELECT device, line FROM snapshot_growth") == [(1, 77)]


def test_course(query_of: Callable[..., Query]) -> None:
    """The categories of each interval add up to its peak, found by brute force."""
    program = Training(Allocator())
    program.run([8 * MIB, MIB], [3 * MIB] * 5, steps=12, leak=MIB)
    query, truths = query_of(snapshot(program.allocator)), program.truths
    count = len(program.allocator.trace)
    rows = query("SELECT category, max_bytes, end_bytes, parts_bytes FROM snapshot_course")
    parts_of = {category: parts for category, *_, parts in rows}
    for category, peak, end, _ in rows:
        own = [one for one in truths if category in ("in use", one.category)]
        values = [used(own, event) for event in range(count)]
        assert category == "held" or (peak, end) == (max(values), values[-1])
    moments = [used(truths, event) for event in range(count)]
    for part in range(240):
        inside = [event for event in range(count) if event * 240 // count == part]
        before = inside[0] - 1 if inside else (part * count - 1) // 240
        known = [*inside, *([before] if before >= 0 else [])]
        assert parts_of["in use"][part] == max((moments[event] for event in known), default=0)
        categories = [
            parts[part] for name, parts in parts_of.items() if name not in ("in use", "held")
        ]
        assert sum(categories) == parts_of["in use"][part]


def test_pytorch_reads_the_same(needs_torch: None, tmp_path: Path) -> None:
    """The simulated snapshot is one that PyTorch's own tools read."""
    from torch.cuda import _memory_viz

    program = Training(Allocator())
    program.run([8 * MIB, MIB], [3 * MIB] * 5, leak=MIB)
    content = snapshot(program.allocator)
    text = _memory_viz.segsum(content)
    assert f"segments: {len(content['segments'])}" in text
    assert "cudaMalloc" in _memory_viz.trace(content)
    lines = _memory_viz.memory(content, format_flamegraph=lambda lines: lines)
    held = used(program.truths, len(program.allocator.trace))
    own = [
        line for line in lines.splitlines() if ";active_allocated;" in line and "<gaps>" not in line
    ]
    assert sum(int(line.rpartition(" ")[2]) for line in own) == held


def test_what_the_report_says(cli: Cli, tmp_path: Path) -> None:
    """The verdict names what holds the memory, the line that grows, and what failed."""
    program = Training(Allocator(64 * MIB))
    with pytest.raises(OutOfMemory):
        program.run([8 * MIB], [2 * MIB], leak=2 * MIB, steps=40)
    path = write(tmp_path / "a.pickle", snapshot(program.allocator))
    assert cli("report", path, "--md", "-") == 0
    verdict = " ".join(cli.out.split())
    assert "An allocation of 8.4 MB at train.py:60 fails: tensors use " in verdict
    assert "Memory from train.py:77 grows by 2.1 MB per step" in verdict
    assert "for optimizer state" in verdict and "train.py:77 with " in verdict


@pytest.mark.parametrize("steps", [1, 2])
def test_a_snapshot_of_the_first_step_says_what_later_ones_need(
    cli: Cli, tmp_path: Path, steps: int
) -> None:
    program = Training(Allocator())
    program.run([8 * MIB], [80 * MIB, 80 * MIB], steps=steps)
    path = write(tmp_path / "a.pickle", snapshot(program.allocator))
    assert cli("report", path, "--md", "-") == 0
    needed = used_at_most(program) + (16 * MIB if steps == 1 else 0)
    told = f"from the start: they need about {format_bytes(needed)}."
    assert (told in " ".join(cli.out.split())) == (steps == 1)
