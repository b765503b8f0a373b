"""Loading numpy without threads of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_PROGRAM = """
import os, sys
from perfpipe.blas import load_numpy
before = dict(os.environ)
load_numpy()
assert "numpy" in sys.modules and os.environ == before
print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
@pytest.mark.parametrize(("stated", "threads"), [(None, 1), ("2", 2)])
def test_numpy_starts_the_threads_that_were_asked_for(stated: str | None, threads: int) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    environment |= {"OPENBLAS_NUM_THREADS": stated} if stated else {}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    # There are never more than cores.
    assert int(done.stdout) == min(threads, len(os.sched_getaffinity(0)))
