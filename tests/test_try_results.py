"""What a program computed: recorded by the injected file, and compared between launches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from perfpipe.analysis.trying.results import Results, compare, read
from perfpipe.analysis.trying.series import Kind
from perfpipe.pipelines.collectors.observing import INJECTED

torch = pytest.importorskip("torch")

#: Does what trying.py does: installs the recording, and calls it.
DRIVER = """
import atexit, os, sys
path = os.environ["RECORDING"]
recording = {}
exec(compile(open(path).read(), path, "exec"), recording)
import torch
recording["install"](torch, {})
from torch.optim.optimizer import register_optimizer_step_post_hook as after
from torch.optim.optimizer import register_optimizer_step_pre_hook as before
steps, inside, call = [0], [False], torch.nn.Module.__call__
def stepped(optimizer, args, kwargs):
    steps[0] += 1
    recording["after_step"](optimizer, steps[0])
before(lambda optimizer, args, kwargs: recording["before_step"](optimizer))
after(stepped)
def observed(self, *args, **kwargs):
    if inside[0] or not any(True for _ in self.parameters()):
        return call(self, *args, **kwargs)
    inside[0] = True
    try:
        output = call(self, *args, **kwargs)
    finally:
        inside[0] = False
    recording["called"](self, output)
    return output
torch.nn.Module.__call__ = observed
atexit.register(recording["write"], True)
"""

PROGRAM = """
import os, torch
torch.manual_seed(int(os.environ.get("SEED", 0)))
net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 3))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(20):
    x = torch.randn(16, 8)
    loss = torch.nn.functional.cross_entropy(net(x), (x[:, 0] > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 4:
        print(f"step {step}: loss {loss.item():.6f}")
"""

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


class Launches:
    """Launches programs with the recording."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0

    def __call__(
        self, program: str = PROGRAM, lever: str = "", *, seed: int = 0, ends: int | None = 0
    ) -> Results:
        self.count += 1
        into = self.folder / str(self.count)
        into.mkdir()
        path = into / "program.py"
        path.write_text(
            f"{DRIVER}\n{textwrap.dedent(lever)}\n{textwrap.dedent(program)}", encoding="utf-8"
        )
        env = {
            "PATH": os.environ["PATH"],
            "RECORDING": str(INJECTED / "recording.py"),
            "PERFPIPE_INJECT_DIR": str(into),
            "SEED": str(seed),
        }
        done = subprocess.run(
            [sys.executable, str(path)], env=env, cwd=into, capture_output=True, text=True
        )
        assert ends is None or done.returncode == ends, done.stderr
        return read(into, done.stdout, exit_code=done.returncode)

    def report(self) -> dict[str, Any]:
        """Return what the last launch recorded."""
        (path,) = (self.folder / str(self.count)).glob("results.*.json")
        found: dict[str, Any] = json.loads(path.read_text())
        return found


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
