"""Problems as data and as text: what an agent reads before it writes a kernel."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from perfpipe.pipelines.evaluate.describing import problem_data, problem_text
from perfpipe.pipelines.evaluate.device import pytorch
from perfpipe.pipelines.evaluate.judge import Judge, Options
from perfpipe.pipelines.evaluate.load import Loaded, loaded
from perfpipe.pipelines.evaluate.result import Status
from perfpipe.searchrecord import Times, baseline_medians

pytestmark = pytest.mark.usefixtures("needs_torch")

WORKLOAD = """
version: 1
name: normalised
command: [python, none.py]
work: {{bytes: "2*m*n*dtype_bytes", flops: "3*m*n"}}
evaluate:
  reference: reference.py
  inputs: {{x: {{shape: [m, n]}}, pick: {{shape: [m], values: integers, high: n, dtype: int64}},
           scale: {{scalar: 3}}}}
  outputs: {{y: {{shape: [m, n]}}, chosen: {{shape: [m]}}}}
  dtypes: [float32, float16]
  reduction: n
  correctness: [{{m: 3, n: 5}}]
  timing: [{{m: 16, n: 64}}]
  special: [noncontiguous]
  baselines: {{plain: plain}}
  {more}
"""

REFERENCE = """
import torch

def reference(x, pick, scale):
    y = torch.softmax(x * scale, dim=1)
    return y, y.gather(1, pick[:, None])[:, 0]
"""


def _described(folder: Path, more: str = "") -> tuple[Loaded, dict[str, Any]]:
    (folder / "w.yaml").write_text(WORKLOAD.format(more=more))
    (folder / "reference.py").write_text(REFERENCE)
    own = loaded(pytorch(), folder / "w.yaml", "cpu", folder)
    case = "float32 m=16 n=64"
    data = problem_data(pytorch(), own, "cpu", times={("plain", case): 0.25})
    assert json.loads(json.dumps(data, allow_nan=False))
    return own, data


def _judged(own: Loaded, source: str, folder: Path) -> Status:
    at = folder / "candidate"
    at.mkdir()
    (at / "kernel.py").write_text(source)
    with Judge.opened(own.problem, own.work, Options("cpu", 3, timed=False)) as judge:
        return judge.judge(at, {}).status


def test_the_skeleton_of_a_shown_reference_is_right(tmp_path: Path) -> None:
    own, data = _described(tmp_path)
    assert data["signature"] == "run(x, pick, scale, y, chosen)"
    text = problem_text(data)
    assert REFERENCE.strip() in text and data["skeleton"].rstrip() in text
    assert "(x.double(), pick, scale)" in data["skeleton"]
    assert _judged(own, data["skeleton"], tmp_path) == Status.CORRECT


def test_a_hidden_reference_is_nowhere(tmp_path: Path) -> None:
    own, data = _described(tmp_path, "show_reference: false")
    assert data["reference"] is None
    assert "softmax" not in json.dumps(data) + problem_text(data)
    assert _judged(own, data["skeleton"], tmp_path) == Status.WRONG


def test_a_skeleton_does_not_call_what_is_forbidden(tmp_path: Path) -> None:
    _, data = _described(tmp_path, 'forbidden: ["aten::_softmax"]')
    assert "reference" not in data["skeleton"]
    assert "must not call: aten::_softmax" in problem_text(data)


def test_cases_have_shapes_tolerances_and_known_times(tmp_path: Path) -> None:
    _, data = _described(tmp_path)
    (timed,) = data["timed"]
    assert timed["tensors"]["x"] == {"dtype": "float32", "shape": [16, 64], "strides": [64, 1]}
    assert "scale" not in timed["tensors"]
    assert timed["tensors"]["pick"]["dtype"] == "int64"
    assert timed["bytes"] == 2 * 16 * 64 * 4 and timed["flops"] == 3 * 16 * 64
    assert timed["attainable_ms"] is None and "GPUs only" in timed["attainable_why"]
    # Eight standard errors of a sum of 64 terms.
    assert timed["tolerance"]["y"]["scaled"] == pytest.approx(8 * 2**-23 * math.sqrt(64))
    assert [one["case"] for one in data["checked"]] == ["float32 m=3 n=5", "float16 m=3 n=5"]
    assert data["baselines"] == [{"name": "plain", "times_ms": {"float32 m=16 n=64": 0.25}}]
    assert "| 0.25 ms |" in problem_text(data)


def test_the_latest_times_of_baselines_count() -> None:
    first, last = (Times("c", "a", (), own) for own in ((9.0,), (1.0, 2.0, 4.0)))
    assert baseline_medians([first, last]) == {("a", "c"): 2.0}
