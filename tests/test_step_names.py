"""Steps by ranges whose names say nothing but a number, or nothing at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Tiny
from engine import Engine, Iteration, numbered, plant, plant_in_export

from perfpipe.analysis.session import Session
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store

MARKED = "SELECT count(*) FROM steps WHERE step IS NOT NULL AND source = 'NVTX'"
KERNELS = ("norm", "gemm", "attention", "proj", "up", "down")


def _passes(
    names: list[str], *, copies: bool = False, layers: int = 1, pause: int = 2_000, head: int = 1
) -> Tiny:
    """Return ranges that launch the kernels of `layers` layers, and perhaps a copy to the host.

    Before them, `head` kernels are launched outside of all ranges.
    """
    db, at, number = Tiny(), 1_000_000, 0

    def launch(name: str) -> None:
        nonlocal at, number
        db.add("launches", {
            "kind": "memcpy" if name.startswith("[") else "kernel", "name": name, "pid": 1, "tid": 1,
            "device": 0, "stream": 7, "call_id": number, "op_id": number, "correlation_id": number,
            "api_name": "cudaLaunchKernel", "api_start_ns": at, "api_end_ns": at + 500,
            "start_ns": at + 600, "end_ns": at + 9_600,
        })  # fmt: skip
        at, number = at + 10_000, number + 1

    for _ in range(head):
        launch("embed")
    for index, name in enumerate(names):
        start, first = at, number
        for kernel in KERNELS * layers:
            launch(kernel)
        if copies:
            launch("[CUDA memcpy Device-to-Host]")
        db.add("nsys_nvtx_ranges", {
            "pid": 1, "tid": 1, "range_id": index, "name": name, "style": "PushPop", "start_ns": start,
            "end_ns": at, "first_call": first, "calls": number - first,
        })  # fmt: skip
        at += pause
    return db


def _marked(db: Tiny) -> int:
    """Return how many ranges are steps."""
    ((count,),) = db.rows(MARKED)
    return int(count)


@pytest.mark.parametrize("form", ["i{}", "unit {}", "{}", "[gpu 0] pass {}", "work#{}(32)"])
@pytest.mark.parametrize("pause", [2_000, 2_000_000], ids=["saturated", "waiting"])
def test_a_rising_number_is_that_of_an_iteration(form: str, pause: int) -> None:
    names = [form.format(900 + 3 * n) for n in range(20)]
    assert _marked(_passes(names, copies=True, pause=pause)) == 20


@pytest.mark.parametrize("pause", [2_000, 2_000_000], ids=["saturated", "waiting"])
def test_ranges_with_all_of_the_work_may_be_far_apart(pause: int) -> None:
    assert _marked(_passes(["tick"] * 20, pause=pause)) == 20
    # With as much work between them, they are parts.
    assert _marked(_passes(["tick", "tock"] * 10, pause=pause)) == 0


@pytest.mark.parametrize(
    "names",
    [
        [f"i{n}" for n in range(24)],
        [f"i{n}" for _ in range(2) for n in range(12)],
        [f"i{n % 5} of {n % 3}" for n in range(24)],
    ],
    ids=["one pass", "two passes", "other numbers"],
)
def test_numbers_of_layers_are_none_of_iterations(names: list[str]) -> None:
    assert _marked(_passes(names)) == 0


@pytest.mark.parametrize("name", ["layer {}", "Block{}", "epoch_{}", "micro-batch {}", "layer"])
def test_words_for_parts_and_groups_of_steps(name: str) -> None:
    names = [name.format(n) for n in range(24)]
    assert _marked(_passes(names, copies=True)) == 0


def _same(own: Iteration, number: int) -> str:
    return "tick"


def _opaque(own: Iteration, number: int) -> str:
    return f"i{number}"


@pytest.mark.parametrize("rate", [2.0, 80.0])
@pytest.mark.parametrize("name", [_same, _opaque])
def test_the_rate_of_requests_does_not_decide(
    edited: Callable[..., Path], tmp_path: Path, rate: float, name: Callable[[Iteration, int], str]
) -> None:
    """An engine that decodes with CUDA graphs: loops of launches are prefills with the decodes after them."""
    engine = Engine(1, requests=16, rate=rate, graphs=True, kernels=36)
    path = edited("eager_small")
    plant_in_export(engine, path, name)
    made = ingest(path, Store(tmp_path / "store"))
    with Session.open(Store(tmp_path / "store"), [made.report_id]) as con:
        assert con.execute(MARKED).fetchall() == [(len(engine.iterations),)]


@pytest.mark.parametrize("rate", [2.0, 80.0])
def test_long_prefills_are_iterations_of_a_server_under_load(rate: float) -> None:
    """Names that do not say prefill or decode exclude none of them either."""
    engine = Engine(1, requests=16, rate=rate, prompts=(4_000, 8_000))
    rows = plant(engine, numbered).rows("SELECT source, left_out FROM analysis_windows")
    assert rows == [("NVTX", 0)]
