"""A workload to judge candidates by that computes little: y = 2 x."""

from __future__ import annotations

from pathlib import Path

_WORKLOAD = """
version: 1
name: scaled
command: [python, none.py]
evaluate:
  reference: scaled_reference.py
  inputs: {x: {shape: [n]}}
  outputs: {y: {shape: [n]}}
  correctness: [{n: 5}]
  special: []
  seeds: 1
"""

#: A candidate that is right.
RIGHT = "def run(x, y):\n    y.copy_(2 * x)\n"


def scaled(folder: Path, more: str = "") -> Path:
    """Write the workload, with more lines of its block `evaluate`, and return its path."""
    path = folder / "scaled.yaml"
    path.write_text(_WORKLOAD + more)
    (folder / "scaled_reference.py").write_text("def reference(x):\n    return 2 * x\n")
    return path


def candidate(folder: Path, name: str, source: str) -> Path:
    """Write a candidate, and return its directory."""
    (folder / name).mkdir()
    (folder / name / "kernel.py").write_text(source)
    return folder / name
