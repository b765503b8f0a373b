"""How much memory programs have pinned, as far as their memory maps tell."""

from __future__ import annotations

import mmap
import subprocess
import sys

from perfpipe.pipelines.collectors.pinned import pinned_gb

#: CUDA maps pinned memory so: shared, and of no file.
HOLDING = "import mmap, sys; held = mmap.mmap(-1, 96 << 20); print(flush=True); sys.stdin.read()"


def test_the_largest_of_the_processes_below_counts() -> None:
    own = mmap.mmap(-1, 512 << 20)  # not below this process
    before = pinned_gb()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout and process.stdin
        process.stdout.readline()
        assert pinned_gb() == max(before, (96 << 20) / 1e9)
        process.stdin.close()
    own.close()
    assert before < (512 << 20) / 1e9
