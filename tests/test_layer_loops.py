"""Layers that choose experts and read them back are no tokens: the stacks of Python tell them apart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perfpipe.analysis.session import Session
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store

Event = dict[str, Any]
AT = "void at::native::"
#: Kernels of a layer with experts, and of a token: each chooses the largest values.
KERNELS = (
    "ampere_sgemm_128x64_tn", AT + "(anonymous namespace)::softmax_warp_forward<float>(int)",
    "ampere_sgemm_64x64_tn", AT + "sbtopk::gatherTopK<float, unsigned int, 2>(int)",
)  # fmt: skip
ITERATIONS, LENGTH = 12, 2000.0


def _event(category: str, name: str, ts: float, dur: float, **args: Any) -> Event:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur,
            "args": args}  # fmt: skip


def _launches(begin: float, first: int) -> Iterator[Event]:
    """Yield the launches of an iteration, and a copy to the host, which waits for them."""
    at = {"device": 0, "stream": 7}
    for place, kernel in enumerate(KERNELS):
        ts, number = begin + 100 + 20 * place, first + place
        yield _event("cuda_runtime", "cudaLaunchKernel", ts, 5, correlation=number)
        yield _event("kernel", kernel, ts + 200 * (place + 1), 190, correlation=number, **at)
    number, end = first + len(KERNELS), begin + 1200
    yield _event("cuda_runtime", "cudaMemcpyAsync", begin + 200, 10, correlation=number)
    copy = "Memcpy DtoH (Device -> Pageable)"
    yield _event("gpu_memcpy", copy, end, 2, correlation=number, bytes=8, **at)
    yield _event("cuda_runtime", "cudaStreamSynchronize", begin + 215, 1000, correlation=number + 1)


def _layers() -> Iterator[Event]:
    """Yield one pass of a network whose layers have experts."""
    yield _event("python_function", "nn.Module: Net_0", 0, ITERATIONS * LENGTH)
    for layer in range(ITERATIONS):
        begin = layer * LENGTH
        yield _event("python_function", f"nn.Module: Block_{layer}", begin + 50, LENGTH - 100)
        yield from _launches(begin, 10 * layer)


def _pieces() -> Iterator[Event]:
    """Yield one pass whose layers are compiled: only a pause of the host tells them apart."""
    yield _event("python_function", "nn.Module: Net_0", 0, ITERATIONS * LENGTH)
    for layer in range(ITERATIONS):
        yield _event("python_function", "piece.py(1): run", layer * LENGTH + 50, LENGTH - 100)
        for event in _launches(layer * LENGTH, 10 * layer):
            if event["args"]["correlation"] % 10 < len(KERNELS) - 1:
                yield event


def _tokens() -> Iterator[Event]:
    """Yield a network of one layer that is called for each token."""
    for token in range(ITERATIONS):
        begin = token * LENGTH
        yield _event("python_function", "nn.Module: Net_0", begin + 20, LENGTH - 40)
        yield _event("python_function", "nn.Module: Block_0", begin + 50, LENGTH - 100)
        yield from _launches(begin, 10 * token)


@pytest.mark.parametrize(
    ("events", "expected", "steps"),
    [
        (_layers, ("layer", "repeat", "each iteration calls a module of its own: Block"), False),
        (_pieces, ("layer", "repeat", "the iterations are parts of one call of Net_0"), False),
        (_tokens, ("step", "token", "outermost loop with most of the GPU time after start-up"), True),
    ],
    ids=["layers", "pieces", "tokens"],
)  # fmt: skip
def test_layers_are_not_tokens(
    events: Any, expected: tuple[str, str, str], steps: bool, tmp_path: Path
) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": list(events())}))
    store = Store(tmp_path / "store")
    made = ingest(path, store)
    with Session.open(store, [made.report_id]) as con:
        sql = "SELECT role, unit, why FROM loops WHERE parent IS NULL"
        assert con.execute(sql).fetchall() == [expected]
        sql = "SELECT count(*) > 0 FROM steps WHERE step IS NOT NULL"
        assert con.execute(sql).fetchall() == [(steps,)]
