"""Planted levers that change what a program computes are found, and harmless ones pass."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded import Launches

from perfpipe.analysis.trying.results import Results, compare, read
from perfpipe.analysis.trying.series import Kind

pytest.importorskip("torch")

#: Levers that change what the program computes.
PLANTED = {
    "skipped backward": "torch.Tensor.backward = lambda self, *a, **k: None",
    "other seed": "own_seed = torch.manual_seed; torch.manual_seed = lambda s: own_seed(s + 1)",
    "lost loss": """
        import torch.autograd
        recording["_process"]._record = lambda key, values: None
        """,
    "loss of zero": """
        backward = torch.Tensor.backward
        torch.Tensor.backward = lambda self, *a, **k: backward(self * 0, *a, **k)
        """,
    "no gradients": """
        before(lambda o, a, k: o.zero_grad())
        """,
    "scaled gradients": """
        backward = torch.Tensor.backward
        torch.Tensor.backward = lambda self, *a, **k: backward(self, gradient=torch.tensor(0.5))
        """,
    "every other step": """
        own_step, own_calls = torch.optim.Adam.step, [0]
        def every_other(self, *a, **k):
            own_calls[0] += 1
            return own_step(self, *a, **k) if own_calls[0] % 2 else None
        torch.optim.Adam.step = every_other
        """,
    "learning rate": """
        init = torch.optim.Adam.__init__
        torch.optim.Adam.__init__ = lambda self, p, lr: init(self, p, lr=2 * lr)
        """,
    "constant parameters": """
        init = torch.optim.Adam.__init__
        torch.optim.Adam.__init__ = lambda self, p, lr: init(self, p, lr=0.0)
        """,
    "another dropout": """
        forward = torch.nn.Tanh.forward
        torch.nn.Tanh.forward = lambda self, x: torch.nn.functional.dropout(forward(self, x), 0.1)
        """,
    "nan": """
        forward = torch.nn.Tanh.forward
        torch.nn.Tanh.forward = lambda self, x: forward(self, x) * (float("nan") if steps[0] > 9 else 1)
        """,
}

#: Levers that change at most the rounding.
HARMLESS = {
    "nothing": "",
    "threads": "torch.set_num_threads(2)",
    "one optimizer kernel": """
        init = torch.optim.Adam.__init__
        torch.optim.Adam.__init__ = lambda self, p, lr: init(self, p, lr=lr, fused=True)
        """,
    "rounding": """
        forward = torch.nn.Tanh.forward
        torch.nn.Tanh.forward = lambda self, x: forward(self, x) * (1 + 1e-7)
        """,
    "bf16": """
        observed = torch.nn.Module.__call__
        def lower(self, *args):
            with torch.autocast("cpu", torch.bfloat16):
                return observed(self, *args)
        def cast(self, *args):
            output = lower(self, *args)
            return output if inside[0] else output.float()
        torch.nn.Module.__call__ = cast
        """,
}


@pytest.fixture
def launches(tmp_path: Path) -> Launches:
    return Launches(tmp_path)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[Results]:
    launch = Launches(tmp_path_factory.mktemp("plain"))
    return [launch(), launch()]


@pytest.mark.parametrize("name", PLANTED)
def test_planted_levers_are_found(launches: Launches, plain: list[Results], name: str) -> None:
    found = compare(plain, [launches(lever=PLANTED[name])], tolerance=None)
    assert found.kind == (Kind.UNKNOWN if name == "lost loss" else Kind.DIFFER), found.why
    # With the tolerance of BF16 too, except what is about as small.
    found = compare(plain, [launches(lever=PLANTED[name])], tolerance=1e-2)
    assert found.kind in (Kind.UNKNOWN, Kind.DIFFER), found.why


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_levers_pass(launches: Launches, plain: list[Results], name: str) -> None:
    tolerance = 1e-2 if name == "bf16" else None
    found = compare(plain, [launches(lever=HARMLESS[name])], tolerance)
    expected = Kind.IDENTICAL if name == "nothing" else Kind.WITHIN_TOLERANCE
    assert found.kind in (expected, Kind.IDENTICAL), found.why


def test_numbers_without_a_name_are_not_called_missing() -> None:
    launches = [read(None, f"0 {value}\n", exit_code=0) for value in (34233.3, 29114.7, 31002.5)]
    assert compare(launches[:2], launches[2:]).why == (
        "No results were recorded, and printed numbers without a name differ between launches."
    )
    silent = [read(None, "done\n", exit_code=0)] * 2
    assert (
        compare(silent, silent).why
        == "No results were recorded, and nothing printed is known to be a result."
    )
