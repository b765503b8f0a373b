"""Launches programs with the recording of what they compute, by a driver instead of trying.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from perfpipe.analysis.trying.results import Results, read
from perfpipe.pipelines.collectors.observing import INJECTED

#: Does what trying.py does: installs the recording, and calls it.
DRIVER = """
import atexit, os, sys
path = os.environ["RECORDING"]
recording = {}
exec(compile(open(path).read(), path, "exec"), recording)
import torch
recording["install"](torch)
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
import os, signal, torch
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


class Launches:
    """Launches programs with the recording."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count, self.output = folder, 0, ""

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
        self.output = done.stdout
        return read(into, done.stdout, exit_code=done.returncode)

    def report(self) -> dict[str, Any]:
        """Return what the last launch recorded."""
        (path,) = (self.folder / str(self.count)).glob("results.*.json")
        found: dict[str, Any] = json.loads(path.read_text())
        return found
