"""Problems and candidates of other tools: FlashInfer-Trace in and out, KernelBench in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli

from perfpipe.pipelines.evaluate.device import pytorch
from perfpipe.pipelines.evaluate.worker import ForkServer

pytestmark = pytest.mark.usefixtures("needs_torch")

REFERENCE = """
import torch

def run(hidden, weight, eps):
    wide = hidden.to(torch.float32)
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (wide * scale * weight).to(hidden.dtype)
"""
DEFINITION: dict[str, Any] = {
    "name": "rmsnorm_h48",
    "op_type": "rmsnorm",
    "axes": {"batch": {"type": "var"}, "hidden_size": {"type": "const", "value": 48}},
    "inputs": {
        "hidden": {"shape": ["batch", "hidden_size"], "dtype": "bfloat16"},
        "weight": {"shape": ["hidden_size"], "dtype": "bfloat16"},
        "eps": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"output": {"shape": ["batch", "hidden_size"], "dtype": "bfloat16"}},
    "reference": REFERENCE,
}
INPUTS = {
    "hidden": {"type": "random"},
    "weight": {"type": "random"},
    "eps": {"type": "scalar", "value": 1e-6},
}
RETURNS = REFERENCE
WRITES = (
    REFERENCE.replace("def run(", "def computed(")
    + """
def run(hidden, weight, eps, output):
    output.copy_(computed(hidden, weight, eps))
"""
)


@pytest.fixture(scope="module")
def one_fork_server() -> Iterator[None]:
    """All judges fork candidates from one process: it loads PyTorch for longer than they judge."""
    with ForkServer.opened(pytorch(), "cpu") as opened, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ForkServer, "opened", lambda *_: nullcontext(opened))
        yield


def _solution(name: str, content: str, dps: bool, **changed: Any) -> dict[str, Any]:
    spec = {
        "language": "python",
        "target_hardware": ["CPU"],
        "entry_point": "src/main.py::run",
        "destination_passing_style": dps,
    }
    return {
        "name": name,
        "definition": "rmsnorm_h48",
        "author": "someone",
        "spec": {**spec, **changed},
        "sources": [{"path": "src/main.py", "content": content}],
    }


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    (tmp_path / "definition.json").write_text(json.dumps(DEFINITION))
    lines = [
        {
            "definition": "rmsnorm_h48",
            "solution": None,
            "evaluation": None,
            "workload": {"axes": {"batch": batch}, "inputs": INPUTS, "uuid": f"w{batch}"},
        }
        for batch in (3, 7)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "workloads.jsonl").write_text(text)
    solutions = {
        "returns": _solution("returns", RETURNS, False),
        "writes": _solution("writes", WRITES, True),
        "wrong": _solution("wrong", RETURNS.replace("+ eps", "+ 0.5"), False),
        "cheat": _solution("cheat", "import pipelines\n" + RETURNS, False),
        "cuda": _solution("cuda", "", True, language="cuda"),
    }
    for name, one in solutions.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(one))
    return tmp_path


@pytest.mark.usefixtures("one_fork_server")
def test_solutions_are_judged_and_leave_traces(cli: Cli, dataset: Path) -> None:
    names = ("returns", "writes", "wrong", "cheat")
    candidates = [word for name in names for word in ("--candidate", f"{dataset}/{name}.json")]
    code = cli(
        "evaluate", f"{dataset}/definition.json", "--workloads", f"{dataset}/workloads.jsonl",
        *candidates, "--device", "cpu", "--launches", "1", "--batches", "1", "--json",
        "--flashinfer", f"{dataset}/out", "--history", f"{dataset}/trials.jsonl",
    )  # fmt: skip
    assert code == 1
    results = json.loads(cli.out)["results"]
    assert [one["status"] for one in results] == [
        "correct", "correct", "wrong result", "cheating",
    ]  # fmt: skip
    assert [len(one["scores"]) for one in results] == [2, 2, 0, 0]
    assert {one["verdict"] for one in results[0]["scores"]} == {"unreplicated"}
    text = (dataset / "out/traces/rmsnorm_h48.jsonl").read_text()
    traces = [json.loads(line) for line in text.splitlines()]
    assert [(one["solution"], one["workload"]["uuid"]) for one in traces] == [
        (name, uuid) for name in names for uuid in ("w3", "w7")
    ]
    _valid(traces)
    verdicts = {one["solution"]: one["evaluation"]["status"] for one in traces}
    assert verdicts == {
        "returns": "PASSED",
        "writes": "PASSED",
        "wrong": "INCORRECT_NUMERICAL",
        "cheat": "RUNTIME_ERROR",
    }
    assert "cheating" in traces[-1]["evaluation"]["log"]
    assert cli("report", "--tuning", f"{dataset}/trials.jsonl", "--json") == 0
    statuses = {one["name"]: one["status"] for one in json.loads(cli.out)["candidates"]}
    assert [*statuses.values()] == ["correct", "correct", "wrong result", "cheating"]


def _valid(traces: list[dict[str, Any]]) -> None:
    """Check what the schema says of an evaluation: which parts stand with which status."""
    for one in traces:
        evaluation = one["evaluation"]
        passed = evaluation["status"] == "PASSED"
        assert (evaluation["performance"] is not None) == passed
        numerical = passed or evaluation["status"] == "INCORRECT_NUMERICAL"
        assert (evaluation["correctness"] is not None) == numerical
        assert evaluation["environment"]["hardware"]
        if passed:
            assert all(value > 0 for value in evaluation["performance"].values())


@pytest.mark.usefixtures("one_fork_server")
def test_what_is_written_is_read_again(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text("""
version: 1
name: doubled
command: [python, none.py]
evaluate:
  reference: doubled_reference.py
  inputs: {x: {shape: [n, 4]}}
  outputs: {y: {shape: [n, 4]}}
  correctness: [{n: 3}]
  timing: [{n: 5}]
  special: []
  seeds: 1
