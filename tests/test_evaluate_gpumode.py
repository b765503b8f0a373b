"""Problems of GPU MODE: task.yml, reference.py and their own check."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.pipelines.evaluate.device import pytorch
from perfpipe.pipelines.evaluate.drawing import Buffers, on_cpu
from perfpipe.pipelines.evaluate.structure import data_of, parts_of, tree_of, wrapper
from perfpipe.pipelines.evaluate.worker import ForkServer

pytestmark = pytest.mark.usefixtures("needs_torch")

TASK = """
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "task.py", "source": "task.py"}
  - {"name": "utils.py", "source": "../utils.py"}
  - {"name": "reference.py", "source": "reference.py"}
  - {"name": "eval.py", "source": "../eval.py"}
lang: "py"
description: |
  Scale and add, and count what is positive.
config:
  main: "eval.py"
templates:
  Python: "../template.py"
tests:
  - {"size": 5, "seed": 4242, "mode": "plain"}
  - {"size": 8, "seed": 5236, "mode": "twice"}
benchmarks:
  - {"size": 512, "seed": 31232, "mode": "plain"}
test_timeout: 60
"""
UTILS = """
import os
import torch

class DeterministicContext:
    def __enter__(self):
        self.held = os.environ.get("CUBLAS_WORKSPACE_CONFIG", "")
    def __exit__(self, *_):
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = self.held

def make_match_reference(reference, rtol=1e-5, atol=1e-8):
    def wrapped(data, output):
        for found, exact in zip(output, reference(data), strict=True):
            if found.shape != exact.shape or not torch.allclose(found, exact, rtol, atol):
                return False, "mismatch found! custom implementation doesn't match reference"
        return True, ""
    return wrapped
"""
REFERENCE = """
from utils import make_match_reference, DeterministicContext
import torch
from task import input_t, output_t

def ref_kernel(data: input_t) -> output_t:
    with DeterministicContext():
        a, parts, output, count = data
        b = torch.stack(parts["b"]).sum(0)
        found = a * parts["factor"] + b
        output[...] = found * 2 if parts["mode"] == "twice" else found
        return output, (a > 0).sum()

def generate_input(size: int, mode: str, seed: int) -> input_t:
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    a = torch.empty(size, size, device="cuda").normal_(generator=gen)
    b = [torch.randn(size, size, device="cuda", generator=gen).contiguous() for _ in range(2)]
    output = torch.empty(size, size, device="cuda", dtype=torch.float32).contiguous()
    count = torch.empty(1, device="cuda", dtype=torch.int64)
    return a, {"b": b, "factor": 3, "mode": mode, "none": None}, output, count

check_implementation = make_match_reference(ref_kernel, rtol=1e-4, atol=1e-4)
"""
RIGHT = """
from task import input_t, output_t
from utils import DeterministicContext

def custom_kernel(data: input_t) -> output_t:
    a, parts, output, count = data
    b, other = parts["b"]
    output.copy_(a * parts["factor"] + b + other)
    if parts["mode"] == "twice":
        output.mul_(2)
    count.fill_(7)
    return output, (a > 0).sum()
