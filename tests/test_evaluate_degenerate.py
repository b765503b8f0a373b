"""Problems that an answer passes which computes nothing are refused; weak ones have a warning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfpipe.pipelines.evaluate.block import Evaluate
from perfpipe.pipelines.evaluate.degenerate import Flaws, flaws
from perfpipe.pipelines.evaluate.device import pytorch
from perfpipe.pipelines.evaluate.load import loaded
from perfpipe.pipelines.evaluate.problem import Problem


@pytest.fixture(scope="module")
def torch(needs_torch: None) -> Any:
    return pytorch()


def _flaws(torch: Any, folder: Path, body: str, **changed: Any) -> Flaws:
    """Return the flaws of a problem with an input x of shape m, n and an output y."""
    scope = {"torch": torch}
    exec(f"def reference(x):\n    return {body}", scope)
    block = {
        "reference": "r.py",
        "inputs": {"x": {"shape": ["m", "n"]}},
        "outputs": {"y": {"shape": ["m", "n"]}},
        "dtypes": ["float32", "float16"],
        "reduction": "n",
        "correctness": [{"m": 1, "n": 1}, {"m": 5, "n": 33}],
        "timing": [{"m": 16, "n": 256}],
        **changed,
    }
    path = folder / "r.py"
    path.write_text(body)
    problem = Problem("p", Evaluate.model_validate(block), scope["reference"], path)
    return flaws(torch, problem, "cpu", timed=True)


ROW: dict[str, Any] = {"outputs": {"y": {"shape": ["m"]}}}

ORDINARY: dict[str, tuple[str, dict[str, Any]]] = {
    "softmax": ("x.softmax(1)", {}),
    "twice": ("2 * x", {}),
    "relu": ("x.relu()", {}),
    "sum": ("x.sum(1)", ROW),
    "largest": ("x.amax(1)", ROW),
    "product": ("x @ x.T", {"outputs": {"y": {"shape": ["m", "m"]}}}),
    "normed": ("(x - x.mean(1, True)) / (x.var(1, correction=0, keepdim=True) + 1e-5).sqrt()", {}),
    "cumulative": ("x.cumsum(0)", {}),
    "position": ("x.argmax(1)", {"outputs": {"y": {"shape": ["m"], "dtype": "int64"}}}),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_problem_has_no_flaw(torch: Any, tmp_path: Path, name: str) -> None:
    body, changed = ORDINARY[name]
    assert _flaws(torch, tmp_path, body, **changed) == Flaws()


DEGENERATE: dict[str, tuple[str, dict[str, Any], str]] = {
    "nothing": ("x - x", {}, "an output of zeros passes every case"),
    "ones": ("x / x", {}, "a constant output passes every case"),
    "mean of centred rows": ("(x - x.mean(1, True)).mean(1)", ROW, "an output of zeros passes"),
    "columns": ("torch.arange(x.shape[1]).expand(x.shape) * 1.0 + 0 * x", {}, "the result of other"),
    "almost a constant": (
        "(x * x).mean(1)",
        {**ROW, "tolerance": {name: {"atol": 0.5, "rtol": 0.5} for name in ("float32", "float16")}},
        "a constant output passes the timed case float32 m=16 n=256",
    ),
    "constant for the timed size": ("x * (x.shape[0] < 16)", {}, "an output of zeros passes the timed case"),
}  # fmt: skip


@pytest.mark.parametrize("name", DEGENERATE)
def test_what_a_blind_answer_passes_is_refused(torch: Any, tmp_path: Path, name: str) -> None:
    body, changed, says = DEGENERATE[name]
    found = _flaws(torch, tmp_path, body, **changed)
    assert found.refusal is not None
    assert says in found.refusal


WEAK: dict[str, tuple[str, dict[str, Any], str]] = {
    "copy": ("x", {}, "a copy of x passes every case"),
    "half of the columns": (
        "x[:, : -(-x.shape[1] // 2)].sum(1)", ROW, "leaving out half of x along dimension 1 passes",
    ),
    "rows alike": ("x.sum(0, True).expand(x.shape)", {}, "one half of the rows in place of"),
    "half of the rows": (
        "x[: -(-x.shape[0] // 2)].sum(0)", {"outputs": {"y": {"shape": ["n"]}}},
        "leaving out half of x along dimension 0 passes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WEAK)
def test_what_too_little_work_passes_is_warned_of(torch: Any, tmp_path: Path, name: str) -> None:
    body, changed, says = WEAK[name]
    found = _flaws(torch, tmp_path, body, **changed)
    assert found.refusal is None
    assert any(says in warning for warning in found.warnings), found


@given(st.integers(1, 40), st.integers(2, 40), st.integers(0, 3))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_problem_that_uses_part_of_a_row_is_weak_by_what_it_uses(
    torch: Any, tmp_path: Path, m: int, n: int, more: int
) -> None:
    used = min(n, n - n // 2 + more)
    sizes = {"correctness": [{"m": m, "n": n}], "timing": []}
    found = _flaws(torch, tmp_path, f"x[:, :{used}].sum(1)", **(ROW | sizes))
    assert found.refusal is None
    unused = any("half of x along dimension 1" in one for one in found.warnings)
    assert unused == (used == n - n // 2)


#: Of the kind of KernelBench's level 2: 80 (its output is always zero) and 23 (its output is the
#: mean of what was normalized).
BENCH = {
    "gemm_max_subtract_gelu": """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self, in_features, out_features, max_dim):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.max_dim = max_dim
    def forward(self, x):
        x = self.gemm(x)
        x = torch.max(x, dim=self.max_dim, keepdim=True).values
        x = x - x.mean(dim=1, keepdim=True)
        return torch.nn.functional.gelu(x)
def get_inputs():
    return [torch.randn(16, 64)]
def get_init_inputs():
    return [64, 32, 1]
""",
    "conv3d_groupnorm_mean": """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, num_groups):
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size)
        self.group_norm = nn.GroupNorm(num_groups, out_channels)
    def forward(self, x):
        x = self.group_norm(self.conv(x))
        return x.mean(dim=[1, 2, 3, 4])
def get_inputs():
    return [torch.randn(4, 3, 6, 8, 8)]
def get_init_inputs():
    return [3, 8, 3, 4]
""",
}


@pytest.mark.parametrize("name", BENCH)
def test_a_degenerate_problem_judges_nobody(
    cli: Cli, needs_torch: None, tmp_path: Path, name: str
) -> None:
    problem = tmp_path / f"{name}.py"
    problem.write_text(BENCH[name])
    own = loaded(pytorch(), problem, "cpu", tmp_path / "files")
    found = flaws(pytorch(), own.problem, "cpu", timed=True)
    assert found.refusal is not None
    assert "an output of zeros passes every case" in found.refusal
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "kernel.py").write_text(f"{BENCH[name]}\nModelNew = Model\n")
    words = [f"--candidate={tmp_path}/own", "--device=cpu", "--json"]
    assert cli("evaluate", problem, *words) == 1
    (made,) = json.loads(cli.out)["results"]
    assert (made["status"], made["scores"]) == ("refused", [])
    assert made["evidence"][0]["kind"] == "degenerate problem"
    assert "zeros" in made["reason"]
