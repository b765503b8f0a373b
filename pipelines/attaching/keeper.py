"""Runs a program that outlives perfpipe, and records its end.

Runs as a separate program in a session of its own, and does not import perfpipe.  It reads a
request from its standard input (JSON), starts the program, and answers in one line on its standard
output:

    process PID          it runs
    failed ERRNO WHAT    it could not start; WHAT is cwd, output or program

Then it waits until the program ends, runs the command `after` if there is one, and writes the exit
code and the time to a file.  It sends no signals: if it is killed, the program continues.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

#: How long the command after the program may take, s.
_PATIENCE_S = 60


def main() -> None:
    """Run the requested program and record its end."""
    request: dict[str, Any] = json.load(sys.stdin)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    started = time.monotonic()
    process = _start(request)
    # perfpipe waits for the end of the answer.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    if process is None:
        return
    code = process.wait()
    end = {"code": code, "seconds": time.monotonic() - started, "ended": time.time()}
    if request["after"]:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                request["after"],
                env=request["env"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_PATIENCE_S,
                check=False,
            )
    temporary = request["end"] + ".tmp"
    with open(temporary, "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump(end, file)
    os.replace(temporary, request["end"])  # noqa: PTH105


def _start(request: dict[str, Any]) -> subprocess.Popen[bytes] | None:
    what = "output"
    try:
        with open(request["out"], "ab") as out, open(request["err"], "ab") as err:  # noqa: PTH123
            what = "cwd"
            os.chdir(request["cwd"])
            what = "program"
            process = subprocess.Popen(
                request["words"],
                env=request["env"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
    except OSError as error:
        _answer(f"failed {error.errno or 0} {what}")
        return None
    _answer(f"process {process.pid}")
    return process


def _answer(text: str) -> None:
    try:
        os.write(1, text.encode() + b"\n")
    except OSError:  # perfpipe is gone
        return


if __name__ == "__main__":
    main()
