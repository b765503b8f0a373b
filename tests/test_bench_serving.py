"""The benchmark of servers: classes of batches, how they are matched, and its workload file."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from engine import ORIGIN, Engine, stored, words
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.pipelines.workload import load_workload

KIND = st.sampled_from(["prefill", "decode", "mixed"])


@pytest.fixture(scope="module")
def bench() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        return importlib.import_module("bench_serving")


@given(st.dictionaries(st.integers(0, 40), KIND), st.dictionaries(st.integers(0, 40), KIND))
def test_iterations_belong_to_the_batch_that_was_launched_last(
    bench: Any, batches: dict[int, str], iterations: dict[int, str]
) -> None:
    expected: Counter[tuple[str, str]] = Counter()
    left = dict(batches)
    for at in sorted(iterations):
        last = max((one for one in batches if one <= at), default=None)
        expected[iterations[at], "none" if last is None else left.pop(last, "none")] += 1
    expected.update(("none", kind) for kind in left.values())
    assert bench.matched(sorted(batches.items()), sorted(iterations.items())) == expected


@pytest.mark.parametrize(
    ("tokens", "kind"),
    [([1], "decode"), ([1, 1], "decode"), ([9], "prefill"), ([9, 2], "prefill"), ([1, 9], "mixed")],
)
def test_the_class_of_a_batch_comes_from_its_tokens(
    bench: Any, tokens: list[int], kind: str
) -> None:
    assert bench.class_of(tokens) == kind


def test_classes_are_compared_with_the_log(
    bench: Any, edited: Callable[..., Path], tmp_path: Path
) -> None:
    engine = Engine(1, requests=12)
    store = stored(engine, edited("eager_small"), words, {})
    log = [
        {
            "began_ns": ORIGIN + one.host_start,
            "tokens": [9] * len(one.prefills) + [1] * len(one.decodes),
        }
        for one in engine.iterations
    ]
    (tmp_path / "batches.jsonl").write_text("\n".join(map(json.dumps, log)))
    count = len(engine.iterations)
    said = "\n".join(bench.classes(store, tmp_path))
    assert f"At 20/s, {count} of {count} are right:" in said
    decodes = sum(one.kind == "decode" for one in engine.iterations)
    assert f"| decode | 0 | {decodes} | 0 | 0 |" in said
    assert bench.findings(store)


@pytest.mark.parametrize("fault", ["none", "limit"])
def test_its_workload_file_is_valid(bench: Any, fault: str, tmp_path: Path) -> None:
    model = {"weights_gb": 2.0, "flops_per_token": 2e9, "kv_bytes_per_token": 64, "dtype": "bf16"}
    read = load_workload(bench.workload(tmp_path, [2.0, 6.0], "14s", fault, model))
    assert read.serve is not None
    assert read.serve.model is not None and read.serve.model.weights_gb == 2
    assert fault in read.command
