"""Stops a recording if perfpipe is killed before it can.

Runs as a separate program and does not import perfpipe.  Its arguments are a command.  It reads its
standard input to the end, which comes when perfpipe has ended for any reason.  If perfpipe has not
written "done" before, it runs the command.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

#: How long the command may take, s.
_PATIENCE_S = 60


def main() -> None:
    """Wait for the end of perfpipe, and run the command unless all is done."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    said = b""
    while part := os.read(0, 64):
        said += part
    if said != b"done":
        subprocess.run(
            sys.argv[1:],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE_S,
            check=False,
        )


if __name__ == "__main__":
    main()
