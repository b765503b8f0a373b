"""Random numbers are alike in all launches, and in workers of loaders where results are checked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from leverprograms import Programs

pytest.importorskip("torch")

CODE = """
import random
import numpy
import torch
from torch.utils.data import DataLoader, Dataset
SEED = ""

class Data(Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, index):
        numbers = torch.rand(()), torch.tensor(random.random()), torch.tensor(numpy.random.rand())
        return torch.stack([one.float() for one in numbers])

if __name__ == "__main__":
    batches = [x for epoch in range(2) for x in DataLoader(Data(), 4, shuffle=True, num_workers=N)]
    print(torch.stack(batches).tolist())
    print(torch.rand(()).item(), random.random(), numpy.random.rand())
"""


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


def _printed(programs: Programs, workers: int, own: str = "", **plan: Any) -> Sequence[str]:
    """Return what a program printed; `own` is code that sets its seeds."""
    code = CODE.replace("num_workers=N", f"num_workers={workers}").replace('SEED = ""', own)
    done = programs(code, [], **plan).done
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_launches_of_an_unseeded_program_are_alike(programs: Programs) -> None:
    first = _printed(programs, 0, seed=0)
    assert first == _printed(programs, 0, seed=0)
    assert first != _printed(programs, 0, seed=1)


def test_a_program_that_sets_its_seed_keeps_it(programs: Programs) -> None:
    own = "torch.manual_seed(7); random.seed(7); numpy.random.seed(7)"
    assert _printed(programs, 0, own, seed=0) == _printed(programs, 0, own)


def test_batches_do_not_depend_on_workers_where_results_are_checked(programs: Programs) -> None:
    alone, shared = (_printed(programs, count, seed=0, verify=True) for count in (0, 2))
    assert alone == shared
    assert _printed(programs, 0, seed=0)[0] != _printed(programs, 2, seed=0)[0]
