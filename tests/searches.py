"""A small problem on the CPU with agents that are scripts, for tests of `perfpipe search`."""

from __future__ import annotations

import sys
from pathlib import Path

WORKLOAD = """
version: 1
name: rows
command: [python, none.py]
work: {bytes: "2*m*n*dtype_bytes"}
evaluate:
  reference: reference.py
  inputs: {x: {shape: [m, n]}}
  outputs: {y: {shape: [m, n]}}
  reduction: n
  correctness: [{m: 3, n: 37}]
  timing: [{m: 64, n: 512}]
  special: []
  seeds: 1
  launches: 2
  batches: 1
  baselines: {base: base}
  limits: {seconds: 120, memory_mb: 2048, host_mb: 1}
"""

REFERENCE = "import torch\n\ndef reference(x):\n    return torch.softmax(x, dim=1)\n"

BASE = """
import torch
REPEAT = 6
def run(x, y):
    for _ in range(REPEAT):
        e = torch.exp(x - x.amax(dim=1, keepdim=True))
        y.copy_(e / e.sum(dim=1, keepdim=True))
"""

#: Variants are equal except for a name that nothing uses.
EQUAL = """
import os, sys, time
assert "PROBLEM.md" in sys.stdin.read()
text = open("kernel.py").read()
name = "G%sV%s" % (os.environ["PERFPIPE_GENERATION"], os.environ["PERFPIPE_VARIANT"])
open("kernel.py", "w").write(text + f"\\nUNUSED_{name} = 1\\n")
time.sleep(float(os.environ.get("AGENT_SLEEPS", "0")))
"""

#: Variants: wrong, only a comment, no result, and wrong like the first except for whitespace.
USELESS = """
import os, sys
print(*sorted(os.listdir()))
print("--api-key abcdef123456")
variant = os.environ["PERFPIPE_VARIANT"]
text = open("kernel.py").read()
wrong = "def run(x, y):\\n    y.zero_()\\n"
if variant == "1":
    text = wrong
elif variant == "2":
    text = "# the same\\n" + text
elif variant == "3":
    sys.exit("no idea")
else:
    text = "# again\\n\\n" + wrong.replace("    ", "  ")
open("kernel.py", "w").write(text)
"""


def problem(folder: Path, more: str = "") -> Path:
    """Write the problem, and return its workload file."""
    (folder / "base").mkdir(parents=True)
    (folder / "base" / "kernel.py").write_text(BASE)
    (folder / "reference.py").write_text(REFERENCE)
    (folder / "w.yaml").write_text(WORKLOAD + more)
    (folder / "equal.py").write_text(EQUAL)
    (folder / "useless.py").write_text(USELESS)
    return folder / "w.yaml"


def agent(folder: Path, name: str) -> str:
    """Return the command of one of the agents."""
    return f"{sys.executable} {folder / name}.py"
