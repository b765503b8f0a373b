"""Larger micro-batches with fewer accumulation steps leave the steps as they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from leverprograms import Programs

from perfpipe.analysis.trying.launched import OUTPUT, Results
from perfpipe.analysis.trying.results import Kind, compare
from perfpipe.pipelines.trying.levers import levers

Series = dict[tuple[str, str], dict[int, tuple[float, ...]]]

#: Stand-ins of the libraries, with what the lever intercepts of them: the test machine has none.
LIBRARIES = {
    "transformers/training_args.py": """
from dataclasses import dataclass
@dataclass
class TrainingArguments:
    per_device_train_batch_size: int = 8
    gradient_accumulation_steps: int = 1
    def __post_init__(self):
        self.derived = self.per_device_train_batch_size * self.gradient_accumulation_steps
""",
    "accelerate/accelerator.py": """
class Accelerator:
    def __init__(self, gradient_accumulation_steps=1):
        self.gradient_accumulation_steps = gradient_accumulation_steps
    def prepare(self, *args):
        return args
""",
    "pytorch_lightning/trainer/connectors/data_connector.py": """
class _DataConnector:
    def __init__(self, trainer):
        self.trainer = trainer
    def _prepare_dataloader(self, dataloader, shuffle, mode):
        return dataloader
""",
}

TRAINING = """
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
x, y = torch.randn(64, 4), torch.randn(64, 1)
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), 0.05)
train, test = DataLoader(TensorDataset(x, y), 4, shuffle=True), DataLoader(TensorDataset(x, y), 4)
def run(train, steps):
    passes = 0
    for _ in range(2):
        for at, (a, b) in enumerate(train):
            (((net(a) - b) ** 2).mean() / steps()).backward()
            passes += 1
            if (at + 1) % steps() == 0:
                optimizer.step()
                optimizer.zero_grad()
    print(passes, len(test), round(float(sum(p.sum() for p in net.parameters())), 5))
"""

ACCELERATE = f"""
from accelerate.accelerator import Accelerator
{TRAINING}
own = Accelerator(STEPS)
train, test = own.prepare(train, test)
own.prepare(train)
run(train, lambda: own.gradient_accumulation_steps)
"""

LIGHTNING = f"""
from pytorch_lightning.trainer.connectors.data_connector import _DataConnector
import enum
{TRAINING}
class Mode(enum.Enum):
    TRAINING, VALIDATING = "train", "validate"
class Trainer:
    accumulate_grad_batches = STEPS
connector = _DataConnector(Trainer())
for _ in range(2):
    train = connector._prepare_dataloader(train, shuffle=True, mode=Mode.TRAINING)
test = connector._prepare_dataloader(test, shuffle=False, mode=Mode.VALIDATING)
run(train, lambda: connector.trainer.accumulate_grad_batches)
"""

TRANSFORMERS = f"""
from dataclasses import replace
from transformers.training_args import TrainingArguments
{TRAINING}
own = replace(TrainingArguments(4, STEPS))
assert own.derived == 4 * STEPS
train = DataLoader(train.dataset, own.per_device_train_batch_size, shuffle=True)
run(train, lambda: own.gradient_accumulation_steps)
"""

PROGRAMS = {"accelerate": ACCELERATE, "Lightning": LIGHTNING, "transformers": TRANSFORMERS}


@pytest.fixture
def programs(tmp_path: Path, needs_torch: None) -> Programs:
    for name, text in LIBRARIES.items():
        path = tmp_path / "lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Programs(tmp_path)


@pytest.mark.parametrize("library", PROGRAMS)
def test_same_steps_with_fewer_passes(programs: Programs, library: str, tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(tmp_path / "lib")}
    code = PROGRAMS[library]

    def run(steps: int, times: int) -> tuple[list[str], dict[str, object]]:
        found = programs(
            code.replace("STEPS", str(steps)), {"micro_batch": {"times": times}}, env=env
        )
        assert found.done.returncode == 0, found.done.stderr
        return found.done.stdout.split(), found.lever()

    plain, lever = run(4, 3)
    assert lever["refused"] == [f"{library}: 4 accumulation steps"] and not lever["applied"]
    assert plain[:2] == ["32", "16"]
    for times, passes in ((2, "16"), (4, "8")):
        said, lever = run(4, times)
        place = f"{library}: a micro-batch of 4 x 4 -> {4 * times} x {4 // times}"
        assert lever["applied"] == [{"where": place, "count": 1}]
        assert lever["effective"] is True and lever["failed"] == []
        assert said[:2] == [passes, "16"]
        assert float(said[2]) == pytest.approx(float(plain[2]), abs=2e-5)
    _, lever = run(1, 2)
    assert lever["refused"] == [f"{library}: 1 accumulation step"]


def test_loaders_without_a_plain_sampler_are_refused(programs: Programs, tmp_path: Path) -> None:
    own = "class Own(torch.utils.data.BatchSampler): pass\n"
    loader = (
        "DataLoader(train.dataset, batch_sampler=Own(torch.utils.data.RandomSampler(train.dataset), 4, "
        "False))"
    )
    code = LIGHTNING.replace("STEPS", "4").replace(
        "class Mode", f"{own}train = {loader}\nclass Mode"
    )
    found = programs(code, {"micro_batch": {"times": 2}}, env={"PYTHONPATH": str(tmp_path / "lib")})
    assert found.done.stdout.split()[0] == "32"
    assert found.lever()["refused"] == ["Lightning: a DataLoader without a plain BatchSampler"]


def test_by_hand() -> None:
    own = levers()["micro_batch:4"]
    assert own.regroups and own.title.startswith("micro-batches 4 times as large")
    for library, change in {
        "transformers": "TrainingArguments(per_device_train_batch_size=16, "
        "gradient_accumulation_steps=1)",
        "accelerate": "DataLoader(..., batch_size=16)\nAccelerator(gradient_accumulation_steps=1)",
        "Lightning": "DataLoader(..., batch_size=16)\nTrainer(accumulate_grad_batches=1)",
    }.items():
        assert own.manual([{"where": f"{library}: a micro-batch of 4 x 4 -> 16 x 1"}]) == change


def test_only_what_steps_add_up_to_is_compared() -> None:
    """Other calls are no other work, but another number of steps is, and so is another loss."""
    losses: Series = {("loss", ""): {1: (0.5,), 2: (0.4,), 3: (0.3,)}}
    counts = {"": {"backward": 12, "steps": 3, "calls": 12, "tokens": 0}}
    plain = Results({**losses, (OUTPUT, ""): {1: (1.0, 2.0)}}, counts, frozenset({"float32"}))
    half = {"": {"backward": 6, "steps": 3, "calls": 6, "tokens": 0}}
    other = replace(plain, series={**losses, (OUTPUT, ""): {1: (3.0, 4.0)}}, counts=half)
    assert compare([plain] * 3, [other]).kind == Kind.DIFFER
    assert compare([plain] * 3, [other], of_steps=True).kind == Kind.IDENTICAL
    fewer = replace(other, counts={"": {**half[""], "steps": 2}})
    assert compare([plain] * 3, [fewer], of_steps=True).kind == Kind.DIFFER
    wrong = replace(other, series={("loss", ""): {1: (0.9,), 2: (0.4,), 3: (0.3,)}})
    assert compare([plain] * 3, [wrong], of_steps=True).kind == Kind.DIFFER
