"""The workload program itself, on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from conftest import ROOT

PROGRAM = ROOT / "workloads" / "gemm.py"


def _run(*options: str) -> tuple[int, list[dict[str, Any]], str]:
    words = [sys.executable, str(PROGRAM), "--warmup", "1", "--iterations", "3", *options]
    done = subprocess.run(words, capture_output=True, text=True)
    messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return done.returncode, messages, done.stderr


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "tf32", "fp32"])
def test_the_result_is_right_and_timed(dtype: str) -> None:
    code, messages, errors = _run("--m", "96", "--n", "80", "--k", "64", "--dtype", dtype)
    assert code == 0, errors
    validation, timing = messages
    assert validation["perfpipe"] == "validation"
    assert validation["ok"] is True
    assert timing["device"] in ("cpu", "cuda")
    assert len(timing["ms"]) == 3
    assert all(ms > 0 for ms in timing["ms"])


def test_a_wrong_result_is_not_timed() -> None:
    """No tolerance is met exactly by half precision, so this result counts as wrong."""
    code, messages, _ = _run(
        "--dtype", "fp16", "--m", "64", "--k", "512", "--atol", "0", "--rtol", "0"
    )
    assert code == 3
    assert [message["perfpipe"] for message in messages] == ["validation"]
    assert messages[0]["ok"] is False
