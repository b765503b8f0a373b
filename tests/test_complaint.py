"""What is said of a program that failed: the error that it raised, wherever it printed that."""

from __future__ import annotations

import pytest

from pipelines.process import Finished

TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
    raise ValueError("first")
ValueError: first

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "train.py", line 5, in <module>
    load(path)
data.LoadError: no such file: x
"""
WARNING = "[rank0]:[W1125 09:34:34.5 ProcessGroupNCCL.cpp:1575] Warning: not called before exit\n"
RANKS = "".join(f"[rank0]: {line}\n" for line in TRACEBACK.splitlines())


@pytest.mark.parametrize(
    ("stdout", "stderr", "said"),
    [
        ("", TRACEBACK + WARNING, "data.LoadError: no such file: x"),
        ("", RANKS + WARNING, "data.LoadError: no such file: x"),
        (TRACEBACK, WARNING, "data.LoadError: no such file: x"),
        ("step 1\n", "a\nb\nc\nd: e\n", "b | c | d: e"),
        ("", "Traceback (most recent call last):\n  File 1\nKeyboardInterrupt\n", None),
    ],
)
def test_the_error_that_was_raised_is_told(stdout: str, stderr: str, said: str | None) -> None:
    complaint = Finished(1, stdout, stderr, 1.0).complaint()
    assert complaint == (said or "Traceback (most recent call last): | File 1 | KeyboardInterrupt")