"""
SOURCES = {
    "right": RIGHT,
    "returns": RIGHT.replace("return output,", "return output.clone(),"),
    "wrong": RIGHT.replace("+ b +", "- b +"),
    "shape": RIGHT.replace("return output,", "return output[0],"),
    "one": RIGHT.replace("return output, (a > 0).sum()", "return output"),
    "asks": "from reference import ref_kernel as custom_kernel\n",
    "socket": "import socket\n" + RIGHT,
}


@pytest.fixture(scope="module")
def one_fork_server() -> Iterator[None]:
    """All judges fork candidates from one process: it loads PyTorch for longer than they judge."""
    with ForkServer.opened(pytorch(), "cpu") as opened, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ForkServer, "opened", lambda *_: nullcontext(opened))
        yield


@pytest.fixture
def task(tmp_path: Path) -> Path:
    folder = tmp_path / "problems" / "scaled_py"
    folder.mkdir(parents=True)
    (folder / "task.yml").write_text(TASK)
    (folder / "reference.py").write_text(REFERENCE)
    (folder / "task.py").write_text("from typing import Any\ninput_t = output_t = Any\n")
    (folder.parent / "utils.py").write_text(UTILS)
    (folder.parent / "eval.py").write_text("raise SystemExit\n")
    for name, source in SOURCES.items():
        (tmp_path / f"{name}.py").write_text(source)
    return folder / "task.yml"


@pytest.mark.usefixtures("one_fork_server")
def test_submissions_are_judged_by_the_authors_check(cli: Cli, task: Path, tmp_path: Path) -> None:
    words = ["evaluate", f"{task}", "--device", "cpu", "--json", "--launches", "1"]
    for name in SOURCES:
        words += ["--batches", "1", "--candidate", f"{tmp_path}/{name}.py"]
    assert cli(*words) == 1
    made = {one["candidate"]: one for one in json.loads(cli.out)["results"]}
    assert {one["workload"] for one in made.values()} == {"scaled_py"}
    assert {name: one["status"] for name, one in made.items()} == {
        "right": "correct", "returns": "correct", "wrong": "wrong result", "shape": "crash",
        "one": "crash", "asks": "cheating", "socket": "refused",
    }  # fmt: skip
    (score,) = made["right"]["scores"]
    assert (score["against"], score["case"]) == ("reference", "float32 size=512 mode=plain")
    assert made["wrong"]["reason"].startswith("mismatch found!")
    assert "returned 1 results instead of 2" in made["one"]["reason"]


@pytest.mark.usefixtures("one_fork_server")
def test_a_folder_is_a_candidate_and_needs_a_submission(
    cli: Cli, task: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    words = ("evaluate", f"{task}", "--device", "cpu", "--no-timing", "--json", "--candidate")
    assert cli(*words, f"{tmp_path}/mine") == 2
    assert "expected a file, or submission.py in it" in cli.err
    (tmp_path / "mine/helper.py").write_text(RIGHT)
    (tmp_path / "mine/submission.py").write_text("from helper import custom_kernel\n")
    assert cli(*words, f"{tmp_path}/mine") == 0


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('lang: "py"', 'lang: "cu"', "only py is supported, not cu"),
        ('lang: "py"', 'lang: "py"\nmulti_gpu: true', "several GPUs"),
        ("../utils.py", "../lost.py", "cannot read ../lost.py"),
        ("return output, (a", "raise OSError, (a", "reference.py"),
        ("check_implementation =", "checked =", "does not define check_implementation"),
        ('"none": None', '"none": object()', "returns a object: only tensors"),
        ("torch.int64", "torch.complex64", "type complex64 is not supported"),
    ],
    ids=["language", "GPUs", "file", "syntax", "check", "part", "type"],
)
def test_what_cannot_be_judged_is_one_sentence(
    cli: Cli, task: Path, tmp_path: Path, old: str, new: str, says: str
) -> None:
    for path in (task, task.parent / "reference.py"):
        path.write_text(path.read_text().replace(old, new))
    words = ("evaluate", f"{task}", "--candidate", f"{tmp_path}/right.py", "--device", "cpu")
    assert cli(*words) == 2
    assert says in cli.err
    assert len(cli.err.strip().splitlines()) == 1


data = st.recursive(
    st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2), inner | st.none(), max_size=3)
    ),
    max_leaves=8,
)


@given(data, st.data())
def test_data_are_taken_apart_and_put_together(found: Any, draw: Any) -> None:
    parts = parts_of(found)
    kinds = [draw.draw(st.sampled_from(["input", "output"])) for _ in parts]
    lists: dict[str, list[Any]] = {"input": [], "output": []}
    places = []
    for kind, part in zip(kinds, parts, strict=True):
        places.append((kind, len(lists[kind])))
        lists[kind].append(part)
    tree = tree_of(found, places)
    assert data_of(tree, lists["input"], lists["output"]) == found
    space: dict[str, Any] = {}
    text = wrapper(tree, len(lists["input"]), 1).replace("from submission", "#")
    exec(text, space)
    assert space["data_of"](space["TREE"], lists["input"], lists["output"]) == found


def test_buffers_are_what_is_made_empty_and_left_empty() -> None:
    torch = pytorch()
    buffers = Buffers(torch)
    with buffers.watched(), on_cpu(torch):
        left = torch.empty(3, device="cuda").contiguous()
        alike = torch.empty_like(left)
        filled = torch.empty(3, device="cuda").uniform_(
            generator=torch.Generator(device="cuda").manual_seed(1)
        )
        set_ = torch.empty(3, 2)
        set_[1, :] = 4
        out = torch.empty(3)
        torch.add(filled, filled, out=out)
        drawn = torch.randn(3, device=torch.device("cuda")).cuda()
    assert [one in buffers for one in (left, alike, filled, set_, out, drawn)] == [
        True, True, False, False, False, False,
    ]  # fmt: skip
    assert {one.device.type for one in (left, alike, filled, drawn)} == {"cpu"}
