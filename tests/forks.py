"""Runs Python programs in forks of one interpreter that has imported PyTorch and Triton already.

Reads a JSON object a line, with the words of a program, the environment variables to set, and the
files that its output goes to; prints the exit code.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path

import triton.language  # noqa: F401


def main() -> None:
    """Serve until the input ends."""
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(**job)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201


def _run(words: list[str], env: dict[str, str], out: str, err: str) -> None:
    """Become the program; what it raises ends this process as it would end its own."""
    for number, name in ((0, os.devnull), (1, out), (2, err)):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), number)
    os.environ.update(env)
    sys.argv = words
    sys.path[0] = str(Path(words[0]).resolve().parent)
    runpy.run_path(words[0], run_name="__main__")
    sys.exit()


if __name__ == "__main__":
    main()