""")
    (tmp_path / "doubled_reference.py").write_text("def reference(x):\n    return 2 * x\n")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/kernel.py").write_text("def run(x, y):\n    y.copy_(x + x)\n")
    code = cli(
        "evaluate", f"{tmp_path}/w.yaml", "--candidate", f"{tmp_path}/mine", "--device", "cpu",
        "--no-timing", "--flashinfer", f"{tmp_path}/out",
    )  # fmt: skip
    assert code == 0
    assert (tmp_path / "out/traces/doubled.jsonl").read_text() == ""
    out = tmp_path / "out"
    code = cli(
        "evaluate", f"{out}/definitions/doubled.json", "--workloads",
        f"{out}/workloads/doubled.jsonl", "--candidate", f"{out}/solutions/doubled/mine.json",
        "--device", "cpu", "--no-timing", "--json",
    )  # fmt: skip
    (result,) = json.loads(cli.out)["results"]
    assert (result["status"], result["workload"]) == ("correct", "doubled")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"candidate": "cuda.json"}, "needs a build"),
        ({"workloads": None}, "batch"),
        ({"inputs": {"eps": {"type": "safetensors"}}}, "tensor file"),
        ({"dtype": "float8_e4m3"}, "float8_e4m3"),
        ({"reference": "x = 1"}, "function 'run'"),
        ({"reference": None}, "reference"),
    ],
    ids=["build", "no workloads", "tensors of a file", "type", "no run", "no reference"],
)
def test_what_cannot_be_judged_is_told(
    cli: Cli, dataset: Path, changed: dict[str, Any], says: str
) -> None:
    made = json.loads(json.dumps(DEFINITION))
    if "reference" in changed:
        made["reference"] = changed["reference"]
        if made["reference"] is None:
            del made["reference"]
    if "dtype" in changed:
        made["inputs"]["hidden"]["dtype"] = changed["dtype"]
    (dataset / "definition.json").write_text(json.dumps(made))
    if "inputs" in changed:
        line = {"axes": {"batch": 2}, "inputs": {**INPUTS, **changed["inputs"]}, "uuid": "w"}
        (dataset / "workloads.jsonl").write_text(json.dumps({"workload": line}) + "\n")
    words = ["evaluate", f"{dataset}/definition.json", "--device", "cpu"]
    words += ["--candidate", f"{dataset}/{changed.get('candidate', 'writes.json')}"]
    if "workloads" not in changed:
        words += ["--workloads", f"{dataset}/workloads.jsonl"]
    code = cli(*words)
    assert code == 2
    assert says in cli.err
    assert "Traceback" not in cli.err


KERNELBENCH = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, size, scale):
        super().__init__()
        self.linear = nn.Linear(size, 8)
        self.scale = scale
    def forward(self, x):
        return torch.relu(self.linear(x)) * self.scale

def get_inputs():
    return [torch.randn(16, 32)]

def get_init_inputs():
    return [32, 2.0]
"""


@pytest.mark.usefixtures("one_fork_server")
def test_problems_of_kernelbench(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(KERNELBENCH)
    sources = {
        "same": KERNELBENCH.replace("class Model(", "class ModelNew("),
        "wrong": KERNELBENCH.replace("class Model(", "class ModelNew(").replace("relu", "abs"),
        "alias": KERNELBENCH.replace("class Model(", "class ModelNew(").replace(
            "return torch.relu(self.linear(x)) * self.scale", "return x[:, :8]"
        ),
    }
    words = ["evaluate", f"{tmp_path}/problem.py", "--device", "cpu", "--json"]
    words += ["--launches", "1", "--batches", "1"]
    for name, source in sources.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "kernel.py").write_text(source)
        words += ["--candidate", f"{tmp_path}/{name}"]
    words += ["--candidate", f"{tmp_path}/same/kernel.py"]
    assert cli(*words) == 1
    results = json.loads(cli.out)["results"]
    statuses = ["correct", "wrong result", "cheating", "correct"]
    assert [one["status"] for one in results] == statuses
    assert results[0]["scores"][0]["against"] == "reference"
    assert results[2]["evidence"][0]["kind"] == "output aliases input"


def test_a_module_that_is_no_problem_is_told(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("def get_inputs():\n    return []\n")
    (tmp_path / "mine").mkdir()
    code = cli("evaluate", f"{tmp_path}/other.py", "--candidate", f"{tmp_path}/mine")
    assert code == 2
    assert "it does not define Model, get_init_inputs" in cli.err
