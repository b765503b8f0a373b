"""The benchmark of servers: classes of batches, how they are matched, and its workload file."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
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


@pytest.mark.parametrize("fault", ["none", "limit"])
def test_its_workload_file_is_valid(bench: Any, fault: str, tmp_path: Path) -> None:
    model = {"weights_gb": 2.0, "flops_per_token": 2e9, "kv_bytes_per_token": 64, "dtype": "bf16"}
    read = load_workload(bench.workload(tmp_path, [2.0, 6.0], "14s", fault, model))
    assert read.serve is not None
    assert read.serve.model is not None and read.serve.model.weights_gb == 2
    assert fault in read.command
